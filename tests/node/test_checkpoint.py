"""The checkpoint: what it keeps, what it refuses, what a reboot does."""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
import pytest

from dragoman.errors import Invalid
from dragoman.node.checkpoint import GONE_KEPT, Checkpoint, ClaimRecord, PrepareState
from dragoman.node.driver import HeldDevice


def opened(path: Path, boot_id: str = "b1") -> Checkpoint:
    checkpoint = Checkpoint(path, boot_id)
    checkpoint.load()
    return checkpoint


def record(uid: str, state: PrepareState = PrepareState.READY) -> ClaimRecord:
    return ClaimRecord("ns", f"claim-{uid}", uid, state, (HeldDevice("p", f"d-{uid}"),), ("pod",), {"instance": uid})


def test_it_gives_back_what_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    first = opened(path)
    first.put(record("1"))
    first.put(record("2", PrepareState.STARTED))
    first.put(record("3"))
    first.drop("3", remember=True)
    again = opened(path)
    assert again.claims == {"1": record("1"), "2": record("2", PrepareState.STARTED)}
    assert again.gone == {"3": ("pod",)}
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_another_instance_sees_changes(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "c.json"), opened(tmp_path / "c.json")
    one.put(record("1"))
    other.load()
    assert other.claims == one.claims
    other.drop("1", remember=False)
    one.load()
    assert one.claims == {}


def test_a_reboot_drops_the_claims(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    first = opened(path)
    first.put(record("1"))
    first.put(record("2"))
    first.drop("2", remember=True)
    after = opened(path, "b2")
    assert after.claims == {}
    assert after.gone == {}
    assert [(lost.ref.uid, lost.state) for lost in after.dropped] == [("1", {"instance": "1"})]
    assert opened(path, "b2").dropped == ()


@pytest.mark.slow
def test_only_the_latest_unprepared_claims_are_remembered(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "c.json", "b", durable=False)
    for number in range(GONE_KEPT + 5):
        checkpoint.put(record(str(number)))
        checkpoint.drop(str(number), remember=True)
    assert len(checkpoint.gone) == GONE_KEPT
    assert "4" not in checkpoint.gone
    assert str(GONE_KEPT + 4) in checkpoint.gone


def _damaged(content: bytes) -> bytes:
    return content.replace(b"claim-1", b"claim-X")


def _newer(content: bytes) -> bytes:
    data = b'{"version":99,"bootID":"b1"}'
    return b'{"data":' + data + b',"checksum":' + str(zlib.crc32(data)).encode() + b"}"


REFUSED = {
    "a byte changed": (_damaged, "the checksum of the checkpoint does not match, it was damaged"),
    "cut short": (lambda content: content[:-20], "is not a checkpoint"),
    "empty": (lambda content: b"", "is not a checkpoint"),
    "written by a newer driver": (_newer, "schema version 99, this driver knows up to 1"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_trusted_is_refused_with_advice(tmp_path: Path, change: object, words: str) -> None:
    path = tmp_path / "c.json"
    opened(path).put(record("1"))
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(Invalid) as error:
        opened(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)
    assert "drain the node, remove the file and restart the driver" in str(error.value)


def test_a_file_that_vanishes_is_an_error(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path / "c.json")
    checkpoint.put(record("1"))
    checkpoint.path.unlink()
    with pytest.raises(Invalid, match="has vanished while the driver runs"):
        checkpoint.load()


def test_unknown_fields_of_a_later_schema_one_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    opened(path).put(record("1"))
    envelope = msgspec.json.decode(path.read_bytes())
    envelope["data"]["claims"]["1"]["later"] = 1
    data = msgspec.json.encode(envelope["data"])
    path.write_bytes(b'{"data":' + data + b',"checksum":' + str(zlib.crc32(data)).encode() + b"}")
    assert opened(path).claims == {"1": record("1")}
