"""How are a machine's GPUs connected? The matrix of `nvidia-smi topo -m`, from the facts of its profile."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.drivers.nvidia.hardware import Gpu
from dragoman.profiles.machine import Profile

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def link(profile: Profile, a: Gpu, b: Gpu) -> str:
    """How two GPUs are connected, in the words of the tool."""
    if a.uuid == b.uuid:
        return " X "
    if profile.fabric.gpu_links:
        return profile.fabric.gpu_links
    if a.pcie_root and a.pcie_root == b.pcie_root:
        return "PHB"
    if a.numa is not None and a.numa == b.numa:
        return "NODE"
    return "SYS"


def matrix(profile: Profile, gpus: Sequence[Gpu]) -> str:
    """The whole output."""
    heads = [f"GPU{index}" for index in range(len(gpus))]
    share = profile.node.cpu // max(1, len({slot.numa for slot in profile.gpus}))
    lines = ["\t" + "\t".join([*heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for index, gpu in enumerate(gpus):
        cells = [link(profile, gpu, other) for other in gpus]
        if gpu.numa is None:
            where = [f"0-{profile.node.cpu - 1}", "N/A", "N/A"]
        else:
            where = [f"{gpu.numa * share}-{(gpu.numa + 1) * share - 1}", str(gpu.numa), "N/A"]
        lines.append("\t".join([heads[index], *cells, *where]))
    return "\n".join(lines) + "\n" + LEGEND
