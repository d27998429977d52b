"""Why is this claim, device, node or running pod as it is? Facts about one object, as a value.

For pods that wait `explain.why` has the answer; this module has the others. Never makes sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dragoman.allocate.allocator import Ask, RequestInspection, inspect_claims
from dragoman.allocate.refusal import FilterStep, Refusals
from dragoman.api import codec
from dragoman.api.core import Node, Pod
from dragoman.api.meta import NamespacedName, ObjectMeta
from dragoman.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dragoman.api.selectors import Selector, SelectorFailed, compile_selector, device_view
from dragoman.explain.focus import claims_used, released
from dragoman.explain.state import (
    STARTING,
    ConsumerState,
    EventInfo,
    StateReason,
    consumers_of,
    deletion,
    publishes,
    replaced,
    stuck,
    unpublished,
    users_of,
)
from dragoman.inspect.inventory import Inventory, devices_on
from dragoman.schedule.conditions import Pending, binding_of
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Put, Snapshot, apply_all, keys_of
from dragoman.snapshot.pools import VisiblePool, pools_for, slice_targets
from dragoman.snapshot.taints import rules_of_pool, taints_of
from dragoman.snapshot.unpublished import overlaps, unpublished_of
from dragoman.snapshot.usage import DeviceId, Holder, is_finished

PROBE = "claim-alone"


class Choice(msgspec.Struct, frozen=True):
    """Why one device was given. position: its place among the node's devices in order of trial, from 1.

    passed: devices that stand before it, by the step that drops them today ("" usable, "chosen" by the same claim).
    matching: devices of the node that match. node is empty if it is not known.
    """

    claim: str
    request: str
    device: str
    node: str
    class_name: str
    admin: bool
    position: int
    matching: int
    seen: int
    passed: tuple[tuple[str, int], ...]


class PodDescription(msgspec.Struct, frozen=True):
    """A pod that has its node. state: running, starting, stuck, finished or deleting."""

    key: NamespacedName
    node: str
    state: str
    reasons: tuple[StateReason, ...]
    claims: tuple[tuple[str | None, str, str | None, ResourceClaim | None], ...]
    choices: tuple[Choice, ...]


class ClaimDescription(msgspec.Struct, frozen=True):
    """A claim. state: pending, allocated, reserved or deleting. waits: what its deletion or devices wait for."""

    key: NamespacedName
    state: str
    claim: ResourceClaim
    node: str
    consumers: tuple[ConsumerState, ...]
    users: tuple[NamespacedName, ...]
    reasons: tuple[StateReason, ...]
    choices: tuple[Choice, ...]
    conditions: tuple[tuple[str, str, str, str], ...]


class ClassMatch(msgspec.Struct, frozen=True):
    """Whether a device is in a class; if not, which selector is false or fails, with what error."""

    name: str
    matches: bool
    selector: int
    expression: str
    error: str


class DeviceTaintInfo(msgspec.Struct, frozen=True):
    """A taint of a device; rule is empty where the driver publishes it."""

    key: str
    value: str
    effect: str
    rule: str


class DeviceHolder(msgspec.Struct, frozen=True):
    """Who holds a device. admin: with admin access, which holds nothing."""

    namespace: str
    claim: str
    request: str
    share: str
    pods: tuple[str, ...]
    admin: bool


class OverlappingDevice(msgspec.Struct, frozen=True):
    """A device that claims hold, that no slice shows any longer, and that may use the same hardware."""

    device: str
    claims: tuple[str, ...]


class DeviceDescription(msgspec.Struct, frozen=True):
    """A device. state: free, held, shared, tainted, blocked, unusable or gone (in claims, but not published)."""

    id: DeviceId
    state: str
    slice_name: str
    nodes: tuple[str, ...]
    pool_state: str
    generation: int
    slices: tuple[int, int]
    attributes: dict[str, Any]
    capacity: dict[str, str]
    counters: tuple[tuple[str, str, int, int, int], ...]
    taints: tuple[DeviceTaintInfo, ...]
    holders: tuple[DeviceHolder, ...]
    classes: tuple[ClassMatch, ...]
    reasons: tuple[StateReason, ...] = ()
    overlapping: tuple[OverlappingDevice, ...] = ()


class NodeDescription(msgspec.Struct, frozen=True):
    """A node: conditions that are not well, taints, its pools, devices by class, pods with devices."""

    name: str
    ready: str
    cordoned: bool
    taints: tuple[str, ...]
    pools: tuple[tuple[str, str, str, int, int, int, int, int, int], ...]
    devices: Inventory
    pods: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...]
    absent: tuple[str, ...]


# ---- pods


def pod_facts(
    snapshot: Snapshot,
    pod: Pod,
    events: Sequence[EventInfo],
    now: datetime,
    context: SchedulingContext,
    hidden: frozenset[str] = frozenset(),
) -> PodDescription:
    """A pod with a node. hidden: kinds of which nothing may be seen."""
    reasons = stuck(snapshot, pod, events, now, hidden)
    if is_finished(pod):
        state = "finished"
    elif pod.metadata.deletion_timestamp is not None:
        state = "deleting"
    elif not reasons or pod.status.phase not in STARTING:
        state = "running"
    else:
        state = "starting" if all(type(reason).__name__ == "Starting" for reason in reasons) else "stuck"
    made = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses}
    namespace, name = pod.metadata.namespace, pod.metadata.name
    claims: list[tuple[str | None, str, str | None, ResourceClaim | None]] = []
    for entry in pod.spec.resource_claims:
        used = entry.resource_claim_name or made.get(entry.name) or ""
        found = snapshot.claims.get((namespace, used))
        claims.append((entry.name, used, entry.resource_claim_template_name, found))
    special = pod.status.extended_resource_claim_status
    if special is not None:
        used = special.resource_claim_name
        claims.append((None, used, None, snapshot.claims.get((namespace, used))))
    choices = choices_of(snapshot, claims_used(snapshot, pod), pod.spec.node_name, context)
    return PodDescription((namespace, name), pod.spec.node_name, state, reasons, tuple(claims), choices)


def choices_of(
    snapshot: Snapshot, claims: Sequence[ResourceClaim], node: str, context: SchedulingContext
) -> tuple[Choice, ...]:
    """Why the claims have their devices: what stands before each of them on the node, as things are today."""
    allocated = [claim for claim in claims if claim.status.allocation is not None]
    if not allocated:
        return ()
    seen: tuple[RequestInspection, ...] = ()
    if node in snapshot.nodes:
        free = apply_all(snapshot, [released(claim) for claim in allocated])
        asked = tuple(free.claims[c.metadata.namespace, c.metadata.name] for c in allocated)
        inspected = inspect_claims(free, Ask(asked, node), context.options)
        seen = () if isinstance(inspected, Refusals) else inspected
    found = []
    for claim in allocated:
        assert claim.status.allocation is not None
        results = claim.status.allocation.devices.results
        mine = {(r.driver, r.pool, r.device) for r in results}
        key = f"{claim.metadata.namespace}/{claim.metadata.name}"
        found += [_choice(claim, result, _inspection_of(seen, key, result.request), mine, node) for result in results]
    return tuple(found)


def _inspection_of(seen: Sequence[RequestInspection], claim: str, request: str) -> RequestInspection | None:
    return next((one for one in seen if one.claim == claim and one.request == request), None)


def _choice(
    claim: ResourceClaim,
    result: DeviceRequestAllocationResult,
    seen: RequestInspection | None,
    mine: set[tuple[str, str, str]],
    node: str,
) -> Choice:
    device = (result.driver, result.pool, result.device)
    devices = seen.devices if seen is not None else ()
    position = next((i for i, one in enumerate(devices) if tuple(one.id) == device), -1)
    passed: Counter[str] = Counter()
    for one in devices[: max(position, 0)]:
        passed["chosen" if tuple(one.id) in mine else one.step or ""] += 1
    matching = sum(one.step not in (FilterStep.SELECTOR, FilterStep.LACKING, FilterStep.GATED) for one in devices)
    return Choice(
        claim.metadata.name,
        result.request,
        "/".join(device),
        node if position >= 0 else "",
        seen.class_name if seen is not None else "",
        bool(result.admin_access),
        position + 1,
        matching,
        len(devices),
        tuple(passed.items()),
    )


# ---- claims


def claim_facts(
    snapshot: Snapshot, claim: ResourceClaim, now: datetime, context: SchedulingContext
) -> ClaimDescription:
    """A claim as it is."""
    meta, status = claim.metadata, claim.status
    blocker = deletion(snapshot, claim, now)
    node = _node_of(claim)
    reasons: list[StateReason] = [blocker] if blocker is not None else []
    reasons += unpublished(snapshot, claim)
    reasons += replaced(snapshot, claim)
    if blocker is not None:
        state = "deleting"
    elif status.allocation is None:
        state = "pending"
    else:
        state = "reserved" if status.reserved_for else "allocated"
    conditions = [
        (f"{d.driver}/{d.pool}/{d.device}", c.type, c.status, ": ".join(p for p in (c.reason, c.message) if p))
        for d in status.devices
        for c in d.conditions
    ]
    if status.allocation is not None and isinstance(binding_of(claim, now, context.binding_timeout_s), Pending):
        conditions += [
            (f"{r.driver}/{r.pool}/{r.device}", name, "awaited", "binding condition")
            for r in status.allocation.devices.results
            for name in r.binding_conditions
        ]
    return ClaimDescription(
        (meta.namespace, meta.name),
        state,
        claim,
        node,
        consumers_of(snapshot, claim),
        users_of(snapshot, claim),
        tuple(reasons),
        choices_of(snapshot, [claim], node, context),
        tuple(conditions),
    )


def probe(snapshot: Snapshot, claim: ResourceClaim) -> tuple[Snapshot, NamespacedName]:
    """The snapshot with a pod that needs nothing but the claim, and the pod's key: would it fit anywhere?"""
    meta = claim.metadata
    name = PROBE
    while (meta.namespace, name) in snapshot.pods:
        name += "-"
    spec = codec.decode(type(Pod().spec), {"resourceClaims": [{"name": meta.name, "resourceClaimName": meta.name}]})
    pod = Pod(metadata=ObjectMeta(name=name, namespace=meta.namespace), spec=spec)
    return apply_all(snapshot, [Put("Pod", pod)]), (meta.namespace, name)


