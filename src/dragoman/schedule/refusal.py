"""Why can a pod not be scheduled, or not on this node? One closed union of values, beside the allocator's.

Fields, never sentences: `explain.text` makes those. The class names are the codes that tools read in JSON,
so they are stable.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dragoman.values.quantity import Quantity


class ReasonBase(msgspec.Struct, frozen=True, tag=True, tag_field="code", rename="camel", omit_defaults=True):
    """Base: the class name is the code in JSON."""


# ---- the pod as a whole


class SchedulingGated(ReasonBase, frozen=True):
    """spec.schedulingGates holds the pod back."""

    gates: tuple[str, ...]


class ClaimNotCreated(ReasonBase, frozen=True):
    """The claim of a template entry has not been made yet; template_exists tells whether it can be. unlabelled:
    the pod's namespace, if the template asks for admin access that its labels do not allow."""

    pod_claim: str
    template: str
    template_exists: bool
    unlabelled: str = ""


class ClaimNotFound(ReasonBase, frozen=True):
    """spec.resourceClaims names a claim that does not exist."""

    pod_claim: str
    claim: str


class ClaimDeleting(ReasonBase, frozen=True):
    """The claim has a deletion time; no new consumer may join."""

    claim: str


class ClaimNotOwned(ReasonBase, frozen=True):
    """The recorded claim of a template entry belongs to somebody else (another incarnation of the pod)."""

    pod_claim: str
    claim: str


class ClaimUnknown(ReasonBase, frozen=True):
    """The entry has neither a claim's nor a template's name."""

    pod_claim: str


class ClaimInFlight(ReasonBase, frozen=True):
    """Another pod's decision about this claim is being written."""

    claim: str


class ClaimFull(ReasonBase, frozen=True):
    """The claim has as many consumers as the API allows."""

    claim: str
    consumers: int
    limit: int


class PodGroupTooSmall(ReasonBase, frozen=True):
    """A gang with too few pods yet: `pods` of `min_count` exist."""

    group: str
    pods: int
    min_count: int


class PodGroupNotFound(ReasonBase, frozen=True):
    """The pod names a PodGroup that does not exist."""

    group: str


class PodGroupDoesNotFit(ReasonBase, frozen=True):
    """A gang is placed whole or not at all: `fitted` of `min_count` pods fit, `pod` is the first that does not."""

    group: str
    fitted: int
    min_count: int
    pod: str


class DomainCount(msgspec.Struct, frozen=True, rename="camel"):
    """How many pods of a gang fit in one domain of a topology."""

    domain: str
    pods: int


class PodGroupTopologyMismatch(ReasonBase, frozen=True):
    """No domain of the topology that a gang requires (a node label) has room for `minCount` pods.

    domains: those with most room first, with how many pods fit; empty where no node has the label, or members of the
    gang run in several domains already.
    """

    group: str
    topology_key: str
    min_count: int
    domains: tuple[DomainCount, ...]


class VolumeClaimNotFound(ReasonBase, frozen=True):
    """A PersistentVolumeClaim that does not exist. ephemeral: it is made for a volume of the pod, by a controller."""

    volume_claim: str
    ephemeral: bool


class VolumeClaimDeleting(ReasonBase, frozen=True):
    """The PersistentVolumeClaim has a deletion time."""

    volume_claim: str


class VolumeClaimNotOwned(ReasonBase, frozen=True):
    """A PersistentVolumeClaim has the name of one for an ephemeral volume of the pod, and was not made for it."""

    volume_claim: str


class VolumeClaimLost(ReasonBase, frozen=True):
    """The volume of the PersistentVolumeClaim is gone (phase Lost, or nothing of that name is there)."""

    volume_claim: str
    volume: str


class VolumeClaimUnbound(ReasonBase, frozen=True):
    """The PersistentVolumeClaim has no volume and does not wait for a pod to be placed.

    storage_class: "" for none; class_exists: whether such a StorageClass is there.
    """

    volume_claim: str
    storage_class: str
    class_exists: bool


class NoNodes(ReasonBase, frozen=True):
    """The cluster has no node."""


# ---- one node


class NodeUnschedulable(ReasonBase, frozen=True):
    """spec.unschedulable, not tolerated."""


class UntoleratedTaint(ReasonBase, frozen=True):
    """A NoSchedule or NoExecute taint of the node."""

    key: str
    value: str
    effect: str


class NodeAffinityMismatch(ReasonBase, frozen=True):
    """nodeSelector or required node affinity. required: the first requirement that fails, as text."""

    required: str


