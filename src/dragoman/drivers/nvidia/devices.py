"""What does the driver publish of its hardware? Full GPUs, MIG devices, partitions to come, GPUs to pass through.

Names, attributes, capacities and counters as upstream's driver has them. Hardware in, devices out: nothing is changed.
Parts that equal each other are one object, since thousands of simulated GPUs share a process.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

import msgspec

from dragoman.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from dragoman.drivers.nvidia.config import MIB, DeviceType
from dragoman.drivers.nvidia.gates import DriverGates
from dragoman.drivers.nvidia.hardware import Function, Gpu, GpuInstance, Hardware, Versions
from dragoman.errors import Invalid, Retry
from dragoman.node.driver import Pool
from dragoman.profiles.machine import FabricPartition
from dragoman.profiles.mig import InstanceAmounts, InstanceProfile, PlacedInstance, by_preference, token
from dragoman.values.quantity import Quantity
from dragoman.values.semver import Semver

NUMA, PCI_BUS_ID, PCIE_ROOT = (f"resource.kubernetes.io/{name}" for name in ("numaNode", "pciBusID", "pcieRoot"))
ENGINES = ("multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines")
COUNTERS = ("multiprocessors", "copy-engines", "decoders", "encoders", "jpeg-engines", "ofa-engines")


class Known(msgspec.Struct, frozen=True):
    """What a device name stands for."""

    name: str
    kind: DeviceType
    gpu: Gpu | None = None
    instance: GpuInstance | None = None
    placed: PlacedInstance | None = None
    function: Function | None = None

    @property
    def uuid(self) -> str:
        """The GPU's or MIG device's UUID; empty for partitions that are not made and for passthrough."""
        if self.instance is not None:
            return self.instance.uuid
        return self.gpu.uuid if self.gpu is not None and self.placed is None else ""


class Shares(msgspec.Struct, frozen=True):
    """How memory is shared out (gate ConsumableShares): mode memory, unlimited, or count; count 0 for the others."""

    mode: str = "disabled"
    count: int = 0

    @classmethod
    def parse(cls, text: str, where: str = "--consumable-shares") -> Shares:
        """`disabled` or empty, `memory`, `unlimited`, or a number. Raises Invalid."""
        if text in ("", "disabled"):
            return cls()
        if text in ("memory", "unlimited"):
            return cls(text)
        if not text.isdecimal() or int(text) < 1:
            raise Invalid(where, f"must be disabled, memory, unlimited or a number above 0, got {text!r}")
        return cls("count", int(text))


NO_SHARES = Shares()


class GpuInventory(msgspec.Struct, frozen=True):
    """All devices by name, in the order of publication, and the pool."""

    devices: dict[str, Known]
    pool: Pool
    empty_mig: tuple[str, ...] = ()
    """GPUs in MIG mode of which nothing is published."""


def take(
    hardware: Hardware,
    gates: DriverGates,
    shares: Shares = NO_SHARES,
    *,
    hidden: Collection[str] = (),
    taints: Callable[[Collection[Known]], Mapping[str, Sequence[DeviceTaint]]] | None = None,
    before: GpuInventory | None = None,
) -> GpuInventory:
    """The inventory now. hidden: names not to be published, but known; taints(devices): by name; before: for lost
    GPUs."""
    versions = hardware.versions()
    partitions = hardware.partitions() if gates.on("FabricManagerPartitioning") else ()
    taker = _Taker(hardware, gates, shares, versions, partitions, before)
    for gpu in hardware.gpus():
        taker.take_gpu(gpu)
    if gates.on("PassthroughSupport"):
        for function in hardware.functions():
            taker.take_function(function)
    found = taints(taker.known.values()) if taints is not None else {}
    devices = [_tainted(device, found) for device in taker.devices if device.name not in hidden]
    pool = Pool(tuple(devices), tuple(taker.counters), slice_starts=tuple(taker.starts) if taker.counters else ())
    return GpuInventory(taker.known, pool, tuple(taker.empty))


def _tainted(device: Device, taints: Mapping[str, Sequence[DeviceTaint]] | None) -> Device:
    found = tuple((taints or {}).get(device.name, ()))
    return msgspec.structs.replace(device, taints=found) if found else device


class _Taker:
    """Collects devices, one GPU after the other."""

    def __init__(
        self,
        hardware: Hardware,
        gates: DriverGates,
        shares: Shares,
        versions: Versions,
        partitions: Sequence[FabricPartition],
        before: GpuInventory | None,
    ) -> None:
        self.hardware = hardware
        self.gates = gates
        self.shares = shares if gates.on("ConsumableShares") else Shares()
        self.versions = versions
        self.partitions = partitions
        self.before = before
        self.known: dict[str, Known] = {}
        self.devices: list[Device] = []
        self.counters: list[CounterSet] = []
        self.starts: list[str] = []
        self.empty: list[str] = []
        self.modules: dict[str, int] = {}

    def take_gpu(self, gpu: Gpu) -> None:
        self.modules[gpu.pci_bus_id] = gpu.module_id
        if self.gates.on("DynamicMIG"):
            self._take_dynamic(gpu)
        elif not gpu.mig_enabled:
            self._add(Known(f"gpu-{gpu.minor}", "gpu", gpu), self._gpu(gpu))
        else:
            instances = self._instances(gpu)
            if not instances:
                self.empty.append(gpu.uuid)
            made = [(mig_name(gpu, PlacedInstance(i.shape, i.start)), i) for i in instances]
            for name, instance in sorted(made, key=lambda pair: pair[0]):
                self._add(Known(name, "mig", gpu, instance), self._mig(name, gpu, instance.shape, instance))

    def _instances(self, gpu: Gpu) -> Sequence[GpuInstance]:
        try:
            # One without a compute instance that fills it is nobody's device.
            return [instance for instance in self.hardware.instances(gpu.uuid) if instance.uuid]
        except Retry:
            # It is lost: what was published of it stays, with its taint.
            known = self.before.devices.values() if self.before else ()
            return [k.instance for k in known if k.instance is not None and k.gpu and k.gpu.uuid == gpu.uuid]

    def _take_dynamic(self, gpu: Gpu) -> None:
        shapes = self.hardware.shapes(gpu.uuid) if gpu.mig_capable else ()
        rows: list[tuple[Known, Device]] = []
        if gpu.toggles_mig or not gpu.mig_enabled or not shapes:
            rows.append((Known(f"gpu-{gpu.minor}", "gpu", gpu), self._gpu(gpu, shapes)))
        if shapes and (gpu.toggles_mig or gpu.mig_enabled):
            for placed in by_preference(tuple(shapes)):
                name = mig_name(gpu, placed)
                rows.append((Known(name, "mig", gpu, placed=placed), self._partition(name, gpu, placed)))
        if shapes:
            self.counters.append(_counter_set(gpu, shapes[0].whole, _axis(shapes)))
        self.starts.append(rows[0][0].name)
        for known, device in rows:
            self._add(known, device)

    def _add(self, known: Known, device: Device) -> None:
        self.known[known.name] = known
        self.devices.append(device)

    # ---- attributes

    def _common(self, gpu: Gpu) -> dict[str, DeviceAttribute]:
        made = {
            "productName": _text(gpu.name),
            "brand": _text(gpu.brand),
            "architecture": _text(gpu.architecture),
            "cudaComputeCapability": _version(gpu.compute_capability),
            "driverVersion": _version(self.versions.driver),
            "cudaDriverVersion": _version(f"{self.versions.cuda // 1000}.{self.versions.cuda % 1000 // 10}"),
        }
        if gpu.addressing_mode:
            made["addressingMode"] = _text(gpu.addressing_mode)
        return made | self._place(gpu.pci_bus_id, gpu.pcie_root, gpu.numa)

    def _place(self, bus_id: str, root: str, numa: int | None) -> dict[str, DeviceAttribute]:
        made = {PCI_BUS_ID: _text(bus_id)}
        if root:
            made[PCIE_ROOT] = _text(root)
        if numa is not None and numa >= 0:
            made[NUMA] = _ints(numa) if self.gates.on("DRAListTypeAttributes") else _int(numa)
        return made

    def _fabric(self, module_id: int) -> dict[str, DeviceAttribute]:
        if not self.gates.on("FabricManagerPartitioning") or module_id == 0:
            return {}
        made = {"gpuModuleID": _int(module_id)}
        for partition in self.partitions:
            if module_id in partition.modules:
                made[f"partition{len(partition.modules)}"] = _int(partition.id)
        return made

    # ---- devices

    def _gpu(self, gpu: Gpu, shapes: Sequence[InstanceProfile] = ()) -> Device:
        attributes = {"type": _text("gpu"), "uuid": DeviceAttribute(string=gpu.uuid)}
        attributes |= self._common(gpu) | self._fabric(gpu.module_id)
        name = f"gpu-{gpu.minor}"
        if shapes:
            whole, size = shapes[0].whole, _axis(shapes)
            consumption = _consumption(f"{name}-counter-set", whole, range(size))
            return self._shared(Device(name, attributes, _capacities(whole), (consumption,)))
        capacity = {} if gpu.memory_bytes is None else {"memory": _memory(gpu.memory_bytes)}
        return self._shared(Device(name, attributes, capacity))

    def _mig(self, name: str, gpu: Gpu, shape: InstanceProfile, instance: GpuInstance) -> Device:
        attributes = {"type": _text("mig"), "uuid": DeviceAttribute(string=instance.uuid)}
        attributes |= {"parentUUID": DeviceAttribute(string=gpu.uuid), "profile": _text(shape.name)}
        capacity = dict(_capacities(shape.amounts))
        capacity |= {f"memorySlice{at}": _amount(1) for at in shape.slices(instance.start)}
        return self._shared(Device(name, attributes | self._common(gpu), capacity))

    def _partition(self, name: str, gpu: Gpu, placed: PlacedInstance) -> Device:
        shape = placed.shape
        attributes = {
            "type": _text("mig"),
            "parentUUID": DeviceAttribute(string=gpu.uuid),
            "profile": _text(shape.name),
        }
        consumption = _consumption(f"gpu-{gpu.minor}-counter-set", shape.amounts, shape.slices(placed.start))
        return self._shared(Device(name, attributes | self._common(gpu), _capacities(shape.amounts), (consumption,)))

    def take_function(self, function: Function) -> None:
        name = f"gpu-vfio-{function.index}"
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, function.pci_bus_id)
        attributes = {
            "type": _text("vfio"),
            "uuid": _text(str(identity)),
            "deviceID": _text(function.device_id),
            "vendorID": _text("0x10de"),
            "productName": _text(function.product),
            "iommuFDEnabled": DeviceAttribute(bool_=self.hardware.has_iommufd()),
        }
        attributes |= self._place(function.pci_bus_id, function.pcie_root, function.numa)
        attributes |= self._fabric(function.module_id or self.modules.get(function.pci_bus_id, 0))
        capacity = {"addressableMemory": _memory(function.addressable_bytes)}
        self._add(Known(name, "vfio", function=function), Device(name, attributes, capacity))

    def _shared(self, device: Device) -> Device:
        if self.shares.mode == "disabled" or "memory" not in device.capacity:
            return device
        value = device.capacity["memory"].value
        assert value is not None
        capacity = {**device.capacity, "memory": _shared_memory(self.shares.mode, value.nanos // 10**9 // MIB)}
        if self.shares.count:
            capacity["shares"] = _share_count(self.shares.count)
        return msgspec.structs.replace(device, capacity=capacity, allow_multiple_allocations=True)


def mig_name(gpu: Gpu, placed: PlacedInstance) -> str:
    """`gpu-0-mig-1g5gb-19-4`: parent's minor, profile, profile id, start."""
    return f"gpu-{gpu.minor}-mig-{token(placed.shape.name)}-{placed.shape.id}-{placed.start}"


