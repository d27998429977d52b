"""Which devices together? The first combination in upstream's order, or certainly none, or SearchLimitReached.

Depth first over requests and devices. Branches that cannot succeed are cut, so that the first solution stays the
one that a plain search would find: equivalent devices are tried once, groups that failed at a slot are left out of the
request's later slots, failed states at request boundaries are remembered as far as the remaining requests can tell
them apart, and a request that later ones do not depend on is not tried again for them. Never looks at a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

import msgspec

from dragoman.allocate.bounds import Bounds, Infeasibility
from dragoman.allocate.candidates import Candidate, RequestCandidates
from dragoman.allocate.ledger import Ledger, Mark
from dragoman.allocate.pace import Check, unlimited
from dragoman.allocate.slots import MAX_RESULTS

NO_COUNTS: Mapping[int, int] = {}

MEMO_MAX = 100_000
"""Failed states remembered in one search."""

PROBE_STEPS = 64
"""Steps before counting arguments are worth their time."""

BOUND_STEPS = 8
"""What one round of counting arguments counts for, in steps."""


class SearchRequest:
    """A request of the unit on its node, with its alternatives. claim counts over the unit, ask too."""

    __slots__ = ("alternatives", "ask", "claim", "least")

    def __init__(self, ask: int, claim: int, alternatives: list[RequestCandidates]) -> None:
        self.ask = ask
        self.claim = claim
        self.alternatives = alternatives
        self.least = min(alternative.count for alternative in alternatives)


class PickedDevice:
    """A device chosen for a request."""

    __slots__ = ("alternative", "candidate", "request")

    def __init__(self, request: int, alternative: RequestCandidates, candidate: Candidate) -> None:
        self.request = request
        self.alternative = alternative
        self.candidate = candidate


class Found:
    """The picks, in order, and for each request the alternative chosen."""

    __slots__ = ("alternatives", "picks", "steps")

    def __init__(self, picks: list[PickedDevice], alternatives: list[RequestCandidates], steps: int) -> None:
        self.picks = picks
        self.alternatives = alternatives
        self.steps = steps


class Exhausted:
    """There is no combination. cause: what counting alone shows, if it does."""

    __slots__ = ("cause", "steps")

    def __init__(self, steps: int, cause: Infeasibility | None = None) -> None:
        self.steps = steps
        self.cause = cause


class OutOfSteps:
    """Not decided: neither a yes nor a no."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps


class Halted:
    """A device stands in the way: its selector fails, or it breaks a constraint of a request for all devices."""

    __slots__ = ("alternative", "candidate", "constraint", "request", "steps")

    def __init__(
        self, steps: int, request: int, alternative: RequestCandidates, candidate: Candidate, constraint: int
    ) -> None:
        self.steps = steps
        self.request = request
        self.alternative = alternative
        self.candidate = candidate
        self.constraint = constraint


SearchResult: TypeAlias = Found | Exhausted | Halted | OutOfSteps
"""A yes, a no (of counting or trying, or of one device that stands in the way), or neither."""


class _Point(msgspec.Struct, gc=False):
    """Where a search goes on: at a request (alternative None: still open), with k devices of the alternative
    taken; the next one is tried from a position of its candidates on, groups in excluded are left out."""

    request: int
    alternative: RequestCandidates | None = None
    k: int = 0
    position: int = 0
    excluded: frozenset[Hashable] = frozenset()


class _Frame:
    """A point of choice: between alternatives (alternative None) or between devices for slot k of one."""

    __slots__ = ("alternative", "deep", "excluded", "k", "mark", "next", "picked", "request", "tried")

    def __init__(self, at: _Point) -> None:
        self.request = at.request
        self.alternative = at.alternative
        self.k = at.k
        self.next = at.position
        self.excluded = at.excluded
        self.tried: set[Hashable] = set()
        self.mark: Mark = 0
        self.picked = 0
        self.deep = False  # whether the request was completed below this frame


