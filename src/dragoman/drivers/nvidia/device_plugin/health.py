"""Which hardware events make a device ill for the device plugin? XIDs that count, and those that do not.

As NVIDIA/k8s-device-plugin: only critical XIDs count, some are ignored, nothing recovers before the plugin starts
again. Where one GPU has several devices all of them are marked (upstream marks one of them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dragoman.drivers.nvidia.device_plugin.source import NvidiaSource
from dragoman.drivers.nvidia.hardware import HardwareEvent, Lost, Unmonitored, XidError
from dragoman.drivers.nvidia.health import IGNORED, parse_xids

DISABLE, ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
ALL = frozenset({"all", "xids"})


class HealthChecks(msgspec.Struct, frozen=True):
    """off: no event counts. ignored: XIDs that do not."""

    off: bool = False
    ignored: frozenset[int] = IGNORED

    def note(self, event: HardwareEvent, sources: Iterable[NvidiaSource]) -> list[NvidiaSource]:
        """Take an event in; the sources whose devices' health has changed."""
        if self.off:
            return []
        match event:
            case XidError(gpu, number, gi, ci) if number not in self.ignored:
                return [source for source in sources if source.mark(gpu, gi, ci)]
            case Lost(gpu) | Unmonitored(gpu):
                return [source for source in sources if source.mark(gpu)]
        return []


def from_environment(environment: Mapping[str, str]) -> HealthChecks:
    """By DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS: all, xids, or XIDs. Raises Invalid."""
    disabled = environment.get(DISABLE, "").strip().lower()
    enabled = environment.get(ENABLE, "").strip().lower()
    words = {word.strip() for word in disabled.split(",")}
    switched_on = {word.strip() for word in enabled.split(",")}
    off = bool(words & ALL) and not switched_on & ALL
    more = parse_xids(",".join(words - ALL), DISABLE)
    back = parse_xids(",".join(switched_on - ALL), ENABLE)
    return HealthChecks(off and not back, (IGNORED | more) - back)
