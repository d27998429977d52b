"""Dragoman's policy `pack` on arrays: `dragoman.allocate.fragmentation` for many nodes at once.

Same integers as `worth` and `fullness` (tests/bench/test_trace.py compares them); float64 holds them exactly.
Pack knows the mix of the file in advance; PackLearning knows nothing and counts the tasks that it has placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from cluster import Cluster, Floats, Ints
from openb import WHOLE, Task

from dragoman.allocate.fragmentation import MIX, Demand, TaskType, mix_of
from dragoman.allocate.task_history import TaskHistory


def kind_of(task: Task) -> TaskType:
    """The task in terms of the policy."""
    return TaskType(task.devices, task.share, task.cpu, task.memory, task.models)


def demand_of(tasks: Sequence[Task]) -> Demand:
    """The histogram of tasks."""
    return Demand(tuple((kind_of(task), count) for task, count in Counter(tasks).items()))


class Pack:
    """Where the least worth is lost; then the fullest node, then the fullest GPU."""

    age = 0
    lasting = True

    def __init__(self, cluster: Cluster, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        self.cluster = cluster
        self.expect(demand_of(tasks))

    def expect(self, demand: Demand) -> None:
        """From now on these tasks are expected."""
        self.mix = mix_of(demand)
        some = [(kind, count) for kind, count in demand.kinds if kind.devices]
        self.counts = np.array([count for _, count in some], float)
        self.cpu = np.array([kind.cpu for kind, _ in some], np.int64)
        self.memory = np.array([kind.memory for kind, _ in some], np.int64)
        self.devices = np.array([kind.devices for kind, _ in some], np.int64)
        shares = np.array([kind.share for kind, _ in some], np.int64)
        self.steps = np.unique(shares)
        self.step = np.searchsorted(self.steps, shares)
        models = self.cluster.models
        allowed = [[not kind.makes or model in kind.makes for kind, _ in some] for model in models]
        self.allowed = np.array(allowed, bool).reshape(len(models), len(some))[self.cluster.model]

    def best(self, nodes: Ints, task: Task) -> tuple[Floats, Ints]:
        cluster = self.cluster
        gpu, cpu, memory = cluster.gpu[nodes], cluster.cpu[nodes], cluster.memory[nodes]
        serves = gpu[:, :, None] >= self.steps
        holds = gpu[:, :, None] * serves
        serve, hold, total = serves.sum(1), holds.sum(1), gpu.sum(1)
        before = self.worth(nodes, cpu, memory, serve, hold, total)
        cpu, memory, total = cpu - task.cpu, memory - task.memory, total - task.demand
        tie = self.fullness(cpu, total) * TIE
        if task.devices != 1:
            after = self.worth(nodes, cpu, memory, serve - task.devices, hold - task.demand, total)
            return before - after + tie, np.zeros(len(nodes), np.int64)
        chosen = self.device(nodes, task, gpu, serves, holds, serve, hold)
        each = np.arange(len(nodes))
        left = gpu[each, chosen] - task.share
        keeps = left[:, None] >= self.steps
        after = self.worth(
            nodes,
            cpu,
            memory,
            serve - serves[each, chosen] + keeps,
            hold - holds[each, chosen] + left[:, None] * keeps,
            total,
        )
        return before - after + tie, chosen

    def device(self, nodes: Ints, task: Task, gpu: Ints, serves: Ints, holds: Ints, serve: Ints, hold: Ints) -> Ints:
        """Which GPU of each node `rank.pack` weighs least: it sees devices only, neither cpu nor memory."""
        kept = np.full(gpu.shape, -1.0)
        fitting = gpu >= task.share
        for index in range(1, gpu.shape[1]):  # of equal GPUs the first
            fitting[:, index] &= ~(gpu[:, :index] == gpu[:, index : index + 1]).any(1)
        row, index = np.nonzero(fitting)
        left = gpu[row, index] - task.share
        keeps = left[:, None] >= self.steps
        serve = serve[row] - serves[row, index] + keeps
        hold = hold[row] - holds[row, index] + left[:, None] * keeps
        fits = (serve[:, self.step] >= self.devices) & self.allowed[nodes[row]]
        kept[row, index] = np.where(fits, hold[:, self.step], 0) @ self.counts
        return np.asarray((kept * 2 * WHOLE - gpu).argmax(1))

    def worth(self, nodes: Ints, cpu: Ints, memory: Ints, serve: Ints, hold: Ints, total: Ints) -> Floats:
        """`worth.worth` of each node. Last axis of serve and hold: steps of shares."""
        fits = (cpu[:, None] >= self.cpu) & (memory[:, None] >= self.memory) & self.allowed[nodes]
        fits &= serve[:, self.step] >= self.devices
        alone = np.where(fits, hold[:, self.step], 0) @ self.counts
        return np.asarray(alone + MIX * self.mix.tasks * self.fed(cpu, memory, total))

    def fed(self, cpu: Ints, memory: Ints, total: Ints) -> Ints:
        """`worth.fed` of each node."""
        mix = self.mix
        found = total
        if mix.cpu:
            found = np.minimum(found, cpu * mix.size // mix.cpu)
        if mix.memory:
            found = np.minimum(found, memory * mix.size // mix.memory)
        return found

    def fullness(self, cpu: Ints, total: Ints) -> Ints:
        """`worth.fullness` of each node."""
        return total + (cpu * self.mix.size // self.mix.cpu if self.mix.cpu else 0)

    def placed(self, task: Task) -> None:
        pass


TIE = 2.0**-24
"""Losses are integers below 2 ** 28 and fullness is below 2 ** 24, so that this decides among equal losses only."""


class PackLearning(Pack):
    """The same, with nothing known at the start."""

    def __init__(self, cluster: Cluster, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        super().__init__(cluster, (), rng)
        self.recent = TaskHistory()

    def placed(self, task: Task) -> None:
        if task.devices and self.recent.add(kind_of(task)):
            self.expect(self.recent.demand)
            self.age += 1
