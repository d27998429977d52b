"""Endpoints and EndpointSlices of Services."""

from __future__ import annotations

from typing import Any

from dragoman.reconcile import endpoints
from tests.reconcile.serving import SERVICE, pod, settle


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
