"""`dragoman describe`: what is this object, and what happened to it? Its fields and its events."""

from __future__ import annotations

import argparse
import asyncio

import yaml

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cli import connect, output
from dragoman.errors import Forbidden, NotFound, NotServed

# Bookkeeping of the server that tells a reader nothing.
HIDDEN = ("managedFields", "selfLink", "resourceVersion", "generation", "uid")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of describe."""
    parser.add_argument("kind", help="kind or KIND/NAME")
    parser.add_argument("name", nargs="?", default="")
    connect.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print one object and its events; 1 if it does not exist."""
    return asyncio.run(_describe(args))


async def _describe(args: argparse.Namespace) -> int:
    word, _, name = args.kind.partition("/")
    kind = connect.kind_named(word)
    name = name or args.name
    if not name:
        output.error(f"name a {kind.kind}: dragoman describe {word} NAME")
        return 2
    scope = connect.namespace(args) if kind.namespaced else ""
    async with connect.client(args) as client:
        try:
            obj = await client.get(kind, name, scope)
        except NotServed:
            raise
        except NotFound as error:
            output.error(str(error))
            return 1
        selector = f"involvedObject.name={name},involvedObject.uid={obj['metadata'].get('uid', '')}"
        hidden = ""
        try:
            events = (await client.list(kind_of("Event"), scope, field_selector=selector)).items
        except Forbidden:
            events, hidden = [], f" not visible to {client.access.who}"
    output.write(_fields(obj))
    output.write("Events:" + (hidden or " <none>" if not events else ""))
    if events:
        body = [
            (e.get("type", ""), e.get("reason", ""), str(e.get("count") or 1), _source(e), e.get("message", ""))
            for e in sorted(events, key=lambda e: e.get("lastTimestamp") or e.get("eventTime") or "")
        ]
        output.write(output.rows(("TYPE", "REASON", "COUNT", "FROM", "MESSAGE"), body, indent="  "))
    return 0


def _source(event: Object) -> str:
    return str(event.get("reportingComponent") or (event.get("source") or {}).get("component", ""))


def _fields(obj: Object) -> str:
    metadata = {k: v for k, v in obj["metadata"].items() if k not in HIDDEN}
    notes = {k: v for k, v in (metadata.pop("annotations", None) or {}).items() if k != LAST_APPLIED}
    if notes:
        metadata["annotations"] = notes
    head = {"Name": metadata.pop("name"), "Kind": obj.get("kind", "")}
    if "namespace" in metadata:
        head["Namespace"] = metadata.pop("namespace")
    rest = {k.capitalize(): v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
    whole = {**head, "Metadata": metadata, **rest}
    return str(yaml.safe_dump(whole, sort_keys=False, default_flow_style=False, allow_unicode=True)).rstrip()
