"""Does a platform team's way work: helm on a real cluster, with the image, beside kube-scheduler, with pods running?"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.real import helm as helm_of
from tests.real.conftest import StartCluster
from tests.real.helm import NAMESPACE, RELEASE, Helm
from tests.real.machine import NODE, Machine
from tests.real.objects import pod, template

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("DRAGOMAN_TEST_INSTALL"), reason="takes 3 minutes: `make real-install`"),
]

WITHOUT = "--controllers=*,-resourceclaim-controller,-device-taint-eviction-controller"
VALUES: dict[str, Any] = {
    "image": {"pullPolicy": "Never"},
    "scheduler": {"replicas": 2},
    "controllers": {"enabled": True},
    "drivers": {"nvidia": {"enabled": True, "simulate": "dgx-h100"}},
}
NEXT = "localhost/dragoman:next"
CLAIMS = {"gpu": {"resourceClaimTemplateName": "two"}}
KINDS = (
    *("namespaces", "serviceaccounts", "configmaps", "secrets", "deployments", "daemonsets", "pods", "leases"),
    *("clusterroles", "clusterrolebindings", "roles", "rolebindings", "deviceclasses", "resourceslices"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings", "resourceclaims", "resourceclaimtemplates"),
)


@pytest.fixture
def machine(start: StartCluster, tmp_path: Path) -> Machine:
    made = start(scheduler="kube", controllers="kube", kubelet="kube", flags={"controllers": (WITHOUT,)})
    assert isinstance(made, Machine)
    made.import_image(helm_of.image(tmp_path / "image"))
    return made


def _everything(machine: Machine) -> set[str]:
    """Names of all objects but events and what the cluster's own parts make as they like."""
    names = machine.kubectl("get", ",".join(KINDS), "-A", "-o", "name").stdout.split()
    return {name for name in names if "/kube-root-ca" not in name and "/apiserver-" not in name}


def _phase(machine: Machine, name: str) -> str:
    found = machine.find("Pod", name)
    return found["status"].get("phase", "") if found else "gone"


def _starts(machine: Machine, name: str) -> tuple[str, int]:
    """The container of a pod, and how often it was started."""
    [status] = machine.get("Pod", name)["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def _run_pod(machine: Machine, name: str) -> None:
    machine.apply(pod(name, claims=CLAIMS, scheduler="dragoman"))
    machine.until(lambda: _phase(machine, name) == "Running", f"{name} to run", 90)


def test_install_upgrade_rollback_uninstall(machine: Machine, tmp_path: Path) -> None:
    helm, before = Helm(machine), _everything(machine)
    machine.apply(template("two", count=2, class_name="gpu.nvidia.com"))
    try:
        helm.install(VALUES)
        _refuse_slices_of_others(machine)
        _run_pod(machine, "first")
        first = _starts(machine, "first")

        machine.import_image(helm_of.image(tmp_path / "next", NEXT))
        helm.install({**VALUES, "image": {"pullPolicy": "Never", "tag": "next"}}, "upgrade")
        images = {one["spec"]["containers"][0]["image"] for one in machine.all("Pod", NAMESPACE)}
        assert NEXT in images
        _run_pod(machine, "second")
        helm("rollback", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", "120s")
        _run_pod(machine, "third")
    except BaseException:
        print(helm_of.state(machine))
        raise
    assert _starts(machine, "first") == first
    devices = [device for device, holders in machine.held().items() if len(holders) == 1]
    assert len(devices) == 6

    helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", "120s")
    machine.until(lambda: not machine.all("Pod", NAMESPACE), "our pods to be gone")
    assert _starts(machine, "first") == first
    assert _phase(machine, "first") == "Running"
    assert len(machine.held()) == 6

    helm.install(VALUES)  # what was prepared is known again
    machine.kubectl("delete", "pod", "first", "second", "third", "--wait=true", "--timeout=60s")
    machine.until(lambda: not machine.held(), "the devices to be free")
    _run_pod(machine, "fourth")
    machine.kubectl("delete", "pod", "fourth", "--wait=true", "--timeout=60s")
    machine.kubectl("delete", "resourceclaimtemplate", "two")
    machine.until(lambda: not machine.all("ResourceClaim"), "the claims to be gone")
    helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", "120s")
    machine.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=60s")
    machine.until(lambda: not machine.all("ResourceSlice"), "the kubelet to remove the slices", 90)
    machine.until(lambda: _everything(machine) == before, f"{_everything(machine) ^ before} to be gone")
    assert machine.inside("ls", "/var/run/cdi").stdout.split() == []
    assert machine.inside("ls", "/var/lib/kubelet/plugins_registry").stdout.split() == []


def _refuse_slices_of_others(machine: Machine) -> None:
    """The admission policy keeps the driver to its name and node."""
    selector = "app.kubernetes.io/name=dragoman-driver-nvidia"
    found = machine.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "name").stdout.split()[0]
    token = ("--token", _token(machine, found.removeprefix("pod/")))
    account = f"system:serviceaccount:{NAMESPACE}:dragoman-driver-nvidia"

    def answer(driver: str, node: str = NODE, who: tuple[str, ...] = token) -> str:
        spec = {"driver": driver, "nodeName": node, "devices": []}
        spec["pool"] = {"name": "try", "generation": 1, "resourceSliceCount": 1}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "try"}, "spec": spec}
        return _create(machine, body, who)

    assert "created" in answer("gpu.nvidia.com")
    assert "writes slices of gpu.nvidia.com only" in answer("gpu.example.com")
    assert "of its own node only" in answer("gpu.nvidia.com", node="other")
    assert "names no node" in answer("gpu.nvidia.com", who=("--as", account, "--as-group=system:authenticated"))


def _token(machine: Machine, name: str) -> str:
    """A token as the driver's pod has it, bound to that pod."""
    flags = ("--bound-object-kind=Pod", f"--bound-object-name={name}", "-n", NAMESPACE)
    return machine.kubectl("create", "token", "dragoman-driver-nvidia", *flags).stdout.strip()


def _create(machine: Machine, body: dict[str, Any], who: tuple[str, ...]) -> str:
    if who[0] == "--token":
        path = machine.folder / "driver.kubeconfig"
        machine._write_kubeconfig(path, who[1])
        who = ("--kubeconfig", str(path))
    done = machine.kubectl("create", "-f", "-", *who, "--dry-run=server", stdin=json.dumps(body), ok=None)
    return done.stdout + done.stderr
