"""What does `kubectl apply` make of an object that exists? The three-way strategic merge that kubectl does itself.

Fields of the manifest are set, fields of the manifest that was applied before and that are not in this one go, all
others stay. Lists merge by the schema's keys. Of unions (patch strategy retainKeys: a Deployment's strategy, volumes,
claim entries) nothing stays that the manifest does not name. Never asks a server: whether it takes the outcome is for
validation to say. Source: kubectl's apply (CreateThreeWayMergePatch), without its order directives.
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


def _with_deletions(
    before: dict[str, Any], after: dict[str, Any], shape: SchemaShape | None, *, retains: bool = False
) -> dict[str, Any]:
    """The patch that sets what is in `after` and removes what is only in `before`; retains: and all else."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, new in after.items():
        old, member = before.get(name), shape.field(name) if shape is not None else None
        patch[name] = new
        if member is not None and member.replaces:
            continue
        if isinstance(new, dict):
            retained = member is not None and member.retains
            patch[name] = _with_deletions(old if isinstance(old, dict) else {}, new, member, retains=retained)
        elif isinstance(new, list) and member is not None and member.merges:
            known = old if isinstance(old, list) else []
            if member.merge_key:
                patch[name] = _list_with_deletions(known, new, member)
            elif gone := [value for value in known if value not in new]:
                patch[f"$deleteFromPrimitiveList/{name}"] = gone
    if retains and (kept := sorted(name for name, new in after.items() if new is not None)):
        patch["$retainKeys"] = kept
    return patch


def _list_with_deletions(before: list[Any], after: list[Any], shape: SchemaShape) -> list[Any]:
    key = shape.merge_key
    old = {item[key]: item for item in before if isinstance(item, dict) and item.get(key) is not None}
    patch: list[Any] = []
    for item in after:
        if isinstance(item, dict):
            item = _with_deletions(old.pop(item.get(key), {}), item, shape.item, retains=shape.retains)
        patch.append(item)
    return [*patch, *({"$patch": "delete", key: name} for name in old)]
