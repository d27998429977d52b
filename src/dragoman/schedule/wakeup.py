"""Which waiting units may a change help?

A unit that is refused names topics (from its reasons); a change names the topics it is about. A unit lines up
again when the two meet, and only then, so an irrelevant change costs nothing. A topic is always emitted when the
change could remove the reason; that the unit then fits is for the decision to say. Deletions count: a claim that
goes away frees its devices without an update before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.allocate import refusal as device
from dragoman.api.core import Node, Pod
from dragoman.api.resource import ResourceClaim
from dragoman.schedule import refusal
from dragoman.schedule.needs import is_extended
from dragoman.schedule.queue import Topic
from dragoman.snapshot.change import Change, Gone, Put, Snapshot
from dragoman.snapshot.usage import group_of, holds, is_finished, pod_requests

NODES: Topic = ("nodes",)
LABELS: Topic = ("labels",)
TAINTS: Topic = ("taints",)
DEVICES: Topic = ("devices",)
FREED: Topic = ("freed",)
CLASSES: Topic = ("classes",)
INTER_POD: Topic = ("inter-pod",)
VOLUMES: Topic = ("volumes",)


def amount_freed(resource: str) -> Topic:
    """More of a node's resource is free."""
    return ("resource", resource)


def freed(driver: str) -> Topic:
    """A device of that driver is free again."""
    return ("freed", driver)


def named(kind: str, namespace: str, name: str) -> Topic:
    """That object changed."""
    return (kind, namespace, name)


def topics(before: Snapshot, change: Change) -> tuple[Topic, ...]:
    """What the change is about, given the snapshot before it; () if it can help nobody."""
    new = change.object if isinstance(change, Put) else None
    namespace, name = _name(change)
    match change.kind:
        case "Node":
            return tuple(_of_node(before.nodes.get(name), new))
        case "Pod":
            return tuple(_of_pod(before.pods.get((namespace, name)), new))
        case "ResourceClaim":
            return tuple(_of_claim(before.claims.get((namespace, name)), new, namespace, name))
        case "ResourceSlice" | "DeviceTaintRule":
            return (DEVICES,)
        case "Namespace":
            return (named("Namespace", "", name),)
        case "DeviceClass":
            return (named("DeviceClass", "", name), CLASSES)
        case "ResourceClaimTemplate" | "PodGroup":
            return (named(change.kind, namespace, name),)
        case "PersistentVolumeClaim":
            return (named(change.kind, namespace, name), VOLUMES)
        case "PersistentVolume" | "StorageClass":
            return (VOLUMES,)
        case _:
            return ()


def _name(change: Change) -> tuple[str, str]:
    if isinstance(change, Gone):
        return change.namespace, change.name
    meta = change.object.metadata
    return meta.namespace, meta.name


def _of_node(old: Node | None, new: Node | None) -> Iterable[Topic]:
    if new is None:
        return
    if old is None:
        yield NODES
        return
    if old.metadata.labels != new.metadata.labels:
        yield LABELS
    if old.spec.taints != new.spec.taints or old.spec.unschedulable != new.spec.unschedulable:
        yield TAINTS
    was, now = old.status.allocatable, new.status.allocatable
    if was == now:
        return
    if now is None or was is None:
        yield NODES
        return
    for resource, amount in now.items():
        less = was.get(resource)
        if less is None or less < amount:
            yield amount_freed(resource)
    # An extended resource that goes to zero is then served by devices (KEP-5004).
    if any(not now.get(resource) for resource in was):
        yield CLASSES


def _of_pod(old: Pod | None, new: Pod | None) -> Iterable[Topic]:
    if new is not None and (old is None or _concerns_itself(old, new)):
        yield named("Pod", new.metadata.namespace, new.metadata.name)
    for pod in (old, new):
        group = group_of(pod) if pod is not None else ""
        if pod is not None and group and (old is None or new is None):
            yield named("PodGroup", pod.metadata.namespace, group)
    if _inter_pod_facts(old) != _inter_pod_facts(new):
        yield INTER_POD
    if old is None or not old.spec.node_name or is_finished(old):
        return
    if new is None or is_finished(new) or new.spec.node_name != old.spec.node_name:
        for resource in pod_requests(old):
            yield amount_freed(resource)


