"""`dragoman controllers`: the controllers as a daemon."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dragoman.cli import output, serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shell import Shell

DASHED = ("--controllers",)
"""Flags whose values may begin with a hyphen."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the controllers."""
    parser.add_argument(
        "--controllers", default="*", metavar="NAME,...", help="controllers to run: * for all, -NAME to leave one out"
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="run the named controllers beside a kube-controller-manager that was started without them",
    )
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="NAME=true,...",
        help="feature gates, with Kubernetes' names and defaults",
    )
    serve.arguments(parser, lease="dragoman-controllers")
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until signalled."""
    from dragoman.api.gates import lenient_gates
    from dragoman.daemon import coexistence
    from dragoman.daemon.controllers import Controllers, ControllerSettings  # --help is fast without it

    gates, unknown = lenient_gates(args.feature_gates)
    for name in unknown:
        output.say(f"warning: --feature-gates: {name} is not known here and changes nothing")
    settings = ControllerSettings(controllers=tuple(args.controllers.split(",")), gates=gates)

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        async def before() -> None:
            await coexistence.check_controllers(
                shell.client, shell.clock, settings.controllers, take_over=args.take_over
            )

        shell.before = before
        controllers = Controllers(shell.client, shell.clock, shell.entropy, settings, shell.metrics)
        shell.ready = lambda: controllers.ready
        if args.take_over:
            return controllers.run
        return lambda: coexistence.while_alone(shell.client, shell.clock, shell.entropy, controllers.run)

    return serve.serve(args, work)
