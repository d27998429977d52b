"""Which running pods could be somewhere else, and what happens when they are? The tools of every plan that moves pods.

A pod is movable if somebody makes it again elsewhere: not of a DaemonSet, not finished, not being deleted, with claims
that no pod outside the plan uses. Moving is to undo its placement and to decide it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.schedule.claims import claims_of
from dragoman.schedule.cycle import SchedulingContext
from dragoman.schedule.placement import ScheduleResult
from dragoman.schedule.single import place_on
from dragoman.snapshot.change import Gone, Put, Snapshot, apply_all
from dragoman.snapshot.usage import holds, is_finished, pod_requests
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.compare import ObservedPlacement, before, placement_seen
from dragoman.whatif.decide import steps
from dragoman.whatif.units import units_of


class Move(msgspec.Struct, frozen=True):
    """A pod that is restarted. to: its node afterwards, which may be the same with other devices; "" if pending."""

    namespace: str
    name: str
    node: str
    to: str
    devices: tuple[str, ...]
    to_devices: tuple[str, ...]


def movable(snapshot: Snapshot, nodes: Iterable[str] | None = None) -> tuple[ObservedPlacement, ...]:
    """Placements that can be undone, on these nodes (None: everywhere), by name of the pod."""
    wanted = None if nodes is None else frozenset(nodes)
    found = []
    for key in sorted(snapshot.pods):
        pod = snapshot.pods[key]
        if not pod.spec.node_name or (wanted is not None and pod.spec.node_name not in wanted):
            continue
        if is_movable(pod):
            seen = placement_seen(snapshot, pod)
            if seen is not None and not _shares(snapshot, pod):
                found.append(seen)
    return tuple(found)


def is_movable(pod: Pod) -> bool:
    """Whether somebody makes the pod again elsewhere when it ends."""
    owner = pod.metadata.controller
    is_pinned = owner is not None and owner.kind in ("DaemonSet", "Node")
    return not (is_pinned or is_finished(pod) or pod.metadata.deletion_timestamp)


def _shares(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether another pod uses one of its claims, too."""
    claims = claims_of(snapshot, pod)
    return isinstance(claims, tuple) and any(len(used.claim.status.reserved_for) > 1 for used in claims)


def size_of(snapshot: Snapshot, seen: ObservedPlacement) -> tuple[int, int, int]:
    """Devices, cpu and memory that a placement takes."""
    needs = pod_requests(snapshot.pods[seen.pod])
    devices = sum(len(allocation.devices.results) for _, allocation in seen.allocations)
    return devices, needs.get("cpu", 0), needs.get("memory", 0)


class Rearranged(msgspec.Struct, frozen=True, eq=False):
    """What came of moving pods. pending: those without a node now."""

    cluster: ClusterState
    moves: tuple[Move, ...]
    pending: tuple[NamespacedName, ...]


def undone(cluster: ClusterState, placements: Sequence[ObservedPlacement]) -> ClusterState:
    """The cluster as if these pods were waiting."""
    return msgspec.structs.replace(cluster, snapshot=before(cluster.snapshot, placements))


def without_pods(cluster: ClusterState, keys: Iterable[NamespacedName]) -> ClusterState:
    """The cluster as the scheduler sees it while these pods are out of sight; no controller notices."""
    gone = [Gone("Pod", *key) for key in keys]
    return msgspec.structs.replace(cluster, snapshot=apply_all(cluster.snapshot, gone))


def with_pods(cluster: ClusterState, pods: Iterable[Pod]) -> ClusterState:
    """The cluster with them again."""
    back = [Put("Pod", pod) for pod in pods]
    return msgspec.structs.replace(cluster, snapshot=apply_all(cluster.snapshot, back))


def decided_again(
    cluster: ClusterState,
    was: Snapshot,
    placements: Sequence[ObservedPlacement],
    context: SchedulingContext,
    *,
    keep: bool = False,
) -> Rearranged:
    """The pods of these placements, undone in `cluster` and decided in this order; was: the snapshot before.

    keep: pods whose node and devices are still free stay where they were.
    """
    snapshot = cluster.snapshot
    if keep:
        for seen in placements:
            snapshot = _kept(snapshot, was, seen, context)
    units = units_of(snapshot, [seen.pod for seen in placements])
    for step in steps(snapshot, units, cluster.now, context):
        snapshot = step.after
    moves, pending = [], []
    for seen in placements:
        pod = snapshot.pods[seen.pod]
        old = devices_of(was, was.pods[seen.pod])
        new = devices_of(snapshot, pod) if pod.spec.node_name else ()
        if not pod.spec.node_name:
            pending.append(seen.pod)
        if pod.spec.node_name != seen.node or old != new:
            moves.append(Move(*seen.pod, seen.node, pod.spec.node_name, old, new))
    return Rearranged(msgspec.structs.replace(cluster, snapshot=snapshot), tuple(moves), tuple(pending))


def _kept(snapshot: Snapshot, was: Snapshot, seen: ObservedPlacement, context: SchedulingContext) -> Snapshot:
    """The snapshot with the placement as it was, if nobody took its place."""
    if any(snapshot.holders.get(device) for key, _ in seen.allocations for device in holds(was.claims[key])):
        return snapshot
    if not isinstance(place_on(snapshot, snapshot.pods[seen.pod], seen.node, context), ScheduleResult):
        return snapshot
    pod = was.pods[seen.pod]
    claims = claims_of(was, pod)
    names = {key for key, _ in seen.allocations} | {used.key for used in (claims if isinstance(claims, tuple) else ())}
    back = [Put("ResourceClaim", was.claims[key]) for key in sorted(names)]
    return apply_all(snapshot, [*back, Put("Pod", pod)])


def devices_of(snapshot: Snapshot, pod: Pod) -> tuple[str, ...]:
    """`driver/pool/device` of the pod's allocated claims, sorted."""
    claims = claims_of(snapshot, pod)
    if not isinstance(claims, tuple):
        return ()
    allocations = [used.claim.status.allocation for used in claims]
    return tuple(sorted(f"{r.driver}/{r.pool}/{r.device}" for a in allocations if a for r in a.devices.results))
