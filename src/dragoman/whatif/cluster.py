"""What does what-if work on? A Snapshot with what controllers need beside it, as one value.

Objects of files may lack uids, and references to them too: `bring` gives each its identity by name, so that
controllers, which go by uids, see what the writer meant; and what a server adds to new objects that controllers and
evictions read. Never decides anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from immutables import Map

from dragoman.api import codec, defaults
from dragoman.api.admission import LOST_NODE_TAINTS, TOLERATION_S, select_own_pods
from dragoman.api.core import Pod, Toleration
from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref, format_time
from dragoman.api.resource import FINALIZER, ResourceClaim
from dragoman.quota.evaluate import QuotaRefusal
from dragoman.reconcile import ownership as ownerships
from dragoman.reconcile.ownership import Ownership
from dragoman.snapshot.change import HELD, WORKLOADS, Change, Gone, Put, Snapshot, apply_all
from dragoman.whatif.quotas import charged, counted

_KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "claims": "ResourceClaim",
    "templates": "ResourceClaimTemplate",
    "classes": "DeviceClass",
    "slices": "ResourceSlice",
    "taint_rules": "DeviceTaintRule",
    "namespaces": "Namespace",
    "pod_groups": "PodGroup",
    "priority_classes": "PriorityClass",
    "quotas": "ResourceQuota",
    "limit_ranges": "LimitRange",
    "budgets": "PodDisruptionBudget",
    "volume_claims": "PersistentVolumeClaim",
    "volumes": "PersistentVolume",
    "storage_classes": "StorageClass",
}


class Rejection(msgspec.Struct, frozen=True):
    """A write that the API server refuses, in its words. field: path of the first cause, "" for none.

    owner: for whom a controller wanted to create the object; None for an object of the user's. quota: what was short,
    if a quota refused it. fits_without: alternatives, as request/subrequest, without which all quotas admit the claim.
    help: what to do about it, "" where the message says it.
    """

    kind: str
    namespace: str
    name: str
    field: str
    message: str
    owner: Ref | None = None
    quota: QuotaRefusal | None = None
    fits_without: tuple[str, ...] = ()
    help: str = ""


class ClusterState(msgspec.Struct, frozen=True):
    """One state of the world that what-if goes through. `now` is UTC.

    gone: uids, removed: (kind, namespace, name) of what was deleted on the way: only that is known not to exist, since
    files may show a part of a cluster; of the kinds in `complete` every object is shown. made: how many objects were
    created, which makes new uids differ. rejected: what the API server refused, and what for. busy: controllers reached
    the limit of steps; the state is not final.
    """

    snapshot: Snapshot
    ownership: Ownership
    now: datetime
    gone: Map[str, None] = Map()
    removed: Map[tuple[str, str, str], None] = Map()
    made: int = 0
    rejected: tuple[Rejection, ...] = ()
    unsettled: bool = False
    complete: frozenset[str] = frozenset()

    @property
    def now_text(self) -> str:
        """Now as the API writes times."""
        return format_time(self.now)


def bring(
    snapshot: Snapshot, now: datetime, *, complete: frozenset[str] = frozenset(), known: bool = False
) -> ClusterState:
    """The cluster that a snapshot shows. Objects and references without uid get one by their names.

    complete: kinds of which the snapshot shows every object, so that others do not exist. known: all have their uids,
    as objects of a server or after `identified`.
    """
    if not known:
        before = list(objects(snapshot))
        after = identified(before, now)
        snapshot = apply_all(snapshot, [Put(*n) for o, n in zip(before, after, strict=True) if o[1] is not n[1]])
    ownership = ownerships.of_all(_unsorted(snapshot))
    if snapshot.quotas:
        snapshot = apply_all(snapshot, counted(snapshot))
    return ClusterState(snapshot, ownership, now, complete=complete)


def objects(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """Every object with its kind, in an order that depends on names only."""
    for field, kind in _KINDS.items():
        for _, value in sorted(getattr(snapshot, field).items()):
            yield kind, value
    for (kind, _, _), value in sorted(snapshot.workloads.items(), key=lambda item: item[0]):
        yield kind, value


def _unsorted(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    for field, kind in _KINDS.items():
        for value in getattr(snapshot, field).values():
            yield kind, value
    for (kind, _, _), value in snapshot.workloads.items():
        yield kind, value


def find(snapshot: Snapshot, kind: str, namespace: str, name: str) -> Any:
    """The object of that name, None if there is none or snapshots do not hold its kind."""
    for field, known in _KINDS.items():
        if known == kind:
            store = getattr(snapshot, field)
            return store.get((namespace, name) if namespace else name)
    return snapshot.workloads.get((kind, namespace, name))


def shown(cluster: ClusterState, changes: Iterable[Change]) -> ClusterState:
    """The cluster after these changes."""
    listed = list(changes)
    gone, removed = cluster.gone.mutate(), cluster.removed.mutate()
    for change in listed:
        if isinstance(change, Gone):
            known = cluster.ownership.find(change.kind, change.namespace, change.name)
            if known is not None:
                gone[known.ref.uid] = None
            removed[change.kind, change.namespace, change.name] = None
        else:
            meta = change.object.metadata
            removed.pop((change.kind, meta.namespace, meta.name), None)
    snapshot = apply_all(cluster.snapshot, (change for change in listed if change.kind in HELD))
    if snapshot.quotas:
        snapshot = apply_all(snapshot, charged(cluster.snapshot, snapshot, listed))
    return msgspec.structs.replace(
        cluster,
        snapshot=snapshot,
        ownership=ownerships.apply_all(cluster.ownership, listed),
        gone=gone.finish(),
        removed=removed.finish(),
    )


def uid_for(*words: object) -> str:
    """A uid that depends on these words only."""
    digest = hashlib.sha256("\0".join(map(str, words)).encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


# ---- identity

_Name = tuple[str, str, str]


def identified(listed: Sequence[tuple[str, Any]], now: datetime) -> list[tuple[str, Any]]:
    """The same objects, each with its uid, references with theirs, and what a server adds to new ones.

    Allocated claims have the finalizer that guards them.
    """
    uids: dict[_Name, str] = {}
    bare: list[_Name] = []
    for kind, value in listed:
        meta = value.metadata
        name = (kind, meta.namespace, meta.name)
        uids[name] = meta.uid
        if not meta.uid:
            bare.append(name)
    if bare:
        given = _uids_in_references(listed)
        for name in bare:
            uids[name] = given.get(name) or uid_for(*name)
    return [(kind, _with_identity(kind, value, uids, now)) for kind, value in listed]


def _uids_in_references(listed: Iterable[tuple[str, Any]]) -> dict[_Name, str]:
    """The uids by which others name objects, for objects that do not say theirs."""
    found: dict[_Name, str] = {}
    for kind, value in listed:
        namespace = value.metadata.namespace
        for owner in value.metadata.owner_references:
            if owner.uid:
                found.setdefault((owner.kind, "" if owner.kind == "Node" else namespace, owner.name), owner.uid)
        if kind == "ResourceClaim":
            for consumer in value.status.reserved_for:
                if consumer.uid:
                    found.setdefault((_consumer_kind(consumer.resource), namespace, consumer.name), consumer.uid)
    return found


def _consumer_kind(resource: str) -> str:
    return "PodGroup" if resource == "podgroups" else "Pod"


def _with_identity(kind: str, value: Any, uids: dict[_Name, str], now: datetime) -> Any:
    meta = value.metadata
    namespace = meta.namespace
    fields: dict[str, Any] = {}
    if not meta.uid:
        fields["uid"] = uids[kind, namespace, meta.name]
        value = completed(kind, value, fields["uid"], now)
        meta = value.metadata
    for owner in meta.owner_references:
        if not owner.uid:
            fields["owner_references"] = tuple(
                msgspec.structs.replace(o, uid=o.uid or _uid_of(uids, o.kind, namespace, o.name))
                for o in meta.owner_references
            )
    if kind == "ResourceClaim":
        if value.status.allocation is not None and FINALIZER not in meta.finalizers:
            fields["finalizers"] = (*meta.finalizers, FINALIZER)
        for consumer in value.status.reserved_for:
            if not consumer.uid:
                value = _with_consumers(value, uids)
                break
    if not fields:
        return value
    return msgspec.structs.replace(value, metadata=msgspec.structs.replace(meta, **fields))


def _with_consumers(claim: ResourceClaim, uids: dict[_Name, str]) -> ResourceClaim:
    namespace = claim.metadata.namespace
    reserved = tuple(
        msgspec.structs.replace(c, uid=c.uid or _uid_of(uids, _consumer_kind(c.resource), namespace, c.name))
        for c in claim.status.reserved_for
    )
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, reserved_for=reserved))


def _uid_of(uids: dict[_Name, str], kind: str, namespace: str, name: str) -> str:
    """The uid of an object that a reference names; one of its own for what is not in the picture."""
    return uids.get((kind, namespace, name)) or uids.get((kind, "", name)) or uid_for(kind, namespace, name)


def completed(kind: str, value: Any, uid: str, now: datetime) -> Any:
    """A new object with what a server adds: a workload's defaults and selector, a pod's usual tolerations, the time
    of device taints."""
    if kind == "Pod":
        return _tolerating(value)
    stamped = kind == "DeviceTaintRule" or (kind == "ResourceSlice" and any(d.taints for d in value.spec.devices))
    if (kind not in WORKLOADS and not stamped) or kind not in codec.TYPES:
        return value
    obj = defaults.apply(kind, kind_of(kind).versions[0], codec.to_json(value), now)
    if kind == "Job":
        obj["metadata"]["uid"] = uid
        select_own_pods(obj)
    obj["metadata"].pop("uid", None)
    return codec.decode(type(value), obj)


def _tolerating(pod: Pod) -> Pod:
    missing = [
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=TOLERATION_S)
        for key in LOST_NODE_TAINTS
        if not any(t.key in ("", key) and t.effect in ("", "NoExecute") for t in pod.spec.tolerations)
    ]
    if not missing:
        return pod
    spec = msgspec.structs.replace(pod.spec, tolerations=(*pod.spec.tolerations, *missing))
    return msgspec.structs.replace(pod, spec=spec)
