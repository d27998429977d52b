"""How does what was acknowledged survive? A write-ahead log and snapshots in plain files of one folder.

Every write is one checksummed record, handed to the operating system before anybody sees it (so kill -9 loses
nothing) and synced to the disk before it is acknowledged (group commit, so neither does a power failure). On opening,
the newest snapshot is loaded and the logs after it are replayed; an incomplete record at the very end is cut off and
kept beside. Anything else is damage: whole records after it prove that it is no torn end, so it is refused with what
would be lost, and cut off (and kept) only when asked for. docs/decisions says why files and not a database.

    lock                    held while the folder is in use
    snapshot-VERSION.bin    all objects at a version
    log-VERSION.bin         the writes from that version on
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from dragoman.api.kinds import BY_PLURAL, Kind
from dragoman.apiserver.store import FieldsOf, Store, StoredObject, StoreEvent
from dragoman.errors import Denied, Invalid, Retry
from dragoman.runtime import log

MAGIC = b"dragoman store 1\n"
COMPACT_BYTES = 16 * 1024 * 1024
_HEAD = struct.Struct(">II")
_MAGICS = re.compile(rb"dragoman store (\d+)\n")
_ENTRY_BEGINS = b"\x95"
"""How MessagePack writes a list of five, as every Entry is."""
_log = log.get("apiserver.store")


class WalEntry(msgspec.Struct, array_like=True, gc=False):
    """One write, or one object of a snapshot."""

    version: int
    gone: bool
    group: str
    plural: str
    body: bytes


class _End(msgspec.Struct, array_like=True, tag=True):
    """The last record of a snapshot."""

    count: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WalEntry).decode


def _framed(payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def open_store(
    folder: Path, fields_of: FieldsOf, *, compact_bytes: int = COMPACT_BYTES, repair: bool = False
) -> tuple[Store, Wal]:
    """The store kept in a folder, made if absent. Raises Denied if in use, Invalid if damaged beyond a torn tail.

    repair: go on with what is readable before the damage; the rest is kept beside under names of its own.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = _lock(folder)
    try:
        store = Store(fields_of)
        snapshot = _load_snapshot(folder, store)
        size = _replay(folder, store, snapshot, repair=repair)
        wal = Wal(folder, store, lock, compact_bytes, size)
    except BaseException:
        os.close(lock)
        raise
    store.journal = wal
    return store, wal


def _lock(folder: Path) -> int:
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Denied(f"{folder} is in use by another process: stop it, or choose another folder") from None
    return handle


# ---- reading


def _numbered(folder: Path, kind: str) -> list[tuple[int, Path]]:
    found = []
    for file in folder.glob(f"{kind}-*.bin"):
        number = file.stem.removeprefix(f"{kind}-")
        if number.isdigit():
            found.append((int(number), file))
    return sorted(found)


def _records(data: bytes) -> Iterator[tuple[int, bytes | None]]:
    """(offset, payload) of each record; the payload is None where the bytes are no whole record."""
    at = len(MAGIC)
    while at < len(data):
        payload = _record_at(data, at)
        yield at, payload
        if payload is None:
            return
        at += _HEAD.size + len(payload)


def _record_at(data: bytes, at: int) -> bytes | None:
    if at + _HEAD.size > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, at)
    payload = data[at + _HEAD.size : at + _HEAD.size + length]
    # Zeros, as a file system leaves them after a power failure, are no record of length 0.
    return payload if length and len(payload) == length and zlib.crc32(payload) == crc else None


def _load_snapshot(folder: Path, store: Store) -> int:
    snapshots = _numbered(folder, "snapshot")
    if not snapshots:
        return 0
    version, file = snapshots[-1]
    data = file.read_bytes()
    payloads = [payload for _, payload in _records(data)] if data.startswith(MAGIC) else []
    if not payloads or payloads[-1] != _encode(_End(len(payloads) - 1)):
        raise Invalid(str(file), "the snapshot is damaged: restore the folder from a copy, or start with an empty one")
    for payload in payloads[:-1]:
        _restore(store, _decode(payload or b""), file, replay=False)
    store.restored(version)
    return version


