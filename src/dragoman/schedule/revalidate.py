"""Does a decision made on an older snapshot still hold on this one? For decisions that took long, off the loop.

Checks the pods, their claims, the nodes and the devices of the decision, independently of how they were found. Never
searches: a decision that holds no more is made again. The same for decisions beside another scheduler, before their
claims are written and again before their pods are bound.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman.allocate.allocator import Allocation, Ask
from dragoman.allocate.verify import verify
from dragoman.api.resource import AllocationResult, ResourceClaim
from dragoman.schedule.claims import claims_of
from dragoman.schedule.decision import Decision, Placement
from dragoman.schedule.filter import insufficient_resources, static_reason
from dragoman.schedule.inter_pod_affinity import inter_pod_state_of
from dragoman.schedule.profile import SchedulerProfile
from dragoman.schedule.units import SchedulingContext, is_waiting
from dragoman.schedule.volumes import volume_state_of
from dragoman.snapshot.change import Put, Snapshot, apply_all
from dragoman.snapshot.selection import selects
from dragoman.snapshot.usage import pod_requests

_NOTHING: Mapping[str, int] = {}


def still_holds(snapshot: Snapshot, decision: Decision, context: SchedulingContext) -> bool:
    """Whether its placements may be written now. A decision without placements always may."""
    if decision.version == snapshot.version or not decision.placements:
        return True
    asks: list[Ask] = []
    results: list[tuple[AllocationResult, ...]] = []
    for placement in decision.placements:
        found = _open_claims(snapshot, placement, context)
        if found is None or not _node_takes(snapshot, placement, context.profile):
            return False
        asks.append(Ask(tuple(claim for claim, _ in found), placement.node))
        results.append(tuple(result for _, result in found))
    return not verify(snapshot, asks, Allocation(tuple(results)), context.gates)


def devices_are_free(snapshot: Snapshot, decision: Decision, context: SchedulingContext) -> bool:
    """Whether nobody but the decision's own claims holds what it allocates. Its writes may be done or not."""
    asks: list[Ask] = []
    results: list[tuple[AllocationResult, ...]] = []
    for placement in decision.placements:
        claims = [(snapshot.claims.get(key), result) for key, result in placement.allocations]
        found = [(_not_allocated(claim), result) for claim, result in claims if claim is not None]
        asks.append(Ask(tuple(claim for claim, _ in found), placement.node))
        results.append(tuple(result for _, result in found))
    without = apply_all(snapshot, (Put("ResourceClaim", claim) for ask in asks for claim in ask.claims))
    return not verify(without, asks, Allocation(tuple(results)), context.gates)


def _not_allocated(claim: ResourceClaim) -> ResourceClaim:
    status = msgspec.structs.replace(claim.status, allocation=None, reserved_for=())
    return msgspec.structs.replace(claim, status=status)


def _open_claims(
    snapshot: Snapshot, placement: Placement, context: SchedulingContext
) -> list[tuple[ResourceClaim, AllocationResult]] | None:
    """The claims to allocate with what was chosen; None if pod or claims are not as they were."""
    pod = snapshot.pods.get(placement.pod)
    if pod is None or pod.metadata.uid != placement.uid or not is_waiting(pod):
        return None
    claims = claims_of(snapshot, pod, context.in_flight)
    if not isinstance(claims, tuple):
        return None
    chosen = dict(placement.allocations)
    found = []
    for used in claims:
        result = chosen.pop(used.key, None)
        if used.allocated != (result is None):
            return None
        selector = used.claim.status.allocation.node_selector if used.claim.status.allocation is not None else None
        node = snapshot.nodes.get(placement.node)
        if selector is not None and (node is None or not selects(selector, node)):
            return None
        if result is not None:
            found.append((used.claim, result))
    return None if chosen else found  # what is left is a special claim, which is not there to check


def _node_takes(snapshot: Snapshot, placement: Placement, profile: SchedulerProfile) -> bool:
    node = snapshot.nodes.get(placement.node)
    pod = snapshot.pods[placement.pod]
    if node is None or static_reason(pod.spec, node, profile) is not None:
        return False
    inter_pod = inter_pod_state_of(snapshot, pod, profile.off)
    if inter_pod is not None and inter_pod.reason(node) is not None:
        return False
    volumes = volume_state_of(snapshot, pod, profile.off)
    if volumes is not None and (volumes.reasons or volumes.reason(node) is not None):
        return False
    if "NodeResourcesFit" in profile.off:
        return True
    used: Mapping[str, int] = snapshot.requested.get(placement.node, _NOTHING)
    return not insufficient_resources(pod_requests(pod), node.status.allocatable, used)
