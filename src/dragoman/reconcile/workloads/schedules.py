"""When is the next time of a cron schedule? Five fields, names of months and days, and the usual @words, in a zone.

Pure: times go in and come out. Source of the format: the CronJob API, which takes that of robfig/cron.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from dragoman.errors import Invalid

WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES = ("minute", "hour", "day of month", "month", "day of week")
_WORDS_OF_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_WORDS_OF_DAYS = "sun mon tue wed thu fri sat"
_MONTHS = {name: number for number, name in enumerate(_WORDS_OF_MONTHS.split(), 1)}
_DAYS = {name: number for number, name in enumerate(_WORDS_OF_DAYS.split())}
_EVERY = re.compile(r"@every (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
FARTHEST = timedelta(days=5 * 366)


class Schedule(msgspec.Struct, frozen=True):
    """The allowed values of each field; starred: (day of month, day of week) is `*`; every_s: of `@every`, else 0."""

    fields: tuple[frozenset[int], ...]
    starred: tuple[bool, bool]
    every_s: int = 0

    def next(self, after: float, zone: tzinfo = UTC) -> float | None:
        """The first time after those epoch seconds; None where there is none in five years."""
        if self.every_s:
            return after + self.every_s
        moment = datetime.fromtimestamp(after, zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = moment + FARTHEST
        minutes, hours, _, months, _ = self.fields
        while moment < end:
            if moment.month not in months or not self._day(moment):
                moment = (moment + timedelta(days=1)).replace(hour=0, minute=0)
            elif moment.hour not in hours:
                moment = (moment + timedelta(hours=1)).replace(minute=0)
            elif moment.minute not in minutes:
                moment += timedelta(minutes=1)
            else:
                return moment.timestamp()
        return None

    def _day(self, moment: datetime) -> bool:
        in_month = moment.day in self.fields[2]
        in_week = (moment.weekday() + 1) % 7 in self.fields[4]
        # Where both are given, either will do.
        return in_month and in_week if any(self.starred) else in_month or in_week


@lru_cache(maxsize=1024)
def parse(text: str) -> Schedule:
    """The schedule of a text. Raises Invalid."""
    if text.startswith("@every"):
        match = _EVERY.fullmatch(text)
        seconds = sum(int(n or 0) * unit for n, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
        if not seconds:
            raise Invalid("schedule", f"{text!r} is not a duration such as @every 1h30m")
        return Schedule((), (True, True), seconds)
    words = WORDS.get(text, text).split()
    if len(words) != 5:
        raise Invalid("schedule", f"expected exactly 5 fields, found {len(words)}: {text!r}")
    fields = tuple(_field(word, index) for index, word in enumerate(words))
    return Schedule(fields, (words[2][0] in "*?", words[4][0] in "*?"))


def _field(text: str, index: int) -> frozenset[int]:
    low, high = _RANGES[index]
    names = _MONTHS if index == 3 else _DAYS if index == 4 else {}
    found: set[int] = set()
    for part in text.lower().split(","):
        match = re.fullmatch(r"(\*|\?|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
        if match is None:
            raise Invalid("schedule", f"{_NAMES[index]}: cannot read {part!r}")
        step = int(match[4] or 1)
        if match[2] is None:
            first, last = low, high
        else:
            first = _number(match[2], names, index)
            last = _number(match[3], names, index) if match[3] else (high if match[4] else first)
        top = 7 if index == 4 else high
        if not (low <= first <= last <= top) or step < 1:
            raise Invalid("schedule", f"{_NAMES[index]}: {part!r} is not within {low} to {high}")
        found.update(value % 7 if index == 4 else value for value in range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, names: dict[str, int], index: int) -> int:
    if text in names:
        return names[text]
    if not text.isdecimal():
        raise Invalid("schedule", f"{_NAMES[index]}: cannot read {text!r}")
    return int(text)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """A time zone by its name. Raises Invalid."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Invalid("timeZone", f"unknown time zone {name}") from None
