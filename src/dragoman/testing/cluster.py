"""A whole cluster for a test: `dragoman up` as a process of its own while the body runs.

    @pytest.fixture(scope="session")
    def kubeconfig():
        with running_cluster("--node", "gpu=dgx-h100*2") as cluster:
            yield cluster.kubeconfig

Nothing of it outlives the body: the process is ended, its folder is removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dragoman.errors import Invalid

POLL_S = 0.05
END_S = 15.0


class RunningCluster(msgspec.Struct, frozen=True):
    """Where it is: a kubeconfig for kubectl and clients, the log of `up`, its process."""

    kubeconfig: Path
    log: Path
    pid: int

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with KUBECONFIG for the cluster."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}


@contextmanager
def running_cluster(*arguments: str, start_s: float = 60.0) -> Iterator[RunningCluster]:
    """A cluster with those arguments of `dragoman up`. Raises Invalid with what `up` said where it does not start."""
    with tempfile.TemporaryDirectory(prefix="dra-") as name:
        folder = Path(name)
        kubeconfig, log = folder / "kubeconfig", folder / "log"
        command = [sys.executable, "-m", "dragoman.cli", "up", "--kubeconfig", str(kubeconfig), *arguments]
        environment = {**os.environ, "DRAGOMAN_HOME": str(folder / "home")}
        with log.open("wb") as file:
            process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, env=environment)  # noqa: S603
        try:
            deadline = time.monotonic() + start_s
            while not kubeconfig.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Invalid("dragoman up", f"did not start: {log.read_text().strip() or 'no output'}")
                time.sleep(POLL_S)
            yield RunningCluster(kubeconfig, log, process.pid)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
