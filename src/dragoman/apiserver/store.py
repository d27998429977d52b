"""What is stored, at which version, and which watchers get it? Objects as encoded bytes under one gap-free
resourceVersion.

One writer (the event loop) numbers every write, hands it to the journal if there is one, and only then makes it
visible and tells the watchers whose selection may care. The store knows nothing of HTTP, admission or validation,
never waits and reads no clock. Bytes are whole objects without apiVersion and kind, so that a version of the API
that differs only in its name is a prefix.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.meta import NamespacedName
from dragoman.api.shape import Object
from dragoman.apiserver.limits import check_object
from dragoman.apiserver.selectors import FieldTerm, Requirements
from dragoman.apiserver.selectors import accepts as labels_accept
from dragoman.apiserver.status import expired, too_large_version

RING_EVENTS = 4096
RING_EVENTS_OF = {"leases": 512, "events": 1024}
WATCHER_EVENTS = 16384
FRESH_EVENTS = 256
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One stored object: body is its JSON without apiVersion and kind, resourceVersion inside.

    `labels` and `fields` index what selectors ask for; a field that is absent counts as "".
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    version: int
    labels: dict[str, str]
    fields: dict[str, str]
    body: bytes

    def decode(self) -> Object:
        """A fresh dict, without apiVersion and kind."""
        obj: Object = _decode(self.body)
        return obj


class Selection(msgspec.Struct, frozen=True):
    """What a list or watch asks for; an empty namespace means all."""

    namespace: str = ""
    labels: Requirements = ()
    fields: tuple[FieldTerm, ...] = ()

    def accepts(self, record: StoredObject) -> bool:
        """Whether the object belongs to it."""
        if self.namespace and record.namespace != self.namespace:
            return False
        for term in self.fields:
            if (field_of(record, term.key) == term.value) is not term.equal:
                return False
        return not self.labels or labels_accept(self.labels, record.labels)

    def lane(self) -> tuple[str, str]:
        """The most selective field and value that every accepted object has; ("", "") if there is none."""
        equal = {term.key: term.value for term in self.fields if term.equal}
        if "metadata.name" in equal:
            return "metadata.name", equal["metadata.name"]
        for key in sorted(equal):
            if key != "metadata.namespace":
                return key, equal[key]
        if self.namespace:
            return "metadata.namespace", self.namespace
        return "", ""


EVERYTHING = Selection()


def field_of(record: StoredObject, key: str) -> str:
    """The text of a selectable field."""
    if key == "metadata.name":
        return record.name
    if key == "metadata.namespace":
        return record.namespace
    return record.fields.get(key, "")


class StoreEvent(msgspec.Struct, gc=False):
    """One write: old None is an addition, new.version is the version of the write; gone marks a deletion.

    For a deletion `new` is the last state under the deletion's version. `frames` caches encodings.
    """

    version: int
    new: StoredObject
    old: StoredObject | None
    gone: bool
    frames: dict[tuple[str, str], bytes] = {}


class WatchedEvent(msgspec.Struct, frozen=True, gc=False):
    """What a watcher sees of an event: ADDED, MODIFIED or DELETED."""

    type: str
    record: StoredObject
    event: StoreEvent


class Watcher:
    """One watch: a bounded queue of events between the store and whoever reads.

    `wake` is called when there is something to take. `lost` says that the reader was too slow: it must list again.
    """

    def __init__(self, shelf: Shelf, selection: Selection) -> None:
        self.selection = selection
        self.wake: Callable[[], None] = _nothing
        self.lost = False
        self.closed = False
        self.queue: deque[StoreEvent] = deque()
        self.lane = selection.lane()
        self._shelf = shelf

    def deliver(self, event: StoreEvent) -> None:
        """Queue an event and wake the reader."""
        if len(self.queue) >= WATCHER_EVENTS:
            self.lost = True
            self.close()
        else:
            self.queue.append(event)
        self.wake()

    def take(self, limit: int = 512) -> list[WatchedEvent]:
        """The next events that concern the selection, at most limit."""
        out: list[WatchedEvent] = []
        queue = self.queue
        while queue and len(out) < limit:
            seen = see(queue.popleft(), self.selection)
            if seen is not None:
                out.append(seen)
        return out

    def close(self) -> None:
        """Leave the store."""
        if not self.closed:
            self.closed = True
            self.queue.clear()
            self._shelf.leave(self)


def see(event: StoreEvent, selection: Selection) -> WatchedEvent | None:
    """An event through a selection: an object that enters it is ADDED, one that leaves it DELETED."""
    was = event.old is not None and selection.accepts(event.old)
    now = not event.gone and selection.accepts(event.new)
    if now:
        return WatchedEvent("MODIFIED" if was else "ADDED", event.new, event)
    if was:
        return WatchedEvent("DELETED", event.new, event)
    return None


def _nothing() -> None:
    """Nobody waits."""


class Shelf:
    """All objects of one kind, the recent history and the watchers."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.records: dict[NamespacedName, StoredObject] = {}
        self.ring: deque[StoreEvent] = deque()
        self.ring_limit = RING_EVENTS_OF.get(kind.plural, RING_EVENTS)
        self.forgotten = 0  # the newest version that history no longer has
        self.changed = 0  # the newest version of a write
        self.lanes: dict[str, dict[str, dict[Watcher, None]]] = {}  # in the order they joined
        self._keys: list[NamespacedName] | None = None

    def keys(self) -> list[NamespacedName]:
        """Keys in order (namespace, name)."""
        if self._keys is None:
            self._keys = sorted(self.records)
        return self._keys

    def select(self, selection: Selection) -> Iterator[StoredObject]:
        """Records of the selection in key order."""
        records = self.records
        keys = self.keys()
        if selection.namespace:
            first = bisect_left(keys, (selection.namespace, ""))
            last = bisect_left(keys, (selection.namespace + "\0", ""))
            keys = keys[first:last]
        if not selection.fields and not selection.labels:
            return (records[key] for key in keys)
        return (record for key in keys if selection.accepts(record := records[key]))

    def apply(self, event: StoreEvent) -> None:
        """Make a write visible and tell the watchers."""
        key = (event.new.namespace, event.new.name)
        self.changed = event.version
        if event.gone:
            del self.records[key]
            self._keys = None
        else:
            if event.old is None:
                self._keys = None
            self.records[key] = event.new
        self.ring.append(event)
        if len(self.ring) > self.ring_limit:
            self.forgotten = self.ring.popleft().version
        if len(self.ring) > FRESH_EVENTS:
            self.ring[-FRESH_EVENTS - 1].frames.clear()  # whoever still needs it encodes it again
        for watcher in self._interested(event):
            watcher.deliver(event)

    def _interested(self, event: StoreEvent) -> list[Watcher]:
        out: list[Watcher] = []
        for field, by_value in self.lanes.items():
            value = field_of(event.new, field) if field else ""
            out.extend(by_value.get(value, ()))
            if field and event.old is not None:
                before = field_of(event.old, field)
                if before != value:
                    out.extend(by_value.get(before, ()))
        return out

    def end_watches(self) -> None:
        """The resource is no longer there: readers must look again."""
        for watcher in [w for by_value in list(self.lanes.values()) for ws in list(by_value.values()) for w in ws]:
            watcher.lost = True
            watcher.close()
            watcher.wake()

    def join(self, watcher: Watcher) -> None:
        """Add a watcher to its lane."""
        field, value = watcher.lane
        self.lanes.setdefault(field, {}).setdefault(value, {})[watcher] = None

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        field, value = watcher.lane
        by_value = self.lanes.get(field, {})
        members = by_value.get(value, {})
        members.pop(watcher, None)
        if not members:
            by_value.pop(value, None)
        if not by_value:
            self.lanes.pop(field, None)


