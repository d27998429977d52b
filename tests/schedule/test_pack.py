"""Under `pack` the policy's rank chooses among nodes, after what the pod prefers; what was placed teaches it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from dragoman.allocate.allocator import AllocatorOptions, Demand, NodeChange, Policy, TaskHistory, TaskType
from dragoman.allocate.task_history import FIRST
from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.schedule.decision import Decision
from dragoman.snapshot.change import Snapshot, apply_all
from dragoman.testing.build import claim, device_class, gpus, node, pod, snapshot_of
from dragoman.whatif.decide import steps
from dragoman.whatif.units import units_of

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GPU = device_class()
CORE, GIB = 10**9, 2**30 * 10**9


def context(policy: str | Policy = "pack", **changes: Any) -> SchedulingContext:
    numbers = count()
    options = AllocatorOptions(policy=policy, **changes)
    return SchedulingContext(new_id=lambda: f"{next(numbers):08d}-0000-4000-8000-000000000000", options=options)


def decided(snapshot: Snapshot, name: str, using: SchedulingContext) -> Decision:
    return decide(snapshot, unit_of(snapshot, snapshot.pods["default", name], using.gates), NOW, using)


def places(snapshot: Snapshot, names: list[str], using: SchedulingContext) -> list[str | None]:
    found: list[str | None] = []
    for name in names:
        decision = decided(snapshot, name, using)
        snapshot = apply_all(snapshot, decision.assumed)
        found += [placement.node for placement in decision.placements] or [None]
    return found


def cluster(*more: Any) -> Snapshot:
    nodes = [node(name, cpu="16", memory="64Gi") for name in ("a", "b")]
    return snapshot_of(*nodes, gpus("a", 4), gpus("b", 4), GPU, *more)


def test_pods_fill_one_node_where_upstream_spreads_them() -> None:
    objects = [thing for i in range(4) for thing in (claim(f"c{i}"), pod(f"p{i}", f"c{i}", cpu="1", memory="1Gi"))]
    names = [f"p{i}" for i in range(4)]
    assert places(cluster(*objects), names, context("first-fit")) == ["a", "b", "a", "b"]
    assert places(cluster(*objects), names, context()) == ["a", "a", "a", "a"]


def test_pods_without_claims_leave_devices_the_cpu_that_they_will_need() -> None:
    nodes = [node("plenty", cpu="32", memory="64Gi"), node("none", cpu="8", memory="64Gi")]
    expected = Demand(((TaskType(1, 1000, 4 * CORE, 16 * GIB), 3),))
    snapshot = snapshot_of(*nodes, gpus("none", 2), gpus("plenty", 2), GPU, pod("p", cpu="4", memory="1Gi"))
    assert places(snapshot, ["p"], context()) == ["none"], "nothing is expected: by name"
    assert places(snapshot, ["p"], context(demand=expected)) == ["plenty"]


def test_pods_without_claims_keep_off_nodes_with_devices() -> None:
    nodes = [node("devices", cpu="8", memory="32Gi"), node("plain", cpu="8", memory="32Gi")]
    snapshot = snapshot_of(*nodes, gpus("devices", 2), GPU, pod("p", cpu="4", memory="1Gi"))
    assert places(snapshot, ["p"], context()) == ["plain"]


def test_what_a_pod_prefers_comes_first() -> None:
    preferred = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]},
                }
            ]
        }
    }
    snapshot = snapshot_of(
        node("full"),
        node("liked", labels={"zone": "x"}),
        gpus("full", 1),
        gpus("liked", 4),
        GPU,
        claim("c"),
        pod("p", "c", affinity=preferred),
        claim("d"),
        pod("q", "d"),
    )
    assert places(snapshot, ["q", "p"], context()) == ["full", "liked"]
    assert places(snapshot, ["p", "q"], context()) == ["liked", "full"]


def test_a_rank_of_ones_own_chooses_the_node() -> None:
    def emptiest(move: NodeChange, demand: Demand) -> tuple[int, ...]:
        return (-move.after.total,)

    objects = [thing for i in range(3) for thing in (claim(f"c{i}"), pod(f"p{i}", f"c{i}"))]
    using = context(Policy("emptiest", rank=emptiest))
    assert places(cluster(*objects), ["p0", "p1", "p2"], using) == ["a", "b", "a"]


def test_what_was_placed_is_expected_again() -> None:
    snapshot = cluster(claim("c"), pod("p", "c", cpu="2", memory="1Gi"), pod("plain", cpu="1"))
    using, recent = context(), TaskHistory()
    placements = decided(snapshot, "p", using).placements
    assert [placement.kind for placement in placements] == [
        TaskType(1, 1000, 2 * CORE, GIB, frozenset({"gpu.example.com"}))
    ]
    assert [placement.kind for placement in decided(snapshot, "plain", using).placements] == [None]
    assert [placement.kind for placement in decided(snapshot, "p", context("first-fit")).placements] == [None]
    for _ in range(FIRST):
        using.learn(placements, recent)
    assert using.options.demand.kinds == ((placements[0].kind, FIRST),)


def test_a_simulation_learns_and_leaves_the_options_it_was_given() -> None:
    numbers = range(FIRST + 4)
    nodes = [node(f"n{i}", cpu="8", memory="64Gi") for i in range(8)]
    slices = [gpus(f"n{i}", 4) for i in range(8)]
    pods = [thing for i in numbers for thing in (claim(f"c{i}"), pod(f"p{i}", f"c{i}", cpu="1", memory="1Gi"))]
    snapshot = snapshot_of(*nodes, *slices, GPU, *pods)
    using = context()
    order = [("default", f"p{i}") for i in numbers]
    decided_on = steps(snapshot, units_of(snapshot, order), NOW, using)
    assert [verdict.node for step in decided_on for verdict in step.verdicts] == [f"n{i // 4}" for i in numbers]
    assert using.options.demand == Demand()
