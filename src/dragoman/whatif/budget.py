"""How long may answers take, and how many of them are given in full? Limits that all who ask share.

    budget = Budget(clock.monotonic, each_s=0.05)
    for step in run(...):
        brief = budget.is_brief(step)
        with budget.spent(step) as over: ...      # over() is True once the time for this step is used up

The core reads no clock: `monotonic` is given, in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dragoman.whatif.decide import DecidedUnit

EXPLAINED_MAX = 500
"""Pods with a place, and pods without, that are explained with all facts; of more only the decision is given."""
EXPLAIN_S = 0.7
"""What contradiction and hints may take together, over all refused pods."""
EACH_S = 0.05
"""What one of many waiting pods may take at least for its contradiction and hints, while all have time."""

_Over = Callable[[], bool]


class Budget:
    """EXPLAIN_S for the explanations of many pods, deciding not counted; each_s: the most that one may take."""

    def __init__(self, monotonic: Callable[[], float], *, each_s: float = EXPLAIN_S) -> None:
        self.each_s = each_s
        self.left_s = EXPLAIN_S
        self._monotonic = monotonic
        self._seen: Counter[bool] = Counter()

    @classmethod
    def shared(cls, monotonic: Callable[[], float], pods: int) -> Budget:
        """For so many pods: an equal part for each, but EACH_S at least."""
        return cls(monotonic, each_s=max(EACH_S, EXPLAIN_S / max(pods, 1)))

    def is_brief(self, step: DecidedUnit) -> bool:
        """Whether enough pods of its kind (with a place or without) were explained before; counts this one."""
        is_pending = _is_pending(step)
        self._seen[is_pending] += len(step.verdicts)
        return self._seen[is_pending] > EXPLAINED_MAX

    @contextmanager
    def spent(self, step: DecidedUnit) -> Iterator[_Over]:
        """What is done within for pods without a place is paid for; gives what says that it has had its part."""
        start = self._monotonic()
        yield deadline(self._monotonic, min(self.each_s, self.left_s))
        if _is_pending(step):
            self.left_s -= self._monotonic() - start


def deadline(monotonic: Callable[[], float], seconds: float) -> _Over:
    """Says True once so many seconds are over."""
    end = monotonic() + seconds
    return lambda: monotonic() >= end


def _is_pending(step: DecidedUnit) -> bool:
    return any(verdict.node is None for verdict in step.verdicts)
