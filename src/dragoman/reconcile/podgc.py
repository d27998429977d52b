"""Which pods will nobody ever finish? Those of nodes that are gone, and deleted ones that never got a node.

Never touches a pod whose node is there: finished pods stay until somebody deletes them, however many they are.
"""

from __future__ import annotations

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName, Ref
from dragoman.effects import Delete, Effect, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, ref_of
from dragoman.reconcile.workloads.pods import time_text
from dragoman.snapshot.change import Change, Gone, Put, keys_of
from dragoman.snapshot.usage import is_finished

QUARANTINE_S = 40.0
"""A node may come back for so long before its pods are given up."""


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """Pods to look at after a change."""
    if isinstance(change, Gone):
        return list(keys_of(after.snapshot.pods_by_node, change.name)) if change.kind == "Node" else []
    if change.kind != "Pod" or not isinstance(change, Put):
        return []
    pod: Pod = change.object
    lost = pod.spec.node_name and pod.spec.node_name not in after.snapshot.nodes
    if lost or (pod.metadata.deletion_timestamp and not pod.spec.node_name):
        return [(pod.metadata.namespace, pod.metadata.name)]
    return []


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """One look at a pod."""
    pod = world.snapshot.pods.get(key)
    if pod is None:
        return NOTHING
    if not pod.spec.node_name:
        deleted = pod.metadata.deletion_timestamp
        return ReconcileResult(tuple(_give_up(world, pod, None))) if deleted else NOTHING
    if pod.spec.node_name in world.snapshot.nodes:
        return NOTHING
    node = Ref("Node", "", pod.spec.node_name)
    if node not in world.answers:
        return ReconcileResult(asks=(node,))
    if world.answers[node]:
        return ReconcileResult(again_s=5.0)
    seen = world.heartbeats.get(pod.spec.node_name)
    left_s = seen + QUARANTINE_S - world.now if seen is not None else 0.0
    if left_s > 0:
        return ReconcileResult(again_s=left_s)
    return ReconcileResult(tuple(_give_up(world, pod, "PodGC: node no longer exists")))


def _give_up(world: ReconcileInput, pod: Pod, why: str | None) -> list[Effect]:
    """Nobody will report its end: it failed, and goes at once."""
    ref = ref_of("Pod", pod.metadata)
    effects: list[Effect] = []
    if why is not None and not is_finished(pod):
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": why,
            "lastTransitionTime": time_text(world.now),
        }
        status = {"phase": "Failed", "conditions": [condition]}
        effects.append(Patch(ref, {"status": status}, type="strategic", subresource="status"))
    if pod.metadata.deletion_grace_period_seconds != 0 or not pod.metadata.deletion_timestamp:
        effects.append(Delete(ref, grace_period_s=0))
    return effects
