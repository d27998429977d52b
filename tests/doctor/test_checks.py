"""Does each check of doctor find what it is for, and stay silent where nothing is wrong?"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from dragoman.api import files
from dragoman.doctor.check import BLOCKER, INFO, CheckResult, examine
from dragoman.doctor.state import ExaminedCluster, ServerFacts
from dragoman.doctor.table import CHECKS
from dragoman.drivers.registry import DRIVERS, known_drivers
from dragoman.snapshot.change import HELD, Snapshot
from dragoman.testing.build import (
    Manifest,
    allocated,
    claim,
    device,
    device_class,
    gpus,
    manifest,
    node,
    pod,
    pool,
    request,
)

GPU = "gpu.nvidia.com"
CD = "compute-domain.nvidia.com"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SERVER = ServerFacts("v1.36.2", "v1", {}, None)


def state(*objects: Manifest, server: ServerFacts = SERVER) -> ExaminedCluster:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    documents = tuple(files.read(text, "dump.json"))
    held = [(d.kind_name, d.value) for d in documents if d.kind_name in HELD]
    checks = {entry.name: entry.gates.check for entry in DRIVERS if entry.gates is not None}
    return ExaminedCluster(
        "dump.json", documents, Snapshot.from_objects(held), NOW, server, known_drivers(), checks, {}
    )


def result(code: str, given: ExaminedCluster) -> CheckResult:
    (check,) = (check for check in CHECKS if check.code == code)
    return examine(given, [check]).results[0]


def running(name: str, *, kubelet: str = "v1.36.1", runtime: str = "containerd://2.1.4", **rest: Any) -> Manifest:
    made = node(name, **rest)
    made["status"] |= {"nodeInfo": {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}}
    return made


def daemon_set(name: str, image: str, namespace: str = "gpu", **spec: Any) -> Manifest:
    status = spec.pop("status", {})
    container = {"name": "main", "image": image, **spec.pop("container", {})}
    body = {"containers": [container], **spec}
    template_ = {"metadata": {"labels": {"app": name}}, "spec": body}
    selector = {"matchLabels": {"app": name}}
    return manifest(
        "DaemonSet", name, namespace=namespace, spec={"selector": selector, "template": template_}, status=status
    )


def custom(kind: str, api: str, name: str, **rest: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **rest}


def policy(**rest: Any) -> Manifest:
    return custom("ClusterPolicy", "nvidia.com/v1", "cluster-policy", **rest)


def cluster(**rest: Any) -> Manifest:
    return custom("GPUCluster", "nvidia.com/v1alpha1", "gpu-cluster", **rest)


def domain(status: str) -> Manifest:
    made = custom("ComputeDomain", "resource.nvidia.com/v1beta1", "nvl", status={"status": status})
    made["metadata"]["namespace"] = "train"
    return made


def nvidia_gpus(where: str, driver: str = "580.95.5", kind: str = "gpu", count: int = 1) -> Manifest:
    made = pool(where, [device(f"{kind}-{i}", type=kind) for i in range(count)], node=where, driver=GPU)
    for entry in made["spec"]["devices"]:
        entry["attributes"]["driverVersion"] = {"version": driver}
    return made


def binding(role: str, kind: str, name: str) -> Manifest:
    subject = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    ref = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    return manifest("ClusterRoleBinding", f"{role}-{name}", subjects=[subject], roleRef=ref)


def role(name: str, *resources: str) -> Manifest:
    rule = {"apiGroups": ["resource.k8s.io"], "resources": list(resources), "verbs": ["create", "patch"]}
    return manifest("ClusterRole", name, rules=[rule])


def tagged(made: Manifest, **labels: str) -> Manifest:
    made["metadata"].setdefault("labels", {}).update({key.replace("__", "/"): value for key, value in labels.items()})
    return made


OPAQUE = {"opaque": {"driver": GPU, "parameters": {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}}}
HOOK = manifest(
    "ValidatingWebhookConfiguration",
    "hook",
    webhooks=[{"name": "a.example", "rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"]}]}],
)
NO_HOOK = manifest("ValidatingWebhookConfiguration", "other", webhooks=[])
SOCKETS = [{"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}]
APISERVER = {"component": "kube-apiserver"}


def part(name: str, *flags: str) -> Manifest:
    made = pod(f"{name}-cp", namespace="kube-system")
    made["spec"]["containers"] = [
        {"name": name, "image": f"registry.example/{name}:v1.36.2", "command": [name, *flags]}
    ]
    return made


def unschedulable() -> Manifest:
    made = claim("late", count=2)
    made["metadata"]["creationTimestamp"] = "2026-11-30T11:00:00Z"
    return made


def young() -> Manifest:
    made = claim("late", count=2)
    made["metadata"]["creationTimestamp"] = "2026-11-30T11:59:00Z"
    return made


def not_ready(name: str) -> Manifest:
    made = running(name)
    made["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
    return made


def advertising(name: str, **labels: str) -> Manifest:
    made = tagged(running(name), **labels)
    made["status"] |= {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"}}
    return made


def gated(driver: str, **gates: str) -> Manifest:
    value = ",".join(f"{name}={on}" for name, on in gates.items())
    return daemon_set("plugin", driver, container={"env": [{"name": "FEATURE_GATES", "value": value}]})


def tainted() -> Manifest:
    made = gpus("a", 2)
    made["spec"]["devices"][1]["taints"] = [{"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule"}]
    return made


def privileged(namespace: str) -> Manifest:
    return daemon_set("plugin", "a/b:1", namespace, container={"securityContext": {"privileged": True}})


def quota(**hard: str) -> Manifest:
    return manifest("ResourceQuota", "q", namespace="team", spec={"hard": hard})


def with_admin(name: str) -> Manifest:
    return tagged(manifest("Namespace", name), resource__x="")


ADMIN_NAMESPACE = manifest("Namespace", "ops", metadata={"labels": {"resource.kubernetes.io/admin-access": "true"}})
ADMIN_CLAIM = claim("watch", request(adminAccess=True), namespace="ops")
DRIVER_IMAGE = "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.5.1"


class Case(NamedTuple):
    """What provokes a check, what is right, and the words that must stand in the message."""

    wrong: ExaminedCluster
    right: ExaminedCluster
    words: str
    severity: str = ""


def fact(**facts: Any) -> ServerFacts:
    return ServerFacts(**{"version": "v1.36.2", "api": "v1", "gates": {}, "kinds": None, **facts})


CASES: dict[str, Case] = {
    "KubernetesTooOld": Case(
        state(running("a", kubelet="v1.33.4")), state(running("a", kubelet="v1.34.2+k3s1")), "Node a is v1.33.4"
    ),
    "KubernetesDefect": Case(
        state(running("a"), server=fact(version="v1.34.1")), state(running("a")), "API server is v1.34.1", BLOCKER
    ),
    "OldResourceAPI": Case(state(server=fact(api="v1beta1")), state(), "resource.k8s.io/v1beta1"),
    "VersionSkew": Case(
        state(running("a", kubelet="v1.37.0")), state(running("a", kubelet="v1.35.0")), "newer than the API server"
    ),
    "DRAOff": Case(
        state(part("kube-scheduler", "--feature-gates=DynamicResourceAllocation=false")),
        state(part("kube-scheduler", "--v=2")),
        "is off in Pod kube-system/kube-scheduler-cp",
    ),
    "GatesDiffer": Case(
        state(
            part("kube-scheduler", "--feature-gates=DRADeviceTaints=false"),
            server=fact(gates={"DRADeviceTaints": True}),
        ),
        state(
            part("kube-scheduler", "--feature-gates=DRADeviceTaints=true"), server=fact(gates={"DRADeviceTaints": True})
        ),
        "DRADeviceTaints is on in API server (kubernetes_feature_enabled) and off in Pod kube-system/kube-scheduler-cp",
    ),
    "GatedField": Case(
        state(tainted(), server=fact(gates={"DRADeviceTaints": False})),
        state(tainted(), server=fact(gates={"DRADeviceTaints": True})),
        "DRADeviceTaints",
    ),
    "RuntimeWithoutCDI": Case(
        state(running("a", runtime="containerd://1.6.36")), state(running("a")), "containerd://1.6.36", BLOCKER
    ),
    "DriverTooOld": Case(state(nvidia_gpus("a", "550.54.15")), state(nvidia_gpus("a")), "needs 565", BLOCKER),
    "AdvertisedTwice": Case(
        state(advertising("a"), nvidia_gpus("a")),
        state(advertising("b"), running("a"), nvidia_gpus("a")),
        "allocated twice",
        BLOCKER,
    ),
    "PoolIncomplete": Case(
        state(pool("a", [device("x")], node="a", pool={"name": "a", "generation": 3, "resourceSliceCount": 2})),
        state(gpus("a", 1)),
        "1 of 2 slices of generation 3",
    ),
    "PoolInvalid": Case(
        state(pool("a", [device("x"), device("x")], node="a")), state(gpus("a", 2)), "duplicate device x"
    ),
    "DeviceAllocatedTwice": Case(
        state(gpus("a", 1), allocated("one", "gpu-0", pool="a"), allocated("two", "gpu-0", pool="a")),
        state(gpus("a", 2), allocated("one", "gpu-0", pool="a"), allocated("two", "gpu-1", pool="a")),
        "default/one, default/two",
    ),
    "SliceWithoutNode": Case(state(node("a"), gpus("gone", 1)), state(node("a"), gpus("a", 1)), "node gone"),
    "GPUNodeWithoutSlice": Case(
        state(tagged(running("a"), **{"nvidia.com__gpu.present": "true"})),
        state(advertising("a", **{"nvidia.com__gpu.present": "true"})),
        "node a has GPUs",
    ),
    "DriverPodsNotReady": Case(
        state(daemon_set("p", "x:1", volumes=SOCKETS, status={"desiredNumberScheduled": 4, "numberReady": 3})),
        state(daemon_set("p", "x:1", volumes=SOCKETS, status={"desiredNumberScheduled": 4, "numberReady": 4})),
        "3 of 4 pods",
    ),
    "DeviceNodeNotReady": Case(
        state(not_ready("a"), gpus("a", 1)), state(not_ready("b"), running("a"), gpus("a", 1)), "KubeletNotReady"
    ),
    "OperatorKindsExclude": Case(state(policy(), cluster()), state(policy()), "are both there"),
    "OperatorNotReady": Case(
        state(cluster(status={"state": "notReady"})), state(cluster(status={"state": "ready"})), "is notReady"
    ),
    "OperatorNeedsKubernetes": Case(
        state(cluster(), server=fact(version="v1.34.0")), state(cluster()), "needs Kubernetes 1.34.2"
    ),
    "TwoDriverReleases": Case(
        state(daemon_set("one", DRIVER_IMAGE), daemon_set("two", DRIVER_IMAGE, "other")),
        state(daemon_set("one", DRIVER_IMAGE)),
        "DaemonSet gpu/one, DaemonSet other/two",
    ),
    "DriverLineEnded": Case(
        state(daemon_set("one", "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.8.0")),
        state(daemon_set("one", DRIVER_IMAGE)),
        "v25.8.0"[1:],
    ),
    "DriverGatesExclude": Case(
        state(gated(DRIVER_IMAGE, DynamicMIG="true", MPSSupport="true")),
        state(gated(DRIVER_IMAGE, DynamicMIG="true")),
        "DynamicMIG and MPSSupport exclude each other",
    ),
    "MIGConfigFailed": Case(
        state(tagged(running("a"), **{"nvidia.com__mig.config": "all-1g", "nvidia.com__mig.config.state": "failed"})),
        state(tagged(running("a"), **{"nvidia.com__mig.config": "all-1g", "nvidia.com__mig.config.state": "success"})),
        "all-1g could not be applied on node a",
    ),
    "DriverUpgradeFailed": Case(
        state(tagged(running("a"), **{"nvidia.com__gpu-driver-upgrade-state": "upgrade-failed"})),
        state(tagged(running("a"), **{"nvidia.com__gpu-driver-upgrade-state": "upgrade-done"})),
        "upgrade of node a",
    ),
    "CliqueMissing": Case(
        state(domain("Ready"), running("a"), pool("a", [device("channel-0")], node="a", driver=CD)),
        state(
            domain("Ready"),
            tagged(running("a"), **{"nvidia.com__gpu.clique": "x.1"}),
            pool("a", [device("channel-0")], node="a", driver=CD),
        ),
        "nvidia.com/gpu.clique",
    ),
    "ComputeDomainNotReady": Case(state(domain("NotReady")), state(domain("Ready")), "train/nvl is NotReady"),
    "AutoscalerBlind": Case(
        state(
            domain("Ready"),
            manifest("Deployment", "karpenter", namespace="karpenter", spec={"selector": {}, "template": {}}),
        ),
        state(manifest("Deployment", "karpenter", namespace="karpenter", spec={"selector": {}, "template": {}})),
        "Karpenter",
    ),
    "Platform": Case(
        state(
            running("a"),
            custom("ClusterVersion", "config.openshift.io/v1", "version", status={"desired": {"version": "4.20.3"}}),
        ),
        state(
            running("a"),
            custom("ClusterVersion", "config.openshift.io/v1", "version", status={"desired": {"version": "4.22.1"}}),
        ),
        "OpenShift 4.20.3",
        BLOCKER,
    ),
    "UnknownAttribute": Case(
        state(
            gpus("a", 1),
            device_class("c", selectors=[{"cel": {"expression": "device.attributes['gpu.example.com'].nope == 1"}}]),
        ),
        state(gpus("a", 1), device_class("c")),
        "nope",
    ),
    "NeverTrue": Case(
        state(
            gpus("a", 1),
            device_class("c", selectors=[{"cel": {"expression": "device.attributes['gpu.example.com'].index > 7"}}]),
        ),
        state(gpus("a", 1), device_class("c")),
        "matches 0 of 1",
    ),
    "SelectorFails": Case(
        state(
            pool("a", [device("x", fast=True), device("y")], node="a"),
            device_class("c", selectors=[{"cel": {"expression": "device.attributes['gpu.example.com'].fast"}}]),
        ),
        state(
            pool("a", [device("x", fast=True)], node="a"),
            device_class("c", selectors=[{"cel": {"expression": "device.attributes['gpu.example.com'].fast"}}]),
        ),
        "fast",
    ),
    "ClassWithoutSelectors": Case(state(device_class("c", selectors=[])), state(device_class("c")), "all drivers"),
    "ClassMixesTypes": Case(
        state(pool("a", [device("x", type="gpu"), device("y", type="mig")], node="a"), device_class("c")),
        state(pool("a", [device("x", type="gpu")], node="a"), device_class("c")),
        "gpu, mig",
    ),
    "ExtendedNameTwice": Case(
        state(device_class("c", extended="x.example/gpu"), device_class("d", extended="x.example/gpu")),
        state(device_class("c", extended="x.example/gpu"), device_class("d", extended="x.example/other")),
        "classes c, d all serve",
    ),
    "ClassNamedAfterModel": Case(
        state(device_class("gpu-a100-large")), state(device_class("realtime-inference")), "(A100)", INFO
    ),
    "WaitingClaims": Case(
        state(unschedulable(), pod("p", "late")),
        state(young(), pod("p", "late")),
        "has waited for devices for 60 min (pods: default/p)",
    ),
    "UnknownClaim": Case(
        state(pod("p", "train-gpus"), claim("train-gpu")),
        state(pod("p", "train-gpu"), claim("train-gpu")),
        "train-gpus",
    ),
    "UnusedClaim": Case(
        state(
            {
                **pod("p", "c"),
                "spec": {
                    "containers": [{"name": "m", "image": "x:1"}],
                    "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
                },
            },
            claim("c"),
        ),
        state(pod("p", "c"), claim("c")),
        "no container names this claim",
    ),
    "NodeLabelMissing": Case(
        state(running("a"), pod("p", nodeSelector={"nvidia.com/gpu.memory": "81559"})),
        state(
            tagged(running("a"), **{"nvidia.com__gpu.memory": "81559"}),
            pod("p", nodeSelector={"nvidia.com/gpu.memory": "81559"}),
        ),
        "no node has the label nvidia.com/gpu.memory",
    ),
    "LargerThanAnyNode": Case(
        state(node("a"), gpus("a", 2), device_class(), claim("c", count=4)),
        state(node("a"), gpus("a", 4), device_class(), claim("c", count=4)),
        "asks for 4 devices",
    ),
    "WrongConfig": Case(
        state(
            claim(
                "c",
                config=[
                    {
                        "opaque": {
                            "driver": GPU,
                            "parameters": {"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig"},
                        }
                    }
                ],
            )
        ),
        state(claim("c", config=[OPAQUE])),
        "gpu.nvidia.com/v1alpha1",
    ),
    "NotTogether": Case(
        state(claim("c", request(device_class="compute-domain-daemon.nvidia.com"))),
        state(claim("c", request(device_class="gpu.nvidia.com"))),
        "compute-domain-daemon",
    ),
    "TooManyConsumers": Case(
        state(
            {
                **pod("p"),
                "spec": {
                    "containers": [{"name": "m", "image": "x:1", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]
                },
            }
        ),
        state(pod("p", extended={"nvidia.com/gpu": "1"})),
        "equal limit",
    ),
    "TwoSchedulers": Case(
        state(pod("p", "c", schedulerName="other"), pod("q", "c"), claim("c")),
        state(pod("p", "c"), pod("q", "c"), claim("c"), pod("r", schedulerName="other")),
        "default-scheduler (1 pods), other (1 pods)",
    ),
    "WideRights": Case(
        state(role("devs", "deviceclasses"), binding("devs", "Group", "system:authenticated")),
        state(role("devs", "resourceclaims"), binding("devs", "Group", "system:authenticated")),
        "Group system:authenticated may write deviceclasses",
        BLOCKER,
    ),
    "AdminNamespace": Case(
        state(ADMIN_NAMESPACE), state(manifest("Namespace", "ops"), ADMIN_CLAIM), "no claim there uses it"
    ),
    "NoQuota": Case(
        state(claim("c", namespace="team"), quota(**{"requests.nvidia.com/gpu": "8"})),
        state(claim("c", namespace="team"), quota(**{"count/resourceclaims.resource.k8s.io": "8"})),
        "its quota on requests.nvidia.com/gpu counts no claims",
    ),
    "NoWebhook": Case(state(claim("c", config=[OPAQUE]), NO_HOOK), state(claim("c", config=[OPAQUE]), HOOK), GPU),
    "DriverInDefault": Case(
        state(privileged("default")), state(privileged("gpu-operator")), "DaemonSet default/plugin"
    ),
    "NoExporter": Case(
        state(daemon_set("p", "x:1")),
        state(daemon_set("p", "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0")),
        "none of 1 containers",
    ),
    "TaintsEverything": Case(
        state(
            manifest("DeviceTaintRule", "r", spec={"deviceSelector": {}, "taint": {"key": "k", "effect": "NoSchedule"}})
        ),
        state(
            manifest(
                "DeviceTaintRule",
                "r",
                spec={"deviceSelector": {"driver": GPU}, "taint": {"key": "k", "effect": "NoSchedule"}},
            )
        ),
        "r",
    ),
    "DeviceTainted": Case(
        state(tainted()), state(gpus("a", 2)), "gpu.example.com/a/gpu-1 is tainted: gpu.example.com/xid=79"
    ),
}


def test_each_check_that_can_judge_has_a_case_here() -> None:
    assert [check.code for check in CHECKS if check.find is not None] == list(CASES)


@pytest.mark.parametrize("code", CASES)
def test_it_finds_what_it_is_for(code: str) -> None:
    case = CASES[code]
    found = result(code, case.wrong)
    assert found.state == "found", found
    first = found.findings[0]
    assert case.words in first.message
    assert case.severity in ("", first.severity)
    assert first.evidence[0].object, "evidence names an object"
    assert first.evidence[0].field, "and a field"
    assert first.fix or first.severity == INFO


@pytest.mark.parametrize("code", CASES)
def test_it_is_silent_where_nothing_is_wrong(code: str) -> None:
    assert result(code, CASES[code].right).findings == ()


def test_what_may_not_be_seen_is_not_checked() -> None:
    seen = fact(kinds=frozenset({"Node"}), hidden=frozenset({"ClusterRole", "ClusterRoleBinding"}))
    found = result("WideRights", state(node("a"), server=seen))
    assert (found.state, found.not_checked) == ("not checked", "clusterroles, clusterrolebindings may not be listed")


def test_a_report_counts_and_blocks() -> None:
    report = examine(CASES["KubernetesTooOld"].wrong, CHECKS)
    assert report.blocked
    assert report.findings[0].severity == BLOCKER
    assert not examine(state(running("a")), CHECKS).blocked


def test_the_evidence_is_capped_and_counted() -> None:
    old = [running(f"n{i}", kubelet="v1.33.0") for i in range(40)]
    (finding,) = result("KubernetesTooOld", state(*old)).findings
    assert (len(finding.evidence), finding.total) == (10, 40)
    assert "(and 39 more)" in finding.message


def test_codes_of_lint_mean_what_they_mean_there() -> None:
    given = CASES["NeverTrue"].wrong
    (from_lint,) = (f for f in given.lint if f.code == "NeverTrue")
    assert from_lint.message in result("NeverTrue", given).findings[0].message
