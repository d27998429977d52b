"""Gangs in one clique, rack or block, and gangs of workloads without a PodGroup."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from dragoman.allocate.allocator import AllocatorOptions
from dragoman.api.gates import gates_with
from dragoman.explain.messages import message
from dragoman.schedule import refusal
from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.schedule.decision import Decision
from dragoman.schedule.topology import TOPOLOGY_PREFERRED, TOPOLOGY_REQUIRED
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import GANG_MIN_COUNT
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod, request, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GANGS = gates_with({"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True})[0]
RACK, BLOCK = "example.com/rack", "example.com/block"


def decided(snapshot: Snapshot, name: str = "p0", gates: Any = GANGS) -> Decision:
    numbers = count()
    context = SchedulingContext(new_id=lambda: str(next(numbers)), options=AllocatorOptions(gates=gates))
    return decide(snapshot, unit_of(snapshot, snapshot.pods["default", name], context.gates), NOW, context)


def trays(**racks: int) -> list[dict[str, Any]]:
    """Nodes of one GPU each, so many of each rack; racks a and b form a block, others one each."""
    made = [device_class()]
    for rack, number in racks.items():
        for index in range(number):
            labels = {RACK: rack, BLOCK: "ab" if rack in "ab" else rack}
            made += [node(f"{rack}{index}", labels=labels), gpus(f"{rack}{index}", 1)]
    return made


def group(minimum: int, topology: str = "", **annotations: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    return manifest("PodGroup", "g", spec=spec, metadata={"annotations": annotations})


def members(number: int, first: int = 0, **spec: Any) -> list[dict[str, Any]]:
    made = []
    for index in range(first, first + number):
        made += [
            claim(f"c{index}", request()),
            pod(f"p{index}", f"c{index}", schedulingGroup={"podGroupName": "g"}, **spec),
        ]
    return made


def nodes_of(decision: Decision) -> list[str]:
    return [placement.node for placement in decision.placements]


def test_all_pods_in_the_smallest_rack_that_has_room() -> None:
    snapshot = snapshot_of(*trays(a=2, b=6, c=4), group(4, RACK), *members(4))
    assert nodes_of(decided(snapshot)) == ["c0", "c1", "c2", "c3"]


def test_no_rack_has_room_and_the_reason_says_how_much_each_has() -> None:
    decision = decided(snapshot_of(*trays(a=3, b=2), group(4, RACK), *members(4)))
    assert not decision.effects
    (reason,) = {one.reasons[0] for one in decision.refused}
    assert isinstance(reason, refusal.PodGroupTopologyMismatch)
    assert f"no {RACK} can take 4 pods: a 3, b 2" in message(decision.refused[0])


def test_without_the_gate_the_field_of_the_group_means_nothing() -> None:
    snapshot = snapshot_of(*trays(a=3, b=2), group(4, RACK), *members(4))
    gates = gates_with({"GenericWorkload": True})[0]
    assert len(nodes_of(decided(snapshot, gates=gates))) == 4


def test_a_rack_in_use_counts_what_is_free() -> None:
    held = claim("held", request(), status={"allocation": {"devices": {"results": [HELD]}}})
    snapshot = snapshot_of(*trays(a=3, b=3), held, group(3, RACK), *members(3))
    assert nodes_of(decided(snapshot)) == ["b0", "b1", "b2"]


HELD = {"request": "gpu", "driver": "gpu.example.com", "pool": "a1", "device": "gpu-0"}


def test_more_than_the_minimum_where_a_rack_takes_more() -> None:
    snapshot = snapshot_of(*trays(a=2, b=3), group(2, RACK), *members(4))
    decision = decided(snapshot)
    assert nodes_of(decision) == ["b0", "b1", "b2"]
    assert [one.pod[1] for one in decision.refused] == ["p3"]


def test_members_that_come_later_join_those_that_run() -> None:
    running = pod("r", schedulingGroup={"podGroupName": "g"}, nodeName="b2")
    snapshot = snapshot_of(*trays(a=2, b=3), running, group(2, RACK), *members(1))
    assert nodes_of(decided(snapshot)) == ["b0"]


def test_members_that_run_in_two_racks_leave_no_rack_for_all() -> None:
    running = [pod(f"r{i}", schedulingGroup={"podGroupName": "g"}, nodeName=f"{rack}0") for i, rack in enumerate("ab")]
    decision = decided(snapshot_of(*trays(a=2, b=3), *running, group(4, RACK), *members(2)))
    assert "needs one example.com/rack for all pods, and no node offers that" in message(decision.refused[0])


def test_a_preferred_level_that_has_no_room_gives_way_to_the_next_and_then_to_any_place() -> None:
    both = {TOPOLOGY_PREFERRED: f"{RACK}, {BLOCK}"}
    at = trays(a=3, b=2, c=4)
    assert nodes_of(decided(snapshot_of(*at, group(4, **both), *members(4)))) == ["c0", "c1", "c2", "c3"]
    assert {name[0] for name in nodes_of(decided(snapshot_of(*at, group(5, **both), *members(5))))} == {"a", "b"}
    assert len(nodes_of(decided(snapshot_of(*at, group(9, **both), *members(9))))) == 9


def test_a_preferred_rack_within_a_required_block() -> None:
    spec = {TOPOLOGY_REQUIRED: BLOCK, TOPOLOGY_PREFERRED: RACK}
    at = trays(a=3, b=2, c=2)
    assert {name[0] for name in nodes_of(decided(snapshot_of(*at, group(3, **spec), *members(3))))} == {"a"}
    assert {name[0] for name in nodes_of(decided(snapshot_of(*at, group(5, **spec), *members(5))))} == {"a", "b"}
    assert not decided(snapshot_of(*at, group(6, **spec), *members(6))).placements


WORKLOADS: dict[str, dict[str, str]] = {
    "JobSet": {"jobset.sigs.k8s.io/jobset-name": "w", "batch.kubernetes.io/job-name": "w-0"},
    "LeaderWorkerSet": {"leaderworkerset.sigs.k8s.io/name": "w", "leaderworkerset.sigs.k8s.io/group-index": "0"},
    "Kubeflow": {"training.kubeflow.org/job-name": "w"},
    "KubeRay": {"ray.io/cluster": "w"},
    "Job": {"batch.kubernetes.io/job-name": "w"},
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_workload_that_says_so_is_a_gang_without_a_pod_group(kind: str) -> None:
    meta = {"labels": WORKLOADS[kind], "annotations": {GANG_MIN_COUNT: "3", TOPOLOGY_REQUIRED: RACK}}
    made = [obj for i in range(3) for obj in (claim(f"c{i}", request()), pod(f"p{i}", f"c{i}", metadata=meta))]
    no_gates = gates_with({})[0]
    assert nodes_of(decided(snapshot_of(*trays(a=2, b=3), *made), gates=no_gates)) == ["b0", "b1", "b2"]
    assert not decided(snapshot_of(*trays(a=2, b=2), *made), gates=no_gates).effects
    early = decided(snapshot_of(*trays(b=3), *made[:4]), gates=no_gates)
    assert isinstance(early.refused[0].reasons[0], refusal.PodGroupTooSmall)
    one_by_one = [pod("p0", "c0", metadata={"labels": WORKLOADS[kind]}), claim("c0", request())]
    assert nodes_of(decided(snapshot_of(*trays(a=1), *one_by_one), gates=no_gates)) == ["a0"]


def test_groups_of_a_leader_worker_set_are_gangs_of_their_own() -> None:
    made = []
    for index in range(4):
        labels = {
            "leaderworkerset.sigs.k8s.io/name": "w",
            "leaderworkerset.sigs.k8s.io/group-index": str(index // 2),
        }
        meta = {"labels": labels, "annotations": {GANG_MIN_COUNT: "2"}}
        made += [claim(f"c{index}", request()), pod(f"p{index}", f"c{index}", metadata=meta)]
    assert nodes_of(decided(snapshot_of(*trays(a=3), *made), "p2")) == ["a0", "a1"]


@pytest.mark.parametrize("seed", range(200))
def test_a_gang_is_refused_only_where_no_rack_takes_it(seed: int) -> None:
    """Brute force: pods of 1 to 3 devices in racks of nodes with 1 to 4."""
    draw = random.Random(seed)
    racks = {rack: [draw.randint(1, 4) for _ in range(draw.randint(1, 3))] for rack in "abc"}
    needs = [draw.randint(1, 3) for _ in range(draw.randint(2, 3))]
    made = [device_class(), group(len(needs), RACK)]
    for rack, sizes in racks.items():
        for index, size in enumerate(sizes):
            made += [node(f"{rack}{index}", labels={RACK: rack}), gpus(f"{rack}{index}", size)]
    for index, need in enumerate(needs):
        made += [
            claim(f"c{index}", request(count=need)),
            pod(f"p{index}", f"c{index}", schedulingGroup={"podGroupName": "g"}),
        ]
    decision = decided(snapshot_of(*made))
    possible = any(_packs(sizes, needs) for sizes in racks.values())
    assert bool(decision.placements) == possible, (racks, needs)
    assert len({name[0] for name in nodes_of(decision)}) == bool(decision.placements)


def _packs(sizes: list[int], needs: list[int]) -> bool:
    for places in itertools.product(range(len(sizes)), repeat=len(needs)):
        if all(sum(n for n, p in zip(needs, places, strict=True) if p == i) <= s for i, s in enumerate(sizes)):
            return True
    return False
