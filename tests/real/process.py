"""How do tests run daemons? Each with a log of its own; none outlives the test that started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dragoman.testing.wait import until_true

WAIT_S = 60.0
END_S = 20.0


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Process:
    """A daemon: start, stop, kill, pause, and start again with the same command.

    enter: a command that runs the rest in other namespaces, such as `nsenter ... --`; the daemon is then its child.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_file = folder / f"{name}.log"
        self.environment = {**os.environ, **(environment or {})}
        self.enter = list(enter)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Start it; what it prints is added to its log."""
        assert not self.runs, f"{self.name} runs already"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                # A killed test must not leave daemons behind.
                ["setpriv", "--pdeathsig", "KILL", *self.enter, *self.command],
                cwd=self._folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    @property
    def runs(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The daemon's pid as this machine counts."""
        assert self._process is not None, f"{self.name} was not started"
        pid = self._process.pid
        if not self.enter:
            return pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return int(until_true(children.read_text, f"{self.name} to start", 10, log=self.log).split()[0])

    @property
    def status(self) -> int:
        """Exit status; waits for it."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.wait(WAIT_S)

    def log(self) -> str:
        """All that it has printed."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def signal(self, number: int) -> None:
        """Send a signal to the daemon."""
        os.kill(self.pid, number)
        if number == signal.SIGCONT and self.enter:
            assert self._process is not None
            self._process.send_signal(number)  # nsenter stops and goes on with its child

    def stop(self, seconds: float = END_S) -> int:
        """SIGTERM, and SIGKILL for one that does not end in time; its exit status."""
        return self._end(signal.SIGTERM, seconds)

    def kill(self) -> int:
        """kill -9."""
        return self._end(signal.SIGKILL, seconds=END_S)

    def _end(self, number: int, seconds: float) -> int:
        if self._process is None:
            return 0
        if self.runs:
            self.signal(number)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            return self._process.wait(END_S)

    def restart(self) -> Process:
        """End it and start it again."""
        self.stop()
        return self.start()
