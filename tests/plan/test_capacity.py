"""Capacity against arithmetic and exhaustive search on small clusters, and what is said about quotas and links."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from dragoman.plan.capacity import Capacity, capacity
from dragoman.plan.demand import demand_of
from dragoman.runtime.entropy import Entropy
from dragoman.schedule.units import SchedulingContext
from dragoman.testing.build import (
    DRIVER,
    claim,
    device,
    device_class,
    gpus,
    manifest,
    node,
    pod,
    pool,
    request,
    snapshot_of,
    template,
    typed,
)
from dragoman.whatif.cluster import bring
from dragoman.whatif.settle import settled
from tests.plan.cases import SEEDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def context() -> SchedulingContext:
    return SchedulingContext(new_id=Entropy().uuid4)


def asked(world: list[dict[str, Any]], *wanted: dict[str, Any], **rest: Any) -> Capacity:
    cluster = settled(bring(snapshot_of(*world), NOW))
    demand = demand_of([(made["kind"], typed(made)) for made in wanted])
    return capacity(cluster, demand, context(), **rest)


def running(name: str, where: str, indices: list[int], cpu: int) -> list[dict[str, Any]]:
    """A pod that holds devices of a node by a claim of its own."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": where, "device": f"gpu-{index}"} for index in indices]
    consumer = {"resource": "pods", "name": name, "uid": f"uid-{name}"}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [consumer]}
    made = [pod(name, *([f"c-{name}"] if indices else []), cpu=str(cpu), nodeName=where, status={"phase": "Running"})]
    if indices:
        made.append(claim(f"c-{name}", count=len(indices), status=status))
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_small_clusters_against_exhaustive_search(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [(draw.randint(2, 8), draw.randint(0, 4)) for _ in range(draw.randint(1, 3))]
    free = [list(one) for one in nodes]
    there: list[tuple[int, int]] = []
    world: list[dict[str, Any]] = [device_class()]
    for index, (cpu, devices) in enumerate(nodes):
        world += [node(f"n{index}", cpu=str(cpu), memory="8Gi", pods="110"), gpus(f"n{index}", devices)]
    for number in range(draw.randint(0, 5)):
        where, cpu, devices = draw.randrange(len(nodes)), draw.randint(0, 3), draw.randint(0, 2)
        if cpu <= free[where][0] and devices <= free[where][1]:
            first = nodes[where][1] - free[where][1]
            world += running(f"r{number}", f"n{where}", list(range(first, first + devices)), cpu)
            free[where][0] -= cpu
            free[where][1] -= devices
            there.append((cpu, devices))
    cpu, devices = draw.randint(1, 3), draw.randint(1, 3)

    world.append(template("t", count=devices))
    found = asked(world, pod("p", templates=["t"], cpu=str(cpu)))

    assert found.fits == fitting(free, cpu, devices)
    best = rearranged(tuple(sorted(there, reverse=True)), tuple(nodes), cpu, devices)
    undone = found.defragmented
    assert found.fits <= undone.at_least <= best
    assert undone.at_most is not None
    assert best <= undone.at_most
    assert found.blocks


def fitting(free: Any, cpu: int, devices: int) -> int:
    return sum(min(left // cpu, units // devices) for left, units in free)


@cache
def rearranged(pods: tuple[tuple[int, int], ...], nodes: tuple[tuple[int, int], ...], cpu: int, devices: int) -> int:
    """The most copies over all ways to place the pods."""
    if not pods:
        return fitting(nodes, cpu, devices)
    (needs, units), rest = pods[0], pods[1:]
    best = -(10**6)
    for index, (left, there) in enumerate(nodes):
        if needs <= left and units <= there:
            after = (*nodes[:index], (left - needs, there - units), *nodes[index + 1 :])
            best = max(best, rearranged(rest, tuple(sorted(after)), cpu, devices))
    return best


def test_what_fragmentation_costs_is_seen() -> None:
    """Two nodes with one free device each: a pod that wants two fits once a running pod moves."""
    world = [device_class(), template("two", count=2)]
    for name in ("a", "b"):
        world += [node(name, cpu="8"), gpus(name, 2), *running(f"r-{name}", name, [0], 1)]
    found = asked(world, pod("p", templates=["two"]))
    assert (found.fits, found.defragmented.at_least, found.defragmented.at_most) == (0, 1, 1)
    assert found.defragmented.moves == 1
    assert [(block.cause, block.device_class, block.nodes) for block in found.blocks] == [("device", DRIVER, 2)]


def test_a_quota_blocks_however_pods_are_placed() -> None:
    hard = {f"{DRIVER}.deviceclass.resource.k8s.io/devices": "3"}
    quota = manifest("ResourceQuota", "team", spec={"hard": hard}, status={"hard": hard, "used": {}})
    found = asked([device_class(), node("a"), gpus("a", 8), template("one"), quota], pod("p", templates=["one"]))
    assert (found.fits, found.defragmented.at_most) == (3, 3)
    assert found.blocks[0].cause == "quota"


def test_a_link_blocks() -> None:
    devices = [device(f"gpu-{index}", numa=index % 2) for index in range(4)]
    pair = template("pair", request(count=2))
    pair["spec"]["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/numa"}]
    held = running("r", "a", [0], 1) + running("s", "a", [1], 1)
    world = [device_class(), node("a"), pool("a", devices, node="a"), pair, *held]
    found = asked(world, pod("p", templates=["pair"]))
    assert found.fits == 0
    assert {block.cause for block in found.blocks} == {"link"}
    assert found.defragmented.at_least == 1, "both running pods on one side leave the other one"


def test_gangs_and_jobs_count_whole() -> None:
    world = [device_class(), node("a"), gpus("a", 5), template("one")]
    job = manifest(
        "Job",
        "train",
        spec={"parallelism": 2, "completions": 2, "template": {"spec": pod("x", templates=["one"])["spec"]}},
    )
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    found = asked(world, job)
    assert (found.fits, found.pods, found.largest_gang, found.partly) == (2, 2, 4, 1)
    group = [pod(f"m{n}", templates=["one"], metadata={"labels": {"gang": "g"}}) for n in range(3)]
    found = asked(world, *group)
    assert (found.fits, found.partly) == (1, 0)


def test_a_claim_alone_is_counted_with_a_pod_that_uses_it() -> None:
    found = asked([device_class(), node("a"), gpus("a", 3)], claim("two", count=2))
    assert (found.fits, found.demand) == (1, "ResourceClaim default/two")


def test_stranded_devices_and_the_smallest_change() -> None:
    world = [device_class(), node("a", cpu="8", pods="9"), node("b", cpu="8", pods="9"), gpus("a", 2), template("one")]
    world += running("web", "a", [], 3) + running("batch", "a", [], 5)
    found = asked(world, pod("p", templates=["one"], cpu="2"))
    assert found.fits == 0
    (stranded,) = found.stranded
    assert (stranded.node, stranded.devices, stranded.missing) == ("a", 2, {"cpu": "2"})
    assert (stranded.pod, stranded.moves_to) == ("default/web", "b")


def test_pending_pods_of_the_cluster_come_first() -> None:
    world = [device_class(), node("a"), gpus("a", 3), template("one"), pod("waiting", templates=["one"])]
    found = asked(world, pod("p", templates=["one"]))
    assert (found.fits, found.pending_first, found.still_pending) == (2, 1, 0)
    found = asked(world, pod("p", templates=["one"]), limit=1)
    assert (found.fits, found.limited) == (1, True)
