"""Our decisions beside kube-scheduler's, on the pods that it binds: live with a read-only kubeconfig, and from a record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.real import workload
from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.objects import Object
from tests.real.process import free_ports

pytestmark = pytest.mark.slow

PODS = int(os.environ.get("DRAGOMAN_TEST_PODS", "60"))
NODES = max(5, PODS // 10)
VIEWER: list[Object] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": "default"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "viewer"},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["nodes", "namespaces", "pods", "persistentvolumeclaims", "persistentvolumes"],
                "verbs": ["list", "watch"],
            },
            {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["list", "watch"]},
            {
                "apiGroups": ["scheduling.k8s.io"],
                "resources": ["priorityclasses", "podgroups"],
                "verbs": ["list", "watch"],
            },
            {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["list", "watch"]},
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
    },
]


@pytest.fixture
def fleet(start: StartCluster) -> Cluster:
    """kube-scheduler and kube-controller-manager, which leaves nodes without heartbeats alone."""
    without = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
    cluster = start(scheduler="kube", controllers="kube", flags={"controllers": (without,)})
    for number in range(NODES):
        cluster.node(f"node-{number}")
    cluster.apply(*workload.fleet(NODES), *workload.templates(), *VIEWER)
    cluster.until(lambda: cluster.find("Lease", "kube-scheduler", "kube-system"), "kube-scheduler to lead")
    return cluster


def run(cluster: Cluster, *command: str) -> dict[str, Any]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.folder)}
    argv = [sys.executable, "-m", "dragoman.cli", *command]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return found


def decided(cluster: Cluster) -> bool:
    return all(
        any(one["type"] == "PodScheduled" for one in made["status"].get("conditions", ()))
        for made in cluster.all("Pod", "default")
    )


def test_shadow_and_replay_beside_kube_scheduler(fleet: Cluster, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    shadow = fleet.dragoman("scheduler", "--shadow", "--listen", f"127.0.0.1:{port}", user="default/viewer").start()
    fleet.until(lambda: "watching" in shadow.log(), "the shadow to watch")
    made = list(workload.pods(PODS, seed=7))
    for first in range(0, PODS, 40):
        fleet.kubectl("create", "-f", "-", stdin="\n---\n".join(map(json.dumps, made[first : first + 40])))
    fleet.until(lambda: decided(fleet), "kube-scheduler to decide all pods", 180)
    bound = [one for one in fleet.all("Pod", "default") if one["spec"].get("nodeName")]

    def report() -> dict[str, Any]:
        with urlopen(f"{url}/shadow", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    fleet.until(lambda: report()["placements"] == len(bound), "all placements to be compared", 120)
    seen = run(fleet, "explain", "--shadow", url, "-o", "json")
    recording = tmp_path / "record.json"
    run(fleet, "record", "-o", str(recording))
    again = run(fleet, "simulate", "-f", str(recording), "--replay", "-o", "json")
    for name, found in (("shadow", seen), ("replay", again)):
        print(name, json.dumps({key: value for key, value in found.items() if key != "differences"}))
        print("\n".join(f"  {one['outcome']} {one['pod']}: {one['message']}" for one in found["differences"]))
    for found in (seen, again):
        assert found["placements"] == len(bound)
        assert found["claims"]["same"] >= 0.99 * found["claims"]["total"]
        assert found["agreeing"] >= 0.98 * len(bound)
    assert "Forbidden" not in shadow.log()
    text = subprocess.run(["curl", "-s", f"{url}/metrics"], capture_output=True, text=True, check=False).stdout
    assert 'dragoman_shadow_placements_total{outcome="same"}' in text
    shadow.stop()
