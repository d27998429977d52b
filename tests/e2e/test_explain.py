"""The same question over the API, of its dump, and by simulate: one answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cluster

pytestmark = pytest.mark.slow

WORKLOAD = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: six}
spec: {spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.example.com, count: 6}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  containers: [{name: c, image: app, resources: {claims: [{name: g}]}}]
  resourceClaims: [{name: g, resourceClaimTemplateName: six}]
"""
KINDS = ("nodes", "resourceslices", "deviceclasses", "resourceclaimtemplates", "resourceclaims", "pods")


def dragoman(cluster: Cluster, *arguments: str) -> Any:
    """The JSON that a command prints; exit status 1, the answer is no."""
    command = [sys.executable, "-m", "dragoman.cli", *arguments, "-o", "json"]
    done = subprocess.run(command, cwd=cluster.folder, text=True, capture_output=True, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_one_question_one_answer(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(WORKLOAD)
    cluster.running("first")
    cluster.apply(WORKLOAD.replace("name: first", "name: second"))
    cluster.until(
        lambda: cluster.get("events", "--field-selector", "involvedObject.name=second,reason=FailedScheduling")[
            "items"
        ],
        "the pod to be refused",
    )
    dump = tmp_path / "dump.yaml"
    dump.write_text("---\n".join(cluster.kubectl("get", kind, "-A", "-o", "yaml").stdout for kind in KINDS))
    live = dragoman(cluster, "explain", "pod/second", "--kubeconfig", str(cluster.kubeconfig))
    (pod,) = live["pods"]
    assert pod["node"] is None
    (nodes,) = pod["nodes"]
    (few,) = [reason for reason in nodes["reasons"] if reason["code"] == "InsufficientDevices"]
    assert (few["requested"], few["dropped"]["held"], few["dropped"]["available"]) == (6, 6, 2)
    assert [hint["kind"] for hint in pod["refusal"]["hints"]] == ["ChangeCount", "RemovePods", "AddNode"]
    assert dragoman(cluster, "explain", "pod/second", "-f", str(dump))["pods"] == live["pods"]
    assert dragoman(cluster, "simulate", "-f", str(dump))["pods"] == live["pods"]
