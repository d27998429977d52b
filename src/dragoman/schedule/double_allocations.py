"""Which claim gives way when two hold one device? For when two schedulers decided at the same time.

No precondition of the API prevents that; it is seen afterwards. The newer allocation gives way if it is ours and none
of its pods has started a container: then nobody loses anything. Never takes a device from a running container, and
never deletes a pod: one that is bound already waits on its node, since nobody else may make it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import ResourceClaim
from dragoman.effects import Effect
from dragoman.schedule.decision import release_writes
from dragoman.snapshot.change import Change, Gone, Snapshot
from dragoman.snapshot.usage import DeviceId, Holder, holds, is_finished


class DoubleAllocation(msgspec.Struct, frozen=True):
    """A device with two holders. loser: the claim that gives way, None if none can without harm.

    effects: what makes it give way. pods: those of the loser that are bound and now wait on their nodes for devices.
    """

    device: DeviceId
    claims: tuple[NamespacedName, ...]
    loser: NamespacedName | None
    effects: tuple[Effect, ...]
    pods: tuple[NamespacedName, ...] = ()


def double_allocations(snapshot: Snapshot, changes: Iterable[Change], names: Collection[str]) -> list[DoubleAllocation]:
    """Devices that these changes gave to two claims. names: spec.schedulerName of the pods that are ours."""
    found: dict[DeviceId, DoubleAllocation] = {}
    for change in changes:
        if change.kind != "ResourceClaim" or isinstance(change, Gone):
            continue
        for device in holds(change.object):
            holders = snapshot.holders.get(device, ())
            if device not in found and len({(h.namespace, h.claim) for h in holders}) > 1 and _collide(holders):
                found[device] = _double(snapshot, device, holders, names)
    return list(found.values())


def _collide(holders: tuple[Holder, ...]) -> bool:
    """Shares may stand beside each other, an exclusive holder beside nobody."""
    return any(holder.share_id is None for holder in holders)


def _double(
    snapshot: Snapshot, device: DeviceId, holders: tuple[Holder, ...], names: Collection[str]
) -> DoubleAllocation:
    keys = tuple(dict.fromkeys((holder.namespace, holder.claim) for holder in holders))
    claims = [snapshot.claims[key] for key in keys]
    for claim in sorted(claims, key=_age, reverse=True)[:-1]:
        pods = [snapshot.pods[key] for key in snapshot.consumers(claim) if not is_finished(snapshot.pods[key])]
        if pods and all(pod.spec.scheduler_name in names and not _started(pod) for pod in pods):
            writes, _ = release_writes(claim)
            bound = [(pod.metadata.namespace, pod.metadata.name) for pod in pods if pod.spec.node_name]
            meta = claim.metadata
            return DoubleAllocation(device, keys, (meta.namespace, meta.name), writes, tuple(bound))
    return DoubleAllocation(device, keys, None, ())


def _age(claim: ResourceClaim) -> tuple[str, str, str]:
    allocation = claim.status.allocation
    when = allocation.allocation_timestamp if allocation is not None else None
    return when or "", claim.metadata.creation_timestamp or "", claim.metadata.name


def _started(pod: Pod) -> bool:
    """Whether a container may have touched the device."""
    if pod.status.phase in ("Running", "Unknown"):
        return True
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return any("waiting" not in (status.get("state") or {"waiting": {}}) for status in statuses)
