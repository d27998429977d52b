"""How does the daemon's container run on a simulated node? `compute-domain-daemon` and `nvidia-imex-ctl` as programs.

The first starts a `DomainDaemon` beside the simulated process, with the files of its container; a signal and the end
of the process reach it. /imexd is the folder that the kubelet plugin has mounted, on this host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path

from dragoman.cluster.client import Client
from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN
from dragoman.drivers.nvidia.compute_domain import imex
from dragoman.drivers.nvidia.compute_domain.daemon import FOLDER, DomainDaemon
from dragoman.drivers.nvidia.compute_domain.names import DAEMON
from dragoman.kubelet.containers import Tool
from dragoman.kubelet.shell.files import FileFault
from dragoman.kubelet.shell.language import ProgramCall
from dragoman.kubelet.shell.process import Data, Pipe, ThreadWait, ThreadWork
from dragoman.node.driver import PreparedDevice
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

TERM = 15
USAGE = "usage: compute-domain-daemon [-v LEVEL] run|check"


class NodePrograms:
    """The programs on one node. client: with the rights of the daemon's account. domains: folder of the kubelet
    plugin's domains. host: the file of the simulated host's state."""

    def __init__(self, client: Client, clock: Clock, entropy: Entropy, domains: Path, host: Path) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.domains = domains
        self.host = host

    def tools(self) -> dict[str, Tool]:
        """By name; only containers that were given the daemon device have them."""
        return {
            "compute-domain-daemon": lambda devices: self._daemon if _has_daemon(devices) else None,
            "nvidia-imex-ctl": lambda devices: self._control if _has_daemon(devices) else None,
        }

    def _folder(self, call: ProgramCall) -> Path:
        return self.domains / call.env.get("COMPUTE_DOMAIN_UUID", "none")

    def _control(self, call: ProgramCall) -> int:
        state = imex.query(self._folder(call))
        if "-N" in call.args:
            call.say(f"nodes: {len(state.peers)}\n")
            for name, address in sorted(state.peers.items()):
                call.say(f"{name}\t{address}\n")
            return 0
        call.say(f"{state.state}\n")
        return 0 if state.state != imex.UNAVAILABLE else 1

    def _daemon(self, call: ProgramCall) -> int | ThreadWork:
        words = [word for word in call.args[1:] if not word.startswith("-") and not word.isdecimal()]
        if words == ["check"]:
            return self._check(call)
        if words == ["run"]:
            return self._run(call)
        return call.fail(USAGE, 2)

    def _check(self, call: ProgramCall) -> int:
        if not call.env.get("CLIQUE_ID"):
            return 0
        state = imex.query(self._folder(call)).state
        return 0 if state == imex.READY else call.fail(f"nvidia-imex is not ready: {state}")

    def _run(self, call: ProgramCall) -> ThreadWork:
        process = call.around.process
        files = ContainerFiles(call, self._folder(call))

        def say(text: str) -> None:
            call.errors.write(f"{text}\n".encode())

        def start(config: str) -> imex.SimulatedImex:
            return imex.SimulatedImex(self.clock, files.read, self._folder(call), self.host, say, config)

        daemon = DomainDaemon(self.client, self.clock, self.entropy, call.env, files, start, say)
        stop, over = asyncio.Event(), Pipe()

        def ended(_: object) -> None:
            over.ended = True
            process.step()

        task = asyncio.ensure_future(daemon.run(stop))
        task.add_done_callback(ended)
        process.traps[TERM] = lambda: _stopping(stop)
        return _until_over(task, over, say)


def _stopping(stop: asyncio.Event) -> Generator[ThreadWait, None, int | None]:
    stop.set()
    return None
    yield  # what makes it a generator


def _until_over(task: asyncio.Task[int], over: Pipe, say: Callable[[str], None]) -> ThreadWork:
    try:
        while not task.done():
            yield Data(over)
    finally:
        # A process that is killed ends at once, and says nothing to anybody.
        task.cancel()
    if task.cancelled():
        return 137
    error = task.exception()
    if error is not None:
        say(f"{type(error).__name__}: {error}")
        return 1
    return task.result()


def _has_daemon(devices: tuple[tuple[str, PreparedDevice], ...]) -> bool:
    return any(driver == COMPUTE_DOMAIN and device.device == DAEMON for driver, device in devices)


class ContainerFiles:
    """The files of a daemon's container: /imexd is the mounted folder of the host, the rest its own."""

    def __init__(self, call: ProgramCall, folder: Path) -> None:
        self._call = call
        self._folder = folder

    def _mounted(self, path: str) -> Path | None:
        return self._folder / path[len(FOLDER) + 1 :] if path.startswith(f"{FOLDER}/") else None

    def read(self, path: str) -> str:
        """The text of a file, "" where there is none."""
        host = self._mounted(path)
        try:
            return host.read_text() if host else self._call.around.files.read(path).decode()
        except (FileNotFoundError, FileFault):
            return ""

    def write(self, path: str, text: str) -> None:
        """Make or replace a file."""
        now = self._call.around.process.clock.now()
        if host := self._mounted(path):
            host.write_text(text)
        # Seen by those who look into the container, too.
        self._call.around.files.write(path, text.encode(), now)
