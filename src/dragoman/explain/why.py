"""Why did a decision end as it did? A verdict with all facts, the contradiction and hints, as one value.

The scheduler's answer stays as it is; this module asks again on the same snapshot for what the hot path did not keep.
Bounded by the caller's deadline, shared by contradiction and hints. Never makes sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from dragoman.allocate.refusal import Refusal, TooFew
from dragoman.explain.asking import claims_on, nearest_first, story_on
from dragoman.explain.candidates import Place
from dragoman.explain.conflict import Conflict, conflict_on
from dragoman.explain.hints import Hints, Question, hints_for
from dragoman.explain.state import NoSlices, absent_drivers
from dragoman.schedule.decision import NodesRefused
from dragoman.schedule.refusal import Reason
from dragoman.schedule.units import Context
from dragoman.snapshot.change import Snapshot
from dragoman.whatif.decide import Step, Verdict

Over: TypeAlias = Callable[[], bool]

TOLD_GROUPS = 16
"""Groups of nodes of which all facts are told, nearest to a yes first."""
PLACES = 4
"""Nodes that hints are looked for on."""


class Answer(msgspec.Struct, frozen=True, eq=False):
    """A verdict explained. nodes: those of the verdict, with all facts about the nearest. absent: drivers that
    publish nothing for the first node of a group."""

    verdict: Verdict
    nodes: tuple[NodesRefused, ...]
    absent: tuple[NoSlices, ...] = ()
    conflict: Conflict | None = None
    hints: Hints = Hints()


def answers_for(step: Step, now: datetime, context: Context, over: Over, *, brief: bool = False) -> tuple[Answer, ...]:
    """Every pod of a unit explained. brief: as decided, nothing more."""
    if brief:
        return tuple(Answer(verdict, verdict.nodes) for verdict in step.verdicts)
    return tuple(answer_for(step, verdict, now, context, over) for verdict in step.verdicts)


def answer_for(step: Step, verdict: Verdict, now: datetime, context: Context, over: Over) -> Answer:
    """The verdict with its facts; contradiction and hints as far as time allows."""
    refused = verdict.refused
    if refused is not None and refused.gave_up:
        return Answer(verdict, verdict.nodes)
    ordered = nearest_first(verdict.nodes)
    spread = _spread(ordered)
    told = {some.nodes: some for some in (*ordered[:TOLD_GROUPS], *spread)}
    stories = {nodes: _story(step.before, verdict, some, context) for nodes, some in told.items()}
    nodes = tuple(_told(some, stories.get(some.nodes, ())) for some in verdict.nodes)
    absent = tuple(fact for some in ordered[:TOLD_GROUPS] for fact in _absent(step.before, some))
    if refused is None:
        return Answer(verdict, nodes, absent)
    pod = step.before.pods[verdict.pod]
    places = tuple(Place(s.nodes[0], s.reasons, stories[s.nodes]) for s in spread)
    conflict = None
    for place in places[:1]:
        claims = claims_on(step.before, pod, place.node, context)
        if claims:
            conflict = conflict_on(step.before, claims, place.node, context.options, place.story, over)
    question = Question(step.before, step.unit, verdict.pod, refused.reasons, places, now, context)
    return Answer(verdict, nodes, absent, conflict, hints_for(question, over))


def _spread(ordered: Sequence[NodesRefused]) -> list[NodesRefused]:
    """The nearest groups, first one of each kind of reasons, so that another kind is seen too."""
    kinds: dict[tuple[str, ...], NodesRefused] = {}
    for some in ordered:
        kinds.setdefault(tuple(type(reason).__name__ for reason in some.reasons), some)
    first = list(kinds.values())
    rest = [some for some in ordered[:TOLD_GROUPS] if all(some is not other for other in first)]
    return [*first, *rest][:PLACES]


def _story(snapshot: Snapshot, verdict: Verdict, some: NodesRefused, context: Context) -> tuple[Refusal, ...]:
    if any(isinstance(reason, Reason) for reason in some.reasons):
        return ()
    return story_on(snapshot, snapshot.pods[verdict.pod], some.nodes[0], context)


def _absent(snapshot: Snapshot, some: NodesRefused) -> tuple[NoSlices, ...]:
    classes = [r.class_name for r in some.reasons if isinstance(r, TooFew) and not r.dropped.matched]
    return absent_drivers(snapshot, some.nodes[0], dict.fromkeys(classes)) if classes else ()


def _told(some: NodesRefused, story: Sequence[Refusal]) -> NodesRefused:
    more = [fact for fact in story if fact not in some.reasons]
    return msgspec.structs.replace(some, reasons=(*some.reasons, *more)) if more else some
