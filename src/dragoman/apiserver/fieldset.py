"""Which fields are in a set? Sets of field paths in the form of metav1.FieldsV1, and their algebra.

A set is a trie of dicts, exactly the JSON of fieldsV1: a key names one step (`f:NAME`, `k:{KEYS}`, `v:VALUE`, `i:N`),
`{}` is a member without members below, and `.` marks a member that has some. The whole set {} is empty. Sets are never
changed, results share parts with arguments. (Source: KEP-555; metav1.FieldsV1.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

Fields: TypeAlias = dict[str, Any]

_SELF = "."
_MEMBER: Fields = {}


def union(a: Fields, b: Fields) -> Fields:
    """Members of either."""
    if not a or a is b:
        return b
    return _union(a, b) if b else a


def difference(a: Fields, b: Fields) -> Fields:
    """Members of a that are not members of b; below a member of b others stay."""
    if not a or not b:
        return a
    return _difference_below(a, b) or {}


def intersection(a: Fields, b: Fields) -> Fields:
    """Members of both."""
    if not a or not b:
        return {}
    return _intersection_below(a, b) or {}


def cut(fields: Fields, path: tuple[str, ...]) -> Fields:
    """Without the path and everything below it."""
    step, *rest = path
    if step not in fields:
        return fields
    below = cut(fields[step], tuple(rest)) if rest else None
    out = {key: value for key, value in fields.items() if key != step}
    if below:
        out[step] = below
    elif rest and not fields[step]:
        out[step] = _MEMBER
    return out


def contains(fields: Fields, path: tuple[str, ...]) -> bool:
    """Whether a path is a member."""
    for step in path:
        if step not in fields:
            return False
        fields = fields[step]
    return is_member(fields)


def is_member(node: Fields) -> bool:
    """Whether a node of the trie (not the root) is itself in the set."""
    return not node or _SELF in node


def paths(fields: Fields, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All members, parents before what is below them, siblings sorted."""
    for step in sorted(fields):
        if step == _SELF:
            continue
        node = fields[step]
        path = (*before, step)
        if is_member(node):
            yield path
        yield from paths(node, path)


def path_text(path: tuple[str, ...]) -> str:
    """A path as upstream's conflicts show it: .spec.containers[name="web"].image."""
    return "".join(_step_text(step) for step in path)


def _step_text(step: str) -> str:
    kind, _, value = step.partition(":")
    if kind == "f":
        return f".{value}"
    if kind == "k":
        keys = msgspec.json.decode(value)
        return "[" + ",".join(f"{name}={_json(keys[name])}" for name in sorted(keys)) + "]"
    return f"[={value}]" if kind == "v" else f"[{value}]"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# ---- nodes: None is "nothing", {} a member


def _union(a: Fields, b: Fields) -> Fields:
    if not a or not b:
        rest = a or b
        return rest if not rest or _SELF in rest else {_SELF: _MEMBER, **rest}
    out = dict(a)
    for key, value in b.items():
        known = out.get(key)
        out[key] = value if known is None or known is value else _union(known, value)
    return out


def _difference(a: Fields, b: Fields) -> Fields | None:
    if not b:
        if not a:
            return None
        out = {key: value for key, value in a.items() if key != _SELF}
        return out or None
    if not a:
        return None if _SELF in b else a
    return _difference_below(a, b)


def _difference_below(a: Fields, b: Fields) -> Fields | None:
    out: Fields = {}
    for key, value in a.items():
        other = b.get(key)
        if other is None:
            out[key] = value
        elif key != _SELF:
            rest = _difference(value, other)
            if rest is not None:
                out[key] = rest
    if _SELF in out and len(out) == 1:
        return _MEMBER
    return out or None


def _intersection(a: Fields, b: Fields) -> Fields | None:
    if not a or not b:
        return _MEMBER if is_member(a) and is_member(b) else None
    return _intersection_below(a, b)


def _intersection_below(a: Fields, b: Fields) -> Fields | None:
    if len(b) < len(a):
        a, b = b, a
    out: Fields = {}
    for key, value in a.items():
        other = b.get(key)
        if other is None:
            continue
        both = _MEMBER if key == _SELF else _intersection(value, other)
        if both is not None:
            out[key] = both
    if _SELF in out and len(out) == 1:
        return _MEMBER
    return out or None
