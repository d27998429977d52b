"""Which changes might make a refused pod fit? Guesses from the facts of the refusal, by cost; most are wrong.

The order of cost: wait, change the own claim or pod, tolerate, another class, move a pod, remove a pod, add a node.
Never verifies; `explain.hints` shows none that it has not seen to work.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from dragoman.allocate import refusal
from dragoman.allocate.allocator import Allocation, Ask, allocate
from dragoman.allocate.policy import TOPOLOGY
from dragoman.allocate.refusal import Refusal
from dragoman.api.core import Container, Node, Pod, Toleration
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import (
    ALL,
    CapacityRequirements,
    Device,
    DeviceClass,
    DeviceToleration,
    ResourceClaim,
)
from dragoman.explain.closest import claims_on
from dragoman.explain.edits import (
    Asked,
    RequestEdit,
    asked_of,
    changed,
    constrained_by,
    counted,
    edited,
    selectors_with,
    unconstrained,
    without_request,
)
from dragoman.explain.focus import claims_used, released
from dragoman.explain.hint_changes import (
    AddNode,
    ChangeCapacity,
    ChangeClassSelector,
    ChangeConstraint,
    ChangeCount,
    ChangeResources,
    ChangeSelector,
    CorrectSliceCount,
    Cost,
    DeviceMove,
    DropConstraint,
    DropNodeSelector,
    DropRequest,
    MoveDevices,
    MovePod,
    OtherClass,
    PodPriority,
    RemoveClaim,
    RemoveGates,
    RemovePods,
    SingleChange,
    TolerateDeviceTaint,
    ToleratedTaint,
    TolerateNodeTaint,
    Uncordon,
    WaitForPods,
    WaitForPool,
)
from dragoman.explain.relax import corrected, weaker
from dragoman.schedule import refusal as schedule
from dragoman.schedule.decision import AnyReason
from dragoman.schedule.extended import SPECIAL_NAME
from dragoman.schedule.units import SchedulingContext, priority_of
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply_all, keys_of
from dragoman.snapshot.usage import DeviceId, Holder, is_finished
from dragoman.values.quantity import Quantity
from dragoman.whatif.changes import free_name, node_like
from dragoman.whatif.pods import without_pods

PCIE_ROOT, NUMA_NODE = TOPOLOGY
HOLDERS_MAX = 12
CLASSES_MAX = 8
TOGETHER_MAX = 4
"""Pods that may have to go together."""


_OfRequest: TypeAlias = ChangeSelector | ChangeCount | ChangeCapacity | TolerateDeviceTaint


class RefusingNode(msgspec.Struct, frozen=True):
    """A node that refuses the pod: the node's reasons, and all facts about its devices."""

    node: str
    reasons: tuple[AnyReason, ...]
    diagnosis: tuple[Refusal, ...]


class Proposal(msgspec.Struct, frozen=True, eq=False):
    """A change as it is on a snapshot: what to say of it, and what it changes there."""

    change: SingleChange
    changes: tuple[Change, ...]


class HintCandidate(msgspec.Struct, frozen=True, eq=False):
    """A change that may help. make: what it is on a snapshot, None if it cannot be made there.

    topic: of several that concern the same thing only the first that works is reported. node: judge it there ("" on the
    whole cluster). place: the node that the pod would go to, where it is another one. pod: the one that makes room;
    a RemovePods becomes a MovePod where that one fits elsewhere, and a MovePod is nothing where it does not.
    """

    kind: type[SingleChange]
    topic: str
    make: Callable[[Snapshot], Proposal | None]
    node: str = ""
    place: str = ""
    pod: NamespacedName | None = None

    @property
    def cost(self) -> Cost:
        """What it takes of people."""
        return self.kind.cost


_Make: TypeAlias = Callable[[Snapshot], tuple[Change, ...] | None]


