"""What does the DCGM exporter show of a simulated node's GPUs? Its default counters, with the pods and claims that use
them.

Names, labels and units are those of NVIDIA/dcgm-exporter 4.8 (`etc/default-counters.csv`); who uses what is asked of
the kubelet's podresources service, as it does. The load is made up: a GPU that a running container has is busy, unless
the pod's annotations say otherwise. Temperature, power and clocks follow from that. On real nodes NVIDIA's runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dragoman.api.kinds import kind_of
from dragoman.cluster.client import Client
from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.nvidia.device_plugin.config import PREFIX
from dragoman.drivers.nvidia.device_plugin.other_path import pods_of
from dragoman.drivers.nvidia.device_plugin.resources import physical
from dragoman.drivers.nvidia.devices import mig_name
from dragoman.drivers.nvidia.hardware import Gpu, GpuInstance
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.errors import DragomanError, Retry
from dragoman.profiles.mig import PlacedInstance
from dragoman.runtime.clock import Clock
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.values.quantity import NANO, Quantity

INTERVAL_S = 30.0
LOAD, MEMORY = "dragoman.dev/gpu-load", "dragoman.dev/gpu-memory"
"""Annotations of a pod: part of a GPU that each of its containers keeps busy, 0 to 1; memory that it has on each."""
DEFAULT_LOAD, USED = 0.85, 0.6
"""Of a container that nobody gave a load; of the GPU's memory."""
MIB = 2**20
IDLE_C, LOAD_C, MEMORY_C = 32, 40, 6
IDLE_POWER = 0.12
RESERVED_MIB = 512
SM_CLOCK, MEM_CLOCK, IDLE_CLOCK = 1980, 2619, 345
NVLINK_BYTES = 400 * 10**9
"""A second, of a GPU with NVLink that is all busy."""


class DcgmField(msgspec.Struct, frozen=True):
    """A counter: its help, and whether it is shown of MIG instances, too."""

    name: str
    help: str
    of_instances: bool = False


