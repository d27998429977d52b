"""Is this allocation right? An independent check of every result before anything is committed.

Recomputes from the claim, the snapshot and the gates what must hold, and shares no code with the search. Never
says whether a better choice exists; it says what is wrong with this one. For a request for all devices it checks
those given, and that no other device of the node that matches was left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from dragoman.allocate.values import Allocation, Ask
from dragoman.api.core import Node
from dragoman.api.gates import Gates
from dragoman.api.resource import (
    ALL,
    AllocationResult,
    Device,
    DeviceCapacity,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from dragoman.api.selectors import DeviceView, Selector, compile_selector, device_view
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.pools import device_targets, slice_targets
from dragoman.snapshot.selection import selects
from dragoman.snapshot.usage import DeviceId
from dragoman.values.quantity import Quantity

COSTLY = 1_000
"""Worst-case cost of a selector (CEL units) from which its verdict on a device is kept."""

VERDICTS_MAX = 10_000
_VERDICTS: dict[tuple[str, str, int], tuple[Device, bool]] = {}
"""(expression, driver, identity of the device) -> the device, which keeps the identity its own, and the verdict."""


class Wrong(msgspec.Struct, frozen=True):
    """Something that does not hold: which rule, where, and the facts as text."""

    rule: str
    claim: str
    request: str
    detail: str


def verify(snapshot: Snapshot, asks: Sequence[Ask], allocation: Allocation, gates: Gates) -> tuple[Wrong, ...]:
    """What is wrong with the allocation of these asks; () if it may be committed."""
    check = _Check(snapshot, gates)
    done: set[tuple[str, str]] = set()
    for ask, results in zip(asks, allocation.results, strict=True):
        node = snapshot.nodes.get(ask.node)
        for claim, result in zip(ask.claims, results, strict=True):
            key = (claim.metadata.namespace, claim.metadata.name)
            if node is None:
                check.wrong("node", claim, "", f"{ask.node} does not exist")
            elif key in done:
                check.reach(claim, result, node)
            else:
                done.add(key)
                check.claim(claim, result, node)
    check.totals()
    return tuple(check.found)


class _Check:
    def __init__(self, snapshot: Snapshot, gates: Gates) -> None:
        self.snapshot = snapshot
        self.on = gates.on
        self.found: list[Wrong] = []
        self.whole: dict[DeviceId, list[str]] = {}
        self.shares: dict[DeviceId, list[tuple[str, DeviceRequestAllocationResult]]] = {}
        self.drawing: dict[DeviceId, Device] = {}

    def wrong(self, rule: str, claim: ResourceClaim, request: str, detail: str) -> None:
        meta = claim.metadata
        self.found.append(Wrong(rule, f"{meta.namespace}/{meta.name}", request, detail))

    # ---- one claim

    def claim(self, claim: ResourceClaim, allocation: AllocationResult, node: Node) -> None:
        results = allocation.devices.results
        if len(results) > 32:
            self.wrong("limit", claim, "", f"{len(results)} results")
        left = list(results)
        named = Counter(request.name for request in claim.spec.devices.requests)
        devices: list[tuple[DeviceRequestAllocationResult, Device, ExactDeviceRequest | DeviceSubRequest]] = []
        for request in claim.spec.devices.requests:
            mine = [r for r in left if r.request.split("/")[0] == request.name]
            named[request.name] -= 1
            if named[request.name] and request.exactly is not None and request.exactly.allocation_mode != ALL:
                mine = mine[: max(request.exactly.count, 1)]  # another one of this name, which only the API forbids
            left = [r for r in left if not any(r is one for one in mine)]
            names = {r.request for r in mine}
            if request.exactly is not None:
                asked: ExactDeviceRequest | DeviceSubRequest | None = request.exactly
                fits = names <= {request.name}
            else:
                options = {f"{request.name}/{sub.name}": sub for sub in request.first_available}
                fits = len(names) == 1 and names <= options.keys()
                asked = options.get(next(iter(names), ""))
            if asked is None or not fits:
                self.wrong("request", claim, request.name, f"results for {sorted(names)}")
                continue
            devices += [(r, d, asked) for r in mine if (d := self._device(claim, r, asked, node)) is not None]
            self._count(claim, request.name, asked, mine, node)
        for result in left:
            self.wrong("request", claim, result.request, "the claim has no such request")
        self._constraints(claim, devices)
        self.reach(claim, allocation, node)
        self._bound(claim, allocation, node)

    def _count(
        self,
        claim: ResourceClaim,
        request: str,
        asked: ExactDeviceRequest | DeviceSubRequest,
        mine: list[DeviceRequestAllocationResult],
        node: Node,
    ) -> None:
        given = {DeviceId(r.driver, r.pool, r.device) for r in mine}
        if len(given) != len(mine):
            self.wrong("twice", claim, request, "a device was allocated twice to one request")
        if asked.allocation_mode == ALL:
            left_out = sorted(set(self._all(asked, node)) - given)
            if left_out or not given:
                self.wrong("all", claim, request, f"left out: {', '.join(map(str, left_out))}")
        elif len(mine) != max(asked.count, 1):
            self.wrong("count", claim, request, f"{len(mine)} instead of {max(asked.count, 1)}")

    def _device(
        self,
        claim: ResourceClaim,
        result: DeviceRequestAllocationResult,
        asked: ExactDeviceRequest | DeviceSubRequest,
        node: Node,
    ) -> Device | None:
        """Checks one result on its own; None if there is no such device."""
        device_id = DeviceId(result.driver, result.pool, result.device)
        name = result.request
        found = [
            device
            for resource_slice in self._newest(result.driver, result.pool, node)
            for device in resource_slice.spec.devices
            if device.name == result.device
            and self._targets(resource_slice, node)
            and device_targets(resource_slice, device, node)
        ]
        if len(found) != 1:
            self.wrong("device", claim, name, f"{device_id} is {len(found)} times on node {node.metadata.name}")
            return None
        device = found[0]
        if not self._matches(asked, device, result.driver):
            self.wrong("selector", claim, name, str(device_id))
        admin = isinstance(asked, ExactDeviceRequest) and bool(asked.admin_access)
        if bool(result.admin_access) != admin:
            self.wrong("admin", claim, name, f"adminAccess is {result.admin_access}")
        self._tolerated(claim, result, asked, device)
        if device.consumes_counters and not self.on("DRAPartitionableDevices"):
            self.wrong("gate", claim, name, f"{device_id} consumes counters")
        if device.binding_conditions and not self.on("DRADeviceBindingConditions"):
            self.wrong("gate", claim, name, f"{device_id} has binding conditions")
        self._share(claim, result, asked, device, admin=admin)
        if not admin:
            self.drawing[device_id] = device
        return device

    def _share(
        self,
        claim: ResourceClaim,
        result: DeviceRequestAllocationResult,
        asked: ExactDeviceRequest | DeviceSubRequest,
        device: Device,
        *,
        admin: bool,
    ) -> None:
        device_id = DeviceId(result.driver, result.pool, result.device)
        holders = self.snapshot.holders.get(device_id, ())
        shareable = bool(device.allow_multiple_allocations) and self.on("DRAConsumableCapacity")
        wanted = asked.capacity.requests if asked.capacity is not None else {}
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        if (result.share_id is not None) != shareable:
            self.wrong("share", claim, result.request, f"{device_id}: shareID is {result.share_id}")
        if not admin:
            for capacity in sorted(set(wanted) - set(device.capacity)):
                self.wrong("capacity", claim, result.request, f"{device_id} has no {capacity}")
        if shareable:
            self.shares.setdefault(device_id, []).append((name, result))
            if not admin and any(holder.share_id is None for holder in holders):
                self.wrong("held", claim, result.request, f"{device_id} is held exclusively")
            if not admin and set(result.consumed_capacity or {}) != set(device.capacity):
                self.wrong("capacity", claim, result.request, f"{device_id}: not every capacity is accounted for")
            for capacity, amount in (result.consumed_capacity or {}).items():
                if capacity in wanted and amount.nanos < wanted[capacity].nanos:
                    self.wrong("capacity", claim, result.request, f"{device_id}: less {capacity} than asked for")
                if not admin and capacity in device.capacity and not _allowed(device.capacity[capacity], amount):
                    detail = f"{device_id}: its policy does not allow {amount} of {capacity}"
                    self.wrong("capacity", claim, result.request, detail)
            return
        if not admin:
            if holders:
                self.wrong("held", claim, result.request, f"{device_id} is held")
            if name in self.whole.get(device_id, ()) or self.whole.get(device_id):
                self.wrong("twice", claim, result.request, f"{device_id} is allocated twice")
            self.whole.setdefault(device_id, []).append(name)
            for capacity, amount in wanted.items():
                entry = device.capacity.get(capacity)
                if entry is not None and entry.value is not None and amount.nanos > entry.value.nanos:
                    self.wrong("capacity", claim, result.request, f"{device_id} has less {capacity}")

    def _tolerated(
        self,
        claim: ResourceClaim,
        result: DeviceRequestAllocationResult,
        asked: ExactDeviceRequest | DeviceSubRequest,
        device: Device,
    ) -> None:
        if not self.on("DRADeviceTaints"):
            return
        taints = list(device.taints)
        if self.on("DRADeviceTaintRules"):
            for rule in self.snapshot.taint_rules.values():
                selector = rule.spec.device_selector
                if selector is not None and all(
                    wanted is None or wanted == have
                    for wanted, have in (
                        (selector.driver, result.driver),
                        (selector.pool, result.pool),
                        (selector.device, result.device),
                    )
                ):
                    taints.append(rule.spec.taint)
        for taint in taints:
            if taint.effect in ("NoSchedule", "NoExecute") and not any(_tolerates(t, taint) for t in asked.tolerations):
                self.wrong("taint", claim, result.request, f"{result.device}: {taint.key}={taint.value}:{taint.effect}")
        if result.tolerations != asked.tolerations:
            self.wrong("taint", claim, result.request, "the tolerations were not copied")

    def _constraints(
        self,
        claim: ResourceClaim,
        devices: list[tuple[DeviceRequestAllocationResult, Device, ExactDeviceRequest | DeviceSubRequest]],
    ) -> None:
        for index, constraint in enumerate(claim.spec.devices.constraints):
            values = []
            for result, device, asked in devices:
                names = (result.request, result.request.split("/")[0])
                if constraint.requests and not set(names) & set(constraint.requests):
                    continue
                wanted = constraint.match_attribute or constraint.distinct_attribute or ""
                derived = {d.name if "/" in d.name else f"{result.driver}/{d.name}" for d in asked.derived_attributes}
                if wanted in derived and self.on("DRADerivedAttributes"):
                    continue  # evaluated by the search alone
                value = _value(device, result.driver, wanted, lists=self.on("DRAListTypeAttributes"))
                if value is None:
                    self.wrong("constraint", claim, result.request, f"{result.device} has no {wanted}")
                else:
                    values.append(value)
            if len(values) < 2:
                continue
            if constraint.match_attribute:
                if not frozenset.intersection(*values):
                    self.wrong("constraint", claim, "", f"constraint {index}: nothing in common")
            elif any(n > 1 for n in Counter(item for value in values for item in value).values()):
                self.wrong("constraint", claim, "", f"constraint {index}: a value occurs twice")

    def reach(self, claim: ResourceClaim, allocation: AllocationResult, node: Node) -> None:
        """The claim can be used on the node."""
        selector = allocation.node_selector
        if selector is not None and not selects(selector, node):
            self.wrong("node", claim, "", f"node {node.metadata.name} is not selected")

    def _bound(self, claim: ResourceClaim, allocation: AllocationResult, node: Node) -> None:
        """A claim with a device of this node only selects this node only."""
        terms = allocation.node_selector.node_selector_terms if allocation.node_selector is not None else ()
        named = [r for term in terms for r in term.match_fields if r.key == "metadata.name"]
        pinned = len(terms) == 1 and any(r.operator == "In" and r.values == (node.metadata.name,) for r in named)
        for result in allocation.devices.results:
            for resource_slice in self._newest(result.driver, result.pool, node):
                for device in resource_slice.spec.devices if self._targets(resource_slice, node) else ():
                    if device.name != result.device or pinned or not device_targets(resource_slice, device, node):
                        continue
                    if resource_slice.spec.node_name or device.node_name:
                        self.wrong("node", claim, result.request, f"{device.name} is local, the claim is not")

    # ---- the unit as a whole

    def totals(self) -> None:
        """Sums over everything held and given: capacities of shared devices, counters of pools."""
        for device_id, given in self.shares.items():
            self._capacity(device_id, given)
        for driver, pool in sorted(
            {(d.driver, d.pool) for d, device in self.drawing.items() if device.consumes_counters}
        ):
            self._counters(driver, pool)

    def _capacity(self, device_id: DeviceId, given: list[tuple[str, DeviceRequestAllocationResult]]) -> None:
        ids = [result.share_id for _, result in given if not result.admin_access]
        ids += [holder.share_id for holder in self.snapshot.holders.get(device_id, ())]
        if len(ids) != len(set(ids)):
            self.found.append(Wrong("share", given[0][0], given[0][1].request, f"{device_id}: share ids repeat"))
        device = self.drawing.get(device_id)
        if device is None:
            return
        for name, entry in device.capacity.items():
            held = sum(
                holder.consumed[name].nanos
                for holder in self.snapshot.holders.get(device_id, ())
                if name in holder.consumed
            )
            more = sum(
                (result.consumed_capacity or {})[name].nanos
                for _, result in given
                if name in (result.consumed_capacity or {})
            )
            total = entry.value.nanos if entry.value is not None else 0
            if held + more > total:
                self.found.append(
                    Wrong("capacity", given[0][0], given[0][1].request, f"{device_id}: {name} is overdrawn")
                )

    def _counters(self, driver: str, pool: str) -> None:
        resource_slices = [self.snapshot.slices[name] for name in keys_of(self.snapshot.slices_by_pool, (driver, pool))]
        newest = max(resource_slice.spec.pool.generation for resource_slice in resource_slices)
        drawn: Counter[tuple[str, str]] = Counter()
        seen: set[DeviceId] = set()
        for resource_slice in resource_slices:
            for device in resource_slice.spec.devices:
                device_id = DeviceId(driver, pool, device.name)
                if resource_slice.spec.pool.generation != newest and device_id not in self.drawing:
                    continue
                if device_id in seen or not (device_id in self.drawing or device_id in self.snapshot.holders):
                    continue
                seen.add(device_id)
                for use in device.consumes_counters:
                    for counter, amount in use.counters.items():
                        drawn[use.counter_set, counter] += amount.value.nanos if amount.value is not None else 0
        new = [
            device for d, device in self.drawing.items() if d not in self.snapshot.holders and d[:2] == (driver, pool)
        ]
        touched = {
            (use.counter_set, name) for device in new for use in device.consumes_counters for name in use.counters
        }
        for resource_slice in resource_slices:
            for group in resource_slice.spec.shared_counters:
                for counter, published in group.counters.items():
                    limit = published.value.nanos if published.value is not None else 0
                    if resource_slice.spec.pool.generation != newest or (group.name, counter) not in touched:
                        continue
                    if drawn[group.name, counter] > limit:
                        detail = f"{driver}/{pool}: {group.name} {counter} is overdrawn"
                        self.found.append(Wrong("counter", "", "", detail))

    # ---- facts of the snapshot

    def _targets(self, resource_slice: ResourceSlice, node: Node) -> bool:
        """Without the gate a slice that needs it is on no node: its devices may have the names of others there."""
        spec = resource_slice.spec
        if (spec.per_device_node_selection or spec.shared_counters) and not self.on("DRAPartitionableDevices"):
            return False
        return slice_targets(resource_slice, node)

    def _newest(self, driver: str, pool: str, node: Node) -> list[ResourceSlice]:
        """The slices of a pool at the newest generation that targets the node; none if the pool is obsolete there."""
        resource_slices = [self.snapshot.slices[name] for name in keys_of(self.snapshot.slices_by_pool, (driver, pool))]
        here = [resource_slice for resource_slice in resource_slices if self._targets(resource_slice, node)]
        if not here:
            return []
        newest = max(resource_slice.spec.pool.generation for resource_slice in here)
        here = [resource_slice for resource_slice in here if resource_slice.spec.pool.generation == newest]
        whole = len(here) == here[0].spec.pool.resource_slice_count
        if not whole and any(resource_slice.spec.pool.generation > newest for resource_slice in resource_slices):
            return []
        return [resource_slice for resource_slice in resource_slices if resource_slice.spec.pool.generation == newest]

    def _matches(self, asked: ExactDeviceRequest | DeviceSubRequest, device: Device, driver: str) -> bool:
        device_class = self.snapshot.classes.get(asked.device_class_name)
        if device_class is None:
            return False
        view = device_view(device, driver)
        return all(_true(selector, device, view) for selector in (*device_class.spec.selectors, *asked.selectors))

    def _all(self, asked: ExactDeviceRequest | DeviceSubRequest, node: Node) -> Iterable[DeviceId]:
        """Devices of the node that match a request for all; with shares, as far as they have what is asked for."""
        names = (*keys_of(self.snapshot.slices_by_node, node.metadata.name), *keys_of(self.snapshot.slices_by_node, ""))
        wanted = asked.capacity.requests if asked.capacity is not None else {}
        pools = {(p.spec.driver, p.spec.pool.name) for p in (self.snapshot.slices[name] for name in names)}
        for driver, pool in sorted(pools):
            for resource_slice in self._newest(driver, pool, node):
                for device in resource_slice.spec.devices if self._targets(resource_slice, node) else ():
                    if wanted or device.allow_multiple_allocations or not device_targets(resource_slice, device, node):
                        continue
                    if any(entry.request_policy is not None for entry in device.capacity.values()):
                        continue  # what its policy takes when nothing is asked for may be too much
                    if device.binding_conditions and not self.on("DRADeviceBindingConditions"):
                        continue
                    if self._matches(asked, device, driver):
                        yield DeviceId(driver, pool, device.name)


def _allowed(capacity: DeviceCapacity, amount: Quantity) -> bool:
    """Whether a share may take so much: the default, one of the values, at most the maximum."""
    policy = capacity.request_policy
    if policy is None or (policy.default is not None and policy.default.nanos == amount.nanos):
        return True
    if policy.valid_range is not None:
        return policy.valid_range.max is None or amount.nanos <= policy.valid_range.max.nanos
    return not policy.valid_values or any(value.nanos == amount.nanos for value in policy.valid_values)


def _true(selector: DeviceSelector, device: Device, view: DeviceView) -> bool:
    if selector.cel is None:
        return False
    compiled = compile_selector(selector.cel.expression)
    if not isinstance(compiled, Selector):
        return False
    if compiled.max_cost <= COSTLY:
        return compiled.match(view) is True
    key = (compiled.expression, view.driver, id(device))
    known = _VERDICTS.get(key)
    if known is None:
        if len(_VERDICTS) >= VERDICTS_MAX:
            _VERDICTS.clear()
        known = _VERDICTS[key] = (device, compiled.match(view) is True)
    return known[1]


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("Equal", "") and toleration.value == taint.value


def _value(device: Device, driver: str, wanted: str, *, lists: bool) -> frozenset[tuple[str, object]] | None:
    domain, _, bare = wanted.partition("/")
    attribute = device.attributes.get(wanted) or (device.attributes.get(bare) if domain == driver else None)
    if attribute is None:
        return None
    found: list[tuple[str, object]] = []
    for kind, scalar, many in (
        ("int", attribute.int_, attribute.ints),
        ("bool", attribute.bool_, attribute.bools),
        ("string", attribute.string, attribute.strings),
        ("version", attribute.version, attribute.versions),
    ):
        if scalar is not None:
            found.append((kind, scalar))
        elif many is not None and lists:
            found += [(kind, item) for item in many]
    return frozenset(found)
