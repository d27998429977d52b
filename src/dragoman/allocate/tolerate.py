"""Which taint keeps a request off a device? (KEP-5055). Seconds of toleration play no role in allocation."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.api.resource import DeviceTaint, DeviceToleration

BLOCKING = frozenset({"NoSchedule", "NoExecute"})


def blocker(
    taints: Iterable[tuple[str, DeviceTaint]], tolerations: tuple[DeviceToleration, ...]
) -> tuple[str, DeviceTaint] | None:
    """The first (rule, taint) that no toleration tolerates; effects None and unknown never block."""
    for rule, taint in taints:
        if taint.effect in BLOCKING and not any(tolerates(toleration, taint) for toleration in tolerations):
            return rule, taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Empty effect or key match all; Exists ignores the value; an unknown operator never tolerates."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
