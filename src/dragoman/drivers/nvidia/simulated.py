"""How does a machine profile behave as hardware? MIG modes and instances, faults, passthrough, kept like real ones.

State lies in one file of the machine's folder and is written when it changes: it outlives the process, and a reboot
(another boot id) loses what a reboot loses. It never knows claims. A fault injector calls `inject_xid`, `lose`,
`recover`, and sets `delays`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from pathlib import Path

import msgspec

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
    Versions,
    XidError,
)
from dragoman.errors import Invalid, Retry
from dragoman.node.files import write_atomically
from dragoman.profiles.load import Catalog
from dragoman.profiles.machine import FabricPartition, GpuModel, GpuSlot, Profile
from dragoman.profiles.mig import InstanceProfile, PlacedInstance, misfit, parse_instance

FILE = "hardware.json"
TOGGLES_MIG = ("Hopper", "Blackwell", "Rubin")
GI_IDS = range(15)
# Ids as drivers give them by (size, start) on 7-slice GPUs; others take the lowest free one.
USUAL_GI = {(8, 0): 0, (4, 4): 1, (4, 0): 2, (2, 0): 3, (2, 2): 4, (2, 4): 5, (2, 6): 6} | {
    (1, start): 7 + start for start in range(7)
}
LIBRARIES = (
    "libcuda.so", "libcudadebugger.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so",
    "libnvidia-cfg.so", "libnvidia-allocator.so", "libnvidia-opencl.so", "libnvcuvid.so", "libnvidia-encode.so",
)  # fmt: skip
BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)


class _Made(msgspec.Struct):
    """An instance as the file has it."""

    gi: int
    name: str
    start: int
    uuid: str


class _State(msgspec.Struct):
    """What of a GPU can change. mig_pending differs from mig_enabled until a reset."""

    mig_enabled: bool = False
    mig_pending: bool = False
    instances: list[_Made] = []
    exclusive: bool = False
    time_slice: int = 0
    lost: bool = False
    xids: list[int] = []
    driver: str = "nvidia"
    clients: int = 0
    hot_c: int = 0
    row_remap_failure: bool = False


class GpuHealth(msgspec.Struct, frozen=True):
    """What monitoring sees of a GPU beside its load. last_xid: 0 for none; hot_c: a temperature, 0 for as its load has
    it."""

    lost: bool
    last_xid: int
    hot_c: int
    row_remap_failure: bool


class _File(msgspec.Struct):
    """The machine's file. serial counts instances ever made, so that no UUID comes twice."""

    boot_id: str = ""
    serial: int = 0
    gpus: list[_State] = []
    active_partitions: list[int] = []
    profile: str = ""
    node: str = ""


