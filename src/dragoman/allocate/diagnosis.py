"""Which facts explain a no? From what a search (or counting) found to refusals.

The hot path asks for one decisive reason; `diagnosis` goes through every request and device. Never decides anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dragoman.allocate.bounds import Infeasibility, Scarce, UnsatisfiedConstraint
from dragoman.allocate.candidates import DeviceFilter, RequestCandidates
from dragoman.allocate.device_state import DeviceState
from dragoman.allocate.match import Failure
from dragoman.allocate.refusal import (
    AllModeConstraintUnsatisfied,
    AllocatedElsewhere,
    CapacityNotFound,
    CapacityPolicyViolated,
    CompatibilityGroupConflict,
    ConstraintUnsatisfied,
    DeviceFeatureGateDisabled,
    DeviceInUse,
    DeviceTainted,
    FilterStep,
    InsufficientCapacity,
    InsufficientCounter,
    InsufficientDevices,
    NoCombination,
    PoolIncomplete,
    PoolInvalid,
    Refusal,
    Refusals,
    RequestsContended,
    SearchLimitReached,
    SelectorError,
    SelectorFalse,
    Undecided,
    UnpublishedOverlap,
)
from dragoman.allocate.search import Exhausted, Halted, OutOfSteps, SearchRequest
from dragoman.allocate.shares import ZERO, consumption, violation
from dragoman.allocate.slots import ClaimPlan, RequestPlan, RequestSelector
from dragoman.allocate.tolerate import blocker
from dragoman.api.core import Node
from dragoman.api.resource import DeviceAttribute
from dragoman.snapshot.pools import VisiblePool
from dragoman.values.names import split_qualified
from dragoman.values.quantity import Quantity


class NodeDevices(NamedTuple):
    """A node as the search sees it."""

    node: Node
    pools: tuple[VisiblePool, ...]
    device_states: list[DeviceState]


def overlaps_with_unpublished(
    claim: str, node: str, request: str, device_state: DeviceState
) -> Iterator[UnpublishedOverlap]:
    """What a device may share with devices that are held and no longer published."""
    for one in device_state.overlapping:
        sets = {use.key[2] for use in device_state.uses if one.sets is None or use.key[2] in one.sets}
        yield UnpublishedOverlap(
            claim=claim,
            request=request,
            device=device_state.id,
            unpublished=one.id,
            holders=one.holders,
            counter_sets=tuple(sorted(sets)),
            node=node,
        )


class Diagnoser:
    """Finds the reasons. claims: of the unit, each with its node's devices and the other nodes that must reach it."""

    def __init__(
        self,
        device_filter: DeviceFilter,
        claims: Sequence[tuple[ClaimPlan, NodeDevices, Sequence[Node]]],
        requests: list[SearchRequest],
    ) -> None:
        self.device_filter = device_filter
        self.claims = claims
        self.requests = requests

    def halted(self, outcome: Halted) -> Refusals:
        """The device that stands in the way."""
        return Refusals((self._halted(outcome),), steps=outcome.steps)

    def undecided(self, outcome: OutOfSteps) -> Undecided:
        """For which claims the search stopped."""
        names = tuple(plan.key for plan, _, _ in self.claims)
        return Undecided(SearchLimitReached(claims=names, steps=outcome.steps, node=_name(self.claims[0][1])))

    def exhausted(self, outcome: Exhausted) -> Refusals:
        """The reasons why there is no combination."""
        names = tuple(plan.key for plan, _, _ in self.claims)
        node = _name(self.claims[0][1])
        reasons: list[Refusal] = [*self._failures()]
        if outcome.cause is not None:
            reasons.append(self._cause(outcome.cause))
        else:
            reasons.append(NoCombination(claims=names, steps=outcome.steps, node=node))
        for plan, _, others in self.claims:
            reasons += [AllocatedElsewhere(claim=plan.key, node=other.metadata.name) for other in others]
        return Refusals((*reasons, *self._bad_pools()), steps=outcome.steps)

    def too_few(self, request: SearchRequest, steps: int) -> Refusals:
        """The reasons when a request cannot be met even alone."""
        plan, node_devices, _ = self.claims[request.claim]
        reasons: list[Refusal] = []
        for alternative in request.alternatives:
            failure = next((c.failure for c in alternative.candidates if c.failure is not None), None)
            failure = failure or next(iter(alternative.skipped), None)
            if failure is not None:
                reasons.append(self.failure(request, alternative, failure))
        for alternative in request.alternatives:
            fact = self._count(plan, node_devices, alternative.request_plan)
            if (
                fact.dropped.available >= max(alternative.request_plan.count, 1)
                and alternative.request_plan.constraints
            ):
                reasons += self._lacking_attribute(plan, node_devices, alternative.request_plan)
            reasons.append(fact)
        return Refusals((*reasons, *self._bad_pools()), steps=steps)

    def failure(self, request: SearchRequest, alternative: RequestCandidates, failure: Failure) -> SelectorError:
        """A selector that fails on a device."""
        plan, node_devices, _ = self.claims[request.claim]
        selector, derived = failure.selector, failure.derived
        lacking, seen = 0, 0
        if failure.missing:
            lacking, seen = (
                self._lacking(node_devices, alternative.request_plan, failure.missing),
                len(node_devices.device_states),
            )
        return SelectorError(
            claim=plan.key,
            request=alternative.request_plan.request,
            class_name=selector.class_name if selector is not None else "",
            index=selector.index if selector is not None else 0,
            expression=selector.text if selector is not None else derived.text if derived is not None else "",
            device=failure.seen.id,
            error=failure.error,
            attribute=failure.missing,
            lacking=lacking,
            seen=seen,
            node=_name(node_devices),
            derived=derived.name if derived is not None else "",
        )

    def diagnosis(self) -> tuple[Refusal, ...]:
        """For every request: how many devices each step drops, and why each device that is dropped is."""
        facts: list[Refusal] = []
        for request in self.requests:
            plan, node_devices, _ = self.claims[request.claim]
            for alternative in request.alternatives:
                facts.append(self._count(plan, node_devices, alternative.request_plan))
                for device_state in node_devices.device_states:
                    facts += self._why(plan, node_devices, request, alternative, device_state)
        return (*facts, *self._bad_pools())

    # ---- one decisive reason

    def _halted(self, outcome: Halted) -> Refusal:
        request = self.requests[outcome.request]
        if outcome.candidate.failure is not None:
            return self.failure(request, outcome.alternative, outcome.candidate.failure)
        plan, node_devices, _ = self.claims[request.claim]
        return AllModeConstraintUnsatisfied(
            claim=plan.key,
            request=outcome.alternative.request_plan.request,
            device=outcome.candidate.device_state.id,
            index=outcome.constraint,
            attribute=plan.constraints[outcome.constraint].attribute,
            node=_name(node_devices),
        )

    def _failures(self) -> Iterable[SelectorError]:
        """Selectors that fail on devices which might have helped; one a request."""
        for request in self.requests:
            for alternative in request.alternatives:
                failure = next((c.failure for c in alternative.candidates if c.failure is not None), None)
                failure = failure or next(iter(alternative.skipped), None)
                if failure is not None:
                    yield self.failure(request, alternative, failure)
                    break

    def skipped(self) -> tuple[SelectorError, ...]:
        """Selectors that failed on devices which a policy left out; one a request."""
        alternatives = (
            (request, alternative)
            for request in self.requests
            for alternative in request.alternatives
            if alternative.skipped
        )
        return tuple(
            self.failure(request, alternative, alternative.skipped[0]) for request, alternative in alternatives
        )

    def _cause(self, cause: Infeasibility) -> Refusal:
        if isinstance(cause, UnsatisfiedConstraint):
            return self._unmet(cause)
        first = self.requests[cause.requests[0]]
        plan, node_devices, _ = self.claims[first.claim]
        if isinstance(cause, Scarce) and len(cause.requests) == 1 and len(first.alternatives) == 1:
            request_plan = first.alternatives[0].request_plan
            fact = self._count(plan, node_devices, request_plan)
            if fact.dropped.available < max(request_plan.count, 1):
                return fact
        names = tuple(
            (self.claims[self.requests[number].claim][0].key, self.requests[number].alternatives[0].request_plan.parent)
            for number in cause.requests
        )
        return RequestsContended(requests=names, requested=cause.wanted, available=cause.have, node=_name(node_devices))

    def _unmet(self, cause: UnsatisfiedConstraint) -> ConstraintUnsatisfied:
        plan, node_devices, _ = self.claims[cause.claim]
        constraint = plan.constraints[cause.constraint]
        request_plans = [
            alternative.request_plan for number in cause.requests for alternative in self.requests[number].alternatives
        ]
        missing = sum(
            any(
                not self.device_filter.reported(request_plan, device_state)
                and self.device_filter.token(request_plan, device_state, constraint.attribute) is None
                for request_plan in request_plans
            )
            for device_state in node_devices.device_states
        )
        return ConstraintUnsatisfied(
            claim=plan.key,
            index=constraint.index,
            kind=constraint.kind,
            attribute=constraint.attribute,
            requests=tuple(dict.fromkeys(request_plan.parent for request_plan in request_plans)),
            requested=cause.wanted,
            values=cause.values,
            missing=missing,
            node=_name(node_devices),
        )

    def _lacking_attribute(
        self, plan: ClaimPlan, node_devices: NodeDevices, request_plan: RequestPlan
    ) -> Iterable[ConstraintUnsatisfied]:
        """Constraints whose attribute too few of the usable devices have."""
        usable = [
            device_state
            for device_state in node_devices.device_states
            if not self.device_filter.reported(request_plan, device_state)
        ]
        for index in request_plan.constraints:
            constraint = plan.constraints[index]
            values: Counter[str] = Counter()
            missing = 0
            for device_state in usable:
                token = self.device_filter.token(request_plan, device_state, constraint.attribute)
                if token is None or isinstance(token, Failure):
                    missing += 1
                else:
                    values[", ".join(str(value) for _, value in sorted(token, key=str))] += 1
            if missing:
                yield ConstraintUnsatisfied(
                    claim=plan.key,
                    index=index,
                    kind=constraint.kind,
                    attribute=constraint.attribute,
                    requests=(request_plan.parent,),
                    requested=request_plan.count,
                    values=tuple(sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))),
                    missing=missing,
                    node=_name(node_devices),
                )

    def _count(self, plan: ClaimPlan, node_devices: NodeDevices, request_plan: RequestPlan) -> InsufficientDevices:
        bad = sum(len(pool.devices) for pool in node_devices.pools if pool.state != "ok")
        return InsufficientDevices(
            claim=plan.key,
            request=request_plan.request,
            class_name=request_plan.device_class.metadata.name,
            requested=request_plan.count,
            dropped=self.device_filter.tally(request_plan, node_devices.device_states, bad),
            node=_name(node_devices),
        )

    def _lacking(self, node_devices: NodeDevices, request_plan: RequestPlan, missing: str) -> int:
        """How many devices that come so far fail because the same name is missing."""
        verdicts = (
            self.device_filter.matcher.passes(request_plan.selectors, device_state.seen)
            for device_state in node_devices.device_states
        )
        return sum(isinstance(verdict, Failure) and verdict.missing == missing for verdict in verdicts)

    def _bad_pools(self) -> list[Refusal]:
        """Pools that could not be used, reported beside the main reason."""
        all_node_devices = {_name(node_devices): node_devices for _, node_devices, _ in self.claims}
        return [
            bad_pool(pool, name, "", "")
            for name, node_devices in all_node_devices.items()
            for pool in node_devices.pools
            if pool.state != "ok"
        ]

    # ---- one device

    def _why(
        self,
        plan: ClaimPlan,
        node_devices: NodeDevices,
        request: SearchRequest,
        alternative: RequestCandidates,
        device_state: DeviceState,
    ) -> Iterable[Refusal]:
        request_plan = alternative.request_plan
        claim, name, node, device = plan.key, request_plan.request, _name(node_devices), device_state.id
        match self.device_filter.reported(request_plan, device_state):
            case FilterStep.SELECTOR:
                yield self._mismatch(plan, node_devices, request, alternative, device_state)
            case FilterStep.LACKING:
                for capacity in sorted(set(request_plan.capacity) - set(device_state.capacity)):
                    yield CapacityNotFound(claim=claim, request=name, device=device, capacity=capacity, node=node)
            case FilterStep.GATED:
                feature = device_state.gated_early or device_state.gated
                yield DeviceFeatureGateDisabled(claim=claim, request=name, device=device, feature=feature, node=node)
            case FilterStep.HELD:
                if device_state.holders:
                    yield DeviceInUse(claim=claim, request=name, device=device, holders=device_state.holders, node=node)
                yield from overlaps_with_unpublished(claim, node, name, device_state)
            case FilterStep.CAPACITY:
                yield from self._capacity(plan, request_plan, device_state, node)
            case FilterStep.COUNTERS:
                yield from _counters(plan, request_plan, device_state, node)
            case FilterStep.GROUPS:
                yield from _groups(plan, request_plan, device_state, node)
            case FilterStep.TAINT:
                found = blocker(device_state.taints, request_plan.tolerations)
                assert found is not None
                rule, taint = found
                yield DeviceTainted(
                    claim=claim,
                    request=name,
                    device=device,
                    key=taint.key,
                    value=taint.value,
                    effect=taint.effect,
                    rule=rule,
                    node=node,
                )
            case _:
                return

    def _mismatch(
        self,
        plan: ClaimPlan,
        node_devices: NodeDevices,
        request: SearchRequest,
        alternative: RequestCandidates,
        device_state: DeviceState,
    ) -> SelectorFalse | SelectorError:
        verdict = self.device_filter.matcher.passes(alternative.request_plan.selectors, device_state.seen)
        if isinstance(verdict, Failure):
            return self.failure(request, alternative, verdict)
        assert isinstance(verdict, RequestSelector)
        return SelectorFalse(
            claim=plan.key,
            request=alternative.request_plan.request,
            class_name=verdict.class_name,
            index=verdict.index,
            expression=verdict.text,
            device=device_state.id,
            attributes=_read_by(verdict, device_state),
            node=_name(node_devices),
        )

    def _capacity(
        self, plan: ClaimPlan, request_plan: RequestPlan, device_state: DeviceState, node: str
    ) -> Iterable[Refusal]:
        fractional = self.device_filter.rules.fractional
        for name, entry in device_state.capacity.items():
            amount = consumption(entry, request_plan.capacity.get(name), fractional=fractional)
            rule = violation(entry, amount, fractional=fractional)
            total = entry.value or ZERO
            left = device_state.left.get(name, total.nanos)
            if rule:
                yield CapacityPolicyViolated(
                    claim=plan.key,
                    request=request_plan.request,
                    device=device_state.id,
                    capacity=name,
                    requested=request_plan.capacity.get(name, amount),
                    consumed=amount,
                    total=total,
                    rule=rule,
                    node=node,
                )
            elif amount.nanos > left:
                yield InsufficientCapacity(
                    claim=plan.key,
                    request=request_plan.request,
                    device=device_state.id,
                    capacity=name,
                    available=Quantity(left, total.format),
                    requested=request_plan.capacity.get(name, amount),
                    consumed=amount,
                    total=total,
                    node=node,
                )


