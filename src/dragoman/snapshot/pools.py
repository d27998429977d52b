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
    piece: ResourceSlice
    taints: tuple[tuple[str, DeviceTaint], ...]


class Fault(NamedTuple):
    """Why a pool is invalid: "duplicate device", "duplicate counter set", "unknown counter set" or
    "unknown counter", and which."""

    what: str
    names: tuple[str, ...]


class Pool(NamedTuple):
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
    want: int
    fault: Fault | None
    devices: tuple[SeenDevice, ...]
    pieces: tuple[ResourceSlice, ...]
    counters: Counters
    binding: bool = False


def pools_for(snapshot: Snapshot, node: Node, *, partitionable: bool = True) -> tuple[Pool, ...]:
    """The pools of a node in the order in which they are tried: by driver and name, pools in which a device has
    binding conditions last (KEP-5007). Obsolete pools are left out.

    partitionable: whether counters and per-device node selection count (DRAPartitionableDevices).
    """
    found: dict[tuple[str, str], list[ResourceSlice]] = {}
    for name in (*keys_of(snapshot.slices_by_node, node.metadata.name), *keys_of(snapshot.slices_by_node, "")):
        piece = snapshot.slices[name]
        if _targets(piece, node, partitionable=partitionable):
            found.setdefault((piece.spec.driver, piece.spec.pool.name), []).append(piece)
    pools = [
        pool
        for (driver, name), relevant in sorted(found.items())
        if (pool := _pool(snapshot, node, driver, name, relevant, partitionable=partitionable)) is not None
    ]
    return tuple(sorted(pools, key=lambda pool: pool.binding))


def device_targets(piece: ResourceSlice, device: Device, node: Node) -> bool:
    """Whether a device of a slice that targets the node targets it too (per-device node selection)."""
    if not piece.spec.per_device_node_selection or _has_node_choice(piece):
        return True
    if device.node_name is not None:
        return device.node_name == node.metadata.name
    if device.all_nodes:
        return True
    return device.node_selector is not None and selects(device.node_selector, node)


def slice_targets(piece: ResourceSlice, node: Node) -> bool:
    """Whether a slice (or at least one of its devices) targets a node."""
    return _targets(piece, node, partitionable=True)


def _has_node_choice(piece: ResourceSlice) -> bool:
    spec = piece.spec
    return spec.node_name is not None or bool(spec.all_nodes) or spec.node_selector is not None


def _targets(piece: ResourceSlice, node: Node, *, partitionable: bool) -> bool:
    spec = piece.spec
    if not partitionable and (spec.per_device_node_selection or spec.shared_counters):
        return False
    if spec.node_name is not None:
        return spec.node_name == node.metadata.name
    if spec.all_nodes:
        return True
    if spec.node_selector is not None:
        return selects(spec.node_selector, node)
    if spec.per_device_node_selection:
        return any(device_targets(piece, device, node) for device in spec.devices)
    return False


def _pool(
    snapshot: Snapshot, node: Node, driver: str, name: str, relevant: list[ResourceSlice], *, partitionable: bool
) -> Pool | None:
    generation = max(piece.spec.pool.generation for piece in relevant)
    targeting = sorted(
        (piece for piece in relevant if piece.spec.pool.generation == generation), key=lambda p: p.metadata.name
    )
    want = targeting[0].spec.pool.resource_slice_count
    pieces = targeting
    if len(targeting) != want:
        every = [snapshot.slices[key] for key in keys_of(snapshot.slices_by_pool, (driver, name))]
        if any(piece.spec.pool.generation > generation for piece in every):
            return None
        pieces = [piece for piece in every if piece.spec.pool.generation == generation]
    complete = len(pieces) == want
    rules = rules_of_pool(snapshot, driver, name)
    devices = tuple(
        SeenDevice(
            DeviceId(driver, name, device.name),
            device,
            piece,
            taints_of(device, driver, name, rules) if rules or device.taints else (),
        )
        for piece in targeting
        for device in piece.spec.devices
        if device_targets(piece, device, node)
    )
    counters: Counters = {}
    fault = None
    if complete:
        fault = _duplicate_device(targeting)
        if fault is None and partitionable:
            fault = _counter_fault(pieces, counters)
    state: Literal["ok", "incomplete", "invalid"] = "incomplete" if not complete else "invalid" if fault else "ok"
    # Devices for other nodes count too (per-device node selection); bad pools stay in front.
    binding = state == "ok" and any(device.binding_conditions for piece in targeting for device in piece.spec.devices)
    return Pool(driver, name, state, generation, len(pieces), want, fault, devices, tuple(pieces), counters, binding)


def _duplicate_device(targeting: Iterable[ResourceSlice]) -> Fault | None:
    seen: set[str] = set()
    for piece in targeting:
        for device in piece.spec.devices:
            if device.name in seen:
                return Fault("duplicate device", (device.name,))
            seen.add(device.name)
    return None


def _counter_fault(pieces: list[ResourceSlice], counters: Counters) -> Fault | None:
    """Fills counters with what the pool publishes; returns the first contradiction."""
    for piece in pieces:
        for group in piece.spec.shared_counters:
            if group.name in counters:
                return Fault("duplicate counter set", (group.name,))
            counters[group.name] = {
                name: counter.value.nanos if counter.value is not None else 0
                for name, counter in group.counters.items()
            }
    for piece in pieces:
        for device in piece.spec.devices:
            for use in device.consumes_counters:
                known = counters.get(use.counter_set)
                if known is None:
                    return Fault("unknown counter set", (device.name, use.counter_set))
                for name in use.counters:
                    if name not in known:
                        return Fault("unknown counter", (device.name, use.counter_set, name))
    return None
