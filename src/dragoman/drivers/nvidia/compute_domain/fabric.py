"""Which clique is this node in? From what NVML says of each GPU's fabric, on real and on simulated machines.

Pure, but for what reads NVML. The rules are those of the driver's clique discovery (its nvlib.go).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman.drivers.nvidia.gates import DriverGates
from dragoman.errors import Invalid

NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED = "NOT_SUPPORTED", "NOT_STARTED", "IN_PROGRESS", "COMPLETED"
STATES = (NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED)
"""By NVML's number."""
NO_UUID = "00000000-0000-0000-0000-000000000000"


class GpuFabric(msgspec.Struct, frozen=True):
    """One GPU's fabric as NVML tells it; status is 0 for success."""

    gpu: str
    state: str = NOT_SUPPORTED
    status: int = 0
    cluster_uuid: str = NO_UUID
    clique_id: int = 0


def clique_of(gpus: Sequence[GpuFabric], gates: DriverGates) -> str:
    """`<clusterUUID>.<cliqueID>`, "" for a node without NVLink to others. Raises Invalid for a fabric that is not ready
    (with the gate CrashOnNVLinkFabricErrors) or GPUs that disagree."""
    strict = gates.on("CrashOnNVLinkFabricErrors")
    found: dict[tuple[str, int], str] = {}
    for gpu in gpus:
        if gpu.state == NOT_SUPPORTED:
            continue
        if gpu.state != COMPLETED or gpu.status != 0:
            single_node = gpu.state != COMPLETED and gates.on("FabricManagerPartitioning")
            if strict and not single_node:
                raise Invalid(
                    f"NVLink fabric of GPU {gpu.gpu}",
                    f"state is {gpu.state}, status {gpu.status}: check Fabric Manager, or turn off the feature gate "
                    "CrashOnNVLinkFabricErrors to continue without a clique",
                )
            continue
        if gpu.cluster_uuid != NO_UUID:
            found[gpu.cluster_uuid, gpu.clique_id] = gpu.gpu
    if len(found) > 1:
        shown = ", ".join(f"{uuid}.{clique} ({gpu})" for (uuid, clique), gpu in sorted(found.items()))
        raise Invalid("NVLink fabric", f"the GPUs of this node are in several cliques: {shown}")
    return next((f"{uuid}.{clique}" for uuid, clique in found), "")
