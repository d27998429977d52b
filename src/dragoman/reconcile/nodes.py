"""Does a node still answer, what does its state forbid, and which pods must leave it?

Silence turns conditions Unknown, conditions become taints, and NoExecute taints evict what does not tolerate them.
Heartbeats are given (`ReconcileInput.heartbeats`): this module never knows how they came. Source: the API's Node,
Taint and Toleration, and the documentation of taint-based eviction.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.core import Node, Pod, Taint
from dragoman.api.meta import Condition, ObjectMeta, Value
from dragoman.effects import Delete, Effect, Emit, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, ref_of
from dragoman.reconcile.workloads.pods import seconds_of, time_text
from dragoman.snapshot.change import Change, Gone, Put, keys_of
from dragoman.snapshot.taints import tolerates
from dragoman.snapshot.usage import is_finished

COMPONENT = "node-controller"
GRACE_S = 40.0
"""Silence after which a node counts as unreachable."""
STARTUP_GRACE_S = 60.0
"""The same for a node whose kubelet never said anything."""
LOOK_S = 5.0
LEASES = "kube-node-lease"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()}


class LeaseSpec(Value, frozen=True):
    """Who holds it, since when."""

    holder_identity: str = ""
    renew_time: str | None = None


class Lease(Value, frozen=True):
    """coordination.k8s.io/v1 Lease as far as heartbeats read it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[str]:
    """Names of the nodes to look at after a change."""
    if change.kind == "Node" and isinstance(change, Put):
        return [change.object.metadata.name]
    if change.kind == "Pod" and isinstance(change, Put):
        pod: Pod = change.object
        node = after.snapshot.nodes.get(pod.spec.node_name)
        if node is not None and any(taint.effect == "NoExecute" for taint in node.spec.taints):
            return [pod.spec.node_name]
    return []


def heartbeat(change: Change, before: ReconcileInput) -> str:
    """The node of which a change shows that its kubelet lives; "" for other changes."""
    if isinstance(change, Gone):
        return ""
    meta = change.object.metadata
    if change.kind == "Lease":
        return meta.name if meta.namespace == LEASES else ""
    if change.kind == "Node":
        # Its agent writes Ready True or False; Unknown is what this controller writes.
        old = before.snapshot.nodes.get(meta.name)
        was, now = (_ready(old) if old is not None else None), _ready(change.object)
        spoke = now is not None and now.status != "Unknown" and (was is None or was.status != now.status)
        return meta.name if spoke else ""
    return ""


def _ready(node: Node) -> Condition | None:
    return next((c for c in node.status.conditions if c.type == "Ready"), None)


def sync(world: ReconcileInput, name: str) -> ReconcileResult:
    """One look at a node."""
    node = world.snapshot.nodes.get(name)
    if node is None or node.metadata.deletion_timestamp:
        return NOTHING
    ready = _ready(node)
    never = ready is None or (ready.status == "Unknown" and name not in world.heartbeats)
    since = world.heartbeats.get(name, seconds_of(node.metadata.creation_timestamp))
    left_s = since + (STARTUP_GRACE_S if never else GRACE_S) - world.now
    if left_s <= 0 and (ready is None or ready.status != "Unknown"):
        return ReconcileResult(_silent(world, node, never=never), again_s=LOOK_S)
    again_s = max(left_s, 1.0) if left_s > 0 else LOOK_S
    taints = _taints(world, node)
    if taints is not None:
        return ReconcileResult((taints,), again_s=again_s)
    evictions, due_s = _evictions(world, node)
    marks = _not_ready_pods(world, node) if ready is not None and ready.status != "True" else []
    return ReconcileResult((*marks, *evictions), again_s=min(again_s, due_s) if due_s is not None else again_s)


# ---- silence


