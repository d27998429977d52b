"""What was decided for a unit, as a value: effects in order, waits, refusals; and how to take a part of it back.

Builds the writes of a placement (claim finalizer, allocation with reservation, pod status, binding), each with its
precondition. Effects on one object carry the version that the snapshot had: the one who commits puts in the version
that its own earlier effect of the same decision made. Never chooses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from dragoman.allocate.allocator import TaskType
from dragoman.allocate.refusal import Refusal, SearchLimitReached
from dragoman.api import codec
from dragoman.api.core import NodeAllocatableClaimStatus, Pod, PodExtendedResourceClaimStatus
from dragoman.api.kinds import kind_of
from dragoman.api.meta import NamespacedName, Ref, format_time
from dragoman.api.resource import FINALIZER, AllocationResult, ConsumerReference, ResourceClaim
from dragoman.effects import Bind, Create, Delete, Effect, Patch
from dragoman.schedule.claims import PodClaim
from dragoman.schedule.extended import Special
from dragoman.schedule.queue import Topic, UnitKey
from dragoman.schedule.refusal import ScheduleReason
from dragoman.snapshot.change import Change, Gone, Put

AnyReason: TypeAlias = ScheduleReason | Refusal
NewId: TypeAlias = Callable[[], str]


class NodesRefused(msgspec.Struct, frozen=True):
    """Nodes that refuse a pod for the same reasons, sorted by name."""

    nodes: tuple[str, ...]
    reasons: tuple[AnyReason, ...]


class NodesUndecided(msgspec.Struct, frozen=True):
    """Nodes for which the search stopped before it was decided, sorted by name."""

    nodes: tuple[str, ...]
    limit: SearchLimitReached


class Refused(msgspec.Struct, frozen=True):
    """Why a pod cannot be scheduled. reasons: what no node can help; nodes: the others, total of them in the cluster.

    released: one of its own idle claims is released so that it can be allocated again.
    """

    pod: NamespacedName
    uid: str
    reasons: tuple[AnyReason, ...] = ()
    nodes: tuple[NodesRefused, ...] = ()
    total: int = 0
    released: str = ""


class UndecidedPod(msgspec.Struct, frozen=True):
    """A pod for which there is neither a place nor a no: decide it again with more steps.

    undecided: where the search stopped. nodes: those that refuse it for certain; reasons: what is known of its gang.
    """

    pod: NamespacedName
    uid: str
    undecided: tuple[NodesUndecided, ...]
    nodes: tuple[NodesRefused, ...] = ()
    reasons: tuple[AnyReason, ...] = ()
    total: int = 0


class Placement(msgspec.Struct, frozen=True):
    """Where a pod goes and what its claims get. allocations: (claim key, result) of those allocated now.

    kind: the pod as one to expect again, for policies that learn. warnings: facts that do not forbid the place, such as
    a device that may use what a held device does which is no longer published.
    """

    pod: NamespacedName
    uid: str
    node: str
    allocations: tuple[tuple[NamespacedName, AllocationResult], ...] = ()
    kind: TaskType | None = None
    warnings: tuple[Refusal, ...] = ()


class Victim(msgspec.Struct, frozen=True):
    """A pod that makes room: this incarnation, where it runs, and its priority."""

    pod: NamespacedName
    uid: str
    node: str
    priority: int


class Preemption(msgspec.Struct, frozen=True):
    """Who is displaced for a pod that is refused now, and the node that takes it then. violations: of budgets."""

    node: str
    victims: tuple[Victim, ...]
    violations: int


class Wait(msgspec.Struct, frozen=True):
    """A placed pod waits until the devices' binding conditions hold, at most until the deadline, and its volumes are
    bound.

    claims: ResourceClaims with conditions that do not hold yet; volume_claims: PersistentVolumeClaims without volume.
    """

    pod: NamespacedName
    node: str
    claims: tuple[NamespacedName, ...]
    deadline: datetime | None
    volume_claims: tuple[NamespacedName, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """The outcome for a unit on one snapshot (of that version).

    effects: to be written in order. assumed: the same as changes, for the snapshot to show at once. topics: what
    may help a refused or waiting unit. written: claims that the effects write. lost: the unit had its place and has
    it no longer; decide it from the start. preemption: what the effects of a refused unit displace. undecided:
    pods whose search was not finished.
    """

    unit: UnitKey
    version: int
    effects: tuple[Effect, ...] = ()
    assumed: tuple[Change, ...] = ()
    placements: tuple[Placement, ...] = ()
    waits: tuple[Wait, ...] = ()
    refused: tuple[Refused, ...] = ()
    undecided: tuple[UndecidedPod, ...] = ()
    topics: frozenset[Topic] = frozenset()
    written: tuple[NamespacedName, ...] = ()
    lost: bool = False
    preemption: Preemption | None = None


# ---- writes


def claim_ref(claim: ResourceClaim) -> Ref:
    """The claim, this incarnation."""
    meta = claim.metadata
    return Ref("ResourceClaim", meta.namespace, meta.name, meta.uid)


def pod_ref(pod: Pod) -> Ref:
    """The pod, this incarnation."""
    meta = pod.metadata
    return Ref("Pod", meta.namespace, meta.name, meta.uid)


def claim_writes(
    claim: ResourceClaim, consumer: ConsumerReference, allocation: AllocationResult | None, now: datetime
) -> tuple[tuple[Effect, ...], ResourceClaim]:
    """The writes that allocate (unless allocation is None) and reserve a claim, and the claim as it is then."""
    effects: list[Effect] = []
    meta, status = claim.metadata, claim.status
    change: dict[str, object] = {}
    if allocation is not None:
        allocation = msgspec.structs.replace(allocation, allocation_timestamp=format_time(now))
        change["allocation"] = codec.to_json(allocation)
        status = msgspec.structs.replace(status, allocation=allocation)
        if FINALIZER not in meta.finalizers:
            finalizers = (*meta.finalizers, FINALIZER)
            patch = {"metadata": {"finalizers": list(finalizers)}}
            effects.append(Patch(claim_ref(claim), patch, resource_version=meta.resource_version))
            meta = msgspec.structs.replace(meta, finalizers=finalizers)
    status = msgspec.structs.replace(status, reserved_for=(*status.reserved_for, consumer))
    change["reservedFor"] = [codec.to_json(entry) for entry in status.reserved_for]
    effects.append(
        Patch(
            claim_ref(claim),
            {"status": change},
            subresource="status",
            resource_version=claim.metadata.resource_version,
        )
    )
    return tuple(effects), msgspec.structs.replace(claim, metadata=meta, status=status)


def release_writes(claim: ResourceClaim) -> tuple[tuple[Effect, ...], ResourceClaim]:
    """The write that gives up a claim's devices and reservations, and the claim as it is then."""
    patch = Patch(
        claim_ref(claim),
        {"status": {"allocation": None, "reservedFor": None, "devices": None}},
        subresource="status",
        resource_version=claim.metadata.resource_version,
    )
    status = msgspec.structs.replace(claim.status, allocation=None, reserved_for=(), devices=())
    return (patch,), msgspec.structs.replace(claim, status=status)


