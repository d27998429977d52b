"""Commands in the simulated shell, and the same ones in the machine's own, which is the measure."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman.kubelet.programs import Place, SimulatedCommand
from dragoman.kubelet.shell.files import FileMount, Folder
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run

FILES = {"etc/app/mode": b"fast\n", "etc/app/run.sh": b"#!/bin/sh\necho run with $1\n", "data/rows": b"b 2\na 1\nc 3\n"}


class Ran:
    """What a command said, when, and how it ended."""

    def __init__(self) -> None:
        self.out = b""
        self.errors = b""
        self.code: int | None = None
        self.took = 0.0


async def ran(clock: Clock, *command: str, text: bytes | None = None, wait_s: float = 100.0) -> Ran:
    found, began = Ran(), clock.now()
    config = Folder(FILES, mode=0o755)
    place = Place(
        env={"NAME": "train", "EMPTY": ""},
        hostname="pod-0",
        ip="10.0.0.7",
        mounts=(FileMount("/mnt", config),),
        now=began,
    )

    def output(number: int, data: bytes) -> None:
        if number == 1:
            found.out += data
        else:
            found.errors += data

    def ended(code: int) -> None:
        found.code, found.took = code, clock.now() - began

    running = SimulatedCommand(
        clock, place, command, output, ended, started_at=began, is_main=True, has_input=text is not None
    )
    if text is not None:
        running.feed(text)
        running.end_input()
    deadline = clock.now() + wait_s
    while found.code is None and clock.now() < deadline:
        await clock.sleep(0.5)
    running.close()
    return found


def simulated(script: str) -> tuple[str, int | None]:
    """What a script writes in the simulated shell, and its exit code."""
    found: list[Ran] = []

    async def main(clock: Clock) -> None:
        found.append(await ran(clock, "sh", "-c", script))

    run(main)
    return found[0].out.decode(), found[0].code


def real(script: str, folder: Path) -> tuple[str, int | None]:
    """The same of the machine's own shell, in an empty folder."""
    shell = shutil.which("sh")
    if shell is None:
        pytest.skip("no sh on this machine")
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "NAME": "train", "EMPTY": ""}
    done = subprocess.run(
        [shell, "-c", script],
        cwd=folder,
        env=env,
        capture_output=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.stdout.decode(), done.returncode
