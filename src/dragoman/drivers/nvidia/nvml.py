"""How does a real machine's NVML answer the driver? The `Hardware` protocol on nvidia-ml-py.

Imports and loads the library when it is opened. Errors of NVML become ours, by what a caller can do about them.
Fabric Manager has a library of its own; this knows no partitions.
"""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dragoman.drivers.nvidia.hardware import (
    DriverFiles,
    Function,
    Gpu,
    GpuInstance,
    GpuUnreachable,
    HardwareChanged,
    HardwareEvent,
    Lost,
    PciDriver,
    Recovered,
    Unmonitored,
    Versions,
    XidError,
)
from dragoman.drivers.nvidia.host import Host
from dragoman.errors import Denied, Invalid, NotFound, Retry
from dragoman.profiles.machine import FabricPartition
from dragoman.profiles.mig import InstanceAmounts, InstanceProfile, profile_name

BRANDS = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NvidiaVApps", 8: "NvidiaVPC",
    9: "NvidiaVCS", 10: "NvidiaVWS", 11: "NvidiaCloudGaming", 12: "QuadroRTX", 13: "NvidiaRTX", 14: "Nvidia",
    15: "GeForceRTX", 16: "TitanRTX",
}  # fmt: skip
ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip
HOPPER = 9
ADDRESSING = {0: "None", 1: "HMM", 2: "ATS"}
SUFFIXES = {7: "+me", 8: "+me", 10: "+gfx", 11: "+gfx", 12: "+gfx", 17: "+gfx", 13: "-me", 14: "-me", 15: "+me.all",
            16: "+me.all"}  # fmt: skip
SPECIAL_CI = 7
"""The compute instance profile "1 slice, revision 1", which shares nothing; never used."""
NO_INSTANCE = 0xFFFFFFFF
WAIT_MS = 5000
VGPU_GUEST = 2
COMMAND_S = 30


class Unsupported(NotFound):
    """This GPU, driver or library has no such thing."""


