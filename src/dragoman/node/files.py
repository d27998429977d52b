"""How does a file change without ever being half there, and for one process at a time? Rename and lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dragoman.errors import Retry
from dragoman.runtime.clock import Clock

LOCK_POLL_S = 0.05


@asynccontextmanager
async def locked(path: Path, clock: Clock, *, timeout_s: float) -> AsyncIterator[None]:
    """Hold the lock on that file, against other processes too. Raises Retry after timeout_s."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = clock.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() >= deadline:
                    raise Retry(
                        f"{path} is locked by another instance of the driver for over {timeout_s:g} s"
                    ) from None
            await clock.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def part_locked(path: Path, part: str, clock: Clock, *, timeout_s: float) -> AsyncIterator[None]:
    """Hold the lock on a part of that file, against other tasks and processes. Raises Retry after timeout_s.

    A part is one byte, far beyond the end, that its name stands for: a lock for each name, and no files to clear away.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        start = int.from_bytes(hashlib.sha256(part.encode()).digest()[:7])
        request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)  # struct flock of Linux
        deadline = clock.monotonic() + timeout_s
        while True:
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
                break
            except (BlockingIOError, PermissionError):
                if clock.monotonic() >= deadline:
                    raise Retry(f"another call works on {part} since over {timeout_s:g} s") from None
            await clock.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Replace the file's content; with durable it survives a power loss once this returns.

    Raises OSError; then the old content stays.
    """
    beside = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(beside, path)  # noqa: PTH104 - measurably cheaper than Path on the hot path
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in that folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
