"""From asks to picks: the steps of one decision in order, and what is reported for a refusal.

    unit_of -> plans (slots) -> device states a node -> alternatives (request plans) -> search -> settled (assemble)

Never enumerates nodes; that is the survey's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, assert_never

from dragoman.allocate.assemble import allocation_of, is_local, selector_of
from dragoman.allocate.candidates import Candidate, DeviceFilter
from dragoman.allocate.device_state import device_states_of
from dragoman.allocate.diagnosis import Diagnoser, NodeDevices, bad_pool_for_all, overlaps_with_unpublished
from dragoman.allocate.guided_search import find
from dragoman.allocate.ledger import Ledger
from dragoman.allocate.pace import OutOfTime
from dragoman.allocate.refusal import (
    MultipleSelectorTerms,
    NodeNotFound,
    Refusal,
    Refusals,
    TooManyDevices,
    Undecided,
    UnpublishedOverlap,
)
from dragoman.allocate.search import Exhausted, Found, Halted, OutOfSteps, SearchRequest
from dragoman.allocate.slots import MAX_RESULTS, ClaimPlan, RequestPlan, Rules, plan_claim
from dragoman.allocate.values import Allocation, Ask, ChosenAlternative
from dragoman.api.core import Node
from dragoman.api.resource import AllocationResult
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.pools import SeenDevice, pools_for
from dragoman.snapshot.selection import selects


class Planned(NamedTuple):
    """A claim of the unit: where it is allocated (index of ask and claim), and nodes of other asks that share it."""

    plan: ClaimPlan
    ask: int
    node: Node
    others: tuple[Node, ...]


class AllocationUnit(NamedTuple):
    """The asks with their claims in plain terms. places[i][j]: index into claims of asks[i].claims[j]."""

    asks: Sequence[Ask]
    claims: tuple[Planned, ...]
    places: tuple[tuple[int, ...], ...]


def unit_of(snapshot: Snapshot, asks: Sequence[Ask], rules: Rules) -> AllocationUnit | Refusals:
    """Reads the asks, or refuses for what is wrong in a claim or with a node's name."""
    claims: list[Planned] = []
    places: list[tuple[int, ...]] = []
    where: dict[tuple[str, str], int] = {}
    for index, ask in enumerate(asks):
        node = snapshot.nodes.get(ask.node)
        if node is None:
            return Refusals((NodeNotFound(node=ask.node),))
        row = []
        for claim in ask.claims:
            key = (claim.metadata.namespace, claim.metadata.name)
            known = where.get(key)
            if known is None:
                plan = plan_claim(claim, snapshot, rules)
                if not isinstance(plan, ClaimPlan):
                    return Refusals((plan,), pod_wide=True)
                known = where[key] = len(claims)
                claims.append(Planned(plan, index, node, ()))
            elif claims[known].node is not node:
                planned = claims[known]
                claims[known] = planned._replace(others=(*planned.others, node))
            row.append(known)
        places.append(tuple(row))
    return AllocationUnit(asks, tuple(claims), tuple(places))


class Solution(NamedTuple):
    """A yes: for each claim of the unit the request plans chosen and the picks."""

    chosen: list[list[RequestPlan]]
    picks: list[list[tuple[RequestPlan, Candidate]]]
    warnings: tuple[Refusal, ...]
    steps: int


