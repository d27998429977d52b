"""Whom does a pod with a higher priority displace? Victims for a pod that fits nowhere, or nobody.

Two ways, `SchedulingContext.preemption`. "nodes": what upstream's DefaultPreemption decides for cpu, memory, ports and
counts; devices of victims do not come free in it. "devices": beyond upstream, victims are chosen for their devices too,
and only as wholes: all users of a shared claim and all members of a gang, or none of them.

The cost of a set of victims, smaller first, is upstream's order of nodes (pickOneNodeForPreemption): disruption
budgets violated, the highest priority, the sum of priorities, how many, how long the most important one has run. In
"devices" the set of least cost is found by going through sets in the order of their cost, up to TRIES_MAX of them;
beyond that the best set that reprieving found. Nobody is displaced where the pod would still not fit. Never writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dragoman.api.core import Pod, PodDisruptionBudget
from dragoman.api.meta import NamespacedName, format_time, parse_time
from dragoman.api.resource import ResourceClaim, ResourceClaimStatus
from dragoman.effects import Delete, Effect, Emit, Patch
from dragoman.schedule.claims import claims_of
from dragoman.schedule.decision import Preemption, Refused, Victim, pod_ref
from dragoman.schedule.placement import PlacementCache, ScheduleResult, find_node
from dragoman.schedule.pod_info import pod_info_of
from dragoman.schedule.refusal import (
    AddedAffinityMismatch,
    ClaimNotAvailableOnNode,
    NodeAffinityMismatch,
    NodeUnschedulable,
    PodAffinity,
    UnknownResource,
    UntoleratedTaint,
    VolumeAffinityMismatch,
    VolumeNotAvailable,
    VolumeZone,
)
from dragoman.schedule.single import by_resource_of
from dragoman.schedule.units import SchedulingContext, priority_of
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply_all, keys_of
from dragoman.snapshot.selection import matches
from dragoman.snapshot.usage import claim_names, group_of, is_finished

NODES_MAX = 100
"""Candidate nodes that are compared (upstream's minCandidateNodesAbsolute)."""
TRIES_MAX = 500
"""Sets of victims that are tried for devices before the best known one is taken."""
NEVER = "Never"
_NOT_HELPED = (
    NodeUnschedulable,
    UntoleratedTaint,
    NodeAffinityMismatch,
    AddedAffinityMismatch,
    UnknownResource,
    PodAffinity,
    VolumeAffinityMismatch,
    VolumeNotAvailable,
    VolumeZone,
    ClaimNotAvailableOnNode,
)
"""Reasons that no pod's leaving changes."""
_SHIFT = 2**31
"""Makes priorities positive, so that more victims always cost more."""

PreemptionCost = tuple[int, int, int, int, int]
"""Budgets violated, highest priority, sum of shifted priorities, pods, minus the start of the most important pods."""


class VictimGroup(msgspec.Struct, frozen=True, eq=False):
    """Pods that are displaced together, sorted by key; distinguished by identity."""

    pods: tuple[Pod, ...]


class VictimChoice(NamedTuple):
    """Victims on one node, and what they cost."""

    cost: PreemptionCost
    node: str
    groups: tuple[VictimGroup, ...]


def preempt(
    snapshot: Snapshot, pod: Pod, refused: Refused, now: datetime, context: SchedulingContext
) -> Preemption | None:
    """The victims whose leaving lets the pod in, None where there are none or it may not, or must wait for earlier
    ones to end."""
    if context.preemption == "off" or refused.reasons or pod.spec.preemption_policy == NEVER:
        return None
    priority = priority_of(snapshot, pod)
    if _is_awaited(snapshot, pod, priority):
        return None
    search = _Search(snapshot, pod, priority, now, context)
    names = [name for some in refused.nodes if not _is_hopeless(some.reasons) for name in some.nodes]
    candidates: list[tuple[str, tuple[VictimGroup, ...]]] = []
    for name in sorted(names):
        groups = search.groups_on(name)
        if groups and search.fits(name, groups):
            candidates.append((name, groups))
            if len(candidates) >= NODES_MAX:
                break
    if not candidates:
        return None
    best = min((search.reprieved(name, groups) for name, groups in candidates), key=lambda one: one[:2])
    if context.preemption == "devices":
        best = search.least(candidates, best)
    victims = sorted(
        (one for group in best.groups for one in group.pods), key=lambda one: search.importance(VictimGroup((one,)))
    )
    return Preemption(
        best.node,
        tuple(Victim(_key(one), one.metadata.uid, one.spec.node_name, priority_of(snapshot, one)) for one in victims),
        best.cost[0],
    )


def effects_of(snapshot: Snapshot, pod: Pod, found: Preemption, now: datetime) -> tuple[Effect, ...]:
    """The writes: the nominated node, then for each victim its condition, its graceful deletion and an event."""
    component = pod.spec.scheduler_name
    effects: list[Effect] = [
        Patch(pod_ref(pod), {"status": {"nominatedNodeName": found.node}}, type="strategic", subresource="status")
    ]
    for victim in found.victims:
        one = snapshot.pods[victim.pod]
        if one.metadata.deletion_timestamp is not None:
            continue
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{component}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": format_time(now),
        }
        ref = pod_ref(one)
        effects.append(Patch(ref, {"status": {"conditions": [condition]}}, type="strategic", subresource="status"))
        effects.append(Delete(ref))
        text = f"Preempted by pod {pod.metadata.uid} on node {found.node}"
        effects.append(Emit(ref, "Normal", "Preempted", text, component, "Preempting"))
    return tuple(effects)


