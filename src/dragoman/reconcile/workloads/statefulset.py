"""How does a StatefulSet keep its numbered pods? In order or in parallel, each with its name and its volumes' claims.

Its templates are kept as ControllerRevisions (`revisions`); a pod below the partition that is lost comes back from the
present template. Source: the API's StatefulSet.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.core import Pod, Workload
from dragoman.api.meta import NamespacedName
from dragoman.effects import Create, Delete, Effect, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, difference, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.reconcile.workloads import revisions
from dragoman.reconcile.workloads.deployment import template_hash
from dragoman.snapshot.change import Change
from dragoman.snapshot.usage import is_finished

KIND = "StatefulSet"
COMPONENT = "statefulset-controller"
REVISION_LABEL = "controller-revision-hash"
HASH_LABEL = "controller.kubernetes.io/hash"


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The StatefulSets to look at after a change."""
    if change.kind == revisions.KIND:
        return revisions.keys(KIND, change, before, after)
    return the_pods.owner_keys(KIND, "Pod", change, before, after)


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """One step of a StatefulSet."""
    sts = world.snapshot.workloads.get((KIND, *key))
    if sts is None or the_pods.is_empty(sts.spec.selector):
        return NOTHING
    owned, adopted = the_pods.members(world, KIND, sts)
    if adopted:
        return ReconcileResult(tuple(adopted))
    pods = {number: pod for pod in owned if (number := ordinal(sts, pod)) is not None}
    revision = f"{sts.metadata.name}-{template_hash(sts.spec.template, 0)}"
    changes: list[Effect] = []
    history: list[Effect] = []
    if not sts.metadata.deletion_timestamp:
        live = {pod.metadata.labels.get(REVISION_LABEL, "") for pod in owned}
        history = revisions.kept(world, KIND, sts, revision, {HASH_LABEL: revision.rpartition("-")[2]}, live)
        changes = _moved(world, sts, pods, revision)
    status, again_s = _status(world, sts, pods, revision)
    return ReconcileResult((*history, *status, *changes), again_s=again_s)


def write_events(
    world: ReconcileInput, key: NamespacedName, effect: Effect, written: dict[str, Any] | None, error: str
) -> tuple[Effect, ...]:
    """The event for a write."""
    sts = world.snapshot.workloads.get((KIND, *key))
    return (
        () if sts is None else the_pods.pod_write_events(ref_of(KIND, sts.metadata), COMPONENT, effect, written, error)
    )


def ordinal(sts: Workload, pod: Pod) -> int | None:
    """The number of a pod by its name."""
    parent, _, number = pod.metadata.name.rpartition("-")
    return int(number) if parent == sts.metadata.name and number.isdecimal() else None


def _numbers(sts: Workload) -> range:
    start = int((sts.spec.ordinals or {}).get("start") or 0)
    return range(start, start + (1 if sts.spec.replicas is None else sts.spec.replicas))


def _serves(world: ReconcileInput, sts: Workload, pod: Pod) -> bool:
    running = pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
    return running and the_pods.unavailable_s(pod, sts.spec.min_ready_seconds, world.now) == 0


def _moved(world: ReconcileInput, sts: Workload, pods: dict[int, Pod], revision: str) -> list[Effect]:
    """The next creations, deletions or replacements; in order, one waits for the other."""
    ordered = sts.spec.pod_management_policy != "Parallel"
    effects: list[Effect] = []
    for number in _numbers(sts):
        pod = pods.get(number)
        if pod is None:
            effects += _made(world, sts, number, revision)
        elif is_finished(pod) and not pod.metadata.deletion_timestamp:
            effects.append(Delete(ref_of("Pod", pod.metadata)))
        if ordered and (pod is None or not _serves(world, sts, pod)):
            return effects
    for number in sorted(set(pods) - set(_numbers(sts)), reverse=True):
        pod = pods[number]
        if not pod.metadata.deletion_timestamp:
            effects.append(Delete(ref_of("Pod", pod.metadata)))
        if ordered:
            return effects  # the next one goes once this one is gone
    return effects or _rolled(world, sts, pods, revision)


def _rolled(world: ReconcileInput, sts: Workload, pods: dict[int, Pod], revision: str) -> list[Effect]:
    strategy = sts.spec.update_strategy or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    for number in sorted((n for n in _numbers(sts) if n in pods and n >= partition), reverse=True):
        pod = pods[number]
        if pod.metadata.labels.get(REVISION_LABEL) != revision:
            return [] if pod.metadata.deletion_timestamp else [Delete(ref_of("Pod", pod.metadata))]
        if not _serves(world, sts, pod):
            return []
    return []


def _made(world: ReconcileInput, sts: Workload, number: int, revision: str) -> list[Effect]:
    meta = sts.metadata
    name = f"{meta.name}-{number}"
    effects: list[Effect] = []
    volumes = []
    for template in sts.spec.volume_claim_templates:
        volume = template["metadata"]["name"]
        claim = f"{volume}-{name}"
        volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
        if world.ownership.find("PersistentVolumeClaim", meta.namespace, claim) is None:
            effects.append(_volume_claim(sts, template, claim))

    def shape(spec: dict[str, Any]) -> dict[str, Any]:
        own = {volume["name"] for volume in volumes}
        rest = [volume for volume in spec.get("volumes") or [] if volume["name"] not in own]
        more: dict[str, Any] = {"hostname": name}
        if sts.spec.service_name:
            more["subdomain"] = sts.spec.service_name
        if rest or volumes:
            more["volumes"] = [*rest, *volumes]
        return {**spec, **more}

    labels = {
        REVISION_LABEL: revision,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(number),
    }
    return [*effects, the_pods.pod_from(sts.spec.template, KIND, meta, name=name, labels=labels, shape=shape)]


def _volume_claim(sts: Workload, template: dict[str, Any], name: str) -> Create:
    selector = sts.spec.selector
    labels = {**(template["metadata"].get("labels") or {}), **(selector.match_labels if selector is not None else {})}
    return Create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": sts.metadata.namespace, "labels": labels},
            "spec": template.get("spec") or {},
        }
    )


def _status(
    world: ReconcileInput, sts: Workload, pods: dict[int, Pod], revision: str
) -> tuple[list[Effect], float | None]:
    old = sts.status or {}
    live = [pod for pod in pods.values() if not pod.metadata.deletion_timestamp and not is_finished(pod)]
    waits = [the_pods.unavailable_s(pod, sts.spec.min_ready_seconds, world.now) for pod in live]
    updated = sum(1 for pod in live if pod.metadata.labels.get(REVISION_LABEL) == revision)
    current = old.get("currentRevision") or revision
    ready = sum(1 for wait in waits if wait is not None)
    if updated == len(live) == ready == len(_numbers(sts)):
        current = revision  # the rollout is over
    new = {
        "replicas": len(live),
        "readyReplicas": ready,
        "availableReplicas": sum(1 for wait in waits if wait == 0),
        "currentReplicas": sum(1 for pod in live if pod.metadata.labels.get(REVISION_LABEL) == current),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": revision,
        "observedGeneration": sts.metadata.generation,
        "collisionCount": 0,
    }
    patch = difference(old, new)
    if "replicas" not in old or patch.get("replicas", 0) is None:
        patch["replicas"] = new["replicas"]  # never left out
    later = [wait for wait in waits if wait]
    if not patch:
        return [], min(later, default=None)
    effect = Patch(ref_of(KIND, sts.metadata), {"status": patch}, subresource="status")
    return [effect], min(later, default=None)
