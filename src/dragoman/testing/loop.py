"""How does a test let hours pass in a moment? An event loop that makes its own time.

Whenever nothing is left to do at the present moment, time jumps to the next timer. Order depends on nothing but the
program: two runs are the same. Work for threads is done at once. Real sockets work, but time does not wait for them.

    run(scenario)     # calls scenario(Clock) on a fresh loop
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from dragoman.errors import Bug
from dragoman.runtime.clock import Clock

T = TypeVar("T")


class _Jumping(selectors.BaseSelector):
    """Never waits: tells how long it would have waited."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        if found:
            return found
        if timeout is None:
            raise Bug("everything waits and no timer is set: the program would wait for ever")
        self.passed_s += max(0.0, timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        found: Mapping[Any, selectors.SelectorKey] = self._real.get_map()
        return found


class _NumberedTask(asyncio.Task[Any]):
    """Sets of tasks, which asyncio cancels in their order, are in order of birth instead of address."""

    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self.number = number  # before anybody hashes it
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time() starts at 0 and passes only when everybody waits."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        self._born = itertools.count()
        super().__init__(self._jumping)
        self.set_task_factory(self._make_task)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        return _NumberedTask(next(self._born), work, loop=loop, **options)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.passed_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """At once and in this thread: no time passes while a thread works."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # it goes where the thread's would
            future.set_exception(error)
        return future


def run(scenario: Callable[[Clock], Awaitable[T]]) -> T:
    """Runs a scenario to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def main() -> T:
            return await scenario(Clock.virtual(asyncio.get_running_loop()))

        return runner.run(main())
