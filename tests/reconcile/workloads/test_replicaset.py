"""ReplicaSets: their number of pods, whom they adopt, and who goes first."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.core import Pod
from dragoman.effects import Create
from dragoman.reconcile.workloads import replicaset
from tests.reconcile.workloads.revisions import SELECTOR, a_deployment, pod, ready, sync_web, template


def replica_set(cluster: Any, replicas: int, name: str = "rs", **fields: Any) -> Any:
    spec = {"replicas": replicas, "selector": SELECTOR, "template": template(), **fields}
    return cluster.add("ReplicaSet", name, spec=spec)


def sync_rs(name: str = "rs") -> Any:
    return lambda world: replicaset.sync(world, ("default", name))


def test_pods_are_made_deleted_and_counted(cluster: Any) -> None:
    rs = replica_set(cluster, 3)
    cluster.settle(sync_rs())
    pods = cluster.all("Pod")
    assert len(pods) == 3
    assert pods[0]["metadata"]["generateName"] == "rs-"
    assert pods[0]["metadata"]["labels"] == {"app": "a"}
    assert pods[0]["metadata"]["ownerReferences"][0]["uid"] == rs["metadata"]["uid"]
    assert pods[0]["spec"] == template()["spec"]
    assert cluster.get("ReplicaSet", "rs")["status"]["replicas"] == 3
    ready(cluster, pods[0]["metadata"]["name"])
    cluster.settle(sync_rs())
    status = cluster.get("ReplicaSet", "rs")["status"]
    assert (status["readyReplicas"], status["availableReplicas"], status["fullyLabeledReplicas"]) == (1, 1, 3)
    cluster.edit("ReplicaSet", "rs", {"spec": {"replicas": 1}})
    cluster.settle(sync_rs())
    kept = [p for p in cluster.all("Pod") if not p["metadata"].get("deletionTimestamp")]
    assert [p["metadata"]["name"] for p in kept] == [pods[0]["metadata"]["name"]]
    cluster.edit("ReplicaSet", "rs", {"spec": {"replicas": 0}})
    cluster.settle(sync_rs())
    assert cluster.get("ReplicaSet", "rs")["status"]["replicas"] == 0
    assert "readyReplicas" not in cluster.get("ReplicaSet", "rs")["status"]


def test_a_finished_pod_is_replaced_and_a_deleted_set_makes_none(cluster: Any) -> None:
    replica_set(cluster, 1)
    cluster.settle(sync_rs())
    name = cluster.all("Pod")[0]["metadata"]["name"]
    cluster.edit("Pod", name, {"status": {"phase": "Failed"}})
    cluster.settle(sync_rs())
    assert len(cluster.all("Pod")) == 2
    cluster.edit("ReplicaSet", "rs", {"metadata": {"finalizers": ["foregroundDeletion"]}})
    cluster.delete("ReplicaSet", "rs")
    cluster.remove("Pod", name)
    cluster.settle(sync_rs())
    assert len(cluster.all("Pod")) == 1


def test_matching_orphans_are_adopted_and_others_released(cluster: Any) -> None:
    cluster.add("Pod", "orphan", metadata={"labels": {"app": "a"}}, spec={})
    cluster.add("Pod", "other", metadata={"labels": {"app": "b"}}, spec={})
    rs = replica_set(cluster, 2)
    cluster.settle(sync_rs())
    owners = cluster.get("Pod", "orphan")["metadata"]["ownerReferences"]
    assert (owners[0]["uid"], owners[0]["controller"]) == (rs["metadata"]["uid"], True)
    assert "ownerReferences" not in cluster.get("Pod", "other")["metadata"]
    cluster.edit("Pod", "orphan", {"metadata": {"labels": {"app": "c"}}})
    cluster.settle(sync_rs())
    assert "ownerReferences" not in cluster.get("Pod", "orphan")["metadata"]
    assert len([p for p in cluster.all("Pod") if p["metadata"]["labels"] == {"app": "a"}]) == 2


def test_a_pod_is_available_only_after_min_ready_seconds(cluster: Any) -> None:
    replica_set(cluster, 1, minReadySeconds=30)
    cluster.settle(sync_rs())
    ready(cluster, cluster.all("Pod")[0]["metadata"]["name"], "2027-01-15T08:00:00Z")  # is 1_800_000_000
    cluster.seconds += 10
    step = cluster.settle(sync_rs())
    assert step.again_s == 20
    assert "availableReplicas" not in cluster.get("ReplicaSet", "rs")["status"]
    cluster.seconds += 20
    cluster.settle(sync_rs())
    assert cluster.get("ReplicaSet", "rs")["status"]["availableReplicas"] == 1


def running(since: str | None, node: str = "n", restarts: int = 0) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"restartCount": restarts}]}
    if since:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    return {"spec": {"nodeName": node}, "status": status}


OLD, NEW = "2026-01-01T00:00:00Z", "2027-01-15T07:59:50Z"


COST = {"controller.kubernetes.io/pod-deletion-cost": "-5"}


ORDER: dict[str, tuple[Pod, Pod]] = {
    "without node": (pod("z", status={"phase": "Pending"}), pod("a", **running(None))),
    "pending": (pod("z", spec={"nodeName": "n"}, status={"phase": "Pending"}), pod("a", **running(None))),
    "not ready": (pod("z", **running(None)), pod("a", **running(OLD))),
    "cheaper": (pod("z", metadata={"annotations": COST}, **running(OLD)), pod("a", **running(OLD))),
    "ready for less long": (pod("z", **running(NEW)), pod("a", **running(OLD))),
    "restarted more often": (pod("z", **running(OLD, restarts=3)), pod("a", **running(OLD))),
    "younger": (
        pod("z", metadata={"creationTimestamp": NEW}, **running(OLD)),
        pod("a", metadata={"creationTimestamp": OLD}, **running(OLD)),
    ),
    "by name": (pod("a", **running(OLD)), pod("z", **running(OLD))),
}


@pytest.mark.parametrize("case", ORDER)
def test_deleted_first_is_the_pod(case: str) -> None:
    first, second = ORDER[case]
    assert replicaset.deletion_order([second, first], 1_800_000_000.0) == [first, second]


def test_the_fuller_node_loses_first() -> None:
    pods = [pod("a", **running(OLD, "lone")), pod("b", **running(OLD, "full")), pod("c", **running(OLD, "full"))]
    assert replicaset.deletion_order(pods, 1_800_000_000.0)[0].metadata.name == "b"


def test_changes_are_events_and_a_failure_is_a_condition(cluster: Any) -> None:
    replica_set(cluster, 1)
    effects = replicaset.sync(cluster.world, ("default", "rs")).effects
    create = next(e for e in effects if isinstance(e, Create))
    cluster.carry_out(replicaset.write_events(cluster.world, ("default", "rs"), create, None, "quota is used up"))
    event = cluster.events[-1]
    assert (event.reason, event.message) == ("FailedCreate", "Error creating: quota is used up")
    assert cluster.get("ReplicaSet", "rs")["status"]["conditions"][0]["reason"] == "FailedCreate"
    cluster.settle(sync_rs())
    assert not cluster.get("ReplicaSet", "rs")["status"].get("conditions")
    made = cluster.all("Pod")[0]
    cluster.carry_out(replicaset.write_events(cluster.world, ("default", "rs"), create, made, ""))
    assert cluster.events[-1].message == f"Created pod: {made['metadata']['name']}"


def test_a_selector_of_everything_is_refused(cluster: Any) -> None:
    a_deployment(cluster, selector={})
    cluster.carry_out(sync_web(cluster.world).effects)
    assert [e.reason for e in cluster.events] == ["SelectingAll"]
    assert cluster.all("ReplicaSet") == []
