"""Our device plugin beside a real kubelet and containerd, and a real plugin's protocol end to end. Nothing real is
needed of NVIDIA: the GPUs are simulated."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.testing.wait import until_true
from tests.real.conftest import StartCluster
from tests.real.machine import NODE, Machine
from tests.real.objects import pod
from tests.real.process import Process

pytestmark = pytest.mark.slow


def plugin(cluster: Machine, *flags: str) -> Process:
    """The device plugin on the node, registered with the kubelet."""
    process = cluster.dragoman(
        "device-plugin", "--simulate", "dgx-h100", *flags, "--node-name", NODE, name="device-plugin"
    ).start()
    until_true(lambda: "registered" in process.log(), "the device plugin to register", 60, log=process.log)
    return process


def counted(name: str, count: int) -> Any:
    body = pod(name)
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(count)}}
    return body


def amounts(cluster: Machine) -> tuple[str | None, str | None]:
    status = cluster.get("Node", NODE)["status"]
    return status["capacity"].get("nvidia.com/gpu"), status["allocatable"].get("nvidia.com/gpu")


def test_a_real_kubelet_gives_the_plugins_gpus_to_containers(start: StartCluster) -> None:
    cluster = start(scheduler="kube", controllers="kube", kubelet="kube")
    process = plugin(cluster, "--device-list-strategy", "envvar,cdi-cri")
    cluster.until(lambda: amounts(cluster) == ("8", "8"), "the node to have GPUs", 60)
    cluster.apply(counted("train", 2), counted("more", 7))
    cluster.until(lambda: cluster.get("Pod", "train")["status"].get("phase") == "Running", "train to run", 90)
    environment = cluster.kubectl("exec", "train", "--", "env").stdout.splitlines()
    # The spec's `void` keeps an NVIDIA runtime from giving the GPUs a second time.
    assert "NVIDIA_VISIBLE_DEVICES=void" in environment
    listed = cluster.kubectl("exec", "train", "--", "/usr/bin/nvidia-smi", "-L").stdout.splitlines()
    assert len(listed) == 2
    nodes = cluster.kubectl("exec", "train", "--", "sh", "-c", "ls /dev | grep 'nvidia[0-9]'").stdout.split()
    assert len(nodes) == 2
    message = cluster.get("Pod", "more")["status"]["conditions"][0]["message"]
    assert "Insufficient nvidia.com/gpu" in message
    # A kubelet that starts again removes the plugin's socket: the plugin registers again, and train keeps its GPUs.
    cluster.processes["kubelet"].restart()
    until_true(lambda: process.log().count("registered") >= 2, "the plugin to register again", 60, log=process.log)
    cluster.until(lambda: amounts(cluster) == ("8", "8"), "the node to have GPUs again", 60)
    assert cluster.get("Pod", "train")["status"]["phase"] == "Running"


def test_a_real_kubelet_and_the_variable_alone(start: StartCluster) -> None:
    cluster = start(scheduler="kube", controllers="kube", kubelet="kube")
    plugin(cluster)
    cluster.until(lambda: amounts(cluster) == ("8", "8"), "the node to have GPUs", 60)
    cluster.apply(counted("one", 1))
    cluster.until(lambda: cluster.get("Pod", "one")["status"].get("phase") == "Running", "one to run", 90)
    environment = cluster.kubectl("exec", "one", "--", "env").stdout
    assert "NVIDIA_VISIBLE_DEVICES=GPU-" in environment
