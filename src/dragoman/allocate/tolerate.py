"""Which taint keeps a request off a device? (KEP-5055). Seconds of toleration play no role in allocation."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.api.resource import DeviceTaint, DeviceToleration
from dragoman.snapshot.taints import tolerates

BLOCKING = frozenset({"NoSchedule", "NoExecute"})


def blocker(
    taints: Iterable[tuple[str, DeviceTaint]], tolerations: tuple[DeviceToleration, ...]
) -> tuple[str, DeviceTaint] | None:
    """The first (rule, taint) that no toleration tolerates; effects None and unknown never block."""
    for rule, taint in taints:
        if taint.effect in BLOCKING and not any(tolerates(toleration, taint) for toleration in tolerations):
            return rule, taint
    return None
