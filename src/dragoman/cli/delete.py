"""`dragoman delete`: remove objects by name or by file."""

from __future__ import annotations

import argparse
import asyncio

from dragoman.api.kinds import Kind
from dragoman.cli import connect, manifests, output
from dragoman.errors import Forbidden, Invalid, NotFound, NotServed


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of delete."""
    parser.add_argument("kind", nargs="?", default="", help="kind or KIND/NAME")
    parser.add_argument("name", nargs="*", default=[])
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", help="manifests, or - for standard input"
    )
    parser.add_argument("--ignore-not-found", action="store_true")
    parser.add_argument("--now", action="store_true", help="delete without a grace period")
    connect.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Delete; 1 if something was not there."""
    return asyncio.run(_delete(args))


def _targets(args: argparse.Namespace) -> list[tuple[Kind, str, str]]:
    if args.filename:
        return [
            (kind, obj["metadata"].get("namespace") or connect.namespace(args), obj["metadata"]["name"])
            for kind, obj in manifests.read(args.filename)
        ]
    word, _, name = args.kind.partition("/")
    names = [name] if name else args.name
    kind = connect.kind_named(word)
    if not names:
        raise Invalid(args.kind, f"name the {kind.plural} to delete: dragoman delete {args.kind} NAME, or -f FILE")
    return [(kind, connect.namespace(args), each) for each in names]


async def _delete(args: argparse.Namespace) -> int:
    if not args.filename and not args.kind:
        output.error("nothing named to delete; usage: dragoman delete KIND NAME, or -f FILE")
        return 2
    status = 0
    async with connect.client(args) as client:
        for kind, scope, name in _targets(args):
            try:
                await client.delete(
                    kind, name, scope if kind.namespaced else "", grace_period_s=0 if args.now else None
                )
                output.write(f"{kind.kind.lower()}/{name} deleted")
            except NotServed:
                raise
            except NotFound as error:
                if not args.ignore_not_found:
                    output.error(str(error))
                    status = max(status, 1)
            except Forbidden as error:
                output.error(str(error))
                status = 2
    return status
