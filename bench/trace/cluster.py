"""How much of the GPUs is allocated when tasks arrive one after the other and none ends?

The state of all nodes in arrays, and the loop of the experiment: every task is placed where the policy's score is
least, among all places where it fits; a task that fits nowhere is dropped. Never refuses a task that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from openb import WHOLE, Machine, Task

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Cluster:
    """What is free: cpu[n], memory[n], gpu[n, 8] in thousandths (0 where a node has no such GPU)."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.size = len(machines)
        self.models = sorted({machine.model for machine in machines})
        self.model = np.array([self.models.index(machine.model) for machine in machines])
        self.cpu = np.array([machine.cpu for machine in machines])
        self.memory = np.array([machine.memory for machine in machines])
        self.gpu = np.zeros((self.size, max(machine.devices for machine in machines)), np.int64)
        for node, machine in enumerate(machines):
            self.gpu[node, : machine.devices] = WHOLE
        self.capacity = int(self.gpu.sum())

    def allowed(self, task: Task) -> NDArray[np.bool_]:
        """Nodes whose GPUs are of a model that the task accepts."""
        if not task.models:
            return np.ones(self.size, bool)
        return np.isin(self.model, [index for index, model in enumerate(self.models) if model in task.models])

    def fits(self, task: Task, nodes: Ints) -> NDArray[np.bool_]:
        """Of these nodes, those with room for the task (models aside)."""
        fits = (self.cpu[nodes] >= task.cpu) & (self.memory[nodes] >= task.memory)
        if task.devices:
            fits &= (self.gpu[nodes] >= task.share).sum(1) >= task.devices
        return np.asarray(fits)

    def take(self, task: Task, node: int, first: int) -> None:
        """Places the task; `first` is the GPU of a task with one, those with several get whole ones in order."""
        self.cpu[node] -= task.cpu
        self.memory[node] -= task.memory
        if task.devices == 1:
            self.gpu[node, first] -= task.share
        elif task.devices > 1:
            self.gpu[node, np.flatnonzero(self.gpu[node] == WHOLE)[: task.devices]] = 0


class Policy(Protocol):
    """Scores places; least is best. age: changes when all scores are stale. lasting: scores hold while a node does."""

    age: int
    lasting: bool

    def best(self, nodes: Ints, task: Task) -> tuple[Floats, Ints]:
        """The best score on each of these nodes (the task fits them all), and the GPU if the task has one."""
        ...

    def placed(self, task: Task) -> None:
        """The task got a place."""
        ...


class _Best:
    """The best place of every node for one kind of task, and how far it is up to date."""

    def __init__(self, size: int) -> None:
        self.score = np.full(size, np.inf)
        self.gpu = np.zeros(size, np.int64)
        self.seen = 0
        self.age = -1


def experiment(cluster: Cluster, policy: Policy, tasks: Sequence[Task]) -> float:
    """Percent of all GPU capacity that is allocated at the end."""
    best: dict[Task, _Best] = {}
    allowed: dict[frozenset[str], NDArray[np.bool_]] = {}
    touched: list[int] = []
    placed = 0
    for task in tasks:
        known = best.get(task)
        if known is None:
            known = best[task] = _Best(cluster.size)
        if task.models not in allowed:
            allowed[task.models] = cluster.allowed(task)
        if known.age != policy.age or not policy.lasting:
            nodes = np.arange(cluster.size)
        else:
            nodes = np.array(sorted(set(touched[known.seen :])), np.int64)
        known.age, known.seen = policy.age, len(touched)
        if len(nodes):
            _look(cluster, policy, task, nodes, allowed[task.models], known)
        node = int(known.score.argmin())
        if known.score[node] == np.inf:
            continue
        cluster.take(task, node, int(known.gpu[node]))
        touched.append(node)
        placed += task.demand
        policy.placed(task)
    return 100 * placed / cluster.capacity


def _look(cluster: Cluster, policy: Policy, task: Task, nodes: Ints, allowed: NDArray[np.bool_], known: _Best) -> None:
    known.score[nodes] = np.inf
    fitting = nodes[allowed[nodes] & cluster.fits(task, nodes)]
    if len(fitting):
        known.score[fitting], known.gpu[fitting] = policy.best(fitting, task)
