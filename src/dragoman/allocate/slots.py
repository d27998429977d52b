"""What exactly do the claims ask for? Claims and gates in, request plans or a refusal of the whole pod out.

The only place where a claim's optional fields and the feature gates are looked at; behind it nobody asks again.
Never looks at a device.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dragoman.allocate.match import compile_derived, compile_text
from dragoman.allocate.refusal import (
    ClassNotFound,
    ClassNotSpecified,
    EmptyConstraint,
    FeatureGateDisabled,
    PodWide,
    SelectorInvalid,
    TooManyDevices,
    UnsupportedMode,
    UnsupportedRequest,
    UnsupportedSelector,
)
from dragoman.api.gates import Gates
from dragoman.api.resource import (
    ALL,
    EXACT_COUNT,
    DerivedAttribute,
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from dragoman.api.selectors import Selector as Compiled
from dragoman.cel.expression import Expression
from dragoman.snapshot.change import Snapshot
from dragoman.values.quantity import Quantity

MAX_RESULTS = 32
"""Devices that one claim's allocation can hold (AllocationResultsMaxSize)."""


class Rules(NamedTuple):
    """What the gates allow, read once at the door. strict: nothing is given that an unpublished held device may use."""

    admin: bool
    prioritized: bool
    counters: bool
    groups: bool
    taints: bool
    taint_rules: bool
    binding: bool
    shares: bool
    fractional: bool
    lists: bool
    derived: bool
    skip_operations: bool
    strict: bool = False


def rules_of(gates: Gates, *, strict: bool = False) -> Rules:
    """The gates as the allocator names them."""
    return Rules(
        admin=gates.on("DRAAdminAccess"),
        prioritized=gates.on("DRAPrioritizedList"),
        counters=gates.on("DRAPartitionableDevices"),
        groups=gates.on("DRADeviceCompatibilityGroups"),
        taints=gates.on("DRADeviceTaints"),
        taint_rules=gates.on("DRADeviceTaintRules"),
        binding=gates.on("DRADeviceBindingConditions") and gates.on("DRAResourceClaimDeviceStatus"),
        shares=gates.on("DRAConsumableCapacity"),
        fractional=gates.on("DRAFractionalCapacityRange"),
        lists=gates.on("DRAListTypeAttributes"),
        derived=gates.on("DRADerivedAttributes"),
        skip_operations=gates.on("DRAOptionalNodeOperations"),
        strict=strict,
    )


class RequestSelector(msgspec.Struct, frozen=True, eq=False):
    """A compiled selector and where it stands; class_name is empty for the request's own."""

    class_name: str
    index: int
    text: str
    compiled: Compiled


class Derived(NamedTuple):
    """A derived attribute: fully qualified name (or bare), expression text, compiled expression."""

    name: str
    text: str
    compiled: Expression


class RequestPlan(msgspec.Struct, frozen=True, eq=False):
    """One way to satisfy a request. count 0: all that match. constraints: indexes of those that concern it.

    request is "r" or "r/sub"; option is its index in firstAvailable, -1 for exactly.
    """

    request: str
    parent: str
    option: int
    device_class: DeviceClass
    selectors: tuple[RequestSelector, ...]
    count: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: dict[str, Quantity]
    derived: tuple[Derived, ...]
    constraints: tuple[int, ...]


class Constraint(msgspec.Struct, frozen=True):
    """kind: "match" or "distinct"; attribute is "domain/name"; requests as in the claim."""

    index: int
    kind: str
    attribute: str
    requests: tuple[str, ...]


class ClaimPlan(msgspec.Struct, frozen=True, eq=False):
    """A claim in plain terms: one tuple of plans a request, alternatives in order."""

    claim: ResourceClaim
    key: str
    requests: tuple[tuple[RequestPlan, ...], ...]
    constraints: tuple[Constraint, ...]


def plan_claim(claim: ResourceClaim, snapshot: Snapshot, rules: Rules) -> ClaimPlan | PodWide:
    """A claim in plain terms, or the first thing that is wrong with it."""
    return _Reader(claim, snapshot, rules).read()


def key_of(claim: ResourceClaim) -> str:
    """namespace/name, or the name alone without a namespace."""
    meta = claim.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class _Refused(Exception):
    """Carries a refusal out of the reader; never leaves this module."""

    def __init__(self, refusal: PodWide) -> None:
        super().__init__()
        self.refusal = refusal


