"""What does the cluster look like, counting what we have just decided? Folds changes into the Snapshot.

Assumed effects lie over what the watches say until the write is known there or given up. It never writes to the
API and never decides.

    cache = Cache(informers); cache.listen(lambda changes, before, after: ...)
    assumption = cache.assume(decision.assumed)  # or the effects themselves
    outcome = await committer.carry_out(decision.effects)
    cache.confirm(assumption) if outcome.ok else cache.forget(assumption)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, assert_never

import jsonpatch
import msgspec

from dragoman.api import codec
from dragoman.api.meta import Ref
from dragoman.cluster.watch import Informer, Informers, as_typed
from dragoman.effects import Bind, Create, Delete, Effect, Emit, Evict, Patch
from dragoman.snapshot.change import HELD, Change, Gone, Put, Snapshot, apply_all

SnapshotListener: TypeAlias = Callable[[Sequence[Change], Snapshot, Snapshot], None]
ObjectFold: TypeAlias = Callable[[Any], Any]
ObjectAddress: TypeAlias = tuple[str, str, str]

DECIDED_ON = (
    "Node",
    "Namespace",
    "PriorityClass",
    "DeviceClass",
    "ResourceSlice",
    "ResourceClaimTemplate",
    "ResourceClaim",
    "PodGroup",
    "DeviceTaintRule",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "Pod",
)
"""The kinds that scheduling decisions read."""


class _Overlay(msgspec.Struct, eq=False):
    """A change of ours over one object. `seen` says that the watch shows it, `written` that the server took it."""

    fold: ObjectFold
    seen: Callable[[Any], bool]
    written: bool = False


class Assumption:
    """Effects that count as done until confirmed or forgotten."""

    __slots__ = ("overlays",)

    def __init__(self) -> None:
        self.overlays: list[tuple[ObjectAddress, _Overlay]] = []


class Cache:
    """The current Snapshot. `listen` to get each step; read `snapshot` whenever deciding.

    shows: whether a change of the watches enters it at all; asked by what does not change of an object.
    """

    def __init__(
        self,
        informers: Informers,
        kinds: Iterable[str] = DECIDED_ON,
        shows: Callable[[Change], bool] | None = None,
    ) -> None:
        self.snapshot = Snapshot.empty()
        self._shows = shows
        self._listeners: list[SnapshotListener] = []
        self._overlays: dict[ObjectAddress, list[_Overlay]] = {}
        self._informers: dict[str, Informer] = {}
        for kind in kinds:
            assert kind in HELD, f"snapshots hold no {kind}"
            self._informers[kind] = informers.follow(kind, self._receive)

    async def synced(self) -> None:
        """Wait until every kind was listed once."""
        for informer in self._informers.values():
            await informer.synced()

    def listen(self, listener: SnapshotListener) -> Callable[[], None]:
        """Call with (changes, snapshot before, snapshot after) after each step; must not raise. Returns how to end."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # ---- assuming

    def assume(self, assumed: Iterable[Effect | Change]) -> Assumption:
        """Let the snapshot show these effects, or changes that say the same, from now on.

        Of effects, deletes, evictions and unnamed creations show later.
        """
        assumption = Assumption()
        for item in assumed:
            found = _overlay(item)
            if found is not None:
                address, overlay = found
                if address[0] in self._informers:
                    assumption.overlays.append((address, overlay))
                    self._overlays.setdefault(address, []).append(overlay)
        self._refresh(address for address, _ in assumption.overlays)
        return assumption

    def confirm(self, assumption: Assumption) -> None:
        """All was written (and observed, as the committer does); bindings stay assumed until the watch shows them."""
        for address, overlay in assumption.overlays:
            overlay.written = True
            base = self._base(address)
            if base is not None and overlay.seen(base):
                self._drop(address, overlay)
        self._refresh(address for address, _ in assumption.overlays)

    def forget(self, assumption: Assumption) -> None:
        """It was not written, or not all of it: show what the server says."""
        for address, overlay in assumption.overlays:
            self._drop(address, overlay)
        self._refresh(address for address, _ in assumption.overlays)

    # ---- folding

    def _receive(self, changes: Sequence[Change]) -> None:
        if self._shows is not None:
            changes = [change for change in changes if self._shows(change)]
        if not self._overlays:
            self._step(changes)
            return
        shown: list[Change] = []
        for change in changes:
            match change:
                case Put(kind, value):
                    address = (kind, value.metadata.namespace, value.metadata.name)
                case Gone(kind, namespace, name):
                    address = (kind, namespace, name)
            overlays = self._overlays.get(address)
            if overlays is None:
                shown.append(change)
            elif isinstance(change, Gone):
                del self._overlays[address]
                shown.append(change)
            else:
                for overlay in [o for o in overlays if o.written and o.seen(change.object)]:
                    self._drop(address, overlay)
                shown.append(self._change(address, change.object))
        self._step(shown)

    def _refresh(self, addresses: Iterable[ObjectAddress]) -> None:
        self._step([self._change(address, self._base(address)) for address in dict.fromkeys(addresses)])

    def _base(self, address: ObjectAddress) -> Any:
        return self._informers[address[0]].objects.get(address[1:])

    def _change(self, address: ObjectAddress, value: Any) -> Change:
        for overlay in self._overlays.get(address, ()):
            value = overlay.fold(value)
        return Gone(*address) if value is None else Put(address[0], value)

    def _drop(self, address: ObjectAddress, overlay: _Overlay) -> None:
        rest = [other for other in self._overlays.get(address, ()) if other is not overlay]
        if rest:
            self._overlays[address] = rest
        else:
            self._overlays.pop(address, None)

    def _step(self, changes: Sequence[Change]) -> None:
        before = self.snapshot
        self.snapshot = apply_all(before, changes)
        if self.snapshot is not before:
            for listener in tuple(self._listeners):
                listener(changes, before, self.snapshot)


