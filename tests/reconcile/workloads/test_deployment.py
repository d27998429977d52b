"""ReplicaSets and Deployments: numbers of pods, rolling, recreating, pausing, scaling, history, progress."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.api import codec
from dragoman.api.core import Workload
from dragoman.effects import Create, Delete
from dragoman.reconcile.workloads import deployment, replicaset, rollout
from dragoman.snapshot.change import Put
from tests.reconcile.workloads.revisions import a_deployment, ready, sync_web, template


def all_sets(cluster: Any) -> Any:
    def sync(world: Any) -> Any:
        steps = [replicaset.sync(world, ("default", rs["metadata"]["name"])) for rs in cluster.all("ReplicaSet")]
        return replicaset.ReconcileResult(tuple(e for s in steps for e in s.effects))

    return sync


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


def sizes(cluster: Any) -> dict[str, int]:
    return {
        rs["spec"]["template"]["spec"]["containers"][0]["image"]: rs["spec"]["replicas"]
        for rs in cluster.all("ReplicaSet")
    }


def conditions(cluster: Any) -> dict[str, tuple[str, str]]:
    found = cluster.get("Deployment", "web")["status"]["conditions"]
    return {c["type"]: (c["status"], c["reason"]) for c in found}


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
