from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dragoman.cli import manifests
from dragoman.errors import Invalid

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {gpu: on}}\n"


def test_manifests_are_read_as_kubectl_reads_them(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(f"{POD}---\n---\napiVersion: v1\nkind: PodList\nitems:\n- metadata: {{name: q}}\n")
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}')
    (tmp_path / "ignored.txt").write_text("words")
    found = manifests.read([str(tmp_path)])
    assert [(kind.kind, obj["metadata"]["name"]) for kind, obj in found] == [
        ("Namespace", "n"),
        ("Pod", "p"),
        ("Pod", "q"),
    ]
    assert found[1][1]["metadata"]["labels"] == {"gpu": True}


BAD = {
    "broken syntax": (f"{POD}---\na: b: c\n", "document 2, line 5: broken YAML"),
    "no name": ("apiVersion: v1\nkind: Pod\n", "document 1: metadata.name: required"),
    "an unknown kind": ("apiVersion: a.io/v1\nkind: B\nmetadata: {name: x}\n", "unknown kind B in a.io/v1"),
    "nothing": ("# nothing\n", "contains no objects"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_sent_names_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(Invalid, match=r"f\.yaml") as caught:
        manifests.read([str(tmp_path / "f.yaml")])
    assert message in str(caught.value)


def wrong(name: str) -> str:
    with pytest.raises(Invalid) as caught:
        list(manifests.texts([name]))
    return str(caught.value)


def test_files_that_never_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_WRITER_WAIT_S", 0.1)
    assert wrong("/dev/zero") == "/dev/zero: is a device, not a file"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "nothing was written to" in wrong(str(pipe))
    assert wrong("") == "-f: the name of a file is empty"


def test_a_pipe_with_a_writer_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(POD * 5000))
    writer.start()
    assert list(manifests.texts([str(pipe)])) == [(str(pipe), POD * 5000)]
    writer.join()


def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"kind: a\nname: \xc7\xd1\n")
    assert wrong(str(file)) == f"{file}, line 2: is not UTF-8 text (byte 0xc7): save the file as UTF-8"
    file.write_bytes("kind: a\n".encode("utf-16"))
    assert "UTF-16" in wrong(str(file))
