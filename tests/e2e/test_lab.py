"""The laboratory of DRA, through the real kubectl on a real `dragoman up`: what a user does in the first hour."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cluster

pytestmark = pytest.mark.slow

CLASS = "gpu.example.com"


def claim(name: str, requests: str, kind: str = "ResourceClaim") -> str:
    """A claim or template whose requests are flow YAML."""
    devices = f"devices: {{requests: {requests}}}"
    spec = devices if kind == "ResourceClaim" else f"spec: {{{devices}}}"
    return f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n---\n"


def request(name: str = "r", count: int = 1, cel: str = "") -> str:
    """One exact request of the example class, in flow YAML."""
    selectors = f', selectors: [{{cel: {{expression: "{cel}"}}}}]' if cel else ""
    return f"{{name: {name}, exactly: {{deviceClassName: {CLASS}, count: {count}{selectors}}}}}"


def pod(name: str, source: str, extra: str = "") -> str:
    """A pod with one claim entry `gpu`; source is the rest of the entry in flow YAML."""
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n"
        f"  terminationGracePeriodSeconds: 0\n  {extra}\n"
        f"  resourceClaims: [{{name: gpu, {source}}}]\n"
        "  containers: [{name: main, image: app, resources: {claims: [{name: gpu}]}}]\n---\n"
    )


def warning(cluster: Cluster, name: str) -> str:
    """The message of the newest FailedScheduling event of a pod, waited for."""

    def look() -> str:
        events = cluster.get("events", "--field-selector", f"involvedObject.name={name},reason=FailedScheduling")
        return events["items"][-1]["message"] if events["items"] else ""

    return str(cluster.until(look, f"a FailedScheduling event of {name}"))


def test_slices_list_8_devices_and_the_class_is_there(cluster: Cluster) -> None:
    """Check 1."""

    def look() -> Any:
        items = cluster.get("resourceslices")["items"]
        return items if items and items[0]["spec"].get("devices") else None

    (piece,) = cluster.until(look, "a slice with devices")
    devices = piece["spec"]["devices"]
    assert [device["name"] for device in devices] == [f"gpu-{index}" for index in range(8)]
    assert devices[3]["attributes"]["index"] == {"int": 3}
    assert devices[3]["attributes"]["model"] == {"string": "LATEST-GPU-MODEL"}
    assert devices[3]["attributes"]["driverVersion"] == {"version": "1.0.0"}
    assert devices[3]["attributes"]["uuid"]["string"].startswith("gpu-")
    assert devices[3]["capacity"] == {"memory": {"value": "80Gi"}, "compute": {"value": "100"}}
    assert cluster.get("deviceclass", CLASS)["metadata"]["name"] == CLASS
    table = cluster.kubectl("get", "resourceslices").stdout
    assert table.split()[:5] == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]


def test_a_template_makes_a_claim_and_deleting_the_pod_frees_the_device(cluster: Cluster) -> None:
    """Check 2."""
    cluster.apply(claim("one", f"[{request()}]", "ResourceClaimTemplate") + pod("p", "resourceClaimTemplateName: one"))
    cluster.running("p")
    (made,) = cluster.get("resourceclaims")["items"]
    assert re.fullmatch(r"p-gpu-[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])
    assert made["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert made["status"]["reservedFor"][0]["name"] == "p"
    (device,) = [result["device"] for result in made["status"]["allocation"]["devices"]["results"]]
    assert f"={device}" in cluster.kubectl("logs", "p").stdout
    assert cluster.kubectl("get", "resourceclaims").stdout.split()[4] == "allocated,reserved"
    cluster.kubectl("delete", "pod", "p")
    cluster.gone("resourceclaims")
    cluster.apply(claim("all", f"[{request(count=8)}]") + pod("whole", "resourceClaimName: all"))
    cluster.running("whole")


def test_a_selector_picks_the_very_device(cluster: Cluster) -> None:
    """Check 3."""
    cel = f"device.attributes['{CLASS}'].index == 7"
    cluster.apply(claim("seven", f"[{request(cel=cel)}]") + pod("p", "resourceClaimName: seven"))
    cluster.running("p")
    assert cluster.devices("seven") == ["gpu-7"]
    assert "gpu-7" in cluster.kubectl("logs", "p").stdout


def test_two_pods_share_one_claim_and_one_claim_takes_two_devices(cluster: Cluster) -> None:
    """Checks 4 and 5."""
    cluster.apply(
        claim("team", f"[{request()}]")
        + pod("a", "resourceClaimName: team")
        + pod("b", "resourceClaimName: team")
        + claim("pair", f"[{request(count=2)}]")
        + pod("c", "resourceClaimName: pair")
    )
    cluster.running("a", "b", "c")
    (device,) = cluster.devices("team")
    assert sorted(entry["name"] for entry in cluster.get("resourceclaim", "team")["status"]["reservedFor"]) == [
        "a",
        "b",
    ]
    for name in "ab":
        assert f"={device}" in cluster.kubectl("logs", name).stdout
    assert len(set(cluster.devices("pair"))) == 2
    assert device not in cluster.devices("pair")


def test_more_than_is_left_is_pending_with_numbers_and_runs_once_devices_are_free(cluster: Cluster) -> None:
    """Check 6."""
    cluster.apply(claim("six", f"[{request(count=6)}]") + pod("holder", "resourceClaimName: six"))
    cluster.running("holder")
    cluster.apply(claim("four", f"[{request(count=4)}]") + pod("greedy", "resourceClaimName: four"))
    text = warning(cluster, "greedy")
    assert "0/1 nodes are available" in text
    assert "cannot allocate all claims" in text
    numbers = set(re.findall(r"\b\d+\b", text))
    assert {"8", "2", "4"} <= numbers, text
    assert cluster.phase("greedy") == "Pending"
    cluster.kubectl("delete", "pod", "holder")
    cluster.running("greedy")
    assert len(cluster.devices("four")) == 4


def test_a_deployment_scales_rolls_and_scales_down_and_a_job_gives_its_devices_back(cluster: Cluster) -> None:
    """Check 7."""
    template = claim("one", f"[{request()}]", "ResourceClaimTemplate")
    deployment = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n"
        "  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n"
        "    spec:\n      terminationGracePeriodSeconds: 0\n"
        "      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]\n"
        "      containers: [{name: main, image: app:1, resources: {claims: [{name: gpu}]}}]\n"
    )
    cluster.apply(template + deployment)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    cluster.kubectl("scale", "deployment/web", "--replicas=4")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert len(cluster.get("resourceclaims")["items"]) == 4
    cluster.kubectl("set", "image", "deployment/web", "main=app:2")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    images = {item["spec"]["containers"][0]["image"] for item in cluster.get("pods", "-l", "app=web")["items"]}
    assert "app:2" in images
    cluster.kubectl("scale", "deployment/web", "--replicas=1")
    cluster.until(lambda: len(cluster.get("resourceclaims")["items"]) == 1, "three claims to go")
    cluster.apply(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  completions: 2\n  template:\n"
        "    metadata: {annotations: {dragoman.dev/run-seconds: '0.2'}}\n    spec:\n      restartPolicy: Never\n"
        "      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]\n"
        "      containers: [{name: main, image: app, resources: {claims: [{name: gpu}]}}]\n"
    )
    cluster.kubectl("wait", "--for=condition=complete", "job/j", "--timeout=60s")
    cluster.until(lambda: len(cluster.get("resourceclaims")["items"]) == 1, "the job's claims to go")


@pytest.fixture
def beta(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that serves v1beta1, too, which is off by default."""
    made = Cluster(tmp_path, "--node", "worker=example", "--runtime-config", "resource.k8s.io/v1beta1=true")
    made.start()
    yield made
    made.stop()


