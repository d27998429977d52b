"""Files over a disk that loses at a power cut what was not synced: content by fsync, names by a sync of the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import Retry
from dragoman.node.checkpoint import Checkpoint, ClaimRecord, PrepareState
from dragoman.node.files import part_locked, write_atomically
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run


class Disk:
    """What would be left after a power cut: names as of the last sync of their folder, contents as of their fsync."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.synced: dict[int, bytes] = {}
        self.names: dict[str, int] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if (found.st_mode & 0o170000) == 0o040000:
            self.names = {entry.name: entry.inode() for entry in os.scandir(self.folder)}
        else:
            self.synced[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        self._fsync(descriptor)

    def after_power_cut(self, name: str) -> bytes | None:
        inode = self.names.get(name)
        return None if inode is None else self.synced.get(inode, b"")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_what_was_written_is_there_after_a_power_cut(disk: Disk) -> None:
    for content in (b"first", b"second, longer", b""):
        write_atomically(disk.folder / "f", content)
        assert disk.after_power_cut("f") == content
        assert disk.after_power_cut(".f.tmp") is None


def test_one_that_need_not_last_costs_no_sync(disk: Disk) -> None:
    write_atomically(disk.folder / "f", b"x", durable=False)
    assert (disk.synced, disk.names) == ({}, {})


def test_every_state_of_a_checkpoint_survives(disk: Disk) -> None:
    path = disk.folder / "checkpoint.json"
    checkpoint = Checkpoint(path, "boot")
    for state in (PrepareState.STARTED, PrepareState.READY, PrepareState.UNDOING):
        checkpoint.put(ClaimRecord("default", "c", "uid", state))
        left = disk.after_power_cut(path.name)
        assert left is not None
        other = disk.folder.parent / f"left-{state}.json"
        other.write_bytes(left)
        again = Checkpoint(other, "boot")
        again.load()
        assert again.claims["uid"].state is state
    checkpoint.drop("uid", remember=True)
    assert b'"uid":[]' in (disk.after_power_cut(path.name) or b"")


def test_parts_of_a_file_are_locked_by_name(tmp_path: Path) -> None:
    async def scenario(clock: Clock) -> None:
        path = tmp_path / "lock"

        def lock(part: str, wait_s: float = 0.0) -> Any:
            return part_locked(path, part, clock, timeout_s=wait_s)

        async with lock("a"):
            async with lock("b"):
                pass
            with pytest.raises(Retry, match="another call works on a since over 2 s"):
                async with lock("a", 2.0):
                    raise AssertionError
        async with lock("a"):
            assert path.stat().st_size == 0

    run(scenario)
