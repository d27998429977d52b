"""Which of the nodes that fit is best? Upstream's default scores with their weights (1.37).

NodeResourcesFit (least allocated), NodeResourcesBalancedAllocation, TaintToleration, NodeAffinity and
DynamicResources (alternatives of prioritized lists). Ties go to the smaller node name. Never looks at devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dragoman.api.core import Node, PodSpec
from dragoman.schedule.filter import untolerated_soft
from dragoman.schedule.needs import ResourceAmounts
from dragoman.schedule.profile import DEFAULT_PROFILE, DEFAULT_WEIGHTS, SchedulerProfile, Weights
from dragoman.snapshot.selection import term_matches
from dragoman.values.quantity import Quantity

TOP = 100
ALTERNATIVES = 8
SCORED = ("cpu", "memory")


class Raw(NamedTuple):
    """Scores of one node before they are brought to one scale.

    room: final (0 to 200, weights in). affinity and devices: more is better. taints: fewer is better.
    """

    resources: int
    affinity: int = 0
    taints: int = 0
    devices: int = 0


def totals(raws: Sequence[Raw], weights: Weights = DEFAULT_WEIGHTS) -> list[int]:
    """The weighted totals of nodes that compete with each other, in their order."""
    affinity = max((raw.affinity for raw in raws), default=0)
    taints = max((raw.taints for raw in raws), default=0)
    devices = max((raw.devices for raw in raws), default=0)
    return [
        raw.resources
        + (weights.affinity * (raw.affinity * TOP // affinity) if affinity else 0)
        + weights.taints * (TOP - (raw.taints * TOP // taints if taints else 0))
        + (weights.devices * (raw.devices * TOP // devices) if devices else 0)
        for raw in raws
    ]


def static_scores(spec: PodSpec, node: Node, profile: SchedulerProfile = DEFAULT_PROFILE) -> tuple[int, int]:
    """(affinity, taints): sum of matching preferences' weights, of pod and profile; soft taints not tolerated."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    preferred = affinity.preferred if affinity is not None else ()
    if profile.added is not None:
        preferred = (*preferred, *profile.added.preferred)
    liked = sum(term.weight for term in preferred if term.weight and term_matches(term.preference, node))
    return liked, untolerated_soft(spec, node) if node.spec.taints else 0


def resource_score(
    asked: ResourceAmounts,
    extra: ResourceAmounts,
    allocatable: Mapping[str, Quantity] | None,
    used: Mapping[str, int],
    used_extra: Mapping[str, int],
    weights: Weights = DEFAULT_WEIGHTS,
) -> int:
    """Least allocated plus balanced allocation, weights in.

    asked and used: requests of the pod, of those there; extra and used_extra: what is assumed for containers that
    state none (counts for least allocated only). A resource that the node does not state counts 0.
    """
    if allocatable is None:
        return 0
    least = 0
    shares: list[tuple[float, float]] = []
    states_any = any(name in asked for name in SCORED)
    counted = 0
    for name in SCORED:
        total = allocatable.get(name)
        if total is None or total.nanos <= 0:
            continue
        counted += 1
        wanted = used.get(name, 0) + asked.get(name, 0)
        full = wanted + extra.get(name, 0) + used_extra.get(name, 0)
        if full <= total.nanos:
            least += (total.nanos - full) * TOP // total.nanos
        shares.append((min(wanted / total.nanos, 1.0), min(used.get(name, 0) / total.nanos, 1.0)))
    if not counted:
        return 0
    return weights.least * (least // counted) + (weights.balanced * _balance(shares) if states_any else 0)


def _balance(shares: list[tuple[float, float]]) -> int:
    """From 50, where the pod makes the node's use less even, over 75 to 100. shares: used with the pod, and without."""
    with_pod, without = (_evenness([share[index] for share in shares]) for index in (0, 1))
    return TOP // 2 + (TOP // 2 + with_pod - without) // 2


def _evenness(used: Sequence[float]) -> int:
    """100 less the standard deviation in percent, in upstream's floating point, so that equal nodes stay equal."""
    return int((1 - abs((used[0] - used[1]) / 2)) * TOP) if len(used) == 2 else TOP


def alternative_score(indexes: Sequence[int]) -> int:
    """Raw score of chosen alternatives of firstAvailable requests: 8 for the first, 1 for the last possible."""
    return sum(ALTERNATIVES - index for index in indexes)
