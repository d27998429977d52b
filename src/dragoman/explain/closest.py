"""What exactly does a pod ask of one node's devices, and which reasons come nearest to a yes?

Never decides; it puts the scheduler's question again, for those who explain the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman.allocate import refusal
from dragoman.allocate.allocator import Ask, diagnose
from dragoman.allocate.refusal import Refusal
from dragoman.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
)
from dragoman.api.resource import ResourceClaim
from dragoman.schedule.claims import claims_of
from dragoman.schedule.decision import AnyReason, NodesRefused
from dragoman.schedule.extended import class_resources, served_by_devices, special_claim, special_requests
from dragoman.schedule.refusal import InsufficientResource, ReasonBase
from dragoman.schedule.single import by_resource_of
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import pod_requests


def claims_on(snapshot: Snapshot, pod: Pod, node: str, context: SchedulingContext) -> tuple[ResourceClaim, ...]:
    """The claims to allocate for a pod on a node, the special one of extended resources last; () if there are none."""
    found = claims_of(snapshot, pod, context.in_flight)
    if not isinstance(found, tuple):
        return ()
    claims = tuple(used.claim for used in found if not used.allocated)
    by_resource = by_resource_of(snapshot, context)
    extended_resources = class_resources(pod_requests(pod), by_resource) if by_resource else ()
    served = (
        served_by_devices(extended_resources, snapshot.nodes[node].status.allocatable) if extended_resources else ()
    )
    if not served:
        return claims
    return (*claims, special_claim(pod, special_requests(pod.spec, served, by_resource).requests))


def diagnose_on(snapshot: Snapshot, pod: Pod, node: str, context: SchedulingContext) -> tuple[Refusal, ...]:
    """All facts about the node's devices for a pod that is refused there; () if it is not for lack of devices."""
    claims = claims_on(snapshot, pod, node, context)
    return diagnose(snapshot, Ask(claims, node), context.options) if claims else ()


def pinned(pod: Pod, node: str) -> Pod:
    """The pod as if it could go to this node only."""
    here = NodeSelectorRequirement("metadata.name", "In", (node,))
    affinity = pod.spec.affinity if pod.spec.affinity is not None else Affinity()
    node_affinity = affinity.node_affinity if affinity.node_affinity is not None else NodeAffinity()
    terms = node_affinity.required.node_selector_terms if node_affinity.required is not None else (NodeSelectorTerm(),)
    only = tuple(msgspec.structs.replace(term, match_fields=(*term.match_fields, here)) for term in terms)
    node_affinity = msgspec.structs.replace(node_affinity, required=NodeSelector(only))
    affinity = msgspec.structs.replace(affinity, node_affinity=node_affinity)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity))


def nearest_first(groups: Sequence[NodesRefused]) -> list[NodesRefused]:
    """Groups of nodes by how far they are from a yes: fewest rules that fail, least that is missing."""
    return sorted(groups, key=lambda some: (_distance(some.reasons), -len(some.nodes), some.nodes))


def _distance(reasons: Sequence[AnyReason]) -> int:
    return sum(_far(reason) for reason in reasons)


def _far(reason: AnyReason) -> int:
    match reason:
        case refusal.InsufficientDevices():
            dropped = reason.dropped
            lacking = max(max(reason.requested, 1) - dropped.available, 0)
            return 2 * min(lacking, 50) + (0 if dropped.matched else 300) + (0 if dropped.seen else 700)
        case refusal.RequestsContended():
            return 2 * min(reason.requested - reason.available, 50)
        case refusal.ConstraintUnsatisfied():
            return 40
        case InsufficientResource():
            return 20
        case refusal.PoolIncomplete() | refusal.PoolInvalid():
            return 5
        case ReasonBase():
            return 60
        case _:
            return 30
