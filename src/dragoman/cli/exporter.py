"""`dragoman exporter`: metrics of any cluster's devices and claims as a daemon. Reads only."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dragoman.cli import serve
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shell import Shell

PORT = 9410


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the exporter."""
    parser.add_argument(
        "--max-nodes",
        type=int,
        default=200,
        metavar="N",
        help="maximum number of nodes with their own series; default: 200",
    )
    parser.add_argument(
        "--by-namespace",
        action="store_true",
        help="add series by namespace: anyone who can reach the address can then read the names of namespaces",
    )
    serve.arguments(parser)
    parser.set_defaults(listen=f"127.0.0.1:{PORT}")
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until signalled."""
    from dragoman.daemon.exporter import Exporter, ExporterSettings  # --help is fast without it

    if args.max_nodes < 0:
        raise Invalid("--max-nodes", f"must be 0 or more, got {args.max_nodes}")
    settings = ExporterSettings(max_nodes=args.max_nodes, by_namespace=args.by_namespace)

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        exporter = Exporter(shell.client, shell.clock, shell.entropy, settings, shell.metrics)
        shell.ready = lambda: exporter.ready
        return exporter.run

    return serve.serve(args, work)