def _restore(store: Store, entry: WalEntry, file: Path, *, replay: bool) -> None:
    kind = BY_PLURAL.get((entry.group, entry.plural)) or store.kind_of(entry.group, entry.plural)
    if kind is None:
        if "." not in entry.group:
            raise Invalid(str(file), f"holds {entry.plural}.{entry.group}, which this version does not serve")
        # A custom resource: what it is called is known once its definition has been read.
        kind = Kind("", entry.plural, entry.group, ("",), True)
    store.restore(kind, entry.version, entry.body, gone=entry.gone, replay=replay)


def _replay(folder: Path, store: Store, snapshot: int, *, repair: bool) -> int:
    """Replay the logs after a snapshot; returns the bytes of logs kept."""
    logs = _numbered(folder, "log")
    total = 0
    for index, (_, file) in enumerate(logs):
        data = file.read_bytes()
        last = index == len(logs) - 1
        if not data.startswith(MAGIC):
            if last and len(data) < len(MAGIC):
                file.unlink()  # killed while making it: nothing was written to it yet
                continue
            raise Invalid(str(file), _foreign(data))
        for at, payload in _records(data):
            if payload is None:
                later = [path for _, path in logs[index + 1 :]]
                _end_at(file, data, at, store.version, later, repair=repair)
                return total + file.stat().st_size
            entry = _decode(payload)
            if entry.version <= snapshot:
                continue
            if entry.version != store.version + 1:
                raise Invalid(
                    str(file), f"a log is missing: version {store.version + 1} expected, {entry.version} found"
                )
            _restore(store, entry, file, replay=True)
        total += file.stat().st_size
    return total


def _foreign(data: bytes) -> str:
    if (other := _MAGICS.match(data)) is not None:
        return f"was written by a newer version of Dragoman (store {other[1].decode()}; this version reads store 1)"
    return "does not begin as a log of this program does: move it away"


def _end_at(file: Path, data: bytes, at: int, version: int, later: list[Path], *, repair: bool) -> None:
    """Go on without what follows byte `at` of a log: the record that was being written when the process died.

    Whole records after it, or logs, prove that it is damage, which is cut off only for a repair.
    """
    lost = [entry.version for entry in _entries_after(data, at, version)]
    for log_file in later:
        lost += [_decode(payload).version for _, payload in _records(log_file.read_bytes()) if payload]
    if (lost or later) and not repair:
        raise Invalid(
            f"{file}: byte {at}",
            f"the log is damaged in the middle: everything up to version {version} can be read, and "
            + (f"{len(lost)} later writes (up to version {max(lost)}) cannot be used without it" if lost else "no more")
            + "; restore the folder from a copy, or go on without them: dragoman up --data DIR --repair-data",
        )
    kept = [_kept_beside(file, data[at:])]
    with file.open("r+b") as out:
        out.truncate(at)
        os.fsync(out.fileno())
    for log_file in later:
        kept.append(_kept_beside(log_file, log_file.read_bytes()))
        log_file.unlink()
    _sync_folder(file.parent)
    what = "went back to before the damage" if lost or later else "cut off an incomplete write"
    _log.warning(what, file=str(file), bytes=len(data) - at, lost=len(lost), kept=", ".join(map(str, kept)))


def _entries_after(data: bytes, at: int, version: int) -> Iterator[WalEntry]:
    """Whole writes after version `version` that stand somewhere behind byte `at`, in order."""
    while (found := data.find(_ENTRY_BEGINS, at + _HEAD.size)) >= 0:
        at = found - _HEAD.size
        payload = _record_at(data, at)
        entry = None
        if payload is not None:
            try:
                entry = _decode(payload)
            except msgspec.DecodeError:
                entry = None
        if payload is None or entry is None or entry.version <= version:
            at = found + 1 - _HEAD.size
            continue
        yield entry
        version = entry.version
        at += len(payload)  # the next record's head lies before where the search goes on


