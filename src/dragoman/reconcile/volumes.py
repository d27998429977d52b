"""Which volume does a claim get, and what becomes of volumes? PersistentVolumes and PersistentVolumeClaims.

What upstream's persistent volume binder and ephemeral volume controllers do, and a provisioner of our own,
PROVISIONER, whose volumes are folders in the memory of simulated nodes. Claims of a class that waits for its first
consumer are bound or made once the scheduler has chosen a node (`schedule.volumes`). Volumes of other
provisioners are left to them: a claim then waits. Never deletes a volume that it did not make.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from dragoman.api import codec
from dragoman.api.core import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from dragoman.effects import Create, Delete, Effect, Emit, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, owned_by, ref_of
from dragoman.snapshot.change import Change, Gone
from dragoman.snapshot.usage import is_finished
from dragoman.snapshot.volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAITS,
    claim_reference,
    class_name_of,
    find_volume,
    is_bound,
    is_kept_for,
    storage_of,
)

CLAIM, VOLUME, CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"
KINDS = frozenset({CLAIM, VOLUME, CLASS, "Pod"})
PROVISIONER = "simulated.dragoman.dev"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
HOSTNAME = "kubernetes.io/hostname"
COMPONENT = "persistentvolume-controller"

VolumeKey: TypeAlias = tuple[Literal["claim", "volume", "pod"], str, str]


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[VolumeKey]:
    """The claims, volumes and pods with ephemeral volumes to look at after a change."""
    if isinstance(change, Gone):
        namespace, name = change.namespace, change.name
    else:
        namespace, name = change.object.metadata.namespace, change.object.metadata.name
    if change.kind == CLAIM:
        volumes = [v for v in after.snapshot.volumes.values() if _names(v, namespace, name)]
        return [("claim", namespace, name), *(("volume", "", volume.metadata.name) for volume in volumes)]
    if change.kind == "Pod":
        pod = after.snapshot.pods.get((namespace, name))
        ephemeral = pod is not None and any(volume.ephemeral is not None for volume in pod.spec.volumes)
        return [("pod", namespace, name)] if ephemeral else []
    waiting: list[VolumeKey] = [
        ("claim", *key) for key, claim in sorted(after.snapshot.volume_claims.items()) if claim.status.phase != "Bound"
    ]
    if change.kind == CLASS:
        return waiting
    volume = after.snapshot.volumes.get(name)
    reference = volume.spec.claim_ref if volume is not None else None
    if reference is not None:
        return [("volume", "", name), ("claim", reference.namespace, reference.name)]
    lost: list[VolumeKey] = [
        ("claim", *key) for key, claim in sorted(after.snapshot.volume_claims.items()) if claim.spec.volume_name == name
    ]
    return [("volume", "", name), *lost, *waiting]


def _names(volume: PersistentVolume, namespace: str, name: str) -> bool:
    reference = volume.spec.claim_ref
    return reference is not None and (reference.namespace, reference.name) == (namespace, name)


def sync(world: ReconcileInput, key: VolumeKey) -> ReconcileResult:
    """One claim, volume or pod."""
    what, namespace, name = key
    if what == "pod":
        return _sync_pod(world, world.snapshot.pods.get((namespace, name)))
    if what == "volume":
        return _sync_volume(world, world.snapshot.volumes.get(name))
    claim = world.snapshot.volume_claims.get((namespace, name))
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return NOTHING
    return _sync_claim(world, claim)


# ---- claims


def _sync_claim(world: ReconcileInput, claim: PersistentVolumeClaim) -> ReconcileResult:
    volume = world.snapshot.volumes.get(claim.spec.volume_name)
    if is_bound(claim):
        if volume is None or not is_kept_for(volume, claim):
            return _phase(claim, "Lost")
        return _bind(claim, volume)
    if claim.spec.volume_name:
        # Named by the user: bound once the volume is there and kept for nobody else.
        free = volume is not None and (volume.spec.claim_ref is None or is_kept_for(volume, claim))
        return _bind(claim, volume) if volume is not None and free else _phase(claim, "Pending")
    name = class_name_of(world.snapshot, claim)
    found = world.snapshot.storage_classes.get(name)
    waits = found is not None and found.volume_binding_mode == WAITS
    volumes = sorted(world.snapshot.volumes.values(), key=lambda one: one.metadata.name)
    chosen = find_volume(claim, name, [v for v in volumes if not waits or is_kept_for(v, claim)], None)
    if chosen is not None:
        return _bind(claim, chosen)
    pending = _phase(claim, "Pending")
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    if found is None or (waits and not selected):
        return pending
    if found.provisioner == PROVISIONER:
        return ReconcileResult((*pending.effects, *_provision(world, claim, found, selected)))
    return pending


def _phase(claim: PersistentVolumeClaim, phase: str) -> ReconcileResult:
    if claim.status.phase == phase:
        return NOTHING
    effects: list[Effect] = [Patch(ref_of(CLAIM, claim.metadata), {"status": {"phase": phase}}, subresource="status")]
    if phase == "Lost":
        text = f"Bound claim has lost its PersistentVolume {claim.spec.volume_name}. Data on the volume is lost!"
        effects.append(Emit(ref_of(CLAIM, claim.metadata), "Warning", "ClaimLost", text, COMPONENT))
    return ReconcileResult(tuple(effects))


def _bind(claim: PersistentVolumeClaim, volume: PersistentVolume) -> ReconcileResult:
    """Volume first, then the claim, so that no claim is bound to a volume that another one has."""
    effects: list[Effect] = []
    reference = volume.spec.claim_ref
    at = ref_of(VOLUME, volume.metadata)
    if reference is None or reference.uid != claim.metadata.uid:
        patch: dict[str, Any] = {"spec": {"claimRef": claim_reference(claim)}}
        if reference is None:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        effects.append(Patch(at, patch, resource_version=volume.metadata.resource_version))
    if volume.status.phase != "Bound":
        effects.append(Patch(at, {"status": {"phase": "Bound"}}, subresource="status"))
    at = ref_of(CLAIM, claim.metadata)
    if not is_bound(claim):
        annotations = {BIND_COMPLETED: "yes"}
        if not claim.spec.volume_name:
            annotations[BOUND_BY_CONTROLLER] = "yes"
        patch = {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.metadata.name}}
        effects.append(Patch(at, patch, resource_version=claim.metadata.resource_version))
    if claim.status.phase != "Bound":
        capacity = {name: str(amount) for name, amount in volume.spec.capacity.items()}
        status = {"phase": "Bound", "accessModes": list(volume.spec.access_modes), "capacity": capacity}
        effects.append(Patch(at, {"status": status}, subresource="status"))
    return ReconcileResult(tuple(effects))


def _provision(
    world: ReconcileInput, claim: PersistentVolumeClaim, storage_class: StorageClass, selected: str
) -> tuple[Effect, ...]:
    """A new volume, on the selected node if there is one."""
    meta = claim.metadata
    node = world.snapshot.nodes.get(selected)
    name = f"pvc-{meta.uid}"
    spec: dict[str, Any] = {
        "capacity": {"storage": str(storage_of(claim))},
        "accessModes": list(claim.spec.access_modes),
        "claimRef": claim_reference(claim),
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
        "storageClassName": storage_class.metadata.name,
        "volumeMode": claim.spec.volume_mode or "Filesystem",
        "hostPath": {"path": f"/var/lib/dragoman/volumes/{name}", "type": "DirectoryOrCreate"},
    }
    if node is not None:
        hostname = node.metadata.labels.get(HOSTNAME, selected)
        term = {"key": HOSTNAME, "operator": "In", "values": [hostname]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    body = {
        "apiVersion": "v1",
        "kind": VOLUME,
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": spec,
    }
    text = f"Successfully provisioned volume {name}"
    return Create(body), Emit(ref_of(CLAIM, meta), "Normal", "ProvisioningSucceeded", text, PROVISIONER)


# ---- volumes


def _sync_volume(world: ReconcileInput, volume: PersistentVolume | None) -> ReconcileResult:
    if volume is None or volume.metadata.deletion_timestamp is not None:
        return NOTHING
    at, reference = ref_of(VOLUME, volume.metadata), volume.spec.claim_ref
    phase = volume.status.phase
    if reference is None or not reference.uid:
        wanted = "Available"
    else:
        claim = world.snapshot.volume_claims.get((reference.namespace, reference.name))
        if claim is not None and claim.metadata.uid == reference.uid:
            return NOTHING  # the claim's own step says so
        ours = volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
        if ours and volume.spec.persistent_volume_reclaim_policy == "Delete":
            return ReconcileResult((Delete(at),))
        wanted = "Released"
    if phase == wanted:
        return NOTHING
    return ReconcileResult((Patch(at, {"status": {"phase": wanted}}, subresource="status"),))


# ---- claims of ephemeral volumes


def _sync_pod(world: ReconcileInput, pod: Pod | None) -> ReconcileResult:
    if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return NOTHING
    effects: list[Effect] = []
    for volume in pod.spec.volumes:
        name = f"{pod.metadata.name}-{volume.name}"
        if volume.ephemeral is None or (pod.metadata.namespace, name) in world.snapshot.volume_claims:
            continue
        template = volume.ephemeral.get("volumeClaimTemplate") or {}
        meta = template.get("metadata") or {}
        effects.append(
            Create(
                {
                    "apiVersion": "v1",
                    "kind": CLAIM,
                    "metadata": {
                        "name": name,
                        "namespace": pod.metadata.namespace,
                        "labels": meta.get("labels") or {},
                        "annotations": meta.get("annotations") or {},
                        "ownerReferences": [owned_by("Pod", pod.metadata)],
                    },
                    "spec": codec.to_json(template.get("spec") or {}),
                }
            )
        )
    return ReconcileResult(tuple(effects))
