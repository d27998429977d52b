"""DaemonSets: one pod on every node that takes it, and the next revision of it."""

from __future__ import annotations

from typing import Any

from dragoman.reconcile.workloads import daemonset
from dragoman.snapshot.change import Put
from tests.reconcile.workloads.rolling import SELECTOR, images, run, template


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
