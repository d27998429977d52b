"""Which devices of one node can serve a request at all, and what would each cost?

Everything here is checked against the state before the search, which only gets scarcer during it: a device that
fails here never serves. Never chooses.
"""

from __future__ import annotations

from dragoman.allocate.constraint import ValueSet, attribute_named, token_of
from dragoman.allocate.counters import admits
from dragoman.allocate.device_state import DeviceState
from dragoman.allocate.fragmentation import Demand
from dragoman.allocate.match import Failure, Matcher
from dragoman.allocate.policy import NodeTopology, Policy
from dragoman.allocate.refusal import Dropped, FilterStep
from dragoman.allocate.shares import consumption, violation
from dragoman.allocate.slots import ClaimPlan, RequestPlan, Rules
from dragoman.allocate.tolerate import blocker
from dragoman.values.quantity import Quantity


class Candidate:
    """A device that can serve a request. amounts: nano-units it would consume, in the order of the device's capacity;
    joins: (constraint, kind, value) each; equivalent: devices with the same number are interchangeable.
    failure: the selector fails on it, so it must not be reached. barred: a constraint of which it lacks the
    attribute (All only), or -1."""

    __slots__ = ("amounts", "barred", "consumed", "device_state", "equivalent", "failure", "joins")

    def __init__(self, device_state: DeviceState) -> None:
        self.device_state = device_state
        self.amounts: tuple[int, ...] = ()
        self.consumed: dict[str, Quantity] = {}
        self.joins: tuple[tuple[int, str, ValueSet], ...] = ()
        self.equivalent = -1
        self.barred = -1
        self.failure: Failure | None = None


class RequestCandidates:
    """A request plan on one node. candidates: usable ones in order (failures among them). count: how many to take.

    For All: candidates are exactly the devices to take, `blocked` the first that cannot be and why. skipped:
    selectors that failed on devices which were therefore left out.
    """

    __slots__ = ("blocked", "candidates", "count", "every", "request_plan", "skipped")

    def __init__(self, request_plan: RequestPlan) -> None:
        self.request_plan = request_plan
        self.every = request_plan.count == 0
        self.count = request_plan.count
        self.candidates: list[Candidate] = []
        self.blocked: tuple[DeviceState, FilterStep] | None = None
        self.skipped: list[Failure] = []


