"""What is common to all that create pods: templates, selectors, readiness, adoption, and events.

Decides nothing for one kind of workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from dragoman.api.core import Pod, PodTemplateSpec, Workload
from dragoman.api.meta import LabelSelector, ObjectMeta, Ref, format_time, parse_time
from dragoman.effects import Create, Delete, Effect, Emit, Patch
from dragoman.reconcile.step import ReconcileInput, owned_by, ref_of
from dragoman.snapshot.change import Change, Gone
from dragoman.snapshot.selection import matches
from dragoman.snapshot.usage import is_finished

BURST = 500
"""Creations or deletions of one look, as upstream."""


# ---- reading pods


def is_active(pod: Pod) -> bool:
    """Neither finished nor being deleted."""
    return not is_finished(pod) and not pod.metadata.deletion_timestamp


def ready_since(pod: Pod) -> float | None:
    """Since when the pod is ready (epoch seconds; 0 if it does not say), None if it is not."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            return seconds_of(condition.last_transition_time)
    return None


def unavailable_s(pod: Pod, min_ready_s: int, now: float) -> float | None:
    """Seconds until the pod counts as available: 0 if it does, None if it is not ready."""
    since = ready_since(pod)
    if since is None:
        return None
    return max(0.0, since + min_ready_s - now) if min_ready_s else 0.0


def seconds_of(text: str | None) -> float:
    """Epoch seconds of a time of the API; 0.0 for none."""
    if not text:
        return 0.0
    try:
        return parse_time(text).timestamp()
    except ValueError:
        return 0.0


def time_text(now: float) -> str:
    """Epoch seconds as metav1.Time."""
    return format_time(datetime.fromtimestamp(now, UTC))


# ---- selectors


def is_empty(selector: LabelSelector | None) -> bool:
    """Selects everything or nothing: no workload may have such a one."""
    return selector is None or not (selector.match_labels or selector.match_expressions)


def selector_of(owner: Workload) -> LabelSelector | None:
    """The pods that a workload is for; a ReplicationController names plain labels."""
    selector: Any = owner.spec.selector
    if isinstance(selector, dict):
        return LabelSelector(match_labels=selector)
    return owner.spec.selector


# ---- ownership


def members(world: ReconcileInput, kind: str, owner: Workload, child: str = "Pod") -> tuple[list[Any], list[Effect]]:
    """The children an owner controls, sorted by name, and the writes that adopt or release some.

    Children without controller that the selector matches are adopted; those it no longer matches are released.
    """
    meta, selector = owner.metadata, selector_of(owner)
    writes: list[Effect] = []
    found: list[Any] = []
    for ref in world.ownership.controlled(meta.uid, child):
        value = find(world, ref)
        if value is None:
            continue
        if matches(selector, value.metadata.labels) or value.metadata.deletion_timestamp:
            found.append(value)
        else:
            writes.append(_release(child, value.metadata, meta.uid))
    if not meta.deletion_timestamp:
        for ref in world.ownership.orphans(child, meta.namespace):
            value = find(world, ref)
            if value is not None and matches(selector, value.metadata.labels) and _is_adoptable(value):
                writes.append(_adopt(child, value.metadata, kind, meta))
    return found, writes


def find(world: ReconcileInput, ref: Ref) -> Any:
    """The pod or workload of that name."""
    if ref.kind == "Pod":
        return world.snapshot.pods.get((ref.namespace, ref.name))
    return world.snapshot.workloads.get((ref.kind, ref.namespace, ref.name))


def _is_adoptable(value: Any) -> bool:
    return not isinstance(value, Pod) or is_active(value)


def _adopt(child: str, meta: ObjectMeta, kind: str, owner: ObjectMeta) -> Patch:
    owners = [msgspec.to_builtins(o) for o in meta.owner_references]
    patch = {"metadata": {"ownerReferences": [*owners, owned_by(kind, owner)]}}
    return Patch(ref_of(child, meta), patch, resource_version=meta.resource_version)


def _release(child: str, meta: ObjectMeta, owner_uid: str) -> Patch:
    owners = [msgspec.to_builtins(o) for o in meta.owner_references if o.uid != owner_uid]
    patch = {"metadata": {"ownerReferences": owners or None}}
    return Patch(ref_of(child, meta), patch, resource_version=meta.resource_version)


