"""How does a watch become a stream of lines? Initial events, changes, bookmarks, and the end.

Frames of plain JSON are encoded once an event and shared by all watchers; Tables and metadata-only frames are made
for each. A watcher that was too slow gets ERROR 410 and the end. Time comes from the registry's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver import table
from dragoman.apiserver.negotiate import MediaForm
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.status import StatusError, expired
from dragoman.apiserver.store import Selection, StoredObject, WatchedEvent, Watcher
from dragoman.apiserver.versions import from_stored, render, type_text

INITIAL_END = "k8s.io/initial-events-end"
BOOKMARK_S = 50.0
Convert = Callable[[list[StoredObject]], Awaitable[list[StoredObject]]]
"""To the version of the watch, where only a webhook knows how."""
CHUNK_BYTES = 128 * 1024
_encode = msgspec.json.encode


class WatchOptions(msgspec.Struct, frozen=True):
    """The query of a watch. since None: from now on, after what exists if `initial`."""

    since: int | None
    initial: bool
    mark_end: bool
    bookmarks: bool
    timeout_s: float
    include_object: str = "Metadata"


class Frames:
    """The encodings of one watch. `render_as` turns whole bytes of the kind into another API's (events.k8s.io)."""

    def __init__(
        self,
        kind: Kind,
        version: str,
        form: MediaForm,
        now: Callable[[], float],
        include: str,
        reshape: Callable[[Object], Object] | None = None,
    ) -> None:
        self.kind = kind
        self.version = version
        self.form = form
        self.now = now
        self.include = include
        self.reshape = reshape
        self._columns_sent = False

    def seen(self, seen: WatchedEvent) -> bytes:
        """One change."""
        if self.form.kind or self.reshape:
            return self._frame(seen.type, self._shaped(seen.record))
        key = (self.version, seen.type)
        frame = seen.event.frames.get(key)
        if frame is None:
            frame = seen.event.frames[key] = self.existing(seen.record, seen.type)
        return frame

    def existing(self, record: StoredObject, type: str = "ADDED") -> bytes:
        """An object as it is."""
        if self.form.kind or self.reshape:
            return self._frame(type, self._shaped(record))
        return b'{"type":"%s","object":%s}\n' % (type.encode(), render(self.kind, self.version, record.body))

    def _shaped(self, record: StoredObject) -> Object:
        obj: Object = {**type_text(self.kind, self.version), **from_stored(self.kind, self.version, record.decode())}
        if self.reshape:
            obj = self.reshape(obj)
        if self.form.kind == "Table":
            metadata = {"resourceVersion": str(record.version)}
            first = not self._columns_sent
            self._columns_sent = True
            return table.table(
                self.kind,
                [obj],
                self.now(),
                self.include,
                metadata=metadata,
                definitions=first,
                version=self.version,
            )
        if self.form.kind:
            return table.partial_metadata(obj)
        return obj

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """A version without an object."""
        metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {INITIAL_END: "true"}
        obj: Object = {**type_text(self.kind, self.version), "metadata": metadata}
        if self.reshape:
            obj = self.reshape(obj)
        if self.form.kind == "Table":
            obj = table.bookmark_table(obj)
        elif self.form.kind:
            obj = table.partial_metadata(obj)
        return self._frame("BOOKMARK", obj)

    def refused(self, refused: StatusError) -> bytes:
        """The end of a watch that cannot go on."""
        return self._frame("ERROR", refused.body())

    def _frame(self, type: str, obj: Object) -> bytes:
        return _encode({"type": type, "object": obj}) + b"\n"


class Streams:
    """The open watches of a server, so that all can be ended."""

    def __init__(self) -> None:
        self._open: set[_Stream] = set()

    def stop(self) -> None:
        """End every watch after what is queued."""
        for stream in list(self._open):
            stream.end()

    def __len__(self) -> int:
        return len(self._open)

    def start(
        self,
        registry: Registry,
        kind: Kind,
        selection: Selection,
        options: WatchOptions,
        frames: Frames,
        convert: Convert | None = None,
    ) -> tuple[AsyncIterator[bytes], Callable[[], None]]:
        """The chunks of a watch and what releases it.

        Raises 504 at once for a version of the future; 410 comes as an ERROR event.
        """
        try:
            watcher = registry.watch(kind, selection, options.since)
        except StatusError as refused:
            if refused.code != 410:
                raise
            return _one(frames.refused(refused)), watch_nothing
        existing = registry.store.select(kind, selection) if options.initial else []
        stream = _Stream(self._open, registry, watcher, existing, options, frames, convert)
        return stream.chunks(), watcher.close


def watch_nothing() -> None:
    """Nothing to release."""


async def _one(frame: bytes) -> AsyncIterator[bytes]:
    yield frame


class _Stream:
    def __init__(
        self,
        open_: set[_Stream],
        registry: Registry,
        watcher: Watcher,
        existing: list[StoredObject],
        options: WatchOptions,
        frames: Frames,
        convert: Convert | None,
    ) -> None:
        self._convert = convert
        self._open = open_
        self.registry = registry
        self.watcher = watcher
        self.existing = existing
        self.start_version = registry.store.version
        self.options = options
        self.frames = frames
        self.ended = False
        self.bookmark_due = False
        self._ready = asyncio.Event()
        watcher.wake = self._ready.set

    def end(self) -> None:
        """No more after this."""
        self.ended = True
        self._ready.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Lines, as many at a time as are there."""
        self._open.add(self)
        clock = self.registry.clock
        ending = clock.call_later(self.options.timeout_s, self.end)
        marking = None
        try:
            if self._convert is not None:
                self.existing = await self._convert(self.existing)
            for chunk in self._initial():
                yield chunk
            while True:
                marking = marking or (clock.call_later(BOOKMARK_S, self._mark) if self.options.bookmarks else None)
                seen = self.watcher.take()
                if seen:
                    if self._convert is not None:
                        records = await self._convert([change.record for change in seen])
                        pairs = zip(seen, records, strict=True)
                        seen = [msgspec.structs.replace(change, record=record) for change, record in pairs]
                    yield b"".join(map(self.frames.seen, seen))
                    continue
                if self.watcher.lost:
                    yield self.frames.refused(expired("too slow: the watch fell behind history"))
                    return
                if (self.bookmark_due or self.ended) and self.options.bookmarks:
                    yield self.frames.bookmark(self.registry.store.version)
                    self.bookmark_due, marking = False, None
                if self.ended:
                    return
                self._ready.clear()
                if not self.watcher.queue and not self.ended:
                    await self._ready.wait()
        finally:
            self._open.discard(self)
            self.watcher.close()
            ending.cancel()
            if marking is not None:
                marking.cancel()

    def _mark(self) -> None:
        self.bookmark_due = True
        self._ready.set()

    def _initial(self) -> list[bytes]:
        if not self.options.initial:
            return []
        chunks: list[bytes] = []
        lines: list[bytes] = []
        size = 0
        for record in self.existing:
            lines.append(self.frames.existing(record))
            size += len(lines[-1])
            if size > CHUNK_BYTES:
                chunks.append(b"".join(lines))
                lines, size = [], 0
        if self.options.mark_end:
            lines.append(self.frames.bookmark(self.start_version, initial_end=True))
        self.existing = []
        return [*chunks, b"".join(lines)] if lines else chunks
