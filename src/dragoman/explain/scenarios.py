"""How would the cluster look if one thing were different? Snapshots to changes, for what-if questions.

Pods gone or pending again, nodes gone or more of them, taints. Never decides what happens then; that is whatif's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import ResourceClaim
from dragoman.schedule.claims import owned_by, same
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, keys_of
from dragoman.snapshot.usage import DeviceId, claim_names, is_finished

HOSTNAME = "kubernetes.io/hostname"
_HARD = "NoExecute"


# ---- pods


def without_pod(snapshot: Snapshot, key: NamespacedName) -> tuple[Change, ...]:
    """The pod deleted, and what the claim controller does then: its own claims go, reservations are taken back."""
    pod = snapshot.pods[key]
    changes: list[Change] = [Gone("Pod", *key)]
    for claim in claims_used(snapshot, pod):
        controller = claim.metadata.controller
        if controller is not None and controller.kind == "Pod" and owned_by(controller, pod):
            changes.append(Gone("ResourceClaim", claim.metadata.namespace, claim.metadata.name))
        else:
            changes += _unreserved(snapshot, claim, pod)
    return tuple(changes)


def pending_again(snapshot: Snapshot, key: NamespacedName) -> tuple[Change, ...]:
    """The pod as its successor would be: without a node, its claims without devices unless others use them too."""
    pod = snapshot.pods[key]
    status = msgspec.structs.replace(
        pod.status,
        phase="Pending",
        conditions=(),
        container_statuses=(),
        init_container_statuses=(),
        extended_resource_claim_status=None,
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    changes: list[Change] = [Put("Pod", msgspec.structs.replace(pod, spec=spec, status=status))]
    special = pod.status.extended_resource_claim_status
    for claim in claims_used(snapshot, pod):
        if special is not None and claim.metadata.name == special.resource_claim_name:
            changes.append(Gone("ResourceClaim", claim.metadata.namespace, claim.metadata.name))
        else:
            changes += _unreserved(snapshot, claim, pod)
    return tuple(changes)


def claims_used(snapshot: Snapshot, pod: Pod) -> list[ResourceClaim]:
    """The claims a pod uses that exist."""
    keys = [(pod.metadata.namespace, name) for name in claim_names(pod)]
    return [snapshot.claims[key] for key in keys if key in snapshot.claims]


def _unreserved(snapshot: Snapshot, claim: ResourceClaim, pod: Pod) -> list[Change]:
    """The claim without this consumer; without devices too if nobody else uses it."""
    status = claim.status
    kept = tuple(e for e in status.reserved_for if e.resource != "pods" or not same(e.uid, e.name, pod))
    if status.reserved_for:
        if kept == status.reserved_for:
            return []
    elif any(_runs(snapshot.pods[key]) for key in snapshot.consumers(claim) if key[1] != pod.metadata.name):
        return []
    if kept:
        after = msgspec.structs.replace(status, reserved_for=kept)
        return [Put("ResourceClaim", msgspec.structs.replace(claim, status=after))]
    return [released(claim)]


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not is_finished(pod)


def released(claim: ResourceClaim) -> Change:
    """The claim without its devices and reservations."""
    status = msgspec.structs.replace(claim.status, allocation=None, reserved_for=(), devices=())
    return Put("ResourceClaim", msgspec.structs.replace(claim, status=status))


def focus(snapshot: Snapshot, nodes: Sequence[str], pods: Iterable[NamespacedName]) -> Snapshot:
    """The part of a cluster that decides whether these pods fit on these nodes: cheap to change and to ask."""
    objects: list[tuple[str, object]] = [("Node", snapshot.nodes[name]) for name in nodes if name in snapshot.nodes]
    kept = set(pods)
    pools: dict[NamespacedName, None] = {}
    for name in (*nodes, ""):
        for resource_slice in keys_of(snapshot.slices_by_node, name):
            spec = snapshot.slices[resource_slice].spec
            pools[spec.driver, spec.pool.name] = None
        if name:
            kept.update(keys_of(snapshot.pods_by_node, name))
    claims: set[NamespacedName] = set()
    for pool in pools:
        for resource_slice in keys_of(snapshot.slices_by_pool, pool):
            published = snapshot.slices[resource_slice]
            objects.append(("ResourceSlice", published))
            for device in published.spec.devices:
                held = snapshot.holders.get(DeviceId(*pool, device.name), ())
                claims.update((holder.namespace, holder.claim) for holder in held)
    for key in sorted(kept):
        pod = snapshot.pods.get(key)
        if pod is not None:
            objects.append(("Pod", pod))
            claims.update((key[0], name) for name in claim_names(pod))
    objects += [("ResourceClaim", snapshot.claims[key]) for key in sorted(claims) if key in snapshot.claims]
    for kind, store in (
        ("DeviceClass", snapshot.classes),
        ("DeviceTaintRule", snapshot.taint_rules),
        ("PriorityClass", snapshot.priority_classes),
        ("PodGroup", snapshot.pod_groups),
    ):
        objects += [(kind, value) for _, value in sorted(store.items())]
    return Snapshot.from_objects(objects)