class AddedAffinityMismatch(ReasonBase, frozen=True):
    """NodeAffinityArgs.addedAffinity of the scheduler's profile. required: its terms, as text."""

    required: str


class InsufficientResource(ReasonBase, frozen=True):
    """The node has too little of a resource. available may be negative on an overcommitted node."""

    resource: str
    requested: Quantity
    available: Quantity
    allocatable: Quantity


class TooManyPods(ReasonBase, frozen=True):
    """The node has as many pods as `allocatable` (its status.allocatable.pods)."""

    allocatable: int


class UnknownResource(ReasonBase, frozen=True):
    """An extended resource that the node does not have and no DeviceClass provides."""

    resource: str


class PortConflict(ReasonBase, frozen=True):
    """A host port is in use on the node."""

    port: int
    protocol: str


class PodAffinity(ReasonBase, frozen=True):
    """Required pod affinity: no pod that it selects is in the node's topology (a node label)."""

    topology_key: str


class PodAntiAffinity(ReasonBase, frozen=True):
    """Required pod anti-affinity in the node's topology: the pod's own, or that of pods already there (by_others)."""

    topology_key: str
    by_others: bool


class TopologySpread(ReasonBase, frozen=True):
    """A topology spread constraint that must hold. unlabelled: the node does not have the label at all."""

    topology_key: str
    max_skew: int
    unlabelled: bool


class VolumeClaimInUse(ReasonBase, frozen=True):
    """Another pod uses the PersistentVolumeClaim, and its access mode ReadWriteOncePod allows one."""

    volume_claim: str
    pod: str


class VolumeAffinityMismatch(ReasonBase, frozen=True):
    """The volume cannot be reached from the node. required: its node affinity as text."""

    volume_claim: str
    volume: str
    required: str


class VolumeZone(ReasonBase, frozen=True):
    """The volume's label names another zone or region than the node's."""

    volume_claim: str
    volume: str
    label: str
    value: str


class VolumeNotAvailable(ReasonBase, frozen=True):
    """No volume fits the PersistentVolumeClaim on the node, and its StorageClass makes none there.

    selected_node: one is being made for another node.
    """

    volume_claim: str
    storage_class: str
    requested: Quantity
    selected_node: str = ""


class ClaimNotAvailableOnNode(ReasonBase, frozen=True):
    """The claim is allocated where this node cannot reach it. feature: what its devices need of a node and this one
    does not declare."""

    claim: str
    feature: str = ""


class NodeAllocatableClaimShared(ReasonBase, frozen=True):
    """The claim's devices need cpu, memory, ... of the node, and another pod there uses the claim (KEP-5517)."""

    claim: str


class NodeAllocatableAmountUnknown(ReasonBase, frozen=True):
    """What a device needs of the node follows from a capacity that the claim's result does not state."""

    claim: str
    device: str
    capacity: str


class InsufficientPodLevelResource(ReasonBase, frozen=True):
    """spec.resources of the pod (pod_level) is less than containers and devices need together (requested; KEP-5517)."""

    resource: str
    requested: Quantity
    pod_level: Quantity


class BindingFailed(ReasonBase, frozen=True):
    """A device of the allocated claim reports a binding failure, or its conditions did not come true in time.

    reported: what the condition says.
    """

    claim: str
    device: str
    condition: str
    reported: str
    timed_out: bool


PodReason: TypeAlias = (
    SchedulingGated
    | ClaimNotCreated
    | ClaimNotFound
    | ClaimDeleting
    | ClaimNotOwned
    | ClaimUnknown
    | ClaimInFlight
    | ClaimFull
    | PodGroupTooSmall
    | PodGroupNotFound
    | PodGroupDoesNotFit
    | PodGroupTopologyMismatch
    | VolumeClaimNotFound
    | VolumeClaimDeleting
    | VolumeClaimNotOwned
    | VolumeClaimLost
    | VolumeClaimUnbound
    | NoNodes
)
NodeReason: TypeAlias = (
    NodeUnschedulable
    | UntoleratedTaint
    | NodeAffinityMismatch
    | AddedAffinityMismatch
    | InsufficientResource
    | TooManyPods
    | UnknownResource
    | PortConflict
    | PodAffinity
    | PodAntiAffinity
    | TopologySpread
    | VolumeClaimInUse
    | VolumeAffinityMismatch
    | VolumeZone
    | VolumeNotAvailable
    | ClaimNotAvailableOnNode
    | NodeAllocatableClaimShared
    | NodeAllocatableAmountUnknown
    | InsufficientPodLevelResource
    | BindingFailed
)
ScheduleReason: TypeAlias = PodReason | NodeReason
