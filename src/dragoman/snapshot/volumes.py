"""Which volume fits a PersistentVolumeClaim? What a claim's binding means, shared by scheduler and volume controller.

Upstream's FindMatchingVolume and its annotations. Never decides where a pod goes and never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dragoman.api.core import Node, NodeSelector, PersistentVolume, PersistentVolumeClaim, StorageClass
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.selection import matches, requirement_holds
from dragoman.values.quantity import Quantity

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAITS = "WaitForFirstConsumer"
NO_STORAGE = Quantity(0)


def class_name_of(snapshot: Snapshot, claim: PersistentVolumeClaim) -> str:
    """The name of a claim's StorageClass, "" for none. One that no server has seen yet gets the default one."""
    if CLASS_ANNOTATION in claim.metadata.annotations:
        return claim.metadata.annotations[CLASS_ANNOTATION]
    if claim.spec.storage_class_name is None and not claim.metadata.resource_version:
        default = default_class(snapshot.storage_classes.values())
        return default.metadata.name if default is not None else ""
    return claim.spec.storage_class_name or ""


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The default StorageClass: the newest of several, then the first by name."""
    defaults = [one for one in classes if one.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    newest = max((one.metadata.creation_timestamp or "" for one in defaults), default="")
    names = {o.metadata.name: o for o in defaults if (o.metadata.creation_timestamp or "") == newest}
    return names[min(names)] if names else None


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim and its volume are bound to each other, for good."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def storage_of(claim: PersistentVolumeClaim) -> Quantity:
    """How much a claim requests."""
    return claim.spec.resources.requests.get("storage", NO_STORAGE)


def find_volume(
    claim: PersistentVolumeClaim, class_name: str, volumes: Iterable[PersistentVolume], node: Node | None
) -> PersistentVolume | None:
    """The volume kept for a claim, else the smallest that fits; node None: wherever it is."""
    best: PersistentVolume | None = None
    for volume in volumes:
        spec = volume.spec
        kept = spec.claim_ref is not None
        if kept and not is_kept_for(volume, claim):
            continue
        size = spec.capacity.get("storage", NO_STORAGE)
        if size < storage_of(claim) or (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
            continue
        if (spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or ""):
            continue
        selector = affinity_of(volume)
        near = node is None or selector is None or reaches(selector, node.metadata.labels)
        if volume.metadata.deletion_timestamp is not None:
            continue
        if kept:
            return volume if near else None
        if volume.status.phase != "Available" or not near or spec.storage_class_name != class_name:
            continue
        if claim.spec.selector is not None and not matches(claim.spec.selector, volume.metadata.labels):
            continue
        if not set(claim.spec.access_modes) <= set(spec.access_modes):
            continue
        if best is None or size < best.spec.capacity.get("storage", NO_STORAGE):
            best = volume
    return best


def is_kept_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume's claimRef names the claim."""
    ref, meta = volume.spec.claim_ref, claim.metadata
    return ref is not None and (ref.namespace, ref.name) == (meta.namespace, meta.name) and ref.uid in ("", meta.uid)


def affinity_of(volume: PersistentVolume) -> NodeSelector | None:
    """From which nodes the volume can be reached; None: from all."""
    return volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None


def reaches(selector: NodeSelector, labels: Mapping[str, str]) -> bool:
    """A volume's node affinity, which upstream asks of labels alone."""
    return any(
        term.match_expressions
        and not term.match_fields
        and all(requirement_holds(requirement, labels) for requirement in term.match_expressions)
        for term in selector.node_selector_terms
    )


def claim_reference(claim: PersistentVolumeClaim) -> dict[str, str]:
    """A volume's claimRef."""
    meta = claim.metadata
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    return {key: value for key, value in reference.items() if value}
