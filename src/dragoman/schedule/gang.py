"""Does a gang fit as a whole? Pods one after the other on a trial snapshot; where that fails, devices chosen again.

A gang is placed with at least as many pods as it wants, or not at all. Nodes chosen for earlier pods stay; their
devices may change so that a later pod fits. Never binds or writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from dragoman.allocate.allocator import Allocation, Ask, allocate
from dragoman.allocate.match import Matcher
from dragoman.allocate.refusal import Refusal
from dragoman.api import codec
from dragoman.api.core import Pod
from dragoman.api.resource import AllocationResult, ResourceClaim
from dragoman.schedule.claims import claims_of, group_name
from dragoman.schedule.placement import NoFit, PlacementCache, ScheduleResult, UndecidedFit, feasible_nodes
from dragoman.schedule.pod_info import PodInfo, pod_info_of
from dragoman.schedule.queue import Topic
from dragoman.schedule.refusal import (
    DomainCount,
    PodGroupDoesNotFit,
    PodGroupNotFound,
    PodGroupTooSmall,
    PodGroupTopologyMismatch,
    PodReason,
)
from dragoman.schedule.single import (
    PodOutcome,
    by_resource_of,
    place_pod,
    placed,
    refuse,
    refusing_nodes,
    undecided,
)
from dragoman.schedule.topology import GangTopology, domains, topology_of
from dragoman.schedule.units import SchedulingContext, SchedulingUnit, gated, is_waiting
from dragoman.schedule.wakeup import LABELS
from dragoman.snapshot.change import Snapshot, apply_all

NODES_TRIED = 16
"""For one pod, when the devices of the pods before it are chosen again, or their nodes."""
BACKTRACK_STEPS = 200
"""Places that are tried for pods of a gang that does not fit one after the other."""


class _Trial:
    """The gang's pods so far, each with its outcome, on a snapshot that shows them."""

    def __init__(self, snapshot: Snapshot, matcher: Matcher) -> None:
        self.snapshot = snapshot
        self.memory = PlacementCache(matcher)
        self.outcomes: list[PodOutcome] = []

    def add(self, outcome: PodOutcome) -> None:
        self.outcomes.append(outcome)
        if outcome.placement is not None:
            after = apply_all(self.snapshot, outcome.assumed)
            self.snapshot = after

    def copy(self) -> _Trial:
        """The same pods so far, to go on from."""
        made = _Trial(self.snapshot, self.memory.matcher)
        made.memory, made.outcomes = self.memory, list(self.outcomes)
        return made

    def places(self) -> list[tuple[Pod, str]]:
        return [(o.pod, o.placement.node) for o in self.outcomes if o.placement is not None]


def place_gang(snapshot: Snapshot, unit: SchedulingUnit, now: datetime, context: SchedulingContext) -> list[PodOutcome]:
    """An outcome for each pod: at least unit.wanted of them placed, or all refused."""
    _, namespace, group = unit.key
    pods = [snapshot.pods[key] for key in unit.pods if key in snapshot.pods]
    if (namespace, group) not in snapshot.pod_groups and any(group_name(pod) == group for pod in pods):
        return [refuse(snapshot, pod, NoFit((PodGroupNotFound(group),))) for pod in pods]
    ready = [pod for pod in pods if is_waiting(pod) and not gated(pod)]
    if len(ready) < unit.wanted:
        no = NoFit((PodGroupTooSmall(group, len(ready), unit.wanted),))
        return [refuse(snapshot, pod, no) for pod in pods]
    topology = topology_of(snapshot, namespace, group, ready, context.gates)
    if topology.required or topology.preferred:
        return _in_one_domain(snapshot, unit, ready, topology, now, context)
    trial = _placed(snapshot, ready, unit.wanted, now, context)
    fitted = len(trial.places())
    return trial.outcomes if fitted >= unit.wanted else _refuse_all(snapshot, unit, trial.outcomes, fitted)


