"""Does a platform team's way work: helm on a real cluster, with the image, beside kube-scheduler, with pods running?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.real import helm as helm_of
from tests.real.conftest import StartCluster
from tests.real.helm import NAMESPACE, RELEASE, Helm
from tests.real.machine import Machine
from tests.real.objects import pod, template

pytestmark = pytest.mark.slow

WITHOUT = "--controllers=*,-resourceclaim-controller,-device-taint-eviction-controller"
VALUES: dict[str, Any] = {
    "image": {"pullPolicy": "Never"},
    "scheduler": {"replicas": 2},
    "controllers": {"enabled": True},
    "drivers": {"nvidia": {"enabled": True, "simulate": "dgx-h100"}},
}


@pytest.fixture
def machine(start: StartCluster, tmp_path: Path) -> Machine:
    made = start(scheduler="kube", controllers="kube", kubelet="kube", flags={"controllers": (WITHOUT,)})
    assert isinstance(made, Machine)
    made.import_image(helm_of.image(tmp_path / "image"))
    return made


def test_install_and_run(machine: Machine) -> None:
    helm = Helm(machine)
    try:
        helm.install(VALUES)
    except BaseException:
        print(helm_of.state(machine))
        raise
    claims = {"gpu": {"resourceClaimTemplateName": "two"}}
    machine.apply(template("two", count=2, class_name="gpu.nvidia.com"), pod("train", claims=claims, scheduler="dragoman"))
    machine.until(lambda: machine.get("Pod", "train")["status"].get("phase") == "Running", "train to run", 60)
