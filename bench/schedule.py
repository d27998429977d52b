"""Scheduling in process: decide and assume, one claim a pod. Prints JSON lines: pods per second.

python bench/schedule.py [NODES ...]        # default: 500 5000
"""

from __future__ import annotations

import json
import platform
import sys
import time
from datetime import UTC, datetime
from itertools import count
from typing import Any

from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide
from dragoman.snapshot.change import Snapshot, apply_all
from dragoman.testing.build import claim, device_class, gpus, node, pod, typed

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def equivalent(nodes: int, pods: int) -> list[dict[str, Any]]:
    names = [f"node-{i:05d}" for i in range(nodes)]
    return [
        device_class(),
        *[node(name, cpu="64", memory="512Gi", pods="110") for name in names],
        *[gpus(name, 8, model="A") for name in names],
        *[claim(f"c{i}") for i in range(pods)],
        *[pod(f"p{i}", f"c{i}") for i in range(pods)],
    ]


def mixed(nodes: int, pods: int) -> list[dict[str, Any]]:
    """Five models of GPU, selectors on them, cpu and memory asked for."""
    names = [f"node-{i:05d}" for i in range(nodes)]
    chosen = [f"device.attributes['gpu.example.com'].model == 'M{i}'" for i in range(5)]
    return [
        device_class(),
        *[node(name, cpu="64", memory="512Gi", pods="110") for name in names],
        *[gpus(name, 8, model=f"M{i % 5}") for i, name in enumerate(names)],
        *[claim(f"c{i}", select=chosen[i % 5]) for i in range(pods)],
        *[pod(f"p{i}", f"c{i}", cpu=str(1 + i % 4), memory=f"{1 + i % 3}Gi") for i in range(pods)],
    ]


def place_all(objects: list[dict[str, Any]], pods: int) -> tuple[float, float, int]:
    """CPU seconds (of one thread) for the first decision, for all of them, and how many were placed."""
    numbers = count()
    snapshot = Snapshot.from_objects([(made["kind"], typed(made)) for made in objects])
    context = SchedulingContext(new_id=lambda: f"{next(numbers):08d}-0000-4000-8000-000000000000")
    placed = 0
    first = 0.0
    began = time.process_time()
    for i in range(pods):
        key = ("default", f"p{i}")
        decision = decide(snapshot, SchedulingUnit(("Pod", *key), (key,)), NOW, context)
        placed += bool(decision.placements)
        after = apply_all(snapshot, decision.assumed)
        snapshot = after
        if not i:
            first = time.process_time() - began
    return first, time.process_time() - began, placed


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or [500, 5000]
    for name, make in (("alike", equivalent), ("mixed", mixed)):
        for nodes in sizes:
            pods = min(nodes * 8, 2000)
            first, seconds, placed = place_all(make(nodes, pods), pods)
            assert placed == pods, f"{placed} of {pods} placed"
            line = {"bench": f"schedule-{name}", "nodes": nodes, "pods": pods, "first_ms": round(first * 1e3, 2)}
            line |= {"pods_per_s": round(pods / seconds), "python": platform.python_version()}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
