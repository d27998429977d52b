"""`dragoman doctor`: is this cluster ready for DRA, and what in it contradicts what? Live, read only, or a record.

What to check is decided in `doctor`. Imports stand in functions, so that --help is fast.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from typing import TYPE_CHECKING

from dragoman import __version__
from dragoman.cli import connect, output
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.api.files import Document
    from dragoman.api.shape import Object
    from dragoman.cli.live import LiveObjects
    from dragoman.cluster.http import HttpClient
    from dragoman.doctor.state import ExaminedCluster, ServerFacts

_FEATURE = re.compile(r'^kubernetes_feature_enabled\{name="(\w+)",[^}]*\} ([01])', re.MULTILINE)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of doctor."""
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="a record (dragoman record) or a dump to examine instead of a live cluster; may be repeated",
    )
    connect.arguments(parser)
    parser.add_argument("-o", "--output", choices=["text", "json", "sarif", "markdown"], default="text")


def run(args: argparse.Namespace) -> int:
    """Print the report; 1 if there are blockers."""
    from dragoman.doctor import report as reports
    from dragoman.doctor.check import examine
    from dragoman.doctor.table import CHECKS
    from dragoman.values.visible import json_safe

    state = _of_files(args.filename) if args.filename else asyncio.run(_live(args))
    report = examine(state, CHECKS)
    match args.output:
        case "json":
            output.write_json(output.versioned("DoctorReport", reports.to_json(report)))
        case "sarif":
            print(json_safe(json.dumps(reports.to_sarif(report, __version__), indent=2, ensure_ascii=False)))
        case "markdown":
            output.write(reports.to_markdown(report).rstrip("\n"))
        case _:
            output.prose(reports.lines(report))
            output.say(reports.summary(report))
    return 1 if report.blocked else 0


def _of_files(names: list[str]) -> ExaminedCluster:
    """The state that files hold. Raises Invalid for what cannot be understood."""
    from dragoman.api import files
    from dragoman.cli import manifests
    from dragoman.doctor.state import FACTS, facts_of

    documents = files.read_all(manifests.texts(names), changes=True)
    if not documents:
        raise Invalid("-f", "the files hold no objects")
    facts = next((facts_of(document.raw) for document in documents if document.kind_name == FACTS), facts_of({}))
    return _state(", ".join(names), documents, facts)


async def _live(args: argparse.Namespace) -> ExaminedCluster:
    from dragoman.api import files
    from dragoman.cli import live

    async with connect.client(args) as client:
        items, facts, seen = await read(client)
    for line in live.notes(seen):
        output.say(line)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    return _state("the cluster", files.scan([("the cluster", text)]).documents, facts)


def _state(subject: str, documents: list[Document], facts: ServerFacts) -> ExaminedCluster:
    from dragoman.doctor.state import ExaminedCluster
    from dragoman.drivers.registry import DRIVERS, known_drivers
    from dragoman.runtime.clock import Clock
    from dragoman.snapshot.change import HELD, Snapshot

    objects = [(d.kind_name, d.value) for d in documents if d.kind_name in HELD and d.value is not None]
    checks = {entry.name: entry.gates.check for entry in DRIVERS if entry.gates is not None}
    return ExaminedCluster(
        subject,
        tuple(documents),
        Snapshot.from_objects(objects),
        Clock().utc(),
        facts,
        known_drivers(),
        checks,
        {},
    )


async def read(client: HttpClient) -> tuple[list[Object], ServerFacts, LiveObjects]:
    """All that doctor examines: objects, facts of the server, and what was not visible. Writes nothing."""
    from dragoman.cli import live
    from dragoman.doctor.state import HELD_KINDS

    seen = await live.read(client, HELD_KINDS)
    more, facts = await beside(client, seen)
    return [*(item for items in seen.found.values() for item in items), *more], facts, seen


async def beside(client: HttpClient, seen: LiveObjects) -> tuple[list[Object], ServerFacts]:
    """What doctor examines beside the kinds that decisions read, and what no object says. Writes nothing."""
    from dragoman.api.kinds import kind_of
    from dragoman.cli import live
    from dragoman.doctor.state import CUSTOM, NAMED, RIGHTS, ServerFacts
    from dragoman.errors import Denied, Forbidden, NotFound

    hidden = {entry.kind for entry in seen.hidden}
    kinds, items = set(seen.found) - hidden, []
    for kind in (*map(kind_of, RIGHTS), *CUSTOM):
        try:
            items += (await client.list(kind)).items
            kinds.add(kind.kind)
        except NotFound:
            kinds.add(kind.kind)
        except Forbidden:
            hidden.add(kind.kind)
    for name_of_kind, namespace, name in NAMED:
        try:
            items.append(await client.get(kind_of(name_of_kind), name, namespace))
        except (NotFound, Forbidden):
            continue
    gates: Mapping[str, bool] | None = None
    try:
        gates = {name: on == "1" for name, on in _FEATURE.findall(await client.text("/metrics"))}
    except (Denied, NotFound):
        output.say(
            f"note: the metrics of the API server are not visible to {live.who(client)}: its gates are not known"
        )
    version = await client.server_version()
    facts = ServerFacts(
        version=str(version.get("gitVersion", "")),
        api=await client.version_of(kind_of("ResourceSlice")),
        gates=gates or None,
        kinds=frozenset(kinds),
        hidden=frozenset(hidden),
    )
    return items, facts
