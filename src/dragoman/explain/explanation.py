"""Why did a decision end as it did? A verdict with all facts, the contradiction and hints, as one value.

The scheduler's answer stays as it is; this module asks again on the same snapshot for what the hot path did not keep.
Bounded by the caller's deadline, shared by contradiction and hints. Never makes sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dragoman.allocate.refusal import InsufficientDevices, Refusal
from dragoman.explain.candidates import RefusingNode
from dragoman.explain.closest import claims_on, diagnose_on, nearest_first
from dragoman.explain.conflict import Conflict, Expired, conflict_on
from dragoman.explain.hints import Hints, Question, hints_for
from dragoman.explain.state import NoResourceSlices, absent_drivers
from dragoman.explain.user_names import user_names
from dragoman.schedule.decision import NodesRefused
from dragoman.schedule.refusal import ReasonBase
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Snapshot
from dragoman.whatif.decide import DecidedUnit, PodPrediction

EXPLAINED_GROUPS = 16
"""Groups of nodes of which all facts are reported, nearest to a yes first."""
PLACES = 4
"""Nodes that hints are looked for on."""


class Explanation(msgspec.Struct, frozen=True, eq=False):
    """A verdict explained. nodes: those of the verdict, with all facts about the nearest. absent: drivers that
    publish nothing for the first node of a group. names: what the user wrote for generated request names."""

    verdict: PodPrediction
    nodes: tuple[NodesRefused, ...]
    absent: tuple[NoResourceSlices, ...] = ()
    conflict: Conflict | None = None
    hints: Hints = Hints()
    names: dict[str, str] = {}


def explain_unit(
    step: DecidedUnit, now: datetime, context: SchedulingContext, over: Expired, *, brief: bool = False
) -> tuple[Explanation, ...]:
    """Every pod of a unit explained. brief: as decided, nothing more."""
    if brief:
        return tuple(Explanation(verdict, verdict.nodes, names=_names(step, verdict)) for verdict in step.verdicts)
    return tuple(explain_pod(step, verdict, now, context, over) for verdict in step.verdicts)


def explain_pod(
    step: DecidedUnit, verdict: PodPrediction, now: datetime, context: SchedulingContext, over: Expired
) -> Explanation:
    """The verdict with its facts; contradiction and hints as far as time allows."""
    refused = verdict.refused
    if verdict.undecided is not None:
        return Explanation(verdict, verdict.nodes, names=_names(step, verdict))
    ordered = nearest_first(verdict.nodes)
    spread = _spread(ordered)
    reported = {some.nodes: some for some in (*ordered[:EXPLAINED_GROUPS], *spread)}
    diagnoses = {nodes: _diagnosis(step.before, verdict, some, context) for nodes, some in reported.items()}
    nodes = tuple(_reported(some, diagnoses.get(some.nodes, ())) for some in verdict.nodes)
    absent = tuple(fact for some in ordered[:EXPLAINED_GROUPS] for fact in _absent(step.before, some))
    if refused is None:
        return Explanation(verdict, nodes, absent, names=_names(step, verdict))
    pod = step.before.pods[verdict.pod]
    places = tuple(RefusingNode(s.nodes[0], s.reasons, diagnoses[s.nodes]) for s in spread)
    conflict = None
    for place in places[:1]:
        claims = claims_on(step.before, pod, place.node, context)
        if claims:
            conflict = conflict_on(step.before, claims, place.node, context.options, place.diagnosis, over)
    question = Question(step.before, step.unit, verdict.pod, refused.reasons, places, now, context)
    return Explanation(verdict, nodes, absent, conflict, hints_for(question, over), user_names(pod.spec))


def _names(step: DecidedUnit, verdict: PodPrediction) -> dict[str, str]:
    pod = step.before.pods.get(verdict.pod)
    return user_names(pod.spec) if pod is not None else {}


def _spread(ordered: Sequence[NodesRefused]) -> list[NodesRefused]:
    """The nearest groups, first one of each kind of reasons, so that another kind is seen too."""
    kinds: dict[tuple[str, ...], NodesRefused] = {}
    for some in ordered:
        kinds.setdefault(tuple(type(reason).__name__ for reason in some.reasons), some)
    first = list(kinds.values())
    rest = [some for some in ordered[:EXPLAINED_GROUPS] if all(some is not other for other in first)]
    return [*first, *rest][:PLACES]


def _diagnosis(
    snapshot: Snapshot, verdict: PodPrediction, some: NodesRefused, context: SchedulingContext
) -> tuple[Refusal, ...]:
    if any(isinstance(reason, ReasonBase) for reason in some.reasons):
        return ()
    return diagnose_on(snapshot, snapshot.pods[verdict.pod], some.nodes[0], context)


def _absent(snapshot: Snapshot, some: NodesRefused) -> tuple[NoResourceSlices, ...]:
    classes = [r.class_name for r in some.reasons if isinstance(r, InsufficientDevices) and not r.dropped.matched]
    return absent_drivers(snapshot, some.nodes[0], dict.fromkeys(classes)) if classes else ()


def _reported(some: NodesRefused, diagnosis: Sequence[Refusal]) -> NodesRefused:
    more = [fact for fact in diagnosis if fact not in some.reasons]
    return msgspec.structs.replace(some, reasons=(*some.reasons, *more)) if more else some