class _Reader:
    def __init__(self, claim: ResourceClaim, snapshot: Snapshot, rules: Rules) -> None:
        self.claim = claim
        self.key = key_of(claim)
        self.snapshot = snapshot
        self.rules = rules

    def read(self) -> ClaimPlan | PodWide:
        try:
            requests = tuple(self._requests())
            least = sum(min(request_plan.count for request_plan in request_plans) for request_plans in requests)
            if least > MAX_RESULTS:
                raise _Refused(TooManyDevices(claim=self.key, count=least, limit=MAX_RESULTS))
            return ClaimPlan(self.claim, self.key, requests, tuple(self._constraints()))
        except _Refused as refused:
            return refused.refusal

    def _constraints(self) -> list[Constraint]:
        found = []
        for index, constraint in enumerate(self.claim.spec.devices.constraints):
            if constraint.match_attribute:
                found.append(Constraint(index, "match", constraint.match_attribute, constraint.requests))
            elif constraint.distinct_attribute:
                if not self.rules.shares:
                    raise self._off("", "DRAConsumableCapacity", f"constraints[{index}].distinctAttribute")
                found.append(Constraint(index, "distinct", constraint.distinct_attribute, constraint.requests))
            else:
                raise _Refused(EmptyConstraint(claim=self.key, index=index))
        return found

    def _requests(self) -> list[tuple[RequestPlan, ...]]:
        found: list[tuple[RequestPlan, ...]] = []
        for request in self.claim.spec.devices.requests:
            if request.first_available:
                if not self.rules.prioritized:
                    raise self._off(request.name, "DRAPrioritizedList", "firstAvailable")
                found.append(
                    tuple(
                        self._request_plan(f"{request.name}/{sub.name}", request.name, option, sub, admin=None)
                        for option, sub in enumerate(request.first_available)
                    )
                )
            elif request.exactly is not None:
                exactly = request.exactly
                found.append((self._request_plan(request.name, request.name, -1, exactly, admin=exactly.admin_access),))
            else:
                raise _Refused(UnsupportedRequest(claim=self.key, request=request.name))
        return found

    def _request_plan(
        self, name: str, parent: str, option: int, asked: ExactDeviceRequest | DeviceSubRequest, *, admin: bool | None
    ) -> RequestPlan:
        rules = self.rules
        if asked.capacity is not None and asked.capacity.requests and not rules.shares:
            raise self._off(name, "DRAConsumableCapacity", "capacity")
        own = [self._selector(name, "", i, selector) for i, selector in enumerate(asked.selectors)]
        if admin is not None and not rules.admin:
            raise self._off(name, "DRAAdminAccess", "adminAccess")
        if asked.derived_attributes and not rules.derived:
            raise self._off(name, "DRADerivedAttributes", "derivedAttributes")
        device_class = self._class(name, asked.device_class_name)
        of_class = [
            self._selector(name, asked.device_class_name, i, selector)
            for i, selector in enumerate(device_class.spec.selectors)
        ]
        mode = asked.allocation_mode or EXACT_COUNT
        if mode not in (EXACT_COUNT, ALL):
            raise _Refused(UnsupportedMode(claim=self.key, request=name, mode=mode))
        return RequestPlan(
            request=name,
            parent=parent,
            option=option,
            device_class=device_class,
            selectors=(*of_class, *own),
            count=0 if mode == ALL else max(asked.count, 1),
            admin=bool(admin),
            tolerations=asked.tolerations,
            capacity=asked.capacity.requests if asked.capacity is not None else {},
            derived=tuple(self._derived(name, i, derived) for i, derived in enumerate(asked.derived_attributes)),
            constraints=tuple(
                index
                for index, constraint in enumerate(self.claim.spec.devices.constraints)
                if not constraint.requests or parent in constraint.requests or name in constraint.requests
            ),
        )

    def _class(self, request: str, name: str) -> DeviceClass:
        if not name:
            raise _Refused(ClassNotSpecified(claim=self.key, request=request))
        found = self.snapshot.classes.get(name)
        if found is None:
            near = difflib.get_close_matches(name, sorted(self.snapshot.classes), n=3)
            raise _Refused(ClassNotFound(claim=self.key, request=request, class_name=name, near=tuple(near)))
        return found

    def _selector(self, request: str, class_name: str, index: int, selector: DeviceSelector) -> RequestSelector:
        if selector.cel is None:
            raise _Refused(UnsupportedSelector(claim=self.key, request=request, class_name=class_name, index=index))
        text = selector.cel.expression
        compiled = compile_text(text)
        if isinstance(compiled, str):
            raise _Refused(
                SelectorInvalid(
                    claim=self.key, request=request, class_name=class_name, index=index, expression=text, error=compiled
                )
            )
        return RequestSelector(class_name, index, text, compiled)

    def _derived(self, request: str, index: int, derived: DerivedAttribute) -> Derived:
        compiled = compile_derived(derived.expression)
        if isinstance(compiled, str):
            raise _Refused(
                SelectorInvalid(
                    claim=self.key,
                    request=request,
                    class_name="",
                    index=index,
                    expression=derived.expression,
                    error=compiled,
                    derived=derived.name,
                )
            )
        return Derived(derived.name, derived.expression, compiled)

    def _off(self, request: str, feature: str, field: str) -> _Refused:
        return _Refused(FeatureGateDisabled(claim=self.key, request=request, feature=feature, field=field))


def plan_claims(claims: Sequence[ResourceClaim], snapshot: Snapshot, rules: Rules) -> list[ClaimPlan] | PodWide:
    """All claims in plain terms, or the first thing that is wrong with one of them."""
    plans = []
    for claim in claims:
        plan = plan_claim(claim, snapshot, rules)
        if not isinstance(plan, ClaimPlan):
            return plan
        plans.append(plan)
    return plans
