"""What libnvidia-ml does, at the C boundary below nvidia-ml-py: functions that fill structs and return codes.

`FakeLibrary` stands in for the loaded library, so that the real nvidia-ml-py runs on top of it. Checked as the real
one does: versions of structs, handles, states. Faults: `lose`, `unplug`, `plug`, `xid`, `deny`, `fail`.
"""

from __future__ import annotations

import ctypes
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml as nvml

from dragoman.profiles import Catalog, GpuModel
from dragoman.profiles.mig import InstanceProfile, PlacedInstance, misfit

OK = nvml.NVML_SUCCESS
CATALOG = Catalog.packaged()
ARCHITECTURES = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
CI_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6, 7: 1}


@dataclass
class ComputeInstance:
    number: int
    profile: int
    uuid: str


@dataclass
class GpuInstance:
    gpu: FakeGpu
    number: int
    shape: InstanceProfile
    start: int
    compute: list[ComputeInstance] = field(default_factory=list)


@dataclass
class FakeGpu:
    uuid: str
    minor: int
    bus_id: str
    model: GpuModel
    module_id: int = 0
    mig: bool = False
    mig_pending: bool = False
    lost: bool = False
    recovery: int = 0
    exclusive: int = 0
    clients: int = 0
    events: bool = True
    memory_known: bool = True
    instances: list[GpuInstance] = field(default_factory=list)

    @property
    def shapes(self) -> tuple[InstanceProfile, ...]:
        return CATALOG.mig_shapes(self.model)

    @property
    def toggles(self) -> bool:
        return ARCHITECTURES[self.model.architecture] >= 9


