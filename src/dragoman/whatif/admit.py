"""Would an API server take these objects? Manifests of files, judged before they count as part of a cluster.

An object with a uid, and an item of a List as `kubectl get` and `record` print it, was taken by a server before and is
not judged again. Others are defaulted, validated and admitted as `kubectl create` would have it, in the server's words;
what is refused is not in the cluster. An object that a later file has again is changed as `kubectl apply` would change
it; where a server refuses the change it stays as it was. Bare pods may leave out what no decision reads, as an image.
Never places anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dragoman.api import codec, validate
from dragoman.api.admission import (
    admin_access_refused,
    forbidden_text,
    invalid_text,
    not_served_text,
    select_own_pods,
    terminating_text,
)
from dragoman.api.core import Namespace, Pod, ResourceQuota
from dragoman.api.files import Document, ObjectId
from dragoman.api.gated import gates_drop
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.kinds import Kind
from dragoman.api.remedies import of_field
from dragoman.api.shape import dig
from dragoman.api.validate.field import REQUIRED, FieldError
from dragoman.quota.limits import fill
from dragoman.snapshot.change import HELD, WORKLOADS, Put, Snapshot, apply, apply_all
from dragoman.whatif.cluster import Rejection, uid_for
from dragoman.whatif.names import letters
from dragoman.whatif.quotas import charged, counted, limit_ranges_of
from dragoman.whatif.updates import Applied, defaulted, last_applied, updated
from dragoman.whatif.writes import limits_refused

_BARE = frozenset({"Pod", *WORKLOADS})
_LIMITING = ("ResourceQuota", "LimitRange")
_ADMIN = ("ResourceClaim", "ResourceClaimTemplate")


def admitted(
    documents: Iterable[Document], now: datetime, gates: Gates = DEFAULTS, *, applied: Applied
) -> tuple[list[tuple[Document, Any]], list[tuple[Document, Rejection]]]:
    """The objects of kinds that snapshots hold, typed, with their documents; and those that a server refuses.

    Objects without a name get one of their generateName. applied: what `kubectl apply` makes of an object
    (`apiserver.client_apply`).
    """
    held = [d for d in documents if d.kind is not None and d.value is not None and d.kind.kind in HELD]
    namespaces: dict[str, Namespace] = {}
    for document in held:
        if isinstance(document.value, Namespace):
            namespaces.setdefault(document.name, document.value)
    accepted: list[tuple[Document, Any]] = []
    refused: list[tuple[Document, Rejection]] = []
    places: dict[ObjectId, _Place] = {}
    several = bool(held) and any(document.file != held[0].file for document in held)
    for number, document in enumerate(held):
        value: Any = document.value
        key = document.identity if several else None
        place = places.get(key) if key is not None else None
        if place is not None:
            found = place.changed(document, now, gates, applied)
            if isinstance(found, Rejection):
                refused.append((document, found))
            else:
                accepted[place.index] = (accepted[place.index][0], found)
                if isinstance(found, Namespace):
                    namespaces[document.name] = found
            continue
        if key is not None:
            places[key] = _Place(len(accepted), document)
        if value.metadata.uid or document.item is not None:
            accepted.append((document, _named(_whole(document, now), number)))
            continue
        assert document.kind is not None
        rejection = rejection_of(document.kind, document.object, namespaces.get(document.namespace), now, gates)
        if rejection is not None:
            refused.append((document, rejection))
            if key is not None:
                del places[key]
        else:
            accepted.append((document, _named(_kept(document, gates), number)))
    if any(document.kind_name in _LIMITING for document, _ in accepted):
        accepted, more = _limited(accepted)
        refused += more
    return accepted, refused


def _kept(document: Document, gates: Gates) -> Any:
    """The value without the fields that a server with these gates drops of a new object."""
    kind = document.kind
    assert kind is not None
    kept = gates_drop(kind.kind, document.object, None, gates)
    return document.value if kept is document.object else codec.decode(codec.TYPES[kind.kind], kept)


def _whole(document: Document, now: datetime) -> Any:
    """The value; of a workload that somebody took the defaults from, with them: else no ReplicaSet is like its
    Deployment."""
    kind = document.kind
    assert kind is not None
    if kind.kind not in WORKLOADS or dig(document.object, "spec", "template", "spec").get("restartPolicy"):
        return document.value
    return codec.decode(codec.TYPES[kind.kind], defaulted(kind, document.object, now))


class _Place:
    """An object of the files that was taken: where it stands, as it is, and the manifest that was applied last."""

    def __init__(self, index: int, document: Document) -> None:
        self.index = index
        self.object = document.object
        self.document = document
        self.manifest: dict[str, Any] | None = None

    def changed(self, document: Document, now: datetime, gates: Gates, applied: Applied) -> Any:
        """The value once the document is applied to it, or why a server refuses that."""
        kind = document.kind
        assert kind is not None
        before = self.manifest if self.manifest is not None else last_applied(self.document)
        found = updated(
            kind, self.object, before, document.object, now, gates, applied, left_out=partial(_left_out, kind.kind)
        )
        if found.rejection is not None:
            return found.rejection
        self.object, self.manifest = found.object, document.object
        return codec.decode(codec.TYPES[kind.kind], found.object)


def _limited(
    accepted: Iterable[tuple[Document, Any]],
) -> tuple[list[tuple[Document, Any]], list[tuple[Document, Rejection]]]:
    """What LimitRanges and quotas of the files leave of the objects that are created, in their order."""
    entries = list(accepted)
    there = [d.kind_name in _LIMITING or v.metadata.uid or d.item is not None for d, v in entries]
    first = [(d.kind_name, v) for (d, v), is_there in zip(entries, there, strict=True) if is_there]
    snapshot = Snapshot.from_objects([*first, *((d.kind_name, v) for d, v in entries if d.kind_name == "DeviceClass")])
    snapshot = apply_all(snapshot, counted(snapshot))
    kept: list[tuple[Document, Any]] = []
    refused: list[tuple[Document, Rejection]] = []
    for (document, value), is_there in zip(entries, there, strict=True):
        made = value
        if not is_there:
            if isinstance(value, Pod) and (ranges := limit_ranges_of(snapshot, value.metadata.namespace)):
                body = codec.to_json(value)
                fill(ranges, body)
                made = codec.decode(Pod, body)
            rejection = limits_refused(snapshot, document.kind_name, made)
            if rejection is not None:
                refused.append((document, rejection))
                continue
            change = Put(document.kind_name, made)
            after = apply(snapshot, change)
            snapshot = apply_all(after, charged(snapshot, after, [change]))
        kept.append((document, made))
    return [
        (d, snapshot.quotas[v.metadata.namespace, v.metadata.name] if isinstance(v, ResourceQuota) else v)
        for d, v in kept
    ], refused


def rejection_of(
    kind: Kind, obj: dict[str, Any], inside: Namespace | None, now: datetime, gates: Gates = DEFAULTS
) -> Rejection | None:
    """What a server says to the creation of this object, None if it takes it.

    obj is in the stored version. inside: its namespace; None where it is not known, which refuses nothing.
    """
    made = gates_drop(kind.kind, defaulted(kind, obj, now), None, gates)
    meta = made.setdefault("metadata", {})
    name, namespace = str(meta.get("name") or meta.get("generateName") or ""), str(meta.get("namespace") or "")
    if kind.gate and not gates.on(kind.gate):
        return Rejection(
            kind.kind, namespace, name, "kind", not_served_text(kind), help=f"--feature-gates {kind.gate}=true"
        )
    if kind.kind == "Job" and isinstance(made.get("spec"), dict):
        named = meta.get("name") or f"{name}00000"  # as long as the name that the server would make
        select_own_pods({**made, "metadata": {**meta, "name": named, "uid": uid_for("Job", namespace, name)}})
    if inside is not None and inside.status.phase == "Terminating":
        return Rejection(kind.kind, namespace, name, "metadata.namespace", terminating_text(kind, name, namespace))
    if kind.kind in _ADMIN and inside is not None:
        path, why = admin_access_refused(kind.kind, made, inside.metadata.labels)
        if path:
            text = forbidden_text(kind, name, f"{path}: Forbidden: {why}")
            help_ = f"label namespace {namespace}, or ask without adminAccess"
            return Rejection(kind.kind, namespace, name, path, text, help=help_)
    errors = [e for e in validate.create(kind.kind, made, gates=gates) if not _left_out(kind.kind, e)]
    if not errors:
        return None
    text = invalid_text(kind, name, [(error.reason, error.body, error.path) for error in errors])
    return Rejection(kind.kind, namespace, name, errors[0].path, text, help=of_field(errors[0]))


def _left_out(kind: str, error: FieldError) -> bool:
    """A field of a pod that must be set and that a bare one need not have; without a selector nothing can be said."""
    return error.type == REQUIRED and kind in _BARE and not error.path.startswith("spec.selector")


def _named(value: Any, number: int) -> Any:
    """The object with a name, if it has only a generateName."""
    meta = value.metadata
    if meta.name:
        return value
    name = meta.generate_name + letters(meta.namespace, meta.generate_name, str(number))
    return msgspec.structs.replace(value, metadata=msgspec.structs.replace(meta, name=name))
