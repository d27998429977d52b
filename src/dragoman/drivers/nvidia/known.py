"""What do NVIDIA's drivers publish and accept, for manifests without slices at hand?

Names and rules typed from dra-driver-nvidia-gpu 0.5 (cmd/gpu-kubelet-plugin/deviceinfo.go, mig.go; its charts;
api/nvidia.com/resource/v1beta1). Cards and their MIG profiles are those of the machine profiles.
"""

from __future__ import annotations

from functools import lru_cache

from dragoman.api.selectors import DeviceView, Domains
from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLASSES, GPU, GPU_CLASSES
from dragoman.drivers.nvidia.config import API_VERSION, INTERVALS, MPS, TIME_SLICING
from dragoman.known_drivers import (
    Card,
    Cards,
    ConfigFields,
    Configs,
    KnownDriver,
    MapOf,
    MemoryQuantity,
    NeededGate,
    NonEmpty,
    OneOf,
    TemplateMaker,
    TrueOrFalse,
    Warned,
    WholeNumber,
)
from dragoman.profiles.load import Catalog
from dragoman.profiles.machine import DriverVersion, GpuModel
from dragoman.values.quantity import Quantity
from dragoman.values.semver import Semver

# ---- names

_NO_NVLINK = (
    "there is no attribute for NVLink: drop it, a board with NVSwitch needs none; between nodes use the label "
    "nvidia.com/gpu.clique"
)
_ATTRIBUTES = (
    "type", "uuid", "parentUUID", "profile", "productName", "brand", "architecture", "cudaComputeCapability",
    "driverVersion", "cudaDriverVersion", "addressingMode", "gpuModuleID", "deviceID", "vendorID", "iommuFDEnabled",
)  # fmt: skip
_CAPACITY = (
    "memory", "addressableMemory", "shares", "multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines",
    "ofaEngines",
)  # fmt: skip
_ABSENT = (
    ("(?i).*(nvlink|clique|nvswitch|fabric).*", _NO_NVLINK),
    ("(?i)numa(_?node|_?id)?", "it is resource.kubernetes.io/numaNode"),
    ("(?i)pci(e|ebus|bus)?_?(id|address|bus_?id)?", "it is resource.kubernetes.io/pciBusID"),
    ("(?i)pcie?_?(root|switch)", "it is resource.kubernetes.io/pcieRoot"),
    ("(?i)(index|minor)", "choose by uuid; devices are named gpu-MINOR"),
)

# ---- configuration: the same rules as `config`, as tables

_STRATEGY = OneOf((TIME_SLICING, MPS))
_MPS = ConfigFields(
    {
        "defaultActiveThreadPercentage": WholeNumber(0, 100),
        "defaultPinnedDeviceMemoryLimit": MemoryQuantity(),
        "defaultPerDevicePinnedMemoryLimit": MapOf(MemoryQuantity()),
        "multiUser": TrueOrFalse(),
    }
)
_TIME = ConfigFields({"interval": OneOf(tuple(INTERVALS))})
_BY_STRATEGY = {"timeSlicingConfig": ("strategy", TIME_SLICING), "mpsConfig": ("strategy", MPS)}
_GPU_SHARING = ConfigFields(
    {"strategy": _STRATEGY, "timeSlicingConfig": _TIME, "mpsConfig": _MPS}, ("strategy",), _BY_STRATEGY
)
_MIG_SHARING = ConfigFields(
    {"strategy": _STRATEGY, "mpsConfig": _MPS}, ("strategy",), {"mpsConfig": _BY_STRATEGY["mpsConfig"]}
)
_IOMMU = ConfigFields({"backendPolicy": OneOf(("LegacyOnly", "PreferIommuFD")), "enableAPIDevice": TrueOrFalse()})
_CHANNEL = ConfigFields({"domainID": NonEmpty(), "allocationMode": OneOf(("Single", "All"))}, ("domainID",))
_GPU_CONFIGS = Configs(
    API_VERSION,
    {
        "GpuConfig": ConfigFields({"sharing": _GPU_SHARING}),
        "MigDeviceConfig": ConfigFields({"sharing": _MIG_SHARING}),
        "VfioDeviceConfig": ConfigFields({"iommu": _IOMMU}),
    },
    {GPU: "GpuConfig", "mig.nvidia.com": "MigDeviceConfig", "vfio.gpu.nvidia.com": "VfioDeviceConfig"},
    (
        NeededGate(("sharing", "strategy"), TIME_SLICING, "TimeSlicingSettings"),
        NeededGate(("sharing", "strategy"), MPS, "MPSSupport"),
        NeededGate(("kind",), "VfioDeviceConfig", "PassthroughSupport"),
    ),
)
_DOMAIN_CONFIGS = Configs(
    API_VERSION,
    {
        "ComputeDomainChannelConfig": _CHANNEL,
        "ComputeDomainDaemonConfig": ConfigFields({"domainID": NonEmpty()}, ("domainID",)),
    },
    {
        "compute-domain-default-channel.nvidia.com": "ComputeDomainChannelConfig",
        "compute-domain-daemon.nvidia.com": "ComputeDomainDaemonConfig",
    },
)

