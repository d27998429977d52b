"""How would the cluster look if one thing were different? Snapshots to changes, for what-if questions.

Pods gone or pending again, nodes gone or more of them, taints. Never decides what happens then; that is whatif's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.api.core import Node, Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim, ResourceSlice
from dragoman.schedule.claims import owned_by, same
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, keys_of
from dragoman.snapshot.taints import applies
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


# ---- nodes


def without_node(snapshot: Snapshot, name: str) -> tuple[Change, ...]:
    """The node and its slices gone; its pods pending again, those of DaemonSets gone with it."""
    changes: list[Change] = [Gone("Node", "", name)]
    changes += [Gone("ResourceSlice", "", resource_slice) for resource_slice in keys_of(snapshot.slices_by_node, name)]
    for key in keys_of(snapshot.pods_by_node, name):
        pod = snapshot.pods[key]
        owner = pod.metadata.controller
        if is_finished(pod) or (owner is not None and owner.kind == "DaemonSet"):
            changes += without_pod(snapshot, key)
        else:
            changes += pending_again(snapshot, key)
    return tuple(changes)


def node_like(snapshot: Snapshot, shape: str, name: str) -> tuple[Change, ...]:
    """One more node, empty, with the labels, resources and devices of another one. Its taints and cordon too."""
    node = snapshot.nodes[shape]
    labels = dict(node.metadata.labels)
    if HOSTNAME in labels:
        labels[HOSTNAME] = name
    meta = msgspec.structs.replace(node.metadata, name=name, uid="", resource_version="", labels=labels)
    made: Node = msgspec.structs.replace(node, metadata=meta)
    resource_slices = [snapshot.slices[resource_slice] for resource_slice in keys_of(snapshot.slices_by_node, shape)]
    return (
        Put("Node", made),
        *(Put("ResourceSlice", _slice_like(resource_slice, shape, name)) for resource_slice in resource_slices),
    )


def _slice_like(resource_slice: ResourceSlice, shape: str, name: str) -> ResourceSlice:
    pool = resource_slice.spec.pool
    renamed = pool.name.replace(shape, name) if shape in pool.name else f"{pool.name}-{name}"
    spec = msgspec.structs.replace(
        resource_slice.spec, node_name=name, pool=msgspec.structs.replace(pool, name=renamed)
    )
    meta = msgspec.structs.replace(
        resource_slice.metadata,
        name=f"{resource_slice.metadata.name}-{name}",
        uid="",
        resource_version="",
        owner_references=(),
    )
    return msgspec.structs.replace(resource_slice, metadata=meta, spec=spec)


def free_name(snapshot: Snapshot, wanted: str) -> str:
    """A node name that nobody has: `wanted`, else with a number."""
    if wanted not in snapshot.nodes:
        return wanted
    number = 2
    while f"{wanted}-{number}" in snapshot.nodes:
        number += 1
    return f"{wanted}-{number}"


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


# ---- taints


class Displaced(msgspec.Struct, frozen=True):
    """A pod that a taint drives out, from which device. after_s: seconds that it is tolerated, 0 at once."""

    pod: NamespacedName
    node: str
    claim: str
    device: DeviceId
    after_s: int


def displaced(snapshot: Snapshot, rule: DeviceTaintRule) -> tuple[Displaced, ...]:
    """The running pods that a rule would evict, each once, by name. Effects other than NoExecute evict nobody."""
    if rule.spec.taint.effect != _HARD:
        return ()
    found: dict[NamespacedName, Displaced] = {}
    for claim_key in sorted(snapshot.claims):
        claim = snapshot.claims[claim_key]
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if not applies(rule, driver=result.driver, pool=result.pool, device=result.device):
                continue
            delay = _tolerated_s(result.tolerations, rule.spec.taint)
            if delay is None:
                continue
            for key in snapshot.consumers(claim):
                pod = snapshot.pods[key]
                known = found.get(key)
                if pod.spec.node_name and not is_finished(pod) and (known is None or delay < known.after_s):
                    device = DeviceId(result.driver, result.pool, result.device)
                    found[key] = Displaced(key, pod.spec.node_name, claim_key[1], device, delay)
    return tuple(found[key] for key in sorted(found))


def _tolerated_s(tolerations: Iterable[DeviceToleration], taint: DeviceTaint) -> int | None:
    """Seconds until the pod must go; None: never. Only tolerations that say NoExecute protect (KEP-5055)."""
    covering = [
        t
        for t in tolerations
        if t.effect == _HARD
        and t.key in ("", taint.key)
        and (t.operator == "Exists" or (t.operator in ("", "Equal") and t.key and t.value == taint.value))
    ]
    limits = [max(0, t.toleration_seconds) for t in covering if t.toleration_seconds is not None]
    if len(limits) < len(covering):
        return None
    return min(limits, default=0)
