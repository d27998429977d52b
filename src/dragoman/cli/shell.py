"""How does a daemon run from the command line? Client, clock and metrics made, served, and ended by a signal."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from dragoman.cli import connect, output, signals
from dragoman.cluster.client import Client
from dragoman.cluster.lease import Elector, LeaseSettings, LedClient
from dragoman.daemon.health import listening
from dragoman.errors import Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import LOOP_BACKOFF, Tasks


class Shell:
    """What a daemon is given: client, clock, entropy, metrics; it sets `ready` once it works."""

    def __init__(self, client: Client, clock: Clock, entropy: Entropy) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.metrics = Metrics()
        self.reports: dict[str, Callable[[], Mapping[str, Any]]] = {}
        """Paths beside those of metrics and health checks, each with what makes its JSON."""
        self.ready: Callable[[], bool] = lambda: True
        self.before: Callable[[], Awaitable[None]] | None = None
        """What must succeed before the daemon starts; its error ends the command."""


Work = Callable[[Shell], Callable[[], Awaitable[None]]]
"""Makes the daemon's endless coroutine function from its shell."""


def run(args: argparse.Namespace, work: Work) -> int:
    """Run until SIGINT or SIGTERM; 0."""
    return signals.run(lambda stop: _serve(args, work, stop))


async def _serve(args: argparse.Namespace, work: Work, stop: asyncio.Event) -> None:
    async with connect.client(args) as client:
        shell = Shell(client, Clock(), Entropy())
        run = _led(shell, args, work) if getattr(args, "lease_name", "") else work(shell)
        if shell.before is not None:
            await _once_reached(shell, shell.before)
        async with (
            listening(args.listen, shell.metrics, lambda: shell.ready(), shell.reports) as url,
            Tasks("dragoman", shell.clock, shell.entropy) as tasks,
        ):
            output.say(f"metrics and health: {url}")
            tasks.supervise("daemon", run)
            await stop.wait()
            tasks.stop()


async def _once_reached(shell: Shell, before: Callable[[], Awaitable[None]]) -> None:
    """Wait for a server that does not answer yet; any other error is the caller's."""
    failures = 0
    while True:
        try:
            return await before()
        except Retry as error:
            failures += 1
            wait_s = error.after_s or LOOP_BACKOFF.wait_s(failures, shell.entropy)
            get("start").warning("the server does not answer yet", error=str(error), wait_s=round(wait_s, 3))
            await shell.clock.sleep(wait_s)


def _led(shell: Shell, args: argparse.Namespace, work: Work) -> Callable[[], Awaitable[None]]:
    identity = f"{args.identity}_{shell.entropy.uuid4()}"
    settings = LeaseSettings(args.lease_name, args.lease_namespace, identity, *getattr(args, "lease_timing", ()))
    elector = Elector(shell.client, shell.clock, shell.entropy, settings)
    shell.client = cast(Client, LedClient(shell.client, elector, settings.name))
    run = work(shell)

    async def lead() -> None:
        await run()

    return lambda: elector.run(lead)
