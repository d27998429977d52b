"""ReplicaSets and Deployments: numbers of pods, rolling, recreating, pausing, scaling, history, progress."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api import codec
from dragoman.api.core import Pod, Workload
from dragoman.effects import Create, Delete
from dragoman.reconcile.workloads import deployment, replicaset, rollout
from dragoman.snapshot.change import Put

SELECTOR = {"matchLabels": {"app": "a"}}


def template(image: str = "one", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "a", **labels}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }


def replica_set(cluster: Any, replicas: int, name: str = "rs", **fields: Any) -> Any:
    spec = {"replicas": replicas, "selector": SELECTOR, "template": template(), **fields}
    return cluster.add("ReplicaSet", name, spec=spec)


def a_deployment(cluster: Any, replicas: int = 3, **spec: Any) -> Any:
    base = {"replicas": replicas, "selector": SELECTOR, "template": template(), "progressDeadlineSeconds": 600}
    return cluster.add("Deployment", "web", spec={**base, **spec})


def sync_rs(name: str = "rs") -> Any:
    return lambda world: replicaset.sync(world, ("default", name))


def all_sets(cluster: Any) -> Any:
    def sync(world: Any) -> Any:
        steps = [replicaset.sync(world, ("default", rs["metadata"]["name"])) for rs in cluster.all("ReplicaSet")]
        return replicaset.ReconcileResult(tuple(e for s in steps for e in s.effects))

    return sync


def sync_web(world: Any) -> Any:
    return deployment.sync(world, ("default", "web"))


def roll(cluster: Any, *, healthy: Any = lambda pod: True, check: Any = lambda: None) -> None:
    """Controllers and a kubelet, in turns, until nothing moves."""
    for _ in range(200):
        before = cluster.count
        for sync in (sync_web, all_sets(cluster)):
            cluster.carry_out(sync(cluster.world).effects)
            check()
        for pod in cluster.all("Pod"):
            name, meta = pod["metadata"]["name"], pod["metadata"]
            if meta.get("deletionTimestamp"):
                cluster.remove("Pod", name)
            elif not pod.get("status") and healthy(pod):
                ready(cluster, name)
            check()
        if cluster.count == before:
            return
    raise AssertionError("never settled")


def ready(cluster: Any, name: str, since: str = "2026-01-01T00:00:00Z") -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    cluster.edit("Pod", name, {"spec": {"nodeName": "n"}, "status": {"phase": "Running", "conditions": [condition]}})


def sizes(cluster: Any) -> dict[str, int]:
    return {
        rs["spec"]["template"]["spec"]["containers"][0]["image"]: rs["spec"]["replicas"]
        for rs in cluster.all("ReplicaSet")
    }


def conditions(cluster: Any) -> dict[str, tuple[str, str]]:
    found = cluster.get("Deployment", "web")["status"]["conditions"]
    return {c["type"]: (c["status"], c["reason"]) for c in found}


# ---- ReplicaSet


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


def pod(name: str, **fields: Any) -> Pod:
    return codec.decode(Pod, {"metadata": {"name": name, **fields.pop("metadata", {})}, **fields})


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


def test_people_are_told_and_a_failure_is_a_condition(cluster: Any) -> None:
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


# ---- Deployment


def test_a_new_deployment_becomes_available(cluster: Any) -> None:
    a_deployment(cluster)
    roll(cluster)
    [rs] = cluster.all("ReplicaSet")
    hash_ = rs["metadata"]["labels"]["pod-template-hash"]
    assert rs["metadata"]["name"] == f"web-{hash_}"
    assert rs["spec"]["selector"]["matchLabels"] == {"app": "a", "pod-template-hash": hash_}
    assert rs["spec"]["template"]["metadata"]["labels"] == {"app": "a", "pod-template-hash": hash_}
    assert rs["metadata"]["annotations"] == {
        "deployment.kubernetes.io/revision": "1",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }
    status = cluster.get("Deployment", "web")["status"]
    fields = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
    assert [status[f] for f in fields] == [3, 3, 3, 3, 1]
    assert "unavailableReplicas" not in status
    assert conditions(cluster) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert cluster.get("Deployment", "web")["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
    assert [e.message for e in cluster.events] == [f"Scaled up replica set web-{hash_} from 0 to 3"]


def test_a_rolling_update_keeps_its_bounds_and_ends(cluster: Any) -> None:
    a_deployment(cluster, 4, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}})
    roll(cluster)
    cluster.edit("Deployment", "web", {"spec": {"template": template("two")}})

    def check() -> None:
        live = [p for p in cluster.all("Pod") if not p["metadata"].get("deletionTimestamp")]
        assert len(live) <= 5
        assert sum(1 for p in live if p.get("status")) >= 3

    roll(cluster, check=check)
    assert sizes(cluster) == {"one": 0, "two": 4}
    assert cluster.get("Deployment", "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    assert conditions(cluster)["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_a_bad_image_stops_the_rollout_and_times_out(cluster: Any) -> None:
    a_deployment(cluster, 4)
    roll(cluster)
    cluster.edit("Deployment", "web", {"spec": {"template": template("bad")}})
    roll(cluster, healthy=lambda pod: pod["spec"]["containers"][0]["image"] != "bad")
    assert sizes(cluster) == {"one": 3, "bad": 2}
    assert conditions(cluster)["Available"][0] == "True"
    assert sync_web(cluster.world).again_s is not None
    cluster.seconds += 602
    roll(cluster, healthy=lambda pod: False)
    assert conditions(cluster)["Progressing"] == ("False", "ProgressDeadlineExceeded")
    # Rolled back: the old set is the new one again, with a new revision and its history.
    cluster.edit("Deployment", "web", {"spec": {"template": template("one")}})
    roll(cluster)
    assert sizes(cluster) == {"one": 4, "bad": 0}
    one = next(r for r in cluster.all("ReplicaSet") if r["spec"]["replicas"])
    annotations = one["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/revision"] == "3"
    assert annotations["deployment.kubernetes.io/revision-history"] == "1"
    assert conditions(cluster)["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_recreate_lets_old_pods_end_first(cluster: Any) -> None:
    a_deployment(cluster, 2, strategy={"type": "Recreate"})
    roll(cluster)
    cluster.edit("Deployment", "web", {"spec": {"template": template("two")}})

    def check() -> None:
        live = {p["spec"]["containers"][0]["image"] for p in cluster.all("Pod")}
        assert len(live) <= 1

    roll(cluster, check=check)
    assert sizes(cluster) == {"one": 0, "two": 2}


def test_recreate_is_woken_by_the_end_of_a_pod(cluster: Any) -> None:
    a_deployment(cluster, 1, strategy={"type": "Recreate"})
    roll(cluster)
    name = cluster.all("Pod")[0]["metadata"]["name"]
    before = cluster.world
    cluster.edit("Pod", name, {"status": {"phase": "Succeeded"}})
    put = Put("Pod", cluster.typed("Pod", name))
    assert deployment.keys(put, before, cluster.world) == [("default", "web")]
    cluster.edit("Deployment", "web", {"spec": {"strategy": {"type": "RollingUpdate"}}})
    assert deployment.keys(put, before, cluster.world) == []


def test_a_paused_deployment_scales_but_does_not_roll(cluster: Any) -> None:
    a_deployment(cluster, 2)
    roll(cluster)
    cluster.edit("Deployment", "web", {"spec": {"paused": True, "template": template("two"), "replicas": 5}})
    roll(cluster)
    assert sizes(cluster) == {"one": 5}
    assert conditions(cluster)["Progressing"] == ("Unknown", "DeploymentPaused")
    cluster.edit("Deployment", "web", {"spec": {"paused": False}})
    roll(cluster)
    assert sizes(cluster) == {"one": 0, "two": 5}
    assert conditions(cluster)["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_scaling_in_the_middle_of_a_rollout_is_proportional(cluster: Any) -> None:
    a_deployment(cluster, 10, strategy={"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}, "type": "RollingUpdate"})
    roll(cluster)
    cluster.edit("Deployment", "web", {"spec": {"template": template("bad")}})
    roll(cluster, healthy=lambda pod: False)
    assert sizes(cluster) == {"one": 8, "bad": 5}
    cluster.edit("Deployment", "web", {"spec": {"replicas": 15}})
    cluster.settle(sync_web)
    assert sizes(cluster) == {"one": 11, "bad": 7}  # the example of the API's documentation


def test_a_scale_to_zero_and_back(cluster: Any) -> None:
    a_deployment(cluster, 2)
    roll(cluster)
    for replicas in (0, 3):
        cluster.edit("Deployment", "web", {"spec": {"replicas": replicas}})
        roll(cluster)
        assert len(cluster.all("Pod")) == replicas
        status = cluster.get("Deployment", "web")["status"]
        assert status.get("availableReplicas", 0) == replicas
        assert status["observedGeneration"] == cluster.get("Deployment", "web")["metadata"]["generation"]


def test_history_is_cut_to_its_limit(cluster: Any) -> None:
    a_deployment(cluster, 1, revisionHistoryLimit=2)
    for number in range(6):
        cluster.edit("Deployment", "web", {"spec": {"template": template(f"v{number}")}})
        roll(cluster)
    assert sorted(sizes(cluster)) == ["v3", "v4", "v5"]


def test_a_taken_name_gets_the_next_hash(cluster: Any) -> None:
    a_deployment(cluster, 1)
    name = next(e for e in sync_web(cluster.world).effects if isinstance(e, Create)).body["metadata"]["name"]
    cluster.add("ReplicaSet", name, spec={"replicas": 0, "selector": {"matchLabels": {"x": "y"}}})
    roll(cluster)
    assert cluster.get("Deployment", "web")["status"]["collisionCount"] == 1
    assert len(cluster.all("ReplicaSet")) == 2
    assert len(cluster.all("Pod")) == 1


def test_a_selector_of_everything_is_refused(cluster: Any) -> None:
    a_deployment(cluster, selector={})
    cluster.carry_out(sync_web(cluster.world).effects)
    assert [e.reason for e in cluster.events] == ["SelectingAll"]
    assert cluster.all("ReplicaSet") == []


def test_a_replica_failure_is_passed_on(cluster: Any) -> None:
    a_deployment(cluster, 1)
    cluster.carry_out(sync_web(cluster.world).effects)
    name = cluster.all("ReplicaSet")[0]["metadata"]["name"]
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    cluster.edit("ReplicaSet", name, {"status": {"conditions": [failure]}})
    cluster.settle(sync_web)
    assert conditions(cluster)["ReplicaFailure"] == ("True", "FailedCreate")


def test_a_deployment_being_deleted_changes_nothing(cluster: Any) -> None:
    a_deployment(cluster, 1)
    roll(cluster)
    cluster.edit("Deployment", "web", {"metadata": {"finalizers": ["foregroundDeletion"]}, "spec": {"replicas": 5}})
    cluster.delete("Deployment", "web")
    cluster.effects.clear()
    cluster.settle(sync_web)
    assert not [e for e in cluster.effects if isinstance(e, Create | Delete)]
    assert sizes(cluster) == {"one": 1}


@given(
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=4),
    st.tuples(st.integers(0, 10), st.integers(0, 10)),
    st.sampled_from([0, 1, 3, "25%", "50%", "100%"]),
    st.sampled_from([0, 1, 3, "25%", "50%"]),
)
def test_no_step_breaks_the_bounds(
    wanted: int, old: list[tuple[int, int]], new: tuple[int, int], surge: Any, unavailable: Any
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    owner = codec.decode(Workload, {"metadata": {"name": "d"}, "spec": {"replicas": wanted, "strategy": strategy}})

    def rs(name: str, pair: tuple[int, int]) -> Workload:
        body = {
            "metadata": {"name": name},
            "spec": {"replicas": pair[0]},
            "status": {"replicas": pair[0], "availableReplicas": min(pair)},
        }
        return codec.decode(Workload, body)

    sizes = rollout.RolloutSizes(owner, rs("new", new), [rs(f"old-{i}", pair) for i, pair in enumerate(old)])
    up = rollout.rolled_up(sizes)
    grown = sizes.total + sum(up.values()) - (new[0] if up else 0)
    assert grown <= max(sizes.total, wanted + sizes.surge)
    down = rollout.rolled_down(sizes)
    assert all(
        0 <= size <= rollout.replicas(next(r for r in sizes.old if r.metadata.name == n)) for n, size in down.items()
    )
    least = wanted - sizes.unavailable
    available = sum(rollout.available(r) for r in sizes.all)
    lost = sum(max(0, rollout.available(r) - down[r.metadata.name]) for r in sizes.old if r.metadata.name in down)
    assert available - lost >= min(available, least)
    spread = rollout.proportional(sizes)
    assert all(size >= 0 for size in spread.values())
