"""Rights on a real API server: the chart's suffice and each is used; what is missing is said, and reported later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import make_manifests
import pytest
import yaml

from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.objects import device_class, pod_with_device, slice_of
from tests.real.process import free_ports

pytestmark = pytest.mark.slow


def rule(group: str, resources: str, verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


LISTED: list[dict[str, Any]] = yaml.safe_load(make_manifests.RIGHTS.read_text())["scheduler"]
LEASES = rule("coordination.k8s.io", "leases", "get list create update")
"""Without the chart, which makes the Lease, the scheduler does."""
SCHEDULER = [
    *({key: one[key] for key in ("apiGroups", "resources", "verbs")} for one in LISTED if not one.get("if")),
    LEASES,
]


def grant(cluster: Cluster, rules: list[dict[str, Any]]) -> None:
    """Let the service account default/scheduler do that and nothing else."""
    meta = {"name": "scheduler"}
    subject = {"kind": "ServiceAccount", "name": "scheduler", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scheduler"}
    api = "rbac.authorization.k8s.io/v1"
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**meta, "namespace": "default"}},
        {"apiVersion": api, "kind": "ClusterRole", "metadata": meta, "rules": rules},
        {"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]},
    )


@pytest.fixture
def cluster(start: StartCluster) -> Cluster:
    made = start(controllers="kube")
    made.node("worker")
    made.apply(device_class(), slice_of("worker", devices=1))
    return made


def test_the_rights_that_are_documented_suffice(cluster: Cluster) -> None:
    grant(cluster, SCHEDULER)
    ours = cluster.dragoman("scheduler", user="default/scheduler").start()
    cluster.apply(*pod_with_device("train", scheduler="dragoman"))
    cluster.until(lambda: cluster.get("Pod", "train")["spec"].get("nodeName"), "train to be bound")
    assert "403" not in ours.log()
    assert "forbidden" not in ours.log().lower()


def test_the_right_that_is_missing_is_named(cluster: Cluster) -> None:
    """Kubernetes 1.36 wants resourceclaims/binding beside resourceclaims/status; a missing `get` must not hide that."""
    poor = [
        rule("resource.k8s.io", "resourceclaims", "list watch patch create"),
        rule("resource.k8s.io", "resourceclaims/status", "patch"),
    ]
    grant(cluster, [one for one in SCHEDULER if not one["resources"][0].startswith("resourceclaims")] + poor)
    ours = cluster.dragoman("scheduler", user="default/scheduler").start()
    cluster.apply(*pod_with_device("train", scheduler="dragoman"))

    def reason() -> str:
        conditions = cluster.get("Pod", "train")["status"].get("conditions", [])
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    cluster.until(lambda: "resourceclaims/binding" in reason(), "the reason on the pod")
    assert "resourceclaims/binding" in ours.log()


def test_a_reason_that_could_not_be_reported_is_reported_later(cluster: Cluster) -> None:
    grant(cluster, [one for one in SCHEDULER if one["resources"] != ["pods/status"]])
    ours = cluster.dragoman("scheduler", user="default/scheduler").start()
    cluster.apply(*pod_with_device("large", count=2, scheduler="dragoman"))
    cluster.until(lambda: "not reported yet" in ours.log(), "the report to fail")
    grant(cluster, SCHEDULER)

    def is_reported() -> bool:
        conditions = cluster.get("Pod", "large")["status"].get("conditions", [])
        return any(one["type"] == "PodScheduled" and "cannot allocate" in one["message"] for one in conditions)

    cluster.until(is_reported, "the reason on the pod")


def _status(port: int) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_a_driver_without_a_kubelet_offers_nothing_and_is_not_ready(cluster: Cluster, tmp_path: Path) -> None:
    [port] = free_ports(1)
    flags = ("--node-name", "worker", "--root-dir", str(tmp_path / "k"), "--listen", f"127.0.0.1:{port}")
    cluster.kubectl("delete", "deviceclass,resourceslice", "--all")
    cluster.dragoman("driver", "example", *flags, "--no-device-classes").start()
    cluster.until(lambda: _status(port) == 503, "the driver to answer that it is not ready")
    assert cluster.all("ResourceSlice") == []
    assert cluster.all("DeviceClass") == []
    assert json.loads(cluster.kubectl("get", "node", "worker", "-o", "json").stdout)["metadata"]["name"] == "worker"
