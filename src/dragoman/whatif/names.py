"""What are new objects called? By their makers, so that the same question gives the same names.

Pods of a workload: NAME-0, NAME-1, ... after the workload that the user wrote. Claims of a template: as the claim
controller calls them, with five letters that depend on namespace, consumer and entry.
"""

from __future__ import annotations

import hashlib
from typing import Any

from dragoman.api.meta import OwnerReference
from dragoman.api.resource import POD_CLAIM_ANNOTATION
from dragoman.snapshot.change import WORKLOADS
from dragoman.whatif.cluster import ClusterState

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5


def name_for(cluster: ClusterState, kind: str, obj: dict[str, Any]) -> str:
    """A free name for an object with metadata.generateName."""
    meta = obj["metadata"]
    namespace = meta.get("namespace", "")
    prefix = str(meta.get("generateName") or "")
    owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    if kind == "Pod" and owner is not None and owner["kind"] in WORKLOADS:
        return _numbered(cluster, namespace, root_of(cluster, namespace, owner["kind"], owner["name"])[1])
    if kind == "ResourceClaim" and owner is not None:
        entry = (meta.get("annotations") or {}).get(POD_CLAIM_ANNOTATION, "")
        name = prefix + letters(namespace, owner["name"], entry)
        if cluster.ownership.find(kind, namespace, name) is None:
            return name
    return prefix + letters(namespace, prefix, str(cluster.made))


def letters(*words: str) -> str:
    """Five letters that depend on nothing but these words."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_SUFFIX])


def root_of(cluster: ClusterState, namespace: str, kind: str, name: str) -> tuple[str, str]:
    """Kind and name of the workload that a user wrote: the controller of this one, and so on."""
    for _ in range(len(WORKLOADS)):
        workload = cluster.snapshot.workloads.get((kind, namespace, name))
        owner: OwnerReference | None = workload.metadata.controller if workload is not None else None
        if owner is None or owner.kind not in WORKLOADS:
            break
        kind, name = owner.kind, owner.name
    return kind, name


def _numbered(cluster: ClusterState, namespace: str, name: str) -> str:
    pods = cluster.snapshot.pods
    low, high = -1, 1
    while (namespace, f"{name}-{high - 1}") in pods:  # numbers in use are dense: the first free one by bisection
        low, high = high - 1, high * 2
    if high == 1:
        return f"{name}-0"
    while high - 1 - low > 1:
        middle = (low + high - 1) // 2
        if (namespace, f"{name}-{middle}") in pods:
            low = middle
        else:
            high = middle + 1
    return f"{name}-{high - 1}"