def without(snapshot: Snapshot, pods: Sequence[Pod], *, devices: bool) -> Snapshot:
    """The cluster once these pods are gone; with `devices` also the claims that nobody else holds are free."""
    changes: list[Change] = [Gone("Pod", *_key(pod)) for pod in pods]
    if devices:
        uids = {pod.metadata.uid for pod in pods}
        names = dict.fromkeys((pod.metadata.namespace, name) for pod in pods for name in claim_names(pod))
        for key in names:
            claim = snapshot.claims.get(key)
            if claim is not None and claim.status.allocation is not None and _held_by(snapshot, claim) <= uids:
                changes.append(Put("ResourceClaim", msgspec.structs.replace(claim, status=ResourceClaimStatus())))
    return apply_all(snapshot, changes)


def _held_by(snapshot: Snapshot, claim: ResourceClaim) -> set[str]:
    """Uids of the pods for which a claim is reserved; something that is no pod's uid for other consumers."""
    uids: set[str] = set()
    for entry in claim.status.reserved_for:
        if entry.resource == "podgroups":
            members = keys_of(snapshot.pods_by_group, (claim.metadata.namespace, entry.name))
            uids |= {snapshot.pods[key].metadata.uid for key in members if _runs(snapshot.pods[key])}
        else:
            uids.add(entry.uid)
    return uids


