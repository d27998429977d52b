"""The status of ResourceQuotas follows what is there, and ends drift."""

from __future__ import annotations

from typing import Any

from dragoman.reconcile import quota
from dragoman.snapshot.change import Gone, Put

KEY = ("default", "q")


def make(cluster: Any, hard: dict[str, str]) -> None:
    cluster.add("ResourceQuota", "q", spec={"hard": hard})


def pod(cluster: Any, name: str, phase: str = "Running", **requests: str) -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    cluster.add("Pod", name, spec=spec, status={"phase": phase})


def status(cluster: Any) -> Any:
    cluster.settle(lambda world: quota.sync(world, KEY))
    return cluster.get("ResourceQuota", "q")["status"]


def test_status_counts_what_is_there(cluster: Any) -> None:
    make(cluster, {"pods": "4", "count/pods": "4", "requests.memory": "4Gi", "secrets": "3", "services": "2"})
    pod(cluster, "a", memory="1Gi")
    pod(cluster, "b", "Succeeded", memory="1Gi")
    cluster.add("Secret", "s")
    cluster.add("Pod", "elsewhere", namespace="other", spec={"containers": [{"name": "c"}]})
    cluster.add("Service", "svc", spec={"type": "ClusterIP", "ports": [{"port": 80}]})
    assert status(cluster) == {
        "hard": {"pods": "4", "count/pods": "4", "requests.memory": "4Gi", "secrets": "3", "services": "2"},
        "used": {"pods": "1", "count/pods": "2", "requests.memory": "1Gi", "secrets": "1", "services": "1"},
    }


def test_drift_ends_and_resources_that_left_the_spec_leave_the_status(cluster: Any) -> None:
    make(cluster, {"pods": "4"})
    pod(cluster, "a")
    drift = {"hard": {"pods": "9", "secrets": "1"}, "used": {"pods": "7", "secrets": "5"}}
    cluster.edit("ResourceQuota", "q", {"status": drift})
    assert status(cluster) == {"hard": {"pods": "4"}, "used": {"pods": "1"}}


def test_only_what_changes_usage_is_looked_at(cluster: Any) -> None:
    make(cluster, {"pods": "4"})
    before = cluster.world
    pod(cluster, "a")
    after = cluster.world
    assert quota.keys(Put("Pod", cluster.typed("Pod", "a")), before, after) == [KEY]
    cluster.edit("Pod", "a", {"status": {"podIP": "10.0.0.1"}})
    assert quota.keys(Put("Pod", cluster.typed("Pod", "a")), after, cluster.world) == []
    running = cluster.world
    cluster.edit("Pod", "a", {"status": {"phase": "Failed"}})
    assert quota.keys(Put("Pod", cluster.typed("Pod", "a")), running, cluster.world) == [KEY]
    cluster.add("Pod", "b", namespace="other")
    assert quota.keys(Put("Pod", cluster.typed("Pod", "b", "other")), running, cluster.world) == []
    cluster.remove("Pod", "a")
    assert quota.keys(Gone("Pod", "default", "a"), running, cluster.world) == [KEY]
