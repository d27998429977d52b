"""Why can claims not be allocated? One closed union of facts; sentences are made elsewhere (`explain.text`).

Every refusal has a stable `code`, the claim as "namespace/name", and the request as "r" or "r/subrequest". Those
of `PodWide` hold wherever the pod would go (allocation.md section 4); the others concern the node they name.
Devices are named by `DeviceId`, amounts are exact.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, TypeAlias, TypeVar, assert_never, get_args

import msgspec

from dragoman.snapshot.usage import DeviceId, Holder
from dragoman.values.quantity import Quantity


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all; `code` is the class's name."""

    code: ClassVar[str] = ""


# ---- the claim itself


class FeatureGateDisabled(Fact, frozen=True, kw_only=True):
    """The claim uses `field`, which needs a feature gate that is off."""

    code = "FeatureGateDisabled"
    claim: str
    request: str
    feature: str
    field: str


class UnsupportedRequest(Fact, frozen=True, kw_only=True):
    """A request with neither exactly nor firstAvailable."""

    code = "UnsupportedRequest"
    claim: str
    request: str


class UnsupportedMode(Fact, frozen=True, kw_only=True):
    """An allocationMode that is neither ExactCount nor All."""

    code = "UnsupportedMode"
    claim: str
    request: str
    mode: str


class ClassNotSpecified(Fact, frozen=True, kw_only=True):
    """A request that names no class."""

    code = "ClassNotSpecified"
    claim: str
    request: str


class ClassNotFound(Fact, frozen=True, kw_only=True):
    """A DeviceClass that does not exist; `near` names existing classes with similar names."""

    code = "ClassNotFound"
    claim: str
    request: str
    class_name: str
    near: tuple[str, ...] = ()


class UnsupportedSelector(Fact, frozen=True, kw_only=True):
    """A selector without a CEL expression. class_name is set where the class has it, empty for the request."""

    code = "UnsupportedSelector"
    claim: str
    request: str
    class_name: str
    index: int


class SelectorInvalid(Fact, frozen=True, kw_only=True):
    """A selector (or derived attribute, if `derived` names one) that does not compile."""

    code = "SelectorInvalid"
    claim: str
    request: str
    class_name: str
    index: int
    expression: str
    error: str
    derived: str = ""


class EmptyConstraint(Fact, frozen=True, kw_only=True):
    """A constraint with neither matchAttribute nor distinctAttribute."""

    code = "EmptyConstraint"
    claim: str
    index: int


class TooManyDevices(Fact, frozen=True, kw_only=True):
    """More devices in one claim than an allocation can hold; node is set where All makes it depend on the node."""

    code = "TooManyDevices"
    claim: str
    count: int
    limit: int
    node: str = ""


# ---- devices and pools of a node


class SelectorError(Fact, frozen=True, kw_only=True):
    """A selector that fails on a device at run time, e.g. reads an attribute that is missing.

    `attribute` (or capacity) is "domain/name" where one is missing; then `lacking` of `seen` devices lack it.
    """

    code = "SelectorError"
    claim: str
    request: str
    class_name: str
    index: int
    expression: str
    device: DeviceId
    error: str
    attribute: str = ""
    lacking: int = 0
    seen: int = 0
    node: str = ""
    derived: str = ""


class PoolIncomplete(Fact, frozen=True, kw_only=True):
    """All mode meets a pool of which `slices` of `resource_slice_count` exist at its newest generation."""

    code = "PoolIncomplete"
    claim: str
    request: str
    driver: str
    pool: str
    generation: int
    slices: int
    resource_slice_count: int
    node: str = ""


class PoolInvalid(Fact, frozen=True, kw_only=True):
    """A pool that contradicts itself. what: "duplicate device", "duplicate counter set", "unknown counter set",
    "unknown counter"; names says which. claim and request are set where All mode met it."""

    code = "PoolInvalid"
    claim: str
    request: str
    driver: str
    pool: str
    what: str
    names: tuple[str, ...]
    node: str = ""


class AllModeConstraintUnsatisfied(Fact, frozen=True, kw_only=True):
    """All mode: this device breaks a constraint of the claim, so that not all can be allocated."""

    code = "AllModeConstraintUnsatisfied"
    claim: str
    request: str
    device: DeviceId
    index: int
    attribute: str
    node: str = ""


class FilterStep(StrEnum):
    """Which step drops a device for a request; the values are the fields of Dropped."""

    SELECTOR = "selector"
    LACKING = "lacking"
    GATED = "gated"
    HELD = "held"
    CAPACITY = "capacity"
    COUNTERS = "counters"
    GROUPS = "groups"
    TAINT = "taint"


