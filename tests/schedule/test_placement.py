"""Where one pod can go: the pinned and the restricted, groups of equal nodes, what is remembered between decisions."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from dragoman.allocate.allocator import OPTIONS
from dragoman.schedule.claims import claims_of
from dragoman.schedule.placement import (
    NoFit,
    PlacementCache,
    ScheduleResult,
    all_refusals,
    feasible_nodes,
    find_node,
    node_scores,
)
from dragoman.schedule.pod_info import PodInfo, pod_info_of
from dragoman.schedule.refusal import NoNodes
from dragoman.snapshot.change import Put, Snapshot, apply_all
from dragoman.testing.build import allocated, claim, device_class, gpus, node, pod, snapshot_of, typed

GPU = device_class()


def info(snapshot: Snapshot, name: str = "p") -> PodInfo:
    made = snapshot.pods["default", name]
    claims = claims_of(snapshot, made, ())
    assert isinstance(claims, tuple)
    return pod_info_of(snapshot, made, claims, {})


def found(snapshot: Snapshot, memory: PlacementCache | None = None) -> Any:
    numbers = count()
    return find_node(snapshot, info(snapshot), OPTIONS, {}, memory or PlacementCache(), lambda: f"{next(numbers):08d}")


def test_no_nodes_is_a_reason_of_its_own() -> None:
    no = found(snapshot_of(pod("p")))
    assert isinstance(no, NoFit)
    assert no.reasons == (NoNodes(),)


def test_devices_and_node_checks_hold_on_one_node_and_each_refusal_names_its_nodes() -> None:
    nodes = [node("a", cpu="1"), node("b", cpu="4"), node("c", cpu="4")]
    snapshot = snapshot_of(*nodes, gpus("a", 1), GPU, claim("c"), pod("p", "c", cpu="2"))
    no = found(snapshot)
    assert isinstance(no, NoFit)
    assert {some.nodes for some in no.nodes} == {("a",), ("b", "c")}
    assert isinstance(found(apply_all(snapshot, [Put("ResourceSlice", typed(gpus("c", 1)))])), ScheduleResult)


def test_an_allocated_claim_leaves_only_the_nodes_that_its_devices_reach() -> None:
    held = allocated("c", "gpu-0", pool="b")
    held["status"]["allocation"]["nodeSelector"] = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]
    }
    snapshot = snapshot_of(*(node(n) for n in "abc"), GPU, gpus("b", 1), held, pod("p", "c"))
    place = found(snapshot)
    assert isinstance(place, ScheduleResult)
    assert (place.node, place.results) == ("b", ())
    assert list(node_scores(snapshot, info(snapshot), OPTIONS, {}, PlacementCache())) == ["b"]


def test_feasible_nodes_are_those_that_were_named_first_then_others_up_to_a_number() -> None:
    snapshot = snapshot_of(*(node(n) for n in "abcd"), node("e", unschedulable=True), pod("p"))
    nodes = list(feasible_nodes(snapshot, info(snapshot), PlacementCache(), ["d", "e"], 3))
    assert nodes[0] == "d"
    assert len(nodes) == len(set(nodes)) == 3
    assert "e" not in nodes


def test_refusals_cover_every_node_that_is_not_feasible() -> None:
    snapshot = snapshot_of(node("a"), node("b", unschedulable=True), node("c", taints=["x=y:NoSchedule"]), pod("p"))
    refusals = all_refusals(snapshot, info(snapshot), OPTIONS, {}, PlacementCache())
    assert sorted(name for some in refusals for name in some.nodes) == ["b", "c"]


CHANGES = {
    "a node fills": lambda: Put("Pod", typed(pod("r", cpu="3", nodeName="a"))),
    "a node is cordoned": lambda: Put("Node", typed(node("a", cpu="4", memory="8Gi", unschedulable=True))),
    "a device is taken": lambda: Put("ResourceClaim", typed(allocated("t", "gpu-0", pool="a"))),
    "a node gets a taint": lambda: Put("Node", typed(node("a", cpu="4", memory="8Gi", taints=["x=y:NoSchedule"]))),
    "a node comes": lambda: Put("Node", typed(node("0", cpu="64", memory="8Gi"))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_remembered_changes_no_answer_after_a_change(name: str) -> None:
    nodes = [node(n, cpu="4", memory="8Gi") for n in "ab"]
    before = snapshot_of(*nodes, gpus("a", 1), gpus("b", 1), GPU, claim("c"), pod("p", "c", cpu="2"))
    memory = PlacementCache()
    assert found(before, memory).node == "a"
    after = apply_all(before, [CHANGES[name]()])
    assert found(after, memory) == found(after)
    assert found(before, memory).node == "a", "and the old snapshot is still what it was"
