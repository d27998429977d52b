"""What do pods, nodes, events, namespaces and leases look like in a table?"""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object
from dragoman.apiserver.printers.column import (
    NONE,
    UNKNOWN,
    Cell,
    Printer,
    age,
    at,
    columns,
    entries,
    human_duration,
    name_of,
    number,
    seconds_of,
    since,
    text,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"


# ---- pods


def _pod(pod: Object, now: float) -> list[Cell]:
    ready, total, status, restarts = _pod_summary(pod, now)
    ips = entries(pod, "status", "podIPs")
    return [
        name_of(pod),
        f"{ready}/{total}",
        status,
        restarts,
        age(pod, now),
        (text(ips[0], "ip") if ips else "") or text(pod, "status", "podIP") or NONE,
        text(pod, "spec", "nodeName") or NONE,
        text(pod, "status", "nominatedNodeName") or NONE,
        _readiness_gates(pod),
    ]


class _Count:
    """Restarts seen and the moment of the last one."""

    __slots__ = ("last", "number")

    def __init__(self) -> None:
        self.number = 0
        self.last: float | None = None

    def add(self, container: Any) -> None:
        self.number += number(container, "restartCount")
        moment = seconds_of(at(container, "lastState", "terminated", "finishedAt"))
        if moment is not None and (self.last is None or moment > self.last):
            self.last = moment

    def show(self, now: float) -> str:
        if self.number and self.last is not None:
            return f"{self.number} ({human_duration(now - self.last)} ago)"
        return str(self.number)


def _pod_summary(pod: Object, now: float) -> tuple[int, int, str, str]:
    init = entries(pod, "spec", "initContainers")
    sidecars = {text(c, "name") for c in init if at(c, "restartPolicy") == "Always"}
    total = len(entries(pod, "spec", "containers")) + len(sidecars)
    phase = text(pod, "status", "phase")
    reason = text(pod, "status", "reason") or phase
    conditions = entries(pod, "status", "conditions")
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions):
        reason = "SchedulingGated"

    restarts, sidecar_restarts = _Count(), _Count()
    ready = 0
    initializing = False
    for index, container in enumerate(entries(pod, "status", "initContainerStatuses")):
        restarts.add(container)
        is_sidecar = text(container, "name") in sidecars
        if is_sidecar:
            sidecar_restarts.add(container)
        terminated = at(container, "state", "terminated")
        if terminated is not None and not number(terminated, "exitCode"):
            continue
        if is_sidecar and at(container, "started"):
            ready += bool(at(container, "ready"))
            continue
        reason = "Init:" + _why_initializing(container, f"{index}/{len(init)}")
        initializing = True
        break

    if not initializing or _is_true(conditions, "Initialized"):
        restarts = sidecar_restarts
        running = False
        for container in reversed(entries(pod, "status", "containerStatuses")):
            restarts.add(container)
            why = _why_not_running(container)
            if why:
                reason = why
            elif at(container, "ready") and at(container, "state", "running") is not None:
                running = True
                ready += 1
        if reason == "Completed" and running:
            reason = "Running" if _is_true(conditions, "Ready") else "NotReady"

    if at(pod, "metadata", "deletionTimestamp"):
        if text(pod, "status", "reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            reason = "Terminating"
    return ready, total, reason, restarts.show(now)


def _why_initializing(container: Any, progress: str) -> str:
    if at(container, "state", "terminated") is not None:
        return _why_terminated(at(container, "state", "terminated"))
    waiting = text(container, "state", "waiting", "reason")
    return waiting if waiting not in ("", "PodInitializing") else progress


def _why_not_running(container: Any) -> str:
    waiting = text(container, "state", "waiting", "reason")
    if waiting:
        return waiting
    terminated = at(container, "state", "terminated")
    return "" if terminated is None else _why_terminated(terminated)


def _why_terminated(terminated: Any) -> str:
    reason = text(terminated, "reason")
    if reason:
        return reason
    signal = number(terminated, "signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{number(terminated, 'exitCode')}"


def _is_true(conditions: list[Any], type_: str) -> bool:
    return any(c.get("type") == type_ and c.get("status") == "True" for c in conditions)


def _readiness_gates(pod: Object) -> str:
    gates = entries(pod, "spec", "readinessGates")
    if not gates:
        return NONE
    conditions = entries(pod, "status", "conditions")
    return f"{sum(_is_true(conditions, text(gate, 'conditionType')) for gate in gates)}/{len(gates)}"


def _pod_conditions(pod: Object) -> list[dict[str, str]]:
    phase = text(pod, "status", "phase")
    if phase not in ("Succeeded", "Failed"):
        return []
    message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


# ---- nodes


def _node(node: Object, now: float) -> list[Cell]:
    ready = next((c for c in entries(node, "status", "conditions") if c.get("type") == "Ready"), None)
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if at(node, "spec", "unschedulable"):
        status += ",SchedulingDisabled"
    system = at(node, "status", "nodeInfo")
    return [
        name_of(node),
        status,
        ",".join(_roles(node)) or NONE,
        age(node, now),
        text(system, "kubeletVersion"),
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        text(system, "osImage") or UNKNOWN,
        text(system, "kernelVersion") or UNKNOWN,
        text(system, "containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(node: Object) -> list[str]:
    labels = at(node, "metadata", "labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(text(labels, "kubernetes.io/role"))
    return sorted(roles - {""})


def _address(node: Object, type_: str) -> str:
    for address in entries(node, "status", "addresses"):
        if address.get("type") == type_:
            return text(address, "address")
    return NONE


# ---- the rest


def _event(event: Object, now: float) -> list[Cell]:
    # events.k8s.io renames these fields; both shapes are read.
    first = at(event, "firstTimestamp") or at(event, "deprecatedFirstTimestamp") or at(event, "eventTime")
    last = at(event, "lastTimestamp") or at(event, "deprecatedLastTimestamp") or first
    count = number(event, "count") or number(event, "deprecatedCount") or 1
    if at(event, "series") is not None:
        last = at(event, "series", "lastObservedTime")
        count = number(event, "series", "count")
    about = at(event, "involvedObject") or at(event, "regarding")
    target = text(about, "kind").lower()
    if text(about, "name"):
        target += f"/{text(about, 'name')}"
    return [
        since(last, now),
        text(event, "type"),
        text(event, "reason"),
        target,
        text(about, "fieldPath"),
        _event_source(event),
        (text(event, "message") or text(event, "note")).strip(),
        since(first, now),
        count,
        name_of(event),
    ]


def _event_source(event: Object) -> str:
    source = at(event, "source") or at(event, "deprecatedSource")
    component = text(source, "component") or text(event, "reportingComponent") or text(event, "reportingController")
    host = text(source, "host") or text(event, "reportingInstance")
    return f"{component}, {host}" if host else component


def _namespace(namespace: Object, now: float) -> list[Cell]:
    return [name_of(namespace), text(namespace, "status", "phase"), age(namespace, now)]


def _lease(lease: Object, now: float) -> list[Cell]:
    return [name_of(lease), text(lease, "spec", "holderIdentity"), age(lease, now)]


_POD_WIDE = ("IP", "Node", "Nominated Node", "Readiness Gates")
_NODE_WIDE = ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")
_EVENT_WIDE = ("Subobject", "Source", "First Seen", "Count", "Name")

PRINTERS = {
    ("", "Pod"): Printer(
        columns("Name", "Ready", "Status", "Restarts", "Age", *_POD_WIDE, wide=_POD_WIDE), _pod, _pod_conditions
    ),
    ("", "Node"): Printer(columns("Name", "Status", "Roles", "Age", "Version", *_NODE_WIDE, wide=_NODE_WIDE), _node),
    ("", "Event"): Printer(
        columns(
            *("Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name"),
            integers=("Count",),
            wide=_EVENT_WIDE,
        ),
        _event,
    ),
    ("", "Namespace"): Printer(columns("Name", "Status", "Age"), _namespace),
    ("coordination.k8s.io", "Lease"): Printer(columns("Name", "Holder", "Age"), _lease),
}
PRINTERS["events.k8s.io", "Event"] = PRINTERS["", "Event"]