def _candidate(change: SingleChange, topic: str, make: _Make, node: str = "", place: str = "") -> HintCandidate:
    """A candidate that is the same on every snapshot."""

    def proposed(base: Snapshot) -> Proposal | None:
        changes = make(base)
        return Proposal(change, changes) if changes is not None else None

    return HintCandidate(type(change), topic, proposed, node, place)


def of(
    snapshot: Snapshot,
    key: NamespacedName,
    reasons: Sequence[AnyReason],
    places: Sequence[RefusingNode],
    now: datetime,
    context: SchedulingContext,
) -> Iterator[HintCandidate]:
    """All candidates, in no particular order but each kind's best first. reasons: those that hold on every node."""
    pod = snapshot.pods[key]
    yield from _of_gates(pod)
    yield from _wrong_class(snapshot, key, reasons)
    if not places:
        return
    for place in places:
        yield from _Of(snapshot, pod, place, now, context).all()
    shapes: set[Any] = set()
    for place in places:
        view = snapshot.views.get(place.node)
        shape = tuple(part.common for part in view.shapes) if view is not None else None
        if shape not in shapes:
            shapes.add(shape)
            yield _one_more(snapshot, place.node)


def _wrong_class(snapshot: Snapshot, key: NamespacedName, reasons: Sequence[AnyReason]) -> Iterator[HintCandidate]:
    """A class that exists instead of one that does not."""
    pod = snapshot.pods[key]
    for reason in reasons:
        match reason:
            case refusal.ClassNotFound():
                claim, request, name = reason.claim.rpartition("/")[2], reason.request, reason.class_name
            case _:
                continue
        found = snapshot.claims.get((pod.metadata.namespace, claim))
        if found is not None:
            yield from _classes(snapshot, found, request, name, "")


def _of_gates(pod: Pod) -> Iterator[HintCandidate]:
    gates = tuple(gate.name for gate in pod.spec.scheduling_gates)
    if gates:
        open_ = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=()))
        yield _candidate(RemoveGates(gates), "gates", lambda _: (Put("Pod", open_),))


def _one_more(snapshot: Snapshot, shape: str) -> HintCandidate:
    name = free_name(snapshot, f"{shape}-new")

    def make(base: Snapshot) -> tuple[Change, ...]:
        found: list[Change] = []
        for part in node_like(base, shape, name):
            value = part.object
            if isinstance(value, Node):
                value = msgspec.structs.replace(value, spec=msgspec.structs.replace(value.spec, unschedulable=False))
            found.append(Put(part.kind, value))
        return tuple(found)

    return _candidate(AddNode(shape), f"node {shape}", make, node=shape, place=name)


