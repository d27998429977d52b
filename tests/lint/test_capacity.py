"""What no arrangement could satisfy: counted over the devices at hand, node by node, free or held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.api import files
from dragoman.lint.linter import LintTarget, lint
from dragoman.testing.build import allocated, claim, device, device_class, gpus, manifest, node, pool, request, template

WORLD = [node("a"), node("b"), device_class(), gpus("a", 3), gpus("b", 2)]


def codes(*objects: dict[str, Any]) -> list[tuple[str, str]]:
    """Code and message of each finding that comes from counting."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*WORLD, *objects]})
    known = {"LargerThanAnyNode", "MoreThanExist", "RolloutStuck", "AdvertisedTwice"}
    return [(f.code, f.message) for f in lint(files.scan([("f.json", text)]), LintTarget()) if f.code in known]


def test_a_claim_may_ask_for_what_the_largest_node_has() -> None:
    assert codes(claim("c", count=3)) == []
    ((code, message),) = codes(claim("c", count=4))
    assert code == "LargerThanAnyNode"
    assert message == "asks for 4 devices, and no node has more than 3 that would do (node a)"


def test_devices_that_are_held_count_since_they_may_come_back() -> None:
    assert codes(claim("c", count=3), allocated("t", "gpu-0", "gpu-1", pool="a")) == []


def test_requests_for_the_same_devices_add_up_and_for_others_they_do_not() -> None:
    low = request("low", select="device.attributes['gpu.example.com'].index < 2", count=2)
    high = request("high", select="device.attributes['gpu.example.com'].index >= 2")
    assert codes(claim("c", low, high)) == []
    ((code, _),) = codes(claim("c", low, {**low, "name": "again"}))
    assert code == "LargerThanAnyNode"


def test_devices_of_every_node_count_with_each_of_them() -> None:
    far = pool("far", [device("f", index=9)])
    assert codes(far, claim("c", count=4)) == []


SILENT = {
    "all devices": request(allocationMode="All"),
    "admin access": request(adminAccess=True, count=9),
    "an alternative": {
        "name": "r",
        "firstAvailable": [{"name": "x", "deviceClassName": "gpu.example.com", "count": 9}],
    },
}


@pytest.mark.parametrize("name", SILENT)
def test_what_does_not_add_up_simply_is_not_judged(name: str) -> None:
    assert codes(claim("c", SILENT[name])) == []


def test_shared_devices_are_not_counted() -> None:
    shared = {**device("s"), "allowMultipleAllocations": True}
    objects = [device_class("shared.example.com", driver="shared.example.com")]
    objects.append(pool("a", [shared], node="a", driver="shared.example.com"))
    assert codes(*objects, claim("c", request(device_class="shared.example.com", count=9))) == []


def workload(kind: str, replicas: int, **strategy: Any) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "t"}]}}],
        "resourceClaims": [{"name": "t", "resourceClaimTemplateName": "t"}],
    }
    labels = {"app": "web"}
    body: dict[str, Any] = {"selector": {"matchLabels": labels}, "replicas": replicas}
    body["template"] = {"metadata": {"labels": labels}, "spec": spec}
    if strategy:
        body["strategy"] = {"type": "RollingUpdate", "rollingUpdate": strategy}
    return manifest(kind, "web", spec=body)


def test_a_workload_may_not_want_more_than_exists_anywhere() -> None:
    assert [code for code, _ in codes(template("t"), workload("ReplicaSet", 5))] == []
    assert [code for code, _ in codes(template("t"), workload("ReplicaSet", 6))] == ["MoreThanExist"]


def test_a_rollout_needs_a_spare_device_or_a_pod_that_may_go() -> None:
    all_of_them = [template("t"), workload("Deployment", 5, maxSurge=1, maxUnavailable=0)]
    assert [code for code, _ in codes(*all_of_them)] == ["RolloutStuck"]
    assert codes(template("t"), workload("Deployment", 5, maxSurge=1, maxUnavailable=1)) == []
    assert codes(template("t"), workload("Deployment", 4, maxSurge=1, maxUnavailable=0)) == []
