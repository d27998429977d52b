"""What does a driver for made-up GPUs look like? Attributes, capacities and environment of the Kubernetes DRA labs.

There is no hardware: preparing a device means naming it in the container's environment. The rest is the SDK's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.drivers.example.classes import NAME
from dragoman.errors import Invalid
from dragoman.node.cdi import Edits
from dragoman.node.driver import ClaimToPrepare, DeviceSetup, Pool, PreparedClaim, Setup, device
from dragoman.values.semver import Semver


class Sharing(msgspec.Struct, frozen=True, rename="camel"):
    """How the users of a device share it, from the claim's opaque parameters (kind GpuConfig)."""

    strategy: str = "TimeSlicing"
    time_slicing_config: dict[str, str] = {}


class ExampleGpuConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Opaque parameters of this driver, gpu.resource.example.com/v1alpha1."""

    sharing: Sharing = Sharing()


class ExampleDriver:
    """`count` devices on one node, in a pool named like the node."""

    name = NAME

    def __init__(self, node_name: str, count: int = 8) -> None:
        self.node_name = node_name
        self.count = count

    async def pools(self) -> Mapping[str, Pool]:
        """One pool; uuids are the same at every start."""
        return {self.node_name: Pool(tuple(self._device(index) for index in range(self.count)))}

    def _device(self, index: int) -> Any:
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{index}.{self.node_name}.{NAME}")
        return device(
            f"gpu-{index}",
            {
                "index": index,
                "uuid": f"gpu-{identity}",
                "model": "LATEST-GPU-MODEL",
                "driverVersion": Semver.parse("1.0.0"),
            },
            {"memory": "80Gi", "compute": 100},
        )

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        """Name each device in the environment: GPU_DEVICE_<index>=<device>."""
        devices = []
        known = {f"gpu-{index}" for index in range(self.count)}
        for result in claim.results:
            if result.pool != self.node_name or result.device not in known:
                raise Invalid(f"device {result.pool}/{result.device}", f"is not one of the {self.count} of this node")
            variable = f"GPU_DEVICE_{result.device.removeprefix('gpu-')}"
            # Class first, claim last: what the claim says wins.
            configs = claim.config_for(result.request)
            opaque = configs[-1].opaque if configs else None
            sharing = msgspec.convert(opaque.parameters, ExampleGpuConfig).sharing if opaque else Sharing()
            env = [
                f"{variable}={result.device}",
                f"{variable}_RESOURCE_CLAIM={claim.ref.uid}",
                f"{variable}_SHARING_STRATEGY={sharing.strategy}",
            ]
            if sharing.strategy == "TimeSlicing":
                env.append(f"{variable}_TIMESLICE_INTERVAL={sharing.time_slicing_config.get('interval', 'Default')}")
            devices.append(DeviceSetup(result.pool, result.device, Edits(env=tuple(env))))
        return Setup(devices, Edits(env=(f"DRA_RESOURCE_DRIVER_NAME={NAME}", f"KUBERNETES_NODE_NAME={self.node_name}")))

    async def unprepare(self, claim: PreparedClaim) -> None:
        """Nothing was changed outside the container."""
