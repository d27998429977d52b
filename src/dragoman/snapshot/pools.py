"""Which devices does a node see, in which order, and which pools are not fit for use?

A pool is all slices of one (driver, pool name). For a node it is made of the slices that target the node at their
newest generation, and is complete, incomplete (being published), invalid (contradicts itself) or obsolete (a newer
generation exists on other nodes only). Source: KEP-4381, KEP-4815. Never asks who holds a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from dragoman.api.core import Node
from dragoman.api.resource import Device, DeviceTaint, ResourceSlice
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.selection import selects
from dragoman.snapshot.taints import rules_of_pool, taints_of
from dragoman.snapshot.usage import DeviceId

Counters = dict[str, dict[str, int]]
"""Counter set -> counter -> nano-units."""


class SeenDevice(NamedTuple):
    """A device that targets the node. taints: (rule name or "", taint)."""

    id: DeviceId
    device: Device
    resource_slice: ResourceSlice
    taints: tuple[tuple[str, DeviceTaint], ...]


class PoolFault(NamedTuple):
    """Why a pool is invalid: "duplicate device", "duplicate counter set", "unknown counter set" or
    "unknown counter", and which."""

    what: str
    names: tuple[str, ...]


class VisiblePool(NamedTuple):
    """A pool as one node sees it.

    state: ok, incomplete (`have` of `want` slices) or invalid (`fault`). devices: those that target the node, in
    order, also in bad pools. pieces: all slices at this generation as far as they were needed (targeting or not).
    counters: published amounts of all counter sets. binding: a device of its targeting slices has binding conditions.
    """

    driver: str
    name: str
    state: Literal["ok", "incomplete", "invalid"]
    generation: int
    have: int
    expected: int
    fault: PoolFault | None
    devices: tuple[SeenDevice, ...]
    resource_slices: tuple[ResourceSlice, ...]
    counters: Counters
    binding: bool = False


def pools_for(snapshot: Snapshot, node: Node, *, partitionable: bool = True) -> tuple[VisiblePool, ...]:
    """The pools of a node in the order in which they are tried: by driver and name, pools in which a device has
    binding conditions last (KEP-5007). Obsolete pools are left out.

    partitionable: whether counters and per-device node selection count (DRAPartitionableDevices).
    """
    found: dict[tuple[str, str], list[ResourceSlice]] = {}
    for name in (*keys_of(snapshot.slices_by_node, node.metadata.name), *keys_of(snapshot.slices_by_node, "")):
        resource_slice = snapshot.slices[name]
        if _targets(resource_slice, node, partitionable=partitionable):
            found.setdefault((resource_slice.spec.driver, resource_slice.spec.pool.name), []).append(resource_slice)
    pools = [
        pool
        for (driver, name), relevant in sorted(found.items())
        if (pool := _pool(snapshot, node, driver, name, relevant, partitionable=partitionable)) is not None
    ]
    return tuple(sorted(pools, key=lambda pool: pool.binding))


def device_targets(resource_slice: ResourceSlice, device: Device, node: Node) -> bool:
    """Whether a device of a slice that targets the node targets it too (per-device node selection)."""
    if not resource_slice.spec.per_device_node_selection or _has_node_choice(resource_slice):
        return True
    if device.node_name is not None:
        return device.node_name == node.metadata.name
    if device.all_nodes:
        return True
    return device.node_selector is not None and selects(device.node_selector, node)


def slice_targets(resource_slice: ResourceSlice, node: Node) -> bool:
    """Whether a slice (or at least one of its devices) targets a node."""
    return _targets(resource_slice, node, partitionable=True)


def _has_node_choice(resource_slice: ResourceSlice) -> bool:
    spec = resource_slice.spec
    return spec.node_name is not None or bool(spec.all_nodes) or spec.node_selector is not None


def _targets(resource_slice: ResourceSlice, node: Node, *, partitionable: bool) -> bool:
    spec = resource_slice.spec
    if not partitionable and (spec.per_device_node_selection or spec.shared_counters):
        return False
    if spec.node_name is not None:
        return spec.node_name == node.metadata.name
    if spec.all_nodes:
        return True
    if spec.node_selector is not None:
        return selects(spec.node_selector, node)
    if spec.per_device_node_selection:
        return any(device_targets(resource_slice, device, node) for device in spec.devices)
    return False


def _pool(
    snapshot: Snapshot, node: Node, driver: str, name: str, relevant: list[ResourceSlice], *, partitionable: bool
) -> VisiblePool | None:
    generation = max(resource_slice.spec.pool.generation for resource_slice in relevant)
    targeting = sorted(
        (resource_slice for resource_slice in relevant if resource_slice.spec.pool.generation == generation),
        key=lambda p: p.metadata.name,
    )
    expected = targeting[0].spec.pool.resource_slice_count
    resource_slices = targeting
    if len(targeting) != expected:
        every = [snapshot.slices[key] for key in keys_of(snapshot.slices_by_pool, (driver, name))]
        if any(resource_slice.spec.pool.generation > generation for resource_slice in every):
            return None
        resource_slices = [
            resource_slice for resource_slice in every if resource_slice.spec.pool.generation == generation
        ]
    complete = len(resource_slices) == expected
    rules = rules_of_pool(snapshot, driver, name)
    devices = tuple(
        SeenDevice(
            DeviceId(driver, name, device.name),
            device,
            resource_slice,
            taints_of(device, driver, name, rules) if rules or device.taints else (),
        )
        for resource_slice in targeting
        for device in resource_slice.spec.devices
        if device_targets(resource_slice, device, node)
    )
    counters: Counters = {}
    fault = None
    if complete:
        fault = _duplicate_device(targeting)
        if fault is None and partitionable:
            fault = _counter_fault(resource_slices, counters)
    state: Literal["ok", "incomplete", "invalid"] = "incomplete" if not complete else "invalid" if fault else "ok"
    # Devices for other nodes count too (per-device node selection); bad pools stay in front.
    binding = state == "ok" and any(
        device.binding_conditions for resource_slice in targeting for device in resource_slice.spec.devices
    )
    return VisiblePool(
        driver,
        name,
        state,
        generation,
        len(resource_slices),
        expected,
        fault,
        devices,
        tuple(resource_slices),
        counters,
        binding,
    )


def _duplicate_device(targeting: Iterable[ResourceSlice]) -> PoolFault | None:
    seen: set[str] = set()
    for resource_slice in targeting:
        for device in resource_slice.spec.devices:
            if device.name in seen:
                return PoolFault("duplicate device", (device.name,))
            seen.add(device.name)
    return None


def _counter_fault(resource_slices: list[ResourceSlice], counters: Counters) -> PoolFault | None:
    """Fills counters with what the pool publishes; returns the first contradiction."""
    for resource_slice in resource_slices:
        for group in resource_slice.spec.shared_counters:
            if group.name in counters:
                return PoolFault("duplicate counter set", (group.name,))
            counters[group.name] = {
                name: counter.value.nanos if counter.value is not None else 0
                for name, counter in group.counters.items()
            }
    for resource_slice in resource_slices:
        for device in resource_slice.spec.devices:
            for use in device.consumes_counters:
                known = counters.get(use.counter_set)
                if known is None:
                    return PoolFault("unknown counter set", (device.name, use.counter_set))
                for name in use.counters:
                    if name not in known:
                        return PoolFault("unknown counter", (device.name, use.counter_set, name))
    return None
