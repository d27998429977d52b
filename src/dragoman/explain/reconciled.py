"""Has anything acted on a custom object? An operator leaves a status, a finalizer, events, or fields of its own.

    facts = reconciled(obj, events)
    for line in reconciled_lines(facts): ...

An object that nothing has acted on waits for an operator that does not run, or that has not seen it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.explain.state import EventInfo

_BY_HAND = ("kubectl", "before-first-apply", "helm", "dragoman")


class Reconciled(msgspec.Struct, frozen=True, rename="camel"):
    """A custom object, and what others than its author left on it. reconciled: whether that is anything."""

    api_version: str
    kind: str
    namespace: str
    name: str
    reconciled: bool
    status: bool
    """Whether its status holds anything."""
    finalizers: tuple[str, ...]
    managers: tuple[str, ...]
    """Field managers of its status, and those that no tool of users is known to use."""
    events: tuple[str, ...]


def reconciled(obj: Object, events: Iterable[EventInfo]) -> Reconciled:
    """The facts of an object as on the wire, with the events of its namespace."""
    meta: Mapping[str, Any] = obj["metadata"]
    entries = meta.get("managedFields") or ()
    managers = {
        str(entry.get("manager", ""))
        for entry in entries
        if entry.get("subresource") == "status" or not str(entry.get("manager", "")).startswith(_BY_HAND)
    }
    reasons = dict.fromkeys(f"{event.reason}: {event.message}" for event in events if event.uid == meta.get("uid"))
    has_status = bool(obj.get("status"))
    finalizers = tuple(meta.get("finalizers") or ())
    return Reconciled(
        api_version=str(obj.get("apiVersion", "")),
        kind=str(obj.get("kind", "")),
        namespace=str(meta.get("namespace") or ""),
        name=str(meta.get("name", "")),
        reconciled=bool(has_status or finalizers or managers or reasons),
        status=has_status,
        finalizers=finalizers,
        managers=tuple(sorted(managers)),
        events=tuple(reasons),
    )


def reconciled_lines(facts: Reconciled) -> list[str]:
    """As sentences."""
    named = "/".join(part for part in (facts.namespace, facts.name) if part)
    title = f"{facts.kind} {named} ({facts.api_version})"
    if not facts.reconciled:
        return [
            f"{title}: nothing reconciles it",
            "  no controller has set a status or finalizer, changed it, or reported an event about it",
            f"  install the operator of {facts.api_version.partition('/')[0]}, or check that its pods run",
        ]
    lines = [f"{title}: something reconciles it"]
    if facts.managers:
        lines.append(f"  changed by {', '.join(facts.managers)}")
    if facts.finalizers:
        lines.append(f"  finalizers: {', '.join(facts.finalizers)}")
    lines += [f"  event: {text}" for text in facts.events]
    return lines
