"""What does the page show of a cluster? Its JSON, asked as a browser asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.web.page import DRIVER, Browser, page_of

Ask = Callable[[Browser], Awaitable[Any]]


def asked(file: str, question: Ask) -> Any:
    """The answer of an opened page."""

    async def run() -> Any:
        async with page_of(file) as browser:
            return await question(await browser.opened())

    return asyncio.run(run())


def test_the_fleet_is_counted_in_groups(cluster_file: str) -> None:
    found = asked(cluster_file, lambda b: b.get("fleet"))
    assert found["by"] == "rack"
    assert found["counts"] == {"free": 1, "held": 1, "tainted": 1, "unavailable": 1}
    assert [(g["name"], g["nodes"]) for g in found["groups"]] == [("east", 1), ("west", 1)]
    assert found["classes"] == {"gpus": 4}
    everything = asked(cluster_file, lambda b: b.get("nodes", by="none", limit="1"))
    assert everything["total"] == 2
    assert [node["name"] for node in everything["nodes"]] == ["node-2"]
    assert [device["state"] for device in everything["nodes"][0]["devices"]] == ["held", "free", "tainted"]


FILTERS = {
    "a state": ({"state": "tainted"}, {"tainted": 1}),
    "a class": ({"class": "gpus"}, {"free": 1, "held": 1, "tainted": 1, "unavailable": 1}),
    "no such class": ({"class": "others"}, {}),
    "a namespace": ({"namespace": "lab"}, {"held": 1}),
    "a part of a node's name": ({"node": "10"}, {"unavailable": 1}),
    "an attribute": ({"expression": "model=B7"}, {"free": 1, "tainted": 1}),
    "CEL": ({"expression": f'device.attributes["{DRIVER}"].model == "A9"'}, {"held": 1, "unavailable": 1}),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name: str, cluster_file: str) -> None:
    query, counts = FILTERS[name]
    assert asked(cluster_file, lambda b: b.get("fleet", **query))["counts"] == counts


def test_a_wrong_expression_is_refused_with_its_place(cluster_file: str) -> None:
    found = asked(cluster_file, lambda b: b.get("fleet", expression="device.driver ==\n  nothing"))
    assert found["status"] == 400
    assert (found["error"]["line"], found["error"]["column"]) == (2, 3)
    failed = asked(cluster_file, lambda b: b.get("fleet", expression=f'device.attributes["{DRIVER}"].modle == "A9"'))
    assert failed["status"] == 400
    assert "model" in failed["error"]["message"]


def test_who_holds_devices_and_what_is_broken(cluster_file: str) -> None:
    held = asked(cluster_file, lambda b: b.get("holders", **{"class": "gpus"}))
    assert [(row["namespace"], row["claim"], row["pods"], row["count"]) for row in held["holders"]] == [
        ("lab", "mine", ["first"], 1)
    ]
    broken = asked(cluster_file, lambda b: b.get("problems"))["problems"]
    assert {(row["kind"], row["name"], row["reason"]) for row in broken} == {
        ("node", "node-10", "node not ready"),
        ("device", f"{DRIVER}/node-2/gpu-2", "tainted"),
    }


def test_pods_that_wait_for_the_same_are_one_group_and_a_hint_can_be_tried(cluster_file: str) -> None:
    async def question(browser: Browser) -> Any:
        waiting: Any = await browser.get("waiting")
        namespace, name = waiting["groups"][0]["hint"]["for"].removeprefix("pod ").split("/")
        detail = await browser.get("object", kind="pod", namespace=namespace, name=name)
        hint = {"namespace": namespace, "name": name, "index": 0}
        return waiting, detail, await browser.post("whatif", {"hint": hint})

    waiting, detail, tried = asked(cluster_file, question)
    (group,) = waiting["groups"]
    assert [entry["name"] for entry in group["objects"]] == ["waits-a", "waits-b"]
    assert any("3 devices" in line for line in group["why"])
    assert detail["hints"]
    assert [pod["pod"] for pod in tried["gained"]] == ["lab/waits-a"]
    assert tried["waiting"] == {"before": 2, "after": 1}
    assert tried["fleet"]["nodes"][0]["name"] == "node-2"


def test_changes_can_be_tried(cluster_file: str) -> None:
    async def question(browser: Browser) -> Any:
        return [
            await browser.post("whatif", asked)
            for asked in (
                {"addNode": "node-2"},
                {"removeNode": "node-2"},
                {"removePod": "lab/first"},
                {"taint": {"device": f"{DRIVER}/node-2/gpu-0", "key": "a.example/b", "effect": "NoExecute"}},
                {"addNode": "node-404"},
                {"taint": {"device": "gpu-0", "key": "a", "effect": "NoExecute"}},
                {},
            )
        ]

    added, removed, deleted, tainted, missing, short, nothing = asked(cluster_file, question)
    assert "node-2-new" in [pair["name"] for pair in added["fleet"]["nodes"]]
    assert [entry["pod"] for entry in removed["recreated"]] == ["lab/first"]
    assert deleted["fleet"]["nodes"][0]["after"]["counts"]["free"] == 2
    assert [entry["pod"] for entry in tainted["displaced"]] == ["lab/first"]
    assert [missing["status"], short["status"], nothing["status"]] == [404, 400, 400]


def test_the_timeline_has_events_and_times_of_objects(cluster_file: str) -> None:
    found = asked(cluster_file, lambda b: b.get("time"))
    kinds = [(entry["when"], entry["kind"], entry["name"]) for entry in found["entries"]]
    assert kinds[:4] == [
        ("2026-01-02T03:06:00Z", "event", "lab/waits-a"),
        ("2026-01-02T03:05:00Z", "tainted", f"{DRIVER}/node-2/gpu-2"),
        ("2026-01-02T03:04:05Z", "not-ready", "node-10"),
        ("2026-01-02T03:00:04Z", "allocated", "lab/mine"),
    ]
    assert found["latency"] == {"claims": 1, "p50": 4.0, "p90": 4.0, "p99": 4.0, "max": 4.0}
    assert asked(cluster_file, lambda b: b.get("time", since="3600"))["total"] == 0
    assert asked(cluster_file, lambda b: b.get("time", text="HOT"))["total"] == 1


def test_a_manifest_is_judged_and_placed(cluster_file: str) -> None:
    pod = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: new, namespace: lab}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: CLASS}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: new, namespace: lab}
spec:
  containers: [{name: c, image: registry.example/app:1, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: new}]
"""

    async def question(browser: Browser) -> Any:
        texts = (pod.replace("CLASS", "gpus"), pod.replace("CLASS", "gpuz"), "apiVersion: v1\n  kind: x\n - :")
        return [await browser.post("editor", {"text": text}) for text in texts]

    good, wrong, broken = asked(cluster_file, question)
    assert [(entry["pod"], entry["node"]) for entry in good["pods"]] == [("lab/new", "node-2")]
    assert [pair["name"] for pair in good["fleet"]["nodes"]] == ["node-2"]
    assert not [finding for finding in good["findings"] if finding["severity"] == "error"]
    assert wrong["pods"][0]["node"] is None
    assert wrong["pods"][0]["why"]
    assert wrong["findings"]
    assert [finding["code"] for finding in broken["findings"]] == ["BrokenSyntax"]


def test_what_is_not_there_is_said_and_what_is_wrong_too(cluster_file: str) -> None:
    async def question(browser: Browser) -> Any:
        return [
            await browser.get("object", kind="pod", namespace="lab", name="nobody"),
            await browser.get("object", kind="secret", name="x"),
            await browser.get("nodes", limit="many"),
        ]

    assert [answer["status"] for answer in asked(cluster_file, question)] == [404, 400, 400]


def test_pods_of_a_workload_are_placed_too(cluster_file: str) -> None:
    workload = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: each, namespace: lab}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpus}}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: pair, namespace: lab}
spec:
  replicas: 2
  selector: {matchLabels: {app: pair}}
  template:
    metadata: {labels: {app: pair}}
    spec:
      containers: [{name: c, image: registry.example/app:1, resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: each}]
"""
    found = asked(cluster_file, lambda b: b.post("editor", {"text": workload}))
    assert [entry["node"] for entry in found["pods"]] == ["node-2", None]
    assert found["pods"][1]["why"]