def special_writes(
    pod: Pod, claim: ResourceClaim, special: Special, allocation: AllocationResult, now: datetime
) -> tuple[tuple[Effect, ...], ResourceClaim, Pod]:
    """The writes that create, allocate and record a special claim (its name is final), and both objects then."""
    kind = kind_of("ResourceClaim")
    made = msgspec.structs.replace(
        claim, metadata=msgspec.structs.replace(claim.metadata, finalizers=(FINALIZER,), uid="")
    )
    body = {"apiVersion": kind.api_version, "kind": kind.kind, **codec.to_json(made)}
    consumer = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    writes, allocated = claim_writes(made, consumer, allocation, now)
    status = PodExtendedResourceClaimStatus(claim.metadata.name, special.mappings)
    record = Patch(
        pod_ref(pod),
        {"status": {"extendedResourceClaimStatus": codec.to_json(status)}},
        subresource="status",
    )
    shown = msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, extended_resource_claim_status=status)
    )
    return (Create(body), *writes, record), allocated, shown


def node_allocatable_write(pod: Pod, node_allocatable: tuple[NodeAllocatableClaimStatus, ...]) -> tuple[Effect, Pod]:
    """The write that records what a pod's devices need of its node, and the pod then. "" names its special claim."""
    special = pod.status.extended_resource_claim_status
    name = special.resource_claim_name if special is not None else ""
    entries = [
        msgspec.structs.replace(entry, resource_claim_name=entry.resource_claim_name or name)
        for entry in node_allocatable
    ]
    entries.sort(key=lambda entry: entry.resource_claim_name)
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=tuple(entries))
    reported = {"nodeAllocatableResourceClaimStatuses": [codec.to_json(entry) for entry in entries] or None}
    return Patch(pod_ref(pod), {"status": reported}, subresource="status"), msgspec.structs.replace(pod, status=status)


