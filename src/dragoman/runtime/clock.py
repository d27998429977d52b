"""What time is it, and when is it time? The only reader of clocks and the only place that waits.

A Clock may run faster than the wall, be moved on, or follow an event loop in virtual time; whoever waits
through it wakes at the right moment of *its* time. It never decides what to do when the time has come.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # who only reads the time, as commands over files do, starts a sixth faster without it
    import asyncio

T = TypeVar("T")

MAX_SLICE_S = 3600.0
"""The longest single wait handed to the event loop; longer ones are armed again (loops lose precision)."""


class Timer:
    """A callback that is due once; cancel() is idempotent. Made by `Clock.call_at` only."""

    __slots__ = ("callback", "clock", "due", "handle", "loop")

    def __init__(self, clock: Clock, due: float, callback: Callable[[], None]) -> None:
        self.clock = clock
        self.due = due
        self.callback = callback
        from asyncio import get_running_loop

        self.loop = get_running_loop()
        self.handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Never call back (again)."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
        self.clock._timers.pop(self, None)


class Clock:
    """Time of one cluster or daemon: `speed` seconds pass for each second of the source.

    wall: epoch seconds of the world outside; steady: seconds that never go back (must be the running loop's
    `time()`, which time.monotonic is for asyncio's own loops).
    """

    def __init__(
        self,
        *,
        speed: float = 1.0,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be positive, got {speed}")
        self._speed = speed
        self._wall = wall
        self._steady = steady
        self._wall_from = self._wall_at = wall()
        self._steady_from = self._steady_at = steady()
        self._timers: dict[Timer, None] = {}

    @classmethod
    def virtual(cls, loop: asyncio.AbstractEventLoop, epoch: float = 1_800_000_000.0) -> Clock:
        """The clock of a loop that makes its own time: now() is epoch plus the loop's seconds."""
        return cls(wall=lambda: epoch + loop.time(), steady=loop.time)

    # ---- reading

    @property
    def speed(self) -> float:
        """Seconds of this clock for a second of the world."""
        return self._speed

    def now(self) -> float:
        """Epoch seconds, UTC. May jump when the wall clock is set."""
        return self._wall_at + (self._wall() - self._wall_from) * self._speed

    def utc(self) -> datetime:
        """now() as an aware datetime."""
        return datetime.fromtimestamp(self.now(), UTC)

    def monotonic(self) -> float:
        """Seconds that never go back; differences only."""
        return self._steady_at + (self._steady() - self._steady_from) * self._speed

    # ---- moving

    def advance(self, seconds: float) -> None:
        """Move on at once; whoever is due then wakes, earliest first."""
        if seconds < 0:
            raise ValueError("time cannot be moved back")
        self._anchor(self._speed, seconds)

    def set_speed(self, speed: float) -> None:
        """Run at another speed from now on."""
        if speed <= 0:
            raise ValueError(f"speed must be positive, got {speed}")
        self._anchor(speed, 0.0)

    def _anchor(self, speed: float, jump: float) -> None:
        self._wall_at, self._wall_from = self.now() + jump, self._wall()
        self._steady_at, self._steady_from = self.monotonic() + jump, self._steady()
        self._speed = speed
        for timer in sorted(self._timers, key=lambda t: t.due):
            self._arm(timer)

    # ---- waiting

    def call_at(self, due: float, callback: Callable[[], None]) -> Timer:
        """Call back (on the running loop) once monotonic() reaches `due`."""
        timer = Timer(self, due, callback)
        self._timers[timer] = None
        self._arm(timer)
        return timer

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back in so many seconds."""
        return self.call_at(self.monotonic() + seconds, callback)

    def _arm(self, timer: Timer) -> None:
        if timer.handle is not None:
            timer.handle.cancel()
        wait_s = min(max(0.0, timer.due - self.monotonic()) / self._speed, MAX_SLICE_S)
        timer.handle = timer.loop.call_later(wait_s, self._ring, timer)

    def _ring(self, timer: Timer) -> None:
        # Loops may wake a little early (uvloop counts whole milliseconds): a microsecond short is due.
        if timer.due - self.monotonic() > 1e-6 * self._speed:
            self._arm(timer)
            return
        timer.handle = None
        self._timers.pop(timer, None)
        timer.callback()

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds of this clock; 0 or less lets others run once."""
        import asyncio

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        due = asyncio.Event()
        timer = self.call_later(seconds, due.set)
        try:
            await due.wait()
        finally:
            timer.cancel()

    async def wait_until(self, when: float) -> None:
        """Wait until now() reaches `when` (epoch seconds), also if the wall clock is set meanwhile."""
        while (left := when - self.now()) > 0:
            await self.sleep(min(left, 60.0))

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise TimeoutError in the body after so many seconds of this clock; None never."""
        import asyncio

        async with asyncio.timeout(None) as guard:
            loop = asyncio.get_running_loop()

            def expire() -> None:
                with suppress(RuntimeError):  # the body has just ended
                    guard.reschedule(loop.time())

            timer = None if seconds is None else self.call_later(seconds, expire)
            try:
                yield
            finally:
                if timer is not None:
                    timer.cancel()

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        """The result of `work`, or TimeoutError after so many seconds."""
        async with self.timeout(seconds):
            return await work
