"""What do the operators do? Arithmetic with overflow as an error, order, equality, membership and indexing.

`&&`, `||`, `?:` and presence are not here: they decide what is evaluated, so the compiler does them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError, NoSuchKey, NoSuchOverload
from dragoman.cel.functions import Overload, free
from dragoman.cel.types import A, B, Type
from dragoman.cel.values import (
    INT_MAX,
    INT_MIN,
    LIST_MAX,
    TEXT_MAX,
    UINT_MAX,
    CelValue,
    Duration,
    Timestamp,
    Uint,
    compare,
    contains,
    equal,
    map_key,
    type_name,
)

_OVERFLOW = "return error for overflow"
_INT_OVERFLOW = f"integer overflow: {_OVERFLOW}"
_UINT_OVERFLOW = f"unsigned integer overflow: {_OVERFLOW}"


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvalError(_INT_OVERFLOW)


def _uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvalError(_UINT_OVERFLOW)


def _number(kind: type, value: CelValue) -> CelValue:
    if kind is int:
        return _int(value)
    if kind is Uint:
        return _uint(value)
    return value


_ADDED: Final = frozenset((str, bytes, tuple))


def _joined(one: CelValue, two: CelValue) -> CelValue:
    """Strings, bytes or lists one after the other."""
    limit = LIST_MAX if one.__class__ is tuple else TEXT_MAX
    if len(one) + len(two) > limit:
        raise EvalError(f"a sum of {len(one) + len(two)} parts exceeds the limit of {limit}")
    return one + two


def add(one: CelValue, two: CelValue) -> CelValue:
    """`+`."""
    kind, other = one.__class__, two.__class__
    if kind is other:
        if kind is int:
            return _int(one + two)
        if kind is float:
            return one + two
        if kind in _ADDED:
            return _joined(one, two)
        if kind is Uint:
            return _uint(int(one) + int(two))
        if kind is Duration:
            return Duration(one.nanos + two.nanos)
    elif (kind is Timestamp and other is Duration) or (kind is Duration and other is Timestamp):
        return Timestamp(one.nanos + two.nanos)
    raise NoSuchOverload


def subtract(one: CelValue, two: CelValue) -> CelValue:
    """`-` between two."""
    kind, other = one.__class__, two.__class__
    if kind is other:
        if kind is int:
            return _int(one - two)
        if kind is float:
            return one - two
        if kind is Uint:
            return _uint(int(one) - int(two))
        if kind is Duration or kind is Timestamp:
            return Duration(one.nanos - two.nanos)
    elif kind is Timestamp and other is Duration:
        return Timestamp(one.nanos - two.nanos)
    raise NoSuchOverload


_NUMERIC: Final = frozenset((int, Uint, float))


def multiply(one: CelValue, two: CelValue) -> CelValue:
    """`*`."""
    kind = one.__class__
    if kind is not two.__class__ or kind not in _NUMERIC:
        raise NoSuchOverload
    return _number(kind, one * two if kind is float else int(one) * int(two))


def divide(one: CelValue, two: CelValue) -> CelValue:
    """`/`, toward zero for whole numbers."""
    kind = one.__class__
    if kind is not two.__class__ or kind not in _NUMERIC:
        raise NoSuchOverload
    if kind is float:
        return _divide_doubles(one, two)
    if two == 0:
        raise EvalError("division by zero: divide by zero")
    quotient = abs(int(one)) // abs(int(two))
    return _number(kind, quotient if (one < 0) == (two < 0) else -quotient)


def _divide_doubles(one: float, two: float) -> float:
    if two:
        return one / two
    if one == 0 or one != one:
        return float("nan")
    negative = (one < 0) != (str(two)[0] == "-")
    return float("-inf") if negative else float("inf")


def modulo(one: CelValue, two: CelValue) -> CelValue:
    """`%`, with the sign of the left one."""
    kind = one.__class__
    if kind is not two.__class__ or kind not in (int, Uint):
        raise NoSuchOverload
    if two == 0:
        raise EvalError("modulus by zero")
    if one == INT_MIN and two == -1:
        raise EvalError(_INT_OVERFLOW)
    rest = abs(int(one)) % abs(int(two))
    return _number(kind, -rest if one < 0 else rest)


def negate(one: CelValue) -> CelValue:
    """`-` before a number."""
    kind = one.__class__
    if kind is int:
        return _int(-one)
    if kind is float:
        return -one
    if kind is Duration:
        return Duration(-one.nanos)
    raise NoSuchOverload


def logical_not(one: CelValue) -> CelValue:
    """`!`."""
    if one is True:
        return False
    if one is False:
        return True
    raise NoSuchOverload


def not_equal(one: CelValue, two: CelValue) -> bool:
    """`!=`: what cannot be compared is different."""
    try:
        return not equal(one, two)
    except NoSuchOverload:
        return True


def less(one: CelValue, two: CelValue) -> bool:
    """`<`."""
    return compare(one, two) < 0


def less_equal(one: CelValue, two: CelValue) -> bool:
    """`<=`."""
    return compare(one, two) <= 0


def greater(one: CelValue, two: CelValue) -> bool:
    """`>`."""
    return compare(one, two) > 0


def greater_equal(one: CelValue, two: CelValue) -> bool:
    """`>=`."""
    return compare(one, two) >= 0


def is_in(one: CelValue, two: CelValue) -> bool:
    """`in` for lists (by equality) and maps (a key)."""
    if two.__class__ is tuple:
        return contains(two, one)
    if isinstance(two, dict):
        try:
            return map_key(one) in two
        except EvalError:
            return False
    raise NoSuchOverload


def index(one: CelValue, two: CelValue) -> CelValue:
    """`one[two]` for lists and maps."""
    if isinstance(one, dict):
        try:
            return one[map_key(two)]
        except KeyError:
            raise NoSuchKey(shown_key(two), known=tuple(k for k in one if k.__class__ is str)) from None
    if one.__class__ is not tuple:
        raise NoSuchOverload
    position = list_index(two)
    if 0 <= position < len(one):
        return one[position]
    raise EvalError(f"index out of bounds: {position}")


def shown_key(key: CelValue) -> str:
    """A key as it stands in messages."""
    if key is True or key is False:
        return str(key).lower()
    return str(int(key)) if key.__class__ is Uint else str(key)


def list_index(two: CelValue) -> int:
    """A position in a list: an int, or another number that is whole."""
    kind = two.__class__
    if kind is int:
        return int(two)
    if kind is Uint:
        return int(two)
    if kind is float:
        if two.is_integer():
            return int(two)
        raise EvalError(f"unsupported index value: {two}: invalid_argument")
    raise EvalError(f"unsupported index type '{type_name(two)}' in list: invalid_argument")


_ORDERED: Final[tuple[tuple[str, Type, Type], ...]] = (
    ("bool", t.BOOL, t.BOOL),
    ("int64", t.INT, t.INT),
    ("int64_double", t.INT, t.DOUBLE),
    ("int64_uint64", t.INT, t.UINT),
    ("uint64", t.UINT, t.UINT),
    ("uint64_double", t.UINT, t.DOUBLE),
    ("uint64_int64", t.UINT, t.INT),
    ("double", t.DOUBLE, t.DOUBLE),
    ("double_int64", t.DOUBLE, t.INT),
    ("double_uint64", t.DOUBLE, t.UINT),
    ("string", t.STRING, t.STRING),
    ("bytes", t.BYTES, t.BYTES),
    ("timestamp", t.TIMESTAMP, t.TIMESTAMP),
    ("duration", t.DURATION, t.DURATION),
)


def _order(function: str, name: str, run: Callable[[CelValue, CelValue], bool]) -> list[Overload]:
    return [free(function, f"{name}_{kind}", (one, two), t.BOOL, run) for kind, one, two in _ORDERED]


def _same(
    function: str, name: str, kinds: tuple[tuple[str, Type], ...], run: Callable[..., CelValue]
) -> list[Overload]:
    return [free(function, f"{name}_{suffix}", (kind, kind), kind, run) for suffix, kind in kinds]


_INT64, _UINT64, _DOUBLE = ("int64", t.INT), ("uint64", t.UINT), ("double", t.DOUBLE)
_STRING, _BYTES, _LIST = ("string", t.STRING), ("bytes", t.BYTES), ("list", t.list_of(A))
_DURATIONS = ("duration_duration", t.DURATION)
_MAP = t.map_of(A, B)

OVERLOADS: Final = [
    free("_?_:_", "conditional", (t.BOOL, A, A), A, lambda test, then, other: then if test else other),
    free("_&&_", "logical_and", (t.BOOL, t.BOOL), t.BOOL, lambda one, two: one and two),
    free("_||_", "logical_or", (t.BOOL, t.BOOL), t.BOOL, lambda one, two: one or two),
    free("!_", "logical_not", (t.BOOL,), t.BOOL, logical_not),
    free("@not_strictly_false", "not_strictly_false", (t.BOOL,), t.BOOL, lambda one: one is not False),
    free("_==_", "equals", (A, A), t.BOOL, equal),
    free("_!=_", "not_equals", (A, A), t.BOOL, not_equal),
    *_same("_+_", "add", (_BYTES, _DOUBLE, _DURATIONS), add),
    free("_+_", "add_duration_timestamp", (t.DURATION, t.TIMESTAMP), t.TIMESTAMP, add),
    free("_+_", "add_timestamp_duration", (t.TIMESTAMP, t.DURATION), t.TIMESTAMP, add),
    *_same("_+_", "add", (_INT64, _LIST, _STRING, _UINT64), add),
    *_same("_-_", "subtract", (_DOUBLE, _DURATIONS, _INT64), subtract),
    free("_-_", "subtract_timestamp_duration", (t.TIMESTAMP, t.DURATION), t.TIMESTAMP, subtract),
    free("_-_", "subtract_timestamp_timestamp", (t.TIMESTAMP, t.TIMESTAMP), t.DURATION, subtract),
    *_same("_-_", "subtract", (_UINT64,), subtract),
    *_same("_*_", "multiply", (_DOUBLE, _INT64, _UINT64), multiply),
    *_same("_/_", "divide", (_DOUBLE, _INT64, _UINT64), divide),
    *_same("_%_", "modulo", (_INT64, _UINT64), modulo),
    free("-_", "negate_double", (t.DOUBLE,), t.DOUBLE, negate),
    free("-_", "negate_int64", (t.INT,), t.INT, negate),
    *_order("_<_", "less", less),
    *_order("_<=_", "less_equals", less_equal),
    *_order("_>_", "greater", greater),
    *_order("_>=_", "greater_equals", greater_equal),
    free("@in", "in_list", (A, t.list_of(A)), t.BOOL, is_in),
    free("@in", "in_map", (A, _MAP), t.BOOL, is_in),
    free("_[_]", "list_index", (t.list_of(A), t.INT), A, index),
    free("_[_]", "index_map", (_MAP, A), B, index),
]