class Dropped(msgspec.Struct, frozen=True):
    """How many devices of the node each step took away from a request, in the order of the steps.

    seen: devices of usable pools. Then: bad_pool (not counted in seen), selector, lacking (without a
    requested capacity), gated (a gate that is off forbids the device), held (of those that match), capacity,
    counters, groups (compatibility groups), taint. available is what remains; constraints come on top.
    """

    seen: int = 0
    bad_pool: int = 0
    selector: int = 0
    lacking: int = 0
    gated: int = 0
    held: int = 0
    capacity: int = 0
    counters: int = 0
    groups: int = 0
    taint: int = 0
    available: int = 0

    @property
    def matched(self) -> int:
        """Devices that pass the selectors (and capacity names and gates), held or not."""
        return self.seen - self.selector - self.lacking - self.gated


class InsufficientDevices(Fact, frozen=True, kw_only=True):
    """Fewer devices available for a request than it asks for; requested 0 means all (and there is none)."""

    code = "InsufficientDevices"
    claim: str
    request: str
    class_name: str
    requested: int
    dropped: Dropped
    node: str = ""


class SelectorFalse(Fact, frozen=True, kw_only=True):
    """A selector that is false for a device; attributes are the values it read."""

    code = "SelectorFalse"
    claim: str
    request: str
    class_name: str
    index: int
    expression: str
    device: DeviceId
    attributes: tuple[tuple[str, str], ...] = ()
    node: str = ""


class DeviceInUse(Fact, frozen=True, kw_only=True):
    """A matching device that others hold."""

    code = "DeviceInUse"
    claim: str
    request: str
    device: DeviceId
    holders: tuple[Holder, ...]
    node: str = ""


class UnpublishedOverlap(Fact, frozen=True, kw_only=True):
    """A matching device that may use what `unpublished` does: a device that is held and that no slice shows any longer.

    counter_sets: sets of `device` that the other may draw on, how much is not known; empty: one is a part of the other.
    A refusal under `strict`, else a warning of an allocation.
    """

    code = "UnpublishedOverlap"
    claim: str
    request: str
    device: DeviceId
    unpublished: DeviceId
    holders: tuple[Holder, ...]
    counter_sets: tuple[str, ...] = ()
    node: str = ""


class DeviceTainted(Fact, frozen=True, kw_only=True):
    """A matching device with a taint that the request does not tolerate."""

    code = "DeviceTainted"
    claim: str
    request: str
    device: DeviceId
    key: str
    value: str
    effect: str
    rule: str = ""
    node: str = ""


class InsufficientCounter(Fact, frozen=True, kw_only=True):
    """A device draws on a counter with too little left; frozen: the pool is overdrawn on this counter."""

    code = "InsufficientCounter"
    claim: str
    request: str
    device: DeviceId
    counter_set: str
    counter: str
    available: Quantity
    requested: Quantity
    frozen: bool = False
    node: str = ""


class CompatibilityGroupConflict(Fact, frozen=True, kw_only=True):
    """A device's compatibility groups exclude it next to the present consumers of a counter set (KEP-5963)."""

    code = "CompatibilityGroupConflict"
    claim: str
    request: str
    device: DeviceId
    counter_set: str
    groups: tuple[str, ...]
    present: tuple[str, ...]
    node: str = ""


class InsufficientCapacity(Fact, frozen=True, kw_only=True):
    """A device has too little of a capacity left. consumed: `requested`, rounded by the capacity's request policy."""

    code = "InsufficientCapacity"
    claim: str
    request: str
    device: DeviceId
    capacity: str
    available: Quantity
    requested: Quantity
    consumed: Quantity
    total: Quantity
    node: str = ""


class CapacityPolicyViolated(Fact, frozen=True, kw_only=True):
    """A capacity's request policy allows no such amount; total is what the device has."""

    code = "CapacityPolicyViolated"
    claim: str
    request: str
    device: DeviceId
    capacity: str
    requested: Quantity
    consumed: Quantity
    total: Quantity
    rule: str
    node: str = ""


class CapacityNotFound(Fact, frozen=True, kw_only=True):
    """A device does not have the requested capacity."""

    code = "CapacityNotFound"
    claim: str
    request: str
    device: DeviceId
    capacity: str
    node: str = ""


class DeviceFeatureGateDisabled(Fact, frozen=True, kw_only=True):
    """A device that cannot be used because a feature gate is off."""

    code = "DeviceFeatureGateDisabled"
    claim: str
    request: str
    device: DeviceId
    feature: str
    node: str = ""


