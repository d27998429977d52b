"""Which claims does a pod use, in what state, and may it be scheduled with them at all?

Reads pod, claims and templates; answers with the claims in the order of spec.resourceClaims or with the
first reason against (upstream's PreEnqueue and PreFilter). What the claims ask for is the allocator's to judge.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from dragoman.api.core import Pod, PodResourceClaim
from dragoman.api.meta import NamespacedName, OwnerReference
from dragoman.api.resource import ADMIN_ACCESS_LABEL, ConsumerReference, ResourceClaim, ResourceClaimTemplate
from dragoman.schedule.refusal import (
    ClaimDeleting,
    ClaimFull,
    ClaimInFlight,
    ClaimNotCreated,
    ClaimNotFound,
    ClaimNotOwned,
    ClaimUnknown,
    PodReason,
)
from dragoman.snapshot.change import Snapshot

MAX_CONSUMERS = 256  # ResourceClaimReservedForMaxSize of the API
GROUP_API = "scheduling.k8s.io"
GROUP_PLURAL = "podgroups"


class PodClaim(msgspec.Struct, frozen=True):
    """An entry of spec.resourceClaims with its claim, and who is to stand in reservedFor."""

    entry: str
    claim: ResourceClaim
    consumer: ConsumerReference
    reserved: bool

    @property
    def allocated(self) -> bool:
        """Devices are chosen already."""
        return self.claim.status.allocation is not None

    @property
    def key(self) -> NamespacedName:
        """Key in the snapshot."""
        return self.claim.metadata.namespace, self.claim.metadata.name


def claims_of(
    snapshot: Snapshot, pod: Pod, in_flight: Collection[NamespacedName] = ()
) -> tuple[PodClaim, ...] | PodReason:
    """The pod's claims, each once. in_flight: claims that another decision is being written for."""
    found: dict[NamespacedName, PodClaim] = {}
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name is None and entry.name in made and made[entry.name] is None:
            continue  # deliberately without a claim
        claim = _resolve(snapshot, pod, entry, made)
        if not isinstance(claim, ResourceClaim):
            return claim
        used = PodClaim(entry.name, claim, *_consumer(snapshot, pod, entry, claim))
        found.setdefault(used.key, used)
    for used in found.values():
        reason = _usable(used, in_flight)
        if reason is not None:
            return reason
    return tuple(found.values())


def group_name(pod: Pod) -> str:
    """The PodGroup the pod names, "" if none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def owned_by(owner: OwnerReference | None, pod: Pod) -> bool:
    """Whether a claim's controller is the pod or its group; without uids the name decides (bare objects)."""
    if owner is None:
        return False
    if owner.kind == "PodGroup" and owner.api_version.startswith(f"{GROUP_API}/"):
        return owner.name == group_name(pod) != ""
    return owner.kind == "Pod" and same(owner.uid, owner.name, pod)


def same(uid: str, name: str, pod: Pod) -> bool:
    """Whether uid and name mean this very pod."""
    if uid and pod.metadata.uid:
        return uid == pod.metadata.uid
    return name == pod.metadata.name


def _resolve(
    snapshot: Snapshot, pod: Pod, entry: PodResourceClaim, made: dict[str, str | None]
) -> ResourceClaim | PodReason:
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is not None:
        name: str | None = entry.resource_claim_name
    elif entry.resource_claim_template_name is not None:
        name = made.get(entry.name)
        if name is None:
            template = entry.resource_claim_template_name
            found = snapshot.templates.get((namespace, template))
            unlabelled = found is not None and _is_admin_refused(snapshot, namespace, found)
            return ClaimNotCreated(entry.name, template, found is not None, namespace if unlabelled else "")
    else:
        return ClaimUnknown(entry.name)
    assert name is not None
    claim = snapshot.claims.get((namespace, name))
    if claim is None:
        return ClaimNotFound(entry.name, name)
    if claim.metadata.deletion_timestamp is not None:
        return ClaimDeleting(name)
    if entry.resource_claim_name is None and not owned_by(claim.metadata.controller, pod):
        return ClaimNotOwned(entry.name, name)
    return claim


def _is_admin_refused(snapshot: Snapshot, namespace: str, template: ResourceClaimTemplate) -> bool:
    """Whether the API server refuses the template's claims: the namespace lost the label that admin access needs."""
    requests = template.spec.spec.devices.requests
    if not any(request.exactly is not None and request.exactly.admin_access for request in requests):
        return False
    found = snapshot.namespaces.get(namespace)
    return found is not None and found.metadata.labels.get(ADMIN_ACCESS_LABEL) != "true"


def _consumer(
    snapshot: Snapshot, pod: Pod, entry: PodResourceClaim, claim: ResourceClaim
) -> tuple[ConsumerReference, bool]:
    """Who the claim is reserved for: the pod, or its group where that has the same entry (KEP-5729)."""
    group = group_name(pod)
    uid = _uid_of_group(snapshot, pod, entry, claim) if group else None
    if uid is not None:
        consumer = ConsumerReference(api_group=GROUP_API, resource=GROUP_PLURAL, name=group, uid=uid)
        return consumer, any(
            (entry.api_group, entry.resource, entry.name) == (GROUP_API, GROUP_PLURAL, group)
            for entry in claim.status.reserved_for
        )
    consumer = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    return consumer, any(
        not entry.api_group and entry.resource == "pods" and same(entry.uid, entry.name, pod)
        for entry in claim.status.reserved_for
    )


def _uid_of_group(snapshot: Snapshot, pod: Pod, entry: PodResourceClaim, claim: ResourceClaim) -> str | None:
    """The uid of the pod's group if the claim is the group's, None if it is the pod's."""
    group = snapshot.pod_groups.get((pod.metadata.namespace, group_name(pod)))
    if group is not None and entry in group.spec.resource_claims:
        return group.metadata.uid
    owner = claim.metadata.controller
    if owner is not None and owner.kind == "PodGroup" and owner.name == group_name(pod):
        return owner.uid
    return None


def _usable(used: PodClaim, in_flight: Collection[NamespacedName]) -> PodReason | None:
    claim = used.claim
    name = claim.metadata.name
    if used.key in in_flight:
        return ClaimInFlight(name)
    consumers = len(claim.status.reserved_for)
    if not used.reserved and consumers >= MAX_CONSUMERS:
        return ClaimFull(name, consumers, MAX_CONSUMERS)
    return None
