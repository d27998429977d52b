"""How long to wait before the next try, and how often? Never decides whether a failure is final: errors do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

import msgspec

from dragoman.errors import Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

T = TypeVar("T")


class Backoff(msgspec.Struct, frozen=True):
    """Waits grow from initial_s by factor up to max_s; jitter makes each longer by up to that part of it."""

    initial_s: float = 0.1
    factor: float = 2.0
    max_s: float = 30.0
    jitter: float = 0.2

    def wait_s(self, failures: int, entropy: Entropy | None = None) -> float:
        """The wait after so many failures in a row (at least 1)."""
        # The exponent is bounded: a float overflows after about a thousand doublings.
        wait = min(self.initial_s * self.factor ** min(failures - 1, 64), self.max_s)
        return wait if entropy is None else entropy.jitter(wait, self.jitter)


class ItemBackoff:
    """Failures counted for each item, as work queues need it; `forget` after a success."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self._failures: dict[Hashable, int] = {}

    def failed(self, item: Hashable) -> float:
        """Count a failure; the seconds to wait."""
        count = self._failures.get(item, 0) + 1
        self._failures[item] = count
        return self.backoff.wait_s(count)

    def failures(self, item: Hashable) -> int:
        """Failures since the last success."""
        return self._failures.get(item, 0)

    def forget(self, item: Hashable) -> None:
        """It worked, or it is gone."""
        self._failures.pop(item, None)


async def retried(
    call: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    entropy: Entropy,
    backoff: Backoff,
    attempts: int,
) -> T:
    """The result of the first call that does not raise Retry; after `attempts` calls the last Retry is raised."""
    for attempt in range(1, attempts + 1):
        try:
            return await call()
        except Retry as error:
            if attempt == attempts:
                raise
            wait_s = backoff.wait_s(attempt, entropy)
            await clock.sleep(max(wait_s, error.after_s or 0.0))
    raise ValueError("attempts must be at least 1")
