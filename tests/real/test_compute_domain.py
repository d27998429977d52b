"""Does the controller of ComputeDomains work on a real API server, with the rights that its manifest gives it?"""

from __future__ import annotations

from typing import Any

import make_compute_domain
import pytest

from tests.real.conftest import StartCluster

pytestmark = pytest.mark.slow

UID = "resource.nvidia.com/computeDomain"
NAMESPACE = "nvidia-dra-driver-gpu"


def domain(name: str) -> dict[str, Any]:
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}}
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"channel": channel},
    }


def test_objects_of_a_domain_come_and_go(start: StartCluster) -> None:
    cluster = start()

    def kubectl(*arguments: str) -> str:
        return cluster.kubectl(*arguments).stdout

    kubectl("apply", "-f", str(make_compute_domain.FILE))
    kubectl("wait", "--for=condition=Established", "crd/computedomains.resource.nvidia.com", "--timeout=30s")
    account = f"{NAMESPACE}/compute-domain-controller-service-account"
    ours = cluster.dragoman("driver", "compute-domain-controller", "--lease-name=", user=account).start()
    cluster.node("tray-0")
    cluster.apply(domain("train"))

    def status() -> str:
        return kubectl("get", "computedomain", "train", "-o", "jsonpath={.status.status}")

    cluster.until(lambda: status() == "Ready", "the domain to be Ready")
    uid = kubectl("get", "computedomain", "train", "-o", "jsonpath={.metadata.uid}")
    names = kubectl("get", "daemonsets,resourceclaimtemplates", "-A", "-o", "name").split()
    assert sorted(names) == [
        f"daemonset.apps/computedomain-daemon-{uid}",
        f"resourceclaimtemplate.resource.k8s.io/computedomain-daemon-{uid}",
        "resourceclaimtemplate.resource.k8s.io/train-channel",
    ]
    kubectl("label", "node", "tray-0", f"{UID}={uid}")
    kubectl("delete", "computedomain", "train", "--timeout=60s")
    assert kubectl("get", "daemonsets,resourceclaimtemplates", "-A", "-o", "name").split() == []
    assert kubectl("get", "nodes", "-l", UID, "-o", "name").split() == []
    ours.kill()
