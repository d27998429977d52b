"""What keeps a pod that has its node from running, or a claim from going? One more closed union of facts.

Read from objects and from the events that nodes write (NodePrepareResources fails, a driver is not registered). Says
nothing about pods that wait for a place; that is the scheduler's. Never makes sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName, parse_time
from dragoman.api.resource import (
    FINALIZER,
    Device,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
)
from dragoman.explain.focus import claims_used
from dragoman.inspect.schedulers import DRIVER_TEST
from dragoman.reconcile.taints import NO_EXECUTE, delay_s
from dragoman.schedule.claims import group_name, same
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.pools import slice_targets
from dragoman.snapshot.taints import rules_of_pool, taints_of, tolerates
from dragoman.snapshot.unpublished import replaced_of, unpublished_of
from dragoman.snapshot.usage import DeviceId, claim_names, holds, is_finished

PREPARE_FAILED = "FailedPrepareDynamicResources"
_NOT_REGISTERED = re.compile(r"DRA driver (\S+) is not registered")
STARTING = frozenset({"", "Pending"})


class StateBase(msgspec.Struct, frozen=True):
    """Base: the class name is the code in JSON."""


class DriverNotRegistered(StateBase, frozen=True):
    """The node's kubelet knows no such driver, so it cannot call NodePrepareResources. since_s: -1 if unknown."""

    node: str
    driver: str
    since_s: int


class NoResourceSlices(StateBase, frozen=True):
    """A driver of the allocation publishes no ResourceSlice for the node (any longer)."""

    node: str
    driver: str


class DeviceNotPublished(StateBase, frozen=True):
    """An allocated device that no slice publishes any longer."""

    claim: str
    device: str


class DeviceReplaced(StateBase, frozen=True):
    """An allocated device whose name other hardware has now: attribute was `before` at allocation and is `now`."""

    claim: str
    device: str
    attribute: str
    before: str
    now: str


class PrepareResourcesFailed(StateBase, frozen=True):
    """NodePrepareResources (or what comes before it) fails. error: what the node last said."""

    node: str
    error: str
    count: int
    since_s: int


class ClaimNotAllocated(StateBase, frozen=True):
    """The pod was bound although this claim has no devices: somebody else than a DRA-aware scheduler bound it."""

    claim: str


class ClaimNotReserved(StateBase, frozen=True):
    """The pod was bound, but the claim is not reserved for it: the kubelet does not start it."""

    claim: str


class PodClaimNotFound(StateBase, frozen=True):
    """A claim that the bound pod uses does not exist. claim is empty where it was never created from its template."""

    pod_claim: str
    claim: str


class PodNodeNotFound(StateBase, frozen=True):
    """The pod's node does not exist (any longer)."""

    node: str


class NodeNotReady(StateBase, frozen=True):
    """The pod's node is not ready. reported: reason and message of its condition."""

    node: str
    reported: str
    since_s: int


class Starting(StateBase, frozen=True):
    """Nothing is known to be wrong; the node has not started the pod yet."""

    node: str
    since_s: int


class ConsumerState(msgspec.Struct, frozen=True):
    """Whom a claim is reserved for. state: running, pending, finished, deleting, gone (does not exist), replaced
    (another object has its name now) or other (no pod)."""

    namespace: str
    name: str
    uid: str
    state: str


class DeviceTaintEviction(StateBase, frozen=True):
    """A NoExecute taint of a device that the pod's claim has will evict the pod. rule: empty for a driver's taint.

    at: RFC 3339; left_s: seconds until then, 0 if now. not_covering: a toleration matches the taint but does not name
    the effect NoExecute, so that it lets the device be allocated and does not keep the pod.
    """

    claim: str
    device: str
    key: str
    value: str
    rule: str
    at: str
    left_s: int
    not_covering: bool


class DeletionBlocked(StateBase, frozen=True):
    """An object ("claim NAME" or "pod NAME") is being deleted and a finalizer holds it. devices stay held meanwhile."""

    object: str
    finalizers: tuple[str, ...]
    consumers: tuple[ConsumerState, ...]
    devices: tuple[str, ...]
    since_s: int


