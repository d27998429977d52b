"""`dragoman record`: a cluster's DRA state in one file, for every command that takes -f. Reads only.

What no decision needs is left out: environments, commands and arguments of containers, managed fields. What only
`dragoman doctor` reads (roles, webhooks, facts of the server) is added where it may be seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from dragoman.api.shape import Object, items, objects
from dragoman.cli import connect, live, output
from dragoman.cluster.client import Client
from dragoman.errors import Denied
from dragoman.snapshot.change import HELD

KINDS = (*sorted(HELD), "Event")
_UNNEEDED = ("env", "envFrom", "command", "args")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of record."""
    connect.arguments(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, or - for stdout")


def run(args: argparse.Namespace) -> int:
    """Write the file; 0."""
    found, seen = asyncio.run(_recorded(args))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, separators=(",", ":"))
    for line in live.notes(seen):
        output.say(line)
    if args.output == "-":
        output.write(text)
        return 0
    _write(Path(args.output), text + "\n")
    output.say(f"{len(found)} objects in {args.output}")
    return 0


def _write(path: Path, text: str) -> None:
    """The whole file or none of it; for the owner's eyes, as clusters' states are."""
    part = path.with_name(f".{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Denied(f"{path}: cannot be written: {error.strerror}") from None


async def _recorded(args: argparse.Namespace) -> tuple[list[Object], live.LiveObjects]:
    from dragoman.cli import doctor
    from dragoman.doctor.state import FACTS, facts_as_json

    async with connect.client(args) as client:
        found, seen = await recorded(client, args.namespace, own=client.access.namespace)
        if args.namespace:
            return found, seen
        more, facts = await doctor.beside(client, seen)
    return [*found, *map(_needed, more), output.versioned(FACTS, facts_as_json(facts))], seen


async def recorded(client: Client, namespace: str = "", *, own: str = "") -> tuple[list[Object], live.LiveObjects]:
    """The objects that decisions need (of one namespace, if named), and what was seen of the cluster.

    own: the namespace that is read where the whole cluster may not be. Errors: as `live.read`.
    """
    seen = await live.read(client, KINDS, namespace=namespace, own=own)
    found = {name: [_needed(item) for item in items] for name, items in seen.found.items()}
    found.get("Pod", []).sort(key=_age)  # as explain takes those of a live cluster: files are decided in their order
    return [item for name in KINDS for item in found.get(name, ())], seen


def _age(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]


def _needed(obj: Object) -> Object:
    """A copy without what no decision reads."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    if _LAST_APPLIED in metadata.get("annotations", {}):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != _LAST_APPLIED}
    needed: Object = _without_secrets({**obj, "metadata": metadata})
    return needed


def _without_secrets(value: Any) -> Any:
    """Containers, wherever they stand, without what they are started with."""
    if isinstance(value, list):
        return [_without_secrets(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    is_container = isinstance(value.get("name"), str) and "image" in value
    needed = {k: _without_secrets(v) for k, v in value.items() if not (is_container and k in _UNNEEDED)}
    return {**needed, **_gates_of(value)} if is_container else needed


def _gates_of(container: Object) -> Object:
    """The feature gates that a container is started with, which are no secrets."""
    found: Object = {}
    flags = [flag for field in ("command", "args") for flag in items(container, field) if _is_gates(flag)]
    if flags:
        found["args"] = flags
    gates = [entry for entry in objects(container, "env") if entry.get("name") == "FEATURE_GATES"]
    if gates:
        found["env"] = gates
    return found


def _is_gates(flag: object) -> bool:
    return isinstance(flag, str) and flag.startswith("--feature-gates=")
