from __future__ import annotations

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
    "nothing": ("# nothing\n", "no objects in there"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_sent_names_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(Invalid, match=r"f\.yaml") as caught:
        manifests.read([str(tmp_path / "f.yaml")])
    assert message in str(caught.value)