StateReason: TypeAlias = (
    DriverNotRegistered
    | NoResourceSlices
    | DeviceNotPublished
    | DeviceReplaced
    | PrepareResourcesFailed
    | ClaimNotAllocated
    | ClaimNotReserved
    | PodClaimNotFound
    | PodNodeNotFound
    | NodeNotReady
    | Starting
    | DeviceTaintEviction
    | DeletionBlocked
)


_FOLLOWS_FROM: dict[type[StateBase], str] = {
    PodNodeNotFound: "Node",
    NoResourceSlices: "ResourceSlice",
    DeviceNotPublished: "ResourceSlice",
    DeviceReplaced: "ResourceSlice",
    PodClaimNotFound: "ResourceClaim",
}
"""Facts that are read from the absence of an object of a kind."""


class EventInfo(msgspec.Struct, frozen=True):
    """An event about an object. first and last: RFC 3339, "" if unknown."""

    kind: str
    key: NamespacedName
    uid: str
    reason: str
    message: str
    count: int
    first: str
    last: str


def events_of(objects: Iterable[Mapping[str, Any]]) -> tuple[EventInfo, ...]:
    """Events as on the wire, core v1 or events.k8s.io."""
    return tuple(_reported(raw) for raw in objects if isinstance(raw.get("metadata"), Mapping))


def _reported(raw: Mapping[str, Any]) -> EventInfo:
    about = raw.get("involvedObject") or raw.get("regarding") or {}
    series = raw.get("series") or {}
    created = raw["metadata"].get("creationTimestamp") or ""
    first = raw.get("firstTimestamp") or raw.get("deprecatedFirstTimestamp") or raw.get("eventTime") or created
    last = raw.get("lastTimestamp") or series.get("lastObservedTime") or raw.get("deprecatedLastTimestamp") or first
    return EventInfo(
        str(about.get("kind", "")),
        (str(about.get("namespace") or raw["metadata"].get("namespace", "")), str(about.get("name", ""))),
        str(about.get("uid", "")),
        str(raw.get("reason", "")),
        str(raw.get("message") or raw.get("note") or ""),
        int(raw.get("count") or series.get("count") or raw.get("deprecatedCount") or 1),
        str(first or ""),
        str(last or ""),
    )


# ---- pods that have their node


def stuck(
    snapshot: Snapshot, pod: Pod, events: Sequence[EventInfo], now: datetime, hidden: frozenset[str] = frozenset()
) -> tuple[StateReason, ...]:
    """Why a bound pod does not run (yet); () if it runs, is finished or has no node.

    hidden: kinds of which nothing may be seen, so that nothing follows from their absence.
    """
    found = _stuck(snapshot, pod, events, now)
    return tuple(reason for reason in found if _FOLLOWS_FROM.get(type(reason)) not in hidden)


def _stuck(snapshot: Snapshot, pod: Pod, events: Sequence[EventInfo], now: datetime) -> tuple[StateReason, ...]:
    if not pod.spec.node_name or is_finished(pod):
        return ()
    if pod.metadata.deletion_timestamp is not None and pod.metadata.finalizers:
        since = _since(pod.metadata.deletion_timestamp, now)
        return (DeletionBlocked(f"pod {pod.metadata.name}", pod.metadata.finalizers, (), (), since),)
    evictions = tuple(_evictions(snapshot, pod, now))
    if pod.status.phase not in STARTING:
        lost = _node(snapshot, pod, now) if snapshot.nodes else ()
        missing = _absent(snapshot, pod) if pod.metadata.deletion_timestamp is not None else ()
        return (*lost, *evictions, *dict.fromkeys(missing))
    reasons = [*evictions, *_node(snapshot, pod, now), *_claims(snapshot, pod), *_prepare(snapshot, pod, events, now)]
    if reasons:
        return tuple(dict.fromkeys(reasons))
    return (Starting(pod.spec.node_name, _since(_scheduled(pod), now)),)


def _absent(snapshot: Snapshot, pod: Pod) -> Iterator[StateReason]:
    """Drivers that must unprepare a pod's devices before it can go, and publish nothing for its node any longer."""
    for claim in claims_used(snapshot, pod):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if not publishes(snapshot, result.driver, pod.spec.node_name):
                yield NoResourceSlices(pod.spec.node_name, result.driver)


