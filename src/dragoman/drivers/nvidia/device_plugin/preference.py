"""Which devices should the kubelet take? Well-linked GPUs together, replicas spread or packed. Pure.

Whole GPUs: the set whose pairs are linked best, and that leaves the best-linked ones for others where it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from dragoman.drivers.nvidia.device_plugin.config import AllocationPolicy
from dragoman.drivers.nvidia.device_plugin.resources import PhysicalDevice, physical
from dragoman.drivers.nvidia.hardware import Gpu

SETS_MAX = 20_000
"""So many sets are compared; beyond that the best one is built step by step."""

Score = Callable[[Gpu, Gpu], int]


def place_score(a: Gpu, b: Gpu) -> int:
    """How close two GPUs are by what every machine tells: the same PCIe root, the same NUMA node."""
    if a.pcie_root and a.pcie_root == b.pcie_root:
        return 30
    if a.numa is not None and a.numa == b.numa:
        return 20
    return 10


def linked(
    ids: Mapping[str, PhysicalDevice], available: Sequence[str], must: Sequence[str], size: int, score: Score
) -> list[str]:
    """So many of the available ids, those of must among them, with the best links between them."""
    rest = [one for one in ids if one in set(available) and one not in must]
    missing = size - len(must)
    if missing <= 0 or missing > len(rest):
        return [*must, *rest][:size]

    def total(chosen: Sequence[str]) -> int:
        return sum(score(ids[a].gpu, ids[b].gpu) for a, b in combinations(chosen, 2))

    count = 1
    for step in range(missing):
        count = count * (len(rest) - step) // (step + 1)
    if count > SETS_MAX:
        chosen = list(must)
        for _ in range(missing):
            best = max((one for one in rest if one not in chosen), key=lambda one: total([*chosen, one]))
            chosen.append(best)
        return chosen

    def score_of(more: tuple[str, ...]) -> tuple[int, int]:
        left = [one for one in rest if one not in more]
        return total([*must, *more]), total(left)

    return [*must, *max(combinations(rest, missing), key=score_of)]


def shared(
    ids: Mapping[str, PhysicalDevice],
    available: Sequence[str],
    must: Sequence[str],
    size: int,
    policy: AllocationPolicy,
) -> list[str]:
    """Replicas: distributed takes from the device that is used least, packed from the one used most."""
    chosen = list(must)
    free = [one for one in ids if one in set(available) and one not in must]
    totals: dict[str, int] = {}
    for one in ids:
        totals[physical(one)] = totals.get(physical(one), 0) + 1
    left: dict[str, int] = dict.fromkeys(totals, 0)
    for one in free:
        left[physical(one)] += 1
    while free and len(chosen) < size:
        used = {uuid: totals[uuid] - left[uuid] for uuid in {physical(one) for one in free}}
        best = min(used.values()) if policy == "distributed" else max(used.values())
        taken = next(one for one in free if used[physical(one)] == best)
        free.remove(taken)
        left[physical(taken)] -= 1
        chosen.append(taken)
    return chosen