def remove_special_writes(pod: Pod, claim: ResourceClaim) -> tuple[tuple[Effect, ...], tuple[Change, ...]]:
    """The writes that remove a special claim of an attempt that was not finished, and the changes they make."""
    released, _ = release_writes(claim)
    ref = claim_ref(claim)
    open_up = Patch(ref, {"metadata": {"finalizers": None}}, resource_version=claim.metadata.resource_version)
    effects: list[Effect] = [*released, open_up, Delete(ref)]
    changes: list[Change] = [Gone("ResourceClaim", ref.namespace, ref.name)]
    if pod.status.extended_resource_claim_status is not None:
        effects.append(Patch(pod_ref(pod), {"status": {"extendedResourceClaimStatus": None}}, subresource="status"))
        status = msgspec.structs.replace(pod.status, extended_resource_claim_status=None)
        changes.append(Put("Pod", msgspec.structs.replace(pod, status=status)))
    return tuple(effects), tuple(changes)


def bound(pod: Pod, node: str) -> Pod:
    """The pod as it is when it is bound."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def bind_write(pod: Pod, node: str) -> Bind:
    """The binding."""
    return Bind(pod_ref(pod), node)


def pod_claim_writes(
    used: PodClaim, allocation: AllocationResult | None, now: datetime
) -> tuple[tuple[Effect, ...], tuple[Put, ...]]:
    """Writes and assumed changes for one claim of a pod; nothing if it is reserved already."""
    if used.reserved and used.allocated:
        return (), ()
    effects, claim = claim_writes(used.claim, used.consumer, allocation, now)
    return effects, (Put("ResourceClaim", claim),)


# ---- taking back


def undo(decision: Decision, written: Sequence[Mapping[str, Any] | None]) -> tuple[Effect, ...]:
    """What takes back the effects that were written before one failed, last one first.

    written: what the server answered to each of them (objects; None for a binding or an event). A new allocation is
    given up, an added reservation removed, a created claim deleted, a recorded pod status cleared; an object that
    somebody changed since stays as it is.
    """
    done = list(zip(decision.effects, written, strict=False))
    created = {_name_of(stored) for effect, stored in done if isinstance(effect, Create) and stored is not None}
    back: list[Effect] = []
    for effect, stored in reversed(done):
        if stored is None:
            continue
        if isinstance(effect, Create):
            ref = Ref(effect.body["kind"], *_name_of(stored), stored["metadata"].get("uid", ""))
            back += [Patch(ref, {"metadata": {"finalizers": None}}), Delete(ref)]
        elif isinstance(effect, Patch) and effect.subresource == "status":
            if effect.ref.kind == "Pod":
                cleared = dict.fromkeys(effect.patch["status"])
                back.append(Patch(effect.ref, {"status": cleared}, subresource="status"))
            elif _name_of(stored) not in created and effect.patch["status"].get("reservedFor"):
                back.append(_take_back(effect, stored["metadata"]["resourceVersion"]))
    return tuple(back)


def _name_of(stored: Mapping[str, Any]) -> NamespacedName:
    return stored["metadata"].get("namespace", ""), stored["metadata"]["name"]


def _take_back(effect: Patch, version: str) -> Patch:
    change = effect.patch["status"]
    if change.get("allocation") is not None:
        back: dict[str, object] = {"allocation": None, "reservedFor": None}
    else:
        back = {"reservedFor": change["reservedFor"][:-1] or None}
    return Patch(effect.ref, {"status": back}, subresource="status", resource_version=version)