def _evictions(snapshot: Snapshot, pod: Pod, now: datetime) -> Iterator[StateReason]:
    """NoExecute taints on the pod's devices that its claims' tolerations do not hold off for ever."""
    for claim in claims_used(snapshot, pod):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            rules = rules_of_pool(snapshot, result.driver, result.pool)
            for rule, taint in _taints(snapshot, result, rules):
                delay = delay_s(result.tolerations, taint) if taint.effect == NO_EXECUTE else None
                if delay is None:
                    continue
                added = _moment(taint.time_added) or now
                at = max(added + timedelta(seconds=delay), now)
                yield DeviceTaintEviction(
                    claim.metadata.name,
                    f"{result.driver}/{result.pool}/{result.device}",
                    taint.key,
                    taint.value or "",
                    rule,
                    at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    int((at - now).total_seconds()),
                    any(t.effect != NO_EXECUTE and tolerates(t, taint) for t in result.tolerations),
                )


def _taints(
    snapshot: Snapshot, result: DeviceRequestAllocationResult, rules: Sequence[DeviceTaintRule]
) -> tuple[tuple[str, DeviceTaint], ...]:
    names = keys_of(snapshot.slices_by_pool, (result.driver, result.pool))
    for name in names:
        for device in snapshot.slices[name].spec.devices:
            if device.name == result.device:
                return taints_of(device, result.driver, result.pool, rules)
    return taints_of(Device(name=result.device), result.driver, result.pool, rules)


def _moment(text: str | None) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _node(snapshot: Snapshot, pod: Pod, now: datetime) -> Iterator[StateReason]:
    name = pod.spec.node_name
    node = snapshot.nodes.get(name)
    if node is None:
        yield PodNodeNotFound(name)
        return
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            reported = ": ".join(part for part in (condition.reason, condition.message) if part)
            yield NodeNotReady(name, reported, _since(condition.last_transition_time, now))


def _claims(snapshot: Snapshot, pod: Pod) -> Iterator[StateReason]:
    namespace = pod.metadata.namespace
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or made.get(entry.name)
        if entry.name in made and name is None:
            continue  # deliberately without a claim
        claim = snapshot.claims.get((namespace, name or ""))
        if claim is None:
            yield PodClaimNotFound(entry.name, name or "")
        elif claim.status.allocation is None:
            yield ClaimNotAllocated(claim.metadata.name)
        elif not _reserved_for(claim, pod):
            yield ClaimNotReserved(claim.metadata.name)


def _reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    group = group_name(pod)
    return not claim.status.reserved_for or any(
        same(entry.uid, entry.name, pod) if entry.resource == "pods" else bool(group) and entry.name == group
        for entry in claim.status.reserved_for
    )


def _prepare(snapshot: Snapshot, pod: Pod, events: Sequence[EventInfo], now: datetime) -> Iterator[StateReason]:
    """What the node says, and whether the drivers of the devices are still there."""
    node = pod.spec.node_name
    mine = [event for event in events if event.kind == "Pod" and _about(event, pod) and event.reason == PREPARE_FAILED]
    latest = max(mine, key=lambda event: event.last, default=None)
    if latest is not None:
        first = min((event.first for event in mine if event.first), default="")
        missing = _NOT_REGISTERED.search(latest.message)
        if missing is not None:
            yield DriverNotRegistered(node, missing[1], _since(first, now))
        else:
            yield PrepareResourcesFailed(node, latest.message, sum(event.count for event in mine), _since(first, now))
    for claim in claims_used(snapshot, pod):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if not publishes(snapshot, result.driver, node):
                yield NoResourceSlices(node, result.driver)
            elif not _published(snapshot, DeviceId(result.driver, result.pool, result.device)):
                yield DeviceNotPublished(claim.metadata.name, f"{result.driver}/{result.pool}/{result.device}")
        yield from replaced(snapshot, claim)


def replaced(snapshot: Snapshot, claim: ResourceClaim) -> Iterator[DeviceReplaced]:
    """Devices of a claim that came back as other hardware under the same name."""
    for one in replaced_of(snapshot, claim):
        yield DeviceReplaced(claim.metadata.name, str(one.id), one.attribute, one.before, one.now)


