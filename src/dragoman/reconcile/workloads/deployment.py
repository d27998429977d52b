"""How does a Deployment roll? ReplicaSets by template, revisions, rolling update or recreate, progress.

Decides sizes of ReplicaSets only; pods are theirs.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.core import Pod, PodTemplateSpec, Workload
from dragoman.api.kinds import kind_of
from dragoman.api.meta import NamespacedName
from dragoman.effects import Create, Delete, Effect, Emit, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, owned_by, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.reconcile.workloads import rollout
from dragoman.reconcile.workloads.rollout import DESIRED, MAXIMUM, REVISION, REVISIONS, RolloutSizes
from dragoman.snapshot.change import Change
from dragoman.snapshot.usage import is_finished

KIND = "Deployment"
COMPONENT = "deployment-controller"
HASH_LABEL = "pod-template-hash"
_OWN_ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISIONS,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
}
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The Deployments to look at after a change to one, or to a ReplicaSet; under Recreate to a pod too."""
    found = the_pods.owner_keys(KIND, "ReplicaSet", change, before, after)
    if change.kind == "Pod" and not found:
        for rs_key in the_pods.owner_keys("ReplicaSet", "Pod", change, before, after):
            rs = after.snapshot.workloads.get(("ReplicaSet", *rs_key))
            owner = rs.metadata.controller if rs is not None else None
            if owner is not None and owner.kind == KIND:
                deployment = after.snapshot.workloads.get((KIND, rs_key[0], owner.name))
                if deployment is not None and _is_recreate(deployment):
                    found.append((rs_key[0], owner.name))
    return found


def _is_recreate(deployment: Workload) -> bool:
    return (deployment.spec.strategy or {}).get("type") == "Recreate"


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """One step of the rollout, and the status."""
    deployment = world.snapshot.workloads.get((KIND, *key))
    if deployment is None:
        return NOTHING
    owner = ref_of(KIND, deployment.metadata)
    if the_pods.is_empty(deployment.spec.selector):
        message = "This deployment is selecting all pods. A non-empty selector is required."
        return ReconcileResult((Emit(owner, "Warning", "SelectingAll", message, COMPONENT),))
    owned, adopted = the_pods.members(world, KIND, deployment, "ReplicaSet")
    if adopted:
        return ReconcileResult(tuple(adopted))
    sets = sorted(owned, key=rollout.by_age)
    new = _current(deployment, sets)
    old = [rs for rs in sets if rs is not new]
    changes: list[Effect] = []
    fresh = ""
    if not deployment.metadata.deletion_timestamp:
        changes, fresh = _advance(world, deployment, new, old)
    status, again_s = rollout.status(world, deployment, new, old, created=fresh)
    effects: list[Effect] = [*changes]
    if status:
        effects.append(Patch(owner, {"status": status}, subresource="status"))
    elif not changes and not deployment.metadata.deletion_timestamp:
        effects += _forget_history(deployment, new, old)
    return ReconcileResult(tuple(effects), again_s=again_s)


def _advance(
    world: ReconcileInput, deployment: Workload, new: Workload | None, old: list[Workload]
) -> tuple[list[Effect], str]:
    """Writes of one step, and the name of a ReplicaSet that they create."""
    sizes = RolloutSizes(deployment, new, old)
    if deployment.spec.paused:
        return _scaled(deployment, sizes, rollout.proportional(sizes)), ""
    if rollout.is_rescaled(sizes):
        return _scaled(deployment, sizes, rollout.proportional(sizes)), ""
    if _is_recreate(deployment):
        return _recreate(world, deployment, sizes)
    if new is None:
        return _create(world, deployment, sizes, rollout.new_size(sizes))
    if marks := _mark(deployment, sizes):
        return marks, ""
    wanted = rollout.rolled_up(sizes) or rollout.rolled_down(sizes)
    return _scaled(deployment, sizes, wanted), ""


def _recreate(world: ReconcileInput, deployment: Workload, sizes: RolloutSizes) -> tuple[list[Effect], str]:
    if down := {rs.metadata.name: 0 for rs in sizes.old if rollout.replicas(rs)}:
        return _scaled(deployment, sizes, down), ""
    if _old_pods_run(world, sizes.old):
        return [], ""
    if sizes.new is None:
        return _create(world, deployment, sizes, sizes.wanted)
    if marks := _mark(deployment, sizes):
        return marks, ""
    if rollout.replicas(sizes.new) != sizes.wanted:
        return _scaled(deployment, sizes, {sizes.new.metadata.name: sizes.wanted}), ""
    return [], ""


def _old_pods_run(world: ReconcileInput, old: list[Workload]) -> bool:
    for rs in old:
        for ref in world.ownership.controlled(rs.metadata.uid, "Pod"):
            pod = the_pods.find(world, ref)
            if isinstance(pod, Pod) and not is_finished(pod):
                return True
    return False


# ---- ReplicaSets


def _current(deployment: Workload, sets: list[Workload]) -> Workload | None:
    """The oldest ReplicaSet of the Deployment's template."""
    wanted = _shape(deployment.spec.template)
    return next((rs for rs in sets if _shape(rs.spec.template) == wanted), None)


def _shape(template: PodTemplateSpec) -> Any:
    labels = {key: value for key, value in template.metadata.labels.items() if key != HASH_LABEL}
    return labels, template.metadata.annotations, template.spec


