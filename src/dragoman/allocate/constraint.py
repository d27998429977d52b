"""May these devices be together under a matchAttribute or distinctAttribute constraint?

A device's value is a set of (kind, value) pairs, a scalar being a set of one. match keeps the running intersection,
distinct the running union. Without list attributes (KEP-5491) a list or unset value is the empty set: as first
device it is accepted, next to another one it never is. Never looks up a device's holders.
"""

from __future__ import annotations

from typing import TypeAlias

from dragoman.api.resource import DeviceAttribute

ValueSet: TypeAlias = "frozenset[tuple[str, int | bool | str]]"
"""A device's value under a constraint; kinds: int, bool, string, version."""

ODD: ValueSet = frozenset()


def token_of(attribute: DeviceAttribute, *, lists: bool) -> ValueSet:
    """An attribute's value as a set; versions compare as text (build metadata matters)."""
    scalar = _scalar(attribute)
    if scalar is not None:
        return frozenset((scalar,))
    if not lists:
        return ODD
    for kind, values in (
        ("int", attribute.ints),
        ("bool", attribute.bools),
        ("string", attribute.strings),
        ("version", attribute.versions),
    ):
        if values is not None:
            return frozenset((kind, value) for value in values)
    return ODD


def attribute_named(attributes: dict[str, DeviceAttribute], driver: str, name: str) -> DeviceAttribute | None:
    """A published attribute by its full name; a bare name belongs to the driver's domain."""
    found = attributes.get(name)
    if found is not None:
        return found
    domain, _, bare = name.partition("/")
    return attributes.get(bare) if domain == driver else None


def joined(kind: str, state: ValueSet | None, token: ValueSet, *, lists: bool) -> ValueSet | None:
    """The state after a device of this value joins, None if it may not. state None: no device yet."""
    if state is None:
        return None if lists and not token and kind == "match" else token
    if kind == "match":
        return state & token or None
    return None if not token or state & token else state | token


def _scalar(attribute: DeviceAttribute) -> tuple[str, int | bool | str] | None:
    if attribute.int_ is not None:
        return ("int", attribute.int_)
    if attribute.bool_ is not None:
        return ("bool", attribute.bool_)
    if attribute.string is not None:
        return ("string", attribute.string)
    if attribute.version is not None:
        return ("version", attribute.version)
    return None