def unpublished(snapshot: Snapshot, claim: ResourceClaim) -> Iterator[DeviceNotPublished]:
    """Devices that a claim holds and that no slice of their pool's newest generation shows."""
    for device in holds(claim):
        if any(one.id == device for one in unpublished_of(snapshot, device.driver, device.pool)):
            yield DeviceNotPublished(claim.metadata.name, str(device))


def publishes(snapshot: Snapshot, driver: str, node: str) -> bool:
    """Whether a driver publishes a slice that the node sees."""
    found = snapshot.nodes.get(node)
    names = (*keys_of(snapshot.slices_by_node, node), *keys_of(snapshot.slices_by_node, ""))
    resource_slices = (snapshot.slices[name] for name in names)
    return any(p.spec.driver == driver and (found is None or slice_targets(p, found)) for p in resource_slices)


def _published(snapshot: Snapshot, device: DeviceId) -> bool:
    names = keys_of(snapshot.slices_by_pool, (device.driver, device.pool))
    return any(d.name == device.device for name in names for d in snapshot.slices[name].spec.devices)


def _about(event: EventInfo, pod: Pod) -> bool:
    key = (pod.metadata.namespace, pod.metadata.name)
    return event.key == key and (not event.uid or not pod.metadata.uid or event.uid == pod.metadata.uid)


def _scheduled(pod: Pod) -> str | None:
    found = next((c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "True"), None)
    return found.last_transition_time if found is not None else pod.metadata.creation_timestamp


def _since(text: str | None, now: datetime) -> int:
    """Seconds since a time; -1 if unknown."""
    if not text:
        return -1
    try:
        return max(int((now - parse_time(text)).total_seconds()), 0)
    except ValueError:
        return -1


def absent_drivers(snapshot: Snapshot, node: str, classes: Iterable[str]) -> tuple[NoResourceSlices, ...]:
    """Drivers that these classes name in a selector and that publish nothing for the node."""
    drivers: dict[str, None] = {}
    for name in classes:
        found = snapshot.classes.get(name)
        for selector in found.spec.selectors if found is not None else ():
            text = selector.cel.expression if selector.cel is not None else ""
            drivers.update(dict.fromkeys(match[2] for match in DRIVER_TEST.finditer(text)))
    return tuple(NoResourceSlices(node, driver) for driver in drivers if not publishes(snapshot, driver, node))


# ---- claims


def deletion(snapshot: Snapshot, claim: ResourceClaim, now: datetime) -> DeletionBlocked | None:
    """What a claim's deletion waits for; None if it is not being deleted."""
    meta = claim.metadata
    if meta.deletion_timestamp is None:
        return None
    return DeletionBlocked(
        f"claim {meta.name}",
        meta.finalizers or (FINALIZER,),
        consumers_of(snapshot, claim),
        devices_of(claim),
        _since(meta.deletion_timestamp, now),
    )


def devices_of(claim: ResourceClaim) -> tuple[str, ...]:
    """`driver/pool/device` of each device the claim holds; admin access holds nothing."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple(f"{r.driver}/{r.pool}/{r.device}" for r in results if not r.admin_access)


def consumers_of(snapshot: Snapshot, claim: ResourceClaim) -> tuple[ConsumerState, ...]:
    """Whom the claim is reserved for, and what became of them."""
    namespace = claim.metadata.namespace
    found = []
    for entry in claim.status.reserved_for:
        state = "other"
        if not entry.api_group and entry.resource == "pods":
            state = _fate(snapshot.pods.get((namespace, entry.name)), entry.uid, entry.name)
        found.append(ConsumerState(namespace, entry.name, entry.uid, state))
    return tuple(found)


def _fate(pod: Pod | None, uid: str, name: str) -> str:
    if pod is None:
        return "gone"
    if not same(uid, name, pod):
        return "replaced"
    if is_finished(pod):
        return "finished"
    if pod.metadata.deletion_timestamp is not None:
        return "deleting"
    return "running" if pod.spec.node_name and pod.status.phase not in STARTING else "pending"


def users_of(snapshot: Snapshot, claim: ResourceClaim) -> tuple[NamespacedName, ...]:
    """Pods that name the claim, sorted."""
    return tuple(key for key in snapshot.consumers(claim) if claim.metadata.name in claim_names(snapshot.pods[key]))
