"""How does a hard search end in time? First-fit slot by slot, each choice asked whether the rest can still be met.

The question "can the rest be met at all" is free to take requests in any order, the scarcest first, which decides
most of what a search in the given order cannot. Its answers are certain, so the choices made are those of a plain
search in the given order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from dragoman.allocate.bounds import Bounds
from dragoman.allocate.candidates import Candidate, RequestCandidates
from dragoman.allocate.ledger import Ledger
from dragoman.allocate.pace import Check, unlimited
from dragoman.allocate.search import (
    BOUND_STEPS,
    Exhausted,
    Found,
    Halted,
    OutOfSteps,
    PickedDevice,
    Search,
    SearchRequest,
    SearchResult,
    number,
    take,
)
from dragoman.allocate.slots import RequestPlan
from dragoman.errors import Bug
from dragoman.snapshot.usage import DeviceId

GUIDED_STEPS = 1_000
"""Steps of a plain search after which asking ahead is worth its time."""


def find(requests: list[SearchRequest], ledger: Ledger, *, steps_max: int, check: Check = unlimited) -> SearchResult:
    """The first solution in the given order. The ledger is left with its takes, or as found."""
    outcome = Search(requests, ledger, steps_max=min(steps_max, GUIDED_STEPS), check=check).run()
    if isinstance(outcome, OutOfSteps) and outcome.steps < steps_max:
        return GuidedSearch(requests, ledger, steps=outcome.steps, steps_max=steps_max, check=check).run()
    return outcome


ALTERNATIVES_STEPS = 500
"""Steps of a search among alternatives and devices at once after which alternatives are chosen first."""


class _Undecided(Exception):
    """Out of steps; never leaves this module."""


class GuidedSearch:
    """One guided search. The ledger is left with the solution's takes, or as found."""

    def __init__(
        self,
        requests: list[SearchRequest],
        ledger: Ledger,
        *,
        steps: int,
        steps_max: int,
        check: Check = unlimited,
    ) -> None:
        self.requests = requests
        self.ledger = ledger
        self.steps = steps
        self.steps_max = steps_max
        self.check = check
        number(requests)
        self.equivalents = {
            c.device_state.id: c.equivalent
            for r in requests
            for alternative in r.alternatives
            for c in alternative.candidates
        }
        self.counts: dict[int, int] = {}
        self.picks: list[PickedDevice] = []
        self.chosen: list[RequestCandidates] = []
        self.witness: dict[
            RequestPlan, set[DeviceId]
        ] = {}  # devices with which what is left to choose is known to be met

    def run(self) -> SearchResult:
        """The first solution in the given order, or certainly none, or out of steps."""
        start = self.ledger.mark()
        outcome: SearchResult
        try:
            outcome = self._run()
        except _Undecided:
            outcome = OutOfSteps(self.steps)
        if not isinstance(outcome, Found):
            self.ledger.rewind(start)
        return outcome

    def _run(self) -> SearchResult:
        if not self._can(self.requests):
            return self._device_in_the_way() or Exhausted(self.steps)
        for index in range(len(self.requests)):
            halted = self._fill(index)
            if halted is not None:
                return halted
        return Found(self.picks, self.chosen, self.steps)

    def _fill(self, index: int) -> Halted | None:
        """Chooses the alternative and the devices of one request."""
        request, rest = self.requests[index], self.requests[index + 1 :]
        alternatives = [alternative for alternative in request.alternatives if alternative.count or alternative.every]
        alternative = alternatives[0]
        for alternative in alternatives:
            if (
                alternative is alternatives[-1]
                or alternative.request_plan in self.witness
                or self._can([_only(request, alternative), *rest])
            ):
                break
            halted = self._breaks(index, alternative)
            if halted is not None:
                return halted
        self.chosen.append(alternative)
        self.counts[request.claim] = self.counts.get(request.claim, 0) + alternative.count
        position = 0
        for missing in range(alternative.count - 1, -1, -1):
            found = self._next(index, alternative, position, missing)
            if isinstance(found, Halted):
                return found
            position = found
        return None

    def _next(self, index: int, alternative: RequestCandidates, position: int, missing: int) -> int | Halted:
        """Takes the first device, from a position on, with which the rest can be met; gives the next position."""
        request, ledger = self.requests[index], self.ledger
        failed: set[Hashable] = set()
        mark = ledger.mark()
        for place in range(position, len(alternative.candidates)):
            candidate = alternative.candidates[place]
            if candidate.failure is not None:
                if not ledger.in_use(candidate.device_state, request.claim, admin=alternative.request_plan.admin):
                    return Halted(self.steps, index, alternative, candidate, -1)
                continue
            state_key = (self.equivalents[candidate.device_state.id], ledger.usage(candidate.device_state.id))
            if state_key in failed:
                continue
            failed.add(state_key)
            if take(ledger, alternative, candidate, request.claim) is None:
                remainder = [_remainder(request, alternative, place + 1, missing)] if missing else []
                if self._known(alternative.request_plan, candidate, state_key) or self._can(
                    [*remainder, *self.requests[index + 1 :]], filling=request.claim, missing=missing
                ):
                    self.picks.append(PickedDevice(index, alternative, candidate))
                    return place + 1
            ledger.rewind(mark)
        raise Bug("a request that was found possible has no device for a slot")

    def _known(self, request_plan: RequestPlan, candidate: Candidate, state_key: Hashable) -> bool:
        """Whether the rest is known to be met after this device; then what is known is brought up to date."""
        mine, chosen = self.witness.get(request_plan), candidate.device_state.id
        if not mine:
            return False
        if chosen not in mine:
            untouched = (o for o in mine if self.ledger.usage(o) is None)
            other = next((o for o in untouched if (self.equivalents[o], None) == state_key), None)
            if other is None:
                return False
            for devices in self.witness.values():  # the two are interchangeable
                if (chosen in devices) != (other in devices):
                    devices ^= {chosen, other}
        mine.discard(chosen)
        return True

    def _device_in_the_way(self) -> Halted | None:
        """After a no: the device at which a plain search halts, where it comes to a request for all devices."""
        for index, request in enumerate(self.requests):
            if not any(alternative.every for alternative in request.alternatives):
                continue
            mark = self.ledger.mark()
            before = GuidedSearch(
                self.requests[:index], self.ledger, steps=self.steps, steps_max=self.steps_max, check=self.check
            )
            outcome = before.run()
            self.steps = outcome.steps
            if not isinstance(outcome, Found):
                return outcome if isinstance(outcome, Halted) else None  # it does not come that far
            halted = next(filter(None, (self._breaks(index, each) for each in request.alternatives)), None)
            self.ledger.rewind(mark)
            if halted is not None:
                return halted
        return None

    def _breaks(self, index: int, alternative: RequestCandidates) -> Halted | None:
        """Whether a device is what keeps a request from all of them: it breaks a constraint, or a selector fails."""
        if not alternative.every:
            return None
        mark = self.ledger.mark()
        for candidate in alternative.candidates:
            if alternative.blocked is not None and alternative.blocked[0] is candidate.device_state:
                break
            if candidate.failure is not None:
                self.ledger.rewind(mark)
                return Halted(self.steps, index, alternative, candidate, -1)
            blocked = take(self.ledger, alternative, candidate, self.requests[index].claim)
            if blocked is not None:
                self.ledger.rewind(mark)
                broken = blocked.constraint
                return None if broken is None else Halted(self.steps, index, alternative, candidate, broken)
        self.ledger.rewind(mark)
        return None

    def _can(self, requests: Sequence[SearchRequest], *, filling: int | None = None, missing: int = 0) -> bool:
        """Whether these requests can be met from here. filling: the claim whose count includes `missing` already."""
        counts = dict(self.counts)
        if filling is not None:
            counts[filling] -= missing
        simple = (_without_dominated(_without_failures(request)) for request in requests)
        ordered = sorted(simple, key=lambda request: (self._slack(request), -_size(request)))
        if all(len(request.alternatives) == 1 for request in ordered):
            return self._found(ordered, counts, self.steps_max)
        try:
            return self._found(ordered, counts, self.steps + ALTERNATIVES_STEPS)
        except _Undecided:
            return self._with_alternatives(ordered, counts)

    def _with_alternatives(self, requests: list[SearchRequest], counts: Mapping[int, int]) -> bool:
        """Whether some choice of alternatives can be met: chosen before any device, with counting after each choice."""
        place = next((place for place, request in enumerate(requests) if len(request.alternatives) > 1), None)
        if place is None:
            return self._found(requests, counts, self.steps_max)
        self.steps += BOUND_STEPS
        if self.steps > self.steps_max:
            raise _Undecided
        number(requests)
        if Bounds(requests).cause(0, self.ledger) is not None:
            return False
        request = requests[place]
        return any(
            self._with_alternatives([*requests[:place], _only(request, alternative), *requests[place + 1 :]], counts)
            for alternative in request.alternatives
        )

    def _found(self, requests: list[SearchRequest], counts: Mapping[int, int], steps_max: int) -> bool:
        """Whether a search for these requests finds something. Raises _Undecided."""
        mark = self.ledger.mark()
        most = min(steps_max, self.steps_max) - self.steps
        outcome = Search(
            requests, self.ledger, steps_max=most, counts=counts, whole=False, soft=True, check=self.check
        ).run()
        self.steps += outcome.steps
        self.ledger.rewind(mark)
        if isinstance(outcome, OutOfSteps) or self.steps > self.steps_max:
            raise _Undecided
        if not isinstance(outcome, Found):
            return False
        self.witness = {alternative.request_plan: set() for alternative in outcome.alternatives}
        for pick in outcome.picks:
            self.witness[pick.alternative.request_plan].add(pick.candidate.device_state.id)
        return True

    def _slack(self, request: SearchRequest) -> int:
        """How many devices more than needed a request could have now."""
        ledger, claim = self.ledger, request.claim
        return min(_available(ledger, claim, alternative) - alternative.count for alternative in request.alternatives)


