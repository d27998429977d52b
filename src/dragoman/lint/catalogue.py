"""What do well-known drivers publish, and which configuration do they take, when no slice of theirs is at hand?

Facts typed from the drivers' documentation and source, each with where it is from. A driver that publishes slices
among the documents is judged by those instead.
"""

from __future__ import annotations

import re

import msgspec


class KnownDriver(msgspec.Struct, frozen=True):
    """Names under the driver's domain; patterns are for numbered names.

    absent: patterns of names that people expect there, with what to do instead. pools_are_nodes: it names its pools
    after nodes. config_gates: field path in a configuration, value there, the driver's own gate that it needs.
    plugin_resource: pattern of extended resources under which a device plugin advertises the same hardware.
    """

    attributes: frozenset[str]
    capacity: frozenset[str]
    numbered_attributes: str = ""
    numbered_capacity: str = ""
    absent: tuple[tuple[str, str], ...] = ()
    pools_are_nodes: bool = False
    config_gates: dict[str, str] = {}
    plugin_resource: str = ""

    def instead(self, name: str) -> str:
        """What to do in place of a name that people expect, "" if nothing is known."""
        return next((advice for pattern, advice in self.absent if re.fullmatch(pattern, name)), "")

    def has(self, kind: str, name: str) -> bool:
        """Whether the driver may publish the name; kind is attributes or capacity."""
        if kind == "attributes":
            return name in self.attributes or _matches(self.numbered_attributes, name)
        return name in self.capacity or _matches(self.numbered_capacity, name)


def _matches(pattern: str, name: str) -> bool:
    return bool(pattern) and re.fullmatch(pattern, name) is not None


_NO_NVLINK = (
    "no attribute tells of NVLink: drop it, a board with NVSwitch needs none; between nodes use the label "
    "nvidia.com/gpu.clique"
)

# dra-driver-nvidia-gpu 0.5: cmd/gpu-kubelet-plugin/deviceinfo.go, mig.go; api/nvidia.com/resource/v1beta1.
_NVIDIA = KnownDriver(
    attributes=frozenset(
        {
            "type",
            "uuid",
            "parentUUID",
            "profile",
            "productName",
            "brand",
            "architecture",
            "cudaComputeCapability",
            "driverVersion",
            "cudaDriverVersion",
            "addressingMode",
            "gpuModuleID",
            "deviceID",
            "vendorID",
            "iommuFDEnabled",
        }
    ),
    capacity=frozenset(
        {
            "memory",
            "addressableMemory",
            "shares",
            "multiprocessors",
            "copyEngines",
            "decoders",
            "encoders",
            "jpegEngines",
            "ofaEngines",
        }
    ),
    numbered_attributes=r"partition\d+",
    numbered_capacity=r"memorySlice\d+",
    absent=(
        ("(?i).*(nvlink|clique|nvswitch|fabric).*", _NO_NVLINK),
        ("(?i)numa(_?node|_?id)?", "it is resource.kubernetes.io/numaNode"),
        ("(?i)pci(e|ebus|bus)?_?(id|address|bus_?id)?", "it is resource.kubernetes.io/pciBusID"),
        ("(?i)pcie?_?(root|switch)", "it is resource.kubernetes.io/pcieRoot"),
        ("(?i)(index|minor)", "choose by uuid; devices are named gpu-MINOR"),
    ),
    pools_are_nodes=True,
    config_gates={"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"},
    plugin_resource=r"nvidia\.com/(gpu|gpu\.shared|mig-.+)",
)

# compute-domain-kubelet-plugin of the same driver.
_COMPUTE_DOMAIN = KnownDriver(attributes=frozenset({"type", "id"}), capacity=frozenset(), pools_are_nodes=True)

# KEP-6072 and k8s.io/dynamic-resource-allocation/deviceattribute.
_STANDARD = KnownDriver(attributes=frozenset({"pcieRoot", "pciBusID", "numaNode"}), capacity=frozenset())

CATALOGUE: dict[str, KnownDriver] = {
    "gpu.nvidia.com": _NVIDIA,
    "compute-domain.nvidia.com": _COMPUTE_DOMAIN,
    "resource.kubernetes.io": _STANDARD,
}
"""By domain of the attributes, which is the driver's name."""


def _class(driver: str, kind: str, more: str = "") -> str:
    return f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'{more}"


CLASSES: dict[str, str] = {
    "gpu.nvidia.com": _class("gpu.nvidia.com", "gpu"),
    "mig.nvidia.com": _class("gpu.nvidia.com", "mig"),
    "vfio.gpu.nvidia.com": _class("gpu.nvidia.com", "vfio"),
    "compute-domain-daemon.nvidia.com": _class("compute-domain.nvidia.com", "daemon"),
    "compute-domain-default-channel.nvidia.com": _class(
        "compute-domain.nvidia.com", "channel", " && device.attributes['compute-domain.nvidia.com'].id == 0"
    ),
}
"""Selectors of the DeviceClasses that well-known drivers bring, by name (charts of dra-driver-nvidia-gpu)."""
