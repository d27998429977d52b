"""Which ResourceSlices should there be, and which writes lead from those that are there to those?

Pure: pools in, slices and writes out. Rules of upstream's resourceslice controller (generations, names, minimal
writes) and the API's limits. It never talks to a server (`publish`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec

from dragoman.api.meta import ObjectMeta, OwnerReference, parse_time
from dragoman.api.resource import CounterSet, Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec
from dragoman.errors import Invalid
from dragoman.node.driver import Pool

DEVICES_MAX = 128
DEVICES_MAX_DETAILED = 64
"""With taints, counters or list attributes on any device of the slice."""
COUNTER_SETS_MAX = 8


class Writes(msgspec.Struct, frozen=True):
    """What to do, in this order."""

    delete: tuple[ResourceSlice, ...] = ()
    update: tuple[ResourceSlice, ...] = ()
    create: tuple[ResourceSlice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


class PublisherScope(msgspec.Struct, frozen=True):
    """Who publishes: driver, node ("" for pools bound to none), and the owner of the slices."""

    driver: str
    node_name: str = ""
    owner: OwnerReference | None = None

    @property
    def owner_name(self) -> str:
        """What slice names carry."""
        return self.owner.name if self.owner else self.node_name


def layout(scope: PublisherScope, name: str, pool: Pool) -> tuple[ResourceSliceSpec, ...]:
    """The slices of a pool, without generation; at least one, so that an empty pool shows a living driver.

    Raises Invalid for what no server or allocator would take: duplicate names, unknown counters.
    """
    _check(name, pool)
    counters = [
        pool.shared_counters[i : i + COUNTER_SETS_MAX] for i in range(0, len(pool.shared_counters), COUNTER_SETS_MAX)
    ]
    parts: list[tuple[tuple[CounterSet, ...], tuple[Device, ...]]] = [(sets, ()) for sets in counters]
    parts += [((), devices) for devices in _split(pool.devices, frozenset(pool.slice_starts))]
    if not parts:
        parts = [((), ())]
    per_device = any(_has_selection(device) for device in pool.devices)
    if (per_device or pool.all_nodes or pool.node_selector) and scope.node_name:
        raise Invalid(f"pool {name}", "a pool for other nodes is published by a plugin with `only_pool`, not per node")
    specs = []
    for sets, devices in parts:
        consumes = any(device.consumes_counters for device in devices)
        specs.append(
            ResourceSliceSpec(
                driver=scope.driver,
                pool=ResourcePool(name, resource_slice_count=len(parts)),
                node_name=scope.node_name or None,
                node_selector=None if per_device else pool.node_selector,
                all_nodes=(pool.all_nodes or None) if not per_device else None,
                per_device_node_selection=per_device or None,
                devices=devices,
                shared_counters=sets,
                partition_type_attribute=pool.partition_type_attribute if consumes else None,
                skip_node_operations=pool.skip_node_operations,
            )
        )
    return tuple(specs)


def _has_selection(device: Device) -> bool:
    return bool(device.node_name or device.node_selector or device.all_nodes)


def _is_detailed(device: Device) -> bool:
    lists = any(a.ints or a.bools or a.strings or a.versions for a in device.attributes.values())
    return bool(device.taints or device.consumes_counters or lists)


def _split(devices: Sequence[Device], starts: frozenset[str]) -> Iterator[tuple[Device, ...]]:
    start = 0
    while start < len(devices):
        size = DEVICES_MAX
        if any(_is_detailed(device) for device in devices[start : start + size]):
            size = DEVICES_MAX_DETAILED
        part = devices[start : start + size]
        size = next((i for i, device in enumerate(part) if i and device.name in starts), size)
        yield tuple(devices[start : start + size])
        start += size


def _check(name: str, pool: Pool) -> None:
    sets: dict[str, CounterSet] = {}
    for counter_set in pool.shared_counters:
        if counter_set.name in sets:
            raise Invalid(f"pool {name}", f"counter set {counter_set.name!r} is defined twice")
        sets[counter_set.name] = counter_set
    seen: set[str] = set()
    for device in pool.devices:
        if device.name in seen:
            raise Invalid(f"pool {name}", f"device {device.name!r} is defined twice")
        seen.add(device.name)
        for consumed in device.consumes_counters:
            known = sets.get(consumed.counter_set)
            if known is None:
                raise Invalid(
                    f"pool {name}, device {device.name}",
                    f"draws on counter set {consumed.counter_set!r}, which the pool does not have",
                )
            for counter in consumed.counters:
                if counter not in known.counters:
                    raise Invalid(
                        f"pool {name}, device {device.name}",
                        f"draws on counter {counter!r}, which set {consumed.counter_set!r} does not have",
                    )


def difference(
    scope: PublisherScope, name: str, pool: Pool, stored: Sequence[ResourceSlice], kept: dict[str, ResourceSliceSpec]
) -> Writes:
    """Writes for one pool. `stored` are the slices of it that exist.

    `kept` maps the name of a stored slice to what the server made of what was sent, where it dropped fields: sent and
    stored then count as equal. Raises Invalid.
    """
    wanted = layout(scope, name, pool)
    newest = max((s.spec.pool.generation for s in stored), default=0)
    matched, obsolete = _match(wanted, stored, newest)
    changed = [
        index
        for index, spec in enumerate(wanted)
        if (old := matched.get(index)) and not _same(spec, old, newest, kept.get(old.metadata.name))
    ]
    missing = [index for index in range(len(wanted)) if index not in matched]
    generation = _generation(pool, newest, changed, missing)
    if generation != newest:
        changed = sorted(matched)
    return Writes(
        delete=tuple(obsolete),
        update=tuple(_updated(matched[index], wanted[index], generation) for index in changed),
        create=tuple(_created(scope, index, len(wanted), wanted[index], generation) for index in missing),
    )


def _generation(pool: Pool, newest: int, changed: Sequence[int], missing: Sequence[int]) -> int:
    if pool.generation > newest:
        return pool.generation
    if newest and not missing and len(changed) <= 1:
        return newest
    return newest + 1


def _match(
    wanted: Sequence[ResourceSliceSpec], stored: Sequence[ResourceSlice], newest: int
) -> tuple[dict[int, ResourceSlice], list[ResourceSlice]]:
    matched: dict[int, ResourceSlice] = {}
    obsolete: list[ResourceSlice] = []
    for old in sorted(stored, key=lambda s: s.metadata.name):
        index = _index_of(old.metadata.name, len(wanted))
        if old.spec.pool.generation < newest or index is None or index in matched:
            obsolete.append(old)
        else:
            matched[index] = old
    return matched, obsolete


def _width(count: int) -> int:
    return max(5, len(f"{max(count - 1, 0):x}"))


def _index_of(name: str, count: int) -> int | None:
    digits = name.partition("-")[0]
    if len(digits) != _width(count):
        return None
    try:
        index = int(digits, 16)
    except ValueError:
        return None
    return index if index < count else None


def _same(wanted: ResourceSliceSpec, old: ResourceSlice, newest: int, kept: ResourceSliceSpec | None) -> bool:
    sent = _with_pool(wanted, newest)
    found = old.spec
    if kept is not None and equal(sent, kept):
        return True
    return equal(sent, found)


def equal(wanted: ResourceSliceSpec, found: ResourceSliceSpec) -> bool:
    """Whether what is there says what is wanted; taint times that are absent or within a second are equal."""
    if len(wanted.devices) != len(found.devices):
        return False
    aligned = tuple(_with_times(w, f) for w, f in zip(wanted.devices, found.devices, strict=True))
    return msgspec.structs.replace(wanted, devices=aligned) == found


def _with_pool(spec: ResourceSliceSpec, generation: int) -> ResourceSliceSpec:
    return msgspec.structs.replace(spec, pool=msgspec.structs.replace(spec.pool, generation=generation))


def _with_times(wanted: Device, found: Device) -> Device:
    if not wanted.taints:
        return wanted
    taints = []
    for taint in wanted.taints:
        old = next((t for t in found.taints if _is_same_taint(taint, t)), None)
        taints.append(msgspec.structs.replace(taint, time_added=old.time_added) if old else taint)
    return msgspec.structs.replace(wanted, taints=tuple(taints))


def _is_same_taint(wanted: DeviceTaint, old: DeviceTaint) -> bool:
    if (wanted.key, wanted.value, wanted.effect) != (old.key, old.value, old.effect):
        return False
    if wanted.time_added is None or old.time_added is None:
        return True
    return abs(parse_time(wanted.time_added) - parse_time(old.time_added)) <= timedelta(seconds=1)


def _updated(old: ResourceSlice, wanted: ResourceSliceSpec, generation: int) -> ResourceSlice:
    before = {device.name: device for device in old.spec.devices}
    devices = tuple(
        _with_times(device, before[device.name]) if device.name in before else device for device in wanted.devices
    )
    spec = _with_pool(msgspec.structs.replace(wanted, devices=devices), generation)
    return ResourceSlice(metadata=old.metadata, spec=spec)


def _created(
    scope: PublisherScope, index: int, count: int, wanted: ResourceSliceSpec, generation: int
) -> ResourceSlice:
    owner_name = f"-{scope.owner_name}" if scope.owner_name else ""
    prefix = f"{index:0{_width(count)}x}-{scope.driver}{owner_name}-"
    owners = (scope.owner,) if scope.owner else ()
    return ResourceSlice(
        metadata=ObjectMeta(generate_name=prefix, owner_references=owners), spec=_with_pool(wanted, generation)
    )


def dropped(sent: ResourceSliceSpec, stored: ResourceSliceSpec) -> list[str]:
    """Feature gates that a server which stored this of that seems to have off."""
    gates: dict[str, None] = {}
    if (sent.shared_counters and not stored.shared_counters) or (
        sent.per_device_node_selection and not stored.per_device_node_selection
    ):
        gates["DRAPartitionableDevices"] = None
    if sent.partition_type_attribute and not stored.partition_type_attribute:
        gates["DRAPartitionableDevicesType"] = None
    if sent.skip_node_operations and not stored.skip_node_operations:
        gates["DRAOptionalNodeOperations"] = None
    found = {device.name: device for device in stored.devices}
    for device in sent.devices:
        kept = found.get(device.name)
        if kept is None:
            continue
        for field, gate in _GATED.items():
            if getattr(device, field) and not getattr(kept, field):
                gates[gate] = None
        if any(c.request_policy for c in device.capacity.values()) and not any(
            c.request_policy for c in kept.capacity.values()
        ):
            gates["DRAConsumableCapacity"] = None
    return list(gates)


_GATED = {
    "taints": "DRADeviceTaints",
    "consumes_counters": "DRAPartitionableDevices",
    "node_name": "DRAPartitionableDevices",
    "node_selector": "DRAPartitionableDevices",
    "all_nodes": "DRAPartitionableDevices",
    "binds_to_node": "DRADeviceBindingConditions",
    "binding_conditions": "DRADeviceBindingConditions",
    "binding_failure_conditions": "DRADeviceBindingConditions",
    "allow_multiple_allocations": "DRAConsumableCapacity",
    "node_allocatable_resources": "DRANodeAllocatableResources",
}
