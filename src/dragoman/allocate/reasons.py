"""Which facts explain a no? From what a search (or counting) found to refusals.

The hot path asks for one decisive reason; `story` goes through every request and device. Never decides anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dragoman.allocate.bounds import Cause, Scarce, Unmet
from dragoman.allocate.match import Failure
from dragoman.allocate.offers import Offer
from dragoman.allocate.refusal import (
    AllConstraint,
    CapacityMissing,
    CapacityShort,
    CapacityUnfit,
    ConstraintUnmet,
    Contended,
    CounterShort,
    DeviceGated,
    Elsewhere,
    GaveUp,
    GroupsDiffer,
    Held,
    NoCombination,
    PoolIncomplete,
    PoolInvalid,
    Refusal,
    Refusals,
    SelectorError,
    SelectorFalse,
    Tainted,
    TooFew,
)
from dragoman.allocate.search import Exhausted, Halted, OutOfSteps, Request
from dragoman.allocate.shares import ZERO, consumption, violation
from dragoman.allocate.slots import ClaimPlan, Selector, Want
from dragoman.allocate.tolerate import blocker
from dragoman.allocate.wants import Judge, View
from dragoman.api.core import Node
from dragoman.api.resource import DeviceAttribute
from dragoman.snapshot.pools import Pool
from dragoman.values.names import split_qualified
from dragoman.values.quantity import Quantity


class Terrain(NamedTuple):
    """A node as the search sees it."""

    node: Node
    pools: tuple[Pool, ...]
    offers: list[Offer]


class Teller:
    """Tells why. claims: of the unit, each with its terrain and the other nodes that must reach it."""

    def __init__(
        self, judge: Judge, claims: Sequence[tuple[ClaimPlan, Terrain, Sequence[Node]]], requests: list[Request]
    ) -> None:
        self.judge = judge
        self.claims = claims
        self.requests = requests

    def exhausted(self, outcome: Exhausted) -> Refusals:
        """The reasons for what a search came to."""
        names = tuple(plan.key for plan, _, _ in self.claims)
        node = _name(self.claims[0][1])
        if isinstance(outcome, Halted):
            return Refusals((self._halted(outcome),), steps=outcome.steps)
        if isinstance(outcome, OutOfSteps):
            return Refusals((GaveUp(claims=names, steps=outcome.steps, node=node),), steps=outcome.steps)
        reasons: list[Refusal] = [*self._failures()]
        if outcome.cause is not None:
            reasons.append(self._cause(outcome.cause))
        else:
            reasons.append(NoCombination(claims=names, steps=outcome.steps, node=node))
        for plan, _, others in self.claims:
            reasons += [Elsewhere(claim=plan.key, node=other.metadata.name) for other in others]
        return Refusals((*reasons, *self._bad_pools()), steps=outcome.steps)

    def too_few(self, request: Request, steps: int) -> Refusals:
        """The reasons when a request cannot be met even alone."""
        plan, terrain, _ = self.claims[request.claim]
        reasons: list[Refusal] = []
        for view in request.views:
            failure = next((c.failure for c in view.candidates if c.failure is not None), None)
            failure = failure or next(iter(view.skipped), None)
            if failure is not None:
                reasons.append(self.failure(request, view, failure))
        for view in request.views:
            fact = self._count(plan, terrain, view.want)
            if fact.dropped.usable >= max(view.want.count, 1) and view.want.constraints:
                reasons += self._lacking_attribute(plan, terrain, view.want)
            reasons.append(fact)
        return Refusals((*reasons, *self._bad_pools()), steps=steps)

    def failure(self, request: Request, view: View, failure: Failure) -> SelectorError:
        """A selector that fails on a device."""
        plan, terrain, _ = self.claims[request.claim]
        selector, derived = failure.selector, failure.derived
        lacking, seen = 0, 0
        if failure.missing:
            lacking, seen = self._lacking(terrain, view.want, failure.missing), len(terrain.offers)
        return SelectorError(
            claim=plan.key,
            request=view.want.request,
            class_name=selector.class_name if selector is not None else "",
            index=selector.index if selector is not None else 0,
            text=selector.text if selector is not None else derived.text if derived is not None else "",
            device=failure.seen.id,
            error=failure.error,
            attribute=failure.missing,
            lacking=lacking,
            seen=seen,
            node=_name(terrain),
            derived=derived.name if derived is not None else "",
        )

    def story(self) -> tuple[Refusal, ...]:
        """For every request: how many devices each step drops, and why each device that is dropped is."""
        facts: list[Refusal] = []
        for request in self.requests:
            plan, terrain, _ = self.claims[request.claim]
            for view in request.views:
                facts.append(self._count(plan, terrain, view.want))
                for offer in terrain.offers:
                    facts += self._why(plan, terrain, request, view, offer)
        return (*facts, *self._bad_pools())

    # ---- one decisive reason

    def _halted(self, outcome: Halted) -> Refusal:
        request = self.requests[outcome.request]
        if outcome.candidate.failure is not None:
            return self.failure(request, outcome.view, outcome.candidate.failure)
        plan, terrain, _ = self.claims[request.claim]
        return AllConstraint(
            claim=plan.key,
            request=outcome.view.want.request,
            device=outcome.candidate.offer.id,
            index=outcome.constraint,
            attribute=plan.constraints[outcome.constraint].attribute,
            node=_name(terrain),
        )

    def _failures(self) -> Iterable[SelectorError]:
        """Selectors that fail on devices which might have helped; one a request."""
        for request in self.requests:
            for view in request.views:
                failure = next((c.failure for c in view.candidates if c.failure is not None), None)
                failure = failure or next(iter(view.skipped), None)
                if failure is not None:
                    yield self.failure(request, view, failure)
                    break

    def skipped(self) -> tuple[SelectorError, ...]:
        """Selectors that failed on devices which a policy left out; one a request."""
        views = ((request, view) for request in self.requests for view in request.views if view.skipped)
        return tuple(self.failure(request, view, view.skipped[0]) for request, view in views)

    def _cause(self, cause: Cause) -> Refusal:
        if isinstance(cause, Unmet):
            return self._unmet(cause)
        first = self.requests[cause.requests[0]]
        plan, terrain, _ = self.claims[first.claim]
        if isinstance(cause, Scarce) and len(cause.requests) == 1 and len(first.views) == 1:
            want = first.views[0].want
            fact = self._count(plan, terrain, want)
            if fact.dropped.usable < max(want.count, 1):
                return fact
        names = tuple(
            (self.claims[self.requests[number].claim][0].key, self.requests[number].views[0].want.parent)
            for number in cause.requests
        )
        return Contended(requests=names, wanted=cause.wanted, have=cause.have, node=_name(terrain))

    def _unmet(self, cause: Unmet) -> ConstraintUnmet:
        plan, terrain, _ = self.claims[cause.claim]
        constraint = plan.constraints[cause.constraint]
        wants = [view.want for number in cause.requests for view in self.requests[number].views]
        missing = sum(
            any(
                not self.judge.told(want, offer) and self.judge.token(want, offer, constraint.attribute) is None
                for want in wants
            )
            for offer in terrain.offers
        )
        return ConstraintUnmet(
            claim=plan.key,
            index=constraint.index,
            kind=constraint.kind,
            attribute=constraint.attribute,
            requests=tuple(dict.fromkeys(want.parent for want in wants)),
            wanted=cause.wanted,
            values=cause.values,
            missing=missing,
            node=_name(terrain),
        )

    def _lacking_attribute(self, plan: ClaimPlan, terrain: Terrain, want: Want) -> Iterable[ConstraintUnmet]:
        """Constraints whose attribute too few of the usable devices have."""
        usable = [offer for offer in terrain.offers if not self.judge.told(want, offer)]
        for index in want.constraints:
            constraint = plan.constraints[index]
            values: Counter[str] = Counter()
            missing = 0
            for offer in usable:
                token = self.judge.token(want, offer, constraint.attribute)
                if token is None or isinstance(token, Failure):
                    missing += 1
                else:
                    values[", ".join(str(value) for _, value in sorted(token, key=str))] += 1
            if missing:
                yield ConstraintUnmet(
                    claim=plan.key,
                    index=index,
                    kind=constraint.kind,
                    attribute=constraint.attribute,
                    requests=(want.parent,),
                    wanted=want.count,
                    values=tuple(sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))),
                    missing=missing,
                    node=_name(terrain),
                )

    def _count(self, plan: ClaimPlan, terrain: Terrain, want: Want) -> TooFew:
        bad = sum(len(pool.devices) for pool in terrain.pools if pool.state != "ok")
        return TooFew(
            claim=plan.key,
            request=want.request,
            class_name=want.device_class.metadata.name,
            wanted=want.count,
            dropped=self.judge.tally(want, terrain.offers, bad),
            node=_name(terrain),
        )

    def _lacking(self, terrain: Terrain, want: Want, missing: str) -> int:
        """How many devices that come so far fail for want of the same name."""
        verdicts = (self.judge.matcher.passes(want.selectors, offer.seen) for offer in terrain.offers)
        return sum(isinstance(verdict, Failure) and verdict.missing == missing for verdict in verdicts)

    def _bad_pools(self) -> list[Refusal]:
        """Pools that could not be used, told beside the reason proper."""
        terrains = {_name(terrain): terrain for _, terrain, _ in self.claims}
        return [
            bad_pool(pool, name, "", "")
            for name, terrain in terrains.items()
            for pool in terrain.pools
            if pool.state != "ok"
        ]

    # ---- one device

    def _why(self, plan: ClaimPlan, terrain: Terrain, request: Request, view: View, offer: Offer) -> Iterable[Refusal]:
        want = view.want
        claim, name, node, device = plan.key, want.request, _name(terrain), offer.id
        match self.judge.told(want, offer):
            case "selector":
                yield self._mismatch(plan, terrain, request, view, offer)
            case "lacking":
                for capacity in sorted(set(want.capacity) - set(offer.capacity)):
                    yield CapacityMissing(claim=claim, request=name, device=device, capacity=capacity, node=node)
            case "gated":
                feature = offer.gated_early or offer.gated
                yield DeviceGated(claim=claim, request=name, device=device, feature=feature, node=node)
            case "held":
                yield Held(claim=claim, request=name, device=device, holders=offer.holders, node=node)
            case "capacity":
                yield from self._capacity(plan, want, offer, node)
            case "counters":
                yield from _counters(plan, want, offer, node)
            case "groups":
                yield from _groups(plan, want, offer, node)
            case "taint":
                found = blocker(offer.taints, want.tolerations)
                assert found is not None
                rule, taint = found
                yield Tainted(
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
        self, plan: ClaimPlan, terrain: Terrain, request: Request, view: View, offer: Offer
    ) -> SelectorFalse | SelectorError:
        verdict = self.judge.matcher.passes(view.want.selectors, offer.seen)
        if isinstance(verdict, Failure):
            return self.failure(request, view, verdict)
        assert isinstance(verdict, Selector)
        return SelectorFalse(
            claim=plan.key,
            request=view.want.request,
            class_name=verdict.class_name,
            index=verdict.index,
            text=verdict.text,
            device=offer.id,
            attributes=_read_by(verdict, offer),
            node=_name(terrain),
        )

    def _capacity(self, plan: ClaimPlan, want: Want, offer: Offer, node: str) -> Iterable[Refusal]:
        fractional = self.judge.rules.fractional
        for name, entry in offer.capacity.items():
            amount = consumption(entry, want.capacity.get(name), fractional=fractional)
            rule = violation(entry, amount, fractional=fractional)
            total = entry.value or ZERO
            left = offer.left.get(name, total.nanos)
            if rule:
                yield CapacityUnfit(
                    claim=plan.key,
                    request=want.request,
                    device=offer.id,
                    capacity=name,
                    asked=want.capacity.get(name, amount),
                    want=amount,
                    total=total,
                    rule=rule,
                    node=node,
                )
            elif amount.nanos > left:
                yield CapacityShort(
                    claim=plan.key,
                    request=want.request,
                    device=offer.id,
                    capacity=name,
                    have=Quantity(left, total.format),
                    asked=want.capacity.get(name, amount),
                    want=amount,
                    total=total,
                    node=node,
                )


def _counters(plan: ClaimPlan, want: Want, offer: Offer, node: str) -> Iterable[CounterShort]:
    book = offer.book
    assert book is not None
    for use in offer.uses:
        for counter, amount in use.amounts:
            left = book.left[use.key, counter]
            if left < amount or book.overdrawn == (use.key[2], counter):
                yield CounterShort(
                    claim=plan.key,
                    request=want.request,
                    device=offer.id,
                    counter_set=use.key[2],
                    counter=counter,
                    have=Quantity(left),
                    want=Quantity(amount),
                    frozen=left < 0,
                    node=node,
                )
                return
    if book.overdrawn is not None:
        group, counter = book.overdrawn
        key = (offer.driver, offer.id.pool, group)
        yield CounterShort(
            claim=plan.key,
            request=want.request,
            device=offer.id,
            counter_set=group,
            counter=counter,
            have=Quantity(book.left[key, counter]),
            want=ZERO,
            frozen=True,
            node=node,
        )


def _groups(plan: ClaimPlan, want: Want, offer: Offer, node: str) -> Iterable[GroupsDiffer]:
    book = offer.book
    assert book is not None
    for use in offer.uses:
        present = book.present.get(use.key)
        if present is not None and not present & (frozenset(use.groups) or frozenset({""})):
            yield GroupsDiffer(
                claim=plan.key,
                request=want.request,
                device=offer.id,
                counter_set=use.key[2],
                groups=use.groups,
                present=tuple(sorted(group for group in present if group)),
                node=node,
            )


def _read_by(selector: Selector, offer: Offer) -> tuple[tuple[str, str], ...]:
    """The attribute values of a device that a selector reads."""
    reads = selector.compiled.reads
    found = []
    for key, attribute in offer.seen.device.attributes.items():
        domain, name = split_qualified(key, offer.driver)
        if reads.attributes is None or (domain, name) in reads.attributes or (domain, None) in reads.attributes:
            found.append((f"{domain}/{name}", _text(attribute)))
    if reads.driver:
        found.append(("driver", offer.driver))
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


def bad_pool_for_all(plan: ClaimPlan, terrain: Terrain) -> Refusal | None:
    """All mode wants every pool that the node sees to be fit for use."""
    every = next((want for wants in plan.requests for want in wants if want.count == 0), None)
    if every is not None:
        for pool in terrain.pools:
            if pool.state != "ok":
                return bad_pool(pool, _name(terrain), plan.key, every.request)
    return None


def bad_pool(pool: Pool, node: str, claim: str, request: str) -> Refusal:
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
        have=pool.have,
        want=pool.want,
        node=node,
    )


def _name(terrain: Terrain) -> str:
    return terrain.node.metadata.name