def _axis(shapes: Sequence[InstanceProfile]) -> int:
    return max(shape.size for shape in shapes)


# ---- values, one object each


@lru_cache(maxsize=4096)
def _text(value: str) -> DeviceAttribute:
    return DeviceAttribute(string=value[:64])


@lru_cache(maxsize=1024)
def _int(value: int) -> DeviceAttribute:
    return DeviceAttribute(int_=value)


@lru_cache(maxsize=256)
def _ints(value: int) -> DeviceAttribute:
    return DeviceAttribute(ints=(value,))


@lru_cache(maxsize=256)
def _version(text: str) -> DeviceAttribute:
    """Three numbers without leading zeros; a text that is no version at all stays a text."""
    numbers = text.split(".")
    try:
        # Normalising adds missing numbers; drivers have three, some have leading zeros.
        return DeviceAttribute(version=str(Semver.parse(".".join(numbers[:3]), normalize=True)))
    except ValueError:
        return DeviceAttribute(string=text[:64])


@lru_cache(maxsize=512)
def _memory(size: int) -> DeviceCapacity:
    for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size % factor == 0:
            return DeviceCapacity(Quantity.parse(f"{size // factor}{unit}"))
    return DeviceCapacity(Quantity.parse(size))


@lru_cache(maxsize=1024)
def _amount(value: int) -> DeviceCapacity:
    return DeviceCapacity(Quantity.parse(value))


