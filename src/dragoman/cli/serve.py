"""What do all daemons share on the command line? How to reach the cluster, where to listen, and when to end.

Every flag can also be given as DRAGOMAN_FLAG in the environment; the flag wins.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from dragoman.cli import connect
from dragoman.errors import Invalid
from dragoman.runtime.config import variable

if TYPE_CHECKING:
    from dragoman.cli.shell import Work


def arguments(parser: argparse.ArgumentParser, *, lease: str = "") -> None:
    """Flags of every daemon; lease names the Lease of replicas, empty for daemons of one node."""
    connect.arguments(parser)
    listening_arguments(parser)
    if lease:
        parser.add_argument(
            "--lease-name", default=lease, metavar="NAME", help="name of the leader-election Lease; empty disables it"
        )
        parser.add_argument("--lease-namespace", default="kube-system", metavar="NS")
        parser.add_argument(
            "--identity", default=os.uname().nodename, metavar="NAME", help="name of this replica in the Lease"
        )


def listening_arguments(parser: argparse.ArgumentParser) -> None:
    """Where a daemon listens and how it logs."""
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="address of metrics and health checks; default: any free port on loopback",
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", default="auto", choices=["auto", "human", "json"])


def from_environment(parser: argparse.ArgumentParser) -> None:
    """Let DRAGOMAN_* give what no flag gives. Raises Invalid for a value that the flag would not take."""
    for action in parser._actions:
        for option in action.option_strings:
            value = os.environ.get(variable(option)) if option.startswith("--") else None
            if value is not None:
                if action.choices is not None and value not in action.choices:
                    choices = ", ".join(map(str, action.choices))
                    raise Invalid(variable(option), f"must be one of {choices}, got {value!r}")
                action.default = value if action.nargs != 0 else value.lower() in ("1", "true", "yes")
                action.required = False


def serve(args: argparse.Namespace, work: Work) -> int:
    """Run until SIGINT or SIGTERM; 0."""
    from dragoman.cli import shell  # --help is fast without HTTP
    from dragoman.runtime import log

    log.setup(level=args.log_level, format=args.log_format)
    return shell.run(args, work)