def _kept_beside(file: Path, data: bytes) -> Path:
    """Write bytes to a file of their own beside a log; what was kept before stays."""
    number = 1
    while True:
        torn = file.with_suffix(f".torn-{number}" if number > 1 else ".torn")
        try:
            with torn.open("xb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
        except FileExistsError:
            number += 1
        else:
            return torn


# ---- writing


class Wal:
    """The journal of a store. One writer; `close` before leaving."""

    def __init__(self, folder: Path, store: Store, lock: int, compact_bytes: int, size: int) -> None:
        self._folder = folder
        self._store = store
        self._lock = lock
        self._compact_bytes = self._least_bytes = compact_bytes
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="wal")
        self._broken = ""
        self._appended = self._synced = store.version
        self._leader: asyncio.Future[None] | None = None
        self._snapshot: Future[None] | None = None
        self._open_log()
        self._since_snapshot = size

    def _open_log(self) -> None:
        logs = _numbered(self._folder, "log")
        file = logs[-1][1] if logs else self._folder / f"log-{self._store.version + 1}.bin"
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size == 0:
            self._write(MAGIC)
        _sync_folder(self._folder)

    def append(self, event: StoreEvent) -> None:
        """Hand one write to the operating system. Raises Retry if that fails; then nothing was written."""
        if self._broken:
            raise Retry(f"writes are refused since the disk failed: {self._broken}")
        record = event.new
        payload = _encode(WalEntry(event.version, event.gone, record.kind.group, record.kind.plural, record.body))
        self._write(_framed(payload))
        self._appended = event.version
        self._since_snapshot += len(payload)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._undo(error)
            raise Retry(f"the write was not stored: {error.strerror}: {self._folder}") from error
        self._size += len(data)

    def _undo(self, error: OSError) -> None:
        try:
            os.ftruncate(self._file, self._size)
        except OSError:
            self._broken = str(error)

    async def durable(self) -> None:
        """Wait until everything appended so far is on the disk; those who wait together share one sync."""
        target = self._appended
        loop = asyncio.get_running_loop()
        while self._synced < target:
            if self._broken:
                raise Retry(f"the write may not survive a power failure: {self._broken}")
            if self._leader is not None:
                await asyncio.wait([self._leader])
                continue
            leader = self._leader = loop.create_future()
            reached = self._appended
            try:
                await loop.run_in_executor(self._pool, os.fdatasync, self._file)
                self._synced = max(self._synced, reached)
            except OSError as error:
                self._broken = str(error)  # what the kernel dropped cannot be written again
            finally:
                self._leader = None
                leader.set_result(None)
        if self._since_snapshot > self._compact_bytes:
            self.compact()

    def compact(self) -> None:
        """Start a new log, and write a snapshot of now in the background; older files go once it is complete."""
        if self._leader is not None or (self._snapshot is not None and not self._snapshot.done()):
            return  # the log is being synced, or the last snapshot is still being written: later
        self._since_snapshot = 0
        version = self._store.version
        records = [record for shelf in self._store.shelves() for record in shelf.records.values()]
        # A large state is not written again for every few changes.
        self._compact_bytes = max(self._least_bytes, 2 * sum(len(record.body) for record in records))
        before = [file for kind in ("log", "snapshot") for _, file in _numbered(self._folder, kind)]
        os.fdatasync(self._file)
        self._synced = max(self._synced, self._appended)
        os.close(self._file)
        fresh = self._folder / f"log-{version + 1}.bin"
        self._file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size == 0:
            self._write(MAGIC)
        _sync_folder(self._folder)
        obsolete = [file for file in before if file != fresh]
        self._snapshot = self._pool.submit(_snapshot, self._folder, version, records, obsolete)
        self._snapshot.add_done_callback(_report)

    def close(self) -> None:
        """Sync and let go of the folder."""
        self._pool.shutdown(wait=True)
        os.fdatasync(self._file)
        os.close(self._file)
        os.close(self._lock)


def _report(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        _log.warning("no snapshot was written, the log grows on", error=str(error))


def _snapshot(folder: Path, version: int, records: list[StoredObject], obsolete: list[Path]) -> None:
    file = folder / f"snapshot-{version}.bin"
    fresh = file.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(MAGIC)
        for record in records:
            entry = WalEntry(record.version, False, record.kind.group, record.kind.plural, record.body)
            out.write(_framed(_encode(entry)))
        out.write(_framed(_encode(_End(len(records)))))
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    _sync_folder(folder)
    for old in obsolete:
        if old != file:
            old.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
