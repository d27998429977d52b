"""How does a daemon run from the command line? Client, clock and metrics made, served, and ended by a signal."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from dragoman.cli import connect, output, signals
from dragoman.cluster.client import Client
from dragoman.cluster.lease import Elector, LeaseSettings, LedClient
from dragoman.cluster.reach import reach_of
from dragoman.daemon.health import listening
from dragoman.errors import Denied, Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import LOOP_BACKOFF, Tasks

RUNS_S = 5.0
"""A daemon that was started again and runs so long has got over what ended it."""


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
        self.live: Callable[[], Awaitable[bool]] = _always
        """Whether the daemon serves; one that does not is restarted by whoever watches over it."""
        self.elector: Elector | None = None
        self.problem = "starting"
        """What keeps the daemon from starting or going on; empty while it runs."""
        self.before: Callable[[], Awaitable[None]] | None = None
        """What must succeed before the daemon starts; its error ends the command."""

    def problems(self) -> list[str]:
        """Why this daemon is not ready, one line each. A replica that waits for the Lease is ready to take over."""
        found = [self.problem] if self.problem else []
        if self.elector is not None and self.elector.problem:
            found.append(f"lease: {self.elector.problem}")
        found += reach_of(self.client).problems()
        waits_for_lease = self.elector is not None and not self.elector.is_leader
        if not found and not waits_for_lease and not self.ready():
            found.append("starting")
        return found


async def _always() -> bool:
    return True


Work = Callable[[Shell], Callable[[], Awaitable[None]]]
"""Makes the daemon's endless coroutine function from its shell."""


def run(args: argparse.Namespace, work: Work) -> int:
    """Run until SIGINT or SIGTERM; 0."""
    return signals.run(lambda stop: _serve(args, work, stop))


async def _serve(args: argparse.Namespace, work: Work, stop: asyncio.Event) -> None:
    async with connect.client(args) as client:
        shell = Shell(client, Clock(), Entropy())
        run = _led(shell, args, work) if getattr(args, "lease_name", "") else work(shell)
        async with listening(args.listen, shell.metrics, shell.problems, lambda: shell.live(), shell.reports) as url:
            output.say(f"metrics and health: {url}")
            if shell.before is not None:
                await _once_allowed(shell, shell.before)
            shell.problem = ""
            async with Tasks("dragoman", shell.clock, shell.entropy) as tasks:
                tasks.supervise("daemon", _reported(shell, run))
                await stop.wait()
                tasks.stop()


def _reported(shell: Shell, run: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """`run`, whose end by an error is seen in /readyz until it has run for a while again."""

    async def reported() -> None:
        forget = shell.clock.call_later(RUNS_S, lambda: setattr(shell, "problem", ""))
        try:
            await run()
        except Exception as error:
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            shell.problem = str(error) or type(error).__name__
            raise
        finally:
            forget.cancel()

    return reported


async def _once_allowed(shell: Shell, before: Callable[[], Awaitable[None]]) -> None:
    """Wait for a server that does not answer yet, or refuses: rights may be granted later. Raises Invalid."""
    failures = 0
    while True:
        try:
            await before()
        except (Retry, Denied) as error:
            failures += 1
            wait_s = LOOP_BACKOFF.wait_s(failures, shell.entropy)
            if isinstance(error, Retry) and error.after_s:
                wait_s = max(wait_s, error.after_s)
            if str(error) != shell.problem:
                get("start").warning("cannot start yet, trying again", error=str(error), wait_s=round(wait_s, 3))
            shell.problem = str(error)
            await shell.clock.sleep(wait_s)
        else:
            return


def _led(shell: Shell, args: argparse.Namespace, work: Work) -> Callable[[], Awaitable[None]]:
    identity = f"{args.identity}_{shell.entropy.uuid4()}"
    settings = LeaseSettings(args.lease_name, args.lease_namespace, identity, *getattr(args, "lease_timing", ()))
    elector = shell.elector = Elector(shell.client, shell.clock, shell.entropy, settings)
    shell.client = cast(Client, LedClient(shell.client, elector, settings.name))
    run = work(shell)

    async def lead() -> None:
        await run()

    return lambda: elector.run(lead)
