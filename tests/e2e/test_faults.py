"""Faults and the clock through the command line and kubectl, against a real `dragoman up`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cluster, kubectls

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not kubectls(), reason="no kubectl: pip install -r requirements-dev.txt"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("faults"), "--node", "n1=dgx-h100", "--node", "n2=example")
    made.start()
    yield made
    made.stop()


def dragoman(cluster: Cluster, *words: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "dragoman.cli", *words, "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def devices(cluster: Cluster, driver: str) -> list[dict[str, Any]]:
    listed = json.loads(cluster.kubectl("get", "resourceslices", "-o", "json").stdout)
    return [d for piece in listed["items"] if piece["spec"]["driver"] == driver for d in piece["spec"]["devices"]]


def test_a_link_down_and_up(cluster: Cluster) -> None:
    said = dragoman(cluster, "fault", "nic-down", "--node", "n1", "--nic", "mlx5_3")
    assert "the link of mlx5_3 on node n1 is down" in said
    assert "help: dragoman fault recover nic-down-n1-mlx5-3" in said
    cluster.until(lambda: [d for d in devices(cluster, "dra.net") if d.get("taints")], "a taint")
    assert "nic-down-n1-mlx5-3   active   the link of mlx5_3" in dragoman(cluster, "fault", "list")
    assert dragoman(cluster, "fault", "recover", "--all") == "nic-down-n1-mlx5-3 recovered\n"
    cluster.until(lambda: not [d for d in devices(cluster, "dra.net") if d.get("taints")], "no taint")
    assert "no faults" in dragoman(cluster, "fault", "list")


def test_the_printed_object_is_what_kubectl_applies(cluster: Cluster) -> None:
    text = dragoman(cluster, "fault", "driver-stopped", "--node", "n2", "--name", "halt", "--print")
    cluster.kubectl("apply", "-f", "-", stdin=text)
    state = ["get", "configmap", "halt", "-o", r"jsonpath={.metadata.annotations.dragoman\.dev/message}"]
    cluster.until(lambda: cluster.kubectl(*state).stdout == "stopped on n2: gpu.example.com", "the state")
    cluster.kubectl("delete", "configmap", "halt")


def test_a_reboot(cluster: Cluster) -> None:
    boot = ["get", "node", "n2", "-o", "jsonpath={.status.nodeInfo.bootID}"]
    before = cluster.kubectl(*boot).stdout
    assert "n2 rebooted" in dragoman(cluster, "fault", "node-rebooted", "--node", "n2", "--downtime", "0s")
    cluster.until(lambda: cluster.kubectl(*boot).stdout not in ("", before), "another boot id")
    assert "n2 rebooted" in dragoman(cluster, "fault", "node-rebooted", "--node", "n2", "--downtime", "0s")


def test_the_clock(cluster: Cluster) -> None:
    before = dragoman(cluster, "clock")
    assert before.startswith("it is 2")
    after = dragoman(cluster, "clock", "advance", "2h")
    assert after[6:16] > before[6:16] or after[17:19] != before[17:19], (before, after)
    assert dragoman(cluster, "clock", "speed", "3").rstrip().endswith("speed 3")
    dragoman(cluster, "clock", "speed", "1")
    assert not json.loads(cluster.kubectl("get", "configmaps", "-l", "dragoman.dev/simulate", "-o", "json").stdout)[
        "items"
    ]


BAD: dict[str, tuple[list[str], str]] = {
    "an XID that is none": (
        ["fault", "xid", "--node", "n1", "--gpu", "0", "--xid", "x"],
        "error: --xid: must be a whole",
    ),
    "a node that is not there": (["fault", "gpu-lost", "--node", "n7", "--gpu", "0"], "no simulated node 'n7' here"),
    "no GPU there": (["fault", "gpu-lost", "--node", "n2", "--gpu", "0"], "node n2 has no devices of gpu.nvidia.com"),
    "a fault that is not there": (["fault", "recover", "x"], "error: no fault x in namespace default; there are: none"),
    "neither name nor all": (["fault", "recover"], "error: fault recover: give names, or --all"),
    "no duration": (["clock", "advance", "soon"], "error: clock advance: must be a duration"),
    "nothing to advance by": (["clock", "advance"], "error: clock advance: needs a duration, as 5m"),
}


@pytest.mark.parametrize(("words", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_one_line(cluster: Cluster, words: list[str], said: str) -> None:
    assert said in dragoman(cluster, *words, status=2)


def test_without_a_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dragoman.cli", "fault", "list", "--kubeconfig", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no kubeconfig at")