class Decider:
    """Decides units on one snapshot."""

    def __init__(self, snapshot: Snapshot, device_filter: DeviceFilter, steps_max: int) -> None:
        self.snapshot = snapshot
        self.rules = device_filter.rules
        self.device_filter = device_filter
        self.steps_max = steps_max
        self.all_node_devices: dict[str, NodeDevices] = {}

    def node_devices(self, node: Node) -> NodeDevices:
        """The node's pools and devices, gathered once."""
        name = node.metadata.name
        found = self.all_node_devices.get(name)
        if found is None:
            pools = pools_for(self.snapshot, node, partitionable=self.rules.counters)
            found = NodeDevices(node, pools, device_states_of(self.snapshot, node, pools, self.rules))
            self.all_node_devices[name] = found
        return found

    def decide(self, unit: AllocationUnit) -> Solution | Refusals | Undecided:
        """Picks for all claims, the decisive reasons against them, or neither within the limit of steps.

        Raises OutOfTime, with the node, where the matcher's check does.
        """
        try:
            return self._decide(unit)
        except OutOfTime as error:
            error.node = error.node or unit.asks[-1].node
            raise

    def _decide(self, unit: AllocationUnit) -> Solution | Refusals | Undecided:
        for planned in unit.claims:
            refusal = bad_pool_for_all(planned.plan, self.node_devices(planned.node))
            if refusal is not None:
                return Refusals((refusal,))
        requests = self._requests(unit)
        diagnoser = Diagnoser(
            self.device_filter, [(p.plan, self.node_devices(p.node), p.others) for p in unit.claims], requests
        )
        early = self._cannot(unit, requests, diagnoser)
        if early is not None:
            return early
        ledger, check = Ledger(lists=self.rules.lists), self.device_filter.matcher.check
        check(0)
        outcome = find(requests, ledger, steps_max=self.steps_max, check=check)
        match outcome:
            case Found():
                return self._solution(unit, requests, outcome, diagnoser)
            case Exhausted():
                return diagnoser.exhausted(outcome)
            case Halted():
                return diagnoser.halted(outcome)
            case OutOfSteps():
                return diagnoser.undecided(outcome)
            case _ as never:
                assert_never(never)

    def diagnosis(self, unit: AllocationUnit) -> tuple[Refusal, ...]:
        """All facts about the devices of the unit's nodes, request by request."""
        requests = self._requests(unit)
        return Diagnoser(
            self.device_filter, [(p.plan, self.node_devices(p.node), p.others) for p in unit.claims], requests
        ).diagnosis()

    def _requests(self, unit: AllocationUnit) -> list[SearchRequest]:
        requests = []
        for number, planned in enumerate(unit.claims):
            device_states = self.node_devices(planned.node).device_states
            if planned.others:
                device_states = [
                    device_state for device_state in device_states if self._reaches(device_state.seen, planned.others)
                ]
            for request_plans in planned.plan.requests:
                alternatives = [
                    self.device_filter.alternative(planned.plan, request_plan, device_states)
                    for request_plan in request_plans
                ]
                requests.append(SearchRequest(planned.ask, number, alternatives))
        return requests

    def _reaches(self, seen: SeenDevice, nodes: Sequence[Node]) -> bool:
        if is_local(seen, binding=self.rules.binding):
            return False
        selector = selector_of(seen)
        return not selector.node_selector_terms or all(selects(selector, node) for node in nodes)

    def _cannot(self, unit: AllocationUnit, requests: list[SearchRequest], diagnoser: Diagnoser) -> Refusals | None:
        """What needs no search: too many devices for a claim, or too few for a request on its own."""
        totals: dict[int, int] = {}
        for request in requests:
            for alternative in request.alternatives:
                first = alternative.candidates[0] if alternative.every and alternative.candidates else None
                if first is not None and first.failure is not None:
                    return Refusals((diagnoser.failure(request, alternative, first.failure),))
            totals[request.claim] = totals.get(request.claim, 0) + request.least
        for claim, total in totals.items():
            if total > MAX_RESULTS:
                planned = unit.claims[claim]
                fact = TooManyDevices(
                    claim=planned.plan.key, count=total, limit=MAX_RESULTS, node=planned.node.metadata.name
                )
                return Refusals((fact,))
        for request in requests:
            if all(
                len(alternative.candidates) < max(alternative.count, 1) or alternative.blocked is not None
                for alternative in request.alternatives
            ):
                return diagnoser.too_few(request, 0)
        return None

    def _solution(
        self, unit: AllocationUnit, requests: list[SearchRequest], found: Found, diagnoser: Diagnoser
    ) -> Solution | Refusals:
        chosen: list[list[RequestPlan]] = [[] for _ in unit.claims]
        picks: list[list[tuple[RequestPlan, Candidate]]] = [[] for _ in unit.claims]
        for request, alternative in zip(requests, found.alternatives, strict=True):
            chosen[request.claim].append(alternative.request_plan)
        for pick in found.picks:
            claim = requests[pick.request].claim
            picks[claim].append((pick.alternative.request_plan, pick.candidate))
        for number, picked in enumerate(picks):
            planned = unit.claims[number]
            for _, candidate in picked:
                if is_local(candidate.device_state.seen, binding=self.rules.binding):
                    break  # the selector names this node alone
                terms = len(selector_of(candidate.device_state.seen).node_selector_terms)
                if terms > 1:
                    return Refusals(
                        (
                            MultipleSelectorTerms(
                                claim=planned.plan.key,
                                device=candidate.device_state.id,
                                terms=terms,
                                node=planned.node.metadata.name,
                            ),
                        )
                    )
        return Solution(chosen, picks, diagnoser.skipped(), found.steps)


def chosen_of(unit: AllocationUnit, solution: Solution) -> tuple[ChosenAlternative, ...]:
    """The alternatives that were chosen, for scoring."""
    return tuple(
        ChosenAlternative(planned.plan.key, request_plan.parent, request_plan.option)
        for planned, request_plans in zip(unit.claims, solution.chosen, strict=True)
        for request_plan in request_plans
        if request_plan.option >= 0
    )


def settled(unit: AllocationUnit, solution: Solution, rules: Rules, share_id: Callable[[], str]) -> Allocation:
    """The allocations to write; share ids are drawn in the order of the results."""
    results: list[AllocationResult] = []
    for planned, request_plans, picks in zip(unit.claims, solution.chosen, solution.picks, strict=True):
        results.append(allocation_of(planned.plan, request_plans, picks, planned.node.metadata.name, rules, share_id))
    return Allocation(
        results=tuple(tuple(results[place] for place in row) for row in unit.places),
        chosen=chosen_of(unit, solution),
        warnings=(*solution.warnings, *unpublished_overlaps(unit, solution)),
        steps=solution.steps,
    )


def unpublished_overlaps(unit: AllocationUnit, solution: Solution) -> tuple[UnpublishedOverlap, ...]:
    """What the picks may share with devices that are held and no longer published."""
    return tuple(
        overlap
        for planned, picks in zip(unit.claims, solution.picks, strict=True)
        for overlap in overlaps_of(planned.plan.key, planned.node.metadata.name, picks)
    )


def overlaps_of(claim: str, node: str, picks: Sequence[tuple[RequestPlan, Candidate]]) -> Iterator[UnpublishedOverlap]:
    """The same of one claim."""
    for request_plan, candidate in picks:
        if not request_plan.admin:
            yield from overlaps_with_unpublished(claim, node, request_plan.request, candidate.device_state)
