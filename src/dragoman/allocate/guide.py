"""How does a hard search end in time? First-fit slot by slot, each choice asked whether the rest can still be met.

The question "can the rest be met at all" is free to take requests in any order, the scarcest first, which decides
most of what a search in the given order cannot. Its answers are certain, so the choices made are those of a plain
search in the given order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dragoman.allocate.ledger import Ledger
from dragoman.allocate.search import Exhausted, Found, Halted, Outcome, OutOfSteps, Pick, Request, Search, number, take
from dragoman.allocate.slots import MAX_RESULTS
from dragoman.allocate.wants import View
from dragoman.errors import Bug

GUIDE_STEPS = 1_000
"""Steps of a plain search after which asking ahead is worth its time."""


def find(requests: list[Request], ledger: Ledger, *, steps_max: int) -> Outcome:
    """The first solution in the given order. The ledger is left with its takes, or as found."""
    outcome = Search(requests, ledger, steps_max=min(steps_max, GUIDE_STEPS)).run()
    if isinstance(outcome, OutOfSteps) and outcome.steps < steps_max:
        return Guide(requests, ledger, steps=outcome.steps, steps_max=steps_max).run()
    return outcome


class _Undecided(Exception):
    """Out of steps; never leaves this module."""


class Guide:
    """One guided search. The ledger is left with the solution's takes, or as found."""

    def __init__(self, requests: list[Request], ledger: Ledger, *, steps: int, steps_max: int) -> None:
        self.requests = requests
        self.ledger = ledger
        self.steps = steps
        self.steps_max = steps_max
        number(requests)
        self.sorts = {c.offer.id: c.alike for r in requests for view in r.views for c in view.candidates}
        self.counts: dict[int, int] = {}
        self.picks: list[Pick] = []
        self.chosen: list[View] = []

    def run(self) -> Outcome:
        """The first solution in the given order, or certainly none, or out of steps."""
        start = self.ledger.mark()
        outcome: Outcome
        try:
            outcome = self._run()
        except _Undecided:
            outcome = OutOfSteps(self.steps)
        if not isinstance(outcome, Found):
            self.ledger.rewind(start)
        return outcome

    def _run(self) -> Outcome:
        if not self._can(self.requests):
            return Exhausted(self.steps)
        for index in range(len(self.requests)):
            halted = self._fill(index)
            if halted is not None:
                return halted
        return Found(self.picks, self.chosen, self.steps)

    def _fill(self, index: int) -> Halted | None:
        """Chooses the alternative and the devices of one request."""
        request, rest = self.requests[index], self.requests[index + 1 :]
        views = [view for view in request.views if view.count or view.every]
        view = views[0]
        for view in views:
            if view is views[-1] or self._can([_only(request, view), *rest]):
                break
            halted = self._breaks(index, view)
            if halted is not None:
                return halted
        self.chosen.append(view)
        self.counts[request.claim] = self.counts.get(request.claim, 0) + view.count
        position = 0
        for missing in range(view.count - 1, -1, -1):
            found = self._next(index, view, position, missing)
            if isinstance(found, Halted):
                return found
            position = found
        return None

    def _next(self, index: int, view: View, position: int, missing: int) -> int | Halted:
        """Takes the first device, from a position on, with which the rest can be met; gives the next position."""
        request, ledger = self.requests[index], self.ledger
        failed: set[Hashable] = set()
        mark = ledger.mark()
        for place in range(position, len(view.candidates)):
            candidate = view.candidates[place]
            if candidate.failure is not None:
                if not ledger.in_use(candidate.offer, request.claim, admin=view.want.admin):
                    return Halted(self.steps, index, view, candidate, -1)
                continue
            sort = (self.sorts[candidate.offer.id], ledger.usage(candidate.offer.id))
            if sort in failed:
                continue
            failed.add(sort)
            if take(ledger, view, candidate, request.claim) < 0:
                remainder = [_remainder(request, view, place + 1, missing)] if missing else []
                if self._can([*remainder, *self.requests[index + 1 :]], filling=request.claim, missing=missing):
                    self.picks.append(Pick(index, view, candidate))
                    return place + 1
            ledger.rewind(mark)
        raise Bug("a request that was found possible has no device for a slot")

    def _breaks(self, index: int, view: View) -> Halted | None:
        """Whether a constraint is what keeps a request for all devices from them."""
        if not view.every:
            return None
        mark = self.ledger.mark()
        for candidate in view.candidates:
            if view.blocked is not None and view.blocked[0] is candidate.offer:
                break
            reason = take(self.ledger, view, candidate, self.requests[index].claim)
            if reason >= 0:
                self.ledger.rewind(mark)
                return None if reason >= MAX_RESULTS else Halted(self.steps, index, view, candidate, reason)
        self.ledger.rewind(mark)
        return None

    def _can(self, requests: Sequence[Request], *, filling: int | None = None, missing: int = 0) -> bool:
        """Whether these requests can be met from here. filling: the claim whose count includes `missing` already."""
        counts = dict(self.counts)
        if filling is not None:
            counts[filling] -= missing
        ordered = sorted((_without_failures(request) for request in requests), key=self._slack)
        mark = self.ledger.mark()
        left = self.steps_max - self.steps
        search = Search(ordered, self.ledger, steps_max=left, counts=counts, whole=False, soft=True)
        outcome = search.run()
        self.steps += outcome.steps
        self.ledger.rewind(mark)
        if isinstance(outcome, OutOfSteps) or self.steps > self.steps_max:
            raise _Undecided
        return isinstance(outcome, Found)

    def _slack(self, request: Request) -> int:
        """How many devices more than needed a request could have now."""
        ledger, claim = self.ledger, request.claim
        return min(_available(ledger, claim, view) - view.count for view in request.views)


def _available(ledger: Ledger, claim: int, view: View) -> int:
    admin = view.want.admin
    return sum(ledger.available(c.offer, claim, c.amounts, admin=admin) for c in view.candidates)


def _only(request: Request, view: View) -> Request:
    return Request(request.ask, request.claim, [view])


def _without_failures(request: Request) -> Request:
    if all(candidate.failure is None for view in request.views for candidate in view.candidates):
        return request
    views = []
    for view in request.views:
        usable = View(view.want)
        usable.every, usable.count, usable.blocked = view.every, view.count, view.blocked
        usable.candidates = [candidate for candidate in view.candidates if candidate.failure is None]
        views.append(usable)
    return Request(request.ask, request.claim, views)


def _remainder(request: Request, view: View, position: int, count: int) -> Request:
    """The slots of a request that are still to fill, from the devices that come later."""
    rest = View(view.want)
    rest.every, rest.count, rest.blocked = view.every, count, view.blocked
    rest.candidates = view.candidates[position:]
    return Request(request.ask, request.claim, [rest])
