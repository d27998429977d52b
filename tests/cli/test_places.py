"""Daemons of a node refuse a name or folder that they can never use, instead of trying for ever."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dragoman.cli import places
from dragoman.cli.main import main
from dragoman.errors import Denied, DragomanError
from dragoman.node import paths

DAEMONS = {"node-agent": ["node-agent"], "driver": ["driver", "example"]}


@pytest.mark.parametrize("words", DAEMONS.values(), ids=DAEMONS)
def test_a_name_no_node_can_have_is_refused(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(DragomanError, match="--node-name: 'A_b'"):
        main([*words, "--node-name", "A_b", "--root-dir", str(tmp_path)])


@pytest.mark.parametrize("words", DAEMONS.values(), ids=DAEMONS)
def test_a_folder_too_deep_for_sockets_is_refused(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(DragomanError, match="at most 107 bytes"):
        main([*words, "--node-name", "n", "--root-dir", str(tmp_path / ("long" * 25))])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", DAEMONS.values(), ids=DAEMONS)
def test_a_folder_that_cannot_be_made_is_refused(words: list[str]) -> None:
    with tempfile.NamedTemporaryFile() as file, pytest.raises(Denied, match="cannot be made: Not a directory"):
        main([*words, "--node-name", "n", "--root-dir", f"{file.name}/below"])


@pytest.mark.parametrize("what", ["node agent", "driver nvidia"])
def test_one_of_a_kind_a_folder(what: str, tmp_path: Path) -> None:
    held = places.hold_root(tmp_path, what)
    other = places.hold_root(tmp_path, "driver nic")
    try:
        with pytest.raises(Denied, match=f"another {what} uses this folder"):
            places.hold_root(tmp_path, what)
    finally:
        os.close(held)
        os.close(other)
    os.close(places.hold_root(tmp_path, what))


def test_a_second_instance_of_a_driver_is_refused() -> None:
    with tempfile.TemporaryDirectory() as short:
        held = places.hold_root(Path(short), "driver nic")
        try:
            with pytest.raises(Denied, match="another driver nic uses this folder"):
                main(["driver", "nic", "--simulate", "dgx-h100", "--node-name", "n", "--root-dir", short])
        finally:
            os.close(held)


def test_the_folder_of_a_kubelet_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "KUBELET", tmp_path / "kubelet")
    with pytest.raises(DragomanError, match="no kubelet has run on this machine"):
        places.check_root(tmp_path / "kubelet", "x.sock")
    assert not list(tmp_path.iterdir())
    (tmp_path / "kubelet" / "plugins_registry").mkdir(parents=True)
    places.check_root(tmp_path / "kubelet", "x.sock")
