"""What does the API server make of a write? Effects of controllers, carried out on a ClusterState.

Metadata, finalizers, merging and the refusals of admission, as far as they change what controllers and the scheduler
see next. Preconditions hold by themselves: one write follows the other. A pod's end on its node, which a kubelet
reports, is part of its deletion. Never decides what to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dragoman.api import codec, defaults
from dragoman.api.admission import (
    admin_access_refused,
    forbidden_text,
    select_own_pods,
    terminating_text,
    tolerate_lost_nodes,
)
from dragoman.api.core import Node, Pod
from dragoman.api.kinds import kind_of
from dragoman.api.merge import merge_patch
from dragoman.api.meta import Bare, Ref
from dragoman.api.resource import ResourceClaim
from dragoman.effects import Bind, Create, Delete, Effect, Emit, Evict, Patch
from dragoman.errors import Bug
from dragoman.quota.evaluate import Exceeded
from dragoman.quota.limits import broken, fill
from dragoman.snapshot.change import Change, Gone, Put, Snapshot
from dragoman.snapshot.usage import is_finished
from dragoman.whatif.cluster import ClusterState, Rejection, find, uid_for
from dragoman.whatif.names import name_for
from dragoman.whatif.quotas import dispensable, limit_ranges_of, refusal

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_MERGED_BY = {"conditions": "type"}
"""Lists that strategic and apply patches merge by a key, among those that controllers write."""
_TERMINATING = "Terminating"


def write(cluster: ClusterState, effect: Effect) -> tuple[tuple[Change, ...], Rejection | None]:
    """The changes that a write makes, and its refusal if the server says no."""
    match effect:
        case Create(body):
            changes, refused = _create(cluster, body)
            if refused is not None:
                refused = msgspec.structs.replace(refused, owner=_owner(body))
            return changes, refused
        case Patch():
            return tuple(_patch(cluster, effect)), None
        case Delete(ref, _, grace_s, propagation):
            return tuple(_deleted(cluster, ref, grace_s, propagation)), None
        case Evict(ref, grace_s):
            return tuple(_deleted(cluster, ref, grace_s, "")), None
        case Bind(ref, node):
            pod = cluster.snapshot.pods.get((ref.namespace, ref.name))
            if pod is None:
                return (), None
            return (
                Put("Pod", msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))),
            ), None
        case Emit():
            return (), None


# ---- create


def _create(cluster: ClusterState, body: dict[str, Any]) -> tuple[tuple[Change, ...], Rejection | None]:
    kind = kind_of(body["kind"])
    obj = defaults.apply(kind.kind, kind.versions[0], body, cluster.now)
    meta = obj["metadata"]
    meta["name"] = meta.get("name") or name_for(cluster, kind.kind, obj)
    namespace = meta.get("namespace", "")
    if _exists(cluster, kind.kind, namespace, meta["name"]):
        return (), None  # AlreadyExists: whoever wanted it looks again
    stamp(cluster, kind.kind, obj)
    refused = admission(cluster, kind.kind, obj)
    if refused is not None:
        return (), refused
    if kind.kind == "Pod":
        fill(limit_ranges_of(cluster.snapshot, namespace), obj)
    complete(kind.kind, obj)
    value = codec.decode(codec.TYPES.get(kind.kind, Bare), obj)
    limited = limits_refused(cluster.snapshot, kind.kind, value)
    return ((), limited) if limited is not None else ((Put(kind.kind, value),), None)


def _owner(body: dict[str, Any]) -> Ref | None:
    """The controller for which an object is created."""
    meta = body.get("metadata") or {}
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return Ref(owner["kind"], meta.get("namespace", ""), owner["name"], owner.get("uid", ""))
    return None


def _exists(cluster: ClusterState, kind: str, namespace: str, name: str) -> bool:
    return cluster.ownership.find(kind, namespace, name) is not None


def stamp(cluster: ClusterState, kind: str, obj: dict[str, Any]) -> None:
    """Sets what the server gives a new object: uid, creation time, generation. Changes `obj`."""
    meta = obj["metadata"]
    meta["uid"] = uid_for(kind, meta.get("namespace", ""), meta["name"], cluster.made)
    meta["creationTimestamp"] = cluster.now_text
    meta["generation"] = 1


def admission(cluster: ClusterState, kind: str, obj: dict[str, Any]) -> Rejection | None:
    """The refusal that a new object meets because of others: its namespace as far as the picture shows it."""
    meta = obj["metadata"]
    namespace, name = meta.get("namespace", ""), meta.get("name", "")
    known = cluster.snapshot.namespaces.get(namespace)
    if namespace and known is not None and known.status.phase == _TERMINATING:
        text = terminating_text(kind_of(kind), name, namespace)
        return Rejection(kind, namespace, name, "metadata.namespace", text)
    if kind in ("ResourceClaim", "ResourceClaimTemplate"):
        path, why = admin_access_refused(kind, obj, known.metadata.labels if known is not None else None)
        if path:
            text = forbidden_text(kind_of(kind), name, f"{path}: Forbidden: {why}")
            return Rejection(kind, namespace, name, path, text)
    return None


def limits_refused(snapshot: Snapshot, kind: str, value: Any) -> Rejection | None:
    """The refusal of a new object by a LimitRange or a ResourceQuota of its namespace."""
    meta = value.metadata
    ranges = limit_ranges_of(snapshot, meta.namespace) if isinstance(value, Pod) else []
    why = broken(ranges, value) if ranges else ""
    quota = None if why else refusal(snapshot, kind, value)
    why = why or (quota.text if quota is not None else "")
    if not why:
        return None
    spare: tuple[str, ...] = ()
    if isinstance(quota, Exceeded) and isinstance(value, ResourceClaim):
        spare = dispensable(snapshot, value, quota)
    text = forbidden_text(kind_of(kind), meta.name, why)
    return Rejection(kind, meta.namespace, meta.name, "", text, quota=quota, fits_without=spare)


def complete(kind: str, obj: dict[str, Any]) -> None:
    """Adds what the server adds to a new object by itself. Changes `obj`."""
    if kind == "Pod" and isinstance(obj.get("spec"), dict):
        tolerate_lost_nodes(obj["spec"])
    elif kind == "Job":
        select_own_pods(obj)


# ---- patch


def _patch(cluster: ClusterState, effect: Patch) -> Iterator[Change]:
    ref = effect.ref
    old = find(cluster.snapshot, ref.kind, ref.namespace, ref.name)
    if old is None or (ref.uid and old.metadata.uid != ref.uid):
        return
    if effect.subresource == "finalize":
        if old.metadata.deletion_timestamp:
            yield Gone(ref.kind, "", ref.name)
        return
    if effect.type == "json":
        raise Bug(f"a controller writes a JSON patch of {ref}, which what-if does not carry out")
    doc = codec.to_json(old)
    patch = effect.patch if effect.type == "merge" else _lists_merged(doc, effect.patch)
    made = merge_patch(doc, patch)
    if "spec" in patch and made.get("spec") != doc.get("spec") and old.metadata.generation:
        made["metadata"]["generation"] = old.metadata.generation + 1
    yield from _kept_or_gone(ref.kind, codec.decode(type(old), made))


def _lists_merged(doc: Any, patch: Any, field: str = "") -> Any:
    """The patch with its keyed lists as they are after merging, so that a merge patch sets them."""
    if isinstance(patch, dict):
        inner = doc if isinstance(doc, dict) else {}
        return {name: _lists_merged(inner.get(name), value, name) for name, value in patch.items()}
    key = _MERGED_BY.get(field)
    if key is None or not isinstance(patch, list) or not isinstance(doc, list):
        return patch
    new = {item[key]: item for item in patch}
    merged = [{**item, **new.pop(item[key])} if item.get(key) in new else item for item in doc]
    return [*merged, *new.values()]


def _kept_or_gone(kind: str, value: Any) -> Iterator[Change]:
    """An object being deleted goes with its last finalizer, unless somebody still runs it."""
    meta = value.metadata
    held = meta.finalizers or (meta.deletion_grace_period_seconds or 0)
    if meta.deletion_timestamp and not held and kind != "Namespace":
        yield Gone(kind, meta.namespace, meta.name)
    else:
        yield Put(kind, value)


# ---- delete


def _deleted(cluster: ClusterState, ref: Ref, grace_s: int | None, propagation: str) -> Iterator[Change]:
    if not ref.name:
        for item in cluster.ownership.content(ref.namespace, (ref.kind,)):
            yield from _deleted(cluster, item.ref, grace_s, propagation)
        return
    old = find(cluster.snapshot, ref.kind, ref.namespace, ref.name)
    if old is None:
        if _exists(cluster, ref.kind, ref.namespace, ref.name):
            yield Gone(ref.kind, ref.namespace, ref.name)
        return
    if ref.uid and old.metadata.uid != ref.uid:
        return
    if ref.kind == "Namespace":
        status = msgspec.structs.replace(old.status, phase=_TERMINATING)
        yield Put("Namespace", _marked(cluster, msgspec.structs.replace(old, status=status), 0))
        return
    finalizers = _propagated(old.metadata.finalizers, propagation)
    value = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, finalizers=finalizers))
    wait_s = _grace_s(cluster, value, grace_s) if isinstance(value, Pod) else 0
    if not wait_s and not finalizers:
        yield Gone(ref.kind, ref.namespace, ref.name)
        return
    if isinstance(value, Pod) and not wait_s and value.spec.node_name and not is_finished(value):
        value = msgspec.structs.replace(value, status=msgspec.structs.replace(value.status, phase="Failed"))
    yield Put(ref.kind, _marked(cluster, value, wait_s))


def _propagated(finalizers: tuple[str, ...], propagation: str) -> tuple[str, ...]:
    if not propagation:
        return finalizers
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(propagation)
    kept = tuple(f for f in finalizers if f not in (FOREGROUND, ORPHAN) or f == wanted)
    return kept if wanted is None or wanted in kept else (*kept, wanted)


def _marked(cluster: ClusterState, value: Any, grace_s: int) -> Any:
    meta = value.metadata
    meta = msgspec.structs.replace(
        meta,
        deletion_timestamp=meta.deletion_timestamp or cluster.now_text,
        deletion_grace_period_seconds=grace_s,
        generation=meta.generation + 1 if meta.generation and not meta.deletion_timestamp else meta.generation,
    )
    return msgspec.structs.replace(value, metadata=meta)


def _grace_s(cluster: ClusterState, pod: Pod, asked_s: int | None) -> int:
    """Seconds that a deleted pod waits for its kubelet: none where one is there to end it, or nobody runs it."""
    if not pod.spec.node_name or is_finished(pod) or asked_s == 0:
        return 0
    node = cluster.snapshot.nodes.get(pod.spec.node_name)
    return 0 if node is not None and answers(node) else asked_s or 30


def answers(node: Node) -> bool:
    """Whether the node's kubelet follows the API, as far as the Ready condition shows."""
    return all(c.type != "Ready" or c.status != "Unknown" for c in node.status.conditions)