def _size(request: SearchRequest) -> int:
    """How much of a shared device a request takes at least."""
    return min(
        (
            sum(c.amounts)
            for alternative in request.alternatives
            for c in alternative.candidates
            if c.device_state.multi
        ),
        default=0,
    )


def _without_dominated(request: SearchRequest) -> SearchRequest:
    """Leaves out alternatives that can be met only where another one can be met as well."""
    alternatives = request.alternatives
    if len(alternatives) == 1 or request.alternatives[0].request_plan.admin:
        return request
    kept: list[RequestCandidates] = []
    for alternative in sorted(alternatives, key=lambda alternative: alternative.count):
        if not any(_dominates(other, alternative) for other in kept):
            kept.append(alternative)
    return SearchRequest(request.ask, request.claim, kept) if len(kept) < len(alternatives) else request


def _dominates(alternative: RequestCandidates, other: RequestCandidates) -> bool:
    """Whether some of the devices that meet the other alternative always meet this one."""
    if alternative.every or other.every or alternative.count > other.count:
        return False
    mine = {candidate.device_state.id: candidate for candidate in alternative.candidates}
    for theirs in other.candidates:
        own = mine.get(theirs.device_state.id)
        if own is None or not set(own.joins) <= set(theirs.joins):
            return False
        if any(a > b for a, b in zip(own.amounts, theirs.amounts, strict=True)):
            return False
    return True


