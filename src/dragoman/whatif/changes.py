"""How is the cluster made different? Changes as a user or an outage makes them, and what follows from them.

    after = apply(cluster, [RemoveNode("node-a"), TaintDevices(rule)])

A change is carried out, then controllers come to rest. Pods that an outage takes and that no workload in the picture
recreates are recreated as their users would, under their old names; a pod that is deleted stays deleted. Never
decides where pods go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from dragoman.api.core import Node, Pod, PodStatus
from dragoman.api.meta import NamespacedName, Ref
from dragoman.api.resource import DeviceTaintRule, ResourceSlice
from dragoman.effects import Delete
from dragoman.reconcile import taints
from dragoman.reconcile.step import ReconcileInput
from dragoman.reconcile.table import Controller
from dragoman.snapshot import change
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.usage import DeviceId, is_finished
from dragoman.whatif.cluster import ClusterState, completed, uid_for
from dragoman.whatif.settle import CONTROLLERS, changed
from dragoman.whatif.writes import write

HOSTNAME = "kubernetes.io/hostname"


class PutObject(msgspec.Struct, frozen=True):
    """The object is there, new or in place of the one of its name (`admit.judge` says whether a server takes it)."""

    kind: str
    object: object


class RemoveObject(msgspec.Struct, frozen=True):
    """Somebody deletes the object; its dependents follow in the background."""

    kind: str
    namespace: str
    name: str


class RemoveNode(msgspec.Struct, frozen=True):
    """The machine is gone for good: node, slices of its devices, and its pods, which nobody ends."""

    name: str


class TaintDevices(msgspec.Struct, frozen=True):
    """The rule is there, and so much time passes that all pods have left that it drives out."""

    rule: DeviceTaintRule


WhatIfChange: TypeAlias = PutObject | RemoveObject | RemoveNode | TaintDevices


class Displaced(msgspec.Struct, frozen=True):
    """A pod that a taint drives out, from which device. after_s: seconds that it is tolerated, 0 at once."""

    pod: NamespacedName
    node: str
    claim: str
    device: DeviceId
    after_s: int


class AfterChanges(msgspec.Struct, frozen=True):
    """The cluster after changes, controllers at rest. created: pods that their users have to recreate."""

    cluster: ClusterState
    displaced: tuple[Displaced, ...] = ()
    created: tuple[NamespacedName, ...] = ()


def apply(
    cluster: ClusterState, changes: Iterable[WhatIfChange], *, controllers: Sequence[Controller] = CONTROLLERS
) -> AfterChanges:
    """The changes one after the other. Objects that are not there are removed without complaint."""
    displaced: dict[NamespacedName, Displaced] = {}
    created: dict[NamespacedName, None] = {}
    for step in changes:
        before, until = cluster, None
        if isinstance(step, TaintDevices):
            found = displaced_by(cluster, step.rule)
            displaced |= {entry.pod: entry for entry in found}
            latest_s = max((entry.after_s for entry in found), default=0)
            # A rule announces itself before it evicts, and that takes a second.
            until = datetime.fromtimestamp(cluster.now.timestamp() + latest_s + 2, UTC)
        cluster = changed(cluster, _made_by(cluster, step), until=until, controllers=controllers)
        lost = _lost(before, cluster, step, displaced)
        again = [change.Put("Pod", recreated(cluster, pod)) for pod in lost]
        cluster = changed(cluster, again, controllers=controllers)
        created |= dict.fromkeys((pod.metadata.namespace, pod.metadata.name) for pod in lost)
    return AfterChanges(cluster, tuple(displaced[key] for key in sorted(displaced)), tuple(created))


def _made_by(cluster: ClusterState, step: WhatIfChange) -> list[change.Change]:
    match step:
        case PutObject(kind, value):
            return [change.Put(kind, _stamped(cluster, kind, value))]
        case RemoveObject(kind, namespace, name):
            return list(write(cluster, Delete(Ref(kind, namespace, name)))[0])
        case RemoveNode(name):
            slices = keys_of(cluster.snapshot.slices_by_node, name)
            return [
                change.Gone("Node", "", name),
                *(change.Gone("ResourceSlice", "", resource_slice) for resource_slice in slices),
            ]
        case TaintDevices(rule):
            return [change.Put("DeviceTaintRule", _stamped(cluster, "DeviceTaintRule", rule))]


def _stamped(cluster: ClusterState, kind: str, value: object) -> object:
    """The object with the uid of the one it replaces, or with one of its own."""
    meta = value.metadata  # type: ignore[attr-defined]
    if meta.uid:
        return value
    known = cluster.ownership.find(kind, meta.namespace, meta.name)
    uid = known.ref.uid if known is not None else uid_for(kind, meta.namespace, meta.name, cluster.made)
    generation = meta.generation or 1
    created = meta.creation_timestamp or cluster.now_text
    value = completed(kind, value, uid, cluster.now)
    meta = msgspec.structs.replace(meta, uid=uid, generation=generation, creation_timestamp=created)
    return msgspec.structs.replace(value, metadata=meta)  # type: ignore[type-var]


# ---- pods that an outage takes


def _lost(
    before: ClusterState, after: ClusterState, step: WhatIfChange, displaced: dict[NamespacedName, Displaced]
) -> list[Pod]:
    """Pods that ran, are gone now, and that no workload of the picture recreates."""
    if isinstance(step, RemoveNode):
        keys = keys_of(before.snapshot.pods_by_node, step.name)
    elif isinstance(step, TaintDevices):
        keys = tuple(sorted(displaced))
    else:
        return []
    pods = [before.snapshot.pods[key] for key in keys if key in before.snapshot.pods]
    return [
        pod
        for pod in pods
        if not is_finished(pod)
        and not pod.metadata.deletion_timestamp
        and pod.metadata.uid not in after.ownership.by_uid
        and not _has_maker(before, pod)
        and (pod.metadata.namespace, pod.metadata.name) not in after.snapshot.pods
    ]


def _has_maker(cluster: ClusterState, pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and (owner.kind == "DaemonSet" or owner.uid in cluster.ownership.by_uid)


def recreated(cluster: ClusterState, pod: Pod) -> Pod:
    """The pod as its user creates it again."""
    meta = pod.metadata
    uid = uid_for("Pod", meta.namespace, meta.name, cluster.made, "recreated")
    meta = msgspec.structs.replace(meta, uid=uid, resource_version="", creation_timestamp=cluster.now_text)
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=PodStatus(phase="Pending"))


def displaced_by(cluster: ClusterState, rule: DeviceTaintRule) -> tuple[Displaced, ...]:
    """The running pods that a rule would evict, each once, by name: as the eviction controller counts them."""
    stamped = _stamped(cluster, "DeviceTaintRule", rule)
    assert isinstance(stamped, DeviceTaintRule)
    snapshot = change.apply(cluster.snapshot, change.Put("DeviceTaintRule", stamped))
    world = ReconcileInput(snapshot, cluster.ownership, cluster.now.timestamp())
    found: list[Displaced] = []
    for key in sorted(snapshot.pods):
        pod = snapshot.pods[key]
        if pod.metadata.deletion_timestamp:
            continue
        why = [reason for reason in taints.reasons(world, pod) if reason.rule == stamped.metadata.uid]
        if why:
            first = min(why, key=lambda reason: reason.when)
            after_s = max(0, round(first.when - world.now))
            found.append(Displaced(key, pod.spec.node_name, first.claim, first.device, after_s))
    return tuple(found)


# ---- one more node


def node_like(snapshot: Snapshot, shape: str, name: str) -> Iterator[PutObject]:
    """One more node, empty, with the labels, resources and devices of another one. Its taints and cordon too."""
    node = snapshot.nodes[shape]
    labels = dict(node.metadata.labels)
    if HOSTNAME in labels:
        labels[HOSTNAME] = name
    meta = msgspec.structs.replace(node.metadata, name=name, uid="", resource_version="", labels=labels)
    made: Node = msgspec.structs.replace(node, metadata=meta)
    yield PutObject("Node", made)
    for resource_slice in keys_of(snapshot.slices_by_node, shape):
        yield PutObject("ResourceSlice", _slice_like(snapshot.slices[resource_slice], shape, name))


def _slice_like(resource_slice: ResourceSlice, shape: str, name: str) -> ResourceSlice:
    pool = resource_slice.spec.pool
    renamed = pool.name.replace(shape, name) if shape in pool.name else f"{pool.name}-{name}"
    spec = msgspec.structs.replace(
        resource_slice.spec, node_name=name, pool=msgspec.structs.replace(pool, name=renamed)
    )
    meta = msgspec.structs.replace(
        resource_slice.metadata,
        name=f"{resource_slice.metadata.name}-{name}",
        uid="",
        resource_version="",
        owner_references=(),
    )
    return msgspec.structs.replace(resource_slice, metadata=meta, spec=spec)


def free_name(snapshot: Snapshot, wanted: str) -> str:
    """A node name that nobody has: `wanted`, else with a number."""
    if wanted not in snapshot.nodes:
        return wanted
    number = 2
    while f"{wanted}-{number}" in snapshot.nodes:
        number += 1
    return f"{wanted}-{number}"
