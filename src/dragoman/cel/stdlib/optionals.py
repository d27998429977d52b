"""Values that may be absent: making, asking and unwrapping optionals. `.?` and `[?]` are the compiler's."""

from __future__ import annotations

from typing import Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError, NoSuchOverload
from dragoman.cel.functions import free, member
from dragoman.cel.stdlib.operators import list_index
from dragoman.cel.types import Type
from dragoman.cel.values import NONE, CelValue, Optional, is_zero, map_key

_V = Type("param", "V")
_K = Type("param", "K")
_OPT = t.optional_of(_V)
_LIST = t.list_of(_V)


def _value(value: Optional) -> CelValue:
    if not value.present:
        raise EvalError("optional.none() dereference")
    return value.value


def _unwrapped(values: tuple[CelValue, ...]) -> tuple[CelValue, ...]:
    if any(value.__class__ is not Optional for value in values):
        raise NoSuchOverload
    return tuple(value.value for value in values if value.present)


def index_optional(one: CelValue, two: CelValue) -> Optional:
    """`one[?two]`."""

    if one.__class__ is Optional:
        return index_optional(one.value, two) if one.present else NONE
    if isinstance(one, dict):
        try:
            return Optional(one[map_key(two)])
        except KeyError:
            return NONE
    if one.__class__ is tuple:
        position = list_index(two)
        return Optional(one[position]) if 0 <= position < len(one) else NONE
    return NONE  # as cel-go: what is no list and no map has no entries


def index_through(one: CelValue, two: CelValue) -> CelValue:
    """`one[two]` where one is an optional: what is absent stays absent."""
    return index_optional(one, two)


OVERLOADS: Final = [
    free("optional.of", "optional_of", (_V,), _OPT, Optional),
    free(
        "optional.ofNonZeroValue", "optional_ofNonZeroValue", (_V,), _OPT, lambda v: NONE if is_zero(v) else Optional(v)
    ),
    free("optional.none", "optional_none", (), _OPT, lambda: NONE),
    free("optional.unwrap", "optional_unwrap", (t.list_of(_OPT),), _LIST, _unwrapped),
    member("unwrapOpt", "optional_unwrapOpt", (t.list_of(_OPT),), _LIST, _unwrapped),
    member("value", "optional_value", (_OPT,), _V, _value),
    member("hasValue", "optional_hasValue", (_OPT,), t.BOOL, lambda v: v.present),
    member("or", "optional_or_optional", (_OPT, _OPT), _OPT, lambda one, two: one if one.present else two),
    member("orValue", "optional_orValue_value", (_OPT, _V), _V, lambda one, two: one.value if one.present else two),
    member("first", "list_first", (_LIST,), _OPT, lambda values: Optional(values[0]) if values else NONE),
    member("last", "list_last", (_LIST,), _OPT, lambda values: Optional(values[-1]) if values else NONE),
    free("_?._", "select_optional_field", (t.DYN, t.STRING), _OPT, index_optional),
    free("_[?_]", "list_optindex_optional_int", (_LIST, t.INT), _OPT, index_optional),
    free("_[?_]", "optional_list_optindex_optional_int", (t.optional_of(_LIST), t.INT), _OPT, index_optional),
    free("_[?_]", "map_optindex_optional_value", (t.map_of(_K, _V), _K), _OPT, index_optional),
    free("_[?_]", "optional_map_optindex_optional_value", (t.optional_of(t.map_of(_K, _V)), _K), _OPT, index_optional),
    free("_[_]", "optional_list_index_int", (t.optional_of(_LIST), t.INT), _OPT, index_through),
    free("_[_]", "optional_map_index_value", (t.optional_of(t.map_of(_K, _V)), _K), _OPT, index_through),
]