def _address(ref: Ref) -> ObjectAddress:
    return ref.kind, ref.namespace, ref.name


def _overlay(item: Effect | Change) -> tuple[ObjectAddress, _Overlay] | None:
    match item:
        case Create(body):
            meta = body["metadata"]
            if not meta.get("name"):
                return None
            made = as_typed(body["kind"], body)
            address = (body["kind"], meta.get("namespace", ""), meta["name"])
            return address, _Overlay(lambda value: made if value is None else value, _always)
        case Patch():
            return _address(item.ref), _Overlay(_patched(item), _always)
        case Bind(pod, node):
            return _address(pod), _Overlay(_bound(pod, node), _is_bound)
        case Put(kind, value):
            meta = value.metadata
            seen = _is_bound if kind == "Pod" and value.spec.node_name else _always
            return (kind, meta.namespace, meta.name), _Overlay(lambda _: value, seen)
        case Gone(kind, namespace, name):
            return (kind, namespace, name), _Overlay(lambda _: None, lambda _: False)
        case Delete() | Evict() | Emit():
            return None
        case _:
            assert_never(item)


def _always(_: Any) -> bool:
    # Whatever a write returned was observed, so that the server's word is in already.
    return True


def _is_bound(pod: Any) -> bool:
    # The API answers a binding without the pod: only the watch shows it.
    return bool(pod.spec.node_name)


def _bound(ref: Ref, node: str) -> ObjectFold:
    def fold(pod: Any) -> Any:
        if pod is None or (ref.uid and pod.metadata.uid != ref.uid):
            return pod
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))

    return fold


def _patched(effect: Patch) -> ObjectFold:
    def fold(value: Any) -> Any:
        if value is None or (effect.ref.uid and value.metadata.uid != effect.ref.uid):
            return value
        shape = codec.to_json(value)
        change = jsonpatch.apply_patch if effect.type == "json" else merged
        return codec.decode(type(value), change(shape, effect.patch))

    return fold


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396 merge patch. Apply patches of ours name whole lists, so they read the same way."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out