class FakeLibrary:
    """The loaded library. Handles are addresses of small structs that it remembers."""

    def __init__(self, gpus: list[FakeGpu], driver: str = "580.95.05", cuda: int = 13000) -> None:
        self.gpus = gpus
        self.driver = driver
        self.cuda = cuda
        self.queue: queue.Queue[Any] = queue.Queue()
        self.failing: dict[str, list[int]] = {}
        self.denied = False
        self.calls: list[str] = []
        self._objects: dict[int, Any] = {}
        self._keep: list[Any] = []
        self._addresses: dict[int, int] = {}
        self._serial = 0
        self._watched: set[str] = set()

    # ---- faults

    def fail(self, name: str, *codes: int) -> None:
        """The next calls of a function return these codes (0: works as ever)."""
        self.failing.setdefault(name, []).extend(codes)

    def lose(self, gpu: FakeGpu) -> None:
        gpu.lost = True
        self.queue.put(nvml.NVML_ERROR_GPU_IS_LOST)

    def unplug(self, gpu: FakeGpu) -> None:
        self.gpus.remove(gpu)

    def xid(self, gpu: FakeGpu, number: int, gi: int = 0xFFFFFFFF, ci: int = 0xFFFFFFFF) -> None:
        if gpu.uuid in self._watched:
            self.queue.put((gpu, nvml.nvmlEventTypeXidCriticalError, number, gi, ci))

    # ---- plumbing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = type(self).__dict__.get("c_" + name)
        if function is None:
            raise AttributeError(name)  # as ctypes does for a symbol that is not there

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            pending = self.failing.get(name)
            if pending and (code := pending.pop(0)):
                return code
            return int(function(self, *arguments))

        return call

    def _handle(self, thing: Any, kind: Any) -> Any:
        """A pointer that stands for a thing; the same thing has the same address."""
        key = id(thing)
        if key not in self._addresses:
            cell = ctypes.create_string_buffer(8)
            self._keep.append((cell, thing))
            self._addresses[key] = ctypes.addressof(cell)
            self._objects[ctypes.addressof(cell)] = thing
        return ctypes.cast(self._addresses[key], kind)

    def _of(self, handle: Any) -> Any:
        return self._objects.get(ctypes.cast(handle, ctypes.c_void_p).value or 0)

    def _gpu(self, handle: Any) -> FakeGpu | None:
        found = self._of(handle)
        return found if isinstance(found, FakeGpu) else None

    # ---- system

    def c_nvmlInitWithFlags(self, flags: Any) -> int:
        return OK

    def c_nvmlShutdown(self) -> int:
        return OK

    def c_nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> int:
        buffer.value = self.driver.encode()
        return OK

    def c_nvmlSystemGetCudaDriverVersion(self, ref: Any) -> int:
        ref._obj.value = self.cuda
        return OK

    def c_nvmlDeviceGetCount_v2(self, ref: Any) -> int:
        ref._obj.value = len(self.gpus)
        return OK

    def c_nvmlDeviceGetHandleByIndex_v2(self, index: Any, ref: Any) -> int:
        if index.value >= len(self.gpus):
            return nvml.NVML_ERROR_INVALID_ARGUMENT
        gpu = self.gpus[index.value]
        if gpu.lost:
            return nvml.NVML_ERROR_GPU_IS_LOST
        self._point(ref, self._handle(gpu, nvml.c_nvmlDevice_t))
        return OK

    def c_nvmlDeviceGetHandleByUUID(self, uuid: Any, ref: Any) -> int:
        for gpu in self.gpus:
            if gpu.uuid == uuid.value.decode():
                if gpu.lost:
                    return nvml.NVML_ERROR_GPU_IS_LOST
                self._point(ref, self._handle(gpu, nvml.c_nvmlDevice_t))
                return OK
        return nvml.NVML_ERROR_NOT_FOUND

    def _point(self, ref: Any, pointer: Any) -> None:
        ctypes.memmove(ctypes.addressof(ref._obj), ctypes.addressof(pointer), ctypes.sizeof(pointer))

    # ---- a GPU

    def _asked(self, handle: Any) -> FakeGpu | int:
        gpu = self._gpu(handle)
        if gpu is None or gpu not in self.gpus:
            return nvml.NVML_ERROR_INVALID_ARGUMENT
        return nvml.NVML_ERROR_GPU_IS_LOST if gpu.lost else gpu

    def _value(self, handle: Any, ref: Any, name: str) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        value = {
            "minor": gpu.minor,
            "architecture": ARCHITECTURES[gpu.model.architecture],
            "brand": {"Tesla": 2, "Nvidia": 14}[gpu.model.brand],
            "module": gpu.module_id,
            "virtualization": 0,
            "events": 0x1F if gpu.events else 0,
        }[name]
        ref._obj.value = value
        return OK

    def c_nvmlDeviceGetMinorNumber(self, handle: Any, ref: Any) -> int:
        return self._value(handle, ref, "minor")

    def c_nvmlDeviceGetArchitecture(self, handle: Any, ref: Any) -> int:
        return self._value(handle, ref, "architecture")

    def c_nvmlDeviceGetBrand(self, handle: Any, ref: Any) -> int:
        return self._value(handle, ref, "brand")

    def c_nvmlDeviceGetModuleId(self, handle: Any, ref: Any) -> int:
        gpu = self._gpu(handle)
        if gpu is not None and not gpu.module_id:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        return self._value(handle, ref, "module")

    def c_nvmlDeviceGetVirtualizationMode(self, handle: Any, ref: Any) -> int:
        return self._value(handle, ref, "virtualization")

    def c_nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> int:
        thing = self._of(handle)
        if isinstance(thing, ComputeInstance):
            buffer.value = thing.uuid.encode()
            return OK
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        buffer.value = gpu.uuid.encode()
        return OK

    def c_nvmlDeviceGetName(self, handle: Any, buffer: Any, size: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        buffer.value = gpu.model.name.encode()
        return OK

    def c_nvmlDeviceGetPciInfo_v3(self, handle: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        ref._obj.busId = f"0000{gpu.bus_id}".upper().encode()
        return OK

    def c_nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        major._obj.value, minor._obj.value = map(int, gpu.model.compute_capability.split("."))
        return OK

    def c_nvmlDeviceGetMemoryInfo_v2(self, handle: Any, ref: Any) -> int:
        if ref._obj.version != nvml.nvmlMemory_v2:
            return nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        return self.c_nvmlDeviceGetMemoryInfo(handle, ref)

    def c_nvmlDeviceGetMemoryInfo(self, handle: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if not gpu.memory_known:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        ref._obj.total = gpu.model.memory_mib * 2**20
        return OK

    def c_nvmlDeviceGetAddressingMode(self, handle: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if not gpu.toggles:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        ref._obj.value = {"None": 0, "HMM": 1, "ATS": 2}[gpu.model.addressing_mode]
        return OK

    def c_nvmlDeviceSetComputeMode(self, handle: Any, mode: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if self.denied:
            return nvml.NVML_ERROR_NO_PERMISSION
        gpu.exclusive = mode.value
        return OK

    def c_nvmlDeviceGetFieldValues(self, handle: Any, count: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        for value in ref._obj:
            value.nvmlReturn = OK
            value.value.uiVal = gpu.recovery
        return OK

    # ---- MIG

    def c_nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if not gpu.shapes:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        current._obj.value, pending._obj.value = int(gpu.mig), int(gpu.mig_pending)
        return OK

    def c_nvmlDeviceSetMigMode(self, handle: Any, mode: Any, activation: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if not gpu.shapes:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        if self.denied:
            return nvml.NVML_ERROR_NO_PERMISSION
        if gpu.instances and not mode:
            return nvml.NVML_ERROR_IN_USE
        gpu.mig_pending = bool(mode)
        if gpu.clients and gpu.mig != gpu.mig_pending:
            activation._obj.value = nvml.NVML_ERROR_IN_USE
        elif gpu.toggles:
            gpu.mig = gpu.mig_pending
            activation._obj.value = OK
        else:
            activation._obj.value = nvml.NVML_ERROR_RESET_REQUIRED if gpu.mig != gpu.mig_pending else OK
        return OK

    def c_nvmlDeviceGetGpuInstanceProfileInfoV(self, handle: Any, index: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if ref._obj.version != nvml.nvmlGpuInstanceProfileInfo_v2:
            return nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        shape = next((shape for shape in gpu.shapes if shape.index == index), None)
        if shape is None:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        info = ref._obj
        info.id, info.sliceCount, info.instanceCount = shape.id, shape.compute, len(shape.starts)
        held = shape.amounts
        info.multiprocessorCount, info.memorySizeMB = held.multiprocessors, held.memory_mib
        info.copyEngineCount, info.decoderCount, info.encoderCount = held.copy_engines, held.decoders, held.encoders
        info.jpegCount, info.ofaCount = held.jpeg_engines, held.ofa_engines
        info.name = f"MIG {shape.name}".encode()
        return OK

    def _shape(self, gpu: FakeGpu, profile: int) -> InstanceProfile | None:
        return next((shape for shape in gpu.shapes if shape.id == profile), None)

    def c_nvmlDeviceGetGpuInstancePossiblePlacements_v2(self, handle: Any, profile: Any, array: Any, count: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        shape = self._shape(gpu, profile)
        if shape is None:
            return nvml.NVML_ERROR_INVALID_ARGUMENT
        if not gpu.toggles and not gpu.mig:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        if array is not None:
            if count._obj.value < len(shape.starts):
                return nvml.NVML_ERROR_INSUFFICIENT_SIZE
            for at, start in enumerate(shape.starts):
                array[at].start, array[at].size = start, shape.size
        count._obj.value = len(shape.starts)
        return OK

    def c_nvmlDeviceCreateGpuInstanceWithPlacement(self, handle: Any, profile: Any, placement: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        shape = self._shape(gpu, profile)
        if not gpu.mig:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        if shape is None:
            return nvml.NVML_ERROR_INVALID_ARGUMENT
        start = placement._obj.start
        there = [PlacedInstance(instance.shape, instance.start) for instance in gpu.instances]
        if placement._obj.size != shape.size or start not in shape.starts:
            return nvml.NVML_ERROR_INVALID_ARGUMENT
        if misfit([*there, PlacedInstance(shape, start)]):
            return nvml.NVML_ERROR_INSUFFICIENT_RESOURCES
        used = {instance.number for instance in gpu.instances}
        made = GpuInstance(gpu, min(set(range(1, 15)) - used), shape, start)
        gpu.instances.append(made)
        self._point(ref, self._handle(made, nvml.c_nvmlGpuInstance_t))
        return OK

    def c_nvmlDeviceGetGpuInstances(self, handle: Any, profile: Any, array: Any, count: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if not gpu.mig:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        found = [instance for instance in gpu.instances if instance.shape.id == profile]
        for at, instance in enumerate(found):
            array[at] = self._handle(instance, nvml.c_nvmlGpuInstance_t)
        count._obj.value = len(found)
        return OK

    def c_nvmlDeviceGetGpuInstanceById(self, handle: Any, number: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        for instance in gpu.instances:
            if instance.number == number:
                self._point(ref, self._handle(instance, nvml.c_nvmlGpuInstance_t))
                return OK
        return nvml.NVML_ERROR_NOT_FOUND

    def c_nvmlGpuInstanceGetInfo(self, handle: Any, ref: Any) -> int:
        instance = self._of(handle)
        info = ref._obj
        info.id, info.profileId = instance.number, instance.shape.id
        info.placement.start, info.placement.size = instance.start, instance.shape.size
        return OK

    def c_nvmlGpuInstanceGetComputeInstanceProfileInfoV(self, handle: Any, index: Any, engines: Any, ref: Any) -> int:
        instance = self._of(handle)
        slices = CI_SLICES.get(index, 99)
        if slices > instance.shape.compute or (index == 7 and instance.shape.compute > 1):
            return nvml.NVML_ERROR_NOT_SUPPORTED
        info = ref._obj
        info.id, info.sliceCount, info.instanceCount = index, slices, instance.shape.compute // slices
        return OK

    def c_nvmlGpuInstanceCreateComputeInstance(self, handle: Any, profile: Any, ref: Any) -> int:
        instance = self._of(handle)
        used = sum(CI_SLICES[one.profile] for one in instance.compute)
        if used + CI_SLICES[profile] > instance.shape.compute:
            return nvml.NVML_ERROR_INSUFFICIENT_RESOURCES
        self._serial += 1
        made = ComputeInstance(len(instance.compute), profile, f"MIG-{self._serial:08d}-0000-0000-0000-000000000000")
        instance.compute.append(made)
        self._point(ref, self._handle(made, nvml.c_nvmlComputeInstance_t))
        return OK

    def c_nvmlComputeInstanceGetInfo_v2(self, handle: Any, ref: Any) -> int:
        made = self._of(handle)
        ref._obj.id, ref._obj.profileId = made.number, made.profile
        ref._obj.device = self._handle(made, nvml.c_nvmlDevice_t)
        return OK

    def c_nvmlGpuInstanceGetComputeInstances(self, handle: Any, profile: Any, array: Any, count: Any) -> int:
        found = [one for one in self._of(handle).compute if one.profile == profile]
        for at, one in enumerate(found):
            array[at] = self._handle(one, nvml.c_nvmlComputeInstance_t)
        count._obj.value = len(found)
        return OK

    def c_nvmlComputeInstanceDestroy(self, handle: Any) -> int:
        made = self._of(handle)
        for gpu in self.gpus:
            for instance in gpu.instances:
                if made in instance.compute:
                    instance.compute.remove(made)
                    return OK
        return nvml.NVML_ERROR_NOT_FOUND

    def c_nvmlGpuInstanceDestroy(self, handle: Any) -> int:
        instance = self._of(handle)
        if instance.compute:
            return nvml.NVML_ERROR_IN_USE
        instance.gpu.instances.remove(instance)
        return OK

    def c_nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        ref._obj.value = gpu.shapes[0].gpu_compute if gpu.shapes else 0
        return OK

    def _mig_devices(self, gpu: FakeGpu) -> list[tuple[GpuInstance, ComputeInstance]]:
        return [(instance, one) for instance in gpu.instances for one in instance.compute]

    def c_nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, ref: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        found = self._mig_devices(gpu)
        if index.value >= len(found):
            return nvml.NVML_ERROR_NOT_FOUND
        self._point(ref, self._handle(found[index.value][1], nvml.c_nvmlDevice_t))
        return OK

    def _owner(self, handle: Any) -> tuple[GpuInstance, ComputeInstance]:
        one = self._of(handle)
        return next(pair for gpu in self.gpus for pair in self._mig_devices(gpu) if pair[1] is one)

    def c_nvmlDeviceGetAttributes_v2(self, handle: Any, ref: Any) -> int:
        instance, one = self._owner(handle)
        ref._obj.gpuInstanceSliceCount = instance.shape.compute
        ref._obj.computeInstanceSliceCount = CI_SLICES[one.profile]
        return OK

    def c_nvmlDeviceGetGpuInstanceId(self, handle: Any, ref: Any) -> int:
        ref._obj.value = self._owner(handle)[0].number
        return OK

    def c_nvmlDeviceGetComputeInstanceId(self, handle: Any, ref: Any) -> int:
        ref._obj.value = self._owner(handle)[1].number
        return OK

    # ---- events

    def c_nvmlEventSetCreate(self, ref: Any) -> int:
        self._watched = set()
        self._point(ref, self._handle(object(), nvml.c_nvmlEventSet_t))
        return OK

    def c_nvmlDeviceGetSupportedEventTypes(self, handle: Any, ref: Any) -> int:
        return self._value(handle, ref, "events")

    def c_nvmlDeviceRegisterEvents(self, handle: Any, types: Any, event_set: Any) -> int:
        gpu = self._asked(handle)
        if isinstance(gpu, int):
            return gpu
        if not gpu.events:
            return nvml.NVML_ERROR_NOT_SUPPORTED
        self._watched.add(gpu.uuid)
        return OK

    def c_nvmlEventSetWait_v2(self, event_set: Any, ref: Any, timeout: Any) -> int:
        try:
            event = self.queue.get(timeout=timeout.value / 1000)
        except queue.Empty:
            return nvml.NVML_ERROR_TIMEOUT
        if isinstance(event, int):
            return event
        gpu, kind, number, gi, ci = event
        data = ref._obj
        data.device = self._handle(gpu, nvml.c_nvmlDevice_t)
        data.eventType, data.eventData, data.gpuInstanceId, data.computeInstanceId = kind, number, gi, ci
        return OK


@contextmanager
def loaded(library: FakeLibrary | None) -> Iterator[None]:
    """nvidia-ml-py on that library; None for a machine without one."""
    before, cache = nvml.nvmlLib, dict(nvml._nvmlGetFunctionPointer_cache)
    nvml._nvmlGetFunctionPointer_cache.clear()
    nvml.nvmlLib = library
    try:
        yield
    finally:
        nvml.nvmlLib = before
        nvml._nvmlGetFunctionPointer_cache.clear()
        nvml._nvmlGetFunctionPointer_cache.update(cache)


def gpu(index: int, model: str, **fields: Any) -> FakeGpu:
    """A GPU with the addresses of a DGX H100."""
    bus = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")[index]
    return FakeGpu(
        f"GPU-{index:08d}-0000-0000-0000-000000000000", index, f"0000:{bus}:00.0", CATALOG.gpus[model], **fields
    )
