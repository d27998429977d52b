"""`dragoman get`: what objects are there? The server's own table, or YAML, JSON or names."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from dragoman.api.kinds import Kind
from dragoman.cli import connect, output
from dragoman.errors import NotFound, NotServed

if TYPE_CHECKING:
    from dragoman.api.shape import Object
    from dragoman.cluster.http import HttpClient


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of get."""
    parser.add_argument("kind", help="kind or KIND/NAME, for example pods, claim/NAME, resourceslices")
    parser.add_argument("name", nargs="?", default="", help="name of one object")
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("-o", "--output", choices=["wide", "yaml", "json", "name"], default="")
    parser.add_argument("-l", "--selector", default="", help="label selector, such as app=web")
    parser.add_argument("--field-selector", default="")
    connect.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the objects; 1 if there are none."""
    return asyncio.run(_get(args))


async def _get(args: argparse.Namespace) -> int:
    word, _, name = args.kind.partition("/")
    name = name or args.name
    kind = connect.kind_named(word)
    scope = "" if args.all_namespaces or not kind.namespaced else connect.namespace(args)
    async with connect.client(args) as client:
        try:
            if args.output in ("", "wide"):
                return await _table(client, kind, scope, name, args)
            if name:
                objects = [await client.get(kind, name, scope)]
            else:
                objects = (
                    await client.list(kind, scope, field_selector=args.field_selector, label_selector=args.selector)
                ).items
        except NotServed:
            raise
        except NotFound as error:
            output.error(str(error))
            return 1
    _write(kind, objects, args.output, single=bool(name))
    return 0


def _write(kind: Kind, objects: list[Object], form: str, *, single: bool) -> None:
    if form == "name":
        for obj in objects:
            output.write(f"{kind.plural}/{obj['metadata']['name']}")
        return
    for obj in objects:
        obj["metadata"].pop("managedFields", None)
    whole: Any = objects[0] if single else {"apiVersion": "v1", "kind": "List", "items": objects}
    if form == "json":
        output.write_json(whole, indent=4)
        return
    import yaml  # --help is fast without it

    output.write(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True).rstrip())


async def _table(client: HttpClient, kind: Kind, scope: str, name: str, args: argparse.Namespace) -> int:
    table = await client.table(kind, scope, name, field_selector=args.field_selector, label_selector=args.selector)
    rows = table.get("rows") or []
    if not rows:
        output.say(f"no {kind.plural} found" + (f" in namespace {scope}" if scope else ""))
        return 1
    wide = args.output == "wide"
    shown = [i for i, column in enumerate(table["columnDefinitions"]) if wide or not column.get("priority")]
    header = [table["columnDefinitions"][i]["name"].upper() for i in shown]
    body = [[_cell(row["cells"][i]) for i in shown] for row in rows]
    if args.all_namespaces and kind.namespaced:
        header.insert(0, "NAMESPACE")
        for cells, row in zip(body, rows, strict=True):
            cells.insert(0, row["object"]["metadata"].get("namespace", ""))
    output.write(output.rows(header, body))
    return 0


def _cell(value: Any) -> str:
    return "<none>" if value in (None, "") else str(value)
