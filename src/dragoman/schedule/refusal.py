"""Why can a pod not be scheduled, or not on this node? One closed union of values, beside the allocator's.

Fields, never sentences: `explain.text` makes those. The class names are the codes that tools read in JSON,
so they are stable.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dragoman.values.quantity import Quantity


class Reason(msgspec.Struct, frozen=True, tag=True, tag_field="code", rename="camel", omit_defaults=True):
    """Base: the class name is the code in JSON."""


# ---- the pod as a whole


class Gated(Reason, frozen=True):
    """spec.schedulingGates holds the pod back."""

    gates: tuple[str, ...]


class ClaimNotCreated(Reason, frozen=True):
    """The claim of a template entry has not been made yet; template_exists tells whether it can be."""

    pod_claim: str
    template: str
    template_exists: bool


class ClaimMissing(Reason, frozen=True):
    """spec.resourceClaims names a claim that does not exist."""

    pod_claim: str
    claim: str


class ClaimDeleting(Reason, frozen=True):
    """The claim has a deletion time; no new consumer may join."""

    claim: str


class ClaimNotOwned(Reason, frozen=True):
    """The recorded claim of a template entry belongs to somebody else (another incarnation of the pod)."""

    pod_claim: str
    claim: str


class ClaimUnknown(Reason, frozen=True):
    """The entry has neither a claim's nor a template's name."""

    pod_claim: str


class ClaimInFlight(Reason, frozen=True):
    """Another pod's decision about this claim is being written."""

    claim: str


class ClaimFull(Reason, frozen=True):
    """The claim has as many consumers as the API allows."""

    claim: str
    consumers: int
    limit: int


class GroupTooSmall(Reason, frozen=True):
    """A gang waits for its other pods: have of wanted are there."""

    group: str
    have: int
    wanted: int


class GroupMissing(Reason, frozen=True):
    """The pod names a PodGroup that does not exist."""

    group: str


class GroupDoesNotFit(Reason, frozen=True):
    """A gang is placed whole or not at all: fitted of wanted pods found a place, `pod` is the first without."""

    group: str
    fitted: int
    wanted: int
    pod: str


class NoNodes(Reason, frozen=True):
    """The cluster has no node."""


# ---- one node


class NodeCordoned(Reason, frozen=True):
    """spec.unschedulable, not tolerated."""


class TaintNotTolerated(Reason, frozen=True):
    """A NoSchedule or NoExecute taint of the node."""

    key: str
    value: str
    effect: str


class AffinityMismatch(Reason, frozen=True):
    """nodeSelector or required node affinity. wanted is the first requirement that fails, as text."""

    wanted: str


class TooLittle(Reason, frozen=True):
    """A resource of the node does not suffice. free may be negative on an overcommitted node."""

    resource: str
    wanted: Quantity
    free: Quantity
    total: Quantity


class TooManyPods(Reason, frozen=True):
    """allocatable.pods is used up."""

    limit: int


class ResourceUnknown(Reason, frozen=True):
    """An extended resource that the node does not have and no DeviceClass provides."""

    resource: str


class PortHeld(Reason, frozen=True):
    """A host port is in use on the node."""

    port: int
    protocol: str


class PodsAttract(Reason, frozen=True):
    """Required pod affinity: no pod that it selects is in the node's topology (a node label)."""

    topology_key: str


class PodsRepel(Reason, frozen=True):
    """Required pod anti-affinity in the node's topology: the pod's own, or that of pods already there (by_others)."""

    topology_key: str
    by_others: bool


class SpreadUneven(Reason, frozen=True):
    """A topology spread constraint that must hold. unlabelled: the node does not have the label at all."""

    topology_key: str
    max_skew: int
    unlabelled: bool


class ClaimElsewhere(Reason, frozen=True):
    """The claim is allocated where this node cannot reach it."""

    claim: str


class MappedClaimShared(Reason, frozen=True):
    """The claim's devices need cpu, memory, ... of the node, and another pod there uses the claim (KEP-5517)."""

    claim: str


class MappedAmountUnknown(Reason, frozen=True):
    """What a device needs of the node follows from a capacity of which the claim's result tells no amount."""

    claim: str
    device: str
    capacity: str


class PodLevelTooLittle(Reason, frozen=True):
    """spec.resources of the pod states less than containers and devices need together (KEP-5517)."""

    resource: str
    wanted: Quantity
    stated: Quantity


class BindingFailed(Reason, frozen=True):
    """A device of the allocated claim reports a binding failure, or its conditions did not come true in time.

    told: what the condition says.
    """

    claim: str
    device: str
    condition: str
    told: str
    timed_out: bool


PodReason: TypeAlias = (
    Gated
    | ClaimNotCreated
    | ClaimMissing
    | ClaimDeleting
    | ClaimNotOwned
    | ClaimUnknown
    | ClaimInFlight
    | ClaimFull
    | GroupTooSmall
    | GroupMissing
    | GroupDoesNotFit
    | NoNodes
)
NodeReason: TypeAlias = (
    NodeCordoned
    | TaintNotTolerated
    | AffinityMismatch
    | TooLittle
    | TooManyPods
    | ResourceUnknown
    | PortHeld
    | PodsAttract
    | PodsRepel
    | SpreadUneven
    | ClaimElsewhere
    | MappedClaimShared
    | MappedAmountUnknown
    | PodLevelTooLittle
    | BindingFailed
)
ScheduleReason: TypeAlias = PodReason | NodeReason
