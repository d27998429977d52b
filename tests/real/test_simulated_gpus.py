"""Simulated GPUs under a real kubelet and containerd: containers see them, and nothing real is needed."""

from __future__ import annotations

import pytest

from tests.real.conftest import StartCluster
from tests.real.objects import pod, template

pytestmark = pytest.mark.slow


def test_a_container_sees_its_simulated_gpus(start: StartCluster) -> None:
    cluster = start(scheduler="dragoman", controllers="kube", kubelet="kube")
    cluster.driver("nvidia", "--simulate", "dgx-h100")
    claims = {"gpu": {"resourceClaimTemplateName": "two"}}
    cluster.apply(template("two", count=2, class_name="gpu.nvidia.com"), pod("train", claims=claims))
    cluster.until(lambda: cluster.get("Pod", "train")["status"].get("phase") == "Running", "train to run", 90)
    held = sorted(device for _, _, device in cluster.held())
    assert held == ["gpu-0", "gpu-1"]
    environment = cluster.kubectl("exec", "train", "--", "env").stdout
    assert "NVIDIA_VISIBLE_DEVICES=" in environment
    listed = cluster.kubectl("exec", "train", "--", "sh", "-c", "ls /dev | grep nvidia").stdout.split()
    assert {"nvidia0", "nvidia1"} <= set(listed)
    assert "nvidia2" not in listed
    cluster.kubectl("delete", "pod", "train", "--wait=true")
    cluster.until(lambda: not cluster.held(), "the GPUs to be free")
