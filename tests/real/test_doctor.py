"""Doctor on a real API server, with the rights of deploy/doctor.yaml and no others, which are rights to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.conftest import StartCluster
from tests.real.objects import device_class, pod_with_device, slice_of

pytestmark = pytest.mark.slow
ROLE = Path(__file__).parents[2] / "deploy" / "doctor.yaml"
WHO = "kube-system/the-doctor"


def test_least_rights_are_enough(start: StartCluster) -> None:
    cluster = start(scheduler="kube", controllers="kube", gates="DRADeviceTaints=false,DRADeviceTaintRules=false")
    cluster.node("worker")
    incomplete = slice_of("worker", devices=2)
    incomplete["spec"]["pool"]["resourceSliceCount"] = 2
    cluster.apply(device_class(), incomplete, *pod_with_device("train"))
    namespace, _, name = WHO.partition("/")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dragoman-doctor"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "the-doctor"},
        "subjects": [subject],
        "roleRef": role,
    }
    cluster.apply(account, *yaml.safe_load_all(ROLE.read_text()), binding)

    def doctor(*words: str) -> tuple[int, Any, str]:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig_of(WHO))}
        done = subprocess.run(
            [sys.executable, "-m", "dragoman.cli", *words], env=environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout, done.stderr

    status, report, said = doctor("doctor", "-o", "json")
    assert "not visible" not in said, said
    found = {finding["code"]: finding for finding in report["findings"]}
    assert found["PoolIncomplete"]["evidence"][0]["object"].startswith("pool ")
    assert not any(check.get("reason", "").endswith("may not be listed") for check in report["checks"])
    states = {check["code"]: check["state"] for check in report["checks"]}
    assert (states["KubernetesTooOld"], states["GatedField"], states["DRAOff"]) == ("ok", "ok", "ok")
    assert status == 0, report["findings"]

    status, _, said = doctor("record", "-o", str(cluster.folder / "record.json"))
    assert status == 0, said
    status, from_file, _ = doctor("doctor", "-f", str(cluster.folder / "record.json"), "-o", "json")
    assert [f["code"] for f in from_file["findings"]] == [f["code"] for f in report["findings"]]
