"""What is the smallest change with which this pod would fit? Only changes with which it was seen to fit.

Candidates come from `explain.candidates`; each is applied to the snapshot and decided by the scheduler itself before
it is given. Cheapest first, at most a few of a kind, within the caller's time; what was not tried is counted. Never
writes and never makes sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from dragoman.api.meta import NamespacedName
from dragoman.explain import candidates
from dragoman.explain.candidates import HintCandidate, Proposal, RefusingNode
from dragoman.explain.closest import diagnose_on, nearest_first, pinned
from dragoman.explain.conflict import Expired
from dragoman.explain.focus import claims_used, focus
from dragoman.explain.hint_changes import Cost, HintChange, MovePod, RemovePods, Together
from dragoman.schedule.decision import AnyReason
from dragoman.schedule.placement import PlacementCache
from dragoman.schedule.units import SchedulingContext, SchedulingUnit
from dragoman.snapshot.change import Change, Put, Snapshot, apply_all
from dragoman.whatif.decide import steps
from dragoman.whatif.pods import restarted

OF_A_KIND = 2
SHOWN = 8
TRIED_MAX = 400
FIRSTS_MAX = 6
"""Changes that do not help alone, of which each is tried with a second one."""


class Verified(msgspec.Struct, frozen=True):
    """Where the pod was seen to go: the node and `driver/pool/device` of each device given."""

    node: str
    devices: tuple[str, ...]


class Hint(msgspec.Struct, frozen=True, eq=False):
    """A change that helps. changes: applied to the snapshot on which the pod was refused, the pod fits there."""

    change: HintChange
    changes: tuple[Change, ...]
    verified: Verified


class Hints(msgspec.Struct, frozen=True, eq=False):
    """Verified hints, cheapest first. tried: candidates tried; untried: left when the time was over."""

    found: tuple[Hint, ...] = ()
    tried: int = 0
    untried: int = 0


class Question(msgspec.Struct, frozen=True, eq=False):
    """A pod of a unit that was refused on a snapshot. reasons: those that hold on every node. places: nodes to look
    at, the nearest to a yes first."""

    snapshot: Snapshot
    unit: SchedulingUnit
    pod: NamespacedName
    reasons: tuple[AnyReason, ...]
    places: tuple[RefusingNode, ...]
    now: datetime
    context: SchedulingContext


def hints_for(question: Question, over: Expired) -> Hints:
    """Changes with which the pod would fit, as far as time allows; two together where none helps alone."""
    alone, failed = _singles(question, over)
    if alone.found or alone.untried or not failed or question.unit.key[0] != "Pod":
        return alone
    return _pairs(question, failed, alone.tried, over)


def _singles(question: Question, over: Expired) -> tuple[Hints, list[HintCandidate]]:
    """Hints of one change each, and the candidates that do not help alone."""
    trial = _Trial(question)
    guesses = candidates.of(
        question.snapshot, question.pod, question.reasons, question.places, question.now, question.context
    )
    waiting = sorted(guesses, key=lambda candidate: candidate.cost)
    found: list[Hint] = []
    failed: list[HintCandidate] = []
    kinds: Counter[type] = Counter()
    served: set[str] = set()
    for position, candidate in enumerate(waiting[:TRIED_MAX]):
        if over():
            return Hints(tuple(found), trial.tried, len(waiting) - position), failed
        if kinds[candidate.kind] >= OF_A_KIND or candidate.topic in served or len(found) >= SHOWN:
            continue
        hint = trial.hint(candidate)
        if hint is None:
            failed.append(candidate)
        else:
            found.append(hint)
            kinds[type(hint.change)] += 1
            served.add(candidate.topic)
    rest = max(len(waiting) - TRIED_MAX, 0)
    return Hints(tuple(sorted(found, key=lambda hint: hint.change.cost)), trial.tried, rest), failed


def _pairs(question: Question, failed: Sequence[HintCandidate], tried: int, over: Expired) -> Hints:
    """Two changes together: a cheap one on the nearest node, then what helps after it."""
    node = question.places[0].node if question.places else ""
    firsts: dict[str, HintCandidate] = {}
    for candidate in failed:
        if candidate.cost <= Cost.OTHER_CLASS and candidate.node in ("", node):
            firsts.setdefault(candidate.topic, candidate)
    for position, first in enumerate(list(firsts.values())[:FIRSTS_MAX]):
        if over():
            return Hints((), tried, len(firsts) - position)
        one = first.make(question.snapshot)
        after = _after(question, node, one.changes) if one is not None else None
        if one is None or after is None:
            continue
        seconds, _ = _singles(after, over)
        tried += seconds.tried
        if seconds.found:
            both = tuple(_pair(one, second) for second in seconds.found[:OF_A_KIND])
            return Hints(both, tried, seconds.untried)
    return Hints((), tried, 0)


def _pair(one: Proposal, other: Hint) -> Hint:
    others = other.change.parts if isinstance(other.change, Together) else (other.change,)
    return Hint(Together((one.change, *others)), (*one.changes, *other.changes), other.verified)


def _after(question: Question, node: str, changes: Sequence[Change]) -> Question | None:
    """The question on one node ("": the nearest) once a change is made; None where no reasons are left to work on."""
    base = focus(question.snapshot, [node], [question.pod]) if node else question.snapshot
    small = apply_all(base, changes)
    if question.pod not in small.pods:
        return None
    context = msgspec.structs.replace(question.context, memory=PlacementCache())
    unit = SchedulingUnit(("Pod", *question.pod), (question.pod,))
    (verdict,) = next(steps(small, [unit], question.now, context)).verdicts
    refused = verdict.refused
    if refused is None:
        return None
    pod = small.pods[question.pod]
    nearest = nearest_first(refused.nodes)[:1]
    places = tuple(RefusingNode(s.nodes[0], s.reasons, diagnose_on(small, pod, s.nodes[0], context)) for s in nearest)
    return Question(small, unit, question.pod, refused.reasons, places, question.now, context)


class _Trial:
    """Decides the pod again on changed snapshots. Small worlds of one node each make that cheap."""

    def __init__(self, question: Question) -> None:
        self.snapshot = question.snapshot
        self.unit = question.unit
        self.pod = question.pod
        self.now = question.now
        self.context = question.context
        self.tried = 0
        self._small: dict[str, Snapshot] = {}

    def hint(self, candidate: HintCandidate) -> Hint | None:
        """The candidate as a hint, if the pod fits with it."""
        self.tried += 1
        proposal = candidate.make(self.snapshot)
        if proposal is None:
            return None
        changes = proposal.changes
        if len(self.unit.pods) > 1 or self.unit.key[0] != "Pod" or not candidate.node:
            verified = self._everywhere(changes)
        else:
            verified = self._on(candidate.node, candidate.place or candidate.node, changes)
        if verified is None:
            return None
        if isinstance(proposal.change, RemovePods) and candidate.pod is not None:
            moved = self._moves(candidate.pod)
            if moved is not None:
                removed = proposal.change
                change = MovePod(removed.pods, removed.for_devices, moved.node, moved.devices)
                return Hint(change, changes, verified)
            if candidate.kind is MovePod:
                return None
        return Hint(proposal.change, changes, verified)

    def _on(self, base: str, node: str, changes: Sequence[Change]) -> Verified | None:
        """The pod on this node, in the small world around `base`."""
        small = self._small.get(base)
        if small is None:
            small = self._small[base] = focus(self.snapshot, [base], [self.pod])
        changed = apply_all(small, changes)
        pod = changed.pods[self.pod]
        changed = apply_all(changed, [Put("Pod", pinned(pod, node))])
        return self._decided(changed, SchedulingUnit(("Pod", *self.pod), (self.pod,)))

    def _everywhere(self, changes: Sequence[Change]) -> Verified | None:
        return self._decided(apply_all(self.snapshot, changes), self.unit)

    def _decided(self, snapshot: Snapshot, unit: SchedulingUnit) -> Verified | None:
        step = next(steps(snapshot, [unit], self.now, self._fresh()))
        placed = [verdict for verdict in step.verdicts if verdict.node is not None]
        mine = next((verdict for verdict in placed if verdict.pod == self.pod), None)
        if mine is None or mine.node is None or len(placed) < unit.wanted:
            return None
        return Verified(mine.node, tuple(_devices(step.after, self.pod)))

    def _moves(self, other: NamespacedName) -> Verified | None:
        """Where the pod that makes room goes once it is recreated, if anywhere."""
        again = restarted(self.snapshot, other, self.now)
        if again is None:
            return None
        changed = apply_all(self.snapshot, again)
        wanted = [self.unit, SchedulingUnit(("Pod", *other), (other,))]
        mine, its = steps(changed, wanted, self.now, self._fresh())
        if any(verdict.node is None for verdict in (*mine.verdicts, *its.verdicts)):
            return None
        return Verified(its.verdicts[0].node or "", tuple(_devices(its.after, other)))

    def _fresh(self) -> SchedulingContext:
        return msgspec.structs.replace(self.context, memory=PlacementCache())


def _devices(snapshot: Snapshot, key: NamespacedName) -> Iterator[str]:
    for claim in claims_used(snapshot, snapshot.pods[key]):
        if claim.status.allocation is not None:
            for result in claim.status.allocation.devices.results:
                yield f"{result.driver}/{result.pool}/{result.device}"
