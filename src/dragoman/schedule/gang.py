"""Does a gang fit as a whole? Pods one after the other on a trial snapshot; where that fails, devices chosen again.

A gang is placed with at least as many pods as it wants, or not at all. Nodes chosen for earlier pods stay; their
devices may change so that a later pod fits. Never binds or writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dragoman.allocate.allocator import Allocation, Ask, allocate
from dragoman.allocate.match import Matcher
from dragoman.allocate.refusal import Refusal
from dragoman.api.core import Pod
from dragoman.api.resource import AllocationResult, ResourceClaim
from dragoman.schedule.claims import claims_of, group_name
from dragoman.schedule.placement import NoFit, PlacementCache, ScheduleResult, UndecidedFit, feasible_nodes
from dragoman.schedule.pod_info import PodInfo, pod_info_of
from dragoman.schedule.refusal import PodGroupDoesNotFit, PodGroupNotFound, PodGroupTooSmall
from dragoman.schedule.single import PodOutcome, by_resource_of, place_pod, placed, refuse, undecided
from dragoman.schedule.units import SchedulingContext, SchedulingUnit, gated, is_waiting
from dragoman.snapshot.change import Snapshot, apply_all

NODES_TRIED = 16
"""For one pod, when the devices of the pods before it are chosen again."""


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
    trial = _Trial(snapshot, context.memory.matcher)
    for pod in ready:
        outcome = place_pod(trial.snapshot, pod, now, context, trial.memory)
        together = _together(snapshot, trial, pod, now, context) if outcome.placement is None else None
        if together is not None:
            trial = together
        else:
            trial.add(outcome)
    fitted = len(trial.places())
    return trial.outcomes if fitted >= unit.wanted else _refuse_all(snapshot, unit, trial.outcomes, fitted)


def _refuse_all(
    snapshot: Snapshot, unit: SchedulingUnit, outcomes: Sequence[PodOutcome], fitted: int
) -> list[PodOutcome]:
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
    return pod_info_of(snapshot, pod, claims, by_resource_of(snapshot, context), context.profile)


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