class Search:
    """One search over the requests of a unit."""

    def __init__(
        self,
        requests: list[SearchRequest],
        ledger: Ledger,
        *,
        steps_max: int,
        counts: Mapping[int, int] = NO_COUNTS,
        whole: bool = True,
        numbered: bool = False,
        soft: bool = False,
        check: Check = unlimited,
    ) -> None:
        """counts: results that claims have already. whole: these are all requests of the unit. numbered: so are the
        devices. soft: a constraint that a request for all devices breaks is a plain no."""
        self.requests = requests
        self.ledger = ledger
        self.steps_max = steps_max
        self.counts = counts
        self.whole = whole
        self.numbered = numbered
        self.soft = soft
        self.check = check
        self.steps = 0
        self.picks: list[PickedDevice] = []
        self.chosen: list[RequestCandidates] = []
        self.failed: set[Hashable] = set()
        self.stack: list[_Frame] = []
        self.halt: Halted | None = None
        self.bounds: Bounds | None = None
        self.scope = _Scope([])
        self.admin = any(alternative.request_plan.admin for request in requests for alternative in request.alternatives)
        self.later = _later_least(requests)

    def run(self) -> SearchResult:
        """Searches until decided or out of steps. The ledger is left with the solution's takes, or as found."""
        start = self.ledger.mark()
        if self._straight():
            return Found(self.picks, self.chosen, self.steps)
        if not self.numbered:
            number(self.requests)
        self.scope = _Scope(self.requests)
        at: _Point | None = _Point(0)
        while True:
            self.check(0)
            if at is not None and self._go_on(at):
                return Found(self.picks, self.chosen, self.steps)
            if self.halt is not None or self.steps > self.steps_max:
                self.ledger.rewind(start)
                return self.halt or OutOfSteps(self.steps)
            at = self._advance()
            if self.halt is not None or at is None:
                self.ledger.rewind(start)
                return self.halt or Exhausted(self.steps, self._root_cause())
            if self.bounds is None and self.steps > PROBE_STEPS:
                cause = self._root_cause() if self.whole else None
                if cause is not None or (self.whole and self._a_claim_fails_alone()):
                    self.ledger.rewind(start)
                    return Exhausted(self.steps, cause)
                self.bounds = self.bounds or Bounds(self.requests)

    def _a_claim_fails_alone(self) -> bool:
        """Whether one of several claims could not even be met with nothing else taken."""
        claims = sorted({request.claim for request in self.requests})
        if len(claims) == 1:
            return False
        for claim in claims:
            own = [request for request in self.requests if request.claim == claim]
            ledger = Ledger(lists=self.ledger.lists)
            most = self.steps_max // 4
            search = Search(own, ledger, steps_max=most, whole=False, numbered=True, check=self.check)
            outcome = search.run()
            self.steps += search.steps // 4
            if type(outcome) is Exhausted:
                return True
        return False

    def _straight(self) -> bool:
        """The search without a wrong turn: first alternatives, first devices. Leaves no trace if that fails."""
        mark = self.ledger.mark()
        if all(self._first_devices(index) for index in range(len(self.requests))):
            return True
        self.ledger.rewind(mark)
        self.picks.clear()
        self.chosen.clear()
        return False

    def _first_devices(self, index: int) -> bool:
        alternative = self.requests[index].alternatives[0]
        if self._too_many(index, alternative) or (
            alternative.every and (alternative.blocked is not None or not alternative.candidates)
        ):
            return False
        self.steps += 1
        self.chosen.append(alternative)
        missing = alternative.count
        for candidate in alternative.candidates:
            if not missing:
                return True
            if candidate.failure is not None:
                return False
            if self._take(index, alternative, candidate) is None:
                self.steps += 1
                missing -= 1
            elif alternative.every or candidate.joins:
                return False  # what a constraint took note of is not undone here
        return not missing

    def _root_cause(self) -> Infeasibility | None:
        """What counting shows before anything is taken."""
        if not self.whole:
            return None
        if self.bounds is None:
            self.bounds = Bounds(self.requests)
        return self.bounds.cause(0, Ledger(lists=self.ledger.lists))

    def _go_on(self, at: _Point) -> bool:
        """Goes on until all requests are met (True), something has to be chosen (a frame is pushed), or it fails."""
        while at.request < len(self.requests):
            self.steps += 1
            alternative = at.alternative or self._opened(at.request)
            if alternative is None:
                return False
            if not alternative.every and at.k < alternative.count:
                at.alternative = alternative
                self._push(_Frame(at))
                return False
            if alternative.every and not self._take_all(at.request, alternative):
                return False
            self._mark_deep(at.request)
            at = _Point(at.request + 1)
        self.steps += 1
        return True

    def _opened(self, index: int) -> RequestCandidates | None:
        """The one alternative of a request; None if it cannot be met, or a frame now chooses among several."""
        if index and self._hopeless(index):
            return None
        request = self.requests[index]
        if len(request.alternatives) > 1:
            self._push(_Frame(_Point(index)))
            return None
        alternative = request.alternatives[0]
        if self._too_many(index, alternative):
            return None
        self.chosen.append(alternative)
        return alternative

    def _hopeless(self, index: int) -> bool:
        """Whether the remaining requests are known to fail in this state."""
        if self.failed and self._key(index) in self.failed:
            return True
        if self.bounds is None:
            return False
        self.steps += BOUND_STEPS
        return self.bounds.cause(index, self.ledger) is not None

    def _push(self, frame: _Frame) -> None:
        frame.mark = self.ledger.mark()
        frame.picked = len(self.picks)
        self.stack.append(frame)

    def _mark_deep(self, index: int) -> None:
        for frame in reversed(self.stack):
            if frame.request != index:
                return
            frame.deep = True

    def _advance(self) -> _Point | None:
        """Undoes the last choice and makes the next one; None when there is none left anywhere."""
        while self.stack:
            frame = self.stack[-1]
            self._undo(frame)
            settled = frame.deep and self.scope.isolated[frame.request]
            if frame.alternative is None:
                alternatives = self.requests[frame.request].alternatives
                while frame.next < len(alternatives) and not (settled and not self.scope.limited[frame.request]):
                    alternative = alternatives[frame.next]
                    frame.next += 1
                    if not self._too_many(frame.request, alternative):
                        self.chosen.append(alternative)
                        return _Point(frame.request, alternative)
            elif not settled:
                at = self._next_device(frame, frame.alternative)
                if at is not None or self.halt is not None:
                    return at
            self._remember(frame)
            self.stack.pop()
        return None

    def _undo(self, frame: _Frame) -> None:
        self.ledger.rewind(frame.mark)
        del self.picks[frame.picked :]
        del self.chosen[frame.request + (frame.alternative is not None) :]

    def _remember(self, frame: _Frame) -> None:
        if frame.alternative is not None and (frame.k or len(self.requests[frame.request].alternatives) > 1):
            return
        if len(self.failed) < MEMO_MAX:
            del self.chosen[frame.request :]
            self.failed.add(self._key(frame.request))

    def _next_device(self, frame: _Frame, alternative: RequestCandidates) -> _Point | None:
        """Takes the frame's next device; the point after it, None if no other can be taken (or halt says why)."""
        ledger, request = self.ledger, self.requests[frame.request]
        admin, claim = alternative.request_plan.admin, request.claim
        candidates = alternative.candidates
        last = len(candidates) - (alternative.count - frame.k)
        position = frame.next
        while position <= last:
            candidate = candidates[position]
            position += 1
            device_state = candidate.device_state
            if candidate.failure is not None:
                if ledger.in_use(device_state, claim, admin=admin):
                    continue
                self.halt = Halted(self.steps, frame.request, alternative, candidate, -1)
                return None
            state_key = (candidate.equivalent, ledger.usage(device_state.id))
            if state_key in frame.excluded or state_key in frame.tried:
                continue
            excluded = frame.excluded.union(frame.tried) if frame.tried else frame.excluded
            frame.tried.add(state_key)
            if self._take(frame.request, alternative, candidate) is None:
                frame.next = position
                return _Point(frame.request, alternative, frame.k + 1, position, excluded)
            ledger.rewind(frame.mark)
        frame.next = position
        return None

    def _take(self, index: int, alternative: RequestCandidates, candidate: Candidate) -> Blocked | None:
        """Takes a device for a request; what blocks it, or None if it was taken."""
        blocked = take(self.ledger, alternative, candidate, self.requests[index].claim)
        if blocked is None:
            self.picks.append(PickedDevice(index, alternative, candidate))
        return blocked

    def _take_all(self, index: int, alternative: RequestCandidates) -> bool:
        if not alternative.candidates:
            return False
        for candidate in alternative.candidates:
            if alternative.blocked is not None and alternative.blocked[0] is candidate.device_state:
                return False
            if candidate.failure is not None:
                self.halt = Halted(self.steps, index, alternative, candidate, -1)
                return False
            blocked = self._take(index, alternative, candidate)
            if blocked is not None:
                if blocked.constraint is not None and not self.soft:
                    self.halt = Halted(self.steps, index, alternative, candidate, blocked.constraint)
                return False
        return True

    def _too_many(self, index: int, alternative: RequestCandidates) -> bool:
        """Whether this alternative leads over the limit of results of the claim, whatever is chosen later."""
        claim = self.requests[index].claim
        before = self.counts.get(claim, 0) + sum(
            self.chosen[i].count for i in range(len(self.chosen)) if self.requests[i].claim == claim and i < index
        )
        return before + alternative.count + self.later[index] > MAX_RESULTS

    def _key(self, index: int) -> Hashable:
        """The state as far as the requests from index on can tell."""
        groups, constraints = self.scope.groups[index], self.scope.constraints[index]
        ledger = self.ledger
        touched: Counter[Hashable] = Counter()
        seen = set()
        admins = self.scope.admins[index]
        for pick in self.picks:
            if admins is not None and self.requests[pick.request].claim not in admins:
                continue
            equivalent, device = pick.candidate.equivalent, pick.candidate.device_state.id
            if equivalent in groups and device not in seen:
                seen.add(device)
                usage = ledger.usage(device) if self.admin or pick.candidate.device_state.multi else True
                touched[equivalent, usage] += 1
        count = 0
        claim = self.requests[index].claim
        if self.scope.limited[index]:
            count = sum(self.chosen[i].count for i in range(index) if self.requests[i].claim == claim)
        states = tuple(ledger.states.get(key) for key in constraints)
        return (index, count, frozenset(touched.items()), states)


