"""Do a pod's PersistentVolumeClaims let it on a node, and what is bound or made for it there?

VolumeBinding, VolumeZone and the ReadWriteOncePod part of VolumeRestrictions, in upstream's semantics. A claim that
waits for its first consumer gets the smallest volume that fits on the node, or one made there by its StorageClass's
provisioner. How much storage a provisioner has (CSIStorageCapacity) and how many volumes a node attaches
(CSINode) are not checked. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dragoman.api.core import (
    ClaimReference,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from dragoman.api.meta import NamespacedName, Ref
from dragoman.effects import Effect, Patch
from dragoman.schedule.filter import terms_text
from dragoman.schedule.refusal import (
    NodeReason,
    PodReason,
    VolumeAffinityMismatch,
    VolumeClaimDeleting,
    VolumeClaimInUse,
    VolumeClaimLost,
    VolumeClaimNotFound,
    VolumeClaimNotOwned,
    VolumeClaimUnbound,
    VolumeNotAvailable,
    VolumeZone,
)
from dragoman.snapshot.change import Change, Put, Snapshot, keys_of
from dragoman.snapshot.usage import is_finished, volume_claim_names
from dragoman.snapshot.volumes import (
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAITS,
    affinity_of,
    claim_reference,
    class_name_of,
    find_volume,
    is_bound,
    reaches,
    storage_of,
)

ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class VolumeChoice(msgspec.Struct, frozen=True):
    """What a claim gets: that volume, or one to be made (volume None)."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume | None


class VolumeState(msgspec.Struct, frozen=True):
    """The claims behind a pod's volumes. reasons hold for every node.

    bound: with their volumes. waiting: to be bound or made where the pod goes, smallest first, with their classes;
    free: volumes that could serve them. exclusive: claims for one pod that another one uses. zones: whether they count.
    """

    reasons: tuple[PodReason, ...] = ()
    bound: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    waiting: tuple[tuple[PersistentVolumeClaim, StorageClass], ...] = ()
    free: tuple[PersistentVolume, ...] = ()
    exclusive: tuple[VolumeClaimInUse, ...] = ()
    zones: bool = True

    @property
    def labels(self) -> frozenset[str]:
        """The node labels that matter."""
        found = {key for _, volume in self.bound for key in ZONE_LABELS if key in volume.metadata.labels}
        if found:
            found.update(ZONE_LABELS)
        for volume in (*(volume for _, volume in self.bound), *self.free):
            selector = affinity_of(volume)
            for term in selector.node_selector_terms if selector is not None else ():
                found |= {requirement.key for requirement in term.match_expressions}
        for _, storage_class in self.waiting:
            for topology in storage_class.allowed_topologies:
                found |= {requirement.key for requirement in topology.match_label_expressions}
        return frozenset(found)

    @property
    def by_name(self) -> bool:
        """Whether a node's name matters: a volume is being made for one."""
        return any(SELECTED_NODE in claim.metadata.annotations for claim, _ in self.waiting)

    def reason(self, node: Node) -> NodeReason | None:
        """The first claim that keeps the pod off the node."""
        for in_use in self.exclusive:
            return in_use
        labels = node.metadata.labels
        for claim, volume in self.bound:
            selector = affinity_of(volume)
            if selector is not None and not reaches(selector, labels):
                text = terms_text(selector.node_selector_terms)
                return VolumeAffinityMismatch(claim.metadata.name, volume.metadata.name, text)
        chosen = self.choose(node)
        if not isinstance(chosen, tuple):
            return chosen
        for claim, volume in self.bound if self.zones else ():
            if (label := _other_zone(volume, labels)) is not None:
                return VolumeZone(claim.metadata.name, volume.metadata.name, label, volume.metadata.labels[label])
        return None

    def choose(self, node: Node) -> tuple[VolumeChoice, ...] | VolumeNotAvailable:
        """What each waiting claim gets on the node, or the first that gets nothing."""
        chosen: list[VolumeChoice] = []
        for claim, storage_class in self.waiting:
            meta = claim.metadata
            selected = meta.annotations.get(SELECTED_NODE, "")
            if selected and selected != node.metadata.name:
                return VolumeNotAvailable(meta.name, storage_class.metadata.name, storage_of(claim), selected)
            volume = None
            if not selected:
                used = {choice.volume.metadata.name for choice in chosen if choice.volume is not None}
                left = [one for one in self.free if one.metadata.name not in used]
                volume = find_volume(claim, storage_class.metadata.name, left, node)
            if volume is None and not _makes(storage_class, node):
                return VolumeNotAvailable(meta.name, storage_class.metadata.name, storage_of(claim))
            chosen.append(VolumeChoice(claim, volume))
        return tuple(chosen)


def volume_state_of(snapshot: Snapshot, pod: Pod, off: frozenset[str] = frozenset()) -> VolumeState | None:
    """The claims behind a pod's volumes; None for a pod without any. off: checks that are not made (`POD_CHECKS`)."""
    names = volume_claim_names(pod) if "VolumeBinding" not in off else ()
    if not names:
        return None
    namespace = pod.metadata.namespace
    reasons: list[PodReason] = []
    bound: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
    waiting: list[tuple[PersistentVolumeClaim, StorageClass]] = []
    exclusive: list[VolumeClaimInUse] = []
    made = {f"{pod.metadata.name}-{volume.name}" for volume in pod.spec.volumes if volume.ephemeral is not None}
    for name in names:
        claim = snapshot.volume_claims.get((namespace, name))
        reason = _unusable(pod, claim, name, ephemeral=name in made)
        if reason is not None or claim is None:
            reasons += [reason] if reason is not None else []
            continue
        if is_bound(claim):
            volume = snapshot.volumes.get(claim.spec.volume_name)
            if volume is None:
                reasons.append(VolumeClaimLost(name, claim.spec.volume_name))
            else:
                bound.append((claim, volume))
        else:
            found = _class_of(snapshot, claim)
            if isinstance(found, StorageClass):
                waiting.append((claim, found))
            else:
                reasons.append(found)
        if "VolumeRestrictions" not in off:
            exclusive += _in_use(snapshot, pod, claim)
    waiting.sort(key=lambda entry: storage_of(entry[0]))
    classes = {storage_class.metadata.name for _, storage_class in waiting}
    free = sorted(
        (volume for volume in snapshot.volumes.values() if volume.spec.storage_class_name in classes),
        key=lambda volume: volume.metadata.name,
    )
    return VolumeState(
        tuple(reasons),
        tuple(bound),
        tuple(waiting),
        tuple(free) if waiting else (),
        tuple(exclusive),
        zones="VolumeZone" not in off,
    )


