"""Would the API server take these documents as changes of what is there, as `kubectl apply` sends them?

What is there: the object of that name in the cluster (a dump, a live one), or in a file before. Objects with a uid were
printed by a server and are no manifests to apply.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from dragoman.api import validate
from dragoman.api.files import Document
from dragoman.api.remedies import KEEP
from dragoman.api.validate.field import IMMUTABLE, FieldError, path_text, split_path
from dragoman.lint.finding import Finding, ItemPath, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.shape import path_as_written
from dragoman.whatif.updates import READ_AGAIN, ObjectUpdate, defaulted, last_applied, updated

_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""What stamps a time needs one; it is never shown."""


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on the document as a change of the object of its name."""
    before = world.before(document)
    if before is None:
        return
    if world.is_given(before) and _is_manifest(before):
        message = f"{before.place} has this object too: applied in this order, this one changes it"
        yield found(document, "RedefinedObject", "metadata.name", message, "rename one, or keep it in one file")
    step = _step(document, world)
    if step is None or step.rejection is None:
        return
    if not step.errors:
        yield found(document, "UpdateRefused", step.rejection.field, step.rejection.message, READ_AGAIN)
        return
    own = {(e.path, e.body) for e in validate.create(document.kind_name, step.object, gates=world.gates)}
    for error in step.errors:
        if (error.path, error.body) not in own:
            assert document.kind is not None
            old = defaulted(document.kind, _live(before, world)[0], _SOME_TIME)
            path, message = _explained(error, old)
            yield found(document, "UpdateRefused", path_as_written(document, path), message, KEEP)


def _explained(error: FieldError, old: dict[str, Any]) -> tuple[str, str]:
    """Field and message: the server's words; of an object, which it writes out whole, the first field that differs."""
    if error.detail != IMMUTABLE or not isinstance(error.value, dict | list):
        return error.path, error.body
    path = split_path(error.path)
    more, before = _difference(_at(old, path), error.value)
    was = "is not set" if before is None else f"is {json.dumps(before, ensure_ascii=False, default=str)[:_SHOWN]}"
    field = path_text((*path, *more))
    return field, f"{error.path}: {error.detail}; {path_text(more) or error.path} {was} in the object that exists"


_SHOWN = 60


def _at(value: Any, path: ItemPath) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _difference(old: Any, new: Any) -> tuple[ItemPath, Any]:
    """Where two values differ first, and what the old one has there."""
    if isinstance(old, dict) and isinstance(new, dict):
        steps: list[Any] = [key for key in (*new, *old) if old.get(key) != new.get(key)]
        one, other = (old.get(steps[0]), new.get(steps[0])) if steps else (None, None)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        steps = [index for index, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
        one, other = (old[steps[0]], new[steps[0]]) if steps else (None, None)
    else:
        return (), old
    if not steps:
        return (), old
    more, before = _difference(one, other)
    return (steps[0], *more), before


def _step(document: Document, world: ManifestIndex) -> ObjectUpdate | None:
    """What comes of applying the document to what is there before it, None where there is nothing."""
    return world.once(("update", id(document)), lambda: _applied(document, world))


def _applied(document: Document, world: ManifestIndex) -> ObjectUpdate | None:
    before = world.before(document)
    if before is None or document.kind is None or world.applied is None or not _is_manifest(document):
        return None
    old, sent = _live(before, world)
    return updated(document.kind, old, sent, document.object, _SOME_TIME, world.gates, world.applied)


def _live(document: Document, world: ManifestIndex) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object once the document is applied, and the manifest that was applied last."""
    step, before = _step(document, world), world.before(document)
    if step is None or before is None:
        return document.object, last_applied(document)
    return (step.object, document.object) if step.rejection is None else _live(before, world)


def _is_manifest(document: Document) -> bool:
    return not document.object["metadata"].get("uid")
