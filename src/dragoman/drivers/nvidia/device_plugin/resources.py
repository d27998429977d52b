"""Which extended resources do a machine's GPUs make, with which devices? Names, ids and replicas of the device plugin.

Asks the hardware and answers; serves nothing. Rules: MIG strategies none, single and mixed of NVIDIA/k8s-device-plugin.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dragoman.drivers.nvidia.device_plugin.config import PREFIX, PluginConfig
from dragoman.drivers.nvidia.hardware import Gpu, GpuInstance, Hardware
from dragoman.errors import Invalid, Retry

GPU_RESOURCE = f"{PREFIX}gpu"
SHARED = ".shared"
REPLICA = "::"
"""Stands between a device's UUID and the number of its replica."""


class PhysicalDevice(msgspec.Struct, frozen=True):
    """A GPU, or a MIG device of it. index: as nvidia-smi counts, `0` or `0:1`."""

    uuid: str
    index: str
    gpu: Gpu
    instance: GpuInstance | None = None

    @property
    def memory_mib(self) -> int:
        """What it holds."""
        if self.instance is not None:
            return self.instance.shape.amounts.memory_mib
        return (self.gpu.memory_bytes or 0) // 2**20


class ResourcePlan(msgspec.Struct, frozen=True):
    """A resource to be served. name: as advertised; replicas: of each device, 1 for none."""

    name: str
    devices: tuple[PhysicalDevice, ...]
    replicas: int = 1

    @property
    def ids(self) -> dict[str, PhysicalDevice]:
        """Device ids, in order, and what they stand for."""
        if self.replicas == 1:
            return {device.uuid: device for device in self.devices}
        return {f"{device.uuid}{REPLICA}{number}": device for device in self.devices for number in range(self.replicas)}


class ResourcePlans(msgspec.Struct, frozen=True):
    """All resources of a machine, and what is odd about it."""

    resources: tuple[ResourcePlan, ...]
    warnings: tuple[str, ...] = ()


def physical(id_: str) -> str:
    """The UUID that a device id stands for."""
    return id_.partition(REPLICA)[0]


def planned(hardware: Hardware, config: PluginConfig) -> ResourcePlans:
    """What the hardware has now. Raises Invalid for a layout that strategy single cannot serve, Retry."""
    gpus = hardware.gpus()
    warnings: list[str] = []
    named: dict[str, list[PhysicalDevice]] = {}
    match config.mig_strategy:
        case "none":
            named[GPU_RESOURCE] = [_whole(gpu) for gpu in gpus]
        case "single":
            named[GPU_RESOURCE] = _single(hardware, gpus)
        case "mixed":
            for gpu in gpus:
                if not gpu.mig_enabled:
                    named.setdefault(GPU_RESOURCE, []).append(_whole(gpu))
                    continue
                parts = list(mig_instances(hardware, gpu))
                if not parts:
                    warnings.append(f"GPU {gpu.uuid} is in MIG mode and has no MIG devices")
                for part in parts:
                    assert part.instance is not None
                    named.setdefault(mig_resource(part.instance.shape.name), []).append(part)
    if config.kind == "mps" and any(device.instance for devices in named.values() for device in devices):
        raise Invalid("sharing.mps", "MPS cannot share MIG devices")
    plans = tuple(_plan(name, devices, config) for name, devices in sorted(named.items()) if devices)
    known = {name for name in named if named[name]}
    warnings += [
        f"sharing of {one.name} has no effect: this machine has no such resource"
        for one in config.sharing.resources
        if one.name not in known
    ]
    return ResourcePlans(plans, tuple(warnings))


def mig_resource(profile: str) -> str:
    """`nvidia.com/mig-1g.10gb.me` for `1g.10gb+me`."""
    return f"{PREFIX}mig-{profile.replace('+', '.')}"


def _plan(name: str, devices: list[PhysicalDevice], config: PluginConfig) -> ResourcePlan:
    replicas = config.replicas(name)
    renamed = replicas > 1 and config.sharing.rename_by_default
    return ResourcePlan(name + SHARED if renamed else name, tuple(devices), replicas)


def _whole(gpu: Gpu) -> PhysicalDevice:
    return PhysicalDevice(gpu.uuid, str(gpu.index), gpu)


def mig_instances(hardware: Hardware, gpu: Gpu) -> Iterator[PhysicalDevice]:
    """MIG devices that fill their GPU instance; others have no resource name."""
    try:
        instances = hardware.instances(gpu.uuid)
    except Retry:
        return
    for number, instance in enumerate(instances):
        if instance.uuid:
            yield PhysicalDevice(instance.uuid, f"{gpu.index}:{number}", gpu, instance)


def _single(hardware: Hardware, gpus: tuple[Gpu, ...]) -> list[PhysicalDevice]:
    where = "MIG strategy single"
    enabled = [gpu for gpu in gpus if gpu.mig_enabled]
    if not enabled:
        return [_whole(gpu) for gpu in gpus]
    if len(enabled) != len(gpus):
        raise Invalid(where, "all devices on the node must be configured with the same migEnabled value")
    found: list[PhysicalDevice] = []
    for gpu in enabled:
        parts = list(mig_instances(hardware, gpu))
        if not parts:
            raise Invalid(
                where,
                f"at least one device with migEnabled=true was not configured correctly: {gpu.uuid} has no MIG devices",
            )
        found += parts
    profiles = sorted({part.instance.shape.name for part in found if part.instance is not None})
    if len(profiles) > 1:
        raise Invalid(where, f"more than one MIG device type present on node: {', '.join(profiles)}")
    return found
