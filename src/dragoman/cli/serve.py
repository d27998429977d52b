"""What do all daemons share on the command line? How to reach the cluster, where to listen, and when to end.

Every flag can also be given as DRAGOMAN_FLAG in the environment; the flag wins.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from dragoman.cli import connect, output
from dragoman.cluster.client import Client
from dragoman.cluster.lease import Elector, LeaseSettings
from dragoman.daemon.health import listening
from dragoman.runtime import log
from dragoman.runtime.clock import Clock
from dragoman.runtime.config import variable
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks


class Shell:
    """What a daemon is given: client, clock, entropy, metrics; it sets `ready` once it works."""

    def __init__(self, client: Client, clock: Clock, entropy: Entropy) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.metrics = Metrics()
        self.ready: Callable[[], bool] = lambda: True


Work = Callable[[Shell], Callable[[], Awaitable[None]]]
"""Makes the daemon's endless coroutine function from its shell."""


def arguments(parser: argparse.ArgumentParser, *, lease: str = "") -> None:
    """Flags of every daemon; lease names the Lease of replicas, empty for daemons of one node."""
    connect.arguments(parser)
    listening_arguments(parser)
    if lease:
        parser.add_argument(
            "--lease-name", default=lease, metavar="NAME", help="replicas elect one by this Lease; empty: none"
        )
        parser.add_argument("--lease-namespace", default="kube-system", metavar="NS")
        parser.add_argument("--identity", default=os.uname().nodename, metavar="NAME", help="this replica in the Lease")


def listening_arguments(parser: argparse.ArgumentParser) -> None:
    """Where a daemon listens and how it logs."""
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="metrics and health; default: any free port of loopback",
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", default="auto", choices=["auto", "human", "json"])


def from_environment(parser: argparse.ArgumentParser) -> None:
    """Let DRAGOMAN_* give what no flag gives."""
    for action in parser._actions:
        for option in action.option_strings:
            value = os.environ.get(variable(option)) if option.startswith("--") else None
            if value is not None:
                action.default = value if action.nargs != 0 else value.lower() in ("1", "true", "yes")
                action.required = False


def serve(args: argparse.Namespace, work: Work) -> int:
    """Run until SIGINT or SIGTERM; 0."""
    log.setup(level=args.log_level, format=args.log_format)
    return asyncio.run(_serve(args, work))


async def _serve(args: argparse.Namespace, work: Work) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with connect.client(args) as client:
        shell = Shell(client, Clock(), Entropy())
        run = work(shell)
        if getattr(args, "lease_name", ""):
            run = _led(shell, args, run)
        async with (
            listening(args.listen, shell.metrics, lambda: shell.ready()) as url,
            Tasks("dragoman", shell.clock, shell.entropy) as tasks,
        ):
            output.say(f"metrics and health: {url}")
            tasks.supervise("daemon", run)
            await stop.wait()
            tasks.stop()
    return 0


def _led(shell: Shell, args: argparse.Namespace, run: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    identity = f"{args.identity}_{shell.entropy.uuid4()}"
    settings = LeaseSettings(args.lease_name, args.lease_namespace, identity)
    elector = Elector(shell.client, shell.clock, shell.entropy, settings)

    async def lead() -> None:
        await run()

    return lambda: elector.run(lead)
