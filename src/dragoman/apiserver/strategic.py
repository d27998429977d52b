"""What does a document look like after a strategic merge patch?

Merges by the schema's patch strategies: lists of objects by merge key, lists of scalars as sets, the directives
`$patch`, `$retainKeys`, `$setElementOrder/LIST` and `$deleteFromPrimitiveList/LIST` as kubectl writes them
(source: the API conventions' chapter on strategic merge patch). Works on copies, never on its arguments. Kinds
without a schema have no strategic merge patch: the caller answers 415.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.apiserver.patch_failed import PatchFailed
from dragoman.apiserver.shape import GVK, LIST, SchemaShape, shape_of

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_REMOVE = "$deleteFromPrimitiveList/"


def strategic_patch(doc: dict[str, Any], patch: dict[str, Any], gvk: GVK) -> dict[str, Any]:
    """The document of kind `gvk` after `patch`.

    Raises PatchFailed: malformed directives (400), a list item without its merge key (422), or a kind unknown here.
    """
    shape = shape_of(gvk)
    if shape is None:
        raise PatchFailed(f"no strategic merge patch for {gvk[2]}: its schema has no merge keys", malformed=True)
    if not isinstance(patch, dict):
        raise PatchFailed("a strategic merge patch is an object", malformed=True)
    ours, theirs = msgspec.json.decode(msgspec.json.encode((doc, patch)))
    return _merge_object(ours, theirs, shape, "")


def _merge_object(doc: dict[str, Any], patch: dict[str, Any], shape: SchemaShape | None, path: str) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        directive = patch.pop(_DIRECTIVE)
        if directive == "replace":
            return _clean_object(patch)
        if directive == "delete":
            return {}
        if directive != "merge":
            raise PatchFailed(
                f"{path or 'patch'}: $patch must be replace, delete or merge, got {directive!r}", malformed=True
            )
    _retain_keys(doc, patch, path)
    _remove_primitives(doc, patch, path)
    orders = {key.removeprefix(_ORDER): patch.pop(key) for key in [k for k in patch if k.startswith(_ORDER)]}
    live = {name: doc[name] for name in orders if isinstance(doc.get(name), list)}
    for name, value in patch.items():
        _merge_member(doc, name, value, shape, path)
    for name, order in orders.items():
        _set_order(doc, name, order, live.get(name, []), shape, path)
    return doc


def _merge_member(doc: dict[str, Any], name: str, value: Any, shape: SchemaShape | None, path: str) -> None:
    here = f"{path}.{name}" if path else name
    current = doc.get(name)
    if value is None or (_is_deletion(value) and not isinstance(current, dict)):
        doc.pop(name, None)
        return
    member = shape.field(name) if shape else None
    if member is not None and member.replaces:
        doc[name] = _clean(value)
    elif isinstance(value, dict) and isinstance(current, dict):
        doc[name] = _merge_object(current, value, member, here)
    elif isinstance(value, list) and isinstance(current, list) and member is not None and member.merges:
        doc[name] = _merge_list(current, value, member, here)
    else:
        doc[name] = _clean(value)


def _merge_list(current: list[Any], patch: list[Any], shape: SchemaShape, path: str) -> list[Any]:
    if not shape.merge_key:
        return _by_order(_unique([*current, *patch]), patch, current, "")
    key = shape.merge_key
    replace = False
    wanted: list[dict[str, Any]] = []
    merged: list[Any] = list(current)
    for item in patch:
        if not isinstance(item, dict):
            raise PatchFailed(f"{path}: items must be objects, got {item!r}")
        directive = item.get(_DIRECTIVE)
        if directive is None or directive == "merge":
            wanted.append({name: value for name, value in item.items() if name != _DIRECTIVE})
        elif directive == "replace":
            replace = True  # such an item is nothing but the directive
        elif directive == "delete":
            gone = _key_of(item, key, path)
            merged = [entry for entry in merged if not (isinstance(entry, dict) and entry.get(key) == gone)]
        else:
            raise PatchFailed(f"{path}: $patch must be replace, delete or merge, got {directive!r}", malformed=True)
    if replace:
        return [_clean_object(item) for item in wanted]
    for item in wanted:
        _merge_item(merged, item, shape, key, path)
    return _by_order(merged, wanted, current, key)


def _merge_item(merged: list[Any], item: dict[str, Any], shape: SchemaShape, key: str, path: str) -> None:
    name = _key_of(item, key, path)
    here = f"{path}[{key}={name}]"
    for index, entry in enumerate(merged):
        if isinstance(entry, dict) and entry.get(key) == name:
            merged[index] = _merge_object(entry, item, shape.item, here)
            return
    merged.append(_clean_object(item))


def _key_of(item: dict[str, Any], key: str, path: str) -> Any:
    if item.get(key) is None:
        raise PatchFailed(f"{path}: an item has no merge key {key}: {_short(item)}")
    return item[key]


def _retain_keys(doc: dict[str, Any], patch: dict[str, Any], path: str) -> None:
    if _RETAIN not in patch:
        return
    keep = patch.pop(_RETAIN)
    if not isinstance(keep, list) or not all(isinstance(name, str) for name in keep):
        raise PatchFailed(f"{path or 'patch'}: {_RETAIN} must be a list of field names", malformed=True)
    extra = [
        name for name, value in patch.items() if value is not None and not name.startswith("$") and name not in keep
    ]
    if extra:
        raise PatchFailed(
            f"{path or 'patch'}: {_RETAIN} must name every field of the patch, {extra[0]} is missing", malformed=True
        )
    for name in [name for name in doc if name not in keep]:
        del doc[name]


def _remove_primitives(doc: dict[str, Any], patch: dict[str, Any], path: str) -> None:
    for directive in [key for key in patch if key.startswith(_REMOVE)]:
        gone = patch.pop(directive)
        name = directive.removeprefix(_REMOVE)
        if not isinstance(gone, list) or any(isinstance(value, dict | list) for value in gone):
            raise PatchFailed(f"{path or 'patch'}: {directive} must be a list of scalars", malformed=True)
        if isinstance(doc.get(name), list):
            doc[name] = [value for value in doc[name] if value not in gone]


def _set_order(
    doc: dict[str, Any], name: str, order: Any, live: list[Any], shape: SchemaShape | None, path: str
) -> None:
    here = f"{path}.{name}" if path else name
    if not isinstance(order, list):
        raise PatchFailed(f"{here}: {_ORDER}{name} must be a list", malformed=True)
    current = doc.get(name)
    member = shape.field(name) if shape else None
    if not isinstance(current, list) or member is None or member.type != LIST:
        return
    key = member.merge_key
    if key:
        for item in order:
            if not isinstance(item, dict):
                raise PatchFailed(f"{here}: {_ORDER}{name} must list objects with {key}", malformed=True)
            _key_of(item, key, f"{_ORDER}{here}")
    doc[name] = _by_order(current, order, live, key)


def _by_order(items: list[Any], order: list[Any], live: list[Any], key: str) -> list[Any]:
    """Items named by `order` in its order; the others keep the live order and stand before the first of the named
    that the live list has after them."""
    named = {_identity(item, key): place for place, item in enumerate(order)}
    places: dict[Any, int] = {}
    for place, item in enumerate(live):
        places.setdefault(_identity(item, key), place)
    first = sorted((i for i in items if _identity(i, key) in named), key=lambda item: named[_identity(item, key)])
    others = [item for item in items if _identity(item, key) not in named]
    others.sort(key=lambda item: places.get(_identity(item, key), len(live)))
    out: list[Any] = []
    left = 0
    for item in first:
        here = places.get(_identity(item, key), -1)
        while left < len(others) and places.get(_identity(others[left], key), len(live)) < here:
            out.append(others[left])
            left += 1
        out.append(item)
    return out + others[left:]


def _identity(item: Any, key: str) -> Any:
    value = item.get(key) if key and isinstance(item, dict) else item
    return (type(value).__name__, value) if not isinstance(value, dict | list) else repr(value)


def _unique(items: list[Any]) -> list[Any]:
    return list({_identity(item, ""): item for item in reversed(items)}.values())[::-1]


def _clean(value: Any) -> Any:
    """A patch's value put where nothing was: directives and nulls mean nothing there."""
    if isinstance(value, dict):
        return _clean_object(value)
    if isinstance(value, list):
        return [_clean(item) for item in value if not (isinstance(item, dict) and _DIRECTIVE in item)]
    return value


def _clean_object(value: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _clean(entry)
        for name, entry in value.items()
        if entry is not None
        and not _is_deletion(entry)
        and name not in (_DIRECTIVE, _RETAIN)
        and not name.startswith((_ORDER, _REMOVE))
    }


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."
