"""How much is in use? The status of ResourceQuotas, recounted from what is there whenever it may have changed.

Counting goes by the objects, never by the status of before, so that any drift ends with the next look. It admits and
deletes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dragoman.api.core import Pod, ResourceQuota
from dragoman.api.kinds import KINDS, Kind, kind_of
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import ResourceClaim
from dragoman.effects import Patch
from dragoman.quota.recount import recount
from dragoman.quota.usage import usage
from dragoman.reconcile.step import NOTHING, OTHERS, ReconcileInput, ReconcileResult, ref_of
from dragoman.snapshot.change import Change, Gone

KIND = "ResourceQuota"
_NAMESPACED = tuple(kind.kind for kind in KINDS if kind.namespaced and kind.kind != "Event")


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The quotas to look at after a change."""
    if isinstance(change, Gone):
        namespace, name = change.namespace, change.name
    else:
        namespace, name = change.object.metadata.namespace, change.object.metadata.name
    if change.kind == KIND:
        return [(namespace, name)]
    if change.kind == "DeviceClass":
        return sorted(after.snapshot.quotas)
    if not namespace or not after.snapshot.quotas:
        return []
    names = [owned.ref.name for owned in after.ownership.content(namespace, (KIND,))]
    if not names or not _matters(change, namespace, name, before, after):
        return []
    return [(namespace, quota) for quota in names]


def _matters(change: Change, namespace: str, name: str, before: ReconcileInput, after: ReconcileInput) -> bool:
    """Whether usage may differ; most writes of pods and claims are of their status."""
    olds, news = (_value(world, change.kind, namespace, name) for world in (before, after))
    known = before.ownership.find(change.kind, namespace, name) is not None
    if isinstance(change, Gone) or not known:
        return True
    match olds, news:
        case Pod() as old, Pod() as new:
            return usage(kind_of("Pod"), old) != usage(kind_of("Pod"), new) or (
                old.spec.active_deadline_seconds != new.spec.active_deadline_seconds
                or old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
            )
        case ResourceClaim() as old, ResourceClaim() as new:
            return old.spec != new.spec
    return olds is not None and olds != news


def _value(world: ReconcileInput, kind: str, namespace: str, name: str) -> Any:
    if kind == "Pod":
        return world.snapshot.pods.get((namespace, name))
    if kind == "ResourceClaim":
        return world.snapshot.claims.get((namespace, name))
    return world.other(kind, namespace, name) if kind in OTHERS else None


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """Bring a quota's status up to date."""
    quota: ResourceQuota | None = world.snapshot.quotas.get(key)
    if quota is None:
        return NOTHING
    used = recount(world.snapshot, quota, _content(world, key[0]))
    patch: dict[str, Any] = {}
    for field, old, new in (("hard", quota.status.hard, quota.spec.hard), ("used", quota.status.used, used)):
        entries: dict[str, Any] = {name: str(amount) for name, amount in new.items() if old.get(name) != amount}
        entries |= {name: None for name in old if name not in new}
        if entries:
            patch[field] = entries
    if not patch:
        return NOTHING
    return ReconcileResult((Patch(ref_of(KIND, quota.metadata), {"status": patch}, subresource="status"),))


def _content(world: ReconcileInput, namespace: str) -> Iterator[tuple[Kind, Any]]:
    for owned in world.ownership.content(namespace, (*_NAMESPACED, *world.custom.values())):
        ref = owned.ref
        yield kind_of(ref.kind), _value(world, ref.kind, namespace, ref.name)
