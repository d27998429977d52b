"""`dragoman explain KIND/NAME` for custom kinds of a live cluster: does anything reconcile the object?"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.cli import connect, output
from dragoman.errors import Forbidden, Invalid

if TYPE_CHECKING:
    from dragoman.api.kinds import Kind
    from dragoman.cluster.client import Client


def run(args: argparse.Namespace, word: str, unknown: Invalid) -> int:
    """Print the answer; 1 where nothing reconciles it. Raises `unknown` where no definition names the kind."""
    return asyncio.run(_run(args, word, unknown))


async def _run(args: argparse.Namespace, word: str, unknown: Invalid) -> int:
    from dragoman.api.kinds import kind_of
    from dragoman.explain.reconciled import reconciled, reconciled_lines
    from dragoman.explain.state import events_of

    named, slash, name = word.partition("/")
    if not slash or not name:
        raise unknown
    async with connect.client(args) as client:
        kind = await _custom(client, named.lower())
        if kind is None:
            raise unknown
        namespace = connect.namespace(args) if kind.namespaced else ""
        obj = await client.get(kind, name, namespace)
        try:
            events = (await client.list(kind_of("Event"), namespace)).items
        except Forbidden:
            events = []
    facts = reconciled(obj, events_of(events))
    if args.output == "json":
        body: dict[str, Any] = {"custom": [msgspec.to_builtins(facts)], "errors": [], "warnings": []}
        output.write_json(output.versioned("Explanation", body))
    else:
        output.prose(reconciled_lines(facts))
    return 0 if facts.reconciled else 1


async def _custom(client: Client, word: str) -> Kind | None:
    """The kind that a plural, singular or short name stands for, with or without its group."""
    from dragoman.api.kinds import Kind, kind_of

    plain, _, group = word.partition(".")
    for definition in (await client.list(kind_of("CustomResourceDefinition"))).items:
        spec = definition["spec"]
        names = spec["names"]
        known = {names["plural"], names["kind"].lower(), *names.get("shortNames", ())}
        if plain in known and spec["group"].startswith(group):
            served = tuple(version["name"] for version in spec["versions"] if version.get("served"))
            return Kind(names["kind"], names["plural"], spec["group"], served, spec["scope"] == "Namespaced")
    return None