def _node_of(claim: ResourceClaim) -> str:
    """The one node an allocation is for, "" if it is for several or none."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return ""
    names = {
        value
        for term in allocation.node_selector.node_selector_terms
        for field in term.match_fields
        if field.key == "metadata.name"
        for value in field.values
    }
    return names.pop() if len(names) == 1 else ""


# ---- devices


def device_facts(snapshot: Snapshot, device: DeviceId, context: SchedulingContext) -> DeviceDescription | None:
    """A device that is published or named in an allocation; None if it is neither."""
    holders = _holders(snapshot, device)
    found = _published(snapshot, device)
    if found is None:
        if not holders:
            return None
        return DeviceDescription(device, "gone", "", (), "", 0, (0, 0), {}, {}, (), (), holders, ())
    resource_slice, published = found
    nodes = tuple(sorted(n for n, node in snapshot.nodes.items() if slice_targets(resource_slice, node)))
    pool = _pool(snapshot, nodes, device)
    rules = rules_of_pool(snapshot, device.driver, device.pool)
    taints = tuple(
        DeviceTaintInfo(t.key, t.value, t.effect, rule)
        for rule, t in taints_of(published, device.driver, device.pool, rules)
    )
    counters = _counters(snapshot, pool, published, device)
    overlapping = tuple(
        OverlappingDevice(str(one.id), tuple(dict.fromkeys(f"{h.namespace}/{h.claim}" for h in one.holders)))
        for one in unpublished_of(snapshot, device.driver, device.pool)
        if overlaps(one, published)
    )
    state = _state(pool, snapshot.holders.get(device, ()), counters, taints, is_overlapped=bool(overlapping))
    return DeviceDescription(
        device,
        state,
        resource_slice.metadata.name,
        nodes,
        pool.state if pool is not None else "seen by no node",
        resource_slice.spec.pool.generation,
        (pool.have, pool.expected) if pool is not None else (0, resource_slice.spec.pool.resource_slice_count),
        {name: codec.to_json(value) for name, value in published.attributes.items()},
        {name: str(entry.value) for name, entry in published.capacity.items()},
        counters,
        taints,
        holders,
        tuple(_in_class(snapshot, name, published, device.driver) for name in sorted(snapshot.classes)),
        tuple(
            fact
            for key in dict.fromkeys((holder.namespace, holder.claim) for holder in holders)
            for fact in replaced(snapshot, snapshot.claims[key])
            if fact.device == str(device)
        ),
        overlapping,
    )


def _published(snapshot: Snapshot, device: DeviceId) -> tuple[ResourceSlice, Device] | None:
    """Where the newest generation publishes it."""
    resource_slices = [snapshot.slices[name] for name in keys_of(snapshot.slices_by_pool, (device.driver, device.pool))]
    for resource_slice in sorted(resource_slices, key=lambda resource_slice: -resource_slice.spec.pool.generation):
        for published in resource_slice.spec.devices:
            if published.name == device.device:
                return resource_slice, published
    return None


def _pool(snapshot: Snapshot, nodes: Sequence[str], device: DeviceId) -> VisiblePool | None:
    if not nodes:
        return None
    pools = pools_for(snapshot, snapshot.nodes[nodes[0]])
    return next((pool for pool in pools if (pool.driver, pool.name) == (device.driver, device.pool)), None)


def _counters(
    snapshot: Snapshot, pool: VisiblePool | None, published: Device, device: DeviceId
) -> tuple[tuple[str, str, int, int, int], ...]:
    """(set, counter, drawn, left, published) in whole nano-units."""
    if pool is None or not published.consumes_counters:
        return ()
    left = {(group, name): amount for group, counters in pool.counters.items() for name, amount in counters.items()}
    total = dict(left)
    for resource_slice in pool.resource_slices:
        for other in resource_slice.spec.devices:
            if DeviceId(device.driver, device.pool, other.name) in snapshot.holders:
                for use in other.consumes_counters:
                    for name, counter in use.counters.items():
                        amount = counter.value.nanos if counter.value is not None else 0
                        left[use.counter_set, name] = left.get((use.counter_set, name), 0) - amount
    return tuple(
        (
            use.counter_set,
            name,
            counter.value.nanos if counter.value is not None else 0,
            left.get((use.counter_set, name), 0),
            total.get((use.counter_set, name), 0),
        )
        for use in published.consumes_counters
        for name, counter in use.counters.items()
    )


def _state(
    pool: VisiblePool | None,
    holders: Sequence[Holder],
    counters: Sequence[tuple[str, str, int, int, int]],
    taints: Sequence[DeviceTaintInfo],
    *,
    is_overlapped: bool,
) -> str:
    if holders:
        return "shared" if all(holder.share_id is not None for holder in holders) else "held"
    if pool is None or pool.state != "ok":
        return "unusable"
    if is_overlapped or any(drawn > left for _, _, drawn, left, _ in counters):
        return "blocked"
    return "tainted" if any(taint.effect in ("NoSchedule", "NoExecute") for taint in taints) else "free"


def _holders(snapshot: Snapshot, device: DeviceId) -> tuple[DeviceHolder, ...]:
    """Every claim that has the device, admin access included."""
    found = []
    for key in sorted(snapshot.claims):
        claim = snapshot.claims[key]
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if (result.driver, result.pool, result.device) == tuple(device):
                pods = tuple(name for _, name in snapshot.consumers(claim))
                admin = bool(result.admin_access)
                found.append(DeviceHolder(*key, result.request, result.share_id or "", pods, admin))
    return tuple(found)


def _in_class(snapshot: Snapshot, name: str, device: Device, driver: str) -> ClassMatch:
    view = device_view(device, driver)
    for index, selector in enumerate(snapshot.classes[name].spec.selectors):
        text = selector.cel.expression if selector.cel is not None else ""
        compiled = compile_selector(text)
        if not isinstance(compiled, Selector):
            return ClassMatch(name, False, index, text, compiled.message)
        inspected = compiled.match(view)
        if inspected is not True:
            return ClassMatch(
                name, False, index, text, inspected.message if isinstance(inspected, SelectorFailed) else ""
            )
    return ClassMatch(name, True, -1, "", "")


# ---- nodes


def _in_use(snapshot: Snapshot, pool: VisiblePool) -> tuple[int, int, int]:
    """Devices held, shared, and of both together those no longer published."""
    gone = [one.holders for one in unpublished_of(snapshot, pool.driver, pool.name)]
    every = [*(snapshot.holders.get(seen.id, ()) for seen in pool.devices), *gone]
    shared = sum(bool(holders) and all(holder.share_id is not None for holder in holders) for holders in every)
    return sum(map(bool, every)) - shared, shared, len(gone)


def node_facts(snapshot: Snapshot, node: Node, now: datetime) -> NodeDescription:
    """A node and its devices."""
    name = node.metadata.name
    pools = pools_for(snapshot, node)
    ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
    reported = "unknown" if ready is None else ready.status
    if ready is not None and ready.status != "True":
        reported = ": ".join(part for part in (ready.status, ready.reason, ready.message) if part)
    pods = []
    drivers: dict[str, None] = {}
    for key in keys_of(snapshot.pods_by_node, name):
        pod = snapshot.pods[key]
        if is_finished(pod):
            continue
        devices, admin = [], []
        for claim in claims_used(snapshot, pod):
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation is not None else ():
                devices.append(f"{result.driver}/{result.pool}/{result.device}")
                drivers[result.driver] = None
                if result.admin_access:
                    admin.append(devices[-1])
        if devices:
            pods.append((*key, tuple(devices), tuple(admin)))
    return NodeDescription(
        name,
        reported,
        node.spec.unschedulable,
        tuple(f"{t.key}{'=' + t.value if t.value else ''}:{t.effect}" for t in node.spec.taints),
        tuple(
            (
                pool.driver,
                pool.name,
                pool.state,
                pool.have,
                pool.expected,
                len(pool.devices),
                *_in_use(snapshot, pool),
            )
            for pool in pools
        ),
        devices_on(snapshot, name, now),
        tuple(pods),
        tuple(driver for driver in drivers if not publishes(snapshot, driver, name)),
    )
