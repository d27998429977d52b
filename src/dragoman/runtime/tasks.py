"""Who runs what, and what if it breaks? Named task groups, supervised loops, queues of keys.

One of the few places that catch Exception: a supervised loop logs, waits and starts again. It never hides a
failure, and it never runs a task without an owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from types import TracebackType
from typing import Any, Generic, TypeVar

from dragoman.errors import DragomanError, Retry, Stale
from dragoman.runtime.clock import Clock, Timer
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import Log, get
from dragoman.runtime.retry import Backoff, ItemBackoff

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

LOOP_BACKOFF = Backoff(initial_s=0.1, max_s=30.0)
ITEM_BACKOFF = Backoff(initial_s=0.005, max_s=1000.0, jitter=0.0)
LONG_S, REST_FACTOR, REST_MAX_S = 0.005, 2.0, 1.0
"""Work of so many seconds and more is followed by a rest of so many times that, and at most so long."""
STEADY_S = 60.0
"""A loop that ran so long before it broke starts with the first wait again."""


class Tasks:
    """A task group with names: leaving it waits for all tasks; one that breaks ends the others.

    async with Tasks("controllers", clock, entropy) as tasks:
        tasks.start("watch pods", watch())
    """

    def __init__(self, name: str, clock: Clock, entropy: Entropy) -> None:
        self.name = name
        self.clock = clock
        self.entropy = entropy
        self.ending = False
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Tasks:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._group.__aexit__(kind, error, trace)

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it in this group."""
        task = self._group.create_task(work, name=f"{self.name}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.ending = True

    def supervise(self, name: str, work: Callable[[], Awaitable[None]], backoff: Backoff = LOOP_BACKOFF) -> None:
        """Run it again whenever it breaks, later and later; a normal return ends it."""
        log = get(self.name.split(":")[0], task=name)
        self.start(name, self._supervised(work, backoff, log))

    async def _supervised(self, work: Callable[[], Awaitable[None]], backoff: Backoff, log: Log) -> None:
        await supervised(
            work, clock=self.clock, entropy=self.entropy, backoff=backoff, log=log, ending=lambda: self.ending
        )

    def stop(self) -> None:
        """End all tasks of the group."""
        self.ending = True
        for task in list(self._tasks):
            task.cancel()


async def supervised(
    work: Callable[[], Awaitable[None]],
    *,
    clock: Clock,
    entropy: Entropy,
    backoff: Backoff,
    log: Log,
    ending: Callable[[], bool] = lambda: False,
) -> None:
    """`work` until it returns; after an exception once more, after a wait, unless `ending` says it is over.

    The same failure again and again is said once.

    An asyncio.TaskGroup inside `work` that breaks while it is cancelled raises its error and loses the
    cancellation (until Python 3.13): without `ending` the loop would then go on for ever.
    """
    failures, said = 0, ""
    while True:
        began = clock.monotonic()
        try:
            await work()
        except Exception as error:
            if ending():
                return
            failures = 1 if clock.monotonic() - began > STEADY_S else failures + 1
            wait_s = backoff.wait_s(failures, entropy)
            if isinstance(error, Retry) and error.after_s:
                wait_s = max(wait_s, error.after_s)
            if isinstance(error, DragomanError) and str(error) == said and failures > 1:
                log.debug("trying again", error=said, wait_s=round(wait_s, 3))
            else:
                report(log, error, wait_s=round(wait_s, 3))
            said = str(error)
            await clock.sleep(wait_s)
        else:
            return


def report(log: Log, error: BaseException, **fields: Any) -> None:
    """Log a failure: expected kinds in one line, anything else with its traceback."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, Retry | Stale):
        log.info("trying again", error=str(error), **fields)
    elif isinstance(error, DragomanError):
        log.warning("failed", error=str(error), **fields)
    else:
        log.error("broke", exc=error, error=f"{type(error).__name__}: {error}", **fields)


class TokenBucket:
    """So much a second, and a burst at once. Who comes first is served first."""

    def __init__(self, clock: Clock, per_s: float, burst: int) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._free_at = clock.monotonic() - burst / per_s

    async def take(self, tokens: int) -> bool:
        """Takes tokens, waiting until there are as many. Whether it had to wait."""
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now - self._burst / self._per_s) + tokens / self._per_s
        wait_s = self._free_at - now
        if wait_s <= 0:
            return False
        await self._clock.sleep(wait_s)
        return True


class KeyQueue(Generic[K]):
    """Keys to work on, each at most once at a time: a key added while it is worked on comes again afterwards.

    `work(queue, ...)` runs workers over it; failed keys come back by their own back-off. A key whose work takes long
    rests afterwards, so that many changes to something large are looked at together.
    """

    def __init__(self, name: str, clock: Clock, backoff: Backoff = ITEM_BACKOFF) -> None:
        self.name = name
        self.clock = clock
        self.backoff = ItemBackoff(backoff)
        self._ready: dict[K, None] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._later: dict[K, Timer] = {}
        self._resting: dict[K, Timer] = {}
        self._began: dict[K, float] = {}
        self._waiters: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._ready) + len(self._working) + len(self._again - self._working)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._later)

    def add(self, key: K) -> None:
        """Work on it soon."""
        if timer := self._later.pop(key, None):
            timer.cancel()
        if key in self._working or key in self._resting:
            self._again.add(key)
            return
        self._ready[key] = None
        self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Work on it in so many seconds; the earliest of several requests counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self.clock.monotonic() + seconds
        if known := self._later.get(key):
            if known.due <= due:
                return
            known.cancel()
        self._later[key] = self.clock.call_at(due, lambda: self.add(key))

    async def take(self) -> K:
        """The next key; `done` must follow."""
        while not self._ready:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                if waiter.cancelled():
                    self._wake()
        key = next(iter(self._ready))
        del self._ready[key]
        self._working.add(key)
        self._began[key] = self.clock.monotonic()
        return key

    def done(self, key: K, *, failed: bool = False) -> None:
        """The work on it ended; a failed key comes back after its back-off."""
        self._working.discard(key)
        took_s = self.clock.monotonic() - self._began.pop(key)
        if failed:
            self._again.discard(key)
            self.add_after(key, self.backoff.failed(key))
            return
        self.backoff.forget(key)
        if took_s >= LONG_S:
            rest_s = min(REST_FACTOR * took_s, REST_MAX_S)
            self._resting[key] = self.clock.call_later(rest_s, lambda: self._rested(key))
        elif key in self._again:
            self._again.discard(key)
            self.add(key)

    def _rested(self, key: K) -> None:
        del self._resting[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Forget what waits for its time."""
        for timer in (*self._later.values(), *self._resting.values()):
            timer.cancel()
        self._later.clear()
        self._resting.clear()

    def _wake(self) -> None:
        while self._ready and self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return


async def work(queue: KeyQueue[K], step: Callable[[K], Awaitable[None]], log: Log) -> None:
    """One worker: takes keys for ever; a step that breaks is reported and its key tried again."""
    while True:
        key = await queue.take()
        failed = True
        try:
            await step(key)
            failed = False
        except Exception as error:
            report(log, error, key=str(key))
        finally:
            queue.done(key, failed=failed)
        await asyncio.sleep(0)  # steps that never wait must not keep others from the loop