def _in_one_domain(
    snapshot: Snapshot,
    unit: SchedulingUnit,
    ready: Sequence[Pod],
    topology: GangTopology,
    now: datetime,
    context: SchedulingContext,
) -> list[PodOutcome]:
    """In the smallest domain that takes all pods, else in the one that takes most, at the first level that has one."""
    _, namespace, group = unit.key
    refusing = refusing_nodes(snapshot, ready[0], context)
    feasible = set(snapshot.nodes).difference(name for some in refusing for name in some.nodes)
    best: _Trial | None = None
    counts: list[DomainCount] = []
    topics: set[Topic] = {LABELS}
    for level in topology.levels():
        if not level:
            best = _placed(snapshot, ready, unit.wanted, now, context)
            break
        tried = []
        counts = []
        for domain in domains(snapshot, level, namespace, group, feasible, topology.required):
            inside = msgspec.structs.replace(context, within=frozenset(domain.nodes))
            trial = _placed(snapshot, ready, unit.wanted, now, inside)
            topics |= {topic for outcome in trial.outcomes for topic in outcome.topics}
            tried.append(trial)
            counts.append(DomainCount(domain.name, len(trial.places())))
            if len(trial.places()) == len(ready):
                break
        best = max(tried, key=lambda trial: len(trial.places()), default=None)
        if best is not None and len(best.places()) >= unit.wanted:
            return best.outcomes
    if best is None:
        no = NoFit((PodGroupTopologyMismatch(group, topology.required, unit.wanted, ()),))
        outcomes = [refuse(snapshot, pod, no) for pod in ready]
    else:
        fitted = len(best.places())
        if fitted >= unit.wanted:
            return best.outcomes
        reason = None
        if topology.required:
            most = tuple(sorted(counts, key=lambda count: (-count.pods, count.domain)))
            reason = PodGroupTopologyMismatch(group, topology.required, unit.wanted, most)
        outcomes = _refuse_all(snapshot, unit, best.outcomes, fitted, reason)
    return [msgspec.structs.replace(outcome, topics=outcome.topics | topics) for outcome in outcomes]


def _placed(snapshot: Snapshot, ready: Sequence[Pod], wanted: int, now: datetime, context: SchedulingContext) -> _Trial:
    """As many of the pods as fit one after the other; where that is too few, other nodes for earlier pods are tried."""
    trial = _one_by_one(snapshot, ready, now, context)
    if len(trial.places()) >= wanted:
        return trial
    sized = [(pod, _size(_pod_info(snapshot, pod, context))) for pod in ready]
    if len({size for _, size in sized}) == 1 or any(outcome.undecided is not None for outcome in trial.outcomes):
        return trial  # equal pods fill the nodes equally well in any order
    # The smallest that suffice, largest first; the others where there is room.
    sized.sort(key=lambda entry: entry[1])
    first = [pod for pod, _ in reversed(sized[:wanted])]
    search = _Backtracking(snapshot, now, context)
    found = search.extended(_Trial(snapshot, context.memory.matcher), first)
    if found is None:
        return trial
    found = _one_by_one(snapshot, [pod for pod, _ in sized[wanted:]], now, context, found)
    place = {pod.metadata.uid or pod.metadata.name: index for index, pod in enumerate(ready)}
    found.outcomes.sort(key=lambda outcome: place[outcome.pod.metadata.uid or outcome.pod.metadata.name])
    return found


_Size: TypeAlias = tuple[int, tuple[tuple[str, int], ...], bytes]


def _size(info: PodInfo | None) -> _Size:
    """Larger for pods that are harder to place: devices first, then amounts; equal for equal pods."""
    if info is None:
        return 0, (), b""
    devices = 0
    for claim in info.to_allocate:
        for wanted in claim.spec.devices.requests:
            devices += wanted.exactly.count or 1 if wanted.exactly is not None else 1
    specs = codec.to_bytes([claim.spec for claim in info.to_allocate])
    return devices, tuple(sorted(info.needs.items())), info.shape + specs


class _Backtracking:
    """Nodes for pods in their order, going back on choices; gives up after BACKTRACK_STEPS."""

    def __init__(self, snapshot: Snapshot, now: datetime, context: SchedulingContext) -> None:
        self.snapshot = snapshot
        self.now = now
        self.context = context
        self.steps = BACKTRACK_STEPS

    def extended(self, trial: _Trial, pods: Sequence[Pod]) -> _Trial | None:
        """The trial with all these pods placed, None if none was found."""
        if not pods:
            return trial
        pod, rest = pods[0], pods[1:]
        info = _pod_info(trial.snapshot, pod, self.context)
        if info is None:
            return None
        for node in feasible_nodes(trial.snapshot, info, trial.memory, (), NODES_TRIED):
            if self.steps <= 0:
                return None
            self.steps -= 1
            there = msgspec.structs.replace(self.context, within=frozenset((node,)))
            outcome = place_pod(trial.snapshot, pod, self.now, there, trial.memory)
            if outcome.placement is not None:
                further = trial.copy()
                further.add(outcome)
            else:
                together = _together(self.snapshot, trial, pod, self.now, there)
                if together is None:
                    continue
                further = together
            found = self.extended(further, rest)
            if found is not None:
                return found
        return None


def _one_by_one(
    snapshot: Snapshot,
    ready: Sequence[Pod],
    now: datetime,
    context: SchedulingContext,
    trial: _Trial | None = None,
) -> _Trial:
    """Each pod at its best place after those before it, and after those of the trial."""
    trial = trial or _Trial(snapshot, context.memory.matcher)
    for pod in ready:
        outcome = place_pod(trial.snapshot, pod, now, context, trial.memory)
        together = _together(snapshot, trial, pod, now, context) if outcome.placement is None else None
        if together is not None:
            trial = together
        else:
            trial.add(outcome)
    return trial


