"""When and how long? Timestamps and durations: text both ways, and the parts of both."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import Overload, member
from dragoman.cel.values import Duration, Timestamp

_SECOND: Final = 10**9
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_OFFSET = re.compile(r"([+-]?)([0-9]{2}):([0-9]{2})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> Duration:
    """`1h2m3.5s`, as Go reads it. Raises EvalError."""
    body = text[1:] if text[:1] in ("+", "-") else text
    failed = EvalError("type conversion error from 'string' to 'google.protobuf.Duration'")
    if body == "0":
        return Duration(0)
    at = nanos = 0
    while at < len(body):
        part = _PART.match(body, at)
        if part is None:
            raise failed
        whole, _, fraction = part.group(1).partition(".")
        fraction = fraction[:18]
        if len(whole) > 20:
            raise EvalError("duration overflow: out of range")
        unit = _UNITS[part.group(2)]
        nanos += int(whole or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        at = part.end()
    if not body:
        raise failed
    return Duration(-nanos if text[0] == "-" else nanos)


def format_duration(value: Duration) -> str:
    """Seconds with as many decimals as needed and `s`."""
    whole, fraction = divmod(abs(value.nanos), _SECOND)
    sign = "-" if value.nanos < 0 else ""
    decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{sign}{whole}{decimals}s"


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339. Raises EvalError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise EvalError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    year, month, day, hour, minute, second = (int(found.group(i)) for i in range(1, 7))
    zone = found.group(8)
    offset = 0 if zone == "Z" else int(zone[0] + "1") * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60)
    fraction = int((found.group(7) or "0")[:9].ljust(9, "0"))
    try:
        when = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        if year == 0:
            raise EvalError("timestamp overflow: out of range") from None
        raise EvalError(f"type conversion error from 'string' to 'google.protobuf.Timestamp': {error}") from None
    seconds = (when - _EPOCH) // timedelta(seconds=1) - offset
    return Timestamp(seconds * _SECOND + fraction)


def _utc(value: Timestamp) -> datetime:
    return _EPOCH + timedelta(seconds=value.nanos // _SECOND)


def format_timestamp(value: Timestamp) -> str:
    """RFC 3339 in UTC with as many decimals as needed."""
    fraction = value.nanos % _SECOND
    decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
    when = _utc(value)
    return f"{when.year:04d}-{when:%m-%dT%H:%M:%S}{decimals}Z"


def _zone(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset:
        minutes = int(offset.group(2)) * 60 + int(offset.group(3))
        return timezone(timedelta(minutes=-minutes if offset.group(1) == "-" else minutes))
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvalError(f"unknown time zone {name}") from None


def _local(value: Timestamp, zone: str) -> datetime:
    try:
        return _utc(value).astimezone(_zone(zone))
    except OverflowError:
        raise EvalError("timestamp overflow: out of range") from None


_PARTS: Final[tuple[tuple[str, str, Callable[[datetime], int]], ...]] = (
    ("getFullYear", "timestamp_to_year", lambda when: when.year),
    ("getMonth", "timestamp_to_month", lambda when: when.month - 1),
    ("getDayOfYear", "timestamp_to_day_of_year", lambda when: when.timetuple().tm_yday - 1),
    ("getDayOfMonth", "timestamp_to_day_of_month", lambda when: when.day - 1),
    ("getDate", "timestamp_to_day_of_month_1_based", lambda when: when.day),
    ("getDayOfWeek", "timestamp_to_day_of_week", lambda when: (when.weekday() + 1) % 7),
    ("getHours", "timestamp_to_hours", lambda when: when.hour),
    ("getMinutes", "timestamp_to_minutes", lambda when: when.minute),
    ("getSeconds", "timestamp_to_seconds", lambda when: when.second),
)


def _part(function: str, id: str, read: Callable[[datetime], int]) -> list[Overload]:
    zoned = "timestamp_to_seconds_tz" if id == "timestamp_to_seconds" else f"{id}_with_tz"
    return [
        member(function, id, (t.TIMESTAMP,), t.INT, lambda value: read(_utc(value))),
        member(function, zoned, (t.TIMESTAMP, t.STRING), t.INT, lambda value, zone: read(_local(value, zone))),
    ]


def _toward_zero(nanos: int, unit: int) -> int:
    whole = abs(nanos) // unit
    return -whole if nanos < 0 else whole


def _span(function: str, id: str, unit: int) -> Overload:
    return member(function, id, (t.DURATION,), t.INT, lambda value: _toward_zero(value.nanos, unit))


def _milliseconds(value: Timestamp, zone: str = "UTC") -> int:
    _zone(zone)
    return value.nanos % _SECOND // 10**6


def _duration_milliseconds(value: Duration) -> int:
    return _toward_zero(value.nanos, 10**6)


OVERLOADS: Final = [
    *(overload for part in _PARTS for overload in _part(*part)),
    member("getMilliseconds", "timestamp_to_milliseconds", (t.TIMESTAMP,), t.INT, _milliseconds),
    member("getMilliseconds", "timestamp_to_milliseconds_with_tz", (t.TIMESTAMP, t.STRING), t.INT, _milliseconds),
    _span("getHours", "duration_to_hours", 3600 * _SECOND),
    _span("getMinutes", "duration_to_minutes", 60 * _SECOND),
    _span("getSeconds", "duration_to_seconds", _SECOND),
    member("getMilliseconds", "duration_to_milliseconds", (t.DURATION,), t.INT, _duration_milliseconds),
]