def template_hash(template: PodTemplateSpec, collisions: int) -> str:
    """A short name for a template; the same template gives the same one."""
    text = msgspec.json.encode([codec.to_json(template), collisions], order="sorted")
    value = 0x811C9DC5  # FNV-1a, 32 bits
    for byte in text:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_ALPHABET[int(digit) % len(_ALPHABET)] for digit in str(value))


def _create(
    world: ReconcileInput, deployment: Workload, sizes: RolloutSizes, replicas: int
) -> tuple[list[Effect], str]:
    meta, template = deployment.metadata, deployment.spec.template
    collisions = (deployment.status or {}).get("collisionCount") or 0
    suffix = template_hash(template, collisions)
    name = f"{meta.name}-{suffix}"
    owner = ref_of(KIND, meta)
    if ("ReplicaSet", meta.namespace, name) in world.snapshot.workloads:
        # Another template of ours, or somebody else's set, has the name: the next hash.
        return [Patch(owner, {"status": {"collisionCount": collisions + 1}}, subresource="status")], ""
    labels = {**template.metadata.labels, HASH_LABEL: suffix}
    revision = str(rollout.last_revision(sizes.old) + 1)
    selector = codec.to_json(deployment.spec.selector)
    selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH_LABEL: suffix}
    spec = {
        "replicas": replicas,
        "minReadySeconds": deployment.spec.min_ready_seconds,
        "selector": selector,
        "template": {
            "metadata": {**codec.to_json(template.metadata), "labels": labels},
            "spec": template.spec,
        },
    }
    body = {
        "apiVersion": kind_of("ReplicaSet").api_version,
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": {**_inherited(deployment), REVISION: revision, **sizes.marks},
            "ownerReferences": [owned_by(KIND, meta)],
        },
        "spec": spec,
    }
    effects: list[Effect] = [Create(body)]
    if meta.annotations.get(REVISION) != revision:
        effects.append(Patch(owner, {"metadata": {"annotations": {REVISION: revision}}}))
    if replicas:
        effects.append(_scaling_event(deployment, name, 0, replicas))
    return effects, name


def _inherited(deployment: Workload) -> dict[str, str]:
    return {key: value for key, value in deployment.metadata.annotations.items() if key not in _OWN_ANNOTATIONS}


def _mark(deployment: Workload, sizes: RolloutSizes) -> list[Effect]:
    """Revision and annotations of the current ReplicaSet, and the Deployment's revision, where they are not right."""
    new = sizes.new
    assert new is not None
    known = new.metadata.annotations
    wanted = _inherited(deployment)
    revision = rollout.revision(new)
    newest = rollout.last_revision(sizes.old)
    if revision <= newest:  # rolled back to it
        if revision:
            past = known.get(REVISIONS)
            wanted[REVISIONS] = f"{past},{revision}" if past else str(revision)
        revision = newest + 1
    wanted[REVISION] = str(revision)
    patch: dict[str, Any] = {}
    if missing := {key: value for key, value in wanted.items() if known.get(key) != value}:
        patch["metadata"] = {"annotations": missing}
    if new.spec.min_ready_seconds != deployment.spec.min_ready_seconds:
        patch["spec"] = {"minReadySeconds": deployment.spec.min_ready_seconds}
    effects: list[Effect] = []
    if patch:
        effects.append(Patch(ref_of("ReplicaSet", new.metadata), patch, resource_version=new.metadata.resource_version))
    if deployment.metadata.annotations.get(REVISION) != wanted[REVISION]:
        own = {"metadata": {"annotations": {REVISION: wanted[REVISION]}}}
        effects.append(Patch(ref_of(KIND, deployment.metadata), own))
    return effects


def _scaled(deployment: Workload, sizes: RolloutSizes, wanted: dict[str, int]) -> list[Effect]:
    """Writes that bring ReplicaSets to these sizes, and their annotations up to date."""
    effects: list[Effect] = []
    for rs in sizes.all:
        before = rollout.replicas(rs)
        after = wanted.get(rs.metadata.name, before)
        stale = {key: value for key, value in sizes.marks.items() if rs.metadata.annotations.get(key) != value}
        if after == before and not (stale and (before or rs is sizes.new)):
            continue
        patch: dict[str, Any] = {"metadata": {"annotations": stale}} if stale else {}
        if after != before:
            patch["spec"] = {"replicas": after}
        effects.append(Patch(ref_of("ReplicaSet", rs.metadata), patch, resource_version=rs.metadata.resource_version))
        if after != before:
            effects.append(_scaling_event(deployment, rs.metadata.name, before, after))
    return effects


def _scaling_event(deployment: Workload, name: str, before: int, after: int) -> Emit:
    way = "up" if after > before else "down"
    message = f"Scaled {way} replica set {name} from {before} to {after}"
    return Emit(ref_of(KIND, deployment.metadata), "Normal", "ScalingReplicaSet", message, COMPONENT)


def _forget_history(deployment: Workload, new: Workload | None, old: list[Workload]) -> list[Effect]:
    """Deletes old empty ReplicaSets beyond the history limit, once the rollout is complete."""
    limit = 10 if deployment.spec.revision_history_limit is None else deployment.spec.revision_history_limit
    if new is None or not rollout.is_complete(deployment, deployment.status or {}):
        return []
    empty = [
        rs
        for rs in sorted(old, key=rollout.revision)
        if not rollout.replicas(rs)
        and not (rs.status or {}).get("replicas")
        and rs.metadata.generation <= (rs.status or {}).get("observedGeneration", 0)
        and not rs.metadata.deletion_timestamp
    ]
    return [Delete(ref_of("ReplicaSet", rs.metadata)) for rs in empty[: max(0, len(old) - limit)]]
