"""DaemonSets and StatefulSets."""

from __future__ import annotations

from typing import Any

from dragoman.reconcile.workloads import daemonset, statefulset
from dragoman.snapshot.change import Put

SELECTOR = {"matchLabels": {"app": "a"}}


def template(image: str = "one", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def serve(cluster: Any, name: str) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod = cluster.typed("Pod", name)
    node = daemonset.node_of(pod) or "n"
    cluster.edit("Pod", name, {"spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": [ready]}})


def kubelet(cluster: Any, *, healthy: Any = lambda pod: True) -> None:
    for pod in cluster.all("Pod"):
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            cluster.remove("Pod", name)
        elif not pod.get("status") and healthy(pod):
            serve(cluster, name)


def run(cluster: Any, sync: Any, *, check: Any = lambda: None, healthy: Any = lambda pod: True) -> None:
    for _ in range(100):
        before = cluster.count
        cluster.carry_out(sync(cluster.world).effects)
        check()
        kubelet(cluster, healthy=healthy)
        check()
        if cluster.count == before:
            return
    raise AssertionError("never settled")


def images(cluster: Any) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in cluster.all("Pod")]


# ---- DaemonSet


def a_daemonset(cluster: Any, pod: Any = None, nodes: int = 3, **spec: Any) -> None:
    for number in range(nodes):
        cluster.add("Node", f"n{number}", metadata={"labels": {"zone": f"z{number % 2}"}}, spec={})
    cluster.add("Namespace", "default")
    cluster.add("DaemonSet", "ds", spec={"selector": SELECTOR, "template": pod or template(), **spec})


def sync_ds(world: Any) -> Any:
    return daemonset.sync(world, ("default", "ds"))


def on_nodes(cluster: Any) -> list[str]:
    return sorted(daemonset.node_of(cluster.typed("Pod", pod["metadata"]["name"])) for pod in cluster.all("Pod"))


def test_every_node_gets_one_pod_tied_to_it(cluster: Any) -> None:
    a_daemonset(cluster)
    run(cluster, sync_ds)
    assert on_nodes(cluster) == ["n0", "n1", "n2"]
    pod = cluster.all("Pod")[0]
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [list(term) for term in terms["nodeSelectorTerms"]] == [["matchFields"]]
    assert {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"][
        "tolerations"
    ]
    status = cluster.get("DaemonSet", "ds")["status"]
    assert [
        status.get(field)
        for field in ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable")
    ] == [3, 3, 3, 3]
    assert status["updatedNumberScheduled"] == 3
    assert status["numberMisscheduled"] == 0
    # a node joins
    before = cluster.world
    cluster.add("Node", "n3", spec={})
    assert daemonset.keys(Put("Node", cluster.typed("Node", "n3")), before, cluster.world) == [("default", "ds")]
    run(cluster, sync_ds)
    assert on_nodes(cluster) == ["n0", "n1", "n2", "n3"]
    # heartbeats concern nobody
    before = cluster.world
    cluster.edit("Node", "n3", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert daemonset.keys(Put("Node", cluster.typed("Node", "n3")), before, cluster.world) == []


def test_selectors_and_taints_choose_nodes(cluster: Any) -> None:
    a_daemonset(cluster, template(nodeSelector={"zone": "z0"}))
    run(cluster, sync_ds)
    assert on_nodes(cluster) == ["n0", "n2"]
    cluster.edit("Node", "n0", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    run(cluster, sync_ds)
    assert on_nodes(cluster) == ["n0", "n2"]  # may stay, though it would not be placed there
    assert cluster.get("DaemonSet", "ds")["status"]["numberMisscheduled"] == 1
    cluster.edit("Node", "n0", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
    run(cluster, sync_ds)
    assert on_nodes(cluster) == ["n2"]
    cluster.edit("Node", "n2", {"metadata": {"labels": {"zone": "z1"}}})
    run(cluster, sync_ds)
    assert on_nodes(cluster) == []


def test_a_failed_daemon_is_replaced(cluster: Any) -> None:
    a_daemonset(cluster, nodes=1)
    run(cluster, sync_ds)
    name = cluster.all("Pod")[0]["metadata"]["name"]
    cluster.edit("Pod", name, {"status": {"phase": "Failed"}})
    run(cluster, sync_ds)
    assert len(cluster.all("Pod")) == 1
    assert not cluster.has("Pod", name)


def test_daemons_roll_one_after_the_other(cluster: Any) -> None:
    a_daemonset(cluster)
    run(cluster, sync_ds)
    cluster.edit("DaemonSet", "ds", {"spec": {"template": template("two")}})

    def check() -> None:
        serving = [p for p in cluster.all("Pod") if p.get("status") and not p["metadata"].get("deletionTimestamp")]
        assert len(serving) >= 2

    run(cluster, sync_ds, check=check)
    assert images(cluster) == ["two"] * 3


def test_a_daemon_that_does_not_start_stops_the_rollout(cluster: Any) -> None:
    a_daemonset(cluster)
    run(cluster, sync_ds)
    cluster.edit("DaemonSet", "ds", {"spec": {"template": template("bad")}})
    run(cluster, sync_ds, healthy=lambda pod: pod["spec"]["containers"][0]["image"] != "bad")
    assert sorted(images(cluster)) == ["bad", "one", "one"]
    assert cluster.get("DaemonSet", "ds")["status"]["numberUnavailable"] == 1
    cluster.edit("DaemonSet", "ds", {"spec": {"template": template("three")}})
    run(cluster, sync_ds)
    assert images(cluster) == ["three"] * 3


def test_with_surge_the_new_daemon_serves_before_the_old_one_goes(cluster: Any) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    a_daemonset(cluster, updateStrategy=strategy)
    run(cluster, sync_ds)
    cluster.edit("DaemonSet", "ds", {"spec": {"template": template("two")}})

    def check() -> None:
        serving = [p for p in cluster.all("Pod") if p.get("status") and not p["metadata"].get("deletionTimestamp")]
        assert len(serving) >= 3
        assert len(cluster.all("Pod")) <= 5

    run(cluster, sync_ds, check=check)
    assert images(cluster) == ["two"] * 3


def test_on_delete_waits_for_people(cluster: Any) -> None:
    a_daemonset(cluster, updateStrategy={"type": "OnDelete"})
    run(cluster, sync_ds)
    cluster.edit("DaemonSet", "ds", {"spec": {"template": template("two")}})
    run(cluster, sync_ds)
    assert images(cluster) == ["one"] * 3
    cluster.remove("Pod", cluster.all("Pod")[0]["metadata"]["name"])
    run(cluster, sync_ds)
    assert sorted(images(cluster)) == ["one", "one", "two"]


# ---- StatefulSet


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