def _inter_pod_facts(pod: Pod | None) -> tuple[object, ...] | None:
    """What of a pod can matter to others on or near its node."""
    if pod is None or not pod.spec.node_name or is_finished(pod):
        return None
    return pod.spec.node_name, pod.metadata.labels, pod.metadata.deletion_timestamp is None


def _concerns_itself(old: Pod, new: Pod) -> bool:
    return (
        old.metadata.uid != new.metadata.uid
        or old.status.resource_claim_statuses != new.status.resource_claim_statuses
        or (old.spec is not new.spec and old.spec != new.spec)
    )


def _of_claim(old: ResourceClaim | None, new: ResourceClaim | None, namespace: str, name: str) -> Iterable[Topic]:
    yield named("ResourceClaim", namespace, name)
    if old is None or old.status.allocation is None:
        return
    before: dict[Any, Any] = dict(holds(old))
    after = holds(new) if new is not None else {}
    drivers = sorted({device.driver for device, holders in before.items() if after.get(device) != holders})
    if drivers:
        yield FREED
        for driver in drivers:
            yield freed(driver)


# ---- what a refused unit waits for


def topics_of(pod: Pod, claims: Iterable[str], reasons: Iterable[object]) -> frozenset[Topic]:
    """Topics whose changes may remove one of the reasons. claims: names of the pod's claims, known ones."""
    namespace = pod.metadata.namespace
    found: set[Topic] = {NODES, named("Pod", namespace, pod.metadata.name)}
    found |= {named("ResourceClaim", namespace, name) for name in claims}
    for reason in reasons:
        found |= set(_of_reason(namespace, reason))
    return frozenset(found)


def _of_reason(namespace: str, reason: object) -> Iterable[Topic]:
    match reason:
        case refusal.ClaimNotCreated():
            yield named("ResourceClaimTemplate", namespace, reason.template)
            if reason.unlabelled:
                yield named("Namespace", "", reason.unlabelled)
        case refusal.ClaimNotFound():
            yield named("ResourceClaim", namespace, reason.claim)
        case refusal.PodGroupNotFound() | refusal.PodGroupTooSmall() | refusal.PodGroupDoesNotFit():
            yield named("PodGroup", namespace, reason.group)
        case refusal.PodGroupTopologyMismatch():
            yield from (named("PodGroup", namespace, reason.group), LABELS)
        case refusal.NodeUnschedulable() | refusal.UntoleratedTaint():
            yield TAINTS
        case refusal.NodeAffinityMismatch() | refusal.AddedAffinityMismatch():
            yield LABELS
        case refusal.ClaimNotAvailableOnNode():
            yield LABELS
        case (
            refusal.NodeAllocatableClaimShared()
            | refusal.NodeAllocatableAmountUnknown()
            | refusal.InsufficientPodLevelResource()
        ):
            yield from (DEVICES, FREED)
        case refusal.InsufficientResource():
            yield amount_freed(reason.resource)
            if is_extended(reason.resource):
                yield CLASSES
        case refusal.TooManyPods():
            yield amount_freed("pods")
        case refusal.UnknownResource():
            yield amount_freed(reason.resource)
            yield CLASSES
        case refusal.PortConflict():
            yield INTER_POD
        case refusal.PodAffinity() | refusal.PodAntiAffinity() | refusal.TopologySpread():
            yield from (INTER_POD, LABELS)
        case (
            refusal.VolumeClaimNotFound()
            | refusal.VolumeClaimDeleting()
            | refusal.VolumeClaimNotOwned()
            | refusal.VolumeClaimLost()
            | refusal.VolumeClaimUnbound()
        ):
            yield from (named("PersistentVolumeClaim", namespace, reason.volume_claim), VOLUMES)
        case refusal.VolumeClaimInUse():
            yield INTER_POD
        case refusal.VolumeAffinityMismatch() | refusal.VolumeZone() | refusal.VolumeNotAvailable():
            yield from (VOLUMES, LABELS)
        case device.ClassNotFound():
            yield named("DeviceClass", "", reason.class_name)
        case _ if device.is_pod_wide(reason):
            yield CLASSES
        case _ if not isinstance(reason, refusal.ReasonBase):
            # The allocator's: devices may be published, changed, freed; a class may change what matches.
            yield from (DEVICES, FREED, LABELS, CLASSES)