def _counters(
    plan: ClaimPlan, request_plan: RequestPlan, device_state: DeviceState, node: str
) -> Iterable[InsufficientCounter]:
    book = device_state.book
    assert book is not None
    for use in device_state.uses:
        for counter, amount in use.amounts:
            left = book.left[use.key, counter]
            if left < amount or book.overdrawn == (use.key[2], counter):
                yield InsufficientCounter(
                    claim=plan.key,
                    request=request_plan.request,
                    device=device_state.id,
                    counter_set=use.key[2],
                    counter=counter,
                    available=Quantity(left),
                    requested=Quantity(amount),
                    frozen=left < 0,
                    node=node,
                )
                return
    if book.overdrawn is not None:
        group, counter = book.overdrawn
        key = (device_state.driver, device_state.id.pool, group)
        yield InsufficientCounter(
            claim=plan.key,
            request=request_plan.request,
            device=device_state.id,
            counter_set=group,
            counter=counter,
            available=Quantity(book.left[key, counter]),
            requested=ZERO,
            frozen=True,
            node=node,
        )


def _groups(
    plan: ClaimPlan, request_plan: RequestPlan, device_state: DeviceState, node: str
) -> Iterable[CompatibilityGroupConflict]:
    book = device_state.book
    assert book is not None
    for use in device_state.uses:
        present = book.present.get(use.key)
        if present is not None and not present & (frozenset(use.groups) or frozenset({""})):
            yield CompatibilityGroupConflict(
                claim=plan.key,
                request=request_plan.request,
                device=device_state.id,
                counter_set=use.key[2],
                groups=use.groups,
                present=tuple(sorted(group for group in present if group)),
                node=node,
            )


