"""How do two objects differ, field by field, what does a configuration own, and what is left without some fields?

Walks objects along their shape: granular objects and maps by name, lists by key or as sets, atomic parts as one.
Missing and null are the same. Never changes objects; results share parts with arguments. (Source of the rules:
KEP-555 and KEP-2155.)
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.apiserver.fieldset import Fields, is_member
from dragoman.apiserver.shape import ANY, LIST, MAP, OBJECT, SchemaShape
from dragoman.errors import Invalid

_MEMBER: Fields = {}
_ANY = SchemaShape(ANY)
_encode = msgspec.json.Encoder(order="sorted").encode


class Unkeyed(Invalid):
    """An item of a list-map lacks all its keys, or two items that must differ have the same."""


class Comparison:
    """What changed from one object to another: three sets of fields."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self, removed: Fields, modified: Fields, added: Fields) -> None:
        self.removed = removed
        self.modified = modified
        self.added = added


# ---- steps of paths


def item_step(shape: SchemaShape, item: Any, path: str = "") -> str:
    """The step to an item of a list-map or set: k:{"name":"web"} or v:"value"."""
    if shape.set:
        return f"v:{_encode(item).decode()}"
    keys = {}
    if isinstance(item, dict):
        for key in shape.keys:
            value = item.get(key)
            if value is None:
                value = shape.key_default(key)
            if value is not None:
                keys[key] = value
    if not keys:
        raise Unkeyed(path, f"an item of this list has no value for {' or '.join(shape.keys)}: {_short(item)}")
    return f"k:{_encode(keys).decode()}"


def by_step(shape: SchemaShape, items: list[Any], path: str = "") -> dict[str, Any]:
    """Items by step, in order; of items with equal keys the first."""
    out: dict[str, Any] = {}
    for item in items:
        out.setdefault(item_step(shape, item, path), item)
    return out


