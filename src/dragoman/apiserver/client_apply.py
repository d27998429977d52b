"""What does `kubectl apply` make of an object that exists? The three-way strategic merge that kubectl does itself.

Fields of the manifest are set, fields of the manifest that was applied before and that are not in this one go, all
others stay. Lists merge by the schema's keys. Never asks a server: whether it takes the outcome is for validation to
say. Source: kubectl's apply (CreateThreeWayMergePatch), without its order directives.
"""

from __future__ import annotations

from typing import Any

from dragoman.apiserver.patch_failed import PatchFailed
from dragoman.apiserver.shape import GVK, SchemaShape, shape_of
from dragoman.apiserver.strategic import strategic_patch
from dragoman.errors import Invalid

_SERVER_SETS = ("uid", "creationTimestamp", "generation", "resourceVersion", "managedFields", "deletionTimestamp")


def applied(live: dict[str, Any], before: dict[str, Any], manifest: dict[str, Any], gvk: GVK) -> dict[str, Any]:
    """The live object once the manifest is applied. before: the manifest that was applied last, {} for none.

    All three are in the version of `gvk`. What the server keeps for itself (status, uid) stays the live object's.
    Raises Invalid: a list item lacks its merge key.
    """
    shape = shape_of(gvk)
    patch = _with_deletions(_sent(before), _sent(manifest), shape)
    try:
        return strategic_patch(live, patch, gvk)
    except PatchFailed as error:
        raise Invalid("", str(error)) from None


def _sent(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a manifest can change."""
    rest = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "status")}
    meta = rest.get("metadata")
    if isinstance(meta, dict):
        rest["metadata"] = {name: value for name, value in meta.items() if name not in _SERVER_SETS}
    return rest


def _with_deletions(before: dict[str, Any], after: dict[str, Any], shape: SchemaShape | None) -> dict[str, Any]:
    """The patch that sets what is in `after` and removes what is only in `before`."""
    patch = dict(after)
    for name, old in before.items():
        if name not in after:
            patch[name] = None
            continue
        new, member = after[name], shape.field(name) if shape is not None else None
        if member is not None and member.replaces:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            patch[name] = _with_deletions(old, new, member)
        elif isinstance(old, list) and isinstance(new, list) and member is not None and member.merges:
            if member.merge_key:
                patch[name] = _list_with_deletions(old, new, member)
            elif gone := [value for value in old if value not in new]:
                patch[f"$deleteFromPrimitiveList/{name}"] = gone
    return patch


def _list_with_deletions(before: list[Any], after: list[Any], shape: SchemaShape) -> list[Any]:
    key = shape.merge_key
    old = {item[key]: item for item in before if isinstance(item, dict) and item.get(key) is not None}
    patch: list[Any] = []
    for item in after:
        known = old.pop(item.get(key), None) if isinstance(item, dict) else None
        patch.append(_with_deletions(known, item, shape.item) if known is not None else item)
    return [*patch, *({"$patch": "delete", key: name} for name in old)]
