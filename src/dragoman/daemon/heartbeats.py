"""When was each node last heard of? Time during which nobody listened does not count as silence.

A suspended machine or a clock moved on lets hours pass at once, for the nodes' agents as for us: without this every
node would be given up before its agent has its turn. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.reconcile.podgc import QUARANTINE_S
from dragoman.runtime.clock import Clock
from dragoman.snapshot.change import Snapshot

TICK_S = 5.0


class Heartbeats:
    """`heard` maps node names to epoch seconds of our clock. `run` (supervised) watches for jumps of it."""

    def __init__(self, clock: Clock) -> None:
        self.heard: dict[str, float] = {}
        self._clock = clock
        self._last_s = clock.now()

    def beat(self, node: str) -> None:
        """It lives."""
        self.catch_up()
        self.heard[node] = self._clock.now()

    def first_seen(self, node: str) -> None:
        """It is known now, if it was not before."""
        self.heard.setdefault(node, self._clock.now())

    def up_to_date(self) -> dict[str, float]:
        """`heard`, for who decides right after a pause, before `run` has had its turn."""
        self.catch_up()
        return self.heard

    def catch_up(self) -> None:
        """Add what has passed unwatched since the last tick to all."""
        now = self._clock.now()
        unwatched_s = now - self._last_s - 2 * TICK_S
        self._last_s = now
        if unwatched_s > 0:
            for node in self.heard:
                self.heard[node] += unwatched_s

    def forget(self, snapshot: Snapshot) -> None:
        """Drop nodes that are long gone."""
        limit = self._clock.now() - 2 * QUARANTINE_S
        for node in [n for n, when in self.heard.items() if when < limit and n not in snapshot.nodes]:
            del self.heard[node]

    async def run(self, snapshot: Callable[[], Snapshot]) -> None:
        """Tick for ever."""
        self._last_s = self._clock.now()
        while True:
            await self._clock.sleep(TICK_S)
            self.catch_up()
            self.forget(snapshot())
