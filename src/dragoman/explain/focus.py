"""Which part of a cluster does a question concern? What a pod uses, and the pods and devices around some nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import ResourceClaim
from dragoman.snapshot.change import Change, Put, Snapshot, keys_of
from dragoman.snapshot.usage import DeviceId, claim_names


def claims_used(snapshot: Snapshot, pod: Pod) -> list[ResourceClaim]:
    """The claims a pod uses that exist."""
    keys = [(pod.metadata.namespace, name) for name in claim_names(pod)]
    return [snapshot.claims[key] for key in keys if key in snapshot.claims]


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
