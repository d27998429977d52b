"""What does an object look like after a server-side apply, and who owns its fields then?

`apply` merges a configuration by the schema, drops what its manager no longer applies and nobody else owns, and refuses
to take others' fields without force. `track` keeps managedFields right at all other writes. Both return a new object
that shares parts with their arguments and never change those. They never default, validate or look at versions: the
objects are of one version, and their status is reset by the caller where the write may not touch it.
(Source: KEP-555, documentation "Server-Side Apply".)
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.fieldset import Fields, contains, cut, difference, intersection, path_text, paths, union
from dragoman.apiserver.fieldwalk import Unkeyed, compare, merge, owned, with_named_fields, without
from dragoman.apiserver.managers import APPLY, UPDATE, Manager, Managers, is_reset, manager_of
from dragoman.apiserver.shape import GVK, SchemaShape, shape_of, unstructured
from dragoman.errors import Invalid, Stale

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
_BEFORE_FIRST_APPLY = "before-first-apply"
# Limit of all annotations together (apimachinery: TotalAnnotationSizeLimitB).
_MAX_ANNOTATION_BYTES = 256 * 1024

# Nobody owns these: identity and what the server keeps.
_UNOWNED_METADATA = (
    *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation"),
    *("managedFields", "resourceVersion"),
)
_UNOWNED = [
    *[("f:apiVersion",), ("f:kind",)],
    *[("f:metadata", f"f:{name}") for name in _UNOWNED_METADATA],
]
# Every configuration names them, so applying less never removes them.
_IDENTITY: Fields = {"f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:name": {}}}


class Form(msgspec.Struct, frozen=True):
    """What has to be known of a kind: its shape, its name, and whether its status is a subresource."""

    shape: SchemaShape
    gvk: GVK
    has_status: bool = False


def form_of(gvk: GVK) -> Form:
    """The form of a built-in kind."""
    kind = BY_NAME.get(gvk[2])
    return Form(shape_of(gvk) or unstructured(), gvk, kind is not None and "status" in kind.subresources)


class FieldConflict(msgspec.Struct, frozen=True):
    """A field that another manager owns and the configuration would change."""

    manager: Manager
    path: tuple[str, ...]


class ApplyConflict(Stale):
    """Others own fields of the configuration (409): `causes` for Status.details, str() for Status.message."""

    def __init__(self, conflicts: list[FieldConflict]) -> None:
        super().__init__(_conflict_text(conflicts))
        self.conflicts = conflicts

    @property
    def causes(self) -> list[dict[str, str]]:
        """One cause a field, as in details.causes."""
        return [
            {"reason": "FieldManagerConflict", "message": f"conflict with {c.manager}", "field": path_text(c.path)}
            for c in self.conflicts
        ]


def _conflict_text(conflicts: list[FieldConflict]) -> str:
    if len(conflicts) == 1:
        (only,) = conflicts
        return f"Apply failed with 1 conflict: conflict with {only.manager}: {path_text(only.path)}"
    lines = []
    for manager in sorted({conflict.manager for conflict in conflicts}):
        lines.append(f"conflicts with {manager}:")
        lines += [f"- {path_text(conflict.path)}" for conflict in conflicts if conflict.manager == manager]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


# ---- apply


def apply(
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    manager: str,
    force: bool,
    form: Form | GVK,
    subresource: str,
    now: str,
) -> dict[str, Any]:
    """The object with `applied` applied by `manager`, managedFields included. live is None when it does not exist.

    now: RFC 3339 text for managedFields. Raises ApplyConflict, or Invalid if a list item lacks its keys or the
    configuration carries managedFields.
    """
    if (applied.get("metadata") or {}).get("managedFields"):
        raise Invalid("metadata.managedFields", "must be nil")
    live = live or {}
    form = form if isinstance(form, Form) else form_of(form)
    shape = form.shape
    api_version = _api_version(form.gvk)
    managers = Managers((live.get("metadata") or {}).get("managedFields"))
    who = manager_of(manager, APPLY, subresource, api_version)
    if live and not managers:
        _adopt(managers, shape, live, who, api_version, now)
    try:
        merged = _apply(managers, shape, live, applied, who, force, form, now)
    except ApplyConflict as refused:
        if manager != _KUBECTL:
            raise
        _allow_last_applied(refused, shape, live, api_version)
        managers = Managers((live.get("metadata") or {}).get("managedFields"))
        if not managers:
            _adopt(managers, shape, live, who, api_version, now)
        merged = _apply(managers, shape, live, applied, who, True, form, now)
    if manager == _KUBECTL:
        merged = _with_last_applied(merged, applied)
    return _with_managers(merged, managers)


def _apply(
    managers: Managers,
    shape: SchemaShape,
    live: dict[str, Any],
    applied: dict[str, Any],
    who: Manager,
    force: bool,
    form: Form,
    now: str,
) -> dict[str, Any]:
    api_version = _api_version(form.gvk)
    applied = _writable(applied, form, who.subresource)
    configured = _ownable(owned(shape, applied))
    before = managers.fields(who)
    merged = merge(shape, live, applied)
    managers.set(who, configured, api_version, None)
    merged = _prune(managers, shape, merged, before)
    change = compare(shape, _tracked(live), _tracked(merged))
    touched = union(change.modified, change.added)
    if not force:
        _refuse_conflicts(managers, who, touched)
    managers.release(union(touched, change.removed), but=who)
    same = not touched and not change.removed
    managers.set(who, configured, api_version, None if same and before else now)
    return merged


def _prune(managers: Managers, shape: SchemaShape, merged: dict[str, Any], before: Fields) -> dict[str, Any]:
    """Without what the manager applied before and nobody owns now."""
    if not before:
        return merged
    gone = with_named_fields(shape, before)
    everything = with_named_fields(shape, owned(shape, merged, strict=False))
    pruned = without(shape, merged, gone) or {}
    claimed = _IDENTITY
    for _, fields in managers:
        claimed = union(claimed, fields)
    lost = difference(everything, with_named_fields(shape, owned(shape, pruned, strict=False)))
    kept = without(shape, merged, difference(lost, with_named_fields(shape, claimed))) or {}
    lost = difference(everything, with_named_fields(shape, owned(shape, kept, strict=False)))
    result: dict[str, Any] = without(shape, merged, intersection(lost, gone)) or {}
    return result


def _refuse_conflicts(managers: Managers, who: Manager, touched: Fields) -> None:
    conflicts = [
        FieldConflict(manager, path)
        for manager, fields in managers
        if manager != who
        for path in paths(intersection(fields, touched))
    ]
    if conflicts:
        raise ApplyConflict(conflicts)


def _adopt(
    managers: Managers, shape: SchemaShape, live: dict[str, Any], who: Manager, api_version: str, now: str
) -> None:
    """An object without managers gets one that owns all it has."""
    before = manager_of(_BEFORE_FIRST_APPLY, UPDATE, who.subresource, api_version)
    managers.set(before, compare(shape, {}, _tracked(live)).added, api_version, now)


# ---- kubectl's way from client-side to server-side apply


def _last_applied(obj: dict[str, Any]) -> Any:
    text = ((obj.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _allow_last_applied(refused: ApplyConflict, shape: SchemaShape, live: dict[str, Any], api_version: str) -> None:
    """Return if all conflicts are about fields that kubectl applied from the client and that still are as it left
    them, else raise the others."""
    last = _last_applied(live)
    if not isinstance(last, dict) or last.get("apiVersion") != api_version:
        raise refused
    try:
        change = compare(shape, _tracked(last), _tracked(live))
        ours = owned(shape, last)
    except Unkeyed:
        raise refused from None
    for changed in (change.modified, change.added, change.removed):
        ours = difference(ours, changed)
    left = [conflict for conflict in refused.conflicts if not contains(ours, conflict.path)]
    if left:
        raise ApplyConflict(left)


def _with_last_applied(merged: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """The annotation of client-side apply, where there is one, says what was applied now."""
    metadata = merged.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return merged
    config_metadata = dict(applied.get("metadata") or {})
    own = {name: text for name, text in (config_metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
    if own or "annotations" in config_metadata:
        config_metadata["annotations"] = own
    text = msgspec.json.encode({**applied, "metadata": config_metadata}, order="sorted").decode() + "\n"
    annotations = {**annotations, LAST_APPLIED: text}
    if (
        sum(len(name.encode()) + len(str(value).encode()) for name, value in annotations.items())
        > _MAX_ANNOTATION_BYTES
    ):
        del annotations[LAST_APPLIED]
    return {**merged, "metadata": {**metadata, "annotations": annotations}}


# ---- other writes


def track(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str,
    operation: str,
    form: Form | GVK,
    subresource: str,
    now: str,
) -> dict[str, Any]:
    """`new` with the managedFields it must have after a create, update or patch by `manager`. old is None at create.

    operation: Update; for Apply the object is returned as it is, since `apply` has set its managers. Managers that a
    client rewrote in metadata.managedFields are taken over (not through subresources), [{}] forgets all of them.
    An object whose managers were forgotten stays without until somebody applies.
    """
    if operation == APPLY:
        return new
    had = (old.get("metadata") or {}).get("managedFields") if old else None
    sent = (new.get("metadata") or {}).get("managedFields")
    if old is not None and not subresource and sent != had and is_reset(sent):
        return _with_managers(new, Managers(None))
    managers = Managers(had)
    if not subresource and sent != had:
        managers = Managers(sent) or managers
    if old is None or managers:
        form = form if isinstance(form, Form) else form_of(form)
        shape = form.shape
        api_version = _api_version(form.gvk)
        who = manager_of(manager, operation, subresource, api_version)
        with suppress(Unkeyed):  # validation has its say about such lists; ownership stays as it was
            _track(managers, shape, old or {}, new, who, api_version, now)
    return _with_managers(new, managers)


def _track(
    managers: Managers,
    shape: SchemaShape,
    old: dict[str, Any],
    new: dict[str, Any],
    who: Manager,
    api_version: str,
    now: str,
) -> None:
    change = compare(shape, _tracked(old), _tracked(new))
    touched = union(change.modified, change.added)
    gone = change.removed
    if not touched and not gone:
        return
    managers.release(union(touched, gone), but=who)
    mine = managers.fields(who)
    if touched:
        managers.set(who, union(difference(mine, gone), touched), api_version, now)
        managers.cap()
    elif gone:
        managers.set(who, difference(mine, gone), api_version, None)


# ---- parts that nobody owns


def _api_version(gvk: GVK) -> str:
    return f"{gvk[0]}/{gvk[1]}" if gvk[0] else gvk[1]


def _tracked(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without what has no owner."""
    out = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        out["metadata"] = {name: value for name, value in metadata.items() if name not in _UNOWNED_METADATA}
    return out


def _ownable(fields: Fields) -> Fields:
    for path in _UNOWNED:
        fields = cut(fields, path)
    return fields


def _writable(applied: dict[str, Any], form: Form, subresource: str) -> dict[str, Any]:
    """What of a configuration counts: status only through the status subresource, and nothing else through it."""
    if subresource == "status":
        return {name: value for name, value in applied.items() if name in ("apiVersion", "kind", "status")}
    if form.has_status:
        return {name: value for name, value in applied.items() if name != "status"}
    return applied


def _with_managers(obj: dict[str, Any], managers: Managers) -> dict[str, Any]:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    if managers:
        metadata["managedFields"] = managers.entries()
    return {**obj, "metadata": metadata}
