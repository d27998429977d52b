"""`dragoman apply`: make the cluster hold what these files say, by server-side apply."""

from __future__ import annotations

import argparse
import asyncio

from dragoman.cli import connect, manifests, output
from dragoman.errors import Forbidden, Invalid, NotFound, NotServed, Stale


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of apply."""
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="manifests, a folder, or - for standard input",
    )
    connect.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Apply all objects; 1 if the server refused one, 2 for want of rights.

    The others are applied all the same, as kubectl does.
    """
    return asyncio.run(_apply(args))


async def _apply(args: argparse.Namespace) -> int:
    objects = manifests.read(args.filename)
    scope = connect.namespace(args)
    status = 0
    async with connect.client(args) as client:
        for kind, obj in objects:
            meta = obj["metadata"]
            namespace = meta.get("namespace") or scope if kind.namespaced else ""
            label = f"{kind.kind.lower()}/{meta['name']}"
            try:
                before = await client.get(kind, meta["name"], namespace)
            except NotServed:
                raise
            except NotFound:
                before = None
            except Forbidden:
                before = {}  # there may be one: who may write it need not be allowed to read it
            try:
                after = await client.patch(
                    kind, meta["name"], obj, namespace, type="apply", manager="dragoman-apply", force=True, strict=True
                )
            except (Invalid, Stale, NotFound, Forbidden) as error:
                output.error(f"{label}: {error}")
                status = max(status, 2 if isinstance(error, Forbidden) else 1)
                continue
            output.write(f"{label} {_outcome(before, after)}")
    return status


def _outcome(before: dict[str, object] | None, after: dict[str, object]) -> str:
    if before is None:
        return "created"
    if not before:
        return "applied"

    def version(obj: dict[str, object]) -> object:
        return obj["metadata"]["resourceVersion"]  # type: ignore[index]

    return "unchanged" if version(before) == version(after) else "configured"