class Journal(Protocol):
    """Where writes go before they are visible."""

    def append(self, event: StoreEvent) -> None:
        """Hand one write to the operating system; raises Retry if that fails, and then nothing was written."""
        ...

    async def durable(self) -> None:
        """Wait until everything appended so far is on the disk."""
        ...


FieldsOf = Callable[[Kind, Object], dict[str, str]]


class Store:
    """All shelves under one version."""

    def __init__(self, fields_of: FieldsOf, *, journal: Journal | None = None) -> None:
        self.version = 0
        self.history_start = 0  # writes up to this version are in no ring
        self.journal = journal
        self._fields_of = fields_of
        self._shelves: dict[tuple[str, str], Shelf] = {}

    def shelf(self, kind: Kind) -> Shelf:
        """The shelf of a kind."""
        key = (kind.group, kind.plural)
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = Shelf(kind)
        return shelf

    def kind_of(self, group: str, plural: str) -> Kind | None:
        """The kind that a resource is stored as, None for one that was never used."""
        shelf = self._shelves.get((group, plural))
        return shelf.kind if shelf is not None else None

    def adopt(self, kind: Kind) -> None:
        """Objects of a resource are of this kind from now on: its definition was read, or has changed."""
        shelf = self.shelf(kind)
        shelf.kind = kind
        for key, record in shelf.records.items():
            fields = self._fields_of(kind, record.decode())
            shelf.records[key] = msgspec.structs.replace(record, kind=kind, fields=fields)

    def shelves(self) -> Iterable[Shelf]:
        """All that were used."""
        return self._shelves.values()

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject | None:
        """One object."""
        return self.shelf(kind).records.get((namespace, name))

    def select(self, kind: Kind, selection: Selection = EVERYTHING) -> list[StoredObject]:
        """All objects of the selection, ordered by namespace and name."""
        return list(self.shelf(kind).select(selection))

    def put(self, kind: Kind, obj: Object, old: StoredObject | None) -> StoredObject:
        """Write an object (without apiVersion and kind); its resourceVersion is set. old is what it replaces.

        Raises 500 for one that is too large, 400 for one that nests too deep.
        """
        record = self._record(kind, obj, self.version + 1)
        check_object(record.body)
        self._commit(StoreEvent(record.version, record, old, gone=False, frames={}))
        return record

    def remove(self, record: StoredObject, obj: Object | None = None) -> StoredObject:
        """Delete an object; obj is its last state if that differs from the stored one."""
        last = self._record(record.kind, record.decode() if obj is None else obj, self.version + 1)
        self._commit(StoreEvent(last.version, last, record, gone=True, frames={}))
        return last

    def _record(self, kind: Kind, obj: Object, version: int) -> StoredObject:
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        return StoredObject(
            kind,
            metadata.get("namespace") or "",
            metadata["name"],
            metadata.get("uid") or "",
            version,
            metadata.get("labels") or {},
            self._fields_of(kind, obj),
            _encode(obj),
        )

    def _commit(self, event: StoreEvent) -> None:
        if self.journal is not None:
            self.journal.append(event)
        self.version = event.version
        self.shelf(event.new.kind).apply(event)

    def restore(self, kind: Kind, version: int, body: bytes, *, gone: bool, replay: bool) -> None:
        """Put back what a journal kept: from a snapshot (no history) or by replaying a write (with history)."""
        record = self._record(kind, _decode(body), version)
        shelf = self.shelf(kind)
        key = (record.namespace, record.name)
        if replay:
            self.version = version
            if not gone or key in shelf.records:
                shelf.apply(StoreEvent(version, record, shelf.records.get(key), gone, {}))
        else:
            shelf.records[key] = record
            shelf.changed = max(shelf.changed, version)
            shelf._keys = None

    def restored(self, version: int) -> None:
        """After a snapshot was put back: history starts at that version."""
        self.version = self.history_start = version

    def check_version(self, asked: int) -> None:
        """Refuse a version of the future."""
        if asked > self.version:
            raise too_large_version(asked, self.version)

    def watch(self, kind: Kind, selection: Selection, since: int | None) -> Watcher:
        """Watch from now on (None), or from after a version: what happened since is queued. Raises 410."""
        shelf = self.shelf(kind)
        watcher = Watcher(shelf, selection)
        if since is not None:
            self.check_version(since)
            oldest = max(shelf.forgotten, self.history_start)
            if since < oldest:
                raise expired(f"too old resource version: {since} ({oldest})")
            watcher.queue.extend(events_since(shelf.ring, since))
        shelf.join(watcher)
        return watcher

    def compact(self) -> None:
        """Forget all history (tests of 410, and memory under pressure)."""
        for shelf in self._shelves.values():
            shelf.ring.clear()
        self.history_start = self.version


def events_since(ring: deque[StoreEvent], since: int) -> list[StoreEvent]:
    """The events of a ring after a version, oldest first."""
    out: list[StoreEvent] = []
    for event in reversed(ring):
        if event.version <= since:
            break
        out.append(event)
    out.reverse()
    return out
