"""Which tasks came lately? A histogram that learns while the scheduler runs.

The demand is updated when the count has doubled and from then on every WINDOW / 2 tasks, so that what was worked out
with it serves for a while. Never looks at a cluster.
"""

from __future__ import annotations

from collections import Counter

from dragoman.allocate.fragmentation import Demand, TaskType

FIRST = 16
WINDOW = 8192
"""Counts are halved when there are so many, so that the histogram follows a mix that changes."""
KINDS_MAX = 512
"""The most frequent kinds, which are kept; the trace in bench/trace has up to 457."""


class TaskHistory:
    """demand: as last updated; empty until FIRST tasks have been placed."""

    def __init__(self) -> None:
        self.demand = Demand()
        self._counts: Counter[TaskType] = Counter()
        self._total = 0
        self._next = FIRST

    def add(self, kind: TaskType) -> bool:
        """One more task. Whether `demand` is new."""
        self._counts[kind] += 1
        self._total += 1
        if self._total < self._next:
            return False
        self.demand = Demand(tuple(sorted(self._counts.items(), key=_order)[:KINDS_MAX]))
        if self._total >= WINDOW:
            self._counts = Counter({kind: count // 2 for kind, count in self._counts.items() if count > 1})
            self._total = self._counts.total()
        self._next = min(2 * self._total, WINDOW)
        return True


def _order(entry: tuple[TaskType, int]) -> tuple[object, ...]:
    kind, count = entry
    return (-count, kind.devices, kind.share, kind.cpu, kind.memory, tuple(sorted(kind.makes)))
