"""How does a scheduler profile differ from kube-scheduler's default one? Weights, checks that are off, affinity.

A profile belongs to a `spec.schedulerName`. Values alone: who reads KubeSchedulerConfiguration makes them
(`daemon.scheduler_config`), node checks and scores read them.
"""

from __future__ import annotations

import msgspec

from dragoman.api import codec
from dragoman.api.core import NodeAffinity

NODE_CHECKS = ("NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit")
POD_CHECKS = (
    "NodePorts",
    "VolumeRestrictions",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
"""The filter plugins that a profile can switch off, by what they look at."""


class Weights(msgspec.Struct, frozen=True):
    """Weights of the score plugins; 0: not scored. Names and values of kube-scheduler's default profile (1.37)."""

    taints: int = 3
    affinity: int = 2
    devices: int = 2
    least: int = 1
    balanced: int = 1


DEFAULT_WEIGHTS = Weights()


class SchedulerProfile(msgspec.Struct, frozen=True):
    """off: names of `NODE_CHECKS` and `POD_CHECKS` that are not made. added: NodeAffinityArgs.addedAffinity, which
    nodes must match beside what the pod asks for."""

    weights: Weights = DEFAULT_WEIGHTS
    off: frozenset[str] = frozenset()
    added: NodeAffinity | None = None

    @property
    def key(self) -> bytes:
        """Equal for profiles that judge nodes in the same way; b"" for the default one."""
        if self is DEFAULT_PROFILE or self == DEFAULT_PROFILE:
            return b""
        return codec.to_bytes((msgspec.structs.astuple(self.weights), sorted(self.off), self.added))


DEFAULT_PROFILE = SchedulerProfile()
