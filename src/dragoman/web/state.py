"""What does the page show right now? One state of a cluster, and where it comes from.

A source gives the newest state and says when there is another one. Reading files and listing a cluster is the
caller's; here are only the ways in which a state is kept current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from dragoman.cluster.cache import Cache
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informers
from dragoman.errors import DragomanError
from dragoman.runtime.clock import Clock
from dragoman.snapshot.change import Snapshot
from dragoman.whatif.cluster import objects
from dragoman.whatif.units import Named

POLL_S = 2.0
POLL_FACTOR = 5.0
"""A cluster whose lists take long is asked again after so many times that."""
QUIET_S = 0.3
"""Changes that follow each other so soon are shown together."""


class PageState(msgspec.Struct, frozen=True, eq=False):
    """A snapshot and what belongs to it. number: grows with every state. order: pods as they are decided.

    hidden: kinds that may not be seen; notes: what that means, as sentences. problem: why this state is no longer
    current, "" if it is.
    """

    number: int
    snapshot: Snapshot
    order: tuple[Named, ...] = ()
    hidden: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    problem: str = ""


class StateSource(Protocol):
    """Where states come from. title: the file or server, for people."""

    title: str

    @property
    def current(self) -> PageState:
        """The newest state."""
        ...

    async def after(self, number: int) -> PageState:
        """Waits for a state other than that one."""
        ...

    async def events(self) -> tuple[dict[str, Any], ...]:
        """Event objects as on the wire."""
        ...


class FixedState:
    """Of files: it never changes."""

    def __init__(self, title: str, state: PageState, events: tuple[dict[str, Any], ...]) -> None:
        self.title = title
        self.current = state
        self._events = events

    async def after(self, number: int) -> PageState:
        """Never."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def events(self) -> tuple[dict[str, Any], ...]:
        """Those of the files."""
        return self._events


class _Changing:
    """A state that is replaced. Whoever waits hears of the next one."""

    def __init__(self, title: str, state: PageState) -> None:
        self.title = title
        self.current = state
        self._next = asyncio.Event()

    def _show(self, state: PageState) -> None:
        self.current = state
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, number: int) -> PageState:
        """Waits for a state other than that one."""
        while self.current.number == number:
            await self._next.wait()
        return self.current


class PolledState(_Changing):
    """Of a cluster of which only a part may be seen: listed again and again. `read` gives state and events."""

    def __init__(
        self,
        title: str,
        first: tuple[PageState, tuple[dict[str, Any], ...]],
        read: Callable[[], Awaitable[tuple[PageState, tuple[dict[str, Any], ...]]]],
        clock: Clock,
    ) -> None:
        super().__init__(title, first[0])
        self._events = first[1]
        self._read = read
        self._clock = clock
        self._seen = _versions(first[0].snapshot)

    async def run(self) -> None:
        """Keeps it current until cancelled; a server that does not answer is said on the page."""
        rest_s = POLL_S
        while True:
            await self._clock.sleep(rest_s)
            began = self._clock.monotonic()
            before = self.current
            try:
                state, self._events = await self._read()
            except DragomanError as error:
                if before.problem != str(error):
                    self._show(msgspec.structs.replace(before, number=before.number + 1, problem=str(error)))
            else:
                seen = _versions(state.snapshot)
                if seen != self._seen or before.problem:
                    self._seen = seen
                    self._show(msgspec.structs.replace(state, number=before.number + 1))
            rest_s = max(POLL_S, POLL_FACTOR * (self._clock.monotonic() - began))

    async def events(self) -> tuple[dict[str, Any], ...]:
        """Those of the last list."""
        return self._events


def _versions(snapshot: Snapshot) -> frozenset[tuple[str, str, str, str]]:
    metas = ((kind, value.metadata) for kind, value in objects(snapshot))
    return frozenset((kind, meta.namespace, meta.name, meta.resource_version) for kind, meta in metas)


class WatchedState(_Changing):
    """Of a cluster whose kinds may be watched."""

    def __init__(
        self,
        title: str,
        informers: Informers,
        kinds: tuple[str, ...],
        listed: Callable[[], Awaitable[tuple[dict[str, Any], ...]]],
        clock: Clock,
        first: PageState,
    ) -> None:
        super().__init__(title, first)
        self._cache = Cache(informers, kinds)
        self._listed = listed
        self._clock = clock
        self._changed = asyncio.Event()
        self._cache.listen(lambda changes, before, after: self._changed.set())

    async def synced(self) -> None:
        """Waits until every kind was listed."""
        await self._cache.synced()
        self._take()

    async def run(self) -> None:
        """Shows what has changed until cancelled."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(QUIET_S)
            self._changed.clear()
            self._take()

    def _take(self) -> None:
        snapshot = self._cache.snapshot
        if snapshot is not self.current.snapshot:
            number = self.current.number + 1
            self._show(
                msgspec.structs.replace(self.current, number=number, snapshot=snapshot, order=order_of(snapshot))
            )

    async def events(self) -> tuple[dict[str, Any], ...]:
        """Listed when asked for."""
        return await self._listed()


def order_of(snapshot: Snapshot) -> tuple[Named, ...]:
    """Pods by age, as a scheduler takes them."""
    pods = sorted(snapshot.pods.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    return tuple(("Pod", pod.metadata.namespace, pod.metadata.name) for pod in pods)


async def events_of(client: Client, kind: Any) -> tuple[dict[str, Any], ...]:
    """The events of a cluster, () where they may not be seen."""
    try:
        return tuple((await client.list(kind)).items)
    except DragomanError:
        return ()