def _refuse_all(
    snapshot: Snapshot,
    unit: SchedulingUnit,
    outcomes: Sequence[PodOutcome],
    fitted: int,
    reason: PodReason | None = None,
) -> list[PodOutcome]:
    if reason is None:
        without = next(outcome for outcome in outcomes if outcome.placement is None)
        reason = PodGroupDoesNotFit(unit.key[2], fitted, unit.wanted, without.pod.metadata.name)
    stopped = tuple(some for one in outcomes if one.undecided is not None for some in one.undecided.undecided)
    refused = []
    for outcome in outcomes:
        if stopped:  # of one pod is enough: with a place for it the whole gang may fit
            own = outcome.undecided
            fit = UndecidedFit(own.undecided, own.nodes) if own is not None else UndecidedFit(stopped)
            again = undecided(snapshot, outcome.pod, fit, (reason,))
        elif outcome.refused is not None:
            no = NoFit((reason, *outcome.refused.reasons), outcome.refused.nodes)
            again = refuse(snapshot, outcome.pod, no)
        else:
            again = refuse(snapshot, outcome.pod, NoFit((reason,)))
        refused.append(msgspec.structs.replace(again, topics=again.topics | outcome.topics))
    return refused


# ---- devices of several pods chosen together


def _together(snapshot: Snapshot, trial: _Trial, pod: Pod, now: datetime, context: SchedulingContext) -> _Trial | None:
    """A trial with one more pod, the devices of all chosen again; None where no node helps."""
    before = trial.places()
    pod_info = _pod_info(trial.snapshot, pod, context)
    pod_infos = [_pod_info(snapshot, one, context) for one, _ in before]
    if (
        not before
        or pod_info is None
        or pod_info.extended_resources
        or any(w is None or w.extended_resources for w in pod_infos)
    ):
        return None
    asks = [Ask(_open(snapshot, one, context), node) for one, node in before]
    used = [node for _, node in before]
    for node in feasible_nodes(trial.snapshot, pod_info, trial.memory, list(dict.fromkeys(used)), NODES_TRIED):
        every = [*asks, Ask(_open(snapshot, pod, context), node)]
        matcher = context.memory.matcher
        outcome = allocate(snapshot, every, context.options, share_id=context.new_id, matcher=matcher)
        if isinstance(outcome, Allocation):
            return _rebuilt(snapshot, [*before, (pod, node)], _by_claim(every, outcome), outcome.warnings, now, context)
    return None


def _pod_info(snapshot: Snapshot, pod: Pod, context: SchedulingContext) -> PodInfo | None:
    claims = claims_of(snapshot, pod, context.in_flight)
    if not isinstance(claims, tuple):
        return None
    info = pod_info_of(snapshot, pod, claims, by_resource_of(snapshot, context), context.profile)
    return msgspec.structs.replace(info, within=context.within) if context.within is not None else info


def _open(snapshot: Snapshot, pod: Pod, context: SchedulingContext) -> tuple[ResourceClaim, ...]:
    """The claims to allocate, before anything was chosen for the gang."""
    pod_info = _pod_info(snapshot, pod, context)
    return pod_info.to_allocate if pod_info is not None else ()


def _by_claim(asks: Sequence[Ask], outcome: Allocation) -> dict[str, AllocationResult]:
    found: dict[str, AllocationResult] = {}
    for ask, results in zip(asks, outcome.results, strict=True):
        for claim, result in zip(ask.claims, results, strict=True):
            found.setdefault(claim.metadata.name, result)
    return found


def _rebuilt(
    snapshot: Snapshot,
    places: Sequence[tuple[Pod, str]],
    results: dict[str, AllocationResult],
    warnings: Sequence[Refusal],
    now: datetime,
    context: SchedulingContext,
) -> _Trial | None:
    trial = _Trial(snapshot, context.memory.matcher)
    for pod, node in places:
        pod_info = _pod_info(trial.snapshot, pod, context)
        if pod_info is None:
            return None
        chosen = tuple(results[claim.metadata.name] for claim in pod_info.to_allocate)
        volumes = pod_info.volumes.choose(trial.snapshot.nodes[node]) if pod_info.volumes is not None else ()
        if not isinstance(volumes, tuple):
            return None
        names = {f"{claim.metadata.namespace}/{claim.metadata.name}" for claim in pod_info.to_allocate}
        mine = tuple(fact for fact in warnings if getattr(fact, "claim", "") in names)
        trial.add(placed(pod_info, ScheduleResult(node, chosen, warnings=mine, volumes=volumes), now, context))
    return trial
