"""What must go because its owners are gone or going? Owner references, in background, foreground or orphaning.

Never believes its own picture alone: an owner that is not there is asked for before anything is deleted, and kinds
that cannot be asked for count as there. Circles of owners are broken. Source: the API's OwnerReference and
DeleteOptions, and kube-controller-manager's garbage collector.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dragoman.api.kinds import BY_NAME, Kind, kind_of
from dragoman.api.meta import OwnerReference, Ref
from dragoman.effects import Delete, Effect, Patch
from dragoman.reconcile.ownership import Owned
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult
from dragoman.snapshot.change import Change, Put

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

OwnerState = Literal["there", "gone", "waiting"]


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[str]:
    """Uids of the objects to look at after a change."""
    if isinstance(change, Put):
        return _after_put(change, before, after)
    gone = before.ownership.find(change.kind, change.namespace, change.name)
    if gone is None or gone.ref.uid in after.ownership.by_uid:
        return []
    return [*_waiting_owners(gone, after), *sorted(after.ownership.dependents.get(gone.ref.uid, ()))]


def _after_put(change: Put, before: ReconcileInput, after: ReconcileInput) -> list[str]:
    uid = change.object.metadata.uid
    new, old = after.ownership.by_uid.get(uid), before.ownership.by_uid.get(uid)
    if new is None:
        return []
    found: list[str] = []
    held = FOREGROUND in new.finalizers or ORPHAN in new.finalizers
    if (new.owners and (old is None or old.owners != new.owners)) or (new.deleting and held):
        found.append(uid)
    if new.deleting and FOREGROUND in new.finalizers:
        found += sorted(after.ownership.dependents.get(uid, ()))
    if old is not None and old.owners != new.owners:
        found += _waiting_owners(old, after)
    name = (change.kind, change.object.metadata.namespace, change.object.metadata.name)
    replaced = before.ownership.by_name.get(name)
    if replaced is not None and replaced != uid:  # deleted and recreated between two looks
        found += sorted(after.ownership.dependents.get(replaced, ()))
    return found


def _waiting_owners(item: Owned, after: ReconcileInput) -> list[str]:
    return [o.uid for o in item.owners if (owner := after.ownership.by_uid.get(o.uid)) is not None and owner.deleting]


def sync(world: ReconcileInput, uid: str) -> ReconcileResult:
    """What to do about one object."""
    item = world.ownership.by_uid.get(uid)
    if item is None:
        return NOTHING
    if item.deleting:
        if ORPHAN in item.finalizers:
            return ReconcileResult(tuple(_orphan(world, item)))
        if FOREGROUND in item.finalizers:
            return _finish_foreground(world, item)
        return NOTHING
    if not item.owners:
        return NOTHING
    states: dict[str, OwnerState] = {}
    asks: list[Ref] = []
    for owner in item.owners:
        state = _state(world, item, owner)
        if isinstance(state, Ref):
            asks.append(state)
        else:
            states[owner.uid] = state
    if asks:
        return ReconcileResult(asks=tuple(asks))
    going = [o for o in item.owners if states[o.uid] != "there"]
    if not going:
        return NOTHING
    if len(going) < len(item.owners):
        return ReconcileResult((_without(item, {o.uid for o in going}),))
    if _in_a_circle(world, item, states):
        return ReconcileResult((_unblocking(item), Delete(item.ref, propagation="Foreground")))
    return ReconcileResult((_collect(world, item, states),))


def _state(world: ReconcileInput, item: Owned, owner: OwnerReference) -> OwnerState | Ref:
    """Whether an owner is there; a Ref when only the API can tell."""
    known = world.ownership.by_uid.get(owner.uid)
    if known is not None:
        if known.ref.namespace not in ("", item.ref.namespace):
            return "gone"  # owners of other namespaces do not exist for it
        return "waiting" if known.deleting and FOREGROUND in known.finalizers else "there"
    kind = _kind(world, owner)
    if kind is None:
        return "there"  # a kind that we cannot look up
    if kind.namespaced and not item.ref.namespace:
        return "there"  # a cluster-scoped object with a namespaced owner: nobody can tell which
    if owner.uid in world.gone:
        return "gone"
    ref = Ref(kind.kind, item.ref.namespace if kind.namespaced else "", owner.name, owner.uid)
    if ref not in world.answers:
        return ref
    return "there" if world.answers[ref] == owner.uid else "gone"


def _kind(world: ReconcileInput, owner: OwnerReference) -> Kind | None:
    group = owner.api_version.rpartition("/")[0]
    kind = BY_NAME.get(owner.kind)
    if kind is not None and kind.group == group:
        return kind
    name = world.custom.get((group, owner.kind))
    return kind_of(name) if name else None


def _in_a_circle(world: ReconcileInput, item: Owned, states: dict[str, OwnerState]) -> bool:
    """Whether the object may wait for itself: an owner waits for it, and one that it owns waits as well."""
    return "waiting" in states.values() and any(
        dependent.deleting and FOREGROUND in dependent.finalizers for dependent in world.ownership.owned(item.ref.uid)
    )


def _unblocking(item: Owned) -> Patch:
    """Its owners need not wait for it any longer (upstream's unblockOwnerReferences)."""
    rest: list[Any] = [{**msgspec.to_builtins(o), "blockOwnerDeletion": False} for o in item.owners]
    return Patch(item.ref, {"metadata": {"ownerReferences": rest}}, resource_version=item.resource_version)


def _collect(world: ReconcileInput, item: Owned, states: dict[str, OwnerState]) -> Delete:
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    if ORPHAN in item.finalizers:
        propagation = "Orphan"
    elif FOREGROUND in item.finalizers or (
        "waiting" in states.values() and world.ownership.dependents.get(item.ref.uid)
    ):
        propagation = "Foreground"
    return Delete(item.ref, resource_version=item.resource_version, propagation=propagation)


def _finish_foreground(world: ReconcileInput, item: Owned) -> ReconcileResult:
    """The owner goes once nothing that blocks it is left."""
    blocking = [
        dependent
        for dependent in world.ownership.owned(item.ref.uid)
        if any(o.uid == item.ref.uid and o.block_owner_deletion for o in dependent.owners)
    ]
    return NOTHING if blocking else ReconcileResult((_unheld(item, FOREGROUND),))


def _orphan(world: ReconcileInput, item: Owned) -> list[Effect]:
    uid = item.ref.uid
    return [
        *(_without(dependent, {uid}) for dependent in world.ownership.owned(uid)),
        _unheld(item, ORPHAN),
    ]


def _without(item: Owned, uids: set[str]) -> Patch:
    rest: list[Any] = [msgspec.to_builtins(o) for o in item.owners if o.uid not in uids]
    patch = {"metadata": {"ownerReferences": rest or None}}
    return Patch(item.ref, patch, resource_version=item.resource_version)


def _unheld(item: Owned, finalizer: str) -> Patch:
    rest = [other for other in item.finalizers if other != finalizer]
    return Patch(item.ref, {"metadata": {"finalizers": rest or None}}, resource_version=item.resource_version)
