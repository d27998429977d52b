"""Drains, upgrades, replaced cards, changed classes, and the fewest restarts against exhaustive search."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from dragoman.plan.change import drained, reclassed, replaced, upgraded
from dragoman.plan.defragment import Defragmentation, defragmentation
from dragoman.plan.demand import demand_of
from dragoman.runtime.entropy import Entropy
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.usage import DeviceId
from dragoman.testing.build import DRIVER, device_class, gpus, node, pod, snapshot_of, template, typed
from dragoman.whatif.cluster import ClusterState, bring
from dragoman.whatif.settle import settled
from tests.plan.cases import SEEDS
from tests.plan.test_capacity import running

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def at_rest(*world: dict[str, Any]) -> ClusterState:
    return settled(bring(snapshot_of(*world), NOW))


def context() -> SchedulingContext:
    return SchedulingContext(new_id=Entropy().uuid4)


def room_for(cluster: ClusterState, wanted: dict[str, Any], **rest: Any) -> Defragmentation:
    return defragmentation(cluster, demand_of([("Pod", typed(wanted))]), context(), **rest)


Loads = tuple[tuple[int, int], ...]


def fewest(nodes: Loads, there: tuple[tuple[int, int, int], ...], wanted: tuple[int, int]) -> int | None:
    """The fewest pods that leave their places so that all of them and the wanted one fit."""
    for size in range(len(there) + 1):
        for chosen in combinations(range(len(there)), size):
            free = [list(one) for one in nodes]
            for index, (at, cpu, devices) in enumerate(there):
                if index not in chosen:
                    free[at][0] -= cpu
                    free[at][1] -= devices
            pods = (wanted, *(there[index][1:] for index in chosen))
            if fit(tuple(sorted(map(tuple, free))), tuple(sorted(pods, reverse=True))):  # type: ignore[arg-type]
                return size
    return None


@cache
def fit(free: Loads, pods: Loads) -> bool:
    if not pods:
        return True
    (cpu, devices), rest = pods[0], pods[1:]
    return any(
        cpu <= left
        and devices <= there
        and fit(tuple(sorted((*free[:at], (left - cpu, there - devices), *free[at + 1 :]))), rest)
        for at, (left, there) in enumerate(free)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_fewest_restarts_against_exhaustive_search(seed: int) -> None:
    draw = random.Random(seed)
    nodes = tuple((draw.randint(3, 8), draw.randint(1, 4)) for _ in range(draw.randint(2, 3)))
    free = [list(one) for one in nodes]
    there: list[tuple[int, int, int]] = []
    world = [device_class()]
    for index, (cpu, devices) in enumerate(nodes):
        world += [node(f"n{index}", cpu=str(cpu), memory="8Gi", pods="110"), gpus(f"n{index}", devices)]
    for number in range(draw.randint(2, 5)):
        at, cpu, devices = draw.randrange(len(nodes)), draw.randint(1, 3), draw.randint(0, 2)
        if cpu <= free[at][0] and devices <= free[at][1]:
            first = nodes[at][1] - free[at][1]
            world += running(f"r{number}", f"n{at}", list(range(first, first + devices)), cpu)
            free[at][0] -= cpu
            free[at][1] -= devices
            there.append((at, cpu, devices))
    cpu, devices = draw.randint(1, 4), draw.randint(1, 4)
    cluster = at_rest(*world, template("t", count=devices))

    found = room_for(cluster, pod("p", templates=["t"], cpu=str(cpu)), restarts_max=5)

    best = fewest(nodes, tuple(there), (cpu, devices))
    if best is None:
        assert not found.found
    elif found.found:
        assert found.restarts >= best
        assert found.restarts == len(found.moves)
    if best in (0, 1):
        assert found.restarts == best, "one pod alone is placed wherever it fits"


def test_a_drain_moves_what_it_can_and_says_what_stays_pending() -> None:
    daemon = pod("agent", nodeName="a", metadata={"ownerReferences": [owner("DaemonSet")]})
    world = [device_class(), node("a"), node("b"), gpus("a", 2), gpus("b", 1), daemon]
    world += running("x", "a", [0], 1) + running("y", "a", [1], 1)
    plan = drained(at_rest(*world), ["a"], context(), "drain a")
    cordon, step = plan.steps
    assert cordon.action == "cordon a"
    assert [(move.name, move.to) for move in step.moves] == [("x", "b"), ("y", "")]
    assert (plan.pending, step.staying) == (("default/y",), 1)
    assert step.unmanaged == ("default/x", "default/y")


def owner(kind: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "uid-o", "controller": True}


def test_all_nodes_of_a_drain_are_closed_before_the_first_is_emptied() -> None:
    world = [device_class(), node("a"), node("b"), node("c"), gpus("a", 1), gpus("b", 1), gpus("c", 1)]
    plan = drained(at_rest(*world, *running("x", "a", [0], 1)), ["a", "b"], context(), "drain")
    assert [move.to for step in plan.steps for move in step.moves] == ["c"]


def test_an_upgrade_gives_each_node_back_before_the_next() -> None:
    world = [device_class(), node("a"), node("b"), gpus("a", 1), gpus("b", 1), *running("x", "a", [0], 1)]
    plan = upgraded(at_rest(*world), ["a", "b"], context(), "upgrade")
    assert [[(m.node, m.to) for m in step.moves] for step in plan.steps] == [[], [("a", "b")]]
    assert plan.pending == ()
    full = upgraded(at_rest(*world, *running("z", "b", [0], 1)), ["a"], context(), "upgrade")
    assert full.steps[0].pending == ("default/x",)
    assert full.pending == (), "it comes back to its node"


def test_the_holders_of_a_card_get_other_devices() -> None:
    world = [device_class(), node("a"), gpus("a", 2), *running("x", "a", [0], 1)]
    plan = replaced(at_rest(*world), DeviceId(DRIVER, "a", "gpu-0"), context(), "replace")
    (move,) = plan.steps[1].moves
    assert (move.devices, move.to_devices) == ((f"{DRIVER}/a/gpu-0",), (f"{DRIVER}/a/gpu-1",))


def test_devices_that_a_class_gains_and_loses() -> None:
    world = [device_class(), node("a"), gpus("a", 3), *running("x", "a", [0, 1], 1)]
    expression = f"device.attributes['{DRIVER}'].index >= 1"
    narrow = typed(device_class(selectors=[{"cel": {"expression": expression}}]))
    plan = reclassed(at_rest(*world), narrow, "class")
    assert (plan.gained, plan.lost, plan.affected) == ((), (f"{DRIVER}/a/gpu-0",), ("default/c-x",))


def test_large_clusters_are_not_called_fewest() -> None:
    world = [device_class(), template("t", count=2), node("a"), node("b"), gpus("a", 4), gpus("b", 4)]
    world += [part for i in range(3) for name in "ab" for part in running(f"{name}{i}", name, [i], 1)]
    cluster = at_rest(*world)
    assert room_for(cluster, pod("p", templates=["t"])).fewest
    found = room_for(cluster, pod("p", templates=["t"]), tries_max=3)
    assert found.found
    impossible = room_for(cluster, pod("q", templates=["t"], cpu="1", nodeSelector={"no": "such"}), restarts_max=2)
    assert (impossible.found, impossible.fewest) == (False, False)