class _Search:
    """One question: who must leave for this pod?"""

    def __init__(self, snapshot: Snapshot, pod: Pod, priority: int, now: datetime, context: SchedulingContext) -> None:
        self.snapshot = snapshot
        self.pod = pod
        self.priority = priority
        self.context = context
        self.devices = context.preemption == "devices"
        self._now = int(now.timestamp())
        self._by_resource = by_resource_of(snapshot, context)
        self._budgets = [b for _, b in sorted(snapshot.budgets.items()) if b.spec.selector is not None]
        self._starts: dict[str, int] = {}

    def groups_on(self, node: str) -> tuple[VictimGroup, ...]:
        """What may be displaced there, in order of names."""
        found: dict[tuple[NamespacedName, ...], VictimGroup] = {}
        for key in keys_of(self.snapshot.pods_by_node, node):
            pod = self.snapshot.pods[key]
            if not _runs(pod) or any(key in known for known in found):
                continue
            members = self._together(pod) if self.devices else (pod,)
            if members and all(priority_of(self.snapshot, one) < self.priority for one in members):
                found[tuple(_key(one) for one in members)] = VictimGroup(members)
        return tuple(found.values())

    def _together(self, pod: Pod) -> tuple[Pod, ...]:
        """The pod with everyone that shares a claim or a gang with it; () where that cannot be displaced."""
        snapshot = self.snapshot
        seen: dict[NamespacedName, Pod] = {_key(pod): pod}
        todo = [pod]
        while todo:
            one = todo.pop()
            namespace = one.metadata.namespace
            near: list[NamespacedName] = []
            for name in claim_names(one):
                users = keys_of(snapshot.pods_by_claim, (namespace, name))
                if any(priority_of(snapshot, snapshot.pods[key]) >= self.priority for key in users):
                    return ()  # the claim is a higher pod's too, or the very one that comes
                claim = snapshot.claims.get((namespace, name))
                consumers = claim.status.reserved_for if claim is not None else ()
                if any(consumer.resource not in ("pods", "podgroups") for consumer in consumers):
                    return ()
                near += users
            group = group_of(one)
            if group:
                near += keys_of(snapshot.pods_by_group, (namespace, group))
            for key in near:
                other = snapshot.pods[key]
                if key not in seen and _runs(other):
                    seen[key] = other
                    todo.append(other)
        return tuple(seen[key] for key in sorted(seen))

    def fits(self, node: str, groups: Iterable[VictimGroup]) -> bool:
        """Whether the pod can run on the node once these are gone."""
        gone = [pod for group in groups for pod in group.pods]
        snapshot = without(self.snapshot, gone, devices=self.devices)
        claims = claims_of(snapshot, self.pod, self.context.in_flight)
        if not isinstance(claims, tuple):
            return False
        info = pod_info_of(snapshot, self.pod, claims, self._by_resource, self.context.profile)
        if info.pinned is not None and node not in info.pinned:
            return False
        info = msgspec.structs.replace(info, pinned=(node,))
        found = find_node(
            snapshot, info, self.context.options, self._by_resource, PlacementCache(), self.context.new_id
        )
        return isinstance(found, ScheduleResult)

    def reprieved(self, node: str, groups: tuple[VictimGroup, ...]) -> VictimChoice:
        """Upstream's victims of a node: all leave, then stay again who can, the most important first, and of all those
        first who is protected by a budget."""
        ordered = sorted(groups, key=self.importance)
        protected = self._violating(ordered)
        victims = list(ordered)
        for group in [*(g for g in ordered if g in protected), *(g for g in ordered if g not in protected)]:
            rest = [other for other in victims if other is not group]
            if self.fits(node, rest):
                victims = rest
        violations = sum(protected.get(group, 0) for group in victims)
        return VictimChoice(self.cost(victims, violations), node, tuple(victims))

    def least(self, candidates: Sequence[tuple[str, tuple[VictimGroup, ...]]], best: VictimChoice) -> VictimChoice:
        """The set of least cost: sets in the order of their cost, of which every larger one costs more."""
        best = VictimChoice(self.cost(best.groups), best.node, best.groups)
        heap: list[tuple[PreemptionCost, str, tuple[int, ...]]] = []
        groups = dict(candidates)
        for name, some in candidates:
            for index, group in enumerate(some):
                heapq.heappush(heap, (self.cost([group]), name, (index,)))
        for _ in range(TRIES_MAX):
            if not heap or heap[0][0] >= best.cost:
                return best
            cost, name, chosen = heapq.heappop(heap)
            some = groups[name]
            members = tuple(some[index] for index in chosen)
            if self.fits(name, members):
                return VictimChoice(cost, name, members)
            for index in range(chosen[-1] + 1, len(some)):
                heapq.heappush(heap, (self.cost([*members, some[index]]), name, (*chosen, index)))
        return best

    def cost(self, groups: Sequence[VictimGroup], violations: int | None = None) -> PreemptionCost:
        """What these victims cost; violations: of budgets, counted here unless given."""
        pods = [pod for group in groups for pod in group.pods]
        if not pods:
            return (0, 0, 0, 0, 0)
        if violations is None:
            violations = sum(self._violating(sorted(groups, key=self.importance)).values())
        priorities = [priority_of(self.snapshot, pod) for pod in pods]
        highest = max(priorities)
        start = min(self._start(p) for p, rank in zip(pods, priorities, strict=True) if rank == highest)
        return violations, highest, sum(priority + _SHIFT for priority in priorities), len(pods), -start

    def importance(self, group: VictimGroup) -> tuple[int, int, int, tuple[NamespacedName, ...]]:
        """Sorts groups, the most important first: priority, then gangs by size, then who has run longer."""
        highest = max(priority_of(self.snapshot, pod) for pod in group.pods)
        return -highest, -len(group.pods), min(map(self._start, group.pods)), tuple(map(_key, group.pods))

    def _start(self, pod: Pod) -> int:
        known = self._starts.get(pod.metadata.uid)
        if known is None:
            text = pod.status.start_time
            try:
                known = int(parse_time(text).timestamp()) if text else self._now
            except ValueError:
                known = self._now
            self._starts[pod.metadata.uid] = known
        return known

    def _violating(self, groups: Sequence[VictimGroup]) -> dict[VictimGroup, int]:
        """Groups whose leaving violates a budget -> how many of their pods do, counted in this order."""
        left: dict[int, int] = {}
        found: dict[VictimGroup, int] = {}
        for group in groups:
            count = 0
            for pod in group.pods:
                broken = False
                for index, budget in enumerate(self._budgets):
                    if not _protects(budget, pod):
                        continue
                    left[index] = left.get(index, int((budget.status or {}).get("disruptionsAllowed") or 0)) - 1
                    broken = broken or left[index] < 0
                count += broken
            if count:
                found[group] = count
        return found


def _protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    if budget.metadata.namespace != pod.metadata.namespace or pod.metadata.name in (
        (budget.status or {}).get("disruptedPods") or {}
    ):
        return False
    return matches(budget.spec.selector, pod.metadata.labels)


def _is_hopeless(reasons: Iterable[object]) -> bool:
    return any(isinstance(reason, _NOT_HELPED) for reason in reasons)


def _is_awaited(snapshot: Snapshot, pod: Pod, priority: int) -> bool:
    """Whether victims of an earlier decision are still ending on the nominated node."""
    node = pod.status.nominated_node_name
    return bool(node) and any(
        snapshot.pods[key].metadata.deletion_timestamp is not None
        and _runs(snapshot.pods[key])
        and priority_of(snapshot, snapshot.pods[key]) < priority
        for key in keys_of(snapshot.pods_by_node, node)
    )


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not is_finished(pod)


def _key(pod: Pod) -> NamespacedName:
    return pod.metadata.namespace, pod.metadata.name