def owner_keys(
    kind: str, child: str, change: Change, before: ReconcileInput, after: ReconcileInput
) -> list[tuple[str, str]]:
    """Keys (namespace, name) of the workloads of a kind to look at after a change to one, or to a child."""
    if isinstance(change, Gone):
        namespace, name = change.namespace, change.name
    else:
        namespace, name = change.object.metadata.namespace, change.object.metadata.name
    if change.kind == kind:
        return [(namespace, name)]
    if change.kind != child:
        return []
    ref = Ref(child, namespace, name)
    found: dict[tuple[str, str], None] = {}
    old, new = find(before, ref), find(after, ref)
    if isinstance(old, Pod) and isinstance(new, Pod) and _matters(old) == _matters(new):
        return []
    for value in (old, new):
        owner = value.metadata.controller if value is not None else None
        if owner is not None and owner.kind == kind:
            found[namespace, owner.name] = None
    if new is not None and new.metadata.controller is None and new.metadata.labels:
        known = (old.metadata.labels, old.metadata.controller) if old is not None else None
        if known != (new.metadata.labels, None):
            for owned in after.ownership.content(namespace, (kind,)):
                workload = find(after, owned.ref)
                if workload is not None and matches(selector_of(workload), new.metadata.labels):
                    found[namespace, owned.ref.name] = None
    return list(found)


def _matters(pod: Pod) -> tuple[Any, ...]:
    """What workloads read of their pods: a change elsewhere is none of theirs."""
    meta, status = pod.metadata, pod.status
    return (
        meta.uid,
        meta.labels,
        meta.owner_references,
        meta.finalizers,
        meta.deletion_timestamp,
        pod.spec.node_name,
        status.phase,
        status.conditions,
        status.container_statuses,
        status.init_container_statuses,
    )


# ---- making pods


def pod_from(
    template: PodTemplateSpec,
    kind: str,
    owner: ObjectMeta,
    *,
    name: str = "",
    generate_name: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    finalizers: Iterable[str] = (),
    shape: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Create:
    """The creation of a pod from a template; `shape` may change a copy of its spec."""
    metadata: dict[str, Any] = {"namespace": owner.namespace, "ownerReferences": [owned_by(kind, owner)]}
    metadata |= {"name": name} if name else {"generateName": generate_name or f"{owner.name}-"}
    if all_labels := {**template.metadata.labels, **(labels or {})}:
        metadata["labels"] = all_labels
    if all_annotations := {**template.metadata.annotations, **(annotations or {})}:
        metadata["annotations"] = all_annotations
    if all_finalizers := [*template.metadata.finalizers, *finalizers]:
        metadata["finalizers"] = all_finalizers
    spec = dict(template.spec or {})
    return Create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": shape(spec) if shape else spec})


# ---- telling people


def pod_write_events(
    owner: Ref, component: str, effect: Effect, written: dict[str, Any] | None, error: str
) -> tuple[Effect, ...]:
    """Events of a pod's creation or deletion, as upstream words them."""
    match effect:
        case Create(body) if body["kind"] == "Pod":
            if error:
                return (Emit(owner, "Warning", "FailedCreate", f"Error creating: {error}", component),)
            name = (written or body)["metadata"].get("name", "")
            return (Emit(owner, "Normal", "SuccessfulCreate", f"Created pod: {name}", component),)
        case Delete(ref) if ref.kind == "Pod":
            if error:
                return (Emit(owner, "Warning", "FailedDelete", f"Error deleting: {error}", component),)
            return (Emit(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {ref.name}", component),)
    return ()


# ---- conditions (raw, as workload statuses are)


def condition(conditions: Iterable[dict[str, Any]], type_: str) -> dict[str, Any] | None:
    """The condition of that type."""
    return next((c for c in conditions if c.get("type") == type_), None)


def with_condition(
    conditions: list[dict[str, Any]], now: float, type_: str, status: str, reason: str, message: str, **more: str
) -> list[dict[str, Any]]:
    """The list with the condition set; its transition time moves when its status does."""
    old = condition(conditions, type_)
    if old is not None and (old.get("status"), old.get("reason"), old.get("message")) == (status, reason, message):
        return conditions
    when = time_text(now)
    moved = when if old is None or old.get("status") != status else old.get("lastTransitionTime", when)
    new = {"type": type_, "status": status, "lastTransitionTime": moved, "reason": reason, "message": message, **more}
    return [*(c for c in conditions if c.get("type") != type_), new]


def without_condition(conditions: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    """The list without it."""
    return [c for c in conditions if c.get("type") != type_]
