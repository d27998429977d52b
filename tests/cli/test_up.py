"""What `dragoman up` refuses before anything starts, in one line that names the flag; and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dragoman.cli import signals, up
from dragoman.cli.main import main
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.errors import DragomanError, Invalid

REFUSED = {
    "a profile nobody knows": (["--node", "a=nope"], "--node a=nope: no such profile"),
    "two nodes of one name": (["--node", "a=example", "--node", "a=example"], "node a already exists"),
    "a clock that stands still": (["--speed", "0"], "--speed: must be 0.001 to 10,000, got 0.0"),
    "a clock that goes back": (["--speed", "-1"], "--speed: must be"),
    "no number": (["--speed", "nan"], "--speed: must be"),
    "a version older than all that can be played": (["--kubernetes", "1.20"], "--kubernetes: must be 1.32 to 1.37"),
    "a kubeconfig in no folder": (["--kubeconfig", "/nowhere/at/all/kc"], "there is no folder /nowhere/at/all"),
    "a kubeconfig that is a folder": (["--kubeconfig", "/"], "--kubeconfig /: is a folder"),
    "a profile file that is missing": (["--profile", "/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
    "a port beyond all ports": (["--port", "70000"], "port: must be 0 to 65535"),
}
MISTYPED = {
    "a name that no node can have": (["--node", "A_B=example"], "'A_B' is not a valid node name"),
    "a name that is too long": (["--node", "x" * 64 + "=example"], "must be no more than 63 bytes"),
    "no profile": (["--node", "a"], "must be NAME=PROFILE"),
    "no node at all": (["--node", "a=example*0"], "must be 1 to 20,000"),
    "a speed that is not a number": (["--speed", "fast"], "--speed"),
}


@pytest.mark.parametrize(("flags", "says"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_flag_is_refused_before_anything_starts(flags: list[str], says: str) -> None:
    with pytest.raises(DragomanError) as caught:
        main(["up", *flags])
    assert says in str(caught.value)


@pytest.mark.parametrize(("flags", "says"), MISTYPED.values(), ids=MISTYPED)
def test_a_mistyped_flag_is_a_usage_error(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["up", *flags])
    assert caught.value.code == 2
    reported = capsys.readouterr().err
    assert says in reported
    assert "help: dragoman up --help" in reported


def test_a_folder_too_deep_for_sockets_is_refused_at_the_start(tmp_path: Path) -> None:
    async def start() -> None:
        async with Cluster(ClusterSettings(data=tmp_path / ("long" * 25))):
            pytest.fail("no driver can listen there")

    with pytest.raises(Invalid, match="a Unix socket's path has at most 107 bytes"):
        asyncio.run(start())


def test_a_signal_during_the_start_ends_it() -> None:
    async def starting(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    assert signals.run(starting) == 130


def test_a_signal_to_a_command_that_serves_lets_it_close() -> None:
    closed = []

    async def serving(stop: asyncio.Event) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        await stop.wait()
        closed.append(True)

    assert signals.run(serving) == 0
    assert closed


@pytest.mark.parametrize(
    ("minor", "config", "flags"),
    [
        (37, {}, ""),
        (34, {}, ""),
        (33, {}, "--runtime-config resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"),
        (32, {}, "--runtime-config resource.k8s.io/v1beta1=true"),
        (32, {"resource.k8s.io/v1beta1": True}, ""),
        (37, {"resource.k8s.io/v1": False}, "resource.k8s.io/v1=true"),
    ],
)
def test_where_the_group_is_off_by_default_the_way_to_it_is_named(
    minor: int, config: dict[str, bool], flags: str
) -> None:
    note = up.switched_off(minor, config)
    assert (flags in note, bool(note)) == (True, bool(flags))
