"""How does one kind become another? Conversions between scalars, type(), dyn(), size() and the plain string tests."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, Final

import re2

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import Overload, free, member
from dragoman.cel.stdlib.times import format_duration, format_timestamp, parse_duration, parse_timestamp
from dragoman.cel.types import A, B, Type
from dragoman.cel.values import INT_MAX, INT_MIN, TYPE_OF, UINT_MAX, CelValue, Timestamp, Uint, size

_RANGE = "range error: integer overflow: return error for overflow, out of range"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9](_?[0-9])*\.?([0-9](_?[0-9])*)?|\.[0-9](_?[0-9])*)([eE][+-]?[0-9]+)?")
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _failed(source: Type, target: Type) -> EvalError:
    return EvalError(f"type conversion error from '{source.name}' to '{target.name}'")


def _int_of_number(value: float) -> int:
    if value.__class__ is float and not (math.isfinite(value) and float(INT_MIN) < value < float(INT_MAX)):
        raise EvalError(_RANGE)
    whole = int(value)
    if not INT_MIN <= whole <= INT_MAX:
        raise EvalError(_RANGE)
    return whole


def _uint_of_number(value: float) -> Uint:
    if value.__class__ is float and not (math.isfinite(value) and -1 < value < float(UINT_MAX)):
        raise EvalError(_RANGE)
    if value < 0 or int(value) > UINT_MAX:
        raise EvalError(_RANGE)
    return Uint(int(value))


def _int_of_string(text: str) -> int:
    if not _WHOLE.fullmatch(text) or len(text) > 30 or not INT_MIN <= int(text) <= INT_MAX:
        raise _failed(t.STRING, t.INT)
    return int(text)


def _uint_of_string(text: str) -> Uint:
    if not _UNSIGNED.fullmatch(text) or len(text) > 30 or int(text) > UINT_MAX:
        raise _failed(t.STRING, t.UINT)
    return Uint(int(text))


def _double_of_string(text: str) -> float:
    bare = text.lower().lstrip("+-")
    if bare in ("inf", "infinity", "nan") and len(text) - len(bare) <= 1:
        return float(text)
    if not _FLOAT.fullmatch(text) or "_" in text or math.isinf(float(text)):
        raise _failed(t.STRING, t.DOUBLE)
    return float(text)


def _bool_of_string(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _failed(t.STRING, t.BOOL)


def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None


def format_double(value: float) -> str:
    """The shortest text that gives the number back, as Go's %g writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    mantissa, _, exponent = repr_scientific(value).partition("e")
    power = int(exponent)
    if -4 <= power < 6:
        return _positional(mantissa, power)
    return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def repr_scientific(value: float) -> str:
    """Shortest digits as `d.ddde±x`."""
    text = repr(value)
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    power = (len(whole) - 1 if whole != "0" else -1 - (len(fraction) - len(fraction.lstrip("0")))) + int(exponent or 0)
    digits = digits.rstrip("0") or "0"
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{power}"


def _positional(mantissa: str, power: int) -> str:
    sign = "-" if mantissa[0] == "-" else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if len(digits) <= power + 1:
        return sign + digits + "0" * (power + 1 - len(digits))
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"


def runtime_type(value: CelValue) -> Type:
    """`type(value)`."""
    return TYPE_OF[value.__class__]


def _same(value: CelValue) -> CelValue:
    return value


def matches(text: str, pattern: str) -> bool:
    """Whether RE2 finds the pattern anywhere in the text."""
    return re2_compiled(pattern).search(text) is not None


_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=1024)
def re2_compiled(pattern: str) -> Any:
    """The compiled pattern, cached. Raises EvalError."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise EvalError(f"error parsing regexp: {shown}") from None


def _size(kind: str, of: Type) -> list[Overload]:
    return [free("size", f"size_{kind}", (of,), t.INT, size), member("size", f"{kind}_size", (of,), t.INT, size)]


OVERLOADS: Final = [
    *_size("bytes", t.BYTES),
    *_size("list", t.list_of(A)),
    *_size("map", t.map_of(A, B)),
    *_size("string", t.STRING),
    free("type", "type", (A,), t.type_of(A), runtime_type),
    free("bool", "bool_to_bool", (t.BOOL,), t.BOOL, _same),
    free("bool", "string_to_bool", (t.STRING,), t.BOOL, _bool_of_string),
    free("bytes", "bytes_to_bytes", (t.BYTES,), t.BYTES, _same),
    free("bytes", "string_to_bytes", (t.STRING,), t.BYTES, str.encode),
    free("double", "double_to_double", (t.DOUBLE,), t.DOUBLE, _same),
    free("double", "int64_to_double", (t.INT,), t.DOUBLE, float),
    free("double", "string_to_double", (t.STRING,), t.DOUBLE, _double_of_string),
    free("double", "uint64_to_double", (t.UINT,), t.DOUBLE, float),
    free("duration", "duration_to_duration", (t.DURATION,), t.DURATION, _same),
    free("duration", "string_to_duration", (t.STRING,), t.DURATION, parse_duration),
    free("dyn", "to_dyn", (A,), t.DYN, _same),
    free("int", "int64_to_int64", (t.INT,), t.INT, _same),
    free("int", "double_to_int64", (t.DOUBLE,), t.INT, _int_of_number),
    free("int", "duration_to_int64", (t.DURATION,), t.INT, lambda value: value.nanos),
    free("int", "string_to_int64", (t.STRING,), t.INT, _int_of_string),
    free("int", "timestamp_to_int64", (t.TIMESTAMP,), t.INT, lambda value: value.nanos // 10**9),
    free("int", "uint64_to_int64", (t.UINT,), t.INT, _int_of_number),
    free("string", "string_to_string", (t.STRING,), t.STRING, _same),
    free("string", "bool_to_string", (t.BOOL,), t.STRING, lambda value: "true" if value else "false"),
    free("string", "bytes_to_string", (t.BYTES,), t.STRING, _string_of_bytes),
    free("string", "double_to_string", (t.DOUBLE,), t.STRING, format_double),
    free("string", "duration_to_string", (t.DURATION,), t.STRING, format_duration),
    free("string", "int64_to_string", (t.INT,), t.STRING, str),
    free("string", "timestamp_to_string", (t.TIMESTAMP,), t.STRING, format_timestamp),
    free("string", "uint64_to_string", (t.UINT,), t.STRING, lambda value: str(int(value))),
    free("timestamp", "timestamp_to_timestamp", (t.TIMESTAMP,), t.TIMESTAMP, _same),
    free("timestamp", "int64_to_timestamp", (t.INT,), t.TIMESTAMP, lambda value: Timestamp(value * 10**9)),
    free("timestamp", "string_to_timestamp", (t.STRING,), t.TIMESTAMP, parse_timestamp),
    free("uint", "uint64_to_uint64", (t.UINT,), t.UINT, _same),
    free("uint", "double_to_uint64", (t.DOUBLE,), t.UINT, _uint_of_number),
    free("uint", "int64_to_uint64", (t.INT,), t.UINT, _uint_of_number),
    free("uint", "string_to_uint64", (t.STRING,), t.UINT, _uint_of_string),
    member("contains", "contains_string", (t.STRING, t.STRING), t.BOOL, str.__contains__),
    member("endsWith", "ends_with_string", (t.STRING, t.STRING), t.BOOL, str.endswith),
    member("startsWith", "starts_with_string", (t.STRING, t.STRING), t.BOOL, str.startswith),
    free("matches", "matches", (t.STRING, t.STRING), t.BOOL, matches),
    member("matches", "matches_string", (t.STRING, t.STRING), t.BOOL, matches),
]
