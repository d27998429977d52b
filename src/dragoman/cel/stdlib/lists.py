"""What can be done with lists and sets? The lists library (version 3), sets, Kubernetes' lists, entries of maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError, NoSuchOverload
from dragoman.cel.functions import Overload, Run, free, member
from dragoman.cel.stdlib.operators import add
from dragoman.cel.types import A, B, Type
from dragoman.cel.values import LIST_MAX, CelValue, Duration, Map, Timestamp, Uint, compare, contains, equal, map_key

INCLUDES_MAX: Final = 48
"""Elements that includes() looks at (ResourceSliceMaxAttributeValuesPerDevice)."""

List = tuple[CelValue, ...]


def _same(one: CelValue, two: CelValue) -> bool:
    """Equality that takes a refusal to compare for a no."""
    try:
        return equal(one, two)
    except NoSuchOverload:
        return False


def _slice(values: List, start: int, end: int) -> List:
    if start < 0 or end < 0:
        raise EvalError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvalError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise EvalError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: List, depth: int = 1) -> List:
    if depth < 0:
        raise EvalError("level must be non-negative")
    found: list[CelValue] = []
    left: list[tuple[CelValue, int]] = [(value, depth) for value in reversed(values)]
    for _ in range(LIST_MAX):
        if not left:
            return tuple(found)
        value, level = left.pop()
        if value.__class__ is tuple and level > 0:
            left.extend((inner, level - 1) for inner in reversed(value))
        else:
            found.append(value)
    raise EvalError(f"a list of more than {LIST_MAX} elements exceeds the limit")


def _sort(values: List) -> List:
    return _sort_by_keys(values, values)


def _sort_by_keys(values: List, keys: List) -> List:
    if len(values) != len(keys):
        what = "@sortByAssociatedKeys() expected a list of the same size as the associated keys list"
        raise EvalError(f"{what}, but got {len(values)} and {len(keys)} elements respectively")
    if len({key.__class__ for key in keys}) > 1:
        raise EvalError("list elements must have the same type")
    if len(values) == 1:
        compare(keys[0], keys[0])

    def by_key(one: int, two: int) -> int:
        return compare(keys[one], keys[two])

    order = sorted(range(len(values)), key=cmp_to_key(by_key))
    return tuple(values[i] for i in order)


def _range(count: int) -> List:
    if count < 0:
        raise EvalError(f"lists.range: size must be non-negative, got {count}")
    if count > LIST_MAX:
        raise EvalError(f"lists.range: size {count} exceeds maximum allowed ({LIST_MAX})")
    return tuple(range(count))


def _distinct(values: List) -> List:
    found: list[CelValue] = []
    for value in values:
        if not any(_same(value, kept) for kept in found):
            found.append(value)
    return tuple(found)


def _order(one: CelValue, two: CelValue) -> int:
    """As compare, but what has an order and cannot be compared with the other counts as equal."""
    for value in (one, two):
        if value.__class__ not in _COMPARABLE_CLASSES:
            raise NoSuchOverload
    try:
        return compare(one, two)
    except EvalError:
        return 0


_COMPARABLE_CLASSES: Final = frozenset((bool, int, Uint, float, str, bytes, Timestamp, Duration))


def _is_sorted(values: List) -> bool:
    return all(_order(one, two) <= 0 for one, two in pairwise(values))


def _sum(zero: CelValue) -> Run:
    def run(values: List) -> CelValue:
        total = zero
        for value in values:
            total = add(total, value)
        return total

    return run


def _best(name: str, better: Callable[[int], bool]) -> Run:
    def run(values: List) -> CelValue:
        if not values:
            raise EvalError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if better(_order(value, best)):
                best = value
        return best

    return run


def _index_of(values: List, wanted: CelValue) -> int:
    return next((at for at, value in enumerate(values) if _same(value, wanted)), -1)


def _last_index_of(values: List, wanted: CelValue) -> int:
    return next((at for at in range(len(values) - 1, -1, -1) if _same(values[at], wanted)), -1)


def _includes(target: CelValue, wanted: CelValue) -> bool:
    """Membership in a list, or equality with anything else; kinds that do not fit are a no."""
    if target.__class__ is not tuple:
        return _same(target, wanted)
    if any(_same(value, wanted) for value in target[:INCLUDES_MAX]):
        return True
    if len(target) > INCLUDES_MAX:
        raise EvalError(f"'includes' function cannot be applied to lists longer than {INCLUDES_MAX} values")
    return False


def _contains_all(values: List, wanted: List) -> bool:
    return all(contains(values, value) for value in wanted)


def _intersects(one: List, two: List) -> bool:
    return any(contains(two, value) for value in one)


def _insert(entries: Map, key: CelValue, value: CelValue) -> Map:
    kept = map_key(key)
    if kept in entries:
        raise EvalError(f"insert failed: key {key} already exists")
    return {**entries, kept: value}


def _insert_all(entries: Map, added: Map) -> Map:
    twice = next((key for key in added if key in entries), None)
    if twice is not None:
        raise EvalError(f"insert failed: key {twice} already exists")
    return {**entries, **added}


_SUMMABLE: Final[tuple[tuple[str, Type, CelValue], ...]] = (
    ("int", t.INT, 0),
    ("uint", t.UINT, Uint(0)),
    ("double", t.DOUBLE, 0.0),
    ("duration", t.DURATION, Duration(0)),
)
_COMPARABLE: Final[tuple[tuple[str, Type], ...]] = (
    ("int", t.INT),
    ("uint", t.UINT),
    ("double", t.DOUBLE),
    ("bool", t.BOOL),
    ("duration", t.DURATION),
    ("timestamp", t.TIMESTAMP),
    ("string", t.STRING),
    ("bytes", t.BYTES),
)
_LIST = t.list_of(A)
_DYNS = t.list_of(t.DYN)
_TWO = (_LIST, _LIST)
_MAP = t.map_of(A, B)


def _of_comparable(make: Callable[[str, Type], Overload]) -> list[Overload]:
    return [make(name, kind) for name, kind in _COMPARABLE]


def _minmax(function: str, run: Run) -> list[Overload]:
    return _of_comparable(
        lambda name, kind: member(function, f"list_{name}_{function}_{name}", (t.list_of(kind),), kind, run)
    )


OVERLOADS: Final = [
    member("slice", "list_slice", (_LIST, t.INT, t.INT), _LIST, _slice),
    member("flatten", "list_flatten", (t.list_of(_LIST),), _LIST, _flatten),
    member("flatten", "list_flatten_int", (_DYNS, t.INT), _DYNS, _flatten),
    *_of_comparable(
        lambda _, kind: member("sort", f"list_{kind.name}_sort", (t.list_of(kind),), t.list_of(kind), _sort)
    ),
    *_of_comparable(
        lambda _, kind: member(
            "@sortByAssociatedKeys",
            f"list_{kind.name}_sortByAssociatedKeys",
            (_LIST, t.list_of(kind)),
            _LIST,
            _sort_by_keys,
        )
    ),
    free("lists.range", "lists_range", (t.INT,), t.list_of(t.INT), _range),
    member("reverse", "list_reverse", (_LIST,), _LIST, lambda values: values[::-1]),
    member("distinct", "list_distinct", (_LIST,), _LIST, _distinct),
    *_of_comparable(
        lambda name, kind: member("isSorted", f"list_{name}_is_sorted_bool", (t.list_of(kind),), t.BOOL, _is_sorted)
    ),
    *(member("sum", f"list_{name}_sum_{name}", (t.list_of(kind),), kind, _sum(zero)) for name, kind, zero in _SUMMABLE),
    *_minmax("max", _best("max", lambda order: order > 0)),
    *_minmax("min", _best("min", lambda order: order < 0)),
    member("indexOf", "list_a_index_of_int", (_LIST, A), t.INT, _index_of),
    member("lastIndexOf", "list_a_last_index_of_int", (_LIST, A), t.INT, _last_index_of),
    member("includes", "list_includes_dyn_dyn", (t.DYN, t.DYN), t.BOOL, _includes),
    free("sets.contains", "list_sets_contains_list", _TWO, t.BOOL, _contains_all),
    free(
        "sets.equivalent",
        "list_sets_equivalent_list",
        _TWO,
        t.BOOL,
        lambda one, two: _contains_all(one, two) and _contains_all(two, one),
    ),
    free("sets.intersects", "list_sets_intersects_list", _TWO, t.BOOL, _intersects),
    free("cel.@mapInsert", "@mapInsert_map_key_value", (_MAP, A, B), _MAP, _insert),
    free("cel.@mapInsert", "@mapInsert_map_map", (_MAP, _MAP), _MAP, _insert_all),
]
