"""StatefulSets: numbered pods, in order."""

from __future__ import annotations

from typing import Any

from dragoman.reconcile.workloads import statefulset
from tests.reconcile.workloads.rolling import SELECTOR, images, run, template


def a_statefulset(cluster: Any, replicas: int = 3, **spec: Any) -> None:
    base = {"replicas": replicas, "selector": SELECTOR, "template": template(), "serviceName": "svc"}
    cluster.add("StatefulSet", "db", spec={**base, **spec})


def sync_sts(world: Any) -> Any:
    return statefulset.sync(world, ("default", "db"))


def names(cluster: Any) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.all("Pod")]


def test_numbered_pods_come_up_in_order_and_go_in_reverse(cluster: Any) -> None:
    a_statefulset(cluster)
    seen: list[list[str]] = []

    def check() -> None:
        if not seen or seen[-1] != names(cluster):
            seen.append(names(cluster))
        assert sum(1 for pod in cluster.all("Pod") if not pod.get("status")) <= 1

    run(cluster, sync_sts, check=check)
    pod = cluster.get("Pod", "db-0")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-0", "svc")
    assert pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-0"
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
    status = cluster.get("StatefulSet", "db")["status"]
    fields = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
    assert [status[field] for field in fields] == [3] * 5
    assert status["currentRevision"] == status["updateRevision"]
    cluster.edit("StatefulSet", "db", {"spec": {"replicas": 1}})
    run(cluster, sync_sts, check=check)
    assert seen == [
        [], ["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"], ["db-0", "db-1"], ["db-0"],
    ][1:]  # fmt: skip
    cluster.edit("StatefulSet", "db", {"spec": {"replicas": 0}})
    run(cluster, sync_sts)
    assert cluster.get("StatefulSet", "db")["status"]["replicas"] == 0


def test_in_parallel_nobody_waits(cluster: Any) -> None:
    a_statefulset(cluster, podManagementPolicy="Parallel", ordinals={"start": 5})
    cluster.carry_out(sync_sts(cluster.world).effects)
    assert names(cluster) == ["db-5", "db-6", "db-7"]


def test_an_update_goes_from_the_last_to_the_partition(cluster: Any) -> None:
    strategy: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    a_statefulset(cluster, updateStrategy=strategy)
    run(cluster, sync_sts)
    cluster.edit("StatefulSet", "db", {"spec": {"template": template("two")}})

    def check() -> None:
        assert sum(1 for p in cluster.all("Pod") if p.get("status") and not p["metadata"].get("deletionTimestamp")) >= 2

    run(cluster, sync_sts, check=check)
    assert images(cluster) == ["one", "two", "two"]
    status = cluster.get("StatefulSet", "db")["status"]
    assert (status["updatedReplicas"], status["currentReplicas"]) == (2, 1)
    assert status["currentRevision"] != status["updateRevision"]
    cluster.edit("StatefulSet", "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    run(cluster, sync_sts)
    assert images(cluster) == ["two"] * 3
    status = cluster.get("StatefulSet", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"]


def test_a_finished_pod_comes_back_with_its_name(cluster: Any) -> None:
    a_statefulset(cluster, 1)
    run(cluster, sync_sts)
    uid = cluster.get("Pod", "db-0")["metadata"]["uid"]
    cluster.edit("Pod", "db-0", {"status": {"phase": "Failed"}})
    run(cluster, sync_sts)
    assert cluster.get("Pod", "db-0")["metadata"]["uid"] != uid


def test_volume_claims_are_made_once(cluster: Any) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    a_statefulset(cluster, 2, volumeClaimTemplates=[claim])
    run(cluster, sync_sts)
    assert cluster.get("PersistentVolumeClaim", "data-db-0")["metadata"]["labels"] == {"app": "a"}
    volumes = cluster.get("Pod", "db-1")["spec"]["volumes"]
    assert volumes == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}]
    cluster.remove("Pod", "db-1")
    run(cluster, sync_sts)
    assert len(cluster.all("PersistentVolumeClaim")) == 2