FIELDS: tuple[DcgmField, ...] = (
    DcgmField("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz)."),
    DcgmField("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz)."),
    DcgmField("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C)."),
    DcgmField("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C)."),
    DcgmField("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W)."),
    DcgmField("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ)."),
    DcgmField("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries."),
    DcgmField("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)."),
    DcgmField("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %)."),
    DcgmField("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %)."),
    DcgmField("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %)."),
    DcgmField("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", True),
    DcgmField("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", True),
    DcgmField("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", True),
    DcgmField("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", True),
    DcgmField("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors."),
    DcgmField("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors."),
    DcgmField("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed."),
    DcgmField("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Total number of NVLink bandwidth counters for all lanes."),
    DcgmField("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "vGPU License status."),
    DcgmField("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", True),
    DcgmField("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active.", True),
    DcgmField("DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of cycles the device memory interface is active.", True),
    DcgmField("DCGM_FI_PROF_PCIE_TX_BYTES", "Rate of data transmitted over the PCIe bus (in bytes per second)."),
    DcgmField("DCGM_FI_PROF_PCIE_RX_BYTES", "Rate of data received over the PCIe bus (in bytes per second)."),
)


class GpuUser(msgspec.Struct, frozen=True):
    """A container that has a GPU or an instance; claim: labels of the claim, if it has it by one."""

    namespace: str
    pod: str
    container: str
    load: float = DEFAULT_LOAD
    memory_mib: int | None = None
    claim: Mapping[str, str] = {}

    @property
    def labels(self) -> dict[str, str]:
        """As series have them."""
        return {"namespace": self.namespace, "pod": self.pod, "container": self.container, **self.claim}


class DcgmExporter:
    """The exporter of one node. `run` it; series stand at the site's metrics while it runs."""

    def __init__(
        self, node_name: str, hardware: SimulatedHardware, root: Path, clock: Clock, client: Client, metrics: Metrics
    ) -> None:
        self.node_name = node_name
        self.hardware = hardware
        self.root = root
        self.clock = clock
        self.client = client
        self._metrics = metrics
        self._users: dict[str, list[GpuUser]] = {}
        self._energy_mj: dict[str, float] = {}
        self._nvlink: dict[str, float] = {}
        self._last_s: float | None = None
        self._log = get("dcgm-exporter", node=node_name)

    async def run(self) -> None:
        """Collect every 30 s until cancelled."""
        collectors = collectors_of(self._metrics)
        collectors.append(self)
        try:
            while True:
                try:
                    await self.collect()
                except DragomanError as error:
                    self._log.warning("not collected", error=str(error))
                await self.clock.sleep(INTERVAL_S)
        finally:
            collectors.remove(self)

    async def collect(self) -> None:
        """Look who uses what, and let counters grow."""
        self._users = await self._asked()
        now = self.clock.monotonic()
        passed_s = now - self._last_s if self._last_s is not None else 0.0
        self._last_s = now
        for gpu in self.hardware.gpus():
            load = self._load(gpu)
            watts = self._watts(gpu, load)
            self._energy_mj[gpu.uuid] = self._energy_mj.get(gpu.uuid, 0.0) + watts * passed_s * 1000
            self._nvlink[gpu.uuid] = self._nvlink.get(gpu.uuid, 0.0) + load * NVLINK_BYTES * passed_s

    # ---- who uses what

    async def _asked(self) -> dict[str, list[GpuUser]]:
        """Users by UUID of a GPU or a MIG device."""
        found: dict[str, list[GpuUser]] = {}
        names = self._by_name()
        for pod in await pods_of(self.root) or ():
            have = [
                (container.name, uuid, claim)
                for container in pod.containers
                for uuid, claim in _devices_of(container, names)
            ]
            if not have:
                continue
            load, memory = await self._annotated(pod.namespace, pod.name)
            for container, uuid, claim in have:
                user = GpuUser(pod.namespace, pod.name, container, load, memory, claim)
                found.setdefault(uuid, []).append(user)
        return found

    def _by_name(self) -> dict[str, tuple[str, dict[str, str]]]:
        """UUIDs by the names of devices in slices, with labels of MIG devices."""
        found: dict[str, tuple[str, dict[str, str]]] = {}
        for gpu in self.hardware.gpus():
            found[f"gpu-{gpu.minor}"] = gpu.uuid, {}
            for one in self._instances(gpu):
                name = mig_name(gpu, PlacedInstance(one.shape, one.start))
                found[name] = one.uuid, {"dra_mig_profile": one.shape.name, "dra_mig_device_uuid": one.uuid}
        return found

    async def _annotated(self, namespace: str, name: str) -> tuple[float, int | None]:
        pod = await self.client.get(kind_of("Pod"), name, namespace)
        notes = pod["metadata"].get("annotations") or {}
        return _ratio(notes.get(LOAD)), _mib(notes.get(MEMORY))

    def _instances(self, gpu: Gpu) -> tuple[GpuInstance, ...]:
        try:
            return self.hardware.instances(gpu.uuid)
        except Retry:
            return ()

    # ---- values

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Name, labels and value of every series now."""
        version = self.hardware.versions().driver
        for gpu in self.hardware.gpus():
            base = {
                "gpu": str(gpu.index),
                "UUID": gpu.uuid,
                "pci_bus_id": gpu.pci_bus_id,
                "device": f"nvidia{gpu.minor}",
                "modelName": gpu.name,
                "Hostname": self.node_name,
                "DCGM_FI_DRIVER_VERSION": version,
            }
            instances = self._instances(gpu)
            values = self._values(gpu)
            users = self._users.get(gpu.uuid, [])
            for labels in [user.labels for user in users] or [{}]:
                for name, value in values.items():
                    yield name, {**base, **labels}, value
            for one in instances:
                place = {**base, "GPU_I_PROFILE": one.shape.name, "GPU_I_ID": str(one.gi)}
                users = self._users.get(one.uuid, [])
                of_instance = self._of_instance(one, users)
                for labels in [user.labels for user in users] or [{}]:
                    for name, value in of_instance.items():
                        yield name, {**place, **labels}, value

    def _load(self, gpu: Gpu) -> float:
        """How busy a GPU is, 0 to 1: its users, and those of its instances by their part of it."""
        whole = sum(user.load for user in self._users.get(gpu.uuid, ()))
        parts = sum(
            user.load * one.shape.compute / one.shape.gpu_compute
            for one in self._instances(gpu)
            for user in self._users.get(one.uuid, ())
        )
        return min(1.0, whole + parts)

    def _watts(self, gpu: Gpu, load: float) -> float:
        return self.hardware.power_w(gpu.index) * (IDLE_POWER + (0.95 - IDLE_POWER) * load)

    def _values(self, gpu: Gpu) -> dict[str, float]:
        state = self.hardware.health_of(gpu.index)
        if state.lost:
            return {"DCGM_FI_DEV_XID_ERRORS": float(state.last_xid)}
        load = self._load(gpu)
        total = (gpu.memory_bytes or 0) // MIB
        used = min(total - RESERVED_MIB, sum(_used(user, total) for user in self._users.get(gpu.uuid, ())))
        degrees = float(state.hot_c or round(IDLE_C + LOAD_C * load))
        has_nvlink = bool(self.hardware.profile.fabric.gpu_links)
        values = {
            "DCGM_FI_DEV_SM_CLOCK": SM_CLOCK if load else IDLE_CLOCK,
            "DCGM_FI_DEV_MEM_CLOCK": MEM_CLOCK,
            "DCGM_FI_DEV_GPU_TEMP": degrees,
            "DCGM_FI_DEV_MEMORY_TEMP": degrees + MEMORY_C,
            "DCGM_FI_DEV_POWER_USAGE": round(self._watts(gpu, load), 1),
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": round(self._energy_mj.get(gpu.uuid, 0.0)),
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
            "DCGM_FI_DEV_MEM_COPY_UTIL": round(60 * load),
            "DCGM_FI_DEV_ENC_UTIL": 0,
            "DCGM_FI_DEV_DEC_UTIL": 0,
            "DCGM_FI_DEV_XID_ERRORS": state.last_xid,
            "DCGM_FI_DEV_FB_FREE": total - RESERVED_MIB - used,
            "DCGM_FI_DEV_FB_USED": used,
            "DCGM_FI_DEV_FB_RESERVED": RESERVED_MIB,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": int(state.row_remap_failure),
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": int(state.row_remap_failure),
            "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 0,
            **_active(load),
            "DCGM_FI_PROF_PCIE_TX_BYTES": round(load * 2e9),
            "DCGM_FI_PROF_PCIE_RX_BYTES": round(load * 4e9),
        }
        if has_nvlink:
            values["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] = round(self._nvlink.get(gpu.uuid, 0.0))
        if not gpu.mig_enabled:  # DCGM has no such number in MIG mode
            values["DCGM_FI_DEV_GPU_UTIL"] = round(100 * load)
        return {name: float(value) for name, value in values.items()}

    def _of_instance(self, one: GpuInstance, users: list[GpuUser]) -> dict[str, float]:
        total = one.shape.amounts.memory_mib
        used = min(total, sum(_used(user, total) for user in users))
        load = min(1.0, sum(user.load for user in users))
        values = {"DCGM_FI_DEV_FB_FREE": total - used, "DCGM_FI_DEV_FB_USED": used, "DCGM_FI_DEV_FB_RESERVED": 0}
        return {name: float(value) for name, value in {**values, **_active(load)}.items()}


def _active(load: float) -> dict[str, float]:
    return {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": round(load, 3),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": round(load * 0.4, 3),
        "DCGM_FI_PROF_DRAM_ACTIVE": round(load * 0.5, 3),
    }


def _used(user: GpuUser, total_mib: int) -> int:
    return user.memory_mib if user.memory_mib is not None else int(total_mib * USED * bool(user.load))


def _devices_of(
    container: Any, names: Mapping[str, tuple[str, dict[str, str]]]
) -> Iterator[tuple[str, dict[str, str]]]:
    """UUIDs that a container has, with the labels of the claim."""
    for devices in container.devices:
        if devices.resource_name.startswith(PREFIX):
            yield from ((physical(id_), {}) for id_ in devices.device_ids)
    for dynamic in container.dynamic_resources:
        for resource in dynamic.claim_resources:
            if resource.driver_name == GPU and resource.device_name in names:
                uuid, more = names[resource.device_name]
                yield (
                    uuid,
                    {
                        "dra_claim_name": dynamic.claim_name,
                        "dra_claim_namespace": dynamic.claim_namespace,
                        "dra_driver_name": resource.driver_name,
                        "dra_pool_name": resource.pool_name,
                        "dra_device_name": resource.device_name,
                        **more,
                    },
                )


def _ratio(text: str | None) -> float:
    try:
        return min(1.0, max(0.0, float(text))) if text is not None else DEFAULT_LOAD
    except ValueError:
        return DEFAULT_LOAD


def _mib(text: str | None) -> int | None:
    try:
        return Quantity.parse(text).nanos // NANO // MIB if text is not None else None
    except ValueError:
        return None


# ---- at /metrics


class _DcgmPage(Collector):
    """The series of all nodes of a process, each name once."""

    def __init__(self) -> None:
        self.exporters: list[DcgmExporter] = []

    def collect(self) -> Iterator[Metric]:
        """Gauges; what only grows is untyped, since names of counters would end in _total."""
        families = {field.name: Metric(field.name, field.help, "unknown") for field in FIELDS}
        for exporter in self.exporters:
            for name, labels, value in exporter.samples():
                families[name].add_sample(name, labels, value)
        yield from (family for family in families.values() if family.samples)


def collectors_of(metrics: Metrics) -> list[DcgmExporter]:
    """The exporters that are shown at these metrics."""
    return metrics.shared("dcgm", _DcgmPage).exporters
