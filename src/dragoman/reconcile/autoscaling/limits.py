"""How fast may replicas change? Bounds, policies and stabilization of one autoscaler, and its memory for them.

Memory is lost when the process ends, as upstream's is: an autoscaler then waits once more before it scales down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

DOWN_STABILIZATION_S = 300.0
"""--horizontal-pod-autoscaler-downscale-stabilization."""
UP_FACTOR, UP_MINIMUM = 2.0, 4.0


class Memory(msgspec.Struct):
    """What one autoscaler recommended and changed: (epoch seconds, replicas)."""

    recommended: list[tuple[float, int]] = []
    up: list[tuple[float, int]] = []
    down: list[tuple[float, int]] = []

    def changed(self, behavior: Any, before: int, after: int, now: float) -> None:
        """Keep a change for as long as a policy may look back at it."""
        if not behavior:
            return
        changes = self.up if after > before else self.down
        rules = behavior.get("scaleUp" if after > before else "scaleDown") or {}
        longest = max((policy["periodSeconds"] for policy in rules.get("policies") or ()), default=0)
        changes[:] = [(at, count) for at, count in changes if at >= now - longest]
        changes.append((now, abs(after - before)))


class Limited(msgspec.Struct, frozen=True):
    """The replicas allowed, with the conditions AbleToScale and ScalingLimited: (reason, message)."""

    replicas: int
    able: tuple[str, str]
    limited: bool
    why: tuple[str, str]


READY = ("ReadyForNewScale", "recommended size matches current size")
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
_STEADY_DOWN = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_STEADY_UP = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)


def limited(spec: Any, memory: Memory, current: int, wanted: int, low: int, now: float) -> Limited:
    """What of the wanted replicas is allowed now."""
    if not spec.get("behavior"):
        return _plainly(spec, memory, current, wanted, low, now)
    behavior = spec["behavior"]
    up, down = behavior.get("scaleUp") or {}, behavior.get("scaleDown") or {}
    steady = _stabilized(memory, up, down, current, wanted, now)
    able = READY if steady == wanted else _STEADY_UP if wanted >= current else _STEADY_DOWN
    replicas, why = _at_rate(memory, up, down, current, steady, (low, spec["maxReplicas"]), now)
    return Limited(replicas, able, replicas != steady, why)


def _plainly(spec: Any, memory: Memory, current: int, wanted: int, low: int, now: float) -> Limited:
    cutoff = now - DOWN_STABILIZATION_S
    recent = [(at, count) for at, count in memory.recommended if at >= cutoff]
    steady = max((wanted, *(count for _, count in recent)))
    memory.recommended[:] = [*recent, (now, wanted)]
    able = READY if steady == wanted else _STEADY_DOWN
    limit = int(max(UP_FACTOR * current, UP_MINIMUM))
    most, why = (limit, _UP_LIMIT) if spec["maxReplicas"] > limit else (spec["maxReplicas"], _TOO_MANY)
    if steady < low:
        replicas, why = low, _TOO_FEW
    elif steady > most:
        replicas = most
    else:
        replicas, why = steady, _WITHIN
    return Limited(replicas, able, replicas != steady, why)


def _stabilized(memory: Memory, up: Any, down: Any, current: int, wanted: int, now: float) -> int:
    up_s = up.get("stabilizationWindowSeconds") or 0
    down_s = down.get("stabilizationWindowSeconds")
    down_s = DOWN_STABILIZATION_S if down_s is None else down_s
    highest = min([wanted, *(count for at, count in memory.recommended if at > now - up_s)])
    lowest = max([wanted, *(count for at, count in memory.recommended if at > now - down_s)])
    memory.recommended[:] = [(at, n) for at, n in memory.recommended if at >= now - max(up_s, down_s)]
    memory.recommended.append((now, wanted))
    return min(max(current, highest), lowest)


def _at_rate(
    memory: Memory, up: Any, down: Any, current: int, wanted: int, bounds: tuple[int, int], now: float
) -> tuple[int, tuple[str, str]]:
    low, high = bounds
    if wanted > current:
        limit = max(current, _limit(memory, up, current, now, grows=True))
        most, why = (limit, _UP_LIMIT) if high > limit else (high, _TOO_MANY)
        return (most, why) if wanted > most else (wanted, _WITHIN)
    if wanted < current:
        limit = min(current, _limit(memory, down, current, now, grows=False))
        least, why = (limit, _DOWN_LIMIT) if low < limit else (low, _TOO_FEW)
        return (least, why) if wanted < least else (wanted, _WITHIN)
    return wanted, _WITHIN


def _limit(memory: Memory, rules: Any, current: int, now: float, *, grows: bool) -> int:
    """How many replicas the policies allow."""
    select = rules.get("selectPolicy") or "Max"
    if select == "Disabled":
        return current
    proposed: list[int] = []
    for policy in rules.get("policies") or ():
        cutoff = now - policy["periodSeconds"]
        start = current - _changed(memory.up, cutoff) + _changed(memory.down, cutoff)
        value: int = policy["value"]
        if policy["type"] == "Pods":
            proposed.append(start + value if grows else start - value)
        elif grows:
            proposed.append(math.ceil(start * (1 + value / 100)))
        else:
            proposed.append(int(start * (1 - value / 100)))
    if not proposed:
        return current
    return max(proposed) if (select == "Max") is grows else min(proposed)


def _changed(changes: Sequence[tuple[float, int]], cutoff: float) -> int:
    return sum(count for at, count in changes if at > cutoff)
