"""ReplicationControllers."""

from __future__ import annotations

from typing import Any

from dragoman.reconcile.workloads import replicationcontroller
from tests.reconcile.serving import CONTROLLER, pod, settle


def test_replication_controllers_keep_their_number_by_plain_labels(cluster: Any) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    cluster.add("ReplicationController", "rc", spec={"replicas": 2, "selector": {"app": "web"}, "template": template})
    pod(cluster, "orphan", "10.0.0.1")
    settle(cluster, replicationcontroller.sync, CONTROLLER)
    assert len(cluster.all("Pod")) == 2
    owners = {p["metadata"]["ownerReferences"][0]["kind"] for p in cluster.all("Pod")}
    assert owners == {"ReplicationController"}
    assert cluster.get("ReplicationController", "rc")["status"]["replicas"] == 2
    cluster.edit("ReplicationController", "rc", {"spec": {"replicas": 0}})
    settle(cluster, replicationcontroller.sync, CONTROLLER)
    assert [p for p in cluster.all("Pod") if not p["metadata"].get("deletionTimestamp")] == []
