"""What is said of the schedulers that decide pods? Lines and JSON over `inspect.schedulers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dragoman.api.meta import NamespacedName
from dragoman.inspect.schedulers import (
    DEFAULT,
    SHARED_HELP,
    queue_of,
    scheduler_info,
    sentence,
    shared_drivers,
    shared_text,
)
from dragoman.snapshot.change import Snapshot

PODS_SHOWN = 3


def lines(snapshot: Snapshot, keys: Iterable[NamespacedName], writers: Mapping[str, str]) -> list[str]:
    """One line a scheduler that somebody has to know of, with the pods that it decides; then Kueue's queues."""
    by_name: dict[str, list[NamespacedName]] = {}
    queues: dict[str, list[NamespacedName]] = {}
    for key in keys:
        pod = snapshot.pods.get(key)
        if pod is not None:
            by_name.setdefault(pod.spec.scheduler_name, []).append(key)
            if queue := queue_of(pod):
                queues.setdefault(queue, []).append(key)
    found = []
    for name, pods in sorted(by_name.items()):
        # Without any Lease nothing is known of the usual one: its events are forgotten after an hour.
        seen = name != DEFAULT or any(evidence.startswith("lease ") for evidence in writers.values())
        if not seen:
            continue
        text = sentence(scheduler_info(name, snapshot, writers, visible=True))
        if text:
            found.append(f"{_named(pods)}: {text}")
    found += [f"{_named(pods)}: Kueue admits it first (queue {queue})" for queue, pods in sorted(queues.items())]
    return found


def _named(pods: list[NamespacedName]) -> str:
    shown = ", ".join("/".join(key) for key in pods[:PODS_SHOWN])
    more = f" and {len(pods) - PODS_SHOWN} more" if len(pods) > PODS_SHOWN else ""
    return f"{'pod' if len(pods) == 1 else 'pods'} {shown}{more}"


def shared_lines(snapshot: Snapshot, writers: Mapping[str, str]) -> list[str]:
    """Drivers whose devices several schedulers give out, with what to do."""
    return [f"warning: {shared_text(one)}; {SHARED_HELP}" for one in shared_drivers(snapshot, writers)]


def shared_json(snapshot: Snapshot, writers: Mapping[str, str]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "driver": one.driver,
            "schedulers": list(one.schedulers),
            "pods": list(one.pods),
            "message": shared_text(one),
            "help": SHARED_HELP,
        }
        for one in shared_drivers(snapshot, writers)
    ]


def as_json(snapshot: Snapshot, key: NamespacedName, writers: Mapping[str, str]) -> dict[str, Any]:
    """{"scheduler": {name, title, evidence}} of a pod that another scheduler than the default one decides."""
    pod = snapshot.pods.get(key)
    if pod is None or pod.spec.scheduler_name == DEFAULT:
        return {}
    info = scheduler_info(pod.spec.scheduler_name, snapshot, writers, visible=True)
    return {"scheduler": {"name": info.name, "title": info.title, "evidence": info.evidence, "near": info.near}}