class Blocked(msgspec.Struct, frozen=True):
    """Why a device cannot be taken now. constraint: index of the one that forbids it; None: the device is full."""

    constraint: int | None


DEVICE_FULL = Blocked(None)
_FORBIDDEN = tuple(Blocked(index) for index in range(32))  # what claims have; made once, as searches ask often


def take(ledger: Ledger, alternative: RequestCandidates, candidate: Candidate, claim: int) -> Blocked | None:
    """Takes a device for a claim; what blocks it, or None if it was taken.

    Constraints may have taken note of it where it was blocked: rewind.
    """
    admin = alternative.request_plan.admin
    if not ledger.available(candidate.device_state, claim, candidate.amounts, admin=admin):
        return DEVICE_FULL
    if candidate.barred >= 0:
        return _forbidden(candidate.barred)
    for constraint, kind, token in candidate.joins:
        if not ledger.join((claim, constraint), kind, token):
            return _forbidden(constraint)
    ledger.take(candidate.device_state, claim, candidate.amounts, admin=admin)
    return None


def _forbidden(constraint: int) -> Blocked:
    return _FORBIDDEN[constraint] if constraint < len(_FORBIDDEN) else Blocked(constraint)


def _later_least(requests: list[SearchRequest]) -> list[int]:
    """For each request the least number of devices that later requests of the same claim need."""
    least = [0] * len(requests)
    sums: dict[int, int] = {}
    for index in range(len(requests) - 1, -1, -1):
        request = requests[index]
        least[index] = sums.get(request.claim, 0)
        sums[request.claim] = least[index] + request.least
    return least


