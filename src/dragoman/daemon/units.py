"""What does the scheduler keep of a unit between its arrival and its end? One record a unit, given back in one place.

Beside the queue, which knows states and times. Keeping room means that the unit's pods count on their nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.api.meta import NamespacedName, Ref
from dragoman.cluster.cache import Assumption, Cache
from dragoman.effects import Bind
from dragoman.schedule.decision import Decision
from dragoman.schedule.queue import Queue, UnitKey


@dataclass(slots=True)
class Progress:
    """One unit. arrived: clock of the queue; steps: of its next search, 0 for the usual number. attempt_at: when the
    newest of its attempts began.

    placed: its pods and their nodes while it waits for conditions there; room: what keeps them counted.
    """

    arrived: float | None = None
    steps: int = 0
    attempts: int = 0
    attempt_at: float = 0.0
    placed: tuple[tuple[NamespacedName, str], ...] = ()
    assumed: Assumption | None = None


class Units:
    """The records of all units in the queue."""

    def __init__(self, queue: Queue, cache: Cache) -> None:
        self._queue = queue
        self._cache = cache
        self._of: dict[UnitKey, Progress] = {}

    def of(self, key: UnitKey) -> Progress:
        """The unit's record; an empty one that nobody keeps for a unit that is not in the queue."""
        found = self._of.get(key)
        if found is None:
            found = Progress()
            if key in self._queue:
                self._of[key] = found
        return found

    def arrive(self, key: UnitKey, now: float) -> None:
        """The unit is there to be scheduled, from now on or since before."""
        progress = self._of.setdefault(key, Progress())
        if progress.arrived is None:
            progress.arrived = now

    def assume_pods(self, decision: Decision) -> None:
        """The pods count on their nodes until they are bound or let go."""
        progress = self._of.setdefault(decision.unit, Progress())
        if progress.assumed is None:
            places = [
                Bind(Ref("Pod", *placement.pod, placement.uid), placement.node) for placement in decision.placements
            ]
            progress.assumed = self._cache.assume(places)

    def let_go(self, key: UnitKey) -> None:
        """The unit cannot be scheduled any longer."""
        progress = self._of.get(key)
        if progress is None:
            return
        progress.placed = ()
        assumed, progress.assumed = progress.assumed, None
        if assumed is not None:
            self._cache.forget(assumed)

    def forget(self, key: UnitKey) -> None:
        """The unit is over: bound, or nothing of it is left to schedule."""
        self._queue.remove(key)
        self.let_go(key)
        self._of.pop(key, None)
