"""How long do answers take on a large cluster that is loaded already? `explain` of impossible claims, and `devices`.

    python bench/explain.py [NODES]        JSON lines: what, seconds (best of three), hints tried and untried

Nodes have 8 GPUs each. alike: all nodes half held; mixed: five models, no two neighbours with the same free devices.
"""

from __future__ import annotations

import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from dragoman.explain import report as say
from dragoman.explain.explanation import explain_pod
from dragoman.inspect.inventory import inventory
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import DRIVER, claim, device, device_class, node, pod, pool, snapshot_of
from dragoman.whatif.decide import steps
from dragoman.whatif.units import units_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXPLAIN_S = 0.7


def world(nodes: int, *, mixed: bool) -> Snapshot:
    """A loaded cluster with three pods that cannot be placed."""
    made: list[dict[str, Any]] = [device_class(), device_class("other.example.com", driver="other.example.com")]
    for index in range(nodes):
        name = f"node-{index:05d}"
        model = f"model-{index % 5}" if mixed else "model-0"
        gpus = [device(f"gpu-{i}", model=model, uuid=f"GPU-{index:08d}-{i:08d}", numa=i // 4) for i in range(8)]
        made += [node(name, cpu="64", memory="512Gi", pods="110"), pool(name, gpus, node=name)]
        taken = [i for i in range(8) if (index >> i) & 1] if mixed else [0, 1, 2, 3]
        for i in taken:
            made += _user(name, i)
    made += [
        *(claim("nine", count=9), pod("nine", "nine")),
        *(claim("none", select=f"device.attributes['{DRIVER}'].model == 'model-9'"), pod("none", "none")),
        *(
            claim("numa", count=5, constraints=[{"matchAttribute": f"{DRIVER}/numa"}]),
            pod("numa", "numa"),
        ),
    ]
    return snapshot_of(*made)


def _user(name: str, i: int) -> list[dict[str, Any]]:
    user = f"{name}-{i}"
    result = {"request": "gpu", "driver": DRIVER, "pool": name, "device": f"gpu-{i}"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-{user}"}],
    }
    return [claim(user, status=status), pod(user, user, cpu="1", nodeName=name, status={"phase": "Running"})]


def explain(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """The whole answer for one pod, as the command gives it."""
    context = SchedulingContext(new_id=lambda: "")
    (step,) = steps(snapshot, units_of(snapshot, [("default", name)]), NOW, context)
    end = time.monotonic() + EXPLAIN_S
    answer = explain_pod(step, step.verdicts[0], NOW, context, lambda: time.monotonic() >= end)
    lines = say.reason_lines(answer)
    return {
        "lines": len(lines),
        "hints": len(answer.hints.found),
        "tried": answer.hints.tried,
        "untried": answer.hints.untried,
    }


def measured(what: str, nodes: int, run: Callable[[], dict[str, Any]]) -> None:
    """Best of three."""
    best, reported = 1e9, {}
    for _ in range(3):
        gc.collect()
        start = time.perf_counter()
        reported = run()
        best = min(best, time.perf_counter() - start)
    line = {"what": what, "nodes": nodes, "seconds": round(best, 4), **reported, "python": platform.python_version()}
    print(json.dumps(line), flush=True)


def main() -> None:
    """Measures both worlds."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    for mixed in (False, True):
        snapshot = world(nodes, mixed=mixed)
        kind = "mixed" if mixed else "alike"
        for name in ("nine", "none", "numa"):
            measured(f"explain {name}, {kind}", nodes, lambda s=snapshot, n=name: explain(s, n))  # type: ignore[misc]
        for by in ("class", "node", "model"):
            measured(
                f"devices by {by}, {kind}",
                nodes,
                lambda s=snapshot, b=by: {"rows": len(inventory(s, (b,), NOW).rows)},  # type: ignore[misc]
            )


if __name__ == "__main__":
    main()
