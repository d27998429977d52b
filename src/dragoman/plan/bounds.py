"""How many copies fit at most, however everything that runs were arranged? Sums of what is free, divided.

A bound, never an estimate: it counts free devices and node resources as if they were all in one place. What it cannot
bound (alternatives of a request, shares of one device) it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
from immutables import Map

from dragoman.api.resource import ResourceClaim, ResourceClaimSpec
from dragoman.api.selectors import Selector, compile_selector, device_view
from dragoman.inspect.inventory import CountedDevice, PoolCounts
from dragoman.plan.demand import PlannedDemand, copied, pod_needs
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.usage import DeviceId

UNBOUNDED = 10**9


class Bound(msgspec.Struct, frozen=True):
    """At most so many copies. by: what runs out first, as `device class gpu.example.com` or `cpu`."""

    copies: int
    by: str


def bound(snapshot: Snapshot, demand: PlannedDemand) -> Bound:
    """The least of all bounds."""
    found = [Bound(UNBOUNDED, ""), *_by_resources(snapshot, demand), *_by_devices(snapshot, demand)]
    return min(found, key=lambda one: one.copies)


def _by_resources(snapshot: Snapshot, demand: PlannedDemand) -> Iterable[Bound]:
    needs: Counter[str] = Counter()
    for pod, number in pod_needs(demand):
        for resource, amount in pod.items():
            needs[resource] += amount * number
    free: Counter[str] = Counter()
    unknown = set()
    for name, node in snapshot.nodes.items():
        limits = node.status.allocatable
        used = snapshot.requested.get(name, Map())
        for resource in needs:
            if limits is None or (
                resource in ("cpu", "memory", "ephemeral-storage", "pods") and resource not in limits
            ):
                unknown.add(resource)
            elif resource in limits:
                free[resource] += max(0, limits[resource].nanos - used.get(resource, 0))
    served = {c.spec.extended_resource_name for c in snapshot.classes.values() if c.spec.extended_resource_name}
    for resource, amount in needs.items():
        by_class = resource in served or resource.startswith("deviceclass.resource.kubernetes.io/")
        if amount and resource not in unknown and not by_class:
            yield Bound(free[resource] // amount, resource)


def _by_devices(snapshot: Snapshot, demand: PlannedDemand) -> Iterable[Bound]:
    wanted: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for spec, number in claim_specs(snapshot, demand):
        for request in spec.devices.requests:
            exactly = request.exactly
            if exactly is None or exactly.allocation_mode == "All" or exactly.admin_access or exactly.capacity:
                continue
            texts = tuple(s.cel.expression for s in exactly.selectors if s.cel is not None)
            wanted[exactly.device_class_name, texts] += (exactly.count or 1) * number
    if not wanted:
        return
    compiled = {key: [compile_selector(text) for text in key[1]] for key in wanted}
    free: Counter[tuple[str, tuple[str, ...]]] = Counter()
    drawn: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}
    pools: dict[tuple[str, tuple[str, ...]], set[tuple[str, str]]] = {key: set() for key in wanted}
    shared: set[tuple[str, tuple[str, ...]]] = set()

    def each(seen: CountedDevice) -> None:
        if seen.state == "unusable" or (seen.state == "unavailable" and not seen.why.startswith("node tainted")):
            return
        for key in wanted:
            if key[0] not in seen.classes:
                continue
            view = device_view(seen.device, seen.driver)
            if not all(isinstance(s, Selector) and s.match(view) is True for s in compiled[key]):
                continue
            if seen.device.allow_multiple_allocations:
                shared.add(key)
            uses = {
                name: counter.value.nanos if counter.value is not None else 0
                for use in seen.device.consumes_counters
                for name, counter in use.counters.items()
            }
            known = drawn.get(key)
            if known is None:
                drawn[key] = uses
            else:
                drawn[key] = {name: min(known[name], uses[name]) for name in known if name in uses}
            pools[key].add((seen.driver, seen.pool))
            free[key] += seen.state in ("free", "blocked", "tainted", "unavailable")

    counts = PoolCounts(snapshot)
    for driver, pool in snapshot.slices_by_pool:
        counts.of(snapshot, driver, pool, each)
    for key, number in wanted.items():
        if key in shared:
            continue
        what = f"devices of class {key[0]}"
        yield Bound(free[key] // number, what)
        left = _counters_left(snapshot, pools[key])
        for name, least in drawn.get(key, {}).items():
            if least:
                yield Bound(left[name] // least // number, f"counter {name} of {what}")


def _counters_left(snapshot: Snapshot, pools: Iterable[tuple[str, str]]) -> Counter[str]:
    """What is left of the shared counters of these pools, by the counter's name."""
    left: Counter[str] = Counter()
    for driver, pool in pools:
        for name in keys_of(snapshot.slices_by_pool, (driver, pool)):
            spec = snapshot.slices[name].spec
            for group in spec.shared_counters:
                for counter, amount in group.counters.items():
                    left[counter] += amount.value.nanos if amount.value is not None else 0
            for device in spec.devices:
                if snapshot.holders.get(DeviceId(driver, pool, device.name)):
                    for use in device.consumes_counters:
                        for counter, amount in use.counters.items():
                            left[counter] -= amount.value.nanos if amount.value is not None else 0
    return left


def claim_specs(snapshot: Snapshot, demand: PlannedDemand) -> Iterable[tuple[ResourceClaimSpec, int]]:
    """The claims that one copy creates, each with how many of it."""
    for change in copied(demand, 0):
        if isinstance(change.object, ResourceClaim):
            yield change.object.spec, 1
    for namespace, template, number in demand.templates:
        made = snapshot.templates.get((namespace, template))
        if made is not None:
            yield made.spec.spec, number
