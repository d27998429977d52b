"""The experiment on the production trace judges what Dragoman's scheduler does, on a small cluster of our own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bound import upper_bound
from cluster import Cluster, experiment
from openb import FOLDER, WHOLE, Machine, Task, arrivals, machines, tasks
from pack import Pack, PackLearning, demand_of, kind_of
from peers import BestFit, Fgd, Random

from dragoman.allocate.allocator import AllocatorOptions, TaskHistory
from dragoman.allocate.fragmentation import FreeResources, expected_use, fullness
from dragoman.api.codec import decode
from dragoman.api.core import Node, Pod
from dragoman.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.snapshot.change import Put, Snapshot, apply, apply_all

RUN = Path(__file__).parents[2] / "bench" / "trace" / "run.py"
ANY: frozenset[str] = frozenset()
NODES = [
    *[Machine(96_000, 393_216, 8, "A")] * 3,
    *[Machine(16_000, 122_880, 2, "B")] * 4,
    *[Machine(104_000, 524_288, 2, "C")] * 3,
]
KNOWN = [
    *[Task(11_400, 48_128, 1, WHOLE, ANY)] * 6,
    *[Task(8_000, 30_517, 1, 470, ANY)] * 4,
    *[Task(11_908, 47_104, 1, 650, ANY)] * 2,
    *[Task(3_152, 5_600, 1, 320, ANY)] * 3,
    *[Task(3_152, 5_600, 1, 810, ANY)] * 3,
    Task(18_000, 65_536, 2, WHOLE, ANY),
    Task(64_000, 262_144, 8, WHOLE, ANY),
    *[Task(8_000, 16_384, 0, 0, ANY)] * 3,
]


def coming(seed: int, known: list[Task] = KNOWN) -> list[Task]:
    return arrivals(known, Cluster(NODES).capacity, np.random.default_rng(seed))


def room(cluster: Cluster, node: int) -> FreeResources:
    make = cluster.models[cluster.model[node]]
    left = tuple(sorted((make, int(free)) for free in cluster.gpu[node] if free))
    return FreeResources(left, int(cluster.cpu[node]), int(cluster.memory[node]))


@pytest.mark.parametrize("seed", range(3))
def test_scores_on_arrays_are_those_of_the_policy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    choosy = [task._replace(models=frozenset({"A", "C"})) if rng.random() < 0.3 else task for task in KNOWN]
    demand = demand_of(choosy)
    cluster = Cluster(NODES)
    for node in range(cluster.size):
        cluster.cpu[node] -= rng.integers(cluster.cpu[node])
        cluster.memory[node] -= rng.integers(cluster.memory[node] // 2)
        taken = rng.choice([0, 320, 470, 810, WHOLE], cluster.gpu.shape[1])
        cluster.gpu[node] = np.maximum(cluster.gpu[node] - taken, 0)
    policy = Pack(cluster, choosy, rng)
    compared = 0
    for task in dict.fromkeys(KNOWN):
        nodes = np.flatnonzero(cluster.fits(task, np.arange(cluster.size)))
        if not len(nodes):
            continue
        scores, devices = policy.best(nodes, task)
        for node, score, device in zip(nodes, scores, devices, strict=True):
            before = room(cluster, node)
            saved = cluster.cpu[node], cluster.memory[node], cluster.gpu[node].copy()
            cluster.take(task, int(node), int(device))
            after = room(cluster, node)
            cluster.cpu[node], cluster.memory[node], cluster.gpu[node] = saved
            lost = expected_use(before, demand) - expected_use(after, demand)
            assert score == lost + fullness(after, demand) * 2.0**-24
            compared += 1
    assert compared > 10


def objects() -> list[tuple[str, Any]]:
    """The cluster with a GPU's share as capacity that several claims consume (KEP-5075)."""
    found: list[tuple[str, Any]] = [("DeviceClass", decode(DeviceClass, {"metadata": {"name": "gpu"}}))]
    for number, machine in enumerate(NODES):
        name = f"n{number:02d}"
        allocatable = {"cpu": f"{machine.cpu}m", "memory": f"{machine.memory}Mi", "pods": "1000"}
        found.append(("Node", decode(Node, {"metadata": {"name": name}, "status": {"allocatable": allocatable}})))
        device = {"allowMultipleAllocations": True, "capacity": {"milli": {"value": str(WHOLE)}}}
        spec = {
            "driver": "gpu.example.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{index}", **device} for index in range(machine.devices)],
        }
        found.append(("ResourceSlice", decode(ResourceSlice, {"metadata": {"name": name}, "spec": spec})))
    return found


