"""Would an API server take this change of an object? Manifests as `kubectl apply` sends them, over what is there.

Shared by what-if, which goes on with the object as it then is, and by lint, which only wants to know. In the server's
words. Never says whether a new object would be taken (`whatif.admit`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from dragoman.api import convert, defaults, validate
from dragoman.api.admission import conflict_text, invalid_text
from dragoman.api.files import Document
from dragoman.api.gated import gates_drop
from dragoman.api.gates import Gates
from dragoman.api.kinds import Kind
from dragoman.api.remedies import of_field
from dragoman.api.validate.field import FieldError
from dragoman.errors import Invalid
from dragoman.whatif.cluster import Rejection

Applied: TypeAlias = Callable[[dict[str, Any], dict[str, Any], dict[str, Any], tuple[str, str, str]], dict[str, Any]]
"""(live object, manifest applied last, manifest, (group, version, kind)) -> the object then."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


READ_AGAIN = "leave out uid and resourceVersion, or read the object again"


class ObjectUpdate(msgspec.Struct, frozen=True):
    """What comes of applying a manifest: the object then, in the stored version, and all that the server refuses."""

    object: dict[str, Any]
    errors: tuple[FieldError, ...] = ()
    rejection: Rejection | None = None


def updated(
    kind: Kind,
    old: dict[str, Any],
    before: dict[str, Any],
    manifest: dict[str, Any],
    now: datetime,
    gates: Gates,
    applied: Applied,
    *,
    left_out: Callable[[FieldError], bool] = lambda error: False,
) -> ObjectUpdate:
    """The object `old` once the manifest is applied.

    old and manifest are in the stored version. before: the manifest that was applied last. left_out: what is no error
    although a server would say so.
    """
    old = defaulted(kind, old, now)
    meta = old["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    sent = manifest["metadata"]
    for field in ("uid", "resourceVersion"):
        if sent.get(field) and meta.get(field) and sent[field] != meta[field]:
            text = conflict_text(kind, name)
            return ObjectUpdate(
                old, (), Rejection(kind.kind, namespace, name, f"metadata.{field}", text, help=READ_AGAIN)
            )
    try:
        made = applied(old, before, manifest, (kind.group, kind.versions[0], kind.kind))
    except Invalid as error:
        return ObjectUpdate(old, (), Rejection(kind.kind, namespace, name, error.where, error.what))
    made = gates_drop(kind.kind, defaulted(kind, made, now), old, gates)
    errors = tuple(e for e in validate.update(kind.kind, made, old, gates=gates) if not left_out(e))
    if errors:
        text = invalid_text(kind, name, [(error.reason, error.body, error.path) for error in errors])
        return ObjectUpdate(
            made, errors, Rejection(kind.kind, namespace, name, errors[0].path, text, help=of_field(errors[0]))
        )
    if made.get("spec") != old.get("spec") and meta.get("generation"):
        made["metadata"]["generation"] = meta["generation"] + 1
    return ObjectUpdate(made)


def defaulted(kind: Kind, obj: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The object in the stored version as a server keeps it, without apiVersion and kind."""
    made = defaults.apply(kind.kind, kind.versions[0], obj, now)
    for field in ("apiVersion", "kind"):
        made.pop(field, None)
    return made


def last_applied(document: Document) -> dict[str, Any]:
    """What was applied when the object came to be as it is: the manifest itself, or as the server's object says."""
    meta = document.object["metadata"]
    if not meta.get("uid") and document.item is None:
        return document.object
    text = (meta.get("annotations") or {}).get(LAST_APPLIED)
    try:
        raw = msgspec.json.decode(text or "{}")
        version = str(raw.get("apiVersion", "")).rpartition("/")[2]
        return convert.to_stored(document.kind_name, version, raw) if version else {}
    except (msgspec.DecodeError, AttributeError, TypeError, Invalid):
        return {}