class _Scope:
    """What the requests from an index on can tell apart: groups of devices and constraints. Indexed by request.

    isolated: nothing that this request takes matters to later ones. limited: the number of results so far does.
    admins: claims of the remaining requests where all of these have admin access, so that only takes of these claims
    matter; None otherwise.
    """

    def __init__(self, requests: list[SearchRequest]) -> None:
        size = len(requests)
        self.groups: list[frozenset[int]] = [frozenset()] * size
        self.constraints: list[tuple[tuple[int, int], ...]] = [()] * size
        self.isolated = [True] * size
        self.admins: list[frozenset[int] | None] = [frozenset()] * size
        self.limited = [False] * size
        sets_of = _sets_by_group(requests)
        later_groups: set[int] = set()
        later_constraints: set[tuple[int, int]] = set()
        admins: frozenset[int] | None = frozenset()
        most: dict[int, int] = {}
        flexible: set[int] = set()
        for request in requests:
            most[request.claim] = most.get(request.claim, 0) + max(
                alternative.count for alternative in request.alternatives
            )
            if len({alternative.count for alternative in request.alternatives}) > 1:
                flexible.add(request.claim)
        for index in range(size - 1, -1, -1):
            request = requests[index]
            own_groups, own_constraints = _own(request)
            reach = _reach(later_groups, sets_of)
            tight = request.claim in flexible and most[request.claim] > MAX_RESULTS
            apart = own_groups.isdisjoint(reach) or (admins is not None and request.claim not in admins)
            self.isolated[index] = apart and own_constraints.isdisjoint(later_constraints)
            if admins is not None:
                admins = admins | {request.claim} if request.alternatives[0].request_plan.admin else None
            self.admins[index] = admins
            self.limited[index] = tight
            later_groups |= own_groups
            later_constraints |= own_constraints
            self.groups[index] = frozenset(_reach(later_groups, sets_of))
            self.constraints[index] = tuple(sorted(later_constraints))


