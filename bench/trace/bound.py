"""How much could be allocated at best, whoever places the tasks? An upper bound by linear programming.

It may choose which of the arrivals to place, knows all of them before the first, and may place fractions of tasks.
What it must keep: each task at most as often as it comes, on nodes whose model it accepts and on which it fits alone;
for each type of node the sums of cpu and memory; and GPUs whole: shares only in combinations that fit on one GPU
(cutting stock, combinations generated as they pay), several GPUs only as whole ones. No policy can do better, and
one that never refuses a task that fits cannot reach it: it has to take the tasks that leave GPUs half empty.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from openb import WHOLE, Machine, Task
from ortools.linear_solver.python import model_builder

ROUNDS = 60
ENOUGH = 1.0
"""Thousandths of GPUs by which the bound may be too high."""

Combination = tuple[int, ...]


class _Prices:
    """Of one solution: its value, and for each type of node what a GPU and a share of each size are worth there."""

    def __init__(self, value: float, gpu: list[float], shares: list[list[float]]) -> None:
        self.value = value
        self.gpu = gpu
        self.shares = shares


def upper_bound(machines: Sequence[Machine], coming: Sequence[Task]) -> float:
    """Percent of GPU capacity."""
    types = Counter(machines)
    tasks = Counter(task for task in coming if task.devices)
    sizes = sorted({task.share for task in tasks if task.devices == 1})
    capacity = sum(machine.devices * WHOLE * count for machine, count in types.items())
    known: list[list[Combination]] = [_singles(sizes) for _ in types]
    best = float(capacity)
    for _ in range(ROUNDS):
        prices = _solve(types, tasks, sizes, known)
        gain = 0.0
        for index, (machine, count) in enumerate(types.items()):
            worth, combination = _dearest(sizes, prices.shares[index])
            excess = worth - prices.gpu[index]
            if excess > 1e-6:
                known[index].append(combination)
                gain += excess * machine.devices * count
        best = min(best, prices.value + gain)  # Lagrange: valid before the last combination is found
        if gain <= ENOUGH:
            break
    return 100 * best / capacity


def _singles(sizes: Sequence[int]) -> list[Combination]:
    """As many shares of one size as fit on a GPU, for each size."""
    rows = np.eye(len(sizes), dtype=int) * (WHOLE // np.array(sizes, int))
    return [tuple(int(n) for n in row) for row in rows]


def _solve(
    types: Counter[Machine], tasks: Counter[Task], sizes: Sequence[int], known: Sequence[Sequence[Combination]]
) -> _Prices:
    model = model_builder.Model()
    placed: defaultdict[Task, list[model_builder.Variable]] = defaultdict(list)
    gpu_rows, share_rows = [], []
    for (machine, count), combinations in zip(types.items(), known, strict=True):
        cpu, memory, whole = [], [], []
        by_size: dict[int, list[model_builder.Variable]] = {size: [] for size in sizes}
        for task, times in tasks.items():
            if not _fits(task, machine):
                continue
            amount = model.new_num_var(0, times, "")
            placed[task].append(amount)
            cpu.append(task.cpu * amount)
            memory.append(task.memory * amount)
            if task.devices == 1:
                by_size[task.share].append(amount)
            else:
                whole.append(task.devices * amount)
        used = [model.new_num_var(0, machine.devices * count, "") for _ in combinations]
        model.add(sum(cpu) <= machine.cpu * count)
        model.add(sum(memory) <= machine.memory * count)
        gpu_rows.append(model.add(sum(used) + sum(whole) <= machine.devices * count))
        rows = []
        for place, size in enumerate(sizes):
            made = [times[place] * use for use, times in zip(used, combinations, strict=True) if times[place]]
            rows.append(model.add(sum(by_size[size]) - sum(made) <= 0))
        share_rows.append(rows)
    for task, amounts in placed.items():
        model.add(sum(amounts) <= tasks[task])
    model.maximize(sum(task.demand * amount for task, amounts in placed.items() for amount in amounts))
    solver = model_builder.Solver("GLOP")
    status = solver.solve(model)
    assert status == model_builder.SolveStatus.OPTIMAL, status
    shares = [[abs(solver.dual_value(row)) for row in rows] for rows in share_rows]
    return _Prices(solver.objective_value, [abs(solver.dual_value(row)) for row in gpu_rows], shares)


def _fits(task: Task, machine: Machine) -> bool:
    return (
        task.devices <= machine.devices
        and task.cpu <= machine.cpu
        and task.memory <= machine.memory
        and (not task.models or machine.model in task.models)
    )


def _dearest(sizes: Sequence[int], prices: Sequence[float]) -> tuple[float, Combination]:
    """The combination on one GPU that is worth most, and its worth."""
    worth: NDArray[np.float64] = np.zeros(WHOLE + 1)
    last = np.full(WHOLE + 1, -1)
    for room in range(min(sizes, default=WHOLE + 1), WHOLE + 1):
        worth[room], last[room] = worth[room - 1], -1
        for place, size in enumerate(sizes):
            if size <= room and worth[room - size] + prices[place] > worth[room] + 1e-12:
                worth[room], last[room] = worth[room - size] + prices[place], place
    counts = [0] * len(sizes)
    room = WHOLE
    while room > 0:
        place = int(last[room])
        if place < 0:
            room -= 1
        else:
            counts[place] += 1
            room -= sizes[place]
    return float(worth[WHOLE]), tuple(counts)
