"""`dragoman explain --watch`: a daemon that writes as an Event on each pending pod why it waits. Its only write."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dragoman.cli import serve, simulate
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from dragoman.cli.shell import Shell


def arguments(parser: argparse.ArgumentParser) -> None:
    """--watch, and what goes with it."""
    parser.add_argument(
        "--watch", action="store_true", help="keep running and write the reason as an event on pending pods"
    )
    serve.listening_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until signalled."""
    from dragoman.daemon.explainer import Explainer  # --help is fast without it

    if args.filename or args.object:
        raise Invalid("--watch", "watches all pods of a live cluster: it cannot be combined with -f or an object")
    options = simulate.options_of(args)

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        explainer = Explainer(shell.client, shell.clock, shell.entropy, options, shell.metrics)
        shell.ready = lambda: explainer.ready
        return explainer.run

    return serve.serve(args, work)
