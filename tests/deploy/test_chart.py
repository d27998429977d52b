"""Is the chart what it says? Real helm renders it; what is made from it is current; roles say what rights.yaml says."""

from __future__ import annotations

import argparse
import importlib
import re
from typing import Any

import make_manifests
import pytest
import yaml

from tests.real.helm import CHART, KUBERNETES, VERSIONS, Helm

Object = dict[str, Any]
RIGHTS = yaml.safe_load(make_manifests.RIGHTS.read_text())
SIMULATED = {"enabled": True, "simulate": "dgx-h100"}
EVERYTHING: Object = {
    "controllers": {"enabled": True},
    "explainWatch": {"enabled": True},
    "exporter": {"enabled": True},
    "drivers": {"nvidia": {**SIMULATED, "featureGates": {"MPSSupport": True}}, "nic": SIMULATED},
    "scheduler": {"preemption": "nodes", "featureGates": {"DRAPartitionableDevices": False}, "names": ["a", "b"]},
    "imagePullSecrets": [{"name": "registry"}],
    "apiServer": {"host": "192.0.2.1", "port": 6443},
}


@pytest.fixture(params=VERSIONS)
def helm(request: pytest.FixtureRequest) -> Helm:
    return Helm(version=request.param)


VALUES: dict[str, Object] = {
    "as it is": {},
    "everything": EVERYTHING,
    "one scheduler, no election": {"scheduler": {"replicas": 1, "leaderElection": False}},
    "a driver alone": {"scheduler": {"enabled": False}, "drivers": {"nvidia": {"enabled": True}}},
}


@pytest.mark.parametrize("name", VALUES)
def test_lint(helm: Helm, name: str) -> None:
    helm("lint", "--strict", str(CHART), *KUBERNETES, values=VALUES[name])


REFUSED: dict[str, tuple[Object, str]] = {
    "a word misspelt": ({"schedular": {}}, "schedular"),
    "a nested word misspelt": ({"scheduler": {"replica": 2}}, "replica"),
    "no such policy": ({"scheduler": {"policy": "spread"}}, "first-fit"),
    "replicas that nobody elects": ({"scheduler": {"leaderElection": False, "replicas": 2}}, "replicas"),
    "a gate that is a word": ({"scheduler": {"featureGates": {"DRAConsumableCapacity": "yes"}}}, "boolean"),
    "adapters that are not simulated": ({"drivers": {"nic": {"enabled": True}}}, "simulate"),
    "a relative folder": ({"drivers": {"kubeletDir": "kubelet"}}, "kubeletDir"),
    "controllers that the chart does not run": ({"controllers": {"names": ["garbage"]}}, "claims"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_that_are_refused(helm: Helm, case: str) -> None:
    values, word = REFUSED[case]
    done = helm("template", "x", str(CHART), *KUBERNETES, values=values, ok=False)
    assert word in done.stderr


def _named(objects: list[Object], kind: str) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def test_nothing_is_outside_of_the_namespace_but_what_must_be(helm: Helm) -> None:
    for one in helm.template(EVERYTHING, namespace="elsewhere"):
        place = one["metadata"].get("namespace", "")
        assert place in ("", "elsewhere") or (place == "kube-system" and one["kind"] in ("Role", "RoleBinding"))


def test_roles_say_what_the_list_says(helm: Helm) -> None:
    objects = helm.template(EVERYTHING)
    daemons = {"scheduler": "scheduler", "controllers": "controllers", "explain": "explain", "exporter": "exporter"}
    daemons |= {"driver-nvidia": "driver", "driver-nic": "driver"}
    left_out = {"driver-nvidia": {"deviceClasses", "deviceStatus"}, "driver-nic": {"deviceClasses", "mps"}}
    for daemon, key in daemons.items():
        wanted = [rule for rule in RIGHTS[key] if rule.get("if") not in left_out.get(daemon, ())]
        found: list[tuple[str, Object]] = []
        for one in objects:
            if one["metadata"]["name"] == f"dragoman-{daemon}" and one["kind"] in ("Role", "ClusterRole"):
                found += [(one["metadata"].get("namespace", ""), dict(sorted(rule.items()))) for rule in one["rules"]]
        keys = ("apiGroups", "resourceNames", "resources", "verbs")
        places = {"release": "dragoman"}
        listed = [
            (places.get(rule.get("in", ""), rule.get("in", "")), {key: rule[key] for key in keys if key in rule})
            for rule in wanted
        ]
        assert sorted(map(str, found)) == sorted(map(str, listed))


def test_rights_fit_what_is_switched_on(helm: Helm) -> None:
    objects = helm.template({"drivers": {"nvidia": SIMULATED}})
    rules = _named(objects, "ClusterRole")["dragoman-driver-nvidia"]["rules"]
    assert not any("deviceclasses" in rule["resources"] or "namespaces" in rule["resources"] for rule in rules)
    assert "dragoman-driver-nvidia" not in _named(objects, "Role")
    alone = helm.template({"scheduler": {"leaderElection": False, "replicas": 1}})
    assert not _named(alone, "Lease")
    assert "--lease-name=" in str(_named(alone, "Deployment")["dragoman-scheduler"])


def test_no_pod_may_more_than_it_needs(helm: Helm) -> None:
    for one in helm.template(EVERYTHING):
        if one["kind"] not in ("Deployment", "DaemonSet"):
            continue
        pod = one["spec"]["template"]["spec"]
        [container] = pod["containers"]
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"]["drop"] == ["ALL"]
        assert pod["securityContext"].get("runAsNonRoot", False) == (one["kind"] == "Deployment")
        assert not pod.get("hostNetwork")
        assert not pod.get("hostPID")
        for probe in ("readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
        assert container["resources"]["limits"]["memory"]
    real = helm.template({"drivers": {"nvidia": {"enabled": True}}})
    [container] = _named(real, "DaemonSet")["dragoman-driver-nvidia"]["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["privileged"]


def test_what_is_installed_is_fenced(helm: Helm) -> None:
    objects = helm.template({"drivers": {"nvidia": SIMULATED}, "fence": {"drivers": ["gpu.example.com"]}})
    data = _named(objects, "ConfigMap")["dragoman-fence"]["data"]
    assert data["drivers"] == "gpu.example.com,gpu.nvidia.com"
    assert data["users"] == "system:serviceaccount:dragoman:dragoman-scheduler"
    assert not _named(helm.template(), "ConfigMap")


def test_flags_are_those_of_the_program(helm: Helm) -> None:
    """Every pod's command line is understood, up to what the machine lacks."""
    seen = 0
    for one in helm.template(EVERYTHING) + helm.template({"drivers": {"nvidia": {"enabled": True}}}):
        if one["kind"] in ("Deployment", "DaemonSet"):
            [container] = one["spec"]["template"]["spec"]["containers"]
            arguments = [re.sub(r"\$\((\w+)\)", r"\1", text) for text in container["args"]]
            module = importlib.import_module(f"dragoman.cli.{arguments[0]}")
            parser = argparse.ArgumentParser()
            module.arguments(parser)
            parser.parse_args(arguments[1:])
            seen += 1
    assert seen == 8


@pytest.mark.parametrize("path", [make_manifests.CLASSES, make_manifests.GUIDE, *make_manifests.MANIFESTS], ids=str)
def test_what_is_made_is_current(path: Any) -> None:
    Helm()  # skips where there is none
    made = {one.name: text for one, text in make_manifests.everything()}
    name = path if isinstance(path, str) else path.name
    file = make_manifests.DEPLOY / name if isinstance(path, str) else path
    assert file.read_text() == made[name], "run tools/make_manifests.py"