class ConstraintUnsatisfied(Fact, frozen=True, kw_only=True):
    """No choice meets a constraint. kind: match or distinct. values: (value, how many usable devices have it);
    missing: usable devices without the attribute. requested: devices that the constraint spans."""

    code = "ConstraintUnsatisfied"
    claim: str
    index: int
    kind: str
    attribute: str
    requests: tuple[str, ...]
    requested: int
    values: tuple[tuple[str, int], ...]
    missing: int
    node: str = ""


class RequestsContended(Fact, frozen=True, kw_only=True):
    """Requests that fit alone but not together: `requested` devices together, of which `available` are left."""

    code = "RequestsContended"
    requests: tuple[tuple[str, str], ...]
    requested: int
    available: int
    node: str = ""


class NoCombination(Fact, frozen=True, kw_only=True):
    """The search is exhausted: there is no combination on this node, and no simpler reason was found."""

    code = "NoCombination"
    claims: tuple[str, ...]
    steps: int
    node: str = ""


class AllocatedElsewhere(Fact, frozen=True, kw_only=True):
    """A claim of the unit is (or was just) allocated where this node cannot reach it."""

    code = "AllocatedElsewhere"
    claim: str
    node: str


class NodeNotFound(Fact, frozen=True, kw_only=True):
    """The node does not exist."""

    code = "NodeNotFound"
    node: str


class MultipleSelectorTerms(Fact, frozen=True, kw_only=True):
    """A device's node selector has several terms, which an allocation cannot express."""

    code = "MultipleSelectorTerms"
    claim: str
    device: DeviceId
    terms: int
    node: str = ""


PodWide: TypeAlias = (
    FeatureGateDisabled
    | UnsupportedRequest
    | UnsupportedMode
    | ClassNotSpecified
    | ClassNotFound
    | UnsupportedSelector
    | SelectorInvalid
    | EmptyConstraint
    | TooManyDevices
)
NodeLocal: TypeAlias = (
    SelectorError
    | PoolIncomplete
    | PoolInvalid
    | AllModeConstraintUnsatisfied
    | TooManyDevices
    | InsufficientDevices
    | SelectorFalse
    | DeviceInUse
    | UnpublishedOverlap
    | DeviceTainted
    | InsufficientCounter
    | CompatibilityGroupConflict
    | InsufficientCapacity
    | CapacityPolicyViolated
    | CapacityNotFound
    | DeviceFeatureGateDisabled
    | ConstraintUnsatisfied
    | RequestsContended
    | NoCombination
    | AllocatedElsewhere
    | NodeNotFound
    | MultipleSelectorTerms
)
Refusal: TypeAlias = PodWide | NodeLocal


def is_pod_wide(reason: object) -> bool:
    """Whether a reason holds wherever the pod would go."""
    return isinstance(reason, get_args(PodWide)) and not getattr(reason, "node", "")


class Refusals(msgspec.Struct, frozen=True):
    """A "no": the reasons, the decisive one first. pod_wide: no node can help."""

    reasons: tuple[Refusal, ...]
    pod_wide: bool = False
    steps: int = 0


class SearchLimitReached(Fact, frozen=True, kw_only=True):
    """Not decided within the limit of search steps. This is not a no."""

    code = "SearchLimitReached"
    claims: tuple[str, ...]
    steps: int
    node: str = ""


class Undecided(msgspec.Struct, frozen=True):
    """Neither a yes nor a no: the search stopped. Try again with more steps; starts no preemption and no hint."""

    limit: SearchLimitReached

    @property
    def steps(self) -> int:
        """Steps until it stopped."""
        return self.limit.steps


_OutcomeT = TypeVar("_OutcomeT", Refusals, Undecided)


def renamed_in(outcome: _OutcomeT, names: dict[str, str]) -> _OutcomeT:
    """The same for claims of other names; names: old to new."""
    if not names:
        return outcome
    match outcome:
        case Refusals(reasons):
            return msgspec.structs.replace(outcome, reasons=tuple(_renamed(reason, names) for reason in reasons))
        case Undecided(limit):
            claims = tuple(names.get(claim, claim) for claim in limit.claims)
            return msgspec.structs.replace(outcome, limit=msgspec.structs.replace(limit, claims=claims))
        case _ as never:
            assert_never(never)


def _renamed(reason: Refusal, names: dict[str, str]) -> Refusal:
    if isinstance(reason, RequestsContended):
        return msgspec.structs.replace(reason, requests=tuple((names.get(c, c), r) for c, r in reason.requests))
    if isinstance(reason, NoCombination):
        return msgspec.structs.replace(reason, claims=tuple(names.get(claim, claim) for claim in reason.claims))
    if isinstance(reason, NodeNotFound) or not reason.claim:
        return reason
    return msgspec.structs.replace(reason, claim=names.get(reason.claim, reason.claim))
