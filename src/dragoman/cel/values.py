"""What are values at run time, and when are two equal? Python values stand for the language's:

null None, bool bool, int int, uint Uint, double float, string str, bytes bytes, list tuple, map dict (with `map_key`
keys), type Type, and classes here and in `stdlib` for the rest. Never mixes up bool and int, as Python does.
"""

from __future__ import annotations

import math
from typing import Any, Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError, NoSuchOverload
from dragoman.cel.types import Type

CelValue = Any

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1

LIST_MAX: Final = 1_000_000
TEXT_MAX: Final = 1_000_000
"""Ceilings of lists and strings that operators and functions make: the cost limit does not see all of them grow."""

_TIMESTAMP_MIN: Final = -62135596800 * 10**9
_TIMESTAMP_MAX: Final = 253402300800 * 10**9 - 1


class Uint(int):
    """An unsigned 64-bit number."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class BoolKey:
    """A bool as key of a map, kept apart from 0 and 1."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


TRUE_KEY: Final = BoolKey(True)
FALSE_KEY: Final = BoolKey(False)


class Timestamp:
    """An instant: nanoseconds since 1970, years 1 to 9999."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not _TIMESTAMP_MIN <= nanos <= _TIMESTAMP_MAX:
            raise EvalError("timestamp overflow: out of range")
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))


class Duration:
    """A span of time in nanoseconds, within 64 bits."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not INT_MIN <= nanos <= INT_MAX:
            raise EvalError("duration overflow: out of range")
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))


class Optional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, value: CelValue, *, present: bool = True) -> None:
        self.value = value
        self.present = present


NONE: Final = Optional(None, present=False)

Map = dict[Any, Any]

TYPE_OF: Final[dict[type, Type]] = {
    type(None): Type("null", "null_type"),
    bool: t.BOOL,
    int: t.INT,
    Uint: t.UINT,
    float: t.DOUBLE,
    str: t.STRING,
    bytes: t.BYTES,
    tuple: t.list_of(t.DYN),
    dict: t.map_of(t.DYN, t.DYN),
    Timestamp: t.TIMESTAMP,
    Duration: t.DURATION,
    Type: t.TYPE,
    Optional: t.optional_of(t.DYN),
}
"""Python class to run-time type; stdlib and environments add theirs."""

STRICT_EQUALITY: Final[set[type]] = set()
"""Classes whose values refuse to be compared (`==`) with another kind on the right."""

NUMBERS: Final = frozenset((int, Uint, float))


def type_name(value: CelValue) -> str:
    """The name of a value's type, as `type(x)` and error messages give it."""
    return TYPE_OF[value.__class__].name


def map_key(key: CelValue) -> CelValue:
    """The key under which a map keeps a value; raises EvalError for what cannot be a key."""
    kind = key.__class__
    if kind is str or kind is int or kind is Uint:
        return key
    if kind is bool:
        return TRUE_KEY if key else FALSE_KEY
    if kind is float:
        return key
    raise EvalError(f"unsupported key type: {type_name(key)}")


def map_keys(entries: Map) -> list[CelValue]:
    """The keys as values, in the order they were put in."""
    return [key.value if key.__class__ is BoolKey else key for key in entries]


def equal(one: CelValue, two: CelValue) -> bool:
    """The language's `==`. Raises NoSuchOverload where the left one refuses the right one's kind."""
    kind = one.__class__
    if kind is two.__class__:
        if kind is tuple or isinstance(one, dict):
            return _same_contents(one, two, {})
        if kind is Optional:
            if one.present and two.present:
                return equal(one.value, two.value)
            return bool(one.present == two.present)
        if kind is Type:
            return bool(one.name == two.name)
        return bool(one == two)
    if kind in NUMBERS and two.__class__ in NUMBERS:
        return compare_numbers(one, two) == 0  # type: ignore[arg-type]
    if one is None or two is None:
        return False
    if kind in STRICT_EQUALITY:
        raise NoSuchOverload
    if isinstance(one, dict) and isinstance(two, dict):
        return _same_contents(one, two, {})
    return False


_Seen = dict[tuple[int, int], bool]


def _same_contents(one: CelValue, two: CelValue, seen: _Seen) -> bool:
    """Two lists or two maps. `seen` remembers pairs: lists that hold one list twice would take for ever."""
    if len(one) != len(two):
        return False
    pair = (id(one), id(two))
    found = seen.get(pair)
    if found is None:
        if one.__class__ is tuple:
            found = all(_is_not_unequal(x, y, seen) for x, y in zip(one, two, strict=True))
        else:
            found = all(key in two and _is_not_unequal(value, two[key], seen) for key, value in one.items())
        seen[pair] = found
    return found


def _is_not_unequal(one: CelValue, two: CelValue, seen: _Seen) -> bool:
    """Inside lists and maps, elements that cannot be compared do not count as different."""
    if (one.__class__ is tuple and two.__class__ is tuple) or (isinstance(one, dict) and isinstance(two, dict)):
        return _same_contents(one, two, seen)
    try:
        return equal(one, two)
    except NoSuchOverload:
        return True


def contains(elements: tuple[CelValue, ...], wanted: CelValue) -> bool:
    """The language's `in` for lists: comparisons that fail count as no, as long as another element decides."""
    for element in elements:
        try:
            if equal(element, wanted):
                return True
        except NoSuchOverload:
            continue
    return False


def compare_numbers(one: float, two: float) -> int:
    """-1, 0 or 1 over int, uint and double by value; 2 if a NaN is involved.

    A double is compared with an int as a double, as cel-go does.
    """
    if one.__class__ is float or two.__class__ is float:
        if math.isnan(one) or math.isnan(two):
            return 2
        if one.__class__ is not float and abs(two) < 2.0**64:
            one = float(one)
        elif two.__class__ is not float and abs(one) < 2.0**64:
            two = float(two)
    return (one > two) - (one < two)


_ORDERED: Final = frozenset((str, bytes, bool))


def compare(one: CelValue, two: CelValue) -> int:
    """-1, 0 or 1. Raises NoSuchOverload where there is no order."""
    kind = one.__class__
    other = two.__class__
    if kind in NUMBERS and other in NUMBERS:
        found = compare_numbers(one, two)
        if found == 2:
            raise EvalError("NaN values cannot be ordered")
        return found
    if kind is not other:
        raise NoSuchOverload
    if kind in _ORDERED:
        return int(one > two) - int(one < two)
    if kind is Timestamp or kind is Duration:
        return int(one.nanos > two.nanos) - int(one.nanos < two.nanos)
    raise NoSuchOverload


def size(value: CelValue) -> int:
    """Length of a string (code points), bytes, list or map."""
    if value.__class__ in (str, bytes, tuple) or isinstance(value, dict):
        return len(value)
    raise NoSuchOverload


def is_zero(value: CelValue) -> bool:
    """Whether optional.ofNonZeroValue() makes none of it."""
    if value is None:
        return True
    if isinstance(value, Timestamp | Duration):
        return value.nanos == 0
    if value.__class__ is Optional:
        return not value.present
    if isinstance(value, Type):
        return False
    return not value
