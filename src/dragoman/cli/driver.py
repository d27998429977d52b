"""`dragoman driver NAME`: a driver as the process beside a kubelet, real or ours."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path

from dragoman.cli import serve
from dragoman.drivers.example.run import CDI, ROOT, install, plugin


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags: which driver, then its own."""
    drivers = parser.add_subparsers(dest="driver", required=True, metavar="DRIVER", parser_class=type(parser))
    one = drivers.add_parser("example", help="made-up GPUs, gpu.example.com")
    one.add_argument("--count", type=int, default=8, metavar="N", help="devices; default 8")
    _node_arguments(one)


def _node_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node-name", required=True, metavar="NAME")
    parser.add_argument("--root-dir", type=Path, default=ROOT, metavar="DIR", help="the kubelet's folder")
    parser.add_argument(
        "--cdi-dir", type=Path, metavar="DIR", help="default: /var/run/cdi; with --root-dir DIR: DIR/cdi"
    )
    parser.add_argument("--pod-uid", default="", help="for rolling updates with two instances at a time")
    parser.add_argument("--boot-id", default="", help="of the simulated machine; default: this machine's")
    serve.arguments(parser)
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until told to end; devices stay prepared."""
    default = CDI if args.root_dir == ROOT else args.root_dir / "cdi"

    def work(shell: serve.Shell) -> Callable[[], Awaitable[None]]:
        made = plugin(
            shell.client,
            shell.clock,
            shell.entropy,
            node_name=args.node_name,
            root_dir=args.root_dir,
            cdi_dir=args.cdi_dir or default,
            count=args.count,
            pod_uid=args.pod_uid,
            boot_id=args.boot_id,
            metrics=shell.metrics,
        )
        shell.ready = made.registered.is_set

        async def run() -> None:
            await install(shell.client)
            await made.run()

        return run

    return serve.serve(args, work)