def wanting(snapshot: Snapshot, name: str, task: Task) -> tuple[Snapshot, Pod]:
    """The snapshot with a pod and claim for the task."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    requests = {"cpu": f"{task.cpu}m", "memory": f"{task.memory}Mi"}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if task.devices:
        capacity = {"requests": {"milli": str(task.share)}}
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": task.devices}
        body = {"devices": {"requests": [{"name": "r", "exactly": {**exactly, "capacity": capacity}}]}}
        snapshot = apply(
            snapshot, Put("ResourceClaim", decode(ResourceClaim, {"metadata": meta | {"uid": name}, "spec": body}))
        )
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    pod = decode(Pod, {"metadata": meta, "spec": spec})
    return apply(snapshot, Put("Pod", pod)), pod


class Noted(Cluster):
    """Notes where tasks go."""

    def __init__(self) -> None:
        super().__init__(NODES)
        self.notes: list[tuple[Task, int, int]] = []

    def take(self, task: Task, node: int, first: int) -> None:
        super().take(task, node, first)
        self.notes.append((task, node, first))


def test_the_scheduler_places_every_task_where_the_experiment_does() -> None:
    tasks_ = coming(1)
    cluster = Noted()
    allocated = experiment(cluster, PackLearning(cluster, (), np.random.default_rng(0)), tasks_)
    numbers = itertools.count()
    context = SchedulingContext(
        new_id=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}", options=AllocatorOptions(policy="pack")
    )
    recent = TaskHistory()
    snapshot = Snapshot.from_objects(objects())
    placed: list[str] = []
    for number, task in enumerate(tasks_):
        snapshot, pod = wanting(snapshot, f"p{number}", task)
        decision = decide(snapshot, unit_of(snapshot, pod, context.gates), datetime(2026, 1, 1, tzinfo=UTC), context)
        snapshot = apply_all(snapshot, decision.assumed)
        context.learn(decision.placements, recent)
        placed += [placement.node for placement in decision.placements]
    assert placed == [f"n{node:02d}" for _, node, _ in cluster.notes]
    assert recent.demand.kinds, "the demand was told at least once"
    held = sum(holder.consumed["milli"].nanos for holders in snapshot.holders.values() for holder in holders) // 10**9
    assert 100 * held / cluster.capacity == pytest.approx(allocated)


POLICIES = {"random": Random, "best-fit": BestFit, "fgd": Fgd, "pack": Pack, "pack-learning": PackLearning}


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_refuses_a_task_that_fits(name: str) -> None:
    tasks_ = coming(2)
    cluster = Noted()
    rng = np.random.default_rng(0)
    allocated = experiment(cluster, POLICIES[name](cluster, KNOWN, rng), tasks_)
    assert allocated <= upper_bound(NODES, tasks_) + 1e-6
    # Room only shrinks: once a task of a kind is dropped none of its kind is placed, so the notes tell who was.
    again, notes = Cluster(NODES), iter(cluster.notes)
    following = next(notes, None)
    dropped = 0
    for task in tasks_:
        if following is not None and following[0] == task:
            again.take(*following)
            following = next(notes, None)
        else:
            dropped += 1
            assert not (again.fits(task, np.arange(again.size)) & again.allowed(task)).any()
    assert following is None
    assert dropped > 0
    for free in (again.cpu, again.memory, again.gpu):
        assert (free >= 0).all()


def test_arrivals_ask_for_130_percent_of_the_cluster() -> None:
    for known in (KNOWN, KNOWN * 20):
        asked = sum(task.demand for task in coming(3, known))
        assert abs(asked - 1.3 * Cluster(NODES).capacity) <= 8 * WHOLE
        assert set(coming(3, known)) <= set(known)


BOUNDS = {
    "shares of 0.6 cannot pair up": ([Machine(9, 9, 1, "A")] * 2, [Task(1, 1, 1, 600, ANY)] * 5, 60.0),
    "0.6 and 0.4 do": ([Machine(9, 9, 1, "A")] * 2, [Task(1, 1, 1, 600, ANY), Task(1, 1, 1, 400, ANY)] * 2, 100.0),
    "cpu for one and a half": ([Machine(3, 9, 2, "A")], [Task(2, 1, 1, WHOLE, ANY)] * 2, 75.0),
    "two GPUs do not lie on two nodes": ([Machine(9, 9, 1, "A")] * 2, [Task(1, 1, 2, WHOLE, ANY)], 0.0),
    "a model that is not there": ([Machine(9, 9, 1, "A")], [Task(1, 1, 1, WHOLE, frozenset({"B"}))], 0.0),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bound(name: str) -> None:
    nodes, wanted, percent = BOUNDS[name]
    assert upper_bound(nodes, wanted) == pytest.approx(percent, abs=0.1)


@pytest.mark.slow
def test_a_folder_without_the_trace_is_named(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(RUN), "--data", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert ran.stderr == (
        f"error: {tmp_path}/openb_node_list_gpu_node.csv is not there: give the folder of the openb trace "
        "(--data FOLDER)\n"
    )


@pytest.mark.parametrize("seed", range(3))
def test_pack_is_above_fgd_and_fgd_above_best_fit_and_random(seed: int) -> None:
    """The published order on a larger cluster of our own."""
    nodes, known = NODES * 12, KNOWN * 12
    found = {}
    for name in POLICIES:
        cluster, rng = Cluster(nodes), np.random.default_rng(seed)
        sequence = arrivals(known, cluster.capacity, rng)
        found[name] = experiment(cluster, POLICIES[name](cluster, known, rng), sequence)
    assert found["random"] < found["best-fit"] < found["fgd"] < found["pack-learning"]
    assert found["fgd"] < found["pack"]


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason="no openb trace: set DRAGOMAN_OPENB to its folder")
def test_on_the_trace_pack_is_above_fgd_and_best_fit_as_published() -> None:
    nodes, known = machines(FOLDER), tasks(FOLDER, "multigpu50")
    found = {}
    for name in ("best-fit", "fgd", "pack-learning"):
        cluster = Cluster(nodes)
        rng = np.random.default_rng(0)
        sequence = arrivals(known, cluster.capacity, rng)
        found[name] = experiment(cluster, POLICIES[name](cluster, known, rng), sequence)
    assert found["best-fit"] == pytest.approx(95.74, abs=0.5)
    assert found["best-fit"] < found["fgd"] < found["pack-learning"]


def test_kinds_are_the_tasks() -> None:
    kind = kind_of(Task(1, 2, 3, 4, frozenset({"A"})))
    assert (kind.cpu, kind.memory, kind.devices, kind.share, kind.makes) == (1, 2, 3, 4, {"A"})
