"""What does a controller answer for one key? Effects, when to look again, what it must know first.

Shared by all controllers; decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec
from immutables import Map

from dragoman.api.kinds import kind_of
from dragoman.api.meta import ObjectMeta, Ref
from dragoman.effects import Effect
from dragoman.reconcile.ownership import Ownership
from dragoman.snapshot.change import Snapshot

OTHERS = frozenset(
    {
        "Service",
        "EndpointSlice",
        "Endpoints",
        "ResourcePoolStatusRequest",
        "PersistentVolumeClaim",
        "ControllerRevision",
    }
)


class ReconcileInput(msgspec.Struct, frozen=True):
    """What controllers decide on. `now` is epoch seconds, UTC.

    answers: what the API said when asked (`ReconcileResult.asks`): the uid of the object of that name, "" if none; the
    uid of an asked Ref, where set, is the one that a reference names.
    gone: uids that were seen to be deleted lately. heartbeats: node name -> when it was last heard of; time that
    nobody watched (a suspended machine, a clock moved on) does not count as silence and is added. tally: what steps
    have counted since the controller started (`ReconcileResult.tally`). custom: group and kind of custom resources ->
    the name that they go by here (`kinds.custom_name`). others: objects of OTHERS by kind, namespace and name, which
    snapshots do not hold.
    """

    snapshot: Snapshot
    ownership: Ownership
    now: float
    answers: Mapping[Ref, str] = {}
    gone: Container[str] = frozenset()
    heartbeats: Mapping[str, float] = {}
    tally: Mapping[str, int] = {}
    custom: Mapping[tuple[str, str], str] = {}
    others: Map[tuple[str, str, str], Any] = Map()

    def other(self, kind: str, namespace: str, name: str) -> Any:
        """An object of a kind of OTHERS; None if there is none."""
        return self.others.get((kind, namespace, name))

    def others_of(self, kind: str, namespace: str) -> list[Any]:
        """The objects of a kind of OTHERS in a namespace, sorted by name."""
        refs = (owned.ref for owned in self.ownership.content(namespace, (kind,)))
        return [found for ref in refs if (found := self.other(kind, namespace, ref.name)) is not None]


class ReconcileResult(msgspec.Struct, frozen=True):
    """One answer. With `asks`, nothing else is set: look these names up and call again.

    again_s: look again after so many seconds even if nothing changes. problem: what stands in the way; the key is
    tried again, later and later. tally: names to count once the effects are carried out.
    """

    effects: tuple[Effect, ...] = ()
    again_s: float | None = None
    asks: tuple[Ref, ...] = ()
    problem: str = ""
    tally: tuple[str, ...] = ()


NOTHING = ReconcileResult()


def ref_of(kind: str, meta: ObjectMeta) -> Ref:
    """This incarnation of an object."""
    return Ref(kind, meta.namespace, meta.name, meta.uid)


def owned_by(kind: str, meta: ObjectMeta, *, block: bool = True) -> dict[str, Any]:
    """The ownerReference that makes an object the controller of another."""
    owner: dict[str, Any] = {
        "apiVersion": kind_of(kind).api_version,
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
    return owner | ({"blockOwnerDeletion": True} if block else {})


def difference(old: Any, new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes the fields named in `new` so; None, 0, "" and [] mean absent (Go's omitempty)."""
    old = old if isinstance(old, dict) else {}
    patch: dict[str, Any] = {}
    for field, value in new.items():
        before = old.get(field)
        if not value and value is not False:
            if before:
                patch[field] = None
        elif before != value:
            patch[field] = value
    return patch
