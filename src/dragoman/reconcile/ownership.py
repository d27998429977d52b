"""Who owns whom, over objects of every kind? A value like the Snapshot, changed with each change at its cost.

Holds metadata only. Never decides what to collect: reconcile.garbage does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec
from immutables import Map

from dragoman.api.meta import ObjectMeta, OwnerReference, Ref
from dragoman.snapshot.change import Change, Put


class Owned(msgspec.Struct, frozen=True):
    """One object: `ref` carries its uid; `controller` is its controller's uid or ""."""

    ref: Ref
    owners: tuple[OwnerReference, ...]
    finalizers: tuple[str, ...]
    deleting: bool
    controller: str
    resource_version: str


class Ownership(msgspec.Struct, frozen=True):
    """by_uid: every object; by_name: (kind, namespace, name) -> uid; dependents: owner uid -> uids of what names it;
    contents: (kind, namespace) -> uids; loose: the same for what nobody controls."""

    by_uid: Map[str, Owned]
    by_name: Map[tuple[str, str, str], str]
    dependents: Map[str, Map[str, None]]
    contents: Map[tuple[str, str], Map[str, None]]
    loose: Map[tuple[str, str], Map[str, None]]

    @classmethod
    def empty(cls) -> Ownership:
        """No objects."""
        return cls(Map(), Map(), Map(), Map(), Map())

    def owned(self, owner_uid: str, kind: str = "") -> tuple[Owned, ...]:
        """What names that owner, sorted by name; of one kind if given."""
        found = (self.by_uid[uid] for uid in self.dependents.get(owner_uid, _NONE))
        return tuple(sorted((o for o in found if kind in ("", o.ref.kind)), key=lambda o: o.ref))

    def controlled(self, owner_uid: str, kind: str) -> tuple[Ref, ...]:
        """Objects of that kind whose controller it is, sorted by name."""
        found = (self.by_uid[uid] for uid in self.dependents.get(owner_uid, _NONE))
        mine = (o.ref for o in found if o.controller == owner_uid and o.ref.kind == kind)
        return tuple(sorted(mine, key=lambda ref: ref.name))

    def orphans(self, kind: str, namespace: str) -> tuple[Ref, ...]:
        """Objects of that kind there that nobody controls and that are not being deleted, sorted by name."""
        found = (self.by_uid[uid] for uid in self.loose.get((kind, namespace), _NONE))
        return tuple(sorted((o.ref for o in found if not o.deleting), key=lambda ref: ref.name))

    def all_of(self, kind: str) -> tuple[Ref, ...]:
        """Every object of a kind, sorted."""
        found = (uids for (known, _), uids in self.contents.items() if known == kind)
        return tuple(sorted(self.by_uid[uid].ref for uids in found for uid in uids))

    def content(self, namespace: str, kinds: Iterable[str]) -> tuple[Owned, ...]:
        """Everything of those kinds in a namespace, sorted."""
        found = (self.by_uid[uid] for kind in kinds for uid in self.contents.get((kind, namespace), _NONE))
        return tuple(sorted(found, key=lambda o: o.ref))

    def find(self, kind: str, namespace: str, name: str) -> Owned | None:
        """The object of that name."""
        uid = self.by_name.get((kind, namespace, name))
        return None if uid is None else self.by_uid[uid]


def apply_all(ownership: Ownership, changes: Iterable[Change]) -> Ownership:
    """The ownership after these changes; objects without uid are left out."""
    draft = _Draft(ownership)
    for change in changes:
        if isinstance(change, Put):
            draft.put(change.kind, change.object)
        else:
            draft.drop((change.kind, change.namespace, change.name))
    return draft.finish()


def of_all(objects: Iterable[tuple[str, Any]]) -> Ownership:
    """The ownership of these (kind, object); for many objects this is faster than one after the other."""
    by_uid: dict[str, Owned] = {}
    by_name: dict[tuple[str, str, str], str] = {}
    indices: tuple[_Loading, _Loading, _Loading] = ({}, {}, {})
    dependents, contents, loose = indices
    for kind, value in objects:
        if not value.metadata.uid:
            continue
        new, uid = _owned(kind, value.metadata), value.metadata.uid
        name = (kind, value.metadata.namespace, value.metadata.name)
        by_name[name], by_uid[uid] = uid, new
        contents.setdefault(name[:2], {})[uid] = None
        if not new.controller:
            loose.setdefault(name[:2], {})[uid] = None
        for owner in new.owners:
            dependents.setdefault(owner.uid, {})[uid] = None
    maps = [Map({term: Map(uids) for term, uids in index.items()}) for index in indices]
    return Ownership(Map(by_uid), Map(by_name), *maps)


def _owned(kind: str, meta: ObjectMeta) -> Owned:
    controller = meta.controller
    return Owned(
        Ref(kind, meta.namespace, meta.name, meta.uid),
        meta.owner_references,
        meta.finalizers,
        bool(meta.deletion_timestamp),
        controller.uid if controller else "",
        meta.resource_version,
    )


class _Draft:
    def __init__(self, base: Ownership) -> None:
        self.by_uid = base.by_uid.mutate()
        self.by_name = base.by_name.mutate()
        self.dependents = base.dependents.mutate()
        self.contents = base.contents.mutate()
        self.loose = base.loose.mutate()

    def finish(self) -> Ownership:
        return Ownership(
            self.by_uid.finish(),
            self.by_name.finish(),
            self.dependents.finish(),
            self.contents.finish(),
            self.loose.finish(),
        )

    def put(self, kind: str, value: Any) -> None:
        meta = value.metadata
        if not meta.uid:
            return
        name = (kind, meta.namespace, meta.name)
        new = _owned(kind, meta)
        known = self.by_name.get(name)
        if known == meta.uid:
            old = self.by_uid[meta.uid]
            self.by_uid[meta.uid] = new
            if old.owners != new.owners:
                self._unlink(self.loose, [] if old.controller else [name[:2]], meta.uid)
                self._link(self.loose, [] if new.controller else [name[:2]], meta.uid)
                self._unlink(self.dependents, [o.uid for o in old.owners], meta.uid)
                self._link(self.dependents, [o.uid for o in new.owners], meta.uid)
            return
        if known is not None:
            self.drop(name)
        self.by_name[name] = meta.uid
        self.by_uid[meta.uid] = new
        self._link(self.dependents, [o.uid for o in new.owners], meta.uid)
        self._link(self.contents, [name[:2]], meta.uid)
        self._link(self.loose, [] if new.controller else [name[:2]], meta.uid)

    def drop(self, name: tuple[str, str, str]) -> None:
        uid = self.by_name.pop(name, None)
        if uid is None:
            return
        old = self.by_uid.pop(uid)
        self._unlink(self.dependents, [o.uid for o in old.owners], uid)
        self._unlink(self.contents, [name[:2]], uid)
        self._unlink(self.loose, [] if old.controller else [name[:2]], uid)

    def _link(self, index: Any, terms: Iterable[Any], uid: str) -> None:
        for term in terms:
            index[term] = index.get(term, _NONE).set(uid, None)

    def _unlink(self, index: Any, terms: Iterable[Any], uid: str) -> None:
        for term in dict.fromkeys(terms):
            rest = index[term].delete(uid)
            if rest:
                index[term] = rest
            else:
                del index[term]


_NONE: Map[str, None] = Map()
_Loading: TypeAlias = dict[Any, dict[str, None]]