def _unusable(pod: Pod, claim: PersistentVolumeClaim | None, name: str, *, ephemeral: bool) -> PodReason | None:
    if claim is None:
        return VolumeClaimNotFound(name, ephemeral)
    if claim.status.phase == "Lost":
        return VolumeClaimLost(name, claim.spec.volume_name)
    if claim.metadata.deletion_timestamp is not None:
        return VolumeClaimDeleting(name)
    owner = claim.metadata.controller
    if ephemeral and (owner is None or owner.uid != pod.metadata.uid):
        return VolumeClaimNotOwned(name)
    return None


def _class_of(snapshot: Snapshot, claim: PersistentVolumeClaim) -> StorageClass | VolumeClaimUnbound:
    """The class of a claim that can wait for the pod's place, or why it cannot."""
    name = class_name_of(snapshot, claim)
    found = snapshot.storage_classes.get(name)
    # A claim that no server has seen (of a file, or of a controller in what-if) is bound as soon as it is created
    # where its class makes volumes: the provisioner is expected to work.
    new = not claim.metadata.resource_version and found is not None and found.provisioner != NO_PROVISIONER
    if found is not None and not claim.spec.volume_name and (found.volume_binding_mode == WAITS or new):
        return found
    return VolumeClaimUnbound(claim.metadata.name, name, found is not None)


def _in_use(snapshot: Snapshot, pod: Pod, claim: PersistentVolumeClaim) -> Iterable[VolumeClaimInUse]:
    if "ReadWriteOncePod" not in claim.spec.access_modes:
        return
    key = (claim.metadata.namespace, claim.metadata.name)
    for other in keys_of(snapshot.pods_by_volume_claim, key):
        user = snapshot.pods[other]
        if user.spec.node_name and not is_finished(user) and other != (pod.metadata.namespace, pod.metadata.name):
            yield VolumeClaimInUse(claim.metadata.name, other[1])
            return


def _makes(storage_class: StorageClass, node: Node) -> bool:
    """Whether the class's provisioner makes volumes for that node."""
    if not storage_class.provisioner or storage_class.provisioner == NO_PROVISIONER:
        return False
    terms = storage_class.allowed_topologies
    labels = node.metadata.labels
    return not terms or any(
        all(labels.get(requirement.key) in requirement.values for requirement in term.match_label_expressions)
        for term in terms
    )


def _other_zone(volume: PersistentVolume, labels: Mapping[str, str]) -> str | None:
    """The label of the volume that names other zones than the node's."""
    if not any(label in labels for label in ZONE_LABELS):
        return None
    for label in ZONE_LABELS:
        zones = volume.metadata.labels.get(label)
        if zones is None:
            continue
        have = labels.get(label, labels.get(_SAME.get(label, ""), ""))
        if have not in {zone.strip() for zone in zones.split("__")}:
            return label
    return None


_SAME = {ZONE_LABELS[2]: ZONE_LABELS[0], ZONE_LABELS[3]: ZONE_LABELS[1]}
"""A beta label on the volume is compared with the node's stable one where the node lacks it."""


# ---- writes


def volume_writes(
    chosen: Iterable[VolumeChoice], node: str
) -> tuple[list[Effect], list[Change], tuple[NamespacedName, ...]]:
    """What keeps volumes for claims or asks for new ones, the changes it makes, and the claims to wait for."""
    effects: list[Effect] = []
    changes: list[Change] = []
    claims: list[NamespacedName] = []
    for choice in chosen:
        claim, meta = choice.claim, choice.claim.metadata
        claims.append((meta.namespace, meta.name))
        ref = Ref("PersistentVolumeClaim", meta.namespace, meta.name, meta.uid)
        if choice.volume is not None:
            effects.append(_keep(choice.volume, claim))
            spec = choice.volume.spec
            kept_for = ClaimReference(meta.namespace, meta.name, meta.uid)
            spec = msgspec.structs.replace(spec, claim_ref=kept_for)
            changes.append(Put("PersistentVolume", msgspec.structs.replace(choice.volume, spec=spec)))
        elif meta.annotations.get(SELECTED_NODE) != node:
            annotations: Any = {"annotations": {SELECTED_NODE: node}}
            effects.append(Patch(ref, {"metadata": annotations}, resource_version=meta.resource_version))
            kept = msgspec.structs.replace(meta, annotations={**meta.annotations, SELECTED_NODE: node})
            changes.append(Put("PersistentVolumeClaim", msgspec.structs.replace(claim, metadata=kept)))
    return effects, changes, tuple(claims)


def _keep(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Patch:
    meta = volume.metadata
    reference = claim_reference(claim)
    patch = {
        "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"claimRef": reference},
    }
    return Patch(Ref("PersistentVolume", "", meta.name, meta.uid), patch, resource_version=meta.resource_version)
