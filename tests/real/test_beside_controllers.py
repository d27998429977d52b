"""Beside kube-controller-manager: nothing is done twice, and nothing of a user is deleted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.objects import device_class, pod_with_device, slice_of

pytestmark = pytest.mark.slow


def workloads() -> list[dict[str, Any]]:
    """A DaemonSet, a StatefulSet and a Deployment of the same pods."""
    labels = {"app": "web"}
    containers = [{"name": "main", "image": "localhost/busybox:1", "command": ["sleep", "3600"]}]
    made = []
    for kind, more in {"DaemonSet": {}, "StatefulSet": {"replicas": 2}, "Deployment": {"replicas": 2}}.items():
        chosen = {**labels, "kind": kind}
        template = {"metadata": {"labels": chosen}, "spec": {"containers": containers}}
        spec = {"selector": {"matchLabels": chosen}, "template": template, **more}
        meta = {"name": kind.lower(), "namespace": "default"}
        made.append({"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec})
    return made


def state(cluster: Cluster) -> set[tuple[str, str]]:
    """Pods and ReplicaSets by uid."""
    return {(kind, one["metadata"]["uid"]) for kind in ("Pod", "ReplicaSet") for one in cluster.all(kind)}


@pytest.fixture
def running(start: StartCluster) -> Cluster:
    """Workloads that kube-controller-manager has brought to rest."""
    cluster = start(scheduler="kube", controllers="kube")
    cluster.node("worker")
    cluster.apply(*workloads())
    # The StatefulSet's second pod comes once the first is ready, which it never is here.
    cluster.until(lambda: len(cluster.all("Pod")) == 4, "the pods")
    return cluster


@pytest.mark.parametrize("flags", [(), ("--controllers", "claims"), ("--controllers", "daemonset,statefulset")])
def test_what_it_does_is_refused_and_nothing_changes(running: Cluster, flags: tuple[str, ...]) -> None:
    before = state(running)
    ours = running.dragoman("controllers", *flags).start()
    assert ours.status == 2
    assert "kube-controller-manager is running (holds the Lease kube-system/kube-controller-manager)" in ours.log()
    time.sleep(1)
    assert state(running) == before


def test_what_it_was_started_without_is_taken_over(start: StartCluster) -> None:
    without = ("--controllers=*,-resourceclaim-controller",)
    cluster = start(scheduler="kube", controllers="kube", flags={"controllers": without})
    cluster.node("worker")
    cluster.apply(device_class(), slice_of("worker", devices=1), *pod_with_device("train"), *workloads())
    cluster.dragoman("controllers", "--controllers", "claims", "--take-over").start()
    cluster.until(lambda: cluster.get("Pod", "train")["spec"].get("nodeName"), "train to be bound")
    assert len(cluster.held()) == 1


def test_it_stops_when_kube_controller_manager_comes(start: StartCluster) -> None:
    cluster = start(scheduler="kube")
    cluster.node("worker")
    ours = cluster.dragoman("controllers").start()
    cluster.until(lambda: "running" in ours.log(), "our controllers to run")
    cluster.apply(*workloads())
    cluster.until(lambda: len(cluster.all("Pod")) == 4, "the pods")
    before = state(cluster)
    cluster.start_controllers()
    cluster.until(lambda: "stopped: kube-controller-manager is running" in ours.log(), "our controllers to stop", 90)
    assert state(cluster) == before
