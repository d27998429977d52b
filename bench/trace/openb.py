"""What does the trace hold, and which tasks arrive in one experiment? Reads files, draws arrivals, decides nothing.

The files are not in this repository: the experiment wants a folder (DRAGOMAN_OPENB, or ./openb) with
`openb_node_list_gpu_node.csv` and `openb_pod_list_NAME.csv` (published with "Beware of Fragmentation", USENIX ATC 2023,
Apache-2.0).
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

FILES = ("default", "gpuspec33", "gpushare100", "multigpu50")
FOLDER = Path(os.environ.get("DRAGOMAN_OPENB", "openb"))
"""Where the files are, unless --data says otherwise."""
WHOLE = 1000
OVERLOAD = 1.3
"""GPU demand of all arrivals over the cluster's GPUs."""


class NoTraceError(Exception):
    """The trace is not where it was looked for."""


class Task(NamedTuple):
    """cpu in thousandths, memory in MiB, `devices` GPUs with `share` thousandths of each; models: empty is any."""

    cpu: int
    memory: int
    devices: int
    share: int
    models: frozenset[str]

    @property
    def demand(self) -> int:
        """Thousandths of GPUs."""
        return self.devices * self.share


class Machine(NamedTuple):
    """A node: cpu in thousandths, memory in MiB, number and model of its GPUs."""

    cpu: int
    memory: int
    devices: int
    model: str


def _rows(folder: Path, name: str) -> list[dict[str, str]]:
    path = folder / name
    if not path.is_file():
        raise NoTraceError(f"{path} is not there: give the folder of the openb trace (--data FOLDER)")
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def machines(folder: Path) -> list[Machine]:
    """The GPU nodes."""
    rows = _rows(folder, "openb_node_list_gpu_node.csv")
    return [Machine(int(r["cpu_milli"]), int(r["memory_mib"]), int(r["gpu"]), r["model"]) for r in rows]


def tasks(folder: Path, name: str) -> list[Task]:
    """The tasks of a file, in its order."""
    return [
        Task(
            int(r["cpu_milli"]),
            int(r["memory_mib"]),
            int(r["num_gpu"]),
            int(r["gpu_milli"]) if int(r["num_gpu"]) else 0,
            frozenset(filter(None, (r.get("gpu_spec") or "").split("|"))),
        )
        for r in _rows(folder, f"openb_pod_list_{name}.csv")
    ]


def arrivals(known: list[Task], capacity: int, rng: np.random.Generator) -> list[Task]:
    """Tasks of the file until their GPU demand is 130 % of capacity (added or dropped at random), shuffled."""
    have = sum(task.demand for task in known)
    wanted = OVERLOAD * capacity
    found = list(known)
    if have > wanted:
        dropped: set[int] = set()
        for index in rng.permutation(len(known)):
            if have <= wanted:
                break
            have -= known[index].demand
            dropped.add(int(index))
        found = [task for index, task in enumerate(known) if index not in dropped]
    while have < wanted:
        task = known[rng.integers(len(known))]
        found.append(task)
        have += task.demand
    return [found[index] for index in rng.permutation(len(found))]