class _Of:
    """Candidates for one pod on one node."""

    def __init__(
        self, snapshot: Snapshot, pod: Pod, place: RefusingNode, now: datetime, context: SchedulingContext
    ) -> None:
        self.snapshot = snapshot
        self.now = now
        self.pod = pod
        self.key = (pod.metadata.namespace, pod.metadata.name)
        self.node = place.node
        self.facts = [fact for fact in (*place.reasons, *place.diagnosis) if not isinstance(fact, schedule.ReasonBase)]
        self.reasons = place.reasons
        self.context = context
        self.claims = {
            f"{c.metadata.namespace}/{c.metadata.name}": c for c in claims_on(snapshot, pod, place.node, context)
        }

        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        entries = pod.spec.resource_claims
        self.templates = {made.get(entry.name): entry.resource_claim_template_name for entry in entries}

    def all(self) -> Iterator[HintCandidate]:
        """Every kind in turn."""
        yield from self._pools()
        yield from self._node_checks()
        yield from self._selectors()
        yield from self._counts()
        yield from self._fewer_requests()
        yield from self._constraints()
        yield from self._capacities()
        yield from self._taints()
        yield from self._other_classes()
        yield from self._held_by_others()

    # ---- wait

    def _pools(self) -> Iterator[HintCandidate]:
        for fact in self.facts:
            if not isinstance(fact, refusal.PoolIncomplete):
                continue
            kind = WaitForPool if fact.slices < fact.resource_slice_count else CorrectSliceCount
            change = kind(fact.driver, fact.pool, fact.slices, fact.resource_slice_count)
            yield _candidate(change, f"pool {fact.driver}/{fact.pool}", self._complete(fact), self.node)

    def _complete(self, fact: refusal.PoolIncomplete) -> Callable[[Snapshot], tuple[Change, ...]]:
        def make(base: Snapshot) -> tuple[Change, ...]:
            resource_slices = [base.slices[name] for name in keys_of(base.slices_by_pool, (fact.driver, fact.pool))]
            return tuple(
                Put(
                    "ResourceSlice",
                    msgspec.structs.replace(
                        resource_slice, spec=msgspec.structs.replace(resource_slice.spec, pool=pool)
                    ),
                )
                for resource_slice in resource_slices
                if resource_slice.spec.pool.generation == fact.generation
                for pool in [msgspec.structs.replace(resource_slice.spec.pool, resource_slice_count=fact.slices)]
            )

        return make

    # ---- the own pod

    def _node_checks(self) -> Iterator[HintCandidate]:
        spec = self.pod.spec
        for reason in self.reasons:
            match reason:
                case schedule.UntoleratedTaint():
                    more = Toleration(key=reason.key, operator="Equal", value=reason.value, effect=reason.effect)
                    tolerate = TolerateNodeTaint(self.node, reason.key, reason.value, reason.effect)
                    yield self._own_pod(tolerate, tolerations=(*spec.tolerations, more))
                case schedule.InsufficientResource() if reason.available.nanos > 0:
                    less = _with_less(self.pod, reason.resource, reason.requested.nanos - reason.available.nanos)
                    if less is not None:
                        change = ChangeResources(reason.resource, str(reason.requested), str(reason.available))
                        yield self._own_pod(change, containers=less)
                case schedule.NodeAffinityMismatch() if spec.node_selector:
                    yield self._own_pod(DropNodeSelector(self.node, reason.required), node_selector={})
                case schedule.NodeUnschedulable():
                    yield _candidate(Uncordon(self.node), f"cordon {self.node}", self._uncordoned, self.node)
                case _:
                    pass

    def _uncordoned(self, base: Snapshot) -> tuple[Change, ...]:
        node = base.nodes[self.node]
        return (
            Put("Node", msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=False))),
        )

    def _own_pod(self, change: SingleChange, **fields: Any) -> HintCandidate:
        def make(base: Snapshot) -> tuple[Change, ...]:
            pod = base.pods[self.key]
            return (Put("Pod", msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))),)

        return _candidate(change, f"{change.kind} {self.node}", make, self.node)

    # ---- the own claim

    def _selectors(self) -> Iterator[HintCandidate]:
        """Weaker selectors of the request, and names that are meant."""
        seen: set[tuple[str, str, str, int]] = set()
        for fact in self.facts:
            if not isinstance(fact, refusal.SelectorFalse | refusal.SelectorError):
                continue
            mark = (fact.claim, fact.request, fact.class_name, fact.index)
            is_derived = isinstance(fact, refusal.SelectorError) and bool(fact.derived)
            if mark in seen or not fact.expression or is_derived:
                continue
            seen.add(mark)
            devices = self._devices(fact.device.driver)
            texts: list[str] = []
            if isinstance(fact, refusal.SelectorError) and fact.attribute:
                texts += corrected(fact.expression, fact.attribute, devices, fact.device.driver)
            texts += weaker(fact.expression, devices, fact.device.driver)
            for text in dict.fromkeys(texts):
                if not fact.class_name:
                    yield self._own_selector(fact, text)
                elif text and self._too_few_match(fact.claim, fact.request):
                    yield self._class_selector(fact, text)

    def _too_few_match(self, claim: str, request: str) -> bool:
        few = self._few(claim, request)
        return few is not None and few.dropped.matched < max(few.requested, 1)

    def _few(self, claim: str, request: str) -> refusal.InsufficientDevices | None:
        mark = (claim, request)
        return next(
            (f for f in self.facts if isinstance(f, refusal.InsufficientDevices) and (f.claim, f.request) == mark), None
        )

    def _devices(self, driver: str) -> list[Device]:
        resource_slices = [self.snapshot.slices[name] for name in keys_of(self.snapshot.slices_by_node, self.node)]
        return [
            device
            for resource_slice in resource_slices
            if resource_slice.spec.driver == driver
            for device in resource_slice.spec.devices
        ]

    def _own_selector(self, fact: refusal.SelectorFalse | refusal.SelectorError, text: str) -> HintCandidate:
        def edit(asked: Asked) -> Asked:
            return msgspec.structs.replace(asked, selectors=selectors_with(asked.selectors, fact.index, text))

        change = ChangeSelector(*self._claim(fact.claim), fact.request, fact.index, fact.expression, text)
        topic = f"selector {fact.claim} {fact.request} {fact.index}"
        return self._own(change, topic, fact.claim, edit)

    def _class_selector(self, fact: refusal.SelectorFalse | refusal.SelectorError, text: str) -> HintCandidate:
        def make(base: Snapshot) -> tuple[Change, ...] | None:
            found = base.classes.get(fact.class_name)
            if found is None:
                return None
            changed = selectors_with(found.spec.selectors, fact.index, text)
            spec = msgspec.structs.replace(found.spec, selectors=changed)
            made: DeviceClass = msgspec.structs.replace(found, spec=spec)
            return (Put("DeviceClass", made),)

        change = ChangeClassSelector(fact.class_name, fact.index, fact.expression, text)
        return _candidate(change, f"class {fact.class_name} {fact.index}", make, self.node)

    def _counts(self) -> Iterator[HintCandidate]:
        for key, claim in self.claims.items():
            for request in claim.spec.devices.requests:
                asked = request.exactly
                if asked is None:
                    continue
                few = self._few(key, request.name)
                usable = few.dropped.available if few is not None else 0
                topic = f"count {key} {request.name}"
                if asked.allocation_mode == ALL:
                    if usable:
                        change = ChangeCount(*self._claim(key), request.name, ALL, usable)
                        yield self._own(change, topic, key, counted(usable))
                    continue
                count = max(asked.count, 1)
                fewer = dict.fromkeys(n for n in (min(usable, count - 1), *range(count - 1, 0, -1)) if 0 < n < count)
                for number in fewer:
                    change = ChangeCount(*self._claim(key), request.name, count, number)
                    yield self._own(change, topic, key, counted(number))

    def _fewer_requests(self) -> Iterator[HintCandidate]:
        for key, claim in self.claims.items():
            devices = claim.spec.devices
            if len(devices.requests) < 2 or claim.metadata.name == SPECIAL_NAME:
                continue
            for request in reversed(devices.requests):
                kept = tuple(entry for entry in devices.requests if entry is not request)
                make = changed(claim, requests=kept, constraints=without_request(devices.constraints, request.name))
                change = DropRequest(*self._claim(key), request.name)
                yield _candidate(change, f"request of {key}", make, self.node)

    def _constraints(self) -> Iterator[HintCandidate]:
        for key, claim in self.claims.items():
            for index, constraint in enumerate(claim.spec.devices.constraints):
                attribute = constraint.match_attribute or constraint.distinct_attribute or ""
                whose = (*self._claim(key), index, attribute, constraint.requests)
                if constraint.match_attribute == PCIE_ROOT:  # devices without a root in common may be near all the same
                    near = constrained_by(claim, index, NUMA_NODE)
                    yield _candidate(ChangeConstraint(*whose, NUMA_NODE), f"near {key}", near, self.node)
                yield _candidate(DropConstraint(*whose), f"constraint {key}", unconstrained(claim, index), self.node)

    def _capacities(self) -> Iterator[HintCandidate]:
        best: dict[tuple[str, str, str], refusal.InsufficientCapacity] = {}
        for fact in self.facts:
            if isinstance(fact, refusal.InsufficientCapacity) and fact.available.nanos > 0:
                known = best.get((fact.claim, fact.request, fact.capacity))
                if known is None or fact.available > known.available:
                    best[fact.claim, fact.request, fact.capacity] = fact
        for (claim, request, name), fact in best.items():
            amount = fact.available

            def edit(asked: Asked, name: str = name, amount: Any = amount) -> Asked:
                wanted = asked.capacity.requests if asked.capacity is not None else {}
                return msgspec.structs.replace(asked, capacity=CapacityRequirements({**wanted, name: amount}))

            change = ChangeCapacity(*self._claim(claim), request, name, str(fact.consumed), str(amount))
            yield self._own(change, f"capacity {claim} {request} {name}", claim, edit)

    def _taints(self) -> Iterator[HintCandidate]:
        taints: dict[tuple[str, str], dict[tuple[str, str, str], None]] = {}
        for fact in self.facts:
            if isinstance(fact, refusal.DeviceTainted):
                taints.setdefault((fact.claim, fact.request), {})[fact.key, fact.value, fact.effect] = None
        for (claim, request), found in taints.items():
            one_by_one = [(taint,) for taint in found]
            for together in [*one_by_one, *([tuple(found)] if len(found) > 1 else [])]:
                more = tuple(DeviceToleration(key=k, operator="Equal", value=v, effect=e) for k, v, e in together)

                def edit(asked: Asked, more: tuple[DeviceToleration, ...] = more) -> Asked:
                    return msgspec.structs.replace(asked, tolerations=(*asked.tolerations, *more))

                taints_of_devices = tuple(ToleratedTaint(*taint) for taint in together)
                change = TolerateDeviceTaint(*self._claim(claim), request, taints_of_devices)
                yield self._own(change, f"taints {claim} {request}", claim, edit)

    def _own(self, change: _OfRequest, topic: str, key: str, edit: RequestEdit) -> HintCandidate:
        claim = self.claims[key]
        if claim.metadata.name == SPECIAL_NAME:
            return _candidate(change, topic, lambda _: None, self.node)
        return _candidate(change, topic, edited(claim, change.request, edit), self.node)

    def _claim(self, key: str) -> tuple[str, str | None]:
        """The claim's name and its template."""
        claim = self.claims[key]
        return claim.metadata.name, self._template(claim)

    def _template(self, claim: ResourceClaim) -> str | None:
        """The template that the claim is made from: that is what people can change."""
        return self.templates.get(claim.metadata.name)

    # ---- other classes

    def _other_classes(self) -> Iterator[HintCandidate]:
        for key, claim in self.claims.items():
            if claim.metadata.name == SPECIAL_NAME:
                continue
            for request, asked in asked_of(claim):
                if self._too_few_match(key, request):
                    name, template = asked.device_class_name, self._template(claim)
                    yield from _classes(self.snapshot, claim, request, name, self.node, template)

    # ---- room that others hold

    def _held_by_others(self) -> Iterator[HintCandidate]:
        pods, claims = self._holders()
        for other in claims:
            yield self._rearranged((f"{other.metadata.namespace}/{other.metadata.name}"), None, (other,))
        for key in pods:
            used = tuple(
                c for c in claims_used(self.snapshot, self.snapshot.pods[key]) if c.status.allocation is not None
            )
            if used:
                yield self._rearranged(f"{key[0]}/{key[1]}", key, used)
        priority = priority_of(self.snapshot, self.pod)
        lower = [key for key in pods if self._priority(key) <= priority or self._leaves(key)]
        for key in pods:
            yield self._without((key,), mover=key if key not in lower else None)
        for other in claims:
            held = RemoveClaim((f"{other.metadata.namespace}/{other.metadata.name}",), _devices_of(other))
            yield _candidate(held, "remove claim", _gone(other), self.node)
        for size in range(2, min(TOGETHER_MAX, len(lower)) + 1):
            yield self._without(tuple(lower[:size]))

    def _priority(self, key: NamespacedName) -> int:
        return priority_of(self.snapshot, self.snapshot.pods[key])

    def _leaves(self, key: NamespacedName) -> bool:
        return self.snapshot.pods[key].metadata.deletion_timestamp is not None

    def _without(self, keys: tuple[NamespacedName, ...], mover: NamespacedName | None = None) -> HintCandidate:
        pods = tuple(PodPriority(f"{ns}/{name}", self._priority((ns, name))) for ns, name in keys)
        leaving = all(self._leaves(key) for key in keys)
        change = WaitForPods(pods) if leaving else RemovePods(pods, bool(self.facts))
        topic = f"remove {keys[0]}" if len(keys) == 1 else "remove pods"
        candidate = _candidate(change, topic, lambda base: without_pods(base, keys, self.now), self.node)
        if leaving:
            return msgspec.structs.replace(candidate, topic="wait for pods")
        alone = keys[0] if len(keys) == 1 else None
        return msgspec.structs.replace(candidate, kind=RemovePods if mover is None else MovePod, pod=alone)

    def _holders(self) -> tuple[list[NamespacedName], list[ResourceClaim]]:
        """Pods that hold what is short, least important first; claims that do without a pod."""
        holders: dict[tuple[str, str], None] = {}
        for fact in self.facts:
            match fact:
                case refusal.DeviceInUse() | refusal.UnpublishedOverlap():
                    holders.update(((h.namespace, h.claim), None) for h in fact.holders)
                case refusal.InsufficientCapacity():
                    held = self.snapshot.holders.get(fact.device, ())
                    holders.update(((h.namespace, h.claim), None) for h in held)
                case refusal.InsufficientCounter():
                    for holder in _users(self.snapshot, fact.device, fact.counter_set):
                        holders[holder.namespace, holder.claim] = None
                case _:
                    pass
        pods: dict[NamespacedName, None] = {}
        alone: list[ResourceClaim] = []
        for claim_key in holders:
            claim = self.snapshot.claims[claim_key]
            users = [k for k in self.snapshot.consumers(claim) if not is_finished(self.snapshot.pods[k])]
            pods.update(dict.fromkeys(k for k in users if k != self.key))
            if not users and not claim.status.reserved_for:
                alone.append(claim)
        if any(
            isinstance(r, schedule.InsufficientResource | schedule.TooManyPods | schedule.PortConflict)
            for r in self.reasons
        ):
            here = keys_of(self.snapshot.pods_by_node, self.node)
            pods.update(dict.fromkeys(k for k in here if not is_finished(self.snapshot.pods[k])))
        ordered = sorted(pods, key=lambda key: (not self._leaves(key), self._priority(key), key))
        return ordered[:HOLDERS_MAX], alone[:HOLDERS_MAX]

    def _rearranged(self, name: str, pod: NamespacedName | None, claims: tuple[ResourceClaim, ...]) -> HintCandidate:
        """The claims of somebody on the same node, allocated again after the pod's own."""

        def make(base: Snapshot) -> Proposal | None:
            if not self.claims or any(not _lies_on(claim, self.node) for claim in claims):
                return None
            free = apply_all(base, [released(claim) for claim in claims])
            theirs = tuple(free.claims[c.metadata.namespace, c.metadata.name] for c in claims)
            asks = [Ask(tuple(self.claims.values()), self.node), Ask(theirs, self.node)]
            outcome = allocate(free, asks, self.context.options, share_id=self.context.new_id)
            if not isinstance(outcome, Allocation):
                return None
            moves = tuple(_moves(claims, outcome))
            if pod is None:
                change = MoveDevices(self.node, moves, held_claim=name)
            else:
                change = MoveDevices(self.node, moves, pod=name)
            changes = tuple(
                Put("ResourceClaim", msgspec.structs.replace(claim, status=status))
                for claim, result in zip(claims, outcome.results[1], strict=True)
                for status in [msgspec.structs.replace(claim.status, allocation=result)]
            )
            return Proposal(change, changes)

        return HintCandidate(MoveDevices, "move devices", make, self.node)


