"""What has changed, and how long do claims take? A timeline from events and from the times that objects carry.

Reads only what the API shows: events are kept by servers for an hour or so, times in objects as long as these are
there. Never decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dragoman.api.meta import parse_time
from dragoman.explain.state import events_of
from dragoman.snapshot.change import Snapshot

PAGE_MAX = 200


class TimelineEntry(msgspec.Struct, frozen=True):
    """One thing that happened. kind: allocated, created, deleted, tainted, not-ready, ready, or event."""

    when: str
    kind: str
    object: str
    name: str
    text: str
    count: int = 1
    warning: bool = False

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return msgspec.structs.asdict(self)


def entries(snapshot: Snapshot, events: Iterable[Mapping[str, Any]]) -> list[TimelineEntry]:
    """Everything with a time, newest first."""
    listed = list(events)
    warnings = [str(raw.get("type")) == "Warning" for raw in listed if isinstance(raw.get("metadata"), Mapping)]
    found = [
        TimelineEntry(
            e.last, "event", e.kind, "/".join(filter(None, e.key)), f"{e.reason}: {e.message}", e.count, warning
        )
        for e, warning in zip(events_of(listed), warnings, strict=True)
    ]
    found += _of_objects(snapshot)
    return sorted((entry for entry in found if entry.when), key=lambda entry: entry.when, reverse=True)


def _of_objects(snapshot: Snapshot) -> Iterator[TimelineEntry]:
    for key, claim in snapshot.claims.items():
        name = "/".join(key)
        meta, allocation = claim.metadata, claim.status.allocation
        yield TimelineEntry(meta.creation_timestamp or "", "created", "ResourceClaim", name, "")
        if meta.deletion_timestamp:
            yield TimelineEntry(meta.deletion_timestamp, "deleted", "ResourceClaim", name, "")
        if allocation is not None and allocation.allocation_timestamp:
            devices = ", ".join(r.device for r in allocation.devices.results[:8])
            yield TimelineEntry(allocation.allocation_timestamp, "allocated", "ResourceClaim", name, devices)
    for key, pod in snapshot.pods.items():
        name = "/".join(key)
        yield TimelineEntry(pod.metadata.creation_timestamp or "", "created", "Pod", name, "")
        if pod.metadata.deletion_timestamp:
            yield TimelineEntry(pod.metadata.deletion_timestamp, "deleted", "Pod", name, pod.spec.node_name)
    for name, rule in snapshot.taint_rules.items():
        taint = rule.spec.taint
        yield TimelineEntry(
            taint.time_added or rule.metadata.creation_timestamp or "",
            "tainted",
            "DeviceTaintRule",
            name,
            f"{taint.key}:{taint.effect}",
            warning=True,
        )
    for name, node in snapshot.nodes.items():
        for condition in node.status.conditions:
            if condition.type == "Ready" and condition.status != "True" and condition.last_transition_time:
                text = condition.reason or ""
                yield TimelineEntry(condition.last_transition_time, "not-ready", "Node", name, text, warning=True)
    for resource_slice in snapshot.slices.values():
        for device in resource_slice.spec.devices:
            for taint in device.taints:
                where = f"{resource_slice.spec.driver}/{resource_slice.spec.pool.name}/{device.name}"
                text = f"{taint.key}:{taint.effect}"
                yield TimelineEntry(taint.time_added or "", "tainted", "Device", where, text, warning=True)


def page(
    found: list[TimelineEntry], now: datetime, *, since_s: float, text: str, offset: int, limit: int
) -> dict[str, Any]:
    """{"total", "entries"}: those of the last since_s seconds (0: all) whose name or text contains `text`."""
    low = text.lower()
    shown = [
        entry
        for entry in found
        if (not low or low in f"{entry.name} {entry.text} {entry.object} {entry.kind}".lower())
        and (not since_s or ((age := _age_s(entry.when, now)) is not None and age <= since_s))
    ]
    part = shown[offset : offset + min(max(limit, 1), PAGE_MAX)]
    return {"total": len(shown), "entries": [entry.as_json() for entry in part]}


def latency(snapshot: Snapshot) -> dict[str, Any]:
    """{"claims", "p50", "p90", "p99", "max"}: seconds from the creation of a claim to its allocation."""
    seconds = []
    for claim in snapshot.claims.values():
        allocation = claim.status.allocation
        if allocation is None or not allocation.allocation_timestamp or not claim.metadata.creation_timestamp:
            continue
        try:
            took = parse_time(allocation.allocation_timestamp) - parse_time(claim.metadata.creation_timestamp)
        except ValueError:
            continue
        seconds.append(max(took.total_seconds(), 0.0))
    seconds.sort()
    if not seconds:
        return {"claims": 0}

    def at(part: float) -> float:
        return seconds[min(int(part * len(seconds)), len(seconds) - 1)]

    return {"claims": len(seconds), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": seconds[-1]}


def _age_s(when: str, now: datetime) -> float | None:
    try:
        return (now - parse_time(when)).total_seconds()
    except ValueError:
        return None
