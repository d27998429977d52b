"""What do tools decide on? Files as `kubectl get -o yaml` prints them, or a live cluster, read only, as one Snapshot.

Reading is lenient (architecture: "Bare objects"): what is wrong in an object is for the decision to say, or for lint.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.cli import connect, output

if TYPE_CHECKING:  # what flags do not need is imported where it is used, so that --help is fast
    from dragoman.api.files import Document
    from dragoman.api.gates import Gates
    from dragoman.api.shape import Object
    from dragoman.cli.diagnostic import Diagnostic
    from dragoman.cluster.client import Client
    from dragoman.snapshot.change import Snapshot
    from dragoman.whatif.cluster import Rejection
    from dragoman.whatif.units import Named

NOT_ASKED_FOR = frozenset({"CronJob", "ReplicationController", "PriorityClass"})
"""Kinds that a snapshot holds and a live cluster is not asked for."""

FROZEN_MIN = 5_000
"""Objects that are so many that looking for garbage among them is felt."""


class RejectedDocument(NamedTuple):
    """An object of a file that an API server would refuse."""

    document: Document
    rejection: Rejection

    @property
    def diagnostic(self) -> Diagnostic:
        """The refusal for people, with its place."""
        from dragoman.cli.diagnostic import Diagnostic

        line, start, end = self.document.span(self.rejection.field)
        where = ": ".join(filter(None, (self.document.subject, self.rejection.field)))
        message = f"the API server would refuse this: {self.rejection.message}"
        help_ = self.rejection.help
        return Diagnostic("error", message, self.document.file, line, "", where, help_, start=start, end=end)

    def as_json(self) -> dict[str, Any]:
        """The same as an entry of `errors`."""
        return _entry(self.document, self.rejection.field, self.rejection.message)


class DocumentWarning(NamedTuple):
    """What the API server takes from a file and does not do as it is written there."""

    document: Document
    field: str
    message: str
    help: str

    @property
    def diagnostic(self) -> Diagnostic:
        """The warning for people, with its place."""
        from dragoman.cli.diagnostic import Diagnostic

        where = ": ".join(filter(None, (self.document.subject, self.field)))
        line, start, end = self.document.span(self.field, named=True)
        return Diagnostic("warning", self.message, self.document.file, line, "", where, self.help, start=start, end=end)

    def as_json(self) -> dict[str, Any]:
        """The same as an entry of `warnings`."""
        return _entry(self.document, self.field, self.message)


def _entry(document: Document, field: str, message: str) -> dict[str, Any]:
    return {
        "file": document.file,
        "document": document.number,
        "line": document.line(field),
        "object": document.subject,
        "field": field,
        "message": message,
    }


class ToolInput(NamedTuple):
    """A snapshot and what tools need beside it.

    order: pods and workloads in file order (for a live cluster, pods by creation time). documents: as read, for
    places; empty for a live cluster. events: Event objects, as on the wire. refused: objects of the files that an API
    server would not take, which are not in the snapshot. warnings: fields of the files that it would drop.
    hidden: kinds of a live cluster that may not be seen at all;
    who: the user who may not. leases: as on the wire, of schedulers among others; of a live cluster only where pods
    are pending or name another scheduler than the default one.
    """

    snapshot: Snapshot
    order: tuple[Named, ...]
    documents: tuple[Document, ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    refused: tuple[RejectedDocument, ...] = ()
    warnings: tuple[DocumentWarning, ...] = ()
    hidden: frozenset[str] = frozenset()
    who: str = ""
    leases: tuple[dict[str, Any], ...] = ()

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is refused and what is dropped, for people."""
        return [*(entry.diagnostic for entry in self.refused), *(entry.diagnostic for entry in self.warnings)]


def arguments(parser: argparse.ArgumentParser, *, live: bool = True) -> None:
    """-f, --feature-gates and, if live, the flags that name a cluster."""
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="manifests or dumps, a folder, or - for standard input; may be repeated",
    )
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="NAME=true,...",
        help="feature gates, with Kubernetes' names and defaults",
    )
    if live:
        connect.arguments(parser)


def gates(args: argparse.Namespace) -> Gates:
    """The gates of --feature-gates; what follows from one that is turned off is said on stderr. Raises Invalid."""
    from dragoman.api.gates import parse_gates

    found, notes = parse_gates(args.feature_gates)
    for note in notes:
        output.say(f"note: {note}")
    return found


def tool_input(args: argparse.Namespace, gates: Gates | None = None) -> ToolInput:
    """From the files if there are any, else from the cluster. Raises Invalid, NotFound, Denied, Retry."""
    if args.filename:
        return from_files(args.filename, gates)
    import asyncio  # a sixth of the time of a command that reads files only

    return asyncio.run(from_cluster(args))


async def world_now(args: argparse.Namespace) -> ToolInput:
    """The same for those who wait in between."""
    return from_files(args.filename) if args.filename else await from_cluster(args)


def from_files(names: Sequence[str], gates: Gates | None = None) -> ToolInput:
    """The objects of these files. Raises Invalid for the first thing that cannot be understood.

    An object that a later file has again is changed, as `kubectl apply` would change it.
    gates: of the API server that judges objects which no server has taken yet; default: Kubernetes' defaults.
    """
    from dragoman.api import files
    from dragoman.cli import progress

    texts = _texts(names)
    with progress.reading(texts, passes=2) as reported, _without_collections():
        found = _of(files.read_all(texts, reported, changes=True), reported, gates)
        if len(found.documents) > FROZEN_MIN:
            gc.freeze()  # it lives as long as the process: no collection need look at it, the first one included
    return found