def _own(request: SearchRequest) -> tuple[set[int], set[tuple[int, int]]]:
    groups = {candidate.equivalent for alternative in request.alternatives for candidate in alternative.candidates}
    constraints = {
        (request.claim, index) for alternative in request.alternatives for index in alternative.request_plan.constraints
    }
    return groups, constraints


def _sets_by_group(requests: list[SearchRequest]) -> dict[int, frozenset[Any]]:
    found: dict[int, frozenset[Any]] = {}
    for request in requests:
        for alternative in request.alternatives:
            for candidate in alternative.candidates:
                if candidate.device_state.uses and candidate.equivalent not in found:
                    found[candidate.equivalent] = frozenset(use.key for use in candidate.device_state.uses)
    return found


def _reach(groups: set[int], sets_of: dict[int, frozenset[Any]]) -> set[int]:
    """The groups, and all that draw on a counter set that one of them draws on."""
    sets = {key for group in groups for key in sets_of.get(group, ())}
    if not sets:
        return set(groups)
    return groups | {group for group, keys in sets_of.items() if not sets.isdisjoint(keys)}


def number(requests: list[SearchRequest]) -> None:
    """Equivalent devices get one number: same part in every alternative, same counters, capacity left and sharing."""
    marks: dict[Any, list[Any]] = {}
    slots: list[tuple[Candidate, Any]] = []
    for index, request in enumerate(requests):
        for option, alternative in enumerate(request.alternatives):
            for candidate in alternative.candidates:
                device_state = candidate.device_state
                key = device_state.id
                part = (
                    index,
                    option,
                    candidate.amounts if device_state.multi else (),
                    candidate.joins,
                    candidate.device_state.position if candidate.failure is not None else candidate.barred,
                )
                found = marks.get(key)
                if found is None:
                    found = marks[key] = [
                        (
                            device_state.multi,
                            tuple(device_state.left.values()),
                            device_state.shares > 0,
                            device_state.uses,
                        )
                    ]
                found.append(part)
                slots.append((candidate, key))
    numbers: dict[Any, int] = {}
    by_device: dict[Any, int] = {}
    for device, parts in marks.items():
        by_device[device] = numbers.setdefault(tuple(parts), len(numbers))
    for candidate, device in slots:
        candidate.equivalent = by_device[device]
