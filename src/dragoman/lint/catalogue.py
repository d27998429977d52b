"""What do well-known drivers publish, and which configuration do they take, when no slice of theirs is at hand?

Facts typed from the drivers' documentation and source, each with where it is from. A driver that publishes slices
among the documents is judged by those instead.
"""

from __future__ import annotations

import re

import msgspec


class KnownDriver(msgspec.Struct, frozen=True):
    """Names under the driver's domain; patterns are for numbered names. Configuration kinds by apiVersion."""

    attributes: frozenset[str]
    capacity: frozenset[str]
    numbered_attributes: str = ""
    numbered_capacity: str = ""
    config_version: str = ""
    config_kinds: frozenset[str] = frozenset()
    # Value of sharing.strategy: the driver's own gate that it needs.
    strategy_gates: dict[str, str] = {}
    # Extended resources under which a device plugin advertises the same hardware.
    plugin_resources: frozenset[str] = frozenset()

    def has(self, kind: str, name: str) -> bool:
        """Whether the driver may publish the name; kind is attributes or capacity."""
        if kind == "attributes":
            return name in self.attributes or _matches(self.numbered_attributes, name)
        return name in self.capacity or _matches(self.numbered_capacity, name)


def _matches(pattern: str, name: str) -> bool:
    return bool(pattern) and re.fullmatch(pattern, name) is not None


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
    config_version="resource.nvidia.com/v1beta1",
    config_kinds=frozenset({"GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"}),
    strategy_gates={"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"},
    plugin_resources=frozenset({"nvidia.com/gpu"}),
)

# KEP-6072 and k8s.io/dynamic-resource-allocation/deviceattribute.
_STANDARD = KnownDriver(attributes=frozenset({"pcieRoot", "pciBusID", "numaNode"}), capacity=frozenset())

CATALOGUE: dict[str, KnownDriver] = {"gpu.nvidia.com": _NVIDIA, "resource.kubernetes.io": _STANDARD}
"""By domain of the attributes, which is the driver's name."""