class SimulatedHardware:
    """The GPUs of one simulated machine. boot_id: of the running boot; another one than in the file is a reboot."""

    blocks = False

    def __init__(
        self, catalog: Catalog, profile: Profile, node_name: str, folder: Path, boot_id: str, *, durable: bool = False
    ) -> None:
        self.catalog = catalog
        self.profile = profile
        self.node_name = node_name
        self.path = folder / FILE
        self.boot_id = boot_id
        self.durable = durable
        self._file: _File | None = None
        self._shared = False
        self._read: tuple[int, int, int] | None = None
        self._events: deque[HardwareEvent] = deque()
        self._watched = False
        self._happened = asyncio.Event()

    # ---- state

    def open(self) -> None:
        """Nothing to begin: the file is read when something is asked."""

    def close(self) -> None:
        """Nothing to end."""

    def check(self, *, shared: bool = False) -> None:
        """Whether the file is this machine's; shared: another process may change it, so that it is read again then.

        Raises Invalid for the file of another profile or node: its claims would stand for devices that are not there.
        """
        self._shared = shared
        found = self._decoded()
        if found is None:
            return
        mine = (self.profile.name, self.node_name)
        if found.profile and (found.profile, found.node) != mine:
            raise Invalid(
                str(self.path),
                f"holds the state of node {found.node} simulated as {found.profile}, not of {self.node_name} as "
                f"{self.profile.name}: go on with that profile, name another folder, or drain the node and delete it",
            )

    @property
    def _state(self) -> _File:
        if self._file is None or (self._shared and self._identity() != self._read):
            self._file = self._load()
            self._read = self._identity()
        return self._file

    def _identity(self) -> tuple[int, int, int] | None:
        """What tells that another process wrote the file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _load(self) -> _File:
        known = self._decoded() or _File()
        if known.boot_id == self.boot_id and len(known.gpus) == len(self.profile.gpus):
            return known
        return self._booted(known)

    def _decoded(self) -> _File | None:
        """The file, None if there is none. Raises Invalid for what is no such file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_File)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise Invalid(str(self.path), f"is not the state of a simulated machine: {error}; delete it") from None

    def _booted(self, before: _File) -> _File:
        """After a reboot instances are gone; MIG mode stays only where it is kept in the GPU (Ampere)."""
        made = _File(self.boot_id, before.serial, profile=self.profile.name, node=self.node_name)
        first = len(before.gpus) != len(self.profile.gpus)
        for index, slot in enumerate(self.profile.gpus):
            setup = self.profile.mig_of(slot)
            kept = not first and not self._toggles(index) and before.gpus[index].mig_pending
            enabled = bool(self._shapes(index)) and (setup.enabled or kept)
            made.gpus.append(_State(mig_enabled=enabled, mig_pending=enabled))
        for index, slot in enumerate(self.profile.gpus):
            # A static layout is recreated at each boot, as the service of mig-parted does.
            for text in self.profile.mig_of(slot).layout if made.gpus[index].mig_enabled else ():
                placed = parse_instance(text, self._shapes(index))
                self._make(made, index, placed)
        return made

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, msgspec.json.encode(self._file), durable=self.durable, mode=0o644)
        self._read = self._identity() if self._shared else None

    def _make(self, file: _File, index: int, placed: PlacedInstance) -> _Made:
        state = file.gpus[index]
        used = {instance.gi for instance in state.instances}
        usual = USUAL_GI.get((placed.shape.size, placed.start)) if placed.shape.gpu_memory == 8 else None
        gi = usual if usual is not None and usual not in used else min(set(GI_IDS) - used)
        file.serial += 1
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{file.serial}.{self._uuid(index)}")
        made = _Made(gi, placed.shape.name, placed.start, f"MIG-{identity}")
        state.instances.append(made)
        return made

    # ---- identity

    def _uuid(self, index: int) -> str:
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{self.node_name}.gpu')}"

    def _index(self, gpu: str) -> int:
        for index in range(len(self.profile.gpus)):
            if self._uuid(index) == gpu:
                return index
        raise Invalid(f"GPU {gpu}", f"is not in {self.node_name}")

    def power_w(self, index: int) -> int:
        """The power limit of a GPU, in watts."""
        return self._model(index).power_w

    def _model(self, index: int) -> GpuModel:
        return self.catalog.gpus[self.profile.model_of(self.profile.gpus[index])]

    def _shapes(self, index: int) -> tuple[InstanceProfile, ...]:
        return self.catalog.mig_shapes(self._model(index))

    def _toggles(self, index: int) -> bool:
        return self._model(index).architecture in TOGGLES_MIG

    def _alive(self, gpu: str) -> tuple[int, _State]:
        index = self._index(gpu)
        state = self._state.gpus[index]
        if state.lost:
            raise GpuUnreachable(f"GPU {gpu} is lost")
        return index, state

    # ---- what there is

    def versions(self) -> Versions:
        """As in the profile."""
        major, _, minor = self.profile.driver.cuda.partition(".")
        return Versions(self.profile.driver.version, int(major) * 1000 + int(minor or 0) * 10)

    def gpus(self) -> tuple[Gpu, ...]:
        """Without those that are lost or passed through."""
        made = [
            self._gpu(index, slot, state)
            for index, (slot, state) in enumerate(zip(self.profile.gpus, self._state.gpus, strict=True))
            if state.driver == "nvidia"
        ]
        return tuple(sorted(made, key=lambda gpu: gpu.pci_bus_id))

    def _gpu(self, index: int, slot: GpuSlot, state: _State) -> Gpu:
        model = self._model(index)
        return Gpu(
            index=index,
            minor=index,
            uuid=self._uuid(index),
            name=model.name,
            brand=model.brand,
            architecture=model.architecture,
            compute_capability=model.compute_capability,
            memory_bytes=model.memory_mib * 2**20,
            pci_bus_id=slot.bus_id,
            pcie_root=slot.pcie_root,
            numa=slot.numa,
            addressing_mode=model.addressing_mode,
            module_id=slot.module_id,
            mig_capable=bool(model.mig),
            mig_enabled=state.mig_enabled,
            toggles_mig=self._toggles(index),
        )

    def driver_files(self) -> DriverFiles:
        """Where a distribution puts them."""
        version = self.profile.driver.version
        return DriverFiles(
            libraries=tuple(f"/usr/lib/x86_64-linux-gnu/{name}.{version}" for name in LIBRARIES),
            binaries=tuple(f"/usr/bin/{name}" for name in BINARIES),
            firmware=(f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin", f"/lib/firmware/nvidia/{version}/gsp_tu10x.bin"),
            sockets=("/run/nvidia-persistenced/socket",),
            hook="/usr/bin/nvidia-cdi-hook",
        )

    def drm_nodes(self, pci_bus_id: str) -> tuple[str, ...]:
        """Numbered as the GPUs are."""
        index = next(i for i, slot in enumerate(self.profile.gpus) if slot.bus_id == pci_bus_id)
        return f"/dev/dri/card{index}", f"/dev/dri/renderD{128 + index}"

    def cap_minors(self, minor: int, gi: int, ci: int) -> tuple[int, int]:
        """As the driver numbers them: 15 instances a GPU, each with 8 compute instances."""
        access = 3 + minor * 135 + gi * 9
        return access, access + 1 + ci

    # ---- MIG

    def shapes(self, gpu: str) -> tuple[InstanceProfile, ...]:
        """Ampere GPUs tell their profiles only in MIG mode."""
        index = self._index(gpu)
        if not self._toggles(index) and not self._state.gpus[index].mig_enabled:
            return ()
        return self._shapes(index)

    def instances(self, gpu: str) -> tuple[GpuInstance, ...]:
        """In the order of their starts."""
        index, state = self._alive(gpu)
        by_name = {shape.name: shape for shape in self._shapes(index)}
        made = (GpuInstance(gpu, i.gi, 0, i.uuid, by_name[i.name], i.start) for i in state.instances)
        return tuple(sorted(made, key=lambda instance: instance.start))

    def set_mig_mode(self, gpu: str, enabled: bool) -> None:
        """At once on Hopper and later; on Ampere pending until a reboot."""
        index, state = self._alive(gpu)
        if not self._shapes(index):
            raise Invalid(f"GPU {gpu}", f"{self._model(index).name} has no MIG")
        if state.instances and not enabled:
            raise Retry(f"GPU {gpu}: MIG mode cannot be switched off while instances exist: in use")
        if state.clients and enabled != state.mig_enabled:
            raise Retry(f"GPU {gpu} has {state.clients} clients: in use by another client")
        state.mig_pending = enabled
        if self._toggles(index):
            state.mig_enabled = enabled
        self._save()
        if state.mig_enabled != enabled:
            raise Retry(f"GPU {gpu}: MIG mode changes with the next reset or reboot")

    def create_instance(self, gpu: str, shape: InstanceProfile, start: int) -> GpuInstance:
        """Refuses what does not fit beside the instances that exist."""
        index, state = self._alive(gpu)
        if not state.mig_enabled:
            raise Retry(f"GPU {gpu} is not in MIG mode")
        placed = PlacedInstance(shape, start)
        there = [PlacedInstance(instance.shape, instance.start) for instance in self.instances(gpu)]
        if reason := misfit([*there, placed]):
            raise Retry(f"GPU {gpu}: insufficient resources for {placed}: {reason}")
        made = self._make(self._state, index, placed)
        self._save()
        return GpuInstance(gpu, made.gi, 0, made.uuid, shape, start)

    def destroy_instance(self, gpu: str, gi: int) -> None:
        """Gone at once: nothing simulated keeps it busy."""
        _, state = self._alive(gpu)
        left = [instance for instance in state.instances if instance.gi != gi]
        if len(left) != len(state.instances):
            state.instances = left
            self._save()

    def reset(self, gpu: str) -> None:
        """As `nvidia-smi --gpu-reset`: a pending MIG mode counts from then on; instances are gone. Raises Retry."""
        _, state = self._alive(gpu)
        if state.clients:
            raise Retry(f"GPU {gpu} has {state.clients} clients: in use by another client")
        state.mig_enabled, state.instances = state.mig_pending, []
        state.exclusive, state.time_slice = False, 0
        self._save()

    # ---- sharing, passthrough, partitions

    def set_exclusive(self, gpu: str, exclusive: bool) -> None:
        """Remembered."""
        _, state = self._alive(gpu)
        if state.exclusive != exclusive:
            state.exclusive = exclusive
            self._save()

    def set_time_slice(self, gpu: str, level: int) -> None:
        """Remembered."""
        _, state = self._alive(gpu)
        if state.time_slice != level:
            state.time_slice = level
            self._save()

    def sharing_of(self, gpu: str) -> tuple[bool, int]:
        """(exclusive, time-slice level), for who looks at the machine."""
        _, state = self._alive(gpu)
        return state.exclusive, state.time_slice

    def functions(self) -> tuple[Function, ...]:
        """Every GPU of the profile, in order of PCI addresses."""
        order = sorted(range(len(self.profile.gpus)), key=lambda i: self.profile.gpus[i].bus_id)
        return tuple(self._function(number, index) for number, index in enumerate(order))

    def _function(self, number: int, index: int) -> Function:
        slot, model = self.profile.gpus[index], self._model(index)
        # The BAR that maps all of the memory is the next power of two.
        size = 1 << (model.memory_mib * 2**20 - 1).bit_length()
        return Function(
            index=number,
            pci_bus_id=slot.bus_id,
            device_id=model.device_id.lower() or "0x0000",
            product=model.pci_name or model.name,
            addressable_bytes=size,
            pcie_root=slot.pcie_root,
            numa=slot.numa,
            iommu_group=10 + index,
            vfio_index=index,
            driver=self._state.gpus[index].driver,
            module_id=slot.module_id,
        )

    def has_iommu(self) -> bool:
        """Simulated machines have one."""
        return True

    def has_iommufd(self) -> bool:
        """And the newer interface to it."""
        return True

    def bind(self, pci_bus_id: str, driver: PciDriver) -> None:
        """Refused while the GPU has instances or clients."""
        index = next((i for i, slot in enumerate(self.profile.gpus) if slot.bus_id == pci_bus_id), None)
        if index is None:
            raise Invalid(f"PCI function {pci_bus_id}", f"is not in {self.node_name}")
        state = self._state.gpus[index]
        if state.driver == driver:
            return
        if state.clients or state.instances:
            raise Retry(f"PCI function {pci_bus_id} is in use and cannot change to {driver}")
        state.driver = driver
        self._save()

    def partitions(self) -> tuple[FabricPartition, ...]:
        """As in the profile."""
        return self.profile.fabric.partitions

    def activate_partition(self, number: int) -> None:
        """Refused while a partition that shares a GPU with it is active."""
        wanted = self._partition(number)
        for other in self._state.active_partitions:
            if other != number and set(self._partition(other).modules) & set(wanted.modules):
                raise Retry(f"Fabric Manager partition {number} shares GPUs with partition {other}, which is active")
        if number not in self._state.active_partitions:
            self._state.active_partitions.append(number)
            self._save()

    def deactivate_partition(self, number: int) -> None:
        """Remembered."""
        if number in self._state.active_partitions:
            self._state.active_partitions.remove(number)
            self._save()

    @property
    def active_partitions(self) -> tuple[int, ...]:
        """Ids of the partitions whose links are on."""
        return tuple(self._state.active_partitions)

    def _partition(self, number: int) -> FabricPartition:
        for partition in self.profile.fabric.partitions:
            if partition.id == number:
                return partition
        raise Invalid(f"Fabric Manager partition {number}", f"is not in {self.node_name}")

    def mount_shm(self, path: str) -> None:
        """A plain folder does for simulated clients."""

    def unmount_shm(self, path: str) -> None:
        """Nothing was mounted."""

    # ---- events and faults

    async def next_event(self) -> HardwareEvent:
        """Faults as they are injected, oldest first; a GPU that was lost before is reported at the start."""
        if not self._watched:
            self._watched = True
            lost = [Lost(self._uuid(index)) for index, state in enumerate(self._state.gpus) if state.lost]
            self._events.extend(event for event in lost if event not in self._events)
        while not self._events:
            self._happened.clear()
            await self._happened.wait()
        return self._events.popleft()

    def _report(self, event: HardwareEvent) -> None:
        self._events.append(event)
        self._happened.set()

    def gpu_uuid(self, index: int) -> str:
        """The UUID of a GPU by its index. Raises Invalid."""
        if not 0 <= index < len(self.profile.gpus):
            raise Invalid(f"GPU {index}", f"{self.node_name} has GPUs 0 to {len(self.profile.gpus) - 1}")
        return self._uuid(index)

    def health_of(self, index: int) -> GpuHealth:
        """How a GPU is."""
        state = self._state.gpus[index]
        return GpuHealth(state.lost, state.xids[-1] if state.xids else 0, state.hot_c, state.row_remap_failure)

    def heat(self, index: int, degrees: int) -> None:
        """A GPU has this temperature, whatever its load; 0 ends that."""
        self.gpu_uuid(index)
        self._state.gpus[index].hot_c = degrees
        self._save()

    def fail_row_remap(self, index: int, failed: bool) -> None:
        """Remapping of broken memory rows has failed, or no longer has."""
        self.gpu_uuid(index)
        self._state.gpus[index].row_remap_failure = failed
        self._save()

    def inject_xid(self, index: int, number: int, gi: int | None = None) -> None:
        """An XID happens on a GPU, or on one of its instances. Raises Invalid for what is not there."""
        gpu = self.gpu_uuid(index)
        state = self._state.gpus[index]
        if gi is not None and gi not in {instance.gi for instance in state.instances}:
            raise Invalid(f"GPU {index}", f"has no instance {gi}")
        state.xids.append(number)
        self._save()
        self._report(XidError(gpu, number, gi, None if gi is None else 0))

    def lose(self, index: int) -> None:
        """A GPU falls off the bus."""
        gpu = self.gpu_uuid(index)
        self._state.gpus[index].lost = True
        self._save()
        self._report(Lost(gpu))

    def recover(self, index: int) -> None:
        """A GPU is reset and works again; its instances are gone."""
        gpu = self.gpu_uuid(index)
        state = self._state.gpus[index]
        had = bool(state.instances)
        state.lost, state.xids, state.instances = False, [], []
        state.exclusive, state.time_slice = False, 0
        state.mig_enabled = state.mig_pending
        self._save()
        self._report(Recovered(gpu))
        if had:
            self._report(HardwareChanged())

    def reboot(self, boot_id: str) -> None:
        """The machine reboots; whoever runs its agent and plugin restarts them with that id."""
        self.boot_id = boot_id
        self._file = self._load()
        self._events.clear()
        self._save()
