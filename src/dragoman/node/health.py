"""How healthy are the devices, as the kubelet may hear it? One source, any number of streams.

Passes on what the driver says, the latest complete list first. It decides nothing about health.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from dragoman.node.driver import DeviceHealth, ReportsHealth

MESSAGE_MAX = 1024


class HealthHub:
    """Runs the driver's health stream once and lets streams follow it."""

    def __init__(self, source: ReportsHealth) -> None:
        self._source = source
        self._closed = False
        self._latest: tuple[DeviceHealth, ...] | None = None
        self._changed = asyncio.Event()

    @property
    def latest(self) -> tuple[DeviceHealth, ...]:
        """The last complete list."""
        return self._latest or ()

    async def run(self) -> None:
        """Follow the driver; ends when its stream ends, raises what it raises."""
        self._closed = False
        async for devices in self._source.health():
            self._report(devices)

    def _report(self, devices: Sequence[DeviceHealth]) -> None:
        self._latest = tuple(devices)
        self._wake()

    def close(self) -> None:
        """End all streams: the plugin stops."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def follow(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """Every list from now on, the current one first; a slow follower misses lists, never the last one."""
        while not self._closed:
            changed = self._changed
            if self._latest is not None:
                yield self._latest
            await changed.wait()
