"""A PodGroup on a real API server: placed whole, and its condition says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.objects import device_class, pod, slice_of, template

pytestmark = pytest.mark.slow


def gang(name: str, *, size: int) -> list[dict[str, Any]]:
    """A gang of pods with a device each."""
    meta = {"name": name, "namespace": "default"}
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": spec}
    claims = {"gpu": {"resourceClaimTemplateName": "gpu"}}
    member = {"podGroupName": name}
    return [
        group,
        *(pod(f"{name}-{n}", claims=claims, scheduler="dragoman", schedulingGroup=member) for n in range(size)),
    ]


def condition(cluster: Cluster, name: str) -> tuple[str, str, str]:
    conditions = cluster.get("PodGroup", name).get("status", {}).get("conditions", [])
    found = next((one for one in conditions if one["type"] == "PodGroupInitiallyScheduled"), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def test_a_gang_is_placed_whole_and_its_condition_says_so(start: StartCluster) -> None:
    gates = "GenericWorkload=true"
    flags = {"apiserver": ("--runtime-config=scheduling.k8s.io/v1beta1=true",)}
    cluster = start(controllers="kube", gates=gates, flags=flags)
    cluster.node("worker")
    cluster.apply(device_class(), slice_of("worker", devices=3), template("gpu"))
    cluster.dragoman("scheduler", "--feature-gates", gates).start()
    cluster.apply(*gang("large", size=4))
    cluster.until(lambda: condition(cluster, "large")[:2] == ("False", "Unschedulable"), "the gang to be refused")
    assert (
        "cannot allocate all claims" in condition(cluster, "large")[2] or "pods fit" in condition(cluster, "large")[2]
    )
    assert cluster.held() == {}
    cluster.apply(*gang("small", size=3))
    cluster.until(lambda: condition(cluster, "small")[:2] == ("True", "Scheduled"), "the gang to be placed")
    assert all(cluster.get("Pod", f"small-{n}")["spec"].get("nodeName") for n in range(3))
