"""Does the light form run, with each part once ours and once Kubernetes' own?"""

from __future__ import annotations

import pytest

from tests.real.conftest import StartCluster
from tests.real.objects import device_class, pod_with_device, slice_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheduler", ["kube", "dragoman"])
@pytest.mark.parametrize("controllers", ["kube", "dragoman"])
def test_a_pod_gets_its_device_from_every_mix(start: StartCluster, scheduler: str, controllers: str) -> None:
    flags = {"controllers": ("--controllers", "claims,taints")} if controllers == "dragoman" else {}
    cluster = start(scheduler=scheduler, controllers=controllers, flags=flags)
    cluster.node("worker")
    cluster.apply(device_class(), slice_of("worker", devices=2), *pod_with_device("train"))
    cluster.until(lambda: cluster.get("Pod", "train")["spec"].get("nodeName") == "worker", "train to be bound")
    holders = cluster.held()
    assert list(holders) == [("gpu.example.com", "worker", "gpu-0")]
