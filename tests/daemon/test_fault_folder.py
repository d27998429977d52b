"""Faults of a driver that runs by itself: files that root or its own user put into a folder."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import fault as command
from dragoman.cli.main import main
from dragoman.daemon.fault_folder import FaultFolder, checked_folder
from dragoman.drivers.entry import DriverFault
from dragoman.drivers.nvidia.faults import FAULTS
from dragoman.errors import Denied, Invalid, NotFound
from dragoman.runtime.clock import Clock


class Hardware:
    def __init__(self) -> None:
        self.name = "gpu.nvidia.com"
        self.broken: list[str] = []


def offered() -> tuple[DriverFault, ...]:
    (lost,) = [fault.kind for fault in FAULTS if fault.kind.name == "gpu-lost"]

    def inject(driver: Any, workloads: Any, fault: Any) -> str:
        driver.broken.append(fault.gpu)
        return f"GPU {fault.gpu} is lost"

    return (DriverFault(lost, inject, lambda driver, fault: driver.broken.remove(fault.gpu)),)


class Lab:
    def __init__(self, folder: Path) -> None:
        self.hardware = Hardware()
        self.delays: list[float] = []
        self.clock = Clock()
        entry: Any = type("Entry", (), {"faults": offered()})
        driver: Any = self.hardware
        self.faults = FaultFolder(folder, entry, driver, "n1", self.clock, self.delays.append)
        self.folder = folder

    def put(self, name: str, **data: str) -> dict[str, str]:
        (self.folder / f"{name}.json").write_text(json.dumps(data))
        self.faults.look()
        return self.state(name)

    def state(self, name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / f"{name}.state").read_text())
        return found


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "faults")


def test_a_fault_lasts_as_long_as_its_file(lab: Lab) -> None:
    assert lab.put("a", fault="gpu-lost", node="n1", gpu="3") == {"state": "active", "message": "GPU 3 is lost"}
    lab.faults.look()
    assert lab.hardware.broken == ["3"]
    lab.put("a", fault="gpu-lost", node="n1", gpu="4")
    assert lab.hardware.broken == ["4"]
    (lab.folder / "a.json").unlink()
    lab.faults.look()
    assert lab.hardware.broken == []
    assert list(lab.folder.iterdir()) == []


def test_one_with_a_time_ends_by_itself(lab: Lab) -> None:
    lab.put("s", fault="slow-prepare", node="n1", delay="7s", **{"for": "1m"})
    assert lab.delays == [7.0]
    lab.clock._steady_at += 61
    lab.faults.look()
    lab.faults.look()
    assert lab.delays == [7.0, 0.0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"fault": "gpu-lost", "node": "n2", "gpu": "1"}, "this driver is the one of node n1"),
        ({"fault": "node-rebooted", "node": "n1"}, "has slow-prepare, gpu-lost, got 'node-rebooted'"),
        ({"fault": "nothing", "node": "n1"}, "must be one of"),
        ({"fault": "gpu-lost", "node": "n1"}, "data.gpu: must be set"),
    ],
)
def test_what_cannot_be_is_said(lab: Lab, data: dict[str, str], said: str) -> None:
    found = lab.put("x", **data)
    assert found["state"] == "invalid"
    assert said in found["message"]
    assert lab.hardware.broken == []


def test_what_others_could_have_written_is_refused(lab: Lab, tmp_path: Path) -> None:
    data = json.dumps({"fault": "gpu-lost", "node": "n1", "gpu": "1"})
    file = lab.folder / "w.json"
    file.write_text(data)
    file.chmod(0o666)
    (tmp_path / "elsewhere").write_text(data)
    (lab.folder / "link.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(lab.folder / "pipe.json")
    (lab.folder / "big.json").write_bytes(b" " * 70_000)
    lab.faults.look()
    assert lab.hardware.broken == []
    for name in ("w", "link", "pipe", "big"):
        assert lab.state(name)["state"] == "invalid"
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(Denied, match="chmod go-w"):
        checked_folder(open_to_all)
    (tmp_path / "other").symlink_to(open_to_all)
    with pytest.raises(Invalid, match="no link"):
        checked_folder(tmp_path / "other")


def test_the_command_writes_waits_lists_and_recovers(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    async def broken() -> int:
        following = asyncio.ensure_future(lab.faults.run())
        try:
            data = {"fault": "gpu-lost", "node": "n1", "gpu": "5"}
            return await command._break_in(lab.folder, "five", data)
        finally:
            following.cancel()

    assert asyncio.run(broken()) == 0
    assert lab.hardware.broken == ["5"]
    assert "GPU 5 is lost" in capsys.readouterr().out
    to = ["--to", str(lab.folder)]
    assert main(["fault", "list", *to]) == 0
    assert "five" in capsys.readouterr().out
    with pytest.raises(NotFound, match="no fault six"):
        main(["fault", "recover", "six", *to])
    assert main(["fault", "recover", "five", *to]) == 0
    lab.faults.look()
    assert lab.hardware.broken == []
