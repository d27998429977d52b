"""Which devices do these claims get on this node? The door of `dragoman.allocate`: callers import only this.

    options = Options()                        # gates of 1.37, first-fit, 20,000 steps
    answer = allocate(snapshot, [Ask((claim,), "node-a")], options, share_id=entropy.uid)
    match answer:
        case Allocation(): answer.results[0][0]   # AllocationResult of the first ask's first claim
        case Refusals():   answer.reasons         # why not, the decisive reason first
        case Undecided():  answer.limit.steps     # neither: the search reached its limit

Never writes: the caller commits `status.allocation`, adds allocationTimestamp and reservations. Never draws ids:
`share_id` is called once for each share of a device that allows several allocations. Semantics: KEP-4381,
KEP-4816, KEP-4815, KEP-5075, KEP-5007, KEP-5055, KEP-5491, KEP-5963, KEP-6080; docs/reference/allocation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, assert_never

import msgspec

from dragoman.allocate.assemble import allocation_of
from dragoman.allocate.candidates import DeviceFilter
from dragoman.allocate.decide import (
    AllocationUnit,
    Decider,
    Planned,
    Solution,
    chosen_of,
    overlaps_of,
    settled,
    unit_of,
)
from dragoman.allocate.device_state import DeviceState
from dragoman.allocate.equivalence import (
    AllocationCache,
    ClaimSignature,
    ClassOutcome,
    NodeClassGroup,
    NodePartition,
    shape_of,
)
from dragoman.allocate.fragmentation import Demand, FreeResources, TaskType
from dragoman.allocate.match import Matcher
from dragoman.allocate.policy import NodeChange, Policy, Weight, policy_of
from dragoman.allocate.refusal import FilterStep, Refusal, Refusals, Undecided, UnpublishedOverlap, renamed_in
from dragoman.allocate.remaining import ConsumedDevice, ConsumedOnNode, consumed_by
from dragoman.allocate.slots import ClaimPlan, RequestPlan, key_of, plan_claims, rules_of
from dragoman.allocate.task_history import TaskHistory
from dragoman.allocate.values import Allocation, Ask, ChosenAlternative
from dragoman.allocate.verify import verify
from dragoman.api.codec import to_bytes
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.resource import Device, ResourceClaim
from dragoman.errors import Bug
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import DeviceId

__all__ = [
    "OPTIONS",
    "Allocation",
    "AllocationCache",
    "AllocatorOptions",
    "Ask",
    "ChosenAlternative",
    "Demand",
    "DeviceInspection",
    "FreeResources",
    "NodeChange",
    "NodeClass",
    "Policy",
    "RequestInspection",
    "SearchLimits",
    "Supply",
    "Survey",
    "TaskHistory",
    "TaskType",
    "Weight",
    "allocate",
    "diagnose",
    "inspect_claims",
    "policy_of",
    "survey",
]


class SearchLimits(msgspec.Struct, frozen=True):
    """search_steps: steps of one search before SearchLimitReached; retry with ten times as many, up to 2,000,000."""

    search_steps: int = 20_000


class AllocatorOptions(msgspec.Struct, frozen=True):
    """How to decide. policy: "first-fit" (upstream's choice device by device), "pack", or one of your own (rank.py).

    strict: refuses devices that may use what a held device does which is no longer published; else that is a warning.
    """

    gates: Gates = DEFAULTS
    policy: str | Policy = "first-fit"
    limits: SearchLimits = SearchLimits()
    demand: Demand = Demand()
    strict: bool = False


OPTIONS = AllocatorOptions()


class Supply(NamedTuple):
    """Of a node's resource: what is free before a pod comes, and what it asks for."""

    free: int
    asked: int


class NodeClass:
    """Nodes that are equivalent for these claims, sorted by name. fits: whether they can have devices there.

    Valid as long as the Memory has not followed another snapshot: `nodes` is its list, not a copy.
    """

    __slots__ = ("_outcome", "_shape", "_surveyor", "fits", "nodes")

    def __init__(self, nodes: Sequence[str], surveyor: _Surveyor, shape: ClaimSignature, outcome: ClassOutcome) -> None:
        self.nodes = nodes
        self.fits = outcome.refusals is None
        self._surveyor = surveyor
        self._shape = shape
        self._outcome = outcome

    def rank(self, cpu: Supply | None = None, memory: Supply | None = None) -> Weight:
        """What the policy thinks of a pod's place here, least is best; empty if it has no say.

        cpu, memory: the node's free amount and what the pod asks of it; None: no limit.
        """
        rank, found = self._surveyor.policy.rank, self._outcome.consumed
        if rank is None or found is None:
            return ()
        before = FreeResources(found.before, cpu and cpu.free, memory and memory.free)
        after = FreeResources(found.after, cpu and cpu.free - cpu.asked, memory and memory.free - memory.asked)
        return rank(NodeChange(before, after), self._surveyor.options.demand)

    def kind(self, cpu: int, memory: int) -> TaskType | None:
        """The pod as a kind of task to expect again, asking so much of the node; None if the policy does not learn."""
        found = self._outcome.consumed
        return None if found is None else msgspec.structs.replace(found.kind, cpu=cpu, memory=memory)

    @property
    def chosen(self) -> tuple[ChosenAlternative, ...]:
        """The alternatives of firstAvailable requests that were chosen."""
        return self._surveyor.chosen(self._shape, self._outcome)

    @property
    def refusals(self) -> Refusals | Undecided | None:
        """Why not, or that it is not decided; the facts are those of the first node of the class."""
        return self._surveyor.refusals(self._shape, self._outcome)

    def allocation_on(self, node: str, share_id: Callable[[], str]) -> Allocation:
        """One node's own results. Raises Bug if the class does not fit."""
        return self._surveyor.allocation(self._shape, self._outcome, node, share_id)


class Survey(msgspec.Struct, frozen=True, eq=False):
    """What holds on every node that was asked for, one entry a class of equivalent nodes, by first name."""

    classes: tuple[NodeClass, ...]


def allocate(
    snapshot: Snapshot,
    asks: Sequence[Ask],
    options: AllocatorOptions = OPTIONS,
    *,
    share_id: Callable[[], str],
    matcher: Matcher | None = None,
) -> Allocation | Refusals | Undecided:
    """Devices for all asks together, or why not, or neither within the limit of steps.

    One ledger spans all of them (a gang is several asks). All or nothing. A claim of several asks (shared by
    pods of a gang) is allocated for the first; the others must be on nodes that its allocation reaches. The hot path
    keeps one cause; `diagnose` gives all. matcher: keeps what it finds out, and may end the work with OutOfTime.
    """
    device_filter = _device_filter(options, matcher or Matcher())
    unit = unit_of(snapshot, asks, device_filter.rules)
    if isinstance(unit, Refusals):
        return unit
    solution = Decider(snapshot, device_filter, options.limits.search_steps).decide(unit)
    if not isinstance(solution, Solution):
        return solution
    allocation = settled(unit, solution, device_filter.rules, share_id)
    _check(snapshot, asks, allocation, options)
    return allocation


def survey(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    options: AllocatorOptions = OPTIONS,
    *,
    nodes: Iterable[str] | None = None,
    memory: AllocationCache | None = None,
) -> Survey | Refusals:
    """The same question for many nodes (None: all), one search a class of equivalent nodes.

    Refusals: no node can help. Pick a node of a class with `fits`, then `node_class.allocation_on(node, share_id)`.
    Give the same Memory for each snapshot of a line, then a question costs what changed since the last one.
    """
    return _Surveyor(snapshot, tuple(claims), options, memory if memory is not None else AllocationCache()).survey(
        nodes
    )


class _Surveyor:
    def __init__(
        self, snapshot: Snapshot, claims: tuple[ResourceClaim, ...], options: AllocatorOptions, memory: AllocationCache
    ) -> None:
        self.snapshot = snapshot
        self.claims = claims
        self.options = options
        self.memory = memory
        device_filter = _device_filter(options, memory.matcher)
        self.rules = device_filter.rules
        self.policy = device_filter.policy
        self.decider = Decider(snapshot, device_filter, options.limits.search_steps)

    def survey(self, nodes: Iterable[str] | None) -> Survey | Refusals:
        memory, snapshot = self.memory, self.snapshot
        memory.follow(snapshot)
        key = (to_bytes([claim.spec for claim in self.claims]), self.options)
        shape = memory.shape(key, snapshot)
        if shape is None:
            plans = plan_claims(self.claims, snapshot, self.rules)
            if not isinstance(plans, list):
                return Refusals((plans,), pod_wide=True)
            shape = shape_of(plans, self.policy.reads)
            memory.keep_shape(key, shape)
        partition = memory.partition(snapshot, shape.attributes)
        classes = []
        for group, names in _groups(partition, nodes):
            outcome = memory.outcome(key, group, snapshot)
            if outcome is None:
                outcome = self._find(shape, group.names[0])
                memory.keep_outcome(key, group, outcome)
            classes.append(NodeClass(names, self, shape, outcome))
        return Survey(tuple(sorted(classes, key=lambda found: found.nodes[0])))

    def _unit(self, shape: ClaimSignature, node: str) -> AllocationUnit:
        found = self.snapshot.nodes[node]
        planned = tuple(Planned(plan, 0, found, ()) for plan in shape.plans)
        return AllocationUnit((Ask(self.claims, node),), planned, (tuple(range(len(planned))),))

    def _find(self, shape: ClaimSignature, node: str) -> ClassOutcome:
        """Decides for one node of a class."""
        unit = self._unit(shape, node)
        solution = self.decider.decide(unit)
        wide = self.snapshot.wide_state
        if not isinstance(solution, Solution):
            return ClassOutcome(node, (), (), (), (), solution, solution.steps, None, wide)
        return ClassOutcome(
            node,
            tuple(tuple(request_plans) for request_plans in solution.chosen),
            tuple(
                tuple((request_plan, candidate.device_state.position) for request_plan, candidate in picks)
                for picks in solution.picks
            ),
            chosen_of(unit, solution),
            solution.warnings,
            None,
            solution.steps,
            self._consumed(node, solution),
            wide,
        )

    def _consumed(self, node: str, solution: Solution) -> ConsumedOnNode | None:
        if self.policy.rank is None:
            return None
        picks = [
            ConsumedDevice(candidate.device_state, candidate.amounts)
            for picks in solution.picks
            for request_plan, candidate in picks
            if not request_plan.admin
        ]
        return consumed_by(self.decider.node_devices(self.snapshot.nodes[node]).device_states, picks)

    def names(self, shape: ClaimSignature) -> dict[str, str]:
        """The claims of the shape's plans (old) and those asked for (new), where they differ."""
        pairs = ((plan.key, key_of(claim)) for plan, claim in zip(shape.plans, self.claims, strict=True))
        return {old: new for old, new in pairs if old != new}

    def refusals(self, shape: ClaimSignature, outcome: ClassOutcome) -> Refusals | Undecided | None:
        """The outcome's refusals for the claims asked for."""
        match outcome.refusals:
            case Refusals() as refusals:
                return renamed_in(refusals, self.names(shape))
            case Undecided() as undecided:
                return renamed_in(undecided, self.names(shape))
            case None:
                return None
            case _ as never:
                assert_never(never)

    def chosen(self, shape: ClaimSignature, outcome: ClassOutcome) -> tuple[ChosenAlternative, ...]:
        """The outcome's alternatives for the claims asked for."""
        if not outcome.alternatives:
            return ()
        keys = self.names(shape)
        return tuple(msgspec.structs.replace(c, claim=keys.get(c.claim, c.claim)) for c in outcome.alternatives)

    def allocation(
        self, shape: ClaimSignature, outcome: ClassOutcome, node: str, share_id: Callable[[], str]
    ) -> Allocation:
        """The outcome of the class in terms of one of its nodes."""
        if outcome.refusals is not None:
            raise Bug(f"claims were refused on node {node}: there is no allocation to ask for")
        device_states = self.decider.node_devices(self.snapshot.nodes[node]).device_states
        results = []
        overlapping: list[UnpublishedOverlap] = []
        for plan, request_plans, picks in zip(shape.plans, outcome.chosen, outcome.picks, strict=True):
            picked = [
                (request_plan, self.decider.device_filter.candidate(request_plan, device_states[position]))
                for request_plan, position in picks
            ]
            results.append(allocation_of(plan, request_plans, picked, node, self.rules, share_id))
            overlapping += overlaps_of(plan.key, node, picked)
        warnings = renamed_in(Refusals((*outcome.warnings, *overlapping)), self.names(shape)).reasons
        allocation = Allocation((tuple(results),), self.chosen(shape, outcome), warnings, outcome.steps)
        _check(self.snapshot, (Ask(self.claims, node),), allocation, self.options)
        return allocation


def _groups(partition: NodePartition, nodes: Iterable[str] | None) -> Iterable[tuple[NodeClassGroup, Sequence[str]]]:
    if nodes is None:
        for group in partition.groups.values():
            yield group, group.names
        return
    some: dict[NodeClassGroup, list[str]] = {}
    for name in nodes:
        found = partition.of.get(name)
        if found is not None:
            some.setdefault(found, []).append(name)
    for group, names in some.items():
        yield group, sorted(names)


def _device_filter(options: AllocatorOptions, matcher: Matcher) -> DeviceFilter:
    return DeviceFilter(
        rules_of(options.gates, strict=options.strict), matcher, policy_of(options.policy), options.demand
    )


def _check(snapshot: Snapshot, asks: Sequence[Ask], allocation: Allocation, options: AllocatorOptions) -> None:
    wrong = verify(snapshot, asks, allocation, options.gates)
    if wrong:
        first = wrong[0]
        raise Bug(f"the allocator's choice is wrong: {first.rule}, claim {first.claim}: {first.detail}")


class DeviceInspection(msgspec.Struct, frozen=True, eq=False):
    """A device in the light of a request. step: which step drops it None if it is usable.

    values: of the attributes that the request's constraints name, as text; None where the device has none.
    counters: (set, counter, drawn, left, published) in nano-units each.
    """

    id: DeviceId
    device: Device
    step: FilterStep | None
    values: dict[str, str | None]
    counters: tuple[tuple[str, str, int, int, int], ...]


class RequestInspection(msgspec.Struct, frozen=True, eq=False):
    """A request (or alternative) on a node with all devices there. wanted 0: all that match."""

    claim: str
    request: str
    parent: str
    class_name: str
    wanted: int
    constraints: tuple[int, ...]
    devices: tuple[DeviceInspection, ...]

    @property
    def usable(self) -> tuple[DeviceInspection, ...]:
        """Devices that nothing but constraints and the other requests keeps away."""
        return tuple(device for device in self.devices if not device.step)


def inspect_claims(
    snapshot: Snapshot, ask: Ask, options: AllocatorOptions = OPTIONS
) -> tuple[RequestInspection, ...] | Refusals:
    """Every request of an ask with every device of its node, for counting; Refusals: the claims cannot be read."""
    device_filter = _device_filter(options, Matcher())
    unit = unit_of(snapshot, [ask], device_filter.rules)
    if isinstance(unit, Refusals):
        return unit
    decider = Decider(snapshot, device_filter, options.limits.search_steps)
    return tuple(
        RequestInspection(
            planned.plan.key,
            request_plan.request,
            request_plan.parent,
            request_plan.device_class.metadata.name,
            request_plan.count,
            request_plan.constraints,
            tuple(
                _inspected(device_filter, planned.plan, request_plan, device_state)
                for device_state in decider.node_devices(planned.node).device_states
            ),
        )
        for planned in unit.claims
        for request_plans in planned.plan.requests
        for request_plan in request_plans
    )


def _inspected(
    device_filter: DeviceFilter, plan: ClaimPlan, request_plan: RequestPlan, device_state: DeviceState
) -> DeviceInspection:
    values: dict[str, str | None] = {}
    for index in request_plan.constraints:
        attribute = plan.constraints[index].attribute
        token = device_filter.token(request_plan, device_state, attribute)
        known = token if isinstance(token, frozenset) else None
        values[attribute] = None if known is None else ", ".join(str(value) for _, value in sorted(known, key=str))
    book = device_state.book
    counters = tuple(
        (use.key[2], name, amount, book.left[use.key, name], book.published[use.key, name])
        for use in device_state.uses
        if book is not None
        for name, amount in use.amounts
    )
    return DeviceInspection(
        device_state.id, device_state.seen.device, device_filter.reported(request_plan, device_state), values, counters
    )


def diagnose(snapshot: Snapshot, ask: Ask, options: AllocatorOptions = OPTIONS) -> tuple[Refusal, ...]:
    """All facts about why an ask is refused on its node: every request, every device that matches or nearly does.

    Slower than `allocate`, for when somebody asks. The decisive reasons come first, then for every request how many
    devices each step drops (InsufficientDevices, also where there are enough) and why each device is dropped. (): the
    ask is not refused. Of a search that stopped, the facts about devices alone.
    """
    device_filter = _device_filter(options, Matcher())
    unit = unit_of(snapshot, [ask], device_filter.rules)
    if isinstance(unit, Refusals):
        return unit.reasons
    decider = Decider(snapshot, device_filter, options.limits.search_steps)
    solution = decider.decide(unit)
    if isinstance(solution, Solution):
        return ()
    decisive = solution.reasons if isinstance(solution, Refusals) else ()
    return (*decisive, *(fact for fact in decider.diagnosis(unit) if fact not in decisive))