def _with_less(pod: Pod, resource: str, nanos: int) -> tuple[Container, ...] | None:
    """The containers with that much less of a resource asked for by the one that asks for most."""
    asked = [container.resources.requests.get(resource) for container in pod.spec.containers]
    most = max((amount for amount in asked if amount is not None), default=None)
    if most is None or most.nanos <= nanos:
        return None
    index = asked.index(most)
    container = pod.spec.containers[index]
    requests = {**container.resources.requests, resource: Quantity(most.nanos - nanos, most.format)}
    limits = {name: amount for name, amount in container.resources.limits.items() if name != resource}
    resources = msgspec.structs.replace(container.resources, requests=requests, limits=limits)
    changed = msgspec.structs.replace(container, resources=resources)
    return (*pod.spec.containers[:index], changed, *pod.spec.containers[index + 1 :])


def _lies_on(claim: ResourceClaim, node: str) -> bool:
    """Whether the claim's devices are of this node, as far as its node selector tells."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return allocation is not None
    names = {
        value
        for term in allocation.node_selector.node_selector_terms
        for field in term.match_fields
        for value in field.values
    }
    return not names or node in names


def _moves(claims: Sequence[ResourceClaim], outcome: Allocation) -> Iterator[DeviceMove]:
    for claim, result in zip(claims, outcome.results[1], strict=True):
        assert claim.status.allocation is not None
        old = [(r.request, r.device) for r in claim.status.allocation.devices.results]
        new = [(r.request, r.device) for r in result.devices.results]
        left = [entry for entry in old if entry not in new]
        come = [entry for entry in new if entry not in old]
        for (request, device), (instead, other) in zip(left, come, strict=False):
            yield DeviceMove(claim.metadata.name, device, other, request, instead)


def _users(snapshot: Snapshot, device: DeviceId, counter_set: str) -> Iterator[Holder]:
    for name in keys_of(snapshot.slices_by_pool, (device.driver, device.pool)):
        for other in snapshot.slices[name].spec.devices:
            if any(use.counter_set == counter_set for use in other.consumes_counters):
                yield from snapshot.holders.get(DeviceId(device.driver, device.pool, other.name), ())


def _devices_of(claim: ResourceClaim) -> tuple[str, ...]:
    allocation = claim.status.allocation
    return tuple(result.device for result in allocation.devices.results) if allocation is not None else ()


def _gone(claim: ResourceClaim) -> Callable[[Snapshot], tuple[Change, ...]]:
    return lambda _: (Gone("ResourceClaim", claim.metadata.namespace, claim.metadata.name),)


def _classes(
    snapshot: Snapshot, claim: ResourceClaim, request: str, name: str, node: str, template: str | None = None
) -> Iterator[HintCandidate]:
    others = sorted(other for other in snapshot.classes if other != name)
    near = difflib.get_close_matches(name, others, CLASSES_MAX, 0.5)
    for other in near:

        def edit(asked: Asked, other: str = other) -> Asked:
            return msgspec.structs.replace(asked, device_class_name=other)

        change = OtherClass(claim.metadata.name, template, request, name, other)
        yield _candidate(change, f"class of {claim.metadata.name} {request}", edited(claim, request, edit), node)
