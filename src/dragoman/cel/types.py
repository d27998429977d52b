"""What types are there, and when does one fit another? The static types of the language and their unification.

A Type is a value. Type variables are bound in a Bindings, which can be copied and dropped. Never looks at values.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Type(msgspec.Struct, frozen=True):
    """kind is the family (int, list, struct, opaque, param, ...), name what it is called, params its arguments."""

    kind: str
    name: str
    params: tuple[Type, ...] = ()
    weight: int = 1
    """How many types it is made of, itself included."""

    def __str__(self) -> str:
        if self.kind == "type":
            return f"type({self.params[0]})" if self.params else "type"
        if self.params:
            return f"{self.name}({', '.join(str(p) for p in self.params)})"
        return self.name


DYN: Final = Type("dyn", "dyn")
ANY: Final = Type("any", "any")
ERROR: Final = Type("error", "!error!")
NULL: Final = Type("null", "null")
BOOL: Final = Type("bool", "bool")
INT: Final = Type("int", "int")
UINT: Final = Type("uint", "uint")
DOUBLE: Final = Type("double", "double")
STRING: Final = Type("string", "string")
BYTES: Final = Type("bytes", "bytes")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
DURATION: Final = Type("duration", "google.protobuf.Duration")
TYPE: Final = Type("type", "type")
A: Final = Type("param", "A")
B: Final = Type("param", "B")

_SHOWN = {"timestamp": "timestamp", "duration": "duration"}


WEIGHT_MAX: Final = 1000
"""Ceiling of a type's weight: types that hold each other twice would grow without bounds."""


class TypeTooLarge(Exception):
    """A type of an expression is beyond WEIGHT_MAX."""


def compound(kind: str, name: str, params: tuple[Type, ...]) -> Type:
    """A type made of others. Raises TypeTooLarge."""
    weight = 1
    for param in params:
        weight += param.weight
    if weight > WEIGHT_MAX:
        raise TypeTooLarge
    return Type(kind, name, params, weight)


def list_of(element: Type) -> Type:
    """list(element)."""
    return compound("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)."""
    return compound("map", "map", (key, value))


def type_of(inner: Type) -> Type:
    """type(inner): the type of a type."""
    return compound("type", "type", (inner,))


def optional_of(inner: Type) -> Type:
    """optional_type(inner)."""
    return compound("opaque", "optional_type", (inner,))


def struct(name: str) -> Type:
    """An object type with declared fields, or none."""
    return Type("struct", name)


def opaque(name: str) -> Type:
    """A type of which only functions know anything."""
    return Type("opaque", name)


def show(kind: Type) -> str:
    """The type as error messages write it."""
    if kind.kind in _SHOWN:
        return _SHOWN[kind.kind]
    if kind.kind == "type":
        return f"type({show(kind.params[0])})" if kind.params else "type"
    if kind.params:
        return f"{kind.name}({', '.join(show(p) for p in kind.params)})"
    return kind.name


def is_dyn(kind: Type) -> bool:
    """Known at run time only."""
    return kind.kind in ("dyn", "any")


def is_dyn_or_error(kind: Type) -> bool:
    """Fits everything."""
    return kind.kind in ("dyn", "any", "error")


def unwrap_optional(kind: Type) -> tuple[Type, bool]:
    """The type inside an optional, and whether there was one."""
    if kind.kind == "opaque" and kind.name == "optional_type":
        return kind.params[0], True
    return kind, False


class Bindings:
    """What the type variables stand for so far."""

    __slots__ = ("bound",)

    def __init__(self, bound: dict[Type, Type] | None = None) -> None:
        self.bound: dict[Type, Type] = {} if bound is None else bound

    def assign(self, one: Type, two: Type) -> bool:
        """Whether one fits two; on yes the variables are bound, on no nothing changes."""
        return self.assign_all((one,), (two,))

    def assign_all(self, ones: tuple[Type, ...], twos: tuple[Type, ...]) -> bool:
        """Pairwise `assign`, all or nothing."""
        before = dict(self.bound)
        if self._fits_all(ones, twos):
            return True
        self.bound = before
        return False

    def substitute(self, kind: Type, *, free_to_dyn: bool = False) -> Type:
        """The type with bound variables replaced; free ones become dyn if asked for."""
        found = self.bound.get(kind)
        if found is not None:
            return self.substitute(found, free_to_dyn=free_to_dyn)
        if kind.kind == "param":
            return DYN if free_to_dyn else kind
        if not kind.params:
            return kind
        changed = tuple(self.substitute(p, free_to_dyn=free_to_dyn) for p in kind.params)
        return kind if changed == kind.params else compound(kind.kind, kind.name, changed)

    def _fits_all(self, ones: tuple[Type, ...], twos: tuple[Type, ...]) -> bool:
        if len(ones) != len(twos):
            return False
        return all(self._fits(one, two) for one, two in zip(ones, twos, strict=True))

    def _fits(self, one: Type, two: Type) -> bool:
        if two.kind == "param":
            valid, had = self._bind(one, two)
            if valid:
                return True
            if had:
                return False
        if one.kind == "param":
            return self._bind(two, one)[0]
        if is_dyn_or_error(one) or is_dyn_or_error(two):
            return True
        if one.kind == "null":
            return _is_nullable(two)
        if two.kind == "null":
            return _is_nullable(one)
        if one.kind == "type":
            return two.kind == "type"
        if one.kind in ("opaque", "list", "map"):
            return one.kind == two.kind and one.name == two.name and self._fits_all(one.params, two.params)
        return one == two

    def _bind(self, kind: Type, variable: Type) -> tuple[bool, bool]:
        """Whether variable can stand for kind, and whether it stood for something already."""
        if kind == variable:
            return True, True
        current = self.bound.get(variable)
        if current is not None:
            if kind == current:
                return True, True
            if self._fits(kind, current):
                general = most_general(kind, current)
                if not self._occurs(variable, general):
                    self.bound[variable] = general
                return True, True
            return False, True
        if not self._occurs(variable, kind):
            self.bound[variable] = kind
            return True, False
        return False, False

    def _occurs(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return True
        if within.kind == "param":
            current = self.bound.get(within)
            return current is not None and self._occurs(variable, current)
        return any(self._occurs(variable, p) for p in within.params)


def _is_nullable(kind: Type) -> bool:
    return kind.kind in ("null", "opaque", "struct", "any", "duration", "timestamp")


def most_general(one: Type, two: Type) -> Type:
    """Of two types that fit each other, the less specific."""
    if two.kind == "null":
        return one
    return one if _is_equal_or_less_specific(one, two) else two


def _is_equal_or_less_specific(one: Type, two: Type) -> bool:
    if is_dyn(one) or one.kind == "param":
        return True
    if is_dyn(two) or two.kind == "param" or one.kind != two.kind:
        return False
    if one.kind == "type":
        return True
    if one.name != two.name or len(one.params) != len(two.params):
        return False
    return all(_is_equal_or_less_specific(p, q) for p, q in zip(one.params, two.params, strict=True))
