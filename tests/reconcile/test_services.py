"""Endpoints of Services, budgets of disruption, and ReplicationControllers."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.reconcile import disruption, endpoints
from dragoman.reconcile.workloads import replicationcontroller

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
SERVICE, BUDGET, CONTROLLER = ("default", "web"), ("default", "b"), ("default", "rc")


def pod(
    cluster: Any, name: str, ip: str, *, ready: bool = True, owner: dict[str, Any] | None = None, **labels: str
) -> None:
    metadata: dict[str, Any] = {"labels": {"app": "web", **labels}}
    if owner is not None:
        reference = {"apiVersion": "apps/v1", "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [
            {**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        ]
    spec = {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]}
    status = {"phase": "Running", "podIP": ip, "conditions": [READY] if ready else []}
    cluster.add("Pod", name, metadata=metadata, spec=spec, status=status)


def settle(cluster: Any, sync: Any, key: Any) -> None:
    for _ in range(5):
        effects = sync(cluster.world, key).effects
        if not effects:
            return
        cluster.carry_out(effects)
    raise AssertionError(f"never at rest: {effects}")


def test_endpoints_follow_the_pods(cluster: Any) -> None:
    ports = [{"name": "", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    cluster.add("Service", "web", spec={"selector": {"app": "web"}, "ports": ports, "clusterIP": "10.96.0.9"})
    pod(cluster, "a", "10.0.0.1")
    pod(cluster, "b", "10.0.0.2", ready=False)
    pod(cluster, "other", "10.0.0.3", app="db")
    settle(cluster, endpoints.sync, SERVICE)
    piece = cluster.all("EndpointSlice")[0]
    assert piece["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert [(e["addresses"], e["conditions"]["ready"]) for e in piece["endpoints"]] == [
        (["10.0.0.1"], True),
        (["10.0.0.2"], False),
    ]
    assert piece["ports"][0]["port"] == 8080
    subset = cluster.get("Endpoints", "web")["subsets"][0]
    assert [a["ip"] for a in subset["addresses"]] == ["10.0.0.1"]
    assert [a["ip"] for a in subset["notReadyAddresses"]] == ["10.0.0.2"]
    cluster.remove("Pod", "a")
    settle(cluster, endpoints.sync, SERVICE)
    assert [e["addresses"] for e in cluster.all("EndpointSlice")[0]["endpoints"]] == [["10.0.0.2"]]
    cluster.remove("Service", "web")
    settle(cluster, endpoints.sync, SERVICE)
    assert not cluster.has("Endpoints", "web")


def test_what_others_keep_is_left_alone(cluster: Any) -> None:
    cluster.add("Service", "web", spec={"ports": [{"port": 80}]})
    cluster.add("Endpoints", "web", subsets=[{"addresses": [{"ip": "1.2.3.4"}]}])
    assert endpoints.sync(cluster.world, SERVICE).effects == ()
    cluster.remove("Service", "web")
    assert endpoints.sync(cluster.world, SERVICE).effects == ()


BUDGETS: dict[str, tuple[dict[str, Any], tuple[int, int, int, int]]] = {
    "a minimum": ({"minAvailable": 2}, (1, 3, 2, 4)),
    "a maximum": ({"maxUnavailable": 1}, (0, 3, 4, 5)),
    "a share of what the owner wants": ({"minAvailable": "40%"}, (1, 3, 2, 5)),
    "a maximum as a share": ({"maxUnavailable": "60%"}, (1, 3, 2, 5)),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_budgets(cluster: Any, name: str) -> None:
    spec, (allowed, healthy, desired, expected) = BUDGETS[name]
    owner = cluster.add("ReplicaSet", "rs", spec={"replicas": 5, "selector": {"matchLabels": {"app": "web"}}})
    for number in range(4):
        pod(cluster, f"p{number}", f"10.0.0.{number}", ready=number > 0, owner=owner)
    cluster.add("PodDisruptionBudget", "b", spec={"selector": {"matchLabels": {"app": "web"}}, **spec})
    settle(cluster, disruption.sync, BUDGET)
    status = cluster.get("PodDisruptionBudget", "b")["status"]
    got = (status["disruptionsAllowed"], status["currentHealthy"], status["desiredHealthy"], status["expectedPods"])
    assert got == (allowed, healthy, desired, expected)
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", "True" if allowed else "False")


def test_a_budget_of_pods_that_nobody_scales_allows_nothing(cluster: Any) -> None:
    pod(cluster, "alone", "10.0.0.1")
    cluster.add("PodDisruptionBudget", "b", spec={"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1})
    settle(cluster, disruption.sync, BUDGET)
    status = cluster.get("PodDisruptionBudget", "b")["status"]
    assert status["disruptionsAllowed"] == 0
    assert "found no controllers for pod 'alone'" in status["conditions"][0]["message"]


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
