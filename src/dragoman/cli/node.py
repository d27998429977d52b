"""`dragoman node`: add a simulated node to a running embedded cluster, and take it away.

Each added node is a ConfigMap that kubectl can make as well: label dragoman.dev/simulate=node, data node and profile.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from dragoman.cli import connect, fault, output
from dragoman.cli.nodes import node_argument
from dragoman.errors import DragomanError, Invalid, NotFound
from dragoman.kubelet.faults import LABEL, NODE

ANSWER_S = 60.0
EXAMPLES = """examples:
  dragoman node add worker=dgx-h100*2
  dragoman node remove worker-1
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """add or remove, and which."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=type(parser))
    add = verbs.add_parser("add", help="add a node, or N of them")
    add.add_argument("node", type=node_argument, metavar="NAME=PROFILE[*N]")
    remove = verbs.add_parser("remove", help="remove a node that was added with `node add`")
    remove.add_argument("name", metavar="NAME")
    for verb in (add, remove):
        connect.arguments(verb)


def run(args: argparse.Namespace) -> int:
    """Do it and say what came of it."""
    return asyncio.run(_add(args) if args.verb == "add" else _remove(args))


async def _add(args: argparse.Namespace) -> int:
    namespace = connect.namespace(args)
    async with connect.client(args) as client:
        for name, profile in args.node:
            body = fault.config_map(f"node-{name}", NODE, {"node": name, "profile": profile})
            await client.create(fault.CONFIG_MAP, body, namespace)
            try:
                await fault.reported(client, f"node-{name}", namespace, ANSWER_S)
            except DragomanError:
                with suppress(NotFound):
                    await client.delete(fault.CONFIG_MAP, f"node-{name}", namespace)
                raise
    return 0


async def _remove(args: argparse.Namespace) -> int:
    async with connect.client(args) as client:
        namespace = connect.namespace(args)
        found = await client.list(fault.CONFIG_MAP, namespace, label_selector=f"{LABEL}={NODE}")
        names = {item["data"].get("node", ""): item["metadata"]["name"] for item in found.items if item.get("data")}
        if args.name not in names:
            shown = ", ".join(sorted(names)) or "none"
            raise Invalid(f"node {args.name}", f"was not added while the cluster ran; there are: {shown}")
        await client.delete(fault.CONFIG_MAP, names[args.name], namespace)
    output.write(f"removed: {args.name}")
    return 0
