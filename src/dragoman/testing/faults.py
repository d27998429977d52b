"""What if the API is slow, refuses, forgets to answer, or its caller dies? A Client between a part and the API.

Faults are drawn from a seed; switched off, calls pass through. It never changes what is written or read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.cluster.client import Client, Listed, WatchEvent
from dragoman.errors import Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

T = TypeVar("T")


class Rates(msgspec.Struct, frozen=True):
    """Probabilities per call (drop and expire per watch event), and the longest delay.

    refuse: not done, the caller gets an error to retry. lose: done, but the answer is lost. conflict: not done,
    somebody
    else is said to have been faster (writes with a version only). drop: a watch ends. expire: its version is too old.
    die: the caller ends before or after the call.
    """

    refuse: float = 0.03
    lose: float = 0.03
    conflict: float = 0.03
    drop: float = 0.02
    expire: float = 0.005
    die: float = 0.004
    delay_s: float = 0.2


class Faults:
    """The faults of one run; `on` may be switched at any time. `counts` tells how many there were of each sort."""

    def __init__(self, entropy: Entropy, rates: Rates | None = None) -> None:
        self.entropy = entropy
        self.rates = rates or Rates()
        self.on = True
        self.counts: dict[str, int] = {}

    def strikes(self, fault: str) -> bool:
        """Whether a fault of that sort (a field of Rates) happens now."""
        if not self.on or not self.entropy.chance(getattr(self.rates, fault)):
            return False
        self.counts[fault] = self.counts.get(fault, 0) + 1
        return True


class FaultyClient:
    """A Client with faults. die: called when the part that uses it is to end; the call then never returns."""

    def __init__(self, inner: Client, faults: Faults, clock: Clock, die: Callable[[], None]) -> None:
        self._inner = inner
        self._faults = faults
        self._clock = clock
        self._die = die

    async def _call(self, work: Callable[[], Awaitable[T]], *, writes: bool, version: bool = False) -> T:
        """version: the write carries a resourceVersion, so that somebody else can have been faster."""
        faults = self._faults
        if faults.on:
            await self._clock.sleep(faults.entropy.between(0.0, faults.rates.delay_s))
        else:
            await self._clock.sleep(0)
        if writes and faults.strikes("die"):
            await self._end()
        if faults.strikes("refuse"):
            raise Retry("injected: the server is not reachable")
        if version and faults.strikes("conflict"):
            raise Stale("injected: conflict")
        answer = await work()
        if writes and faults.strikes("die"):
            await self._end()
        if faults.strikes("lose"):
            raise Retry("injected: the answer was lost")
        return answer

    async def _end(self) -> None:
        self._die()
        await asyncio.get_running_loop().create_future()

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """See Client."""
        return await self._call(lambda: self._inner.get(kind, name, namespace), writes=False)

    async def list(
        self, kind: Kind, namespace: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> Listed:
        """See Client."""
        return await self._call(
            lambda: self._inner.list(kind, namespace, field_selector=field_selector, label_selector=label_selector),
            writes=False,
        )

    async def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """See Client."""
        faults = self._faults
        stream = self._inner.watch(
            kind, resource_version, namespace, field_selector=field_selector, label_selector=label_selector
        )
        async for event in stream:
            if faults.strikes("drop"):
                return
            if faults.strikes("expire"):
                raise Stale("injected: the version is too old")
            if faults.on:
                await self._clock.sleep(faults.entropy.between(0.0, faults.rates.delay_s / 4))
            yield event

    async def create(
        self, kind: Kind, obj: Object, namespace: str = "", *, subresource: str = "", name: str = ""
    ) -> Object:
        """See Client."""
        return await self._call(
            lambda: self._inner.create(kind, obj, namespace, subresource=subresource, name=name), writes=True
        )

    async def replace(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """See Client."""
        return await self._call(
            lambda: self._inner.replace(kind, obj, subresource=subresource), writes=True, version=True
        )

    async def patch(self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Any) -> Object:
        """See Client."""
        version = isinstance(patch, list) or "resourceVersion" in patch.get("metadata", {})
        return await self._call(
            lambda: self._inner.patch(kind, name, patch, namespace, **options), writes=True, version=version
        )

    async def delete(self, kind: Kind, name: str, namespace: str = "", **options: Any) -> None:
        """See Client."""
        version = bool(options.get("resource_version"))
        return await self._call(
            lambda: self._inner.delete(kind, name, namespace, **options), writes=True, version=version
        )

    async def delete_collection(self, kind: Kind, namespace: str = "", **options: Any) -> None:
        """See Client."""
        return await self._call(lambda: self._inner.delete_collection(kind, namespace, **options), writes=True)

    async def close(self) -> None:
        """See Client."""
        await self._inner.close()
