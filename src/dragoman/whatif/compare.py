"""What would this scheduler have decided where another one decided? One placement at a time, on the state before it.

    seen = placement_seen(snapshot, pod)
    found = compare(snapshot, seen, later=(), earlier=(), context=context, now=now)

A placement is undone in the snapshot (the pod without its node, the claims that it allocated without devices) and
decided again; the other's choice stays in all that follows, so one difference makes no others. Where two schedulers
decide side by side, or one writes while it decides on, nobody knows the order for certain: a difference that another
order of placements close in time explains is reported as that. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, combinations
from typing import Literal, TypeAlias

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import AllocationResult, ResourceClaim
from dragoman.schedule.claims import claims_of
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide
from dragoman.schedule.decision import Refused
from dragoman.schedule.extended import is_special
from dragoman.schedule.placement import NoFit, PlacementCache, ScheduleResult, UndecidedFit
from dragoman.schedule.single import place_on, scores_of
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply_all, keys_of

ORDERS = 6
"""Neighbouring placements on each side that are tried in another order."""
WINDOW = 24
"""How far away neighbours on the same node may be, and how many of them are tried in any order."""
SAME_NODE = 4

Outcome: TypeAlias = Literal["same", "tie", "order", "score", "devices", "refused"]
"""same: node and devices. tie: same devices on its node, whose score equals that of ours. order: as same or tie, had
placements close in time been decided in another order. score: same devices on its node, ours scores higher here.
devices: others on the same node. refused: its node, or every node, is refused here."""
AGREES: tuple[Outcome, ...] = ("same", "tie", "order")
DeviceName: TypeAlias = tuple[str, str, str, str, str]
"""(request, driver, pool, device, consumed capacity)."""


class ObservedPlacement(msgspec.Struct, frozen=True):
    """What another scheduler chose. allocations: of claims that this pod was the first to use. special: the claim made
    for its extended resources, "" if none."""

    pod: NamespacedName
    uid: str
    node: str
    allocations: tuple[tuple[NamespacedName, AllocationResult], ...] = ()
    special: str = ""


class ClaimComparison(msgspec.Struct, frozen=True):
    """A claim that was allocated: its devices, and those that it would get here on the same node."""

    claim: NamespacedName
    theirs: tuple[DeviceName, ...]
    ours: tuple[DeviceName, ...]

    @property
    def same(self) -> bool:
        """Whether they are equal, in any order."""
        return sorted(self.theirs) == sorted(self.ours)


class DecisionComparison(msgspec.Struct, frozen=True):
    """One placement against ours. scores: of its node and of ours, where they differ; 0: not scored.

    moved: the placements close in time that must be decided before or after it for equal decisions. refused: why
    nowhere, or why not on its node (no_fit).
    """

    pod: NamespacedName
    uid: str
    outcome: Outcome
    node: str
    our_node: str
    claims: tuple[ClaimComparison, ...] = ()
    scores: tuple[int, int] = (0, 0)
    moved: tuple[NamespacedName, ...] = ()
    refused: Refused | None = None
    no_fit: NoFit | None = None

    @property
    def agrees(self) -> bool:
        """Whether the decisions are the same as far as scores do not tie."""
        return self.outcome in AGREES


def placement_seen(snapshot: Snapshot, pod: Pod) -> ObservedPlacement | None:
    """The placement of a pod that has a node; None without one, or while a claim of it is not to be found."""
    claims = claims_of(snapshot, pod)
    if not pod.spec.node_name or not isinstance(claims, tuple):
        return None
    found = []
    for used in claims:
        allocation = used.claim.status.allocation
        if allocation is None:
            return None
        first = used.claim.status.reserved_for[:1]
        # reservedFor grows at its end: whoever allocated a claim stands first.
        if not first or first[0].uid in ("", pod.metadata.uid, used.consumer.uid):
            found.append((used.key, allocation))
    special = next(
        (
            snapshot.claims[key]
            for key in keys_of(snapshot.claims_by_owner, pod.metadata.uid)
            if is_special(snapshot.claims[key], pod)
        ),
        None,
    )
    if pod.status.extended_resource_claim_status is not None and (special is None or special.status.allocation is None):
        return None
    if special is not None and special.status.allocation is not None:
        found.append(((special.metadata.namespace, special.metadata.name), special.status.allocation))
    meta = pod.metadata
    name = special.metadata.name if special is not None else ""
    return ObservedPlacement((meta.namespace, meta.name), meta.uid, pod.spec.node_name, tuple(found), name)


def before(snapshot: Snapshot, placements: Iterable[ObservedPlacement]) -> Snapshot:
    """The snapshot as it was without these placements."""
    return apply_all(snapshot, [change for one in placements for change in _undone(snapshot, one)])


def _undone(snapshot: Snapshot, seen: ObservedPlacement) -> Iterator[Change]:
    for key, _ in seen.allocations:
        claim = snapshot.claims.get(key)
        if claim is not None and key[1] == seen.special:
            yield Gone("ResourceClaim", *key)
        elif claim is not None:
            status = msgspec.structs.replace(claim.status, allocation=None, reserved_for=(), devices=())
            yield Put("ResourceClaim", msgspec.structs.replace(claim, status=status))
    pod = snapshot.pods.get(seen.pod)
    if pod is None or pod.metadata.uid != seen.uid:
        return
    allocated = {key for key, _ in seen.allocations}
    claims = claims_of(snapshot, pod)
    for used in claims if isinstance(claims, tuple) else ():
        if used.key not in allocated and used.reserved:
            yield Put("ResourceClaim", _without(used.claim, pod))
    waiting = msgspec.structs.replace(
        pod.status,
        phase="Pending",
        extended_resource_claim_status=None,
        node_allocatable_resource_claim_statuses=(),
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=None)
    yield Put("Pod", msgspec.structs.replace(pod, metadata=meta, spec=spec, status=waiting))


def _without(claim: ResourceClaim, pod: Pod) -> ResourceClaim:
    others = tuple(entry for entry in claim.status.reserved_for if entry.uid != pod.metadata.uid)
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, reserved_for=others))


def compare(
    snapshot: Snapshot,
    seen: ObservedPlacement,
    later: Sequence[ObservedPlacement],
    earlier: Sequence[ObservedPlacement],
    context: SchedulingContext,
    now: datetime,
) -> DecisionComparison:
    """The comparison of one placement. snapshot: shows it, all before it, and those of `later`, nearest first; earlier:
    the placements before it, nearest first, as far as they may have been decided after it."""
    found = _compare(before(snapshot, [seen, *later]), seen, context, now)
    if found.agrees:
        return found
    for moved, base in chain(
        _orders(snapshot, seen, later[:ORDERS], later[ORDERS:], earlier[:ORDERS]),
        _orders_on_node(snapshot, seen, later, earlier),
    ):
        other = _compare(base, seen, context, now)
        if other.agrees:
            return msgspec.structs.replace(
                other, outcome="order", moved=tuple(one.pod for one in moved), our_node=found.our_node
            )
    return found


def _orders(
    snapshot: Snapshot,
    seen: ObservedPlacement,
    later: Sequence[ObservedPlacement],
    rest: Sequence[ObservedPlacement],
    earlier: Sequence[ObservedPlacement],
) -> Iterator[tuple[Sequence[ObservedPlacement], Snapshot]]:
    """Other orders: some placements before it that were taken for later ones, or the other way."""
    for count in range(1, max(len(later), len(earlier)) + 1):
        if count <= len(later):
            yield later[:count], before(snapshot, [seen, *later[count:], *rest])
            if count > 1:
                one = later[count - 1]
                yield [one], before(snapshot, [seen, *(p for p in later if p is not one), *rest])
        if count <= len(earlier):
            yield earlier[:count], before(snapshot, [seen, *later, *rest, *earlier[:count]])
            if count > 1:
                yield [earlier[count - 1]], before(snapshot, [seen, *later, *rest, earlier[count - 1]])


def _orders_on_node(
    snapshot: Snapshot,
    seen: ObservedPlacement,
    later: Sequence[ObservedPlacement],
    earlier: Sequence[ObservedPlacement],
) -> Iterator[tuple[Sequence[ObservedPlacement], Snapshot]]:
    """Any of the neighbours on the same node, whose devices alone matter there."""
    after = [one for one in later[:WINDOW] if one.node == seen.node][:SAME_NODE]
    there = [one for one in earlier[:WINDOW] if one.node == seen.node][:SAME_NODE]
    for count in range(1, SAME_NODE + 1):
        for moved in combinations(after, count):
            yield moved, before(snapshot, [seen, *(one for one in later if one not in moved)])
        for moved in combinations(there, count):
            yield moved, before(snapshot, [seen, *later, *moved])


def _compare(base: Snapshot, seen: ObservedPlacement, context: SchedulingContext, now: datetime) -> DecisionComparison:
    context = msgspec.structs.replace(context, memory=PlacementCache(context.memory.matcher), preemption="off")
    pod = base.pods[seen.pod]
    decision = decide(base, SchedulingUnit(("Pod", *seen.pod), (seen.pod,)), now, context)
    placed = decision.placements[0] if decision.placements else None
    our_node = placed.node if placed is not None else ""
    refused = decision.refused[0] if decision.refused else None
    if placed is not None and our_node == seen.node:
        claims = _claims(seen, [allocation for _, allocation in placed.allocations])
        outcome: Outcome = "same" if all(one.same for one in claims) else "devices"
        return DecisionComparison(seen.pod, seen.uid, outcome, seen.node, our_node, claims)
    there = place_on(base, pod, seen.node, context)
    if not isinstance(there, ScheduleResult):
        reason = there if isinstance(there, NoFit) else NoFit((there,)) if not isinstance(there, UndecidedFit) else None
        claims = _claims(seen, ())
        return DecisionComparison(
            seen.pod, seen.uid, "refused", seen.node, our_node, claims, refused=refused, no_fit=reason
        )
    claims = _claims(seen, there.results)
    scores = scores_of(base, pod, context)
    theirs, ours = scores.get(seen.node, 0), scores.get(our_node, 0)
    equal = all(one.same for one in claims)
    outcome = "devices" if not equal else "tie" if theirs == ours else "score"
    return DecisionComparison(seen.pod, seen.uid, outcome, seen.node, our_node, claims, (theirs, ours))


def _claims(seen: ObservedPlacement, ours: Sequence[AllocationResult]) -> tuple[ClaimComparison, ...]:
    """Claim by claim; both sides name them in the order of the pod, the special one last."""
    padded = [*map(_devices, ours), *([()] * len(seen.allocations))]
    return tuple(
        ClaimComparison(key, _devices(allocation), padded[index])
        for index, (key, allocation) in enumerate(seen.allocations)
    )


def _devices(allocation: AllocationResult) -> tuple[DeviceName, ...]:
    return tuple(
        (
            result.request,
            result.driver,
            result.pool,
            result.device,
            ",".join(f"{name}={amount}" for name, amount in sorted((result.consumed_capacity or {}).items())),
        )
        for result in allocation.devices.results
    )
