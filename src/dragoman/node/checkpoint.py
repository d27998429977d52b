"""What had this driver prepared before it stopped? One file, written whole at every step of a preparation.

Knows nothing of hardware or CDI. A file that cannot be trusted is refused with what to do, never guessed at.
"""

from __future__ import annotations

import zlib
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from dragoman.errors import Invalid
from dragoman.node.cdi import CdiDevice, Edits
from dragoman.node.driver import ClaimRef, DeviceMetadata, HeldDevice, PreparedClaim, PreparedDevice
from dragoman.node.files import write_atomically

SCHEMA = 1
GONE_KEPT = 1024
"""So many unprepared claims are remembered, the latest ones."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class PrepareState(StrEnum):
    """How far a claim is; a claim the file does not know is in none of them."""

    STARTED = "PrepareStarted"
    READY = "PrepareCompleted"
    UNDOING = "UnprepareStarted"
    ROLLBACK = "RollbackStarted"
    ABORTED = "PrepareAborted"


class ClaimRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One claim. consumers are the uids it was reserved for when it was prepared.

    cdi and common are kept so that a lost CDI file can be written again as it was. waiting: the driver has to be asked
    again. aborted: the claim's status (as a checksum) whose preparation was aborted, which nobody may repeat before
    `until`, in epoch seconds.
    """

    namespace: str
    name: str
    uid: str
    state: PrepareState
    held: tuple[HeldDevice, ...] = ()
    consumers: tuple[str, ...] = ()
    driver_state: Any = None
    devices: tuple[PreparedDevice, ...] = ()
    cdi: tuple[CdiDevice, ...] = ()
    common: Edits = Edits()
    facts: tuple[DeviceMetadata, ...] = ()
    waiting: bool = False
    aborted: int = 0
    until: float = 0.0

    @property
    def ref(self) -> ClaimRef:
        """Whose record it is."""
        return ClaimRef(self.namespace, self.name, self.uid)

    def as_prepared(self) -> PreparedClaim:
        """In the driver's words."""
        return PreparedClaim(self.ref, self.held, self.driver_state, complete=self.state is PrepareState.READY)


class Contents(msgspec.Struct, frozen=True, rename="camel"):
    """All of the file; gone holds unprepared claims: uid -> uids it was reserved for."""

    version: int
    boot_id: str = msgspec.field(name="bootID")
    claims: dict[str, ClaimRecord] = {}
    gone: dict[str, tuple[str, ...]] = {}


class _Envelope(msgspec.Struct):
    data: msgspec.Raw
    checksum: int


class _Version(msgspec.Struct):
    version: int


class Checkpoint:
    """The file and what it holds; every change is on disk when the method returns.

    `boot_id` is that of the running kernel (or simulated machine).
    """

    def __init__(self, path: Path, boot_id: str, *, durable: bool = True) -> None:
        self.path = path
        self.boot_id = boot_id
        self.durable = durable
        self.dropped: tuple[PreparedClaim, ...] = ()
        self._contents = Contents(SCHEMA, boot_id)
        self._seen: tuple[int, int, int] | None = None

    @property
    def claims(self) -> dict[str, ClaimRecord]:
        """By uid; a snapshot that later changes leave alone."""
        return self._contents.claims

    @property
    def held(self) -> list[ClaimRecord]:
        """Claims for which something is prepared or under way."""
        return [record for record in self.claims.values() if record.state is not PrepareState.ABORTED]

    @property
    def gone(self) -> dict[str, tuple[str, ...]]:
        """Unprepared claims by uid, with the uids they were reserved for."""
        return self._contents.gone

    def load(self) -> bool:
        """Read the file, also if another instance of the driver changed it; cheap if nobody did. True if it was read.

        After a reboot the claims are dropped (see `dropped`), since what they held is gone. Raises Invalid.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            if self._seen is not None:
                raise Invalid(
                    str(self.path), "has vanished while the driver runs: drain the node and restart the driver"
                ) from None
            return False
        identity = (found.st_ino, found.st_mtime_ns, found.st_size)
        if identity == self._seen:
            return False
        self._contents = self._decode(self.path.read_bytes())
        self._seen = identity
        if self._contents.boot_id != self.boot_id:
            self.dropped = tuple(record.as_prepared() for record in self.held)
            self._write(Contents(SCHEMA, self.boot_id))
        return True

    def put(self, record: ClaimRecord) -> None:
        """Add or replace one claim."""
        gone = {uid: seen for uid, seen in self.gone.items() if uid != record.uid}
        self._write(Contents(SCHEMA, self.boot_id, {**self.claims, record.uid: record}, gone))

    def drop(self, uid: str, *, remember: bool) -> None:
        """Forget a claim; with remember it counts as unprepared from now on."""
        record = self.claims[uid]
        gone = dict(self.gone)
        if remember:
            gone[uid] = record.consumers
            for oldest in list(gone)[: max(0, len(gone) - GONE_KEPT)]:
                del gone[oldest]
        self._write(Contents(SCHEMA, self.boot_id, {u: r for u, r in self.claims.items() if u != uid}, gone))

    def _write(self, contents: Contents) -> None:
        data = msgspec.json.encode(contents)
        envelope = _Envelope(msgspec.Raw(data), zlib.crc32(data))
        write_atomically(self.path, msgspec.json.encode(envelope), durable=self.durable)
        self._contents = contents
        found = self.path.stat()
        self._seen = (found.st_ino, found.st_mtime_ns, found.st_size)

    def _decode(self, content: bytes) -> Contents:
        advice = "drain the node, remove the file and restart the driver"
        try:
            envelope = msgspec.json.decode(content, type=_Envelope)
            data = bytes(envelope.data)
            if zlib.crc32(data) != envelope.checksum:
                raise Invalid(
                    str(self.path), f"the checksum of the checkpoint does not match, it was damaged: {advice}"
                )
            version = msgspec.json.decode(data, type=_Version).version
            if version > SCHEMA:
                raise Invalid(
                    str(self.path),
                    f"the checkpoint has schema version {version}, this driver knows up to {SCHEMA}: "
                    f"run the newer driver, or {advice}",
                )
            return msgspec.json.decode(data, type=Contents)
        except msgspec.MsgspecError as error:
            raise Invalid(str(self.path), f"is not a checkpoint ({error}): {advice}") from error


def kernel_boot_id() -> str:
    """The running kernel's boot id. Raises Invalid where there is none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError as error:
        raise Invalid(str(_BOOT_ID), f"cannot be read ({error}): give the plugin a boot id") from error