def _read_by(selector: RequestSelector, device_state: DeviceState) -> tuple[tuple[str, str], ...]:
    """The attribute values of a device that a selector reads."""
    reads = selector.compiled.reads
    found = []
    for key, attribute in device_state.seen.device.attributes.items():
        domain, name = split_qualified(key, device_state.driver)
        if reads.attributes is None or (domain, name) in reads.attributes or (domain, None) in reads.attributes:
            found.append((f"{domain}/{name}", _text(attribute)))
    if reads.driver:
        found.append(("driver", device_state.driver))
    return tuple(sorted(found))


def _text(attribute: DeviceAttribute) -> str:
    if attribute.bool_ is not None:
        return str(attribute.bool_).lower()
    for value in (attribute.int_, attribute.string, attribute.version):
        if value is not None:
            return str(value)
    for values in (attribute.ints, attribute.bools, attribute.strings, attribute.versions):
        if values is not None:
            return ", ".join(str(value) for value in values)
    return ""


def bad_pool_for_all(plan: ClaimPlan, node_devices: NodeDevices) -> Refusal | None:
    """All mode needs every pool that the node sees to be valid and complete."""
    every = next(
        (request_plan for request_plans in plan.requests for request_plan in request_plans if request_plan.count == 0),
        None,
    )
    if every is not None:
        for pool in node_devices.pools:
            if pool.state != "ok":
                return bad_pool(pool, _name(node_devices), plan.key, every.request)
    return None


def bad_pool(pool: VisiblePool, node: str, claim: str, request: str) -> Refusal:
    """Why a pool is not fit for use."""
    if pool.fault is not None:
        return PoolInvalid(
            claim=claim,
            request=request,
            driver=pool.driver,
            pool=pool.name,
            what=pool.fault.what,
            names=pool.fault.names,
            node=node,
        )
    return PoolIncomplete(
        claim=claim,
        request=request,
        driver=pool.driver,
        pool=pool.name,
        generation=pool.generation,
        slices=pool.have,
        resource_slice_count=pool.expected,
        node=node,
    )


def _name(node_devices: NodeDevices) -> str:
    return node_devices.node.metadata.name