def _available(ledger: Ledger, claim: int, alternative: RequestCandidates) -> int:
    admin = alternative.request_plan.admin
    return sum(ledger.available(c.device_state, claim, c.amounts, admin=admin) for c in alternative.candidates)


def _only(request: SearchRequest, alternative: RequestCandidates) -> SearchRequest:
    return SearchRequest(request.ask, request.claim, [alternative])


def _without_failures(request: SearchRequest) -> SearchRequest:
    if all(candidate.failure is None for alternative in request.alternatives for candidate in alternative.candidates):
        return request
    alternatives = []
    for alternative in request.alternatives:
        usable = RequestCandidates(alternative.request_plan)
        usable.every, usable.count, usable.blocked = alternative.every, alternative.count, alternative.blocked
        usable.candidates = [candidate for candidate in alternative.candidates if candidate.failure is None]
        alternatives.append(usable)
    return SearchRequest(request.ask, request.claim, alternatives)


def _remainder(request: SearchRequest, alternative: RequestCandidates, position: int, count: int) -> SearchRequest:
    """The slots of a request that are still to fill, from the devices that come later."""
    rest = RequestCandidates(alternative.request_plan)
    rest.every, rest.count, rest.blocked = alternative.every, count, alternative.blocked
    rest.candidates = alternative.candidates[position:]
    return SearchRequest(request.ask, request.claim, [rest])
