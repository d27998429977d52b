"""Which unit is decided next, and which wait for what?

A unit is a pod or a gang, known here by its key only. Higher priority first, then arrival. Time is an argument
(seconds of any steady clock). Never decides whether something fits, never looks at objects.

    GATED ----opened---> QUEUED -popped--> DECIDING --assumed--> ASSUMED --bound--> (forgotten)
                          ^  ^                |  |                   |
                          |  +--woken-- UNSCHEDULABLE <-refused-+    |
                          |  +--due----- BACKOFF <---failed-----+----+
                          +-----due/woken-- WAITING <-waits-----+
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator

import msgspec

UnitKey = tuple[str, str, str]
"""(kind, namespace, name): kind is Pod or PodGroup."""

Topic = tuple[str, ...]
"""What a change is about; `schedule.wakeup` makes and reads them."""


class QueueLimits(msgspec.Struct, frozen=True):
    """Back-off doubles from first to most; a refused unit is tried again after unschedulable_max_s in any case.

    again_max: how often in a row a unit may be decided again at once because its picture was stale.
    """

    backoff_first_s: float = 1.0
    backoff_max_s: float = 10.0
    unschedulable_max_s: float = 300.0
    again_max: int = 3


class UnitState(enum.Enum):
    """Where a unit stands."""

    GATED = "gated"
    QUEUED = "queued"
    DECIDING = "deciding"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    WAITING = "waiting"
    ASSUMED = "assumed"


class UnitEvent(enum.Enum):
    """What can happen to a unit."""

    GATED = "gated"
    OPENED = "opened"
    POPPED = "popped"
    REFUSED = "refused"
    FAILED = "failed"
    WAITS = "waits"
    ASSUMED = "assumed"
    WOKEN = "woken"
    DUE = "due"


TABLE: dict[tuple[UnitState, UnitEvent], UnitState] = {
    (UnitState.QUEUED, UnitEvent.GATED): UnitState.GATED,
    (UnitState.GATED, UnitEvent.OPENED): UnitState.QUEUED,
    (UnitState.QUEUED, UnitEvent.POPPED): UnitState.DECIDING,
    (UnitState.DECIDING, UnitEvent.REFUSED): UnitState.UNSCHEDULABLE,
    (UnitState.DECIDING, UnitEvent.FAILED): UnitState.BACKOFF,
    (UnitState.DECIDING, UnitEvent.WAITS): UnitState.WAITING,
    (UnitState.DECIDING, UnitEvent.ASSUMED): UnitState.ASSUMED,
    (UnitState.DECIDING, UnitEvent.GATED): UnitState.GATED,
    (UnitState.ASSUMED, UnitEvent.FAILED): UnitState.BACKOFF,
    (UnitState.ASSUMED, UnitEvent.WAITS): UnitState.WAITING,
    (UnitState.UNSCHEDULABLE, UnitEvent.WOKEN): UnitState.QUEUED,
    (UnitState.UNSCHEDULABLE, UnitEvent.DUE): UnitState.QUEUED,
    (UnitState.UNSCHEDULABLE, UnitEvent.GATED): UnitState.GATED,
    (UnitState.WAITING, UnitEvent.WOKEN): UnitState.QUEUED,
    (UnitState.WAITING, UnitEvent.DUE): UnitState.QUEUED,
    (UnitState.BACKOFF, UnitEvent.DUE): UnitState.QUEUED,
    (UnitState.BACKOFF, UnitEvent.GATED): UnitState.GATED,
}

# States from which a unit comes back by itself at entry.due.
_TIMED = frozenset({UnitState.BACKOFF, UnitState.UNSCHEDULABLE, UnitState.WAITING})


class QueuedUnit(msgspec.Struct):
    """One unit in the queue. due counts where the state is timed; tries counts decisions since it last stood."""

    key: UnitKey
    priority: int
    arrival: int
    state: UnitState = UnitState.QUEUED
    since: float = 0.0
    due: float = 0.0
    tries: int = 0
    failures: int = 0
    topics: frozenset[Topic] = frozenset()


class Queue:
    """Units to decide. All methods cost logarithms of the size at most."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self.limits = limits or QueueLimits()
        self._entries: dict[UnitKey, QueuedUnit] = {}
        self._ready: list[tuple[int, int, UnitKey]] = []
        self._timers: list[tuple[float, int, UnitKey]] = []
        self._topics: dict[Topic, set[UnitKey]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._entries

    def get(self, key: UnitKey) -> QueuedUnit | None:
        """The unit's entry; read only."""
        return self._entries.get(key)

    def entries(self) -> Iterator[QueuedUnit]:
        """All units; read only."""
        return iter(self._entries.values())

    def counts(self) -> dict[UnitState, int]:
        """How many units stand in each state."""
        counts = dict.fromkeys(UnitState, 0)
        for entry in self._entries.values():
            counts[entry.state] += 1
        return counts

    def add(self, key: UnitKey, priority: int, now: float, *, gated: bool = False) -> None:
        """A unit appears, or its priority or gates changed. A known unit keeps its place in line."""
        entry = self._entries.get(key)
        if entry is None:
            self._arrivals += 1
            entry = self._entries[key] = QueuedUnit(key, priority, self._arrivals, since=now)
            self._line_up(entry)
        elif entry.priority != priority:
            entry.priority = priority
            if entry.state is UnitState.QUEUED:
                self._line_up(entry)
        if gated and (entry.state, UnitEvent.GATED) in TABLE:
            self._step(entry, UnitEvent.GATED, now)
        elif not gated and entry.state is UnitState.GATED:
            self._step(entry, UnitEvent.OPENED, now)

    def remove(self, key: UnitKey) -> None:
        """The unit is bound or gone. Unknown keys are fine."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._unsubscribe(entry)

    def take(self, now: float) -> QueuedUnit | None:
        """The unit to decide now, or None."""
        self._ring(now)
        while self._ready:
            priority, arrival, key = heapq.heappop(self._ready)
            entry = self._entries.get(key)
            if entry is None or entry.state is not UnitState.QUEUED:
                continue
            if (entry.arrival, -entry.priority) != (arrival, priority):
                continue
            entry.tries += 1
            self._step(entry, UnitEvent.POPPED, now)
            return entry
        return None

    def next_due(self) -> float | None:
        """When take() may have something new without a change; None: never. May be earlier than needed."""
        if self._ready:
            return 0.0
        return self._timers[0][0] if self._timers else None

    def refused(self, key: UnitKey, topics: Iterable[Topic], now: float) -> None:
        """The unit cannot run now; a change about one of the topics may help."""
        self._park(key, UnitEvent.REFUSED, now, now + self.limits.unschedulable_max_s, topics)

    def waits(self, key: UnitKey, topics: Iterable[Topic], deadline: float, now: float) -> None:
        """The unit has its place and waits for conditions, at most until the deadline."""
        self._park(key, UnitEvent.WAITS, now, deadline, topics)

    def assumed(self, key: UnitKey, now: float) -> None:
        """The decision is being written."""
        entry = self._entries.get(key)
        if entry is not None:
            self._step(entry, UnitEvent.ASSUMED, now)

    def failed(self, key: UnitKey, now: float, *, after_s: float | None = None) -> None:
        """A write failed or the search gave up: again after a back-off (or after_s, if that is longer)."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.failures += 1
        wait = min(self.limits.backoff_first_s * 2 ** (entry.failures - 1), self.limits.backoff_max_s)
        self._park(key, UnitEvent.FAILED, now, now + max(wait, after_s or 0.0), ())

    def again(self, key: UnitKey, now: float) -> None:
        """Decide once more at once, the picture was stale; after a few times in a row as if it had failed."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.failures >= self.limits.again_max:
            self.failed(key, now)
            return
        entry.failures += 1
        self._park(key, UnitEvent.FAILED, now, now, ())

    def wake(self, topics: Iterable[Topic], now: float) -> list[UnitKey]:
        """A change about these topics: units that wait for one of them line up again. Returns which, in order."""
        found: set[UnitKey] = set()
        for topic in topics:
            found |= self._topics.get(topic, set())
        woken = sorted(found, key=lambda key: self._entries[key].arrival)
        for key in woken:
            self._step(self._entries[key], UnitEvent.WOKEN, now)
        return woken

    def _park(self, key: UnitKey, step: UnitEvent, now: float, due: float, topics: Iterable[Topic]) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return
        self._step(entry, step, now)
        entry.due = due
        heapq.heappush(self._timers, (due, entry.arrival, key))
        entry.topics = frozenset(topics)
        for topic in entry.topics:
            self._topics.setdefault(topic, set()).add(key)

    def _step(self, entry: QueuedUnit, step: UnitEvent, now: float) -> None:
        target = TABLE[entry.state, step]
        if entry.state in _TIMED:
            self._unsubscribe(entry)
        if step in (UnitEvent.REFUSED, UnitEvent.WAITS):
            entry.failures = 0
        entry.state = target
        entry.since = now
        if target is UnitState.QUEUED:
            self._line_up(entry)

    def _line_up(self, entry: QueuedUnit) -> None:
        heapq.heappush(self._ready, (-entry.priority, entry.arrival, entry.key))

    def _ring(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            due, arrival, key = heapq.heappop(self._timers)
            entry = self._entries.get(key)
            if entry is None or entry.arrival != arrival or entry.state not in _TIMED or entry.due != due:
                continue
            self._step(entry, UnitEvent.DUE, now)

    def _unsubscribe(self, entry: QueuedUnit) -> None:
        for topic in entry.topics:
            keys = self._topics.get(topic)
            if keys is not None:
                keys.discard(entry.key)
                if not keys:
                    del self._topics[topic]
        entry.topics = frozenset()
