"""Policies that others published, from their definitions: random, best fit, fragmentation gradient descent.

random: any node that fits. best-fit: the node with least left, GPUs and CPUs each against the largest node's; the
fullest GPU that fits. FGD (Weng et al., USENIX ATC 2023): the place that adds least expected fragmentation, which is
the sum over typical tasks, by popularity, of the GPU thousandths of the node that the task cannot use: all of them if
the task does not fit the node, else those on GPUs with less left than its share. Ties by best fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from cluster import Cluster, Floats, Ints
from openb import WHOLE, Task


class Random:
    """Any node that fits, any GPU that fits."""

    age = 0
    lasting = False

    def __init__(self, cluster: Cluster, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        self.cluster = cluster
        self.rng = rng

    def best(self, nodes: Ints, task: Task) -> tuple[Floats, Ints]:
        drawn = self.rng.random(len(nodes))
        gpu = self.cluster.gpu[nodes]
        return drawn, np.where(gpu >= task.share, self.rng.random(gpu.shape), np.inf).argmin(1)

    def placed(self, task: Task) -> None:
        pass


def least_left(cluster: Cluster, nodes: Ints, task: Task) -> Floats:
    """What the task leaves free on nodes, CPUs and GPUs each in parts of the largest node."""
    cpu = (cluster.cpu[nodes] - task.cpu) / 128_000
    return np.asarray(cpu + (cluster.gpu[nodes].sum(1) - task.demand) / 8_000)


class BestFit:
    """The node with least left."""

    age = 0
    lasting = True

    def __init__(self, cluster: Cluster, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        self.cluster = cluster

    def best(self, nodes: Ints, task: Task) -> tuple[Floats, Ints]:
        gpu = self.cluster.gpu[nodes]
        return least_left(self.cluster, nodes, task), np.where(gpu >= task.share, gpu, 2 * WHOLE).argmin(1)

    def placed(self, task: Task) -> None:
        pass


class Fgd:
    """Fragmentation gradient descent; knows the tasks of the file and how many of each."""

    age = 0
    lasting = True

    def __init__(self, cluster: Cluster, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        self.cluster = cluster
        typical = Counter(tasks)
        kinds = list(typical)
        weights = np.array([typical[kind] for kind in kinds], float)
        self.weights = weights / weights.sum()
        self.cpu = np.array([kind.cpu for kind in kinds])
        self.memory = np.array([kind.memory for kind in kinds])
        self.devices = np.array([kind.devices for kind in kinds])
        shares = np.array([kind.share for kind in kinds])
        self.steps = np.unique(shares)
        self.step = np.searchsorted(self.steps, shares)
        self.allowed = np.array([cluster.allowed(kind) for kind in kinds]).T & (self.devices > 0)

    def best(self, nodes: Ints, task: Task) -> tuple[Floats, Ints]:
        cluster = self.cluster
        gpu, cpu, memory = cluster.gpu[nodes], cluster.cpu[nodes], cluster.memory[nodes]
        enough = gpu[:, :, None] >= self.steps
        below = gpu[:, :, None] * ~enough
        serve, lost, total = enough.sum(1), below.sum(1), gpu.sum(1)
        before = self._fragmented(nodes, cpu, memory, serve, lost, total)
        cpu, memory = cpu - task.cpu, memory - task.memory
        tie = 1e-5 * least_left(cluster, nodes, task)
        if task.devices != 1:
            after = self._fragmented(nodes, cpu, memory, serve - task.devices, lost, total - task.demand)
            return after - before + tie, np.zeros(len(nodes), np.int64)
        left = gpu - task.share
        serves = left[:, :, None] >= self.steps
        fragments = left[:, :, None] * ~serves
        after = self._fragmented(
            nodes,
            cpu[:, None],
            memory[:, None],
            serve[:, None, :] - enough + serves,
            lost[:, None, :] - below + fragments,
            (total - task.share)[:, None],
        )
        scores = np.where(left >= 0, after - before[:, None], np.inf)
        return scores.min(1) + tie, scores.argmin(1)

    def _fragmented(self, nodes: Ints, cpu: Ints, memory: Ints, serve: Ints, lost: Ints, total: Ints) -> Floats:
        """Expected GPU thousandths that the next task cannot use. Last axis of serve and lost: steps of shares."""
        fits = (cpu[..., None] >= self.cpu) & (memory[..., None] >= self.memory)
        allowed = self.allowed[nodes]
        fits &= allowed if fits.ndim == 2 else allowed[:, None, :]
        fits = fits & (serve[..., self.step] >= self.devices)
        return np.asarray(np.where(fits, lost[..., self.step], total[..., None]) @ self.weights)

    def placed(self, task: Task) -> None:
        pass