def _silent(world: ReconcileInput, node: Node, *, never: bool) -> tuple[Effect, ...]:
    reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
    if never:
        reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
    when = time_text(world.now)
    conditions = [
        {"type": type_, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": when}
        for type_ in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
        if all(c.type != type_ or c.status != "Unknown" for c in node.status.conditions)
    ]
    ref = ref_of("Node", node.metadata)
    event = Emit(ref, "Normal", "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady", COMPONENT)
    # Conditions merge by type under a strategic patch: what the kubelet wrote beside them stays.
    return (Patch(ref, {"status": {"conditions": conditions}}, type="strategic", subresource="status"), event)


def _not_ready_pods(world: ReconcileInput, node: Node) -> list[Effect]:
    """Pods of a node that does not answer are not ready, whatever they said last."""
    effects: list[Effect] = []
    for pod in _pods(world, node):
        ready = next((c for c in pod.status.conditions if c.type == "Ready"), None)
        if ready is not None and ready.status == "True":
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": time_text(world.now)}
            patch = {"status": {"conditions": [condition]}}
            effects.append(Patch(ref_of("Pod", pod.metadata), patch, type="strategic", subresource="status"))
    return effects


def _pods(world: ReconcileInput, node: Node) -> list[Pod]:
    pods = world.snapshot.pods
    return [pods[key] for key in keys_of(world.snapshot.pods_by_node, node.metadata.name)]


# ---- taints


def _taints(world: ReconcileInput, node: Node) -> Patch | None:
    """The write that makes the node's taints follow its conditions, if they do not."""
    wanted = [(UNSCHEDULABLE, "NoSchedule")] if node.spec.unschedulable else []
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            key = UNREACHABLE if condition.status == "Unknown" else NOT_READY
            wanted += [(key, "NoSchedule"), (key, "NoExecute")]
        elif condition.type in _PRESSURES and condition.status == "True":
            wanted.append((_PRESSURES[condition.type], "NoSchedule"))
    kept = [t for t in node.spec.taints if t.key not in _OURS or (t.key, t.effect) in wanted]
    have = {(t.key, t.effect) for t in kept}
    if _ready(node) is None:  # not reported yet: the taint it was born with stays
        kept = list(node.spec.taints)
        have = {(t.key, t.effect) for t in kept}
    new = [Taint(key=k, effect=e, time_added=time_text(world.now)) for k, e in wanted if (k, e) not in have]
    if not new and len(kept) == len(node.spec.taints):
        return None
    taints: list[Any] = [msgspec.to_builtins(taint) for taint in (*kept, *new)]
    patch = {"spec": {"taints": taints or None}}
    return Patch(ref_of("Node", node.metadata), patch, resource_version=node.metadata.resource_version)


def stays_until(pod: Pod, taints: list[Taint], now: float) -> float | None:
    """When NoExecute taints drive a pod out (epoch seconds); None if they never do."""
    ends: list[float] = []
    for taint in taints:
        covering = [t for t in pod.spec.tolerations if tolerates(t, taint)]
        if not covering:
            return now
        since = seconds_of(taint.time_added) or now
        limits = [float(max(0, t.toleration_seconds)) for t in covering if t.toleration_seconds is not None]
        if limits:
            ends.append(since + min(limits))
    return min(ends, default=None)


def _evictions(world: ReconcileInput, node: Node) -> tuple[list[Effect], float | None]:
    taints = [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
    if not taints:
        return [], None
    effects: list[Effect] = []
    waits: list[float] = []
    for pod in _pods(world, node):
        if pod.metadata.deletion_timestamp or is_finished(pod):
            continue
        end = stays_until(pod, taints, world.now)
        if end is None:
            continue
        if end > world.now:
            waits.append(end - world.now)
            continue
        effects += evicted(
            pod, world.now, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint",
            "TaintManagerEviction", "taint-eviction-controller",
        )  # fmt: skip
    return effects, min(waits, default=None)


def evicted(pod: Pod, now: float, reason: str, message: str, event: str, component: str) -> list[Effect]:
    """The writes that delete a pod for a disruption: event, condition DisruptionTarget, deletion."""
    ref = ref_of("Pod", pod.metadata)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": time_text(now),
    }
    return [
        Emit(ref, "Normal", event, "Marking for deletion", component),
        Patch(ref, {"status": {"conditions": [condition]}}, type="strategic", subresource="status"),
        Delete(ref),
    ]