class DeviceFilter:
    """Filters devices for request plans. Under a policy that weighs, those on which a selector fails are left out."""

    def __init__(self, rules: Rules, matcher: Matcher, policy: Policy, demand: Demand) -> None:
        self.rules = rules
        self.matcher = matcher
        self.policy = policy
        self.demand = demand

    def alternative(
        self, plan: ClaimPlan, request_plan: RequestPlan, device_states: list[DeviceState]
    ) -> RequestCandidates:
        """A request plan on a node. For All the first failing selector is the only candidate."""
        found = RequestCandidates(request_plan)
        for device_state in device_states:
            if found.every:
                self._add_to_all(found, plan, request_plan, device_state)
                if found.candidates and found.candidates[-1].failure is not None:
                    found.candidates = found.candidates[-1:]
                    break
            else:
                candidate = Candidate(device_state)
                step, failure = self.step(request_plan, candidate)
                if failure is not None:
                    candidate.failure = failure
                    found.candidates.append(candidate)
                elif not step and self._constrain(candidate, plan, request_plan):
                    found.candidates.append(candidate)
        if found.every:
            found.count = len(found.candidates)
        elif self.policy.weigh is not None:
            self._order(found, NodeTopology(device_states))
        return found

    def _order(self, alternative: RequestCandidates, topology: NodeTopology) -> None:
        """Puts the devices that weigh least first."""
        weigh = self.policy.weigh
        assert weigh is not None
        alternative.skipped = [c.failure for c in alternative.candidates if c.failure is not None]
        usable = [candidate for candidate in alternative.candidates if candidate.failure is None]
        alternative.candidates = sorted(usable, key=lambda c: weigh(c, topology, self.demand))

    def candidate(self, request_plan: RequestPlan, device_state: DeviceState) -> Candidate:
        """The device as candidate of a request that it is known to serve."""
        found = Candidate(device_state)
        if not request_plan.admin:
            self._capacity_step(request_plan, found)
        return found

    def _add_to_all(
        self, found: RequestCandidates, plan: ClaimPlan, request_plan: RequestPlan, device_state: DeviceState
    ) -> None:
        if device_state.gated_early:
            return
        candidate = Candidate(device_state)
        verdict = self.matcher.passes(request_plan.selectors, device_state.seen)
        if isinstance(verdict, Failure):
            candidate.failure = verdict
        elif verdict is not True:
            return
        else:
            if not request_plan.admin and self._capacity_step(request_plan, candidate):
                return
            step = self._in_use(request_plan, device_state) or self._rest(request_plan, device_state)
            if step and found.blocked is None:
                found.blocked = (device_state, step)
            self._constrain(candidate, plan, request_plan)
        found.candidates.append(candidate)

    def step(self, request_plan: RequestPlan, candidate: Candidate) -> tuple[FilterStep | None, Failure | None]:
        """The first step that drops a device for a request, in upstream's order; or how a selector fails on it."""
        device_state = candidate.device_state
        if device_state.gated_early:
            return FilterStep.GATED, None
        held = self._in_use(request_plan, device_state)
        if held:
            return held, None
        verdict = self.matcher.passes(request_plan.selectors, device_state.seen)
        if isinstance(verdict, Failure):
            return FilterStep.SELECTOR, verdict
        if verdict is not True:
            return FilterStep.SELECTOR, None
        if not request_plan.admin:
            lacking = self._capacity_step(request_plan, candidate)
            if lacking:
                return lacking, None
        return self._rest(request_plan, device_state), None

    def _in_use(self, request_plan: RequestPlan, device_state: DeviceState) -> FilterStep | None:
        return FilterStep.HELD if device_state.exclusive and not request_plan.admin else None

    def _rest(self, request_plan: RequestPlan, device_state: DeviceState) -> FilterStep | None:
        if device_state.gated:
            return FilterStep.GATED
        if device_state.uses and not request_plan.admin and not (device_state.multi and device_state.shares):
            step = _counter_step(device_state)
            if step:
                return step
        return FilterStep.TAINT if blocker(device_state.taints, request_plan.tolerations) is not None else None

    def _capacity_step(self, request_plan: RequestPlan, candidate: Candidate) -> FilterStep | None:
        """Sets what the candidate would consume; "" if there is enough."""
        capacity = candidate.device_state.capacity
        for name in request_plan.capacity:
            if name not in capacity:
                return FilterStep.LACKING
        if not capacity:
            return None
        fractional = self.rules.fractional
        consumed = {
            name: consumption(entry, request_plan.capacity.get(name), fractional=fractional)
            for name, entry in capacity.items()
        }
        left = candidate.device_state.left
        for name, entry in capacity.items():
            amount = consumed[name]
            if violation(entry, amount, fractional=fractional):
                return FilterStep.CAPACITY
            total = entry.value.nanos if entry.value is not None else 0
            if amount.nanos > left.get(name, total):
                return FilterStep.CAPACITY
        candidate.consumed = consumed
        candidate.amounts = tuple(amount.nanos for amount in consumed.values())
        return None

    def _constrain(self, candidate: Candidate, plan: ClaimPlan, request_plan: RequestPlan) -> bool:
        """Looks up the values that the request's constraints need; False if one is missing."""
        if not request_plan.constraints:
            return True
        joins = []
        for index in request_plan.constraints:
            constraint = plan.constraints[index]
            token = self.token(request_plan, candidate.device_state, constraint.attribute)
            if isinstance(token, Failure):
                candidate.failure = token
                return True
            if token is None:
                candidate.barred = index
                return False
            joins.append((index, constraint.kind, token))
        candidate.joins = tuple(joins)
        return True

    def token(self, request_plan: RequestPlan, device_state: DeviceState, attribute: str) -> ValueSet | Failure | None:
        """A device's value of an attribute as constraints see it; None if it has none."""
        for derived in request_plan.derived:
            if derived.name == attribute or f"{device_state.driver}/{derived.name}" == attribute:
                return self.matcher.derive(derived, device_state.seen, lists=self.rules.lists)
        found = attribute_named(device_state.seen.device.attributes, device_state.driver, attribute)
        return None if found is None else token_of(found, lists=self.rules.lists)

    def tally(self, request_plan: RequestPlan, device_states: list[DeviceState], bad: int) -> Dropped:
        """How many devices each step drops, in the order in which people ask: matching ones first, then held."""
        count = dict.fromkeys(Dropped.__struct_fields__, 0)
        count["seen"] = len(device_states)
        count["bad_pool"] = bad
        for device_state in device_states:
            count[self.reported(request_plan, device_state) or "available"] += 1
        return Dropped(**count)

    def reported(self, request_plan: RequestPlan, device_state: DeviceState) -> FilterStep | None:
        """The step that drops a device as reported to people: whether it matches comes before whether it is held."""
        if self.matcher.passes(request_plan.selectors, device_state.seen) is not True:
            return FilterStep.SELECTOR
        if any(name not in device_state.capacity for name in request_plan.capacity) and not request_plan.admin:
            return FilterStep.LACKING
        if device_state.gated_early or device_state.gated:
            return FilterStep.GATED
        held = self._in_use(request_plan, device_state)
        if held:
            return held
        if not request_plan.admin:
            short = self._capacity_step(request_plan, Candidate(device_state))
            if short:
                return short
        return self._rest(request_plan, device_state)


def _counter_step(device_state: DeviceState) -> FilterStep | None:
    book = device_state.book
    assert book is not None
    if book.overdrawn is not None:
        return FilterStep.COUNTERS
    for use in device_state.uses:
        for counter, amount in use.amounts:
            if book.left[use.key, counter] < amount:
                return FilterStep.COUNTERS
        if not admits(book.present.get(use.key), use.groups):
            return FilterStep.GROUPS
    return None
