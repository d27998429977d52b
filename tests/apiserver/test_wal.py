"""Does what was acknowledged survive kill -9, torn tails and compaction, and is damage refused by name?"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.fields import fields_of
from dragoman.apiserver.store import Selection, Store
from dragoman.apiserver.wal import MAGIC, Wal, _records, open_store
from dragoman.errors import Denied, Invalid

MAP = BY_NAME["ConfigMap"]


def config_map(name: str, value: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "d", "uid": name}, "data": {"v": value}}


def put(store: Store, name: str, value: str = "") -> int:
    return store.put(MAP, config_map(name, value), store.get(MAP, "d", name)).version


def opened(folder: Path, **more: Any) -> tuple[Store, Wal]:
    return open_store(folder, fields_of, **more)


def contents(store: Store) -> dict[str, tuple[int, bytes]]:
    return {record.name: (record.version, record.body) for record in store.select(MAP)}


def log_of(folder: Path) -> Path:
    (log,) = folder.glob("log-*.bin")
    return log


def test_everything_is_there_again(tmp_path: Path) -> None:
    store, wal = opened(tmp_path)
    for at in range(5):
        put(store, f"m{at}", "x" * at)
    put(store, "m1", "again")
    record = store.get(MAP, "d", "m2")
    assert record is not None
    store.remove(record)
    asyncio.run(wal.durable())
    wal.close()
    again, wal = opened(tmp_path)
    assert contents(again) == contents(store)
    assert again.version == store.version == 7
    seen = again.watch(MAP, Selection(), 5).take()
    assert [(s.type, s.record.name) for s in seen] == [("MODIFIED", "m1"), ("DELETED", "m2")], "history goes on"
    wal.close()


def test_a_folder_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    _, wal = opened(tmp_path)
    with pytest.raises(Denied, match="in use by another process"):
        opened(tmp_path)
    wal.close()
    opened(tmp_path)[1].close()


def test_compaction_keeps_objects_and_version_and_forgets_history(tmp_path: Path) -> None:
    store, wal = opened(tmp_path, compact_bytes=2000)

    async def fill() -> None:
        for at in range(50):
            put(store, f"m{at % 7}", str(at) * 20)
            await wal.durable()

    asyncio.run(fill())
    wal.close()
    assert len(list(tmp_path.glob("snapshot-*.bin"))) == 1
    assert len(list(tmp_path.glob("log-*.bin"))) <= 2, "old logs are gone"
    again, wal = opened(tmp_path)
    assert contents(again) == contents(store)
    assert again.version == 50
    assert put(again, "fresh") == 51
    wal.close()


@pytest.mark.parametrize("cut", [1, 5, 9, 40])
def test_a_torn_tail_is_cut_off_and_kept_beside(tmp_path: Path, cut: int) -> None:
    store, wal = opened(tmp_path)
    for name in "abc":
        put(store, name, "x" * 50)
    wal.close()
    log = log_of(tmp_path)
    whole = log.read_bytes()
    log.write_bytes(whole[:-cut])
    again, wal = opened(tmp_path)
    assert sorted(contents(again)) == ["a", "b"]
    assert log.with_suffix(".torn").exists()
    assert put(again, "d") == 3
    wal.close()
    last, wal = opened(tmp_path)
    assert sorted(contents(last)) == ["a", "b", "d"]
    wal.close()


def test_garbage_after_the_last_record_is_cut_off(tmp_path: Path) -> None:
    store, wal = opened(tmp_path)
    put(store, "a")
    wal.close()
    with log_of(tmp_path).open("ab") as out:
        out.write(b"\0" * 3000)
    again, wal = opened(tmp_path)
    assert sorted(contents(again)) == ["a"]
    wal.close()


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    store, wal = opened(tmp_path)
    for name in "abc":
        put(store, name, "x" * 50)
    wal.close()
    log = log_of(tmp_path)
    data = bytearray(log.read_bytes())
    data[len(MAGIC) + 30] ^= 1
    log.write_bytes(data)
    with pytest.raises(Invalid, match="damaged in the middle"):
        opened(tmp_path)
    assert log.read_bytes() == bytes(data), "nothing was touched"


def flip_a_length(data: bytearray, starts: list[int]) -> None:
    data[starts[3]] ^= 0x40


def break_two_records(data: bytearray, starts: list[int]) -> None:
    for start in starts[3:5]:
        data[start + 20] ^= 1


def zero_a_block(data: bytearray, starts: list[int]) -> None:
    data[starts[3] : starts[3] + 512] = bytes(512)


def flip_before_the_end(data: bytearray, starts: list[int]) -> None:
    data[starts[-2] + 2] ^= 1


DAMAGE = {
    "a bit of a length": (flip_a_length, 3, 16),
    "two records in a row": (break_two_records, 3, 15),
    "a block of zeros": (zero_a_block, 3, 13),
    "the last but one": (flip_before_the_end, 18, 1),
}


@pytest.mark.parametrize(("damage", "readable", "lost"), DAMAGE.values(), ids=DAMAGE)
def test_damage_before_whole_records_is_refused_until_a_repair_is_asked_for(
    tmp_path: Path, damage: Any, readable: int, lost: int
) -> None:
    store, wal = opened(tmp_path)
    for at in range(20):
        put(store, f"m{at:02}", "x" * 40)
    wal.close()
    log = log_of(tmp_path)
    data = bytearray(log.read_bytes())
    starts = [at for at, payload in _records(bytes(data)) if payload]
    damage(data, starts)
    log.write_bytes(data)
    with pytest.raises(Invalid, match=f"up to version {readable} can be read, and {lost} later writes") as refused:
        opened(tmp_path)
    assert "--repair-data" in str(refused.value)
    assert log.read_bytes() == bytes(data), "nothing was touched"
    again, wal = opened(tmp_path, repair=True)
    assert sorted(contents(again)) == [f"m{at:02}" for at in range(readable)]
    assert put(again, "new") == readable + 1
    wal.close()
    assert log.with_suffix(".torn").read_bytes() == bytes(data[starts[readable] :])
    last, wal = opened(tmp_path)
    assert "new" in contents(last)
    wal.close()


def test_parts_cut_off_are_kept_under_names_of_their_own(tmp_path: Path) -> None:
    for end in (b"first", b"second"):
        store, wal = opened(tmp_path)
        put(store, end.decode())
        wal.close()
        with log_of(tmp_path).open("ab") as out:
            out.write(end)
    opened(tmp_path)[1].close()
    log = log_of(tmp_path)
    assert log.with_suffix(".torn").read_bytes() == b"first"
    assert log.with_suffix(".torn-2").read_bytes() == b"second"


def test_a_log_of_a_newer_version_says_so(tmp_path: Path) -> None:
    opened(tmp_path)[1].close()
    log_of(tmp_path).write_bytes(MAGIC.replace(b"1", b"2") + b"something else")
    with pytest.raises(Invalid, match="written by a newer version of Dragoman"):
        opened(tmp_path)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    store, wal = opened(tmp_path)
    put(store, "a")
    wal.compact()
    wal.close()
    (snapshot,) = tmp_path.glob("snapshot-*.bin")
    snapshot.write_bytes(snapshot.read_bytes()[:-3])
    with pytest.raises(Invalid, match="snapshot is damaged"):
        opened(tmp_path)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    store, wal = opened(tmp_path)
    put(store, "a")
    wal.close()
    log_of(tmp_path).rename(tmp_path / "log-1.away")
    store, wal = opened(tmp_path)
    put(store, "b")
    put(store, "c")
    wal.close()
    log_of(tmp_path).rename(tmp_path / "log-9.bin")
    (tmp_path / "log-1.away").rename(tmp_path / "log-1.bin")
    with pytest.raises(Invalid, match="a log is missing"):
        opened(tmp_path)


def test_a_full_disk_refuses_the_write_and_keeps_the_log_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from dragoman.errors import Retry

    store, wal = opened(tmp_path)
    put(store, "a")
    real = os.write

    def half(handle: int, data: Any) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real(handle, bytes(data)[:10])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(Retry, match="No space left"):
        put(store, "b", "y" * 200)
    monkeypatch.undo()
    assert sorted(contents(store)) == ["a"]
    assert put(store, "c") == 2
    wal.close()
    again, wal = opened(tmp_path)
    assert sorted(contents(again)) == ["a", "c"]
    wal.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.fields import fields_of
from dragoman.apiserver.wal import open_store

MAP = BY_NAME["ConfigMap"]

async def main():
    store, wal = open_store(Path(sys.argv[1]), fields_of, compact_bytes=20_000)
    start = store.version

    async def write(lane):
        at = 0
        while True:
            name = f"w{lane}-{at %% 5}"
            old = store.get(MAP, "d", name)
            if old is not None and at %% 11 == 10:
                version = store.remove(old).version
                text = f"gone {name} {version}"
            else:
                obj = {"metadata": {"name": name, "namespace": "d", "uid": name}, "data": {"v": "x" * (at %% 300)}}
                version = store.put(MAP, obj, old).version
                text = f"kept {name} {version}"
            await wal.durable()
            sys.stdout.write(text + "\\n")
            sys.stdout.flush()
            at += 1

    async with asyncio.TaskGroup() as tasks:
        for lane in range(%d):
            tasks.create_task(write(lane))

asyncio.run(main())
"""
LANES = 4


