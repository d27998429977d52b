"""Nodes that come and go while the cluster runs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster, kubectls

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not kubectls(), reason="no kubectl: pip install -r requirements-dev.txt"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="dra-") as short:  # sockets lie in it
        made = Cluster(tmp_path, "--node", "worker=example", "--data", short)
        made.start()
        yield made
        made.stop()


def node(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dragoman.cli", "node", *words, "--kubeconfig", str(cluster.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def names(cluster: Cluster, kind: str = "nodes") -> set[str]:
    return {item["metadata"]["name"] for item in cluster.get(kind)["items"]}


def sliced(cluster: Cluster) -> set[str]:
    return {item["spec"]["nodeName"] for item in cluster.get("resourceslices")["items"]}


def test_nodes_come_stay_over_a_restart_and_go(cluster: Cluster) -> None:
    done = node(cluster, "add", "gpu=p5.48xlarge*2")
    assert (done.returncode, done.stdout) == (0, "added: gpu-0\nadded: gpu-1\n"), done.stderr
    assert names(cluster) == {"worker", "gpu-0", "gpu-1"}
    cluster.until(lambda: sliced(cluster) == {"worker", "gpu-0", "gpu-1"}, "slices of the added nodes")
    assert "gpu.nvidia.com" in names(cluster, "deviceclasses")
    cluster.kill()
    cluster.start()
    cluster.until(lambda: sliced(cluster) == {"worker", "gpu-0", "gpu-1"}, "the added nodes to be there again")
    assert node(cluster, "remove", "gpu-0").returncode == 0
    cluster.until(lambda: names(cluster) == {"worker", "gpu-1"}, "node gpu-0 to be gone")
    cluster.until(lambda: sliced(cluster) == {"worker", "gpu-1"}, "its slices to be gone")


WRONG = {
    ("remove", "worker"): "was not added while the cluster ran; there are: none",
    ("add", "worker=example"): "node worker is there already",
    ("add", "x=no-such-machine"): "no-such-machine",
}


def test_what_cannot_be_is_said_and_leaves_nothing(cluster: Cluster) -> None:
    for words, text in WRONG.items():
        done = node(cluster, *words)
        assert done.returncode == 2
        assert text in done.stderr
    assert names(cluster) == {"worker"}
    found = cluster.get("configmaps", "-l", "dragoman.dev/simulate=node")
    assert found["items"] == []
