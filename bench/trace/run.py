"""How well do placement policies pack the production trace? JSON lines, then a table.

    python bench/trace/run.py [--data FOLDER] [--seeds 10] [--files default,...] [--policies pack,...]

For each file and policy: percent of GPU capacity allocated at the end (mean, standard deviation over the seeds), the
same as a percentage of what the bound allows, seconds of one run. docs/guides/policies.md explains.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from bound import upper_bound
from cluster import Cluster, experiment
from openb import FILES, FOLDER, Machine, NoTraceError, Task, arrivals, machines, tasks
from pack import Pack, PackLearning
from peers import BestFit, Fgd, Random

from dragoman import __version__

POLICIES: dict[str, Any] = {
    "random": Random,
    "best-fit": BestFit,
    "fgd": Fgd,
    "pack": Pack,
    "pack-learning": PackLearning,
}


def one_run(nodes: list[Machine], known: list[Task], make: Any, seed: int) -> tuple[float, float]:
    """(percent allocated, seconds) of a run."""
    start = time.perf_counter()
    cluster = Cluster(nodes)
    rng = np.random.default_rng(seed)
    coming = arrivals(known, cluster.capacity, rng)
    return experiment(cluster, make(cluster, known, rng), coming), time.perf_counter() - start


def bounds(nodes: list[Machine], known: list[Task], seeds: int) -> list[float]:
    """The bound for each seed's arrivals."""
    capacity = Cluster(nodes).capacity
    return [upper_bound(nodes, arrivals(known, capacity, np.random.default_rng(seed))) for seed in range(seeds)]


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the openb trace")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--files", default=",".join(FILES))
    parser.add_argument("--policies", default=",".join(POLICIES))
    args = parser.parse_args()
    machine = {"python": platform.python_version(), "machine": platform.machine(), "dragoman": __version__}
    rows: dict[str, list[str]] = {}
    try:
        nodes = machines(args.data)
        for name in args.files.split(","):
            known = tasks(args.data, name)
            limits = bounds(nodes, known, args.seeds)
            rows.setdefault("bound", []).append(f"{statistics.mean(limits):.2f}")
            for policy in args.policies.split(","):
                runs = [one_run(nodes, known, POLICIES[policy], seed) for seed in range(args.seeds)]
                found = [percent for percent, _ in runs]
                mean, spread = statistics.mean(found), statistics.stdev(found) if len(found) > 1 else 0.0
                of_bound = statistics.mean(100 * percent / limit for percent, limit in zip(found, limits, strict=True))
                line = {
                    "bench": "trace",
                    "file": name,
                    "policy": policy,
                    "mean": round(mean, 2),
                    "spread": round(spread, 2),
                    "of_bound": round(of_bound, 2),
                    "runs": [round(percent, 2) for percent in found],
                    "seconds": round(statistics.mean(seconds for _, seconds in runs), 1),
                    **machine,
                }
                print(json.dumps(line), flush=True)
                rows.setdefault(policy, []).append(f"{mean:.2f} ± {spread:.2f} ({of_bound:.1f} %)")
    except NoTraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"| policy | {' | '.join(args.files.split(','))} |")
    print("|---|" + "---|" * len(args.files.split(",")))
    for policy, cells in rows.items():
        print(f"| {policy} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