@pytest.mark.slow
def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """Ten times: kill the writer in the middle of its work, open, compare with every acknowledged write."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    script = tmp_path / "writer.py"
    script.write_text(WRITER % LANES)
    folder = tmp_path / "store"
    acknowledged: dict[str, tuple[int, bool]] = {}
    before = 0
    for _ in range(10):
        process = subprocess.Popen([sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(20, 600))]
        process.kill()
        versions: set[int] = set()
        rest, _ = process.communicate()
        for line in lines + rest.splitlines(keepends=True):
            if line.endswith("\n"):
                word, name, version = line.split()
                versions.add(int(version))
                acknowledged[name] = (int(version), word == "kept")
        store, wal = opened(folder)
        written = set(range(before + 1, store.version + 1))
        assert versions <= written, f"seed {seed}: acknowledged and not there: {versions - written}"
        unacknowledged = len(written - versions)
        assert unacknowledged <= LANES, f"seed {seed}: {written - versions}"
        stored = {name: version for name, (version, _) in contents(store).items()}
        wrong = [
            name
            for name, (version, kept) in acknowledged.items()
            if (stored.get(name, 0) < version if kept else 0 < stored.get(name, 0) < version)
        ]
        # Each lane may have had one more write on its way, which may have deleted an object.
        assert len(wrong) <= unacknowledged, f"seed {seed}: {wrong}"
        before = store.version
        acknowledged = {name: (version, True) for name, version in stored.items()}
        wal.close()
