"""`dragoman node-agent`: the node agent of one simulated machine, as a daemon of its own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import places, serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shell import Shell


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the node agent."""
    parser.add_argument("--node-name", required=True, metavar="NAME")
    parser.add_argument(
        "--root-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the agent (/var/lib/kubelet on real nodes); keep the path short, since it holds sockets",
    )
    parser.add_argument(
        "--simulate",
        metavar="PROFILE",
        help="use CPU, memory and labels of this machine profile; default: 32 CPUs, 256Gi",
    )
    parser.add_argument("--profile", action="append", type=Path, metavar="FILE", help="file with more machine profiles")
    parser.add_argument("--boot-id", default="", help="boot ID of the simulated machine; default: that of this machine")
    serve.arguments(parser)
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until signalled; containers of a simulated node go on."""
    from dragoman.kubelet.agent import NodeAgent  # --help is fast without it

    places.check_node(args.node_name)
    properties = None
    if args.simulate:
        from dragoman.daemon.machines import node_properties

        properties = node_properties(args.simulate, tuple(args.profile or ()), f"--simulate {args.simulate}")
    places.check_root(args.root_dir, "pod-resources/kubelet.sock")
    places.hold_root(args.root_dir, "node agent")

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        agent = NodeAgent(
            args.node_name,
            shell.client,
            shell.clock,
            args.root_dir,
            entropy=shell.entropy,
            facts=properties,
            boot_id=args.boot_id,
            metrics=shell.metrics,
        )
        shell.ready = agent.started.is_set
        return agent.run

    return serve.serve(args, work)