# ---- cards


@lru_cache(maxsize=1)
def _cards() -> tuple[Card, ...]:
    catalog = Catalog.packaged()
    return tuple(
        Card(
            name,
            _view(model, {"type": "gpu", "uuid": f"GPU-{name}"}),
            tuple(shape.name for shape in catalog.mig_shapes(model)),
            lambda profile, model=model: _partition(model, profile),  # type: ignore[misc]
        )
        for name, model in catalog.gpus.items()
    )


def _partition(model: GpuModel, profile: str) -> DeviceView:
    return _view(model, {"type": "mig", "uuid": "MIG-0", "parentUUID": "GPU-0", "profile": profile})


def _view(model: GpuModel, own: dict[str, str]) -> DeviceView:
    attributes, capacity = Domains(), Domains()
    attributes[GPU] = {
        **own,
        "productName": model.name,
        "brand": model.brand,
        "architecture": model.architecture,
        "addressingMode": model.addressing_mode,
        "driverVersion": Semver.parse(DriverVersion().version, normalize=True),
        "cudaDriverVersion": Semver.parse(DriverVersion().cuda, normalize=True),
    }
    capacity[GPU] = {"memory": Quantity.parse(f"{model.memory_mib}Mi")}
    return DeviceView(GPU, attributes, capacity)


# ---- kinds

_ALL_CHANNELS = (
    "every container gets all 2048 channels and may share memory with every workload of its IMEX domain, which ends "
    "the isolation between them"
)
_COMPUTE_DOMAIN = TemplateMaker(
    "resource.nvidia.com",
    "ComputeDomain",
    ("spec", "channel", "resourceClaimTemplate", "name"),
    together="nvidia.com/gpu.clique",
    nodes=("spec", "numNodes"),
    warned=(Warned(("spec", "channel", "allocationMode"), "All", _ALL_CHANNELS, "write Single, or leave it out"),),
)

# ---- labels of nodes

_NODE_LABELS = (
    (
        r"nvidia\.com/gpu\.(product|memory|family|count|machine|compute\..+|replicas|sharing-strategy|mode)"
        r"|nvidia\.com/(cuda\..+|mig\.(capable|strategy)|mig-.+)",
        "GPU feature discovery sets this label, and a GPUCluster (DRA) runs none: select devices in the claim instead, "
        "by attributes such as productName and capacity such as memory",
    ),
    (
        r"nvidia\.com/gpu\.clique",
        "it is set where the NVLink fabric has a clique: by GPU feature discovery, or by the driver with "
        "gpuCliqueLabelEnabled=true",
    ),
    (r"nvidia\.com/gpu\.present", "the GPU operator sets it on nodes that node feature discovery finds GPUs on"),
)

# ---- drivers

DRIVERS: tuple[KnownDriver, ...] = (
    KnownDriver(
        GPU,
        frozenset(_ATTRIBUTES),
        frozenset(_CAPACITY),
        numbered_attributes=r"partition\d+",
        numbered_capacity=r"memorySlice\d+",
        absent=_ABSENT,
        pools_are_nodes=True,
        plugin_resource=r"nvidia\.com/(gpu|gpu\.shared|mig-.+)",
        classes=GPU_CLASSES,
        configs=_GPU_CONFIGS,
        node_labels=_NODE_LABELS,
        cards=Cards(_cards, r"(\d+g)\.\d+gb((?:[+-][a-z.]+)?)", "MIG profile"),
    ),
    KnownDriver(
        COMPUTE_DOMAIN,
        frozenset({"type", "id"}),
        pools_are_nodes=True,
        classes=COMPUTE_DOMAIN_CLASSES,
        configs=_DOMAIN_CONFIGS,
        own_classes=frozenset({"compute-domain-daemon.nvidia.com"}),
        makers=(_COMPUTE_DOMAIN,),
        kinds=frozenset({("resource.nvidia.com", "ComputeDomain"), ("resource.nvidia.com", "ComputeDomainClique")}),
    ),
)
