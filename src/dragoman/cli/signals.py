"""When does a command that serves end? At SIGINT or SIGTERM, also during its start; a second signal ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

INTERRUPTED = 130


def run(serve: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run serve(stop); stop is set by the first signal. 0, or 130 if the signal came before serve waited for it."""
    return asyncio.run(_run(serve))


async def _run(serve: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    stop = _Stop()
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(serve(stop))

    def end() -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()
        if not stop.awaited:
            serving.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        await serving
    except asyncio.CancelledError:
        return INTERRUPTED
    return 0


class _Stop(asyncio.Event):
    """An event that knows whether somebody came as far as to wait for it."""

    awaited = False

    async def wait(self) -> bool:  # type: ignore[override]
        """Wait until it is set."""
        self.awaited = True
        return await super().wait()