@lru_cache(maxsize=256)
def _shared_memory(mode: str, mebibytes: int) -> DeviceCapacity:
    full, one, zero = (Quantity.parse(f"{amount}Mi") for amount in (mebibytes, 1, 0))
    default, least = (full, one) if mode == "memory" else (zero, zero)
    policy = CapacityRequestPolicy(default, valid_range=CapacityRequestPolicyRange(least, full, one))
    return DeviceCapacity(full, policy)


@lru_cache(maxsize=64)
def _share_count(count: int) -> DeviceCapacity:
    one, most = Quantity.parse(1), Quantity.parse(count)
    return DeviceCapacity(most, CapacityRequestPolicy(one, valid_range=CapacityRequestPolicyRange(one, most, one)))


@lru_cache(maxsize=512)
def _capacities(amounts: InstanceAmounts) -> dict[str, DeviceCapacity]:
    """Shared: never to be changed."""
    made = {name: _amount(value) for name, value in zip(ENGINES, amounts.engines(), strict=True)}
    return made | {"memory": _memory(amounts.memory_mib * MIB)}


@lru_cache(maxsize=1024)
def _counters(amounts: InstanceAmounts, slices: range) -> dict[str, Counter]:
    """Shared: never to be changed."""
    made = {name: Counter(_amount(value).value) for name, value in zip(COUNTERS, amounts.engines(), strict=True)}
    made["memory"] = Counter(_memory(amounts.memory_mib * MIB).value)
    return made | {f"memory-slice-{at}": Counter(_amount(1).value) for at in slices}


def _counter_set(gpu: Gpu, whole: InstanceAmounts, size: int) -> CounterSet:
    return CounterSet(f"gpu-{gpu.minor}-counter-set", _counters(whole, range(size)))


@lru_cache(maxsize=4096)
def _consumption(counter_set: str, amounts: InstanceAmounts, slices: range) -> DeviceCounterConsumption:
    return DeviceCounterConsumption(counter_set, _counters(amounts, slices))
