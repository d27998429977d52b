"""What follows when pods go, or are recreated? As changes to any snapshot that shows the same pods and claims.

The controllers run over the part of the cluster that such a change concerns, so that asking is cheap on a large one.
Workloads are left out: a pod that its workload recreates comes after those that wait. Never decides where pods go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from dragoman.api.meta import NamespacedName
from dragoman.schedule.claims import group_name
from dragoman.snapshot.change import Change, Gone, Put, Snapshot
from dragoman.snapshot.usage import claim_names
from dragoman.whatif.changes import recreated
from dragoman.whatif.cluster import bring, objects
from dragoman.whatif.settle import changed


def without_pods(snapshot: Snapshot, keys: Sequence[NamespacedName], now: datetime) -> tuple[Change, ...]:
    """The pods gone: their own claims go too, reservations and devices of others are taken back."""
    part = _part(snapshot, keys)
    before = bring(part, now)
    after = changed(before, [Gone("Pod", *key) for key in keys if key in part.pods])
    return tuple(_difference(part, after.snapshot))


def restarted(snapshot: Snapshot, key: NamespacedName, now: datetime) -> tuple[Change, ...] | None:
    """The pod gone, and recreated under its name by its user or workload: pending, with new claims of its own.

    None for one that is going anyway, and for one that is bound to its node, as a DaemonSet's.
    """
    pod = snapshot.pods[key]
    owner = pod.metadata.controller
    if pod.metadata.deletion_timestamp is not None or (owner is not None and owner.kind in ("DaemonSet", "Node")):
        return None
    part = _part(snapshot, [key])
    gone = changed(bring(part, now), [Gone("Pod", *key)])
    after = changed(gone, [Put("Pod", recreated(gone, pod))])
    return tuple(_difference(part, after.snapshot))


def _part(snapshot: Snapshot, keys: Iterable[NamespacedName]) -> Snapshot:
    """The pods with their claims, those that share them, and what claims are made from."""
    pods = dict.fromkeys(key for key in keys if key in snapshot.pods)
    claims = dict.fromkeys((key[0], name) for key in pods for name in claim_names(snapshot.pods[key]))
    listed: list[tuple[str, object]] = []
    for claim in [snapshot.claims[key] for key in claims if key in snapshot.claims]:
        listed.append(("ResourceClaim", claim))
        pods.update(dict.fromkeys(snapshot.consumers(claim)))
    for namespace, name in pods:
        pod = snapshot.pods[namespace, name]
        listed.append(("Pod", pod))
        for entry in pod.spec.resource_claims:
            template = snapshot.templates.get((namespace, entry.resource_claim_template_name or ""))
            if template is not None:
                listed.append(("ResourceClaimTemplate", template))
        group = snapshot.pod_groups.get((namespace, group_name(pod)))
        if group is not None:
            listed.append(("PodGroup", group))
    inside = dict.fromkeys(namespace for namespace, _ in pods)
    listed += [("Namespace", snapshot.namespaces[name]) for name in inside if name in snapshot.namespaces]
    return Snapshot.from_objects(listed)


def _difference(before: Snapshot, after: Snapshot) -> Iterable[Change]:
    was = {_name_of(kind, value): value for kind, value in objects(before)}
    for kind, value in objects(after):
        if was.pop(_name_of(kind, value), None) != value:
            yield Put(kind, value)
    for kind, namespace, name in was:
        yield Gone(kind, namespace, name)


def _name_of(kind: str, value: object) -> tuple[str, str, str]:
    meta = value.metadata  # type: ignore[attr-defined]
    return kind, meta.namespace, meta.name
