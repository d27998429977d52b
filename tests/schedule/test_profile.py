"""Decisions under profiles: checks that are off, added affinity, weights; and that profiles share no verdicts."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from dragoman.api import codec
from dragoman.api.core import NodeAffinity
from dragoman.explain.messages import fragment
from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.schedule.decision import Decision
from dragoman.schedule.placement import PlacementCache
from dragoman.schedule.profile import SchedulerProfile, Weights
from dragoman.schedule.refusal import AddedAffinityMismatch
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import node, pod, snapshot_of
from tests.schedule.test_cycle import NOW


def added(key: str, value: str, *, weight: int = 0) -> NodeAffinity:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    if weight:
        affinity: dict[str, Any] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": term}]
        }
    else:
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return codec.decode(NodeAffinity, affinity)


def decided(snapshot: Snapshot, profile: SchedulerProfile, memory: PlacementCache | None = None) -> Decision:
    numbers = count()
    context = SchedulingContext(new_id=lambda: str(next(numbers)), profile=profile, memory=memory or PlacementCache())
    return decide(snapshot, unit_of(snapshot, snapshot.pods["default", "p"], context.gates), NOW, context)


def test_added_affinity_keeps_pods_to_its_nodes() -> None:
    snapshot = snapshot_of(node("a"), node("b", labels={"stage": "fenced"}), pod("p"))
    assert decided(snapshot, SchedulerProfile(added=added("stage", "fenced"))).placements[0].node == "b"
    refused = decided(snapshot, SchedulerProfile(added=added("stage", "other"))).refused[0]
    reason = refused.nodes[0].reasons[0]
    assert isinstance(reason, AddedAffinityMismatch)
    assert fragment(reason) == "node(s) didn't match scheduler-enforced node affinity"


def test_profiles_that_share_a_memory_share_no_verdicts() -> None:
    snapshot = snapshot_of(node("a"), node("b", labels={"stage": "fenced"}), pod("p"))
    memory = PlacementCache()
    assert decided(snapshot, SchedulerProfile(), memory).placements[0].node == "a"
    assert decided(snapshot, SchedulerProfile(added=added("stage", "fenced")), memory).placements[0].node == "b"
    assert decided(snapshot, SchedulerProfile(), memory).placements[0].node == "a"


def test_added_preferences_count_with_the_weight_of_node_affinity() -> None:
    snapshot = snapshot_of(node("a"), node("b", labels={"stage": "new"}), pod("p"))
    wanted = added("stage", "new", weight=10)
    assert decided(snapshot, SchedulerProfile(added=wanted)).placements[0].node == "b"
    assert decided(snapshot, SchedulerProfile(Weights(affinity=0), added=wanted)).placements[0].node == "a"


@pytest.mark.parametrize(
    ("check", "made", "wants"),
    [
        ("NodeUnschedulable", node("a", unschedulable=True), {}),
        ("TaintToleration", node("a", taints=["x=y:NoSchedule"]), {}),
        ("NodeAffinity", node("a"), {"nodeSelector": {"zone": "none"}}),
        ("NodeResourcesFit", node("a", cpu="1"), {"cpu": "2"}),
        (
            "PodTopologySpread",
            node("a"),
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
                ]
            },
        ),
    ],
)
def test_a_check_that_is_off_refuses_nobody(check: str, made: dict[str, Any], wants: dict[str, Any]) -> None:
    snapshot = snapshot_of(made, pod("p", **wants))
    assert decided(snapshot, SchedulerProfile()).refused
    assert decided(snapshot, SchedulerProfile(off=frozenset({check}))).placements[0].node == "a"
