"""What is a simulated machine? GPUs, adapters, fabric and node facts as immutable values, shared by all its nodes.

Decides nothing and knows no driver: who publishes a device reads its facts here.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base: an unknown field is an error that names it."""


class GpuModel(_Part, frozen=True):
    """A GPU model as NVML reports it; mig names a table of mig.yaml, empty for none. powerW is the limit.

    device_id: of PCI, `0x` and four digits. indicative: from one secondary source.
    """

    name: str
    architecture: str
    compute_capability: str
    memory_mib: int = msgspec.field(name="memoryMiB")
    sms: int = 0
    brand: str = "Nvidia"
    power_w: int = msgspec.field(name="powerW", default=0)
    device_id: str = ""
    pci_name: str = ""
    addressing_mode: str = "None"
    mig: str = ""
    indicative: bool = False


class MigShape(_Part, frozen=True):
    """A GPU instance profile of a geometry: slices, where it may start on the memory axis, suffix of its name."""

    id: int
    index: int
    compute: int
    size: int
    starts: tuple[int, ...]
    suffix: str = ""


class MigGeometry(_Part, frozen=True):
    """Compute and memory slices of a GPU, and the shapes by our key."""

    compute: int
    memory: int
    profiles: dict[str, MigShape]


MigRow: TypeAlias = tuple[int, int, int, int, int, int, int]
"""MiB, multiprocessors, copy engines, decoders, encoders, JPEG engines, OFA engines."""


class MigTable(_Part, frozen=True):
    """What the instances of one model hold, by the geometry's keys."""

    geometry: str
    profiles: dict[str, MigRow]


class NicModel(_Part, frozen=True):
    """A kind of network adapter: names of the PCI id database, gigabits a second."""

    name: str
    vendor: str
    device: str
    gbps: int
    rdma: bool = True


class MigSetup(_Part, frozen=True):
    """MIG of a GPU when the machine starts: mode, and instances as `profile@start`."""

    enabled: bool = False
    layout: tuple[str, ...] = ()


class GpuSlot(_Part, frozen=True):
    """One GPU of a machine. numa None: unknown, as in many VMs. module_id 0: none."""

    bus_id: str
    pcie_root: str = ""
    numa: int | None = None
    module_id: int = 0
    model: str = ""
    mig: MigSetup | None = None


class NicSlot(_Part, frozen=True):
    """One network adapter: rdma_device, if_name or both; kind overrides the machine's."""

    bus_id: str
    pcie_root: str = ""
    numa: int | None = None
    rdma_device: str = ""
    if_name: str = ""
    kind: str = ""


class FabricPartition(_Part, frozen=True):
    """A Fabric Manager partition: its id, and the module ids of its GPUs."""

    id: int
    modules: tuple[int, ...]


class Fabric(_Part, frozen=True):
    """NVLink between GPUs. gpu_links as `nvidia-smi topo -m` shows it; clique is set where a domain spans nodes."""

    gpu_links: str = ""
    clique: str = ""
    partitions: tuple[FabricPartition, ...] = ()


class DriverVersion(_Part, frozen=True):
    """The kernel driver's version and the CUDA version that it brings."""

    version: str = "580.95.05"
    cuda: str = "13.0"


class NodeShape(_Part, frozen=True):
    """What the Node object says; product is the DMI name, instance_type a cloud's."""

    cpu: int = 32
    memory: str = "256Gi"
    product: str = ""
    instance_type: str = ""
    architecture: str = "amd64"


class Rack(_Part, frozen=True):
    """A profile of a rack makes this many nodes of one NVLink domain."""

    trays: int


class Profile(_Part, frozen=True):
    """A machine. gpu: the model of all slots that name none. feature_gates: of the drivers on it.

    example_devices: so many made-up GPUs of the example driver.
    """

    name: str
    summary: str = ""
    source: str = ""
    aliases: tuple[str, ...] = ()
    driver: DriverVersion = DriverVersion()
    gpu: str = ""
    gpus: tuple[GpuSlot, ...] = ()
    mig: MigSetup = MigSetup()
    nic: str = ""
    nics: tuple[NicSlot, ...] = ()
    fabric: Fabric = Fabric()
    node: NodeShape = NodeShape()
    labels: dict[str, str] = {}
    rack: Rack | None = None
    feature_gates: dict[str, bool] = {}
    consumable_shares: str = ""
    example_devices: int = 0

    def model_of(self, slot: GpuSlot) -> str:
        """The name of the slot's GPU model."""
        return slot.model or self.gpu

    def mig_of(self, slot: GpuSlot) -> MigSetup:
        """How the slot's GPU starts."""
        return slot.mig if slot.mig is not None else self.mig


EXAMPLE = Profile(
    "example",
    "made-up GPUs of the example driver, as in the Kubernetes DRA labs",
    "https://github.com/kubernetes-sigs/dra-example-driver",
    example_devices=8,
)
"""Known without reading a file, as it is what `dragoman up` takes by default."""
