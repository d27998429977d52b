"""How does a script run against a clock? Threads of a simulated process, each a generator that says what it waits for.

A thread yields what it waits for: a moment (`Until`), input (`Data`), other threads (`Ended`), a file that grows or an
outside event (`Poke`), or just its turn (`TURN`). Its own time moves only by waiting, so that a process can be run
again from its start after the node agent was away: what is past by then does not wait. It decides nothing about
containers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

import msgspec

from dragoman.runtime.clock import Clock, Timer

TURNS = 2_000
"""Commands in a row without any waiting; then the process rests, as a busy loop would fill its processor."""
REST_S = 1.0
THREADS = 200
PIPE_BYTES = 64 * 1024
BEHIND_S = 900.0
"""A process that was away for longer goes on from here."""


class Signal(Exception):
    """A signal that no trap takes."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


class Pipe:
    """Bytes on their way. `ended`: nothing more will be written; `closed`: nobody reads."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self.closed = False

    def write(self, data: bytes) -> None:
        """Add bytes; lost once nobody reads."""
        if not self.closed:
            self.data += data

    def take(self, most: int | None = None) -> bytes:
        """What is there now."""
        size = len(self.data) if most is None else min(most, len(self.data))
        head = bytes(self.data[:size])
        del self.data[:size]
        return head


class Until(msgspec.Struct, frozen=True):
    """A moment in epoch seconds; None never comes."""

    when: float | None


class Data(msgspec.Struct, frozen=True):
    """Something to read, or its end."""

    pipe: Pipe


class PipeSpace(msgspec.Struct, frozen=True):
    """Room in a pipe, or its end."""

    pipe: Pipe


class ThreadsEnded(msgspec.Struct, frozen=True):
    """The end of all those threads."""

    threads: tuple[Thread, ...]


class Turn(msgspec.Struct, frozen=True):
    """Let others go first."""


TURN = Turn()
ThreadWait: TypeAlias = Until | Data | PipeSpace | ThreadsEnded | Turn
ThreadWork: TypeAlias = Generator[ThreadWait, None, int]


class Thread:
    """One generator. code is None while it runs; now is its own time."""

    def __init__(self, work: ThreadWork, now: float) -> None:
        self.work = work
        self.now = now
        self.wait: ThreadWait = TURN
        self.code: int | None = None
        self.on_end: Callable[[], None] | None = None


class SimulatedProcess:
    """A simulated process. `start` it; `ended(code)` is called once, when its main thread has ended."""

    def __init__(self, clock: Clock, started_at: float, ended: Callable[[int], None]) -> None:
        self.clock = clock
        self.current: Thread | None = None
        self.code: int | None = None
        self.traps: dict[int, Callable[[], Generator[ThreadWait, None, int | None]] | None] = {}
        """What a signal runs, its value being the exit code or None to go on; None ignores the signal."""
        self._ended = ended
        self._threads: list[Thread] = []
        self._signals: list[int] = []
        self._timer: Timer | None = None
        self._stepping = False
        self._now = max(started_at, clock.now() - BEHIND_S)
        self._main: Thread | None = None

    @property
    def now(self) -> float:
        """The time of the thread that runs."""
        return self.current.now if self.current else self._now

    def spawn(self, work: ThreadWork, on_end: Callable[[], None] | None = None) -> Thread:
        """Another thread, from the time of the one that runs. Raises Signal for too many."""
        if len(self._threads) >= THREADS:
            raise Signal(9)
        thread = Thread(work, self.now)
        thread.on_end = on_end
        self._threads.append(thread)
        return thread

    def start(self, work: ThreadWork) -> None:
        """Run the main thread as far as it goes without waiting."""
        self._main = self.spawn(work)
        self.step()

    def close(self) -> None:
        """Forget it without an end (the agent ends)."""
        self.code = self.code if self.code is not None else 0
        self._disarm()
        for thread in self._threads:
            thread.work.close()
        self._threads.clear()

    def signal(self, number: int) -> bool:
        """Deliver a signal; False where no trap takes it, and nothing was done."""
        if self.code is not None or number not in self.traps:
            return False
        self._signals.append(number)
        self.step()
        return True

    def interrupt(self) -> None:
        """Let go of what the main thread waits for, as Ctrl-C does to a foreground program."""
        main = self._main
        if main is None or self.code is not None or isinstance(main.wait, Data):
            return
        for thread in tuple(self._threads):
            if thread is not main:
                thread.work.close()
                self._end(thread, 130)
        main.now = max(main.now, self.clock.now())
        main.wait = TURN
        self.step()

    # ---- running

    def step(self) -> None:
        """Run whatever can run now."""
        if self._stepping or self.code is not None:
            return
        self._stepping = True
        self._disarm()
        turns = 0
        try:
            while self.code is None:
                moved = False
                self._deliver()
                for thread in tuple(self._threads):
                    if thread.code is None and self._is_due(thread):
                        moved = True
                        turns += 1
                        self._run(thread)
                        if self.code is not None:
                            return
                if not moved:
                    self._arm(self._next())
                    return
                if turns > TURNS:
                    self._arm(REST_S)
                    return
        finally:
            self._stepping = False

    def _deliver(self) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            trap = self.traps.get(number)
            if trap is not None and self._main is not None:
                # The handler runs in front of what the shell was doing; what it waited for waits on. A thread that
                # waits for a child waits on after the handler, except that `sleep` and `wait` of the shell itself are
                # over.
                self._main.now = max(self._main.now, self.clock.now())
                self._main.work = _after(trap(), self._main.work)
                self._main.wait = TURN

    def _is_due(self, thread: Thread) -> bool:
        match thread.wait:
            case Turn():
                return True
            case Until(when):
                return when is not None and when <= self.clock.now() + 1e-6
            case Data(pipe):
                return bool(pipe.data) or pipe.ended
            case PipeSpace(pipe):
                return len(pipe.data) < PIPE_BYTES or pipe.closed
            case ThreadsEnded(threads):
                return all(other.code is not None for other in threads)

    def _run(self, thread: Thread) -> None:
        match thread.wait:
            case Until(when) if when is not None:
                thread.now = max(thread.now, when)
            case ThreadsEnded(threads):
                thread.now = max([thread.now, *(other.now for other in threads)])
            case Data():
                thread.now = max(thread.now, min(self.clock.now(), thread.now + BEHIND_S))
            case _:
                pass
        self.current = thread
        try:
            thread.wait = next(thread.work)
        except StopIteration as stop:
            self._end(thread, stop.value or 0)
        except Signal as signal:
            self._end(thread, 128 + signal.number)
        finally:
            self.current = None

    def _end(self, thread: Thread, code: int) -> None:
        thread.code = code
        self._threads.remove(thread)
        self._now = max(self._now, thread.now)
        if thread.on_end:
            thread.on_end()
        if thread is self._main:
            self.code = code
            self._disarm()
            for other in self._threads:
                other.work.close()
            self._threads.clear()
            self._ended(code)

    def _next(self) -> float | None:
        """Seconds until a thread is due; None: only something from outside can wake it."""
        times = [t.wait.when for t in self._threads if isinstance(t.wait, Until) and t.wait.when is not None]
        return max(0.0, min(times) - self.clock.now()) if times else None

    def _arm(self, delay_s: float | None) -> None:
        if delay_s is not None:
            self._timer = self.clock.call_later(delay_s, self.step)

    def _disarm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


def _after(handler: Generator[ThreadWait, None, int | None], then: ThreadWork) -> ThreadWork:
    code = yield from handler
    if code is not None:
        then.close()
        return code
    return (yield from then)


def forever() -> ThreadWork:
    """Wait without an end."""
    yield Until(None)
    return 0