class NvmlHardware:
    """This machine's GPUs. run_command: how nvidia-smi and mount are called."""

    blocks = True

    def __init__(
        self,
        host: Host | None = None,
        *,
        driver_root: Path = Path("/"),
        run_command: Callable[[list[str]], None] | None = None,
        wait_ms: int = WAIT_MS,
    ) -> None:
        self.host = host or Host(driver_root=driver_root)
        self.wait_ms = wait_ms
        self._run = run_command or _run
        self._opened: Any = None
        self._events: deque[HardwareEvent] = deque()
        self._event_set: Any = None
        self._troubled: set[str] = set()
        self._lost: set[str] = set()
        self._seen: dict[str, Gpu] = {}
        """GPUs as they were when they answered last."""

    # ---- the library

    def open(self) -> None:
        """Load the library. Raises Denied when there is no driver on this machine."""
        if self._opened is not None:
            return
        nvml = import_module("pynvml")
        try:
            nvml.nvmlInit()
        except nvml.NVMLError_LibraryNotFound:
            raise Denied("libnvidia-ml.so.1 was not found: install the NVIDIA driver, or use --simulate") from None
        except nvml.NVMLError_DriverNotLoaded:
            raise Denied("the kernel has not loaded the NVIDIA driver") from None
        self._opened = nvml

    def close(self) -> None:
        """End the session."""
        nvml, self._opened = self._opened, None
        self._event_set = None
        if nvml is not None:
            nvml.nvmlShutdown()

    @property
    def _nvml(self) -> Any:
        self.open()
        return self._opened

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        nvml = self._nvml
        try:
            return getattr(nvml, name)(*arguments, **named)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound) as error:
            raise Unsupported(f"{name}: {error}") from None
        except nvml.NVMLError_GpuIsLost:
            raise GpuUnreachable(f"{name}: a GPU is lost") from None
        except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument) as error:
            raise NotFound(f"{name}: {error}") from None
        except nvml.NVMLError_InsufficientResources:
            raise Retry(f"{name}: insufficient resources, the placement or an engine is in use") from None
        except nvml.NVMLError_InUse:
            raise Retry(f"{name}: in use by another client") from None
        except nvml.NVMLError_NoPermission:
            raise Denied(f"{name}: needs root") from None
        except nvml.NVMLError as error:
            raise Retry(f"{name}: {error}") from None

    def _maybe(self, name: str, *arguments: Any, **named: Any) -> Any:
        """The answer, or None where there is none."""
        try:
            return self._call(name, *arguments, **named)
        except NotFound:
            return None

    def _handle(self, gpu: str) -> Any:
        try:
            return self._call("nvmlDeviceGetHandleByUUID", gpu)
        except NotFound:
            raise GpuUnreachable(f"GPU {gpu} is gone") from None

    # ---- what there is

    def versions(self) -> Versions:
        """Of driver and CUDA."""
        return Versions(_str(self._call("nvmlSystemGetDriverVersion")), self._call("nvmlSystemGetCudaDriverVersion"))

    def gpus(self) -> tuple[Gpu, ...]:
        """GPUs that are lost stay as they were last, so that their devices keep their names and get taints."""
        found: dict[str, Gpu] = {}
        lost = False
        for index in range(self._call("nvmlDeviceGetCount")):
            try:
                gpu = self._gpu(index, self._call("nvmlDeviceGetHandleByIndex", index))
            except GpuUnreachable:
                lost = True
                continue
            found[gpu.uuid] = gpu
        if lost or self._lost:
            for uuid, gpu in self._seen.items():
                found.setdefault(uuid, gpu)
        self._seen = dict(found)
        return tuple(sorted(found.values(), key=lambda gpu: gpu.pci_bus_id))

    def _gpu(self, index: int, handle: Any) -> Gpu:
        bus_id = _bus_id(_str(self._call("nvmlDeviceGetPciInfo", handle).busId))
        major, minor = self._call("nvmlDeviceGetCudaComputeCapability", handle)
        architecture = self._maybe("nvmlDeviceGetArchitecture", handle)
        mode = self._maybe("nvmlDeviceGetMigMode", handle)
        guest = self._maybe("nvmlDeviceGetVirtualizationMode", handle) == VGPU_GUEST
        return Gpu(
            index=index,
            minor=self._call("nvmlDeviceGetMinorNumber", handle),
            uuid=_str(self._call("nvmlDeviceGetUUID", handle)),
            name=_str(self._call("nvmlDeviceGetName", handle)),
            brand=BRANDS.get(self._maybe("nvmlDeviceGetBrand", handle) or 0, "Unknown"),
            architecture=ARCHITECTURES.get(architecture or 0, "Unknown"),
            compute_capability=f"{major}.{minor}",
            memory_bytes=self._memory(handle),
            pci_bus_id=bus_id,
            pcie_root=self.host.pcie_root(bus_id),
            numa=self.host.numa(bus_id),
            addressing_mode=ADDRESSING.get(self._maybe("nvmlDeviceGetAddressingMode", handle), ""),
            module_id=self._maybe("nvmlDeviceGetModuleId", handle) or 0,
            mig_capable=mode is not None and not guest,
            mig_enabled=mode is not None and mode[0] == 1,
            toggles_mig=(architecture or 0) >= HOPPER and architecture in ARCHITECTURES,
        )

    def _memory(self, handle: Any) -> int | None:
        found = self._maybe("nvmlDeviceGetMemoryInfo", handle, version=self._nvml.nvmlMemory_v2)
        found = found or self._maybe("nvmlDeviceGetMemoryInfo", handle)
        return int(found.total) if found else None

    def driver_files(self) -> DriverFiles:
        """As they lie on the host."""
        return self.host.driver_files(self.versions().driver)

    def drm_nodes(self, pci_bus_id: str) -> tuple[str, ...]:
        """From sysfs."""
        return self.host.drm_nodes(pci_bus_id)

    def cap_minors(self, minor: int, gi: int, ci: int) -> tuple[int, int]:
        """From the kernel."""
        return self.host.cap_minors(minor, gi, ci)

    # ---- MIG

    def shapes(self, gpu: str) -> tuple[InstanceProfile, ...]:
        """Profiles with their placements; GPUs of the Ampere kind tell placements only in MIG mode."""
        handle = self._handle(gpu)
        total = self._memory(handle)
        found = [
            (index, info, where) for index, info in self._profiles(handle) if (where := self._starts(handle, info.id))
        ]
        if not found or not total:
            return ()
        amounts = [_amounts(info) for _, info, _ in found]
        whole = InstanceAmounts(*(max(column) for column in zip(*map(_row, amounts), strict=True)))
        axis = max(size for _, _, (_, size) in found)
        compute = max(info.sliceCount for _, info, _ in found)
        return tuple(
            InstanceProfile(
                name=profile_name(info.sliceCount, info.memorySizeMB, -(-total // 2**20), SUFFIXES.get(index, "")),
                id=info.id,
                index=index,
                compute=info.sliceCount,
                size=size,
                starts=where,
                amounts=held,
                gpu_compute=compute,
                gpu_memory=axis,
                whole=whole,
            )
            for (index, info, (where, size)), held in zip(found, amounts, strict=True)
        )

    def _profiles(self, handle: Any) -> Iterator[tuple[int, Any]]:
        for index in range(self._nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            info = self._maybe("nvmlDeviceGetGpuInstanceProfileInfo", handle, index, version=2)
            if info is not None:
                yield index, info

    def _starts(self, handle: Any, profile: int) -> tuple[tuple[int, ...], int] | None:
        """(starts, size) of a profile; None when NVML does not tell."""
        count = ctypes.c_uint(0)
        name = "nvmlDeviceGetGpuInstancePossiblePlacements"
        if self._maybe(name, handle, profile, None, ctypes.byref(count)) is None or not count.value:
            return None
        array = (self._nvml.c_nvmlGpuInstancePlacement_t * count.value)()
        self._call(name, handle, profile, array, ctypes.byref(count))
        placed = [array[at] for at in range(count.value)]
        return tuple(sorted(one.start for one in placed)), placed[0].size

    def instances(self, gpu: str) -> tuple[GpuInstance, ...]:
        """Also GPU instances without a compute instance that fills them, with an empty uuid."""
        handle = self._handle(gpu)
        shapes = {shape.id: shape for shape in self.shapes(gpu)}
        full = self._full_compute_instances(handle)
        made = []
        for shape in shapes.values():
            for instance in self._of_profile(handle, shape):
                info = self._call("nvmlGpuInstanceGetInfo", instance)
                uuid, ci = full.get(info.id, ("", 0))
                made.append(GpuInstance(gpu, info.id, ci, uuid, shape, info.placement.start))
        return tuple(sorted(made, key=lambda instance: instance.start))

    def _of_profile(self, handle: Any, shape: InstanceProfile) -> list[Any]:
        count = ctypes.c_uint(0)
        array = (self._nvml.c_nvmlGpuInstance_t * len(shape.starts))()
        if self._maybe("nvmlDeviceGetGpuInstances", handle, shape.id, array, ctypes.byref(count)) is None:
            return []
        return [array[at] for at in range(count.value)]

    def _full_compute_instances(self, handle: Any) -> dict[int, tuple[str, int]]:
        """GPU instance id -> (MIG UUID, compute instance id), of those that one compute instance fills."""
        made: dict[int, tuple[str, int]] = {}
        for index in range(self._maybe("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            mig = self._maybe("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            if mig is None:
                continue
            shape = self._call("nvmlDeviceGetAttributes", mig)
            if shape.gpuInstanceSliceCount == shape.computeInstanceSliceCount:
                gi = self._call("nvmlDeviceGetGpuInstanceId", mig)
                ci = self._call("nvmlDeviceGetComputeInstanceId", mig)
                made[gi] = (_str(self._call("nvmlDeviceGetUUID", mig)), ci)
        return made

    def set_mig_mode(self, gpu: str, enabled: bool) -> None:
        """Raises Retry when a reset is needed before it counts."""
        handle = self._handle(gpu)
        try:
            activation = self._call("nvmlDeviceSetMigMode", handle, int(enabled))
        except Unsupported:
            raise Invalid(f"GPU {gpu}", "has no MIG") from None
        if activation:
            raise Retry(f"GPU {gpu}: MIG mode changes with the next reset or reboot")

    def create_instance(self, gpu: str, shape: InstanceProfile, start: int) -> GpuInstance:
        """A GPU instance and the compute instance that fills it; one without the other is removed again."""
        handle = self._handle(gpu)
        placement = self._nvml.c_nvmlGpuInstancePlacement_t(start, shape.size)
        made = self._call("nvmlDeviceCreateGpuInstanceWithPlacement", handle, shape.id, ctypes.byref(placement))
        try:
            inner = self._call("nvmlGpuInstanceCreateComputeInstance", made, self._filling(made, shape))
            info = self._call("nvmlComputeInstanceGetInfo", inner)
            uuid = _str(self._call("nvmlDeviceGetUUID", info.device))
            gi = self._call("nvmlGpuInstanceGetInfo", made).id
        except Exception:
            self._clear(made)
            raise
        return GpuInstance(gpu, gi, info.id, uuid, shape, start)

    def _filling(self, instance: Any, shape: InstanceProfile) -> int:
        for index, info in self._compute_profiles(instance):
            if info.sliceCount == shape.compute and index != SPECIAL_CI:
                return int(info.id)
        raise Invalid(f"MIG profile {shape.name}", "has no compute instance that fills it")

    def _compute_profiles(self, instance: Any) -> Iterator[tuple[int, Any]]:
        for index in range(self._nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            shared = self._nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            info = self._maybe("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, index, shared, version=2)
            if info is not None:
                yield index, info

    def destroy_instance(self, gpu: str, gi: int) -> None:
        """Compute instances first."""
        instance = self._maybe("nvmlDeviceGetGpuInstanceById", self._handle(gpu), gi)
        if instance is not None:
            self._clear(instance)

    def _clear(self, instance: Any) -> None:
        for _, info in self._compute_profiles(instance):
            count = ctypes.c_uint(0)
            array = (self._nvml.c_nvmlComputeInstance_t * max(info.instanceCount, 1))()
            name = "nvmlGpuInstanceGetComputeInstances"
            if self._maybe(name, instance, info.id, array, ctypes.byref(count)) is not None:
                for at in range(count.value):
                    self._call("nvmlComputeInstanceDestroy", array[at])
        self._call("nvmlGpuInstanceDestroy", instance)

    # ---- sharing, passthrough, partitions

    def set_exclusive(self, gpu: str, exclusive: bool) -> None:
        """Compute mode."""
        nvml = self._nvml
        mode = nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if exclusive else nvml.NVML_COMPUTEMODE_DEFAULT
        self._call("nvmlDeviceSetComputeMode", self._handle(gpu), mode)

    def set_time_slice(self, gpu: str, level: int) -> None:
        """NVML has no call for it, nvidia-smi has."""
        self._run([self.host.smi(), "compute-policy", "-i", gpu, "--set-timeslice", str(level)])

    def mount_shm(self, path: str) -> None:
        """A tmpfs of half the memory, which is its default size."""
        if not Path(path).is_mount():
            self._run(["mount", "-t", "tmpfs", "-o", "rw,nosuid,nodev,noexec,relatime,size=50%", "shm", path])

    def unmount_shm(self, path: str) -> None:
        """Undo mount_shm."""
        if Path(path).is_mount():
            self._run(["umount", path])

    def functions(self) -> tuple[Function, ...]:
        """From sysfs."""
        return self.host.functions()

    def has_iommu(self) -> bool:
        """From sysfs."""
        return self.host.has_iommu()

    def has_iommufd(self) -> bool:
        """From /dev."""
        return self.host.has_iommufd()

    def bind(self, pci_bus_id: str, driver: PciDriver) -> None:
        """Through sysfs, when nobody has the GPU open."""
        gpu = next((gpu for gpu in self._seen.values() if gpu.pci_bus_id == pci_bus_id), None)
        self.host.bind(pci_bus_id, driver, [f"/dev/nvidia{gpu.minor}"] if gpu and driver == "vfio-pci" else [])

    def partitions(self) -> tuple[FabricPartition, ...]:
        """None: Fabric Manager is not asked."""
        return ()

    def activate_partition(self, number: int) -> None:
        """Not possible here."""
        raise Invalid(f"Fabric Manager partition {number}", "Fabric Manager is reached on simulated machines only")

    def deactivate_partition(self, number: int) -> None:
        """Not possible here."""
        raise Invalid(f"Fabric Manager partition {number}", "Fabric Manager is reached on simulated machines only")

    # ---- events

    async def next_event(self) -> HardwareEvent:
        """Waits in a thread, five seconds at a time; between waits it looks for GPUs that went or came back."""
        while not self._events:
            await asyncio.to_thread(self._wait)
        return self._events.popleft()

    def _wait(self) -> None:
        if self._event_set is None:
            self._watch()
            return
        try:
            data = self._nvml.nvmlEventSetWait_v2(self._event_set, self.wait_ms)
        except self._nvml.NVMLError_Timeout:
            self._look()
            return
        except self._nvml.NVMLError_GpuIsLost:
            if not self._look():
                self._events.append(Lost())
            return
        except self._nvml.NVMLError as error:
            raise Retry(f"nvmlEventSetWait: {error}") from None
        if data.eventType == self._nvml.nvmlEventTypeXidCriticalError:
            self._note_xid(data)

    def _watch(self) -> None:
        gpus = self.gpus()
        self._event_set = self._call("nvmlEventSetCreate")
        nvml = self._nvml
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        wanted |= nvml.nvmlEventTypeSingleBitEccError
        for gpu in gpus:
            try:
                handle = self._handle(gpu.uuid)
                types = self._call("nvmlDeviceGetSupportedEventTypes", handle) & wanted
                self._call("nvmlDeviceRegisterEvents", handle, types, self._event_set)
            except GpuUnreachable:
                self._lost.add(gpu.uuid)
                self._events.append(Lost(gpu.uuid))
            except (NotFound, Retry):
                self._events.append(Unmonitored(gpu.uuid))

    def _note_xid(self, data: Any) -> None:
        try:
            uuid = _str(self._call("nvmlDeviceGetUUID", data.device))
        except (NotFound, Retry):
            self._events.append(Lost())
            return
        gi, ci = data.gpuInstanceId, data.computeInstanceId
        inside = gi != NO_INSTANCE
        self._events.append(XidError(uuid, int(data.eventData), gi if inside else None, ci if inside else None))
        self._look()

    def _look(self) -> bool:
        """Find out which GPUs are lost, back, or in need of a reset no more; True if any is newly lost."""
        newly = False
        before = set(self._seen)
        for uuid in sorted(before):
            try:
                action = self._recovery_action(self._handle(uuid))
            except GpuUnreachable:
                if uuid not in self._lost:
                    newly = True
                    self._lost.add(uuid)
                    self._events.append(Lost(uuid))
                continue
            except (NotFound, Retry):
                continue
            if action:
                self._troubled.add(uuid)
            elif uuid in self._lost or uuid in self._troubled:
                self._lost.discard(uuid)
                self._troubled.discard(uuid)
                self._events.append(Recovered(uuid))
                self._event_set = None  # a GPU that was away must be registered again
        if {gpu.uuid for gpu in self.gpus()} - before:
            self._events.append(HardwareChanged())
            self._event_set = None
        return newly

    def _recovery_action(self, handle: Any) -> int:
        """What NVML says must be done with the GPU; 0 for nothing, or where it cannot tell."""
        # Any call tells whether the GPU is there at all.
        self._call("nvmlDeviceGetUUID", handle)
        values = self._maybe("nvmlDeviceGetFieldValues", handle, [self._nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
        if values is None or values[0].nvmlReturn:
            return 0
        return int(values[0].value.uiVal)


def _row(amounts: InstanceAmounts) -> tuple[int, ...]:
    return (amounts.memory_mib, *amounts.engines())


def _amounts(info: Any) -> InstanceAmounts:
    return InstanceAmounts(
        memory_mib=info.memorySizeMB,
        multiprocessors=info.multiprocessorCount,
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpeg_engines=info.jpegCount,
        ofa_engines=info.ofaCount,
    )


def _str(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _bus_id(text: str) -> str:
    """NVML has eight digits of domain in upper case; the attribute has four in lower case."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_S)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip()
        raise Retry(f"{' '.join(command)}: {detail}") from None
