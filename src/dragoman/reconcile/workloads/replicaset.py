"""How does a ReplicaSet keep its number of pods? Creates, deletes in upstream's order, reports.

Never looks into its Deployment.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.core import Pod, Workload
from dragoman.api.meta import NamespacedName, Ref
from dragoman.effects import Create, Delete, Effect, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, difference, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.snapshot.change import Change

KIND = "ReplicaSet"
COMPONENT = "replicaset-controller"


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The ReplicaSets to look at after a change."""
    return the_pods.owner_keys(KIND, "Pod", change, before, after)


def sync(world: ReconcileInput, key: NamespacedName, kind: str = KIND) -> ReconcileResult:
    """Bring the number of pods to spec.replicas and the status up to date. kind: or ReplicationController."""
    rs = world.snapshot.workloads.get((kind, *key))
    if rs is None or the_pods.is_empty(the_pods.selector_of(rs)):
        return NOTHING
    owned, claims = the_pods.members(world, kind, rs)
    if claims:
        return ReconcileResult(tuple(claims))
    active = [pod for pod in owned if the_pods.is_active(pod)]
    wanted = 1 if rs.spec.replicas is None else rs.spec.replicas
    change: list[Effect] = []
    if not rs.metadata.deletion_timestamp:
        if len(active) < wanted:
            count = min(wanted - len(active), the_pods.BURST)
            change = [the_pods.pod_from(rs.spec.template, kind, rs.metadata)] * count
        elif len(active) > wanted:
            doomed = deletion_order(active, world.now)[: min(len(active) - wanted, the_pods.BURST)]
            change = [Delete(ref_of("Pod", pod.metadata)) for pod in doomed]
    status, again_s = _status(world, kind, rs, active, steady=not change)
    return ReconcileResult((*status, *change), again_s=again_s)


def write_events(
    world: ReconcileInput,
    key: NamespacedName,
    effect: Effect,
    written: dict[str, Any] | None,
    error: str,
    kind: str = KIND,
    component: str = COMPONENT,
) -> tuple[Effect, ...]:
    """The event for a write, and the condition ReplicaFailure when it failed."""
    rs = world.snapshot.workloads.get((kind, *key))
    if rs is None:
        return ()
    owner = ref_of(kind, rs.metadata)
    events = the_pods.pod_write_events(owner, component, effect, written, error)
    if not error or not isinstance(effect, Create | Delete):
        return events
    status = rs.status or {}
    reason = "FailedCreate" if isinstance(effect, Create) else "FailedDelete"
    old = status.get("conditions") or []
    new = the_pods.with_condition(old, world.now, "ReplicaFailure", "True", reason, error)
    return events if new is old else (*events, _patch(owner, {"conditions": new}))


def deletion_order(active: list[Pod], now: float) -> list[Pod]:
    """Pods, the one to delete first in front: those that would be missed least."""
    on_node: dict[str, int] = {}
    for pod in active:
        on_node[pod.spec.node_name] = on_node.get(pod.spec.node_name, 0) + 1
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}

    def missed(pod: Pod) -> tuple[Any, ...]:
        since = the_pods.ready_since(pod)
        restarts = max((int(s.get("restartCount", 0)) for s in pod.status.container_statuses), default=0)
        created = the_pods.seconds_of(pod.metadata.creation_timestamp)
        return (
            bool(pod.spec.node_name),
            phases.get(pod.status.phase, 0),
            since is not None,
            _deletion_cost(pod),
            -on_node[pod.spec.node_name],
            _age_rank(now - since) if since is not None else 0,
            -restarts,
            _age_rank(now - created),
            pod.metadata.name,
        )

    return sorted(active, key=missed)


def _age_rank(seconds: float) -> int:
    """Ages compare by their order of magnitude only (powers of two), so that the choice is not always the newest."""
    return max(0, int(seconds)).bit_length()


def _deletion_cost(pod: Pod) -> int:
    text = pod.metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost", "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _status(
    world: ReconcileInput, kind: str, rs: Workload, active: list[Pod], *, steady: bool
) -> tuple[list[Effect], float | None]:
    status = rs.status or {}
    conditions = status.get("conditions") or []
    if steady:
        conditions = the_pods.without_condition(conditions, "ReplicaFailure")
    waits = [the_pods.unavailable_s(pod, rs.spec.min_ready_seconds, world.now) for pod in active]
    labels = rs.spec.template.metadata.labels.items()
    new = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(1 for pod in active if labels <= pod.metadata.labels.items()),
        "readyReplicas": sum(1 for wait in waits if wait is not None),
        "availableReplicas": sum(1 for wait in waits if wait == 0),
        "observedGeneration": rs.metadata.generation,
        "conditions": conditions,
    }
    patch = difference(status, new)
    if "replicas" not in status or patch.get("replicas", 0) is None:
        patch["replicas"] = new["replicas"]
    later = [wait for wait in waits if wait]
    return [_patch(ref_of(kind, rs.metadata), patch)] if patch else [], min(later, default=None)


def _patch(owner: Ref, status: dict[str, Any]) -> Patch:
    return Patch(owner, {"status": status}, subresource="status")
