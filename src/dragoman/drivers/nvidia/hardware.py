"""What can be asked of NVIDIA hardware, and what happens on it?

One protocol, two implementations: `nvml` for real machines, `simulated` for machine profiles. Nothing here decides
about claims or publishes anything.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

from dragoman.errors import Retry
from dragoman.profiles.machine import FabricPartition
from dragoman.profiles.mig import InstanceProfile


class GpuUnreachable(Retry):
    """The GPU does not answer: what was set on it, and its instances, will be gone when it comes back."""


class Versions(msgspec.Struct, frozen=True):
    """The kernel driver's version text, and the CUDA version as major * 1000 + minor * 10, as NVML has it."""

    driver: str
    cuda: int


class Gpu(msgspec.Struct, frozen=True):
    """A GPU. memory_bytes None: the driver cannot tell; numa None: unknown; module_id 0: none.

    minor is the N of /dev/nvidiaN. toggles_mig: MIG mode changes without a reset (Hopper and later).
    """

    index: int
    minor: int
    uuid: str
    name: str
    brand: str
    architecture: str
    compute_capability: str
    memory_bytes: int | None
    pci_bus_id: str
    pcie_root: str = ""
    numa: int | None = None
    addressing_mode: str = ""
    module_id: int = 0
    mig_capable: bool = False
    mig_enabled: bool = False
    toggles_mig: bool = False


class GpuInstance(msgspec.Struct, frozen=True):
    """A GPU instance with the one compute instance that fills it; uuid is the MIG device's, empty without that."""

    parent: str
    gi: int
    ci: int
    uuid: str
    shape: InstanceProfile
    start: int


class Function(msgspec.Struct, frozen=True):
    """A GPU as a PCI function that may be passed through. index: order of enumeration; driver: who has it now."""

    index: int
    pci_bus_id: str
    device_id: str
    product: str
    addressable_bytes: int
    pcie_root: str = ""
    numa: int | None = None
    iommu_group: int = 0
    vfio_index: int = 0
    driver: str = "nvidia"
    module_id: int = 0


class DriverFiles(msgspec.Struct, frozen=True):
    """What containers need of the driver, as paths of the host. hook: the CDI hook's binary, empty for none."""

    libraries: tuple[str, ...] = ()
    binaries: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    hook: str = ""


class XidError(msgspec.Struct, frozen=True):
    """A critical XID on a GPU, or on an instance of it."""

    gpu: str
    number: int
    gi: int | None = None
    ci: int | None = None


class Lost(msgspec.Struct, frozen=True):
    """A GPU does not answer any more; gpu empty: it is not known which."""

    gpu: str = ""


class Recovered(msgspec.Struct, frozen=True):
    """A GPU works again: it was reset or came back."""

    gpu: str


class Unmonitored(msgspec.Struct, frozen=True):
    """A GPU whose events cannot be watched."""

    gpu: str


class HardwareChanged(msgspec.Struct, frozen=True):
    """The set of GPUs or instances changed behind the driver's back: publish again."""


HardwareEvent: TypeAlias = XidError | Lost | Recovered | Unmonitored | HardwareChanged
PciDriver: TypeAlias = Literal["nvidia", "vfio-pci"]


class Hardware(Protocol):
    """A machine's GPUs. `blocks` tells whether calls may take long, and so belong into a thread.

    All methods raise Retry where the same call may succeed later (a GPU is lost or has a client, a placement is
    taken), Invalid for what can never be, and Denied without the rights.
    """

    @property
    def blocks(self) -> bool:
        """Whether calls may take long."""
        ...

    def open(self) -> None:
        """Begin; may be called again."""
        ...

    def close(self) -> None:
        """End."""
        ...

    def versions(self) -> Versions:
        """Versions of the driver."""
        ...

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the nvidia driver has, in order of their PCI addresses."""
        ...

    def shapes(self, gpu: str) -> tuple[InstanceProfile, ...]:
        """The GPU instance profiles of that GPU; none if it cannot tell."""
        ...

    def instances(self, gpu: str) -> tuple[GpuInstance, ...]:
        """The instances that exist on that GPU now."""
        ...

    def set_mig_mode(self, gpu: str, enabled: bool) -> None:
        """Switch MIG mode. Raises Retry when the GPU has clients or needs a reset for it."""
        ...

    def create_instance(self, gpu: str, shape: InstanceProfile, start: int) -> GpuInstance:
        """Make a GPU instance at that start and the compute instance that fills it; on failure nothing is left."""
        ...

    def destroy_instance(self, gpu: str, gi: int) -> None:
        """Remove an instance and what is in it; nothing to do when it is not there."""
        ...

    def set_exclusive(self, gpu: str, exclusive: bool) -> None:
        """Compute mode EXCLUSIVE_PROCESS or DEFAULT."""
        ...

    def set_time_slice(self, gpu: str, level: int) -> None:
        """Time-slice of the GPU's scheduler: 0 default, 1 short, 2 medium, 3 long."""
        ...

    def cap_minors(self, minor: int, gi: int, ci: int) -> tuple[int, int]:
        """Minor numbers of the capability devices that give access to an instance, and to its compute instance."""
        ...

    def drm_nodes(self, pci_bus_id: str) -> tuple[str, ...]:
        """/dev/dri nodes of a GPU."""
        ...

    def driver_files(self) -> DriverFiles:
        """What containers need of the driver."""
        ...

    def functions(self) -> tuple[Function, ...]:
        """GPUs as PCI functions, whoever drives them."""
        ...

    def has_iommu(self) -> bool:
        """Whether an IOMMU is on."""
        ...

    def has_iommufd(self) -> bool:
        """Whether /dev/iommu exists."""
        ...

    def bind(self, pci_bus_id: str, driver: PciDriver) -> None:
        """Give a function to a kernel driver; nothing to do when that has it. Raises Retry while it is in use."""
        ...

    def partitions(self) -> tuple[FabricPartition, ...]:
        """Fabric Manager's partitions; none without shared NVSwitches."""
        ...

    def activate_partition(self, number: int) -> None:
        """Switch a partition's links on; nothing to do when they are."""
        ...

    def deactivate_partition(self, number: int) -> None:
        """Switch a partition's links off; nothing to do when they are."""
        ...

    def mount_shm(self, path: str) -> None:
        """Mount memory of half the machine's size at a folder; nothing to do when it is."""
        ...

    def unmount_shm(self, path: str) -> None:
        """Unmount it; nothing to do when it is not mounted."""
        ...

    async def next_event(self) -> HardwareEvent:
        """What happens next; waits for it. The first call begins to watch."""
        ...
