"""How would this scheduler have decided a recording of another one's cluster? Decision by decision, in its order.

    pods, skipped = bound_in_order(snapshot, events)
    for found in replay(snapshot, pods, context, now): ...

The order is that of the bindings: the event Scheduled tells it to the microsecond, else the pod's condition
PodScheduled to the second. Each decision is made on the state that the other's decisions before it left (`compare`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName, parse_time
from dragoman.schedule.cycle import SchedulingContext
from dragoman.snapshot.change import Change, Put, Snapshot, apply_all
from dragoman.snapshot.usage import is_finished
from dragoman.whatif.compare import (
    WINDOW,
    DecisionComparison,
    ObservedPlacement,
    before,
    compare,
    placement_seen,
)

MIRROR = "kubernetes.io/config.mirror"


def bound_in_order(snapshot: Snapshot, events: Iterable[Mapping[str, Any]]) -> tuple[list[Pod], dict[str, int]]:
    """The pods that a scheduler bound, in the order of their bindings, and how many are left out, by reason."""
    times = dict(_event_times(events))
    found: list[tuple[datetime, str, NamespacedName, Pod]] = []
    skipped: dict[str, int] = {}
    for key, pod in snapshot.pods.items():
        if not pod.spec.node_name:
            continue
        when = times.get(pod.metadata.uid) or _since(pod)
        why = _why_not(pod, when)
        if why:
            skipped[why] = skipped.get(why, 0) + 1
        elif when is not None:
            found.append((when, pod.metadata.creation_timestamp or "", key, pod))
    found.sort(key=lambda entry: entry[:3])
    return [pod for *_, pod in found], skipped


def _why_not(pod: Pod, when: datetime | None) -> str:
    if is_finished(pod):
        return "ended before the recording, so that its claims are released"
    if MIRROR in pod.metadata.annotations or when is None:
        return "placed by no scheduler"
    return ""


def _event_times(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, datetime]]:
    for event in events:
        if event.get("reason") != "Scheduled":
            continue
        about = event.get("regarding") or event.get("involvedObject") or {}
        text = event.get("eventTime") or event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp")
        if text and about.get("uid"):
            yield about["uid"], parse_time(text)


def _since(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return parse_time(condition.last_transition_time)
    return None


def replay(
    snapshot: Snapshot, pods: Iterable[Pod], context: SchedulingContext, now: datetime
) -> Iterator[DecisionComparison]:
    """Each placement against ours, in order. pods: as `bound_in_order` gives them."""
    placements = [seen for pod in pods if (seen := placement_seen(snapshot, pod)) is not None]
    shown = before(snapshot, placements)
    for seen in placements[:WINDOW]:
        shown = apply_all(shown, _as_recorded(snapshot, seen))
    for index, seen in enumerate(placements):
        if index + WINDOW < len(placements):
            shown = apply_all(shown, _as_recorded(snapshot, placements[index + WINDOW]))
        later = placements[index + 1 : index + 1 + WINDOW]
        earlier = placements[max(0, index - WINDOW) : index][::-1]
        yield compare(shown, seen, later, earlier, context, now)


def _as_recorded(snapshot: Snapshot, seen: ObservedPlacement) -> Iterator[Change]:
    for key, _ in seen.allocations:
        yield Put("ResourceClaim", snapshot.claims[key])
    yield Put("Pod", snapshot.pods[seen.pod])
