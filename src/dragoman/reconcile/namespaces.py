"""What must a namespace have, and how does a deleted one empty itself?

The default ServiceAccount and the ConfigMap with the server's CA; then, on deletion, pods first, all other content
after them and the finalizer last. Never deletes a namespace itself: the server does once the finalizer is off.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import KINDS, kind_of
from dragoman.api.meta import Ref
from dragoman.effects import Create, Delete, Effect, Patch
from dragoman.reconcile.ownership import Owned
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, ref_of
from dragoman.reconcile.workloads.pods import time_text
from dragoman.snapshot.change import Change, Gone

CONTENT = tuple(kind.kind for kind in KINDS if kind.namespaced and kind.kind != "Event")
"""Kinds that are counted; Events are only swept, since nobody waits for them."""
ROOT_CA = "kube-root-ca.crt"


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[str]:
    """Names of the namespaces to look at after a change."""
    if change.kind == "Namespace":
        return [change.name if isinstance(change, Gone) else change.object.metadata.name]
    if isinstance(change, Gone) and change.namespace:
        namespace = after.snapshot.namespaces.get(change.namespace)
        must_be = (change.kind, change.name) in (("ServiceAccount", "default"), ("ConfigMap", ROOT_CA))
        if namespace is not None and (must_be or namespace.metadata.deletion_timestamp):
            return [change.namespace]
    return []


def sync(world: ReconcileInput, name: str, root_ca: str = "") -> ReconcileResult:
    """One step of a namespace. root_ca: PEM of the server's CA, if it has one."""
    namespace = world.snapshot.namespaces.get(name)
    if namespace is None:
        return NOTHING
    if namespace.metadata.deletion_timestamp:
        return _empty(world, name)
    effects: list[Effect] = []
    if world.ownership.find("ServiceAccount", name, "default") is None:
        effects.append(_made("ServiceAccount", name, "default", {}))
    if root_ca and world.ownership.find("ConfigMap", name, ROOT_CA) is None:
        effects.append(_made("ConfigMap", name, ROOT_CA, {"data": {"ca.crt": root_ca}}))
    return ReconcileResult(tuple(effects))


def _made(kind: str, namespace: str, name: str, fields: dict[str, Any]) -> Create:
    return Create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, **fields})


def _empty(world: ReconcileInput, name: str) -> ReconcileResult:
    content = (*CONTENT, *(kind for kind in world.custom.values() if kind_of(kind).namespaced))
    left = world.ownership.content(name, content)
    ref = ref_of("Namespace", world.snapshot.namespaces[name].metadata)
    if not left:
        # Once more over all kinds: what was made last may not have reached us.
        sweep: list[Effect] = [Delete(Ref(kind, name, "")) for kind in (*content, "Event")]
        return ReconcileResult((*sweep, Patch(ref, {"spec": {"finalizers": []}}, subresource="finalize")))
    if any(item.ref.kind == "Pod" for item in left):
        # What pods use (claims, secrets, policies) stays until they have ended (KEP-5080).
        left = tuple(item for item in left if item.ref.kind == "Pod")
    kinds = dict.fromkeys(item.ref.kind for item in left if not item.deleting)
    effects: list[Effect] = [Delete(Ref(kind, name, "")) for kind in kinds]
    if not effects:
        effects = _report(world, ref, left)
    return ReconcileResult(tuple(effects), again_s=5.0)


def _report(world: ReconcileInput, ref: Ref, left: tuple[Owned, ...]) -> list[Effect]:
    """Conditions that say what the deletion waits for."""
    counts: dict[str, int] = {}
    held: dict[str, int] = {}
    for item in left:
        counts[item.ref.kind] = counts.get(item.ref.kind, 0) + 1
        for finalizer in item.finalizers:
            held[finalizer] = held.get(finalizer, 0) + 1
    plurals = {kind: f"{kind_of(kind).plural}.{kind_of(kind).group}".rstrip(".") for kind in counts}
    remaining = ", ".join(f"{plurals[kind]} has {n} resource instances" for kind, n in sorted(counts.items()))
    conditions = [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        _content_failure(ref.name, counts),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {remaining}"),
    ]
    text = ", ".join(f"{finalizer} in {n} resource instances" for finalizer, n in sorted(held.items()))
    message = f"Some content in the namespace has finalizers remaining: {text}"
    done = ("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers")
    conditions.append(
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", message)
        if held
        else (*done, "All content-preserving finalizers finished")
    )
    known = {(c.type, c.message) for c in world.snapshot.namespaces[ref.name].status.conditions}
    if all((type_, message) in known for type_, _, _, message in conditions):
        return []
    body = [
        {"type": t, "status": s, "reason": r, "message": m, "lastTransitionTime": time_text(world.now)}
        for t, s, r, m in conditions
    ]
    return [Patch(ref, {"status": {"conditions": body}}, subresource="status")]


def _content_failure(namespace: str, counts: dict[str, int]) -> tuple[str, str, str, str]:
    """Pods hold up everything else, and the condition says so."""
    type_ = "NamespaceDeletionContentFailure"
    if "Pod" not in counts:
        return type_, "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"
    text = f"unexpected items still remain in namespace: {namespace} for gvr: /v1, Resource=pods"
    return type_, "True", "ContentDeletionFailed", f"Failed to delete all resource types, 1 remaining: {text}"