def from_texts(texts: Sequence[tuple[str, str]], gates: Gates | None = None) -> ToolInput:
    """As `from_files`, of (name, text)."""
    from dragoman.api import files

    return _of(files.read_all(texts, changes=True), lambda: None, gates)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Large files become millions of values and no garbage: looking for some would take longer than all the rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def errors_in(names: Sequence[str]) -> list[dict[str, Any]]:
    """Everything in these files that cannot be understood, as the `errors` of JSON output."""
    from dragoman.api import files

    scan = files.scan(_texts(names), changes=True)
    broken = [
        {
            "file": e.file,
            "document": e.document,
            "line": e.line,
            "object": "",
            "field": "",
            "message": e.what,
        }
        for e in scan.broken
    ]
    invalid = [
        {
            "file": e.file,
            "document": e.document,
            "line": e.line,
            "object": e.subject,
            "field": e.field,
            "message": e.message,
        }
        for e in scan.invalid
    ]
    return broken + invalid


def _texts(names: Sequence[str]) -> list[tuple[str, str]]:
    from dragoman.cli import manifests

    return list(manifests.texts(list(names)))


def _of(documents: list[Document], reported: Callable[[], None], gates: Gates | None) -> ToolInput:
    from dragoman.api.gates import DEFAULTS
    from dragoman.runtime.clock import Clock
    from dragoman.snapshot.change import WORKLOADS, Snapshot
    from dragoman.whatif.admit import admitted
    from dragoman.whatif.cluster import identified

    now = Clock().utc()
    accepted, refused = admitted(documents, now, gates or DEFAULTS, applied=applied)

    def objects() -> Iterator[tuple[str, Any]]:
        for entry in identified([(document.kind_name, value) for document, value in accepted], now):
            yield entry
            reported()

    snapshot = Snapshot.from_objects(objects())
    order = tuple(
        (d.kind_name, d.namespace, value.metadata.name)
        for d, value in accepted
        if d.kind_name == "Pod" or d.kind_name in WORKLOADS
    )
    events = tuple(d.object for d in documents if d.kind_name == "Event")
    leases = tuple(d.object for d in documents if d.kind_name == "Lease")
    rejected = tuple(RejectedDocument(*pair) for pair in refused)
    warnings = tuple(_gated((document for document, _ in accepted), gates or DEFAULTS))
    return ToolInput(snapshot, order, tuple(documents), events, rejected, warnings, leases=leases)


def _gated(documents: Iterable[Document], gates: Gates) -> Iterator[DocumentWarning]:
    """What is dropped of new objects because a gate is off, and the first object of a kind that has to have one."""
    from dragoman.api.gated import place_of, unused_fields

    named: set[str] = set()
    for document in documents:
        kind = document.kind
        assert kind is not None
        if kind.gate and not gates.on(kind.gate) and kind.kind not in named:
            named.add(kind.kind)
            message = f"a server with these feature gates does not serve {kind.kind}s: pods are decided without them"
            yield DocumentWarning(document, "kind", message, f"--feature-gates {kind.gate}=true")
        if document.object.get("metadata", {}).get("uid") or document.item is not None:
            continue  # what a server has taken stays
        for field, off in unused_fields(kind.kind, document.object, gates):
            message = f"the API server drops {field}: {' and '.join(off)} is off"
            help_ = "--feature-gates " + ",".join(f"{gate}=true" for gate in off)
            yield DocumentWarning(document, place_of(document.raw, field), message, help_)


def applied(live: Object, before: Object, manifest: Object, gvk: tuple[str, str, str]) -> Object:
    """What `kubectl apply` makes of the live object (`apiserver.client_apply`)."""
    from dragoman.apiserver import client_apply  # schemas are read only where an object is changed

    return client_apply.applied(live, before, manifest, gvk)


async def from_cluster(args: argparse.Namespace) -> ToolInput:
    """From the cluster that the flags name. Raises NotFound, Denied, Retry."""
    async with connect.client(args) as client:
        return await seen_through(client, args.namespace or client.access.namespace, output.say)


async def seen_through(
    client: Client, own: str, say: Callable[[str], None], limited: list[str] | None = None
) -> ToolInput:
    """What a client may see of its cluster. say: hears what may not be seen and what cannot be read.

    limited: gets the kinds of which only the namespace `own` is seen.
    """
    from dragoman.api import codec
    from dragoman.cli import live
    from dragoman.errors import Invalid
    from dragoman.snapshot.change import HELD, Snapshot

    kinds = (*sorted(HELD - NOT_ASKED_FOR), "Event")
    seen = await live.read(client, kinds, own=own)
    leases = await live.leases(client, seen)
    if limited is not None:
        limited[:] = [entry.kind for entry in seen.hidden if entry.namespace]
    for line in live.notes(seen):
        say(line)
    objects: list[tuple[str, object]] = []
    for name, items in seen.found.items():
        if name == "Event":
            continue
        type_ = codec.TYPES[name]
        for item in items:
            try:
                objects.append((name, codec.decode(type_, item)))
            except Invalid as error:
                meta = item.get("metadata") or {}
                kept = codec.salvaged(type_, item)
                what = "only the devices that it holds count" if kept else "it is left out"
                where = "/".join(filter(None, (meta.get("namespace"), meta.get("name"))))
                say(f"warning: {name} {where} cannot be read, {what}: {error}")
                if kept:
                    objects.append((name, kept))
    snapshot = Snapshot.from_objects(objects)
    pods = sorted(snapshot.pods.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    order = tuple(("Pod", pod.metadata.namespace, pod.metadata.name) for pod in pods)
    events = tuple(seen.found.get("Event", ()))
    return ToolInput(snapshot, order, (), events, hidden=live.hidden_kinds(seen), who=seen.who, leases=leases)