def test_a_pod_with_a_v1beta1_claim_runs(beta: Cluster) -> None:
    """Check 7, last part."""
    old = (
        "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: old}\n"
        f"spec: {{devices: {{requests: [{{name: r, deviceClassName: {CLASS}}}]}}}}\n---\n"
    )
    beta.apply(old + pod("p", "resourceClaimName: old"))
    beta.running("p")
    assert beta.get("resourceclaims.v1.resource.k8s.io", "old")["spec"]["devices"]["requests"][0]["exactly"]


REFUSED = {
    "a CEL error": (
        claim("c", f"[{request(cel='device.attributes[')}]"),
        ["spec.devices.requests[0].exactly.selectors[0].cel.expression"],
    ),
    "an unknown field": (
        claim("c", f"[{request()}]").replace("requests:", "wishes: 1, requests:"),
        ["unknown field", "wishes"],
    ),
    "a count that is too large for an integer": (
        claim("c", f"[{request(count=99999999999999999999)}]"),
        ["count"],
    ),
    "a duplicate request name": (
        claim("c", f"[{request('r')}, {request('r')}]"),
        ["spec.devices.requests[1]", "uplicate"],
    ),
    "a negative count": (claim("c", f"[{request(count=-1)}]"), ["count", "greater than zero"]),
}


def test_bad_claims_are_refused_in_one_clear_message(cluster: Cluster) -> None:
    """Check 8: at the API."""
    for what, (manifest, texts) in REFUSED.items():
        done = cluster.apply(manifest, ok=False)
        for text in texts:
            assert text in done.stderr, f"{what}: {done.stderr}"


def test_what_is_missing_is_explained_on_the_pod(cluster: Cluster) -> None:
    """Check 8: missing class, missing template, more than 32 devices."""
    cluster.apply(
        claim("c", f"[{request().replace(CLASS, 'no-such-class')}]")
        + pod("no-class", "resourceClaimName: c")
        + pod("no-template", "resourceClaimTemplateName: nowhere")
        + claim("big", f"[{request(count=33)}]")
        + pod("too-many", "resourceClaimName: big")
    )
    assert "no-such-class" in warning(cluster, "no-class")
    assert "does not exist" in warning(cluster, "no-class")

    def look() -> str:
        events = cluster.get("events", "--field-selector", "involvedObject.name=no-template")["items"]
        return next((e["message"] for e in events if e["reason"] == "FailedResourceClaimCreation"), "")

    assert "nowhere" in str(cluster.until(look, "an event about the missing template"))
    text = warning(cluster, "too-many")
    assert "33" in text
    assert "32" in text
