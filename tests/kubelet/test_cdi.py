"""CDI device names resolved as a container runtime resolves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import Invalid
from dragoman.kubelet.cdi import CdiFolders
from dragoman.node import cdi
from dragoman.node.cdi import CdiDevice, Edits


def write(folder: Path, name: str, *devices: str, common: str = "", kind: str = "v.com/gpu", env: str = "D") -> None:
    made = tuple(CdiDevice(d, container_edits=Edits(env=(f"{env}_{d.upper()}=1",))) for d in devices)
    cdi.write(folder / name, cdi.made(kind, made, Edits(env=(common,) if common else ())))


def test_common_edits_come_once_and_first(tmp_path: Path) -> None:
    write(tmp_path, "one.json", "a", "b", common="ALL=1")
    write(tmp_path, "two.json", "x", kind="v.com/nic")
    edits = CdiFolders(tmp_path).edits(["v.com/gpu=b", "v.com/nic=x", "v.com/gpu=a", "v.com/gpu=b"])
    assert edits.env == ("ALL=1", "D_B=1", "D_X=1", "D_A=1")


def test_the_dynamic_folder_wins(tmp_path: Path) -> None:
    fixed, dynamic = tmp_path / "etc", tmp_path / "run"
    write(fixed, "a.json", "a", env="OLD")
    folders = CdiFolders(fixed, dynamic)
    assert folders.edits(["v.com/gpu=a"]).env == ("OLD_A=1",)
    write(dynamic, "b.json", "a", env="NEW")
    assert folders.edits(["v.com/gpu=a"]).env == ("NEW_A=1",)


def test_one_name_twice_in_a_folder_does_not_resolve(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "a")
    write(tmp_path, "b.json", "a", "b")
    folders = CdiFolders(tmp_path)
    with pytest.raises(Invalid, match=r"unresolvable CDI devices v.com/gpu=a: v.com/gpu=a is defined in a.json and b"):
        folders.edits(["v.com/gpu=a"])
    assert folders.edits(["v.com/gpu=b"]).env == ("D_B=1",)
    (tmp_path / "a.json").unlink()
    assert folders.edits(["v.com/gpu=a"]).env == ("D_A=1",)


def test_a_missing_device_is_named_with_the_invalid_file(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"kind": 1}')
    with pytest.raises(Invalid) as error:
        CdiFolders(tmp_path).edits(["v.com/gpu=a"])
    assert "unresolvable CDI devices v.com/gpu=a: no file in" in str(error.value)
    assert "invalid files: broken.json" in str(error.value)


def test_a_rewritten_file_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "a", env="ONE")
    folders = CdiFolders(tmp_path)
    assert folders.edits(["v.com/gpu=a"]).env == ("ONE_A=1",)
    write(tmp_path, "a.json", "a", env="TWO")
    assert folders.edits(["v.com/gpu=a"]).env == ("TWO_A=1",)


def test_other_files_and_no_folder_are_no_harm(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "a")
    (tmp_path / ".a.json.tmp").write_text("half")
    (tmp_path / "README").write_text("no")
    assert CdiFolders(tmp_path / "none", tmp_path).edits(["v.com/gpu=a"]).env == ("D_A=1",)
