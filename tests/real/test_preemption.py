"""Does kube-scheduler displace the same pods? Random small cases, each with nodes and pods of its own."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from dragoman.api import codec
from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.snapshot.change import Put, Snapshot, apply
from tests.real.conftest import StartCluster

pytestmark = pytest.mark.slow
Object = dict[str, Any]
CASES = 40
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def case(number: int) -> tuple[list[Object], Object, list[Object]]:
    """What is there, who comes, and the status of what is there."""
    draw = random.Random(number)
    label = {"case": f"c{number}"}
    there: list[Object] = []
    status: list[Object] = []
    starts = draw.sample(range(3600), 12)
    for node in range(draw.choice([1, 2, 3])):
        name = f"c{number}-n{node}"
        ready = [{"type": "Ready", "status": "True"}]
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": label}}
        there.append(made)
        status.append({**made, "status": {"allocatable": allocatable, "capacity": allocatable, "conditions": ready}})
        for index in range(4):
            pod = f"{name}-p{index}"
            minute, second = divmod(starts.pop(), 60)
            app = draw.choice(["web", "db", "other"])
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": pod, "namespace": "default", "labels": {**label, "app": app}},
                "spec": {
                    "nodeName": name,
                    "priorityClassName": f"p{draw.choice([1, 2, 3, 50])}",
                    "containers": [_container("1")],
                },
            }
            there.append(body)
            start = f"2025-01-01T00:{minute:02}:{second:02}Z"
            status.append(
                {k: body[k] for k in ("apiVersion", "kind", "metadata")}
                | {"status": {"phase": "Running", "startTime": start}}
            )
    if draw.random() < 0.7:
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"c{number}", "namespace": "default"},
        }
        selector = {"matchLabels": {**label, "app": "db"}}
        there.append({**budget, "spec": {"minAvailable": 1, "selector": selector}})
        status.append(
            {
                **budget,
                "status": {"disruptionsAllowed": draw.choice([0, 1]), "observedGeneration": 1}
                | {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            }
        )
    comes = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"c{number}-comes", "namespace": "default"},
        "spec": {
            "priorityClassName": draw.choice(["p10", "p10", "p100"]),
            "nodeSelector": label,
            "tolerations": [{"operator": "Exists"}],  # nobody takes the taint not-ready of new nodes away
            "containers": [_container(draw.choice(["1", "2", "3"]))],
        },
    }
    return there, comes, status


def _container(cpu: str) -> Object:
    return {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}


def test_kube_scheduler_displaces_the_same_pods(start: StartCluster) -> None:
    cluster = start(scheduler="kube")
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"p{v}"}, "value": v}
        for v in (1, 2, 3, 10, 50, 100)
    ]
    cases = [case(number) for number in range(CASES)]
    cluster.apply(*classes, *(obj for there, _, _ in cases for obj in there))
    listed = {"apiVersion": "v1", "kind": "List", "items": [obj for _, _, status in cases for obj in status]}
    cluster.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--subresource=status", "-f", "-"), stdin=json.dumps(listed)
    )
    kinds = ("Node", "Pod", "PriorityClass", "PodDisruptionBudget")
    found = [(kind, codec.decode(codec.TYPES[kind], obj)) for kind in kinds for obj in cluster.all(kind)]
    snapshot = Snapshot.from_objects(found)
    cluster.apply(*(comes for _, comes, _ in cases))
    names = [comes["metadata"]["name"] for _, comes, _ in cases]

    def decided() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in cluster.all("Pod", "default")}
        return all(
            pods[name]["spec"].get("nodeName")
            or any(c["type"] == "PodScheduled" for c in pods[name]["status"].get("conditions") or [])
            for name in names
        )

    cluster.until(decided, "every pod to be decided", 60)
    pods = {pod["metadata"]["name"]: pod for pod in cluster.all("Pod", "default")}
    ours = {name: _ours(snapshot, codec.decode(codec.TYPES["Pod"], pods[name] | {"status": {}})) for name in names}

    def ending() -> dict[str, list[str]]:
        gone = [p["metadata"]["name"] for p in cluster.all("Pod", "default") if "deletionTimestamp" in p["metadata"]]
        return {name: sorted(n for n in gone if n.startswith(name.replace("comes", "n"))) for name in names}

    with suppress(AssertionError):  # victims are deleted a little later
        cluster.until(lambda: ending() == ours, "the same victims", 20)
    theirs = ending()
    assert ours == theirs
    assert sum(bool(victims) for victims in theirs.values()) > CASES // 3


def _ours(snapshot: Snapshot, pod: Any) -> list[str]:
    numbers = count()
    context = SchedulingContext(new_id=lambda: str(next(numbers)), preemption="nodes")
    bare = apply(snapshot, Put("Pod", pod))
    decision = decide(bare, unit_of(bare, pod, context.gates), NOW, context)
    return sorted(victim.pod[1] for victim in decision.preemption.victims) if decision.preemption else []