def _short(value: Any) -> str:
    text = _encode(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."


def _member_shape(shape: SchemaShape, name: str) -> SchemaShape:
    return shape.fields.get(name) or shape.item or _ANY


def _is_map(shape: SchemaShape) -> bool:
    return shape.type in (OBJECT, MAP) and not shape.atomic


# ---- comparison


def compare(shape: SchemaShape, old: Any, new: Any) -> Comparison:
    """Fields removed, modified and added from old to new (both objects of that shape)."""
    removed, modified, added = _compare(shape, old, new)
    return Comparison(removed or {}, modified or {}, added or {})


_Triple = tuple[Fields | None, Fields | None, Fields | None]
_SAME: _Triple = (None, None, None)
_MODIFIED: _Triple = (None, _MEMBER, None)


def _compare(shape: SchemaShape, old: Any, new: Any) -> _Triple:
    """Both values are there."""
    if old == new:
        return _SAME
    if _is_map(shape) and isinstance(old, dict) and isinstance(new, dict):
        return _compare_maps(shape, old, new) if old or new else _SAME
    if shape.type == LIST and not shape.atomic and isinstance(old, list) and isinstance(new, list):
        return _compare_lists(shape, old, new)
    return _MODIFIED


def _compare_maps(shape: SchemaShape, old: dict[str, Any], new: dict[str, Any]) -> _Triple:
    removed: Fields = {}
    modified: Fields = {}
    added: Fields = {}
    for name, was in old.items():
        now = new.get(name)
        if was is now or was == now:
            continue
        _compare_member(shape, name, was, now, removed, modified, added)
    for name, now in new.items():
        if now is not None and name not in old:
            _compare_member(shape, name, None, now, removed, modified, added)
    return removed or None, modified or None, added or None


def _compare_member(
    shape: SchemaShape, name: str, was: Any, now: Any, removed: Fields, modified: Fields, added: Fields
) -> None:
    member = _member_shape(shape, name)
    step = f"f:{name}"
    if name in shape.present:
        empty: Any = [] if member.type == LIST else {} if member.type in (OBJECT, MAP) else None
        was, now = empty if was is None else was, empty if now is None else now
    if was is None:
        added[step] = everything(member, now)
    elif now is None:
        removed[step] = everything(member, was)
    else:
        _put(step, _compare(member, was, now), removed, modified, added)


def _put(step: str, triple: _Triple, removed: Fields, modified: Fields, added: Fields) -> None:
    if triple[0] is not None:
        removed[step] = triple[0]
    if triple[1] is not None:
        modified[step] = triple[1]
    if triple[2] is not None:
        added[step] = triple[2]


def _compare_lists(shape: SchemaShape, old: list[Any], new: list[Any]) -> _Triple:
    assert shape.item is not None, "lists have items"
    was, now = by_step(shape, old), by_step(shape, new)
    removed: Fields = {}
    modified: Fields = {}
    added: Fields = {}
    for step, item in was.items():
        if step not in now:
            removed[step] = everything(shape.item, item)
        else:
            _put(step, _compare(shape.item, item, now[step]), removed, modified, added)
    for step, item in now.items():
        if step not in was:
            added[step] = everything(shape.item, item)
    return removed or None, modified or None, added or None


def everything(shape: SchemaShape, value: Any) -> Fields:
    """The set of a value that is wholly there: itself and all below it (a node, so {} is the value alone)."""
    out: Fields = {}
    if _is_map(shape) and isinstance(value, dict):
        for name, entry in value.items():
            if entry is not None:
                out[f"f:{name}"] = everything(_member_shape(shape, name), entry)
        for name in shape.present:
            out.setdefault(f"f:{name}", _MEMBER)
    elif shape.type == LIST and not shape.atomic and isinstance(value, list):
        assert shape.item is not None, "lists have items"
        for step, entry in by_step(shape, value).items():
            out[step] = everything(shape.item, entry)
    if out:
        out["."] = _MEMBER
    return out


# ---- what a configuration owns


def owned(shape: SchemaShape, value: Any, path: str = "", *, strict: bool = True) -> Fields:
    """The fields that an applied configuration names: leaves, items with their keys, entries of maps.

    Raises Unkeyed for items without keys and, if strict, for items with the same keys.
    """
    out: Fields = {}
    if _is_map(shape) and isinstance(value, dict):
        for name, entry in value.items():
            member = _member_shape(shape, name)
            node = {} if _is_leaf(member, entry) else owned(member, entry, f"{path}.{name}", strict=strict)
            if node and shape.type == MAP:
                node["."] = _MEMBER
            if node or _is_leaf(member, entry) or shape.type == MAP:
                out[f"f:{name}"] = node
    elif shape.type == LIST and not shape.atomic and isinstance(value, list):
        assert shape.item is not None, "lists have items"
        for index, entry in enumerate(value):
            step = item_step(shape, entry, path)
            if strict and step in out:
                raise Unkeyed(path, f"two items of this list have the same keys: {step.partition(':')[2]}")
            node = {} if _is_leaf(shape.item, entry) else owned(shape.item, entry, f"{path}[{index}]", strict=strict)
            if node:
                node["."] = _MEMBER
            out[step] = node
    return out


def _is_leaf(shape: SchemaShape, value: Any) -> bool:
    if value is None or value == {}:
        return True
    if _is_map(shape):
        return not isinstance(value, dict)
    # An empty granular list names nothing.
    return shape.type != LIST or shape.atomic or not isinstance(value, list)


def with_named_fields(shape: SchemaShape, fields: Fields) -> Fields:
    """The set, with all declared fields on the way to members added (entries of maps and items are not)."""
    out: Fields = {}
    for step, node in fields.items():
        if step == "." or not node:
            out[step] = node
            continue
        named = False
        below = shape.item or _ANY
        if step.startswith("f:"):
            declared = shape.fields.get(step[2:]) if shape.type == OBJECT else None
            named = declared is not None
            below = _member_shape(shape, step[2:])
        inner = with_named_fields(below, node)
        out[step] = {".": _MEMBER, **inner} if named else inner
    return out


# ---- merging and removing


def merge(shape: SchemaShape, live: Any, config: Any) -> Any:
    """The live value with the configuration laid over it; null in the configuration removes."""
    if _is_map(shape) and isinstance(live, dict) and isinstance(config, dict):
        out = dict(live)
        for name, entry in config.items():
            if entry is None:
                out.pop(name, None)
            elif out.get(name) is None:
                out[name] = _without_nulls(_member_shape(shape, name), entry)
            else:
                out[name] = merge(_member_shape(shape, name), out[name], entry)
        return out
    if shape.type == LIST and not shape.atomic and isinstance(live, list) and isinstance(config, list):
        return _merge_lists(shape, live, config)
    return _without_nulls(shape, config)


def _without_nulls(shape: SchemaShape, value: Any) -> Any:
    """A configuration's value put where nothing was: null says nothing there, but in opaque parts it is data."""
    if isinstance(value, dict) and shape.type in (OBJECT, MAP):
        return {
            name: _without_nulls(_member_shape(shape, name), entry)
            for name, entry in value.items()
            if entry is not None
        }
    if isinstance(value, list) and shape.type == LIST:
        return [_without_nulls(shape.item or _ANY, entry) for entry in value]
    return value


def _merge_lists(shape: SchemaShape, live: list[Any], config: list[Any]) -> list[Any]:
    """Items of the configuration in its order; others where they are in the live list, relative to shared ones."""
    assert shape.item is not None, "lists have items"
    wanted = by_step(shape, config)
    ours = [(item_step(shape, item), item) for item in live]
    known = by_step(shape, live)
    shared = [step for step in wanted if step in known]
    out: list[Any] = []
    left, right = 0, 0
    steps = list(wanted)
    done: set[str] = set()
    while left < len(ours) or right < len(steps):
        if left < len(ours):
            step, item = ours[left]
            if step not in wanted:
                out.append(item)
                left += 1
                continue
            if step in done or (shared and shared[0] != step and right < len(steps)):
                left += 1
                continue
        if right < len(steps):
            step = steps[right]
            entry = wanted[step]
            out.append(merge(shape.item, known[step], entry) if step in known else _without_nulls(shape.item, entry))
            done.add(step)
            right += 1
            if shared and shared[0] == step:
                shared.pop(0)
    return out


def without(shape: SchemaShape, value: Any, fields: Fields) -> Any:
    """The value without the members of a set and all below them; None if nothing is left."""
    if _is_map(shape) and isinstance(value, dict):
        out = {}
        for name, entry in value.items():
            node = fields.get(f"f:{name}")
            if node is None:
                out[name] = entry
            elif not is_member(node):
                rest = without(_member_shape(shape, name), entry, node)
                if rest is not None:
                    out[name] = rest
        return out or None
    if shape.type == LIST and not shape.atomic and isinstance(value, list):
        assert shape.item is not None, "lists have items"
        items = []
        for entry in value:
            node = fields.get(item_step(shape, entry))
            if node is None:
                items.append(entry)
            elif not is_member(node):
                rest = without(shape.item, entry, node)
                if rest is not None:
                    items.append(rest)
        return items or None
    return value
