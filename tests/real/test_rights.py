"""Rights on a real API server: the chart's suffice and each is used; what is missing is said, and reported later."""

from __future__ import annotations

import json
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import make_manifests
import pytest
import yaml

from tests.real import audit
from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.helm import Helm
from tests.real.objects import claim, device_class, pod, pod_with_device, slice_of, template
from tests.real.process import Process, free_ports
from tests.real.test_gangs import condition, gang

pytestmark = pytest.mark.slow

GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
WITHOUT = "--controllers=*,-resourceclaim-controller,-device-taint-eviction-controller"

EVERYTHING: dict[str, Any] = {
    "scheduler": {"replicas": 1, "preemption": "nodes", "featureGates": GATES},
    "controllers": {"enabled": True},
    "explainWatch": {"enabled": True},
    "exporter": {"enabled": True},
    "drivers": {
        "nvidia": {"enabled": True, "simulate": "dgx-h100", "featureGates": {"MPSSupport": True}},
        "nic": {"enabled": True, "simulate": "dgx-h100"},
    },
}
"""Values of the chart with which every right of the list is given."""


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


# ---- exactly the chart's rights

ROLES = ("Role", "ClusterRole")
RBAC = (*ROLES, "RoleBinding", "ClusterRoleBinding", "ServiceAccount", "Lease", "DeviceClass", "ConfigMap")
FENCES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
NAMESPACE = "dragoman"


def installed(cluster: Cluster) -> dict[str, Process]:
    """The chart's daemons as processes: their flags and rights are the chart's, by their names."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    objects = Helm().template(EVERYTHING)
    cluster.apply(*(one for one in objects if one["kind"] in (*RBAC, *FENCES)))
    found = {}
    for one in objects:
        if one["kind"] not in ("Deployment", "DaemonSet"):
            continue
        name = one["metadata"]["name"].removeprefix("dragoman-")
        [container] = one["spec"]["template"]["spec"]["containers"]
        arguments = [
            text for text in container["args"] if not text.startswith(("--listen", "--log-format", "--pod-uid"))
        ]
        command, *flags = [text.replace("$(NODE_NAME)", "worker").replace("$(POD_NAME)", "one") for text in arguments]
        found[name] = cluster.dragoman(command, *flags, name=f"dragoman-{name}", user=f"{NAMESPACE}/dragoman-{name}")
    return found


def driver_of(cluster: Cluster, process: Process, folder: Path) -> Process:
    """The driver beside an agent with that folder, with a token that is bound to the node as that of its pod is."""
    account = process.name
    flags = ("--bound-object-kind=Node", "--bound-object-name=worker", "-n", NAMESPACE)
    token = cluster.kubectl("create", "token", account, *flags).stdout.strip()
    cluster._write_kubeconfig(cluster.kubeconfig_of(f"{NAMESPACE}/{account}"), token)
    keep = [one for one in process.command if not one.startswith(("--root-dir", "--cdi-dir"))]
    process.command = [*keep, f"--root-dir={folder}"]
    return process.start()


MPS = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}


def mps_template() -> dict[str, Any]:
    """A template of claims for a GPU that is shared by MPS."""
    made = template("mps", class_name="gpu.nvidia.com")
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": MPS}
    made["spec"]["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
    return made


def no_binding() -> list[dict[str, Any]]:
    """A policy by which pods named `unbound` are bound by nobody."""
    api = "admissionregistration.k8s.io/v1"
    resource = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    spec = {
        "matchConstraints": {"resourceRules": [resource]},
        "validations": [{"expression": "request.name != 'unbound'", "message": "not this one"}],
    }
    policy = {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-binding"}, "spec": spec}
    binding = {
        **policy,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": "no-binding", "validationActions": ["Deny"]},
    }
    return [policy, binding]


def is_running(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get("Pod", name)["status"].get("phase") == "Running")


def test_the_rights_of_the_chart_suffice_and_each_is_used(start: StartCluster, tmp_path: Path) -> None:
    gates = ",".join(f"{name}=true" for name in GATES)
    runtime = ("--runtime-config=scheduling.k8s.io/v1beta1=true", *audit.flags(tmp_path, NAMESPACE))
    cluster = start(controllers="kube", gates=gates, flags={"apiserver": runtime, "controllers": (WITHOUT,)})
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))  # sockets lie below it
    try:
        _use_every_right(cluster, folder)
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
    asked, forbidden = audit.read(tmp_path)
    assert forbidden == []
    roles = [one for one in Helm().template(EVERYTHING) if one["kind"] in ROLES]
    left = []
    for account in sorted({one["metadata"]["name"] for one in roles}):
        left += audit.unused([one for one in roles if one["metadata"]["name"] == account], asked.get(account, set()))
    assert left == []


def _use_every_right(cluster: Cluster, folder: Path) -> None:
    agent = cluster.dragoman("node-agent", "--node-name", "worker", "--root-dir", str(folder), "--simulate", "dgx-h100")
    agent.start()
    cluster.until(lambda: cluster.find("Node", "worker"), "the node")
    daemons = installed(cluster)
    cluster.apply(rival(), *no_binding())  # long before it is needed: a policy is in force some seconds later
    for name, process in daemons.items():
        driver_of(cluster, process, folder) if name.startswith("driver-") else process.start()
    cluster.until(lambda: len(cluster.all("ResourceSlice")) >= 2, "the drivers to publish", 60)

    # A pod with GPUs, one with an adapter, one that shares a GPU by MPS, one with an extended resource.
    gpu = {"gpu": {"resourceClaimTemplateName": "gpu"}}
    nic = {"nic": {"resourceClaimTemplateName": "nic"}}
    shared = {"gpu": {"resourceClaimTemplateName": "mps"}}
    cluster.apply(
        template("gpu", class_name="gpu.nvidia.com"),
        template("nic", class_name="dranet.net"),
        template("all", count=9, class_name="gpu.nvidia.com"),
        mps_template(),
        pod("plain", claims=gpu, scheduler="dragoman"),
        pod("wired", claims=nic, scheduler="dragoman"),
        pod("shares", claims=shared, scheduler="dragoman"),
        extended("extended"),
    )
    names = ("plain", "wired", "shares", "extended")
    cluster.until(lambda: all(is_running(cluster, name) for name in names), "the pods to run", 90)
    # A volume that is there is kept for its claim; for another the node is named, where somebody is to make it.
    cluster.apply(*volumes("worker"), mounting("stores", "kept"), mounting("waits", "made"))
    cluster.until(lambda: is_running(cluster, "stores"), "a pod with a volume to run", 60)
    cluster.until(lambda: SELECTED in annotations(cluster, "made"), "the node to be named", 60)
    # What others did to the drivers' slices is put right.
    mine = next(one for one in cluster.all("ResourceSlice") if one["spec"]["driver"] == "gpu.nvidia.com")
    wired = next(one for one in cluster.all("ResourceSlice") if one["spec"]["driver"] == "dra.net")
    for one in (mine, wired):
        name = one["metadata"]["name"]
        cut = '[{"op": "remove", "path": "/spec/devices/0"}]'
        cluster.kubectl("patch", "resourceslice", name, "--type=json", "-p", cut)
        cluster.apply(slice_of("worker", devices=1, driver=one["spec"]["driver"], pool=EXTRA))
    cluster.until(lambda: all(is_as(cluster, one) for one in (mine, wired)), "the slices to be as they were")
    cluster.until(lambda: len(cluster.all("ResourceSlice")) == 2, "the slices that nobody published to be gone")
    # Reservations for what does not exist; a claim that cannot be made.
    cluster.apply(claim("ghosts", class_name="gpu.nvidia.com"), *pod_with_claim("haunted", "ghosts"))
    cluster.until(lambda: is_running(cluster, "haunted"), "haunted to run")
    [real] = cluster.get("ResourceClaim", "ghosts")["status"]["reservedFor"]
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "ghost", "uid": "2"}
    ghosts = [{"resource": "pods", "name": "ghost", "uid": "1"}, group]
    cluster.status("ResourceClaim", "ghosts", {"reservedFor": [real, *ghosts]})
    cluster.until(
        lambda: cluster.get("ResourceClaim", "ghosts")["status"]["reservedFor"] == [real], "the ghosts to be gone"
    )
    cluster.apply(pod("early", claims={"gpu": {"resourceClaimTemplateName": "none-yet"}}, scheduler="dragoman"))
    cluster.until(lambda: any(one.get("count", 1) > 1 for one in events(cluster, "early")), "an event to be repeated")
    # One that does not fit, of which pod and events say why; gangs; one that is never bound.
    cluster.apply(
        pod("large", claims={"gpu": {"resourceClaimTemplateName": "all"}}, scheduler="dragoman"),
        *group_with_claim("group"),
    )
    cluster.until(lambda: condition(cluster, "group")[0] == "True", "the gang to be placed", 60)
    cluster.apply(extended("unbound"))
    cluster.until(
        lambda: "not this one" in daemons["scheduler"].log() + str(events(cluster, "unbound")), "a refusal", 60
    )
    cluster.until(lambda: any(one.get("count", 1) > 1 for one in events(cluster, "unbound")), "the same again")
    cluster.kubectl("delete", "pod", "unbound", "--wait=false")
    cluster.until(lambda: events_of(cluster, "large"), "the reason", 60)
    cluster.kubectl("cordon", "worker")
    cluster.until(lambda: len(events_of(cluster, "large")) > 1, "another reason")
    cluster.kubectl("uncordon", "worker")
    cluster.until(lambda: any(one.get("count", 1) > 1 for one in events_of(cluster, "large")), "the first reason again")
    # A device's taint evicts; a pod of higher priority displaces one; pods end.
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "broken"},
            "spec": {"deviceSelector": {"driver": "dra.net"}, "taint": taint},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        },
    )
    cluster.until(lambda: cluster.find("Pod", "wired") is None, "the taint to evict", 60)
    cluster.until(lambda: cluster.get("DeviceTaintRule", "broken").get("status"), "the rule's status", 60)
    cpu = cluster.get("Node", "worker")["status"]["allocatable"]["cpu"]
    displaced = pod("displaced", scheduler="dragoman")
    displaced["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(int(cpu) - 1)}}
    urgent = json.loads(json.dumps(displaced))
    urgent["metadata"]["name"], urgent["spec"]["priorityClassName"] = "urgent", "urgent"
    cluster.apply(displaced)
    cluster.until(lambda: is_running(cluster, "displaced"), "displaced to run")
    cluster.apply(urgent)
    cluster.until(lambda: is_running(cluster, "urgent"), "urgent to run", 60)
    cluster.kubectl("delete", "pod", "--all", "--wait=true", "--timeout=60s")
    cluster.kubectl("delete", "podgroups.scheduling.k8s.io", "group", "--wait=false")
    cluster.until(lambda: not cluster.held(), "the devices to be free", 60)
    cluster.until(lambda: not cluster.all("Deployment", NAMESPACE), "the MPS control daemon to be gone", 60)
    for process in daemons.values():
        assert process.stop() == 0, process.log()


EXTRA = {"name": "extra", "generation": 1, "resourceSliceCount": 1}


def rival() -> dict[str, Any]:
    """The Lease of another scheduler: the fence that keeps it off is looked at."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": now}
    meta = {"name": "kube-scheduler", "namespace": "kube-system"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def is_as(cluster: Cluster, published: dict[str, Any]) -> bool:
    found = cluster.find("ResourceSlice", published["metadata"]["name"], "")
    return found is not None and found["spec"]["devices"] == published["spec"]["devices"]


def pod_with_claim(name: str, claim_name: str) -> list[dict[str, Any]]:
    return [pod(name, claims={"gpu": {"resourceClaimName": claim_name}}, scheduler="dragoman")]


def group_with_claim(name: str) -> list[dict[str, Any]]:
    """A gang whose pods share one claim that is made for the group."""
    group, *pods = gang(name, size=2)
    group["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return [group, *pods]


def events_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Events of `explain --watch` on a pod."""
    return [one for one in events(cluster, name) if "dragoman-explain" in str(one)]


def extended(name: str) -> dict[str, Any]:
    """A pod with a GPU by its extended resource."""
    made = pod(name, scheduler="dragoman")
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return made


SELECTED = "volume.kubernetes.io/selected-node"


def volumes(node: str) -> list[dict[str, Any]]:
    """Two claims that wait for their pod: for one there is a volume on the node, for the other nobody makes one."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    size = {"storage": "1Gi"}
    disk = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "here",
        "local": {"path": "/srv/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": disk}
    ]
    for name, provisioner in (("here", "kubernetes.io/no-provisioner"), ("elsewhere", "example.com/nobody")):
        made.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )
    for name, of in (("kept", "here"), ("made", "elsewhere")):
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": of, "resources": {"requests": size}}
        meta = {"name": name, "namespace": "default"}
        made.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    return made


def mounting(name: str, volume_claim: str) -> dict[str, Any]:
    """A pod with a volume."""
    made = pod(name, scheduler="dragoman")
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume_claim}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


def annotations(cluster: Cluster, volume_claim: str) -> dict[str, str]:
    found: dict[str, str] = cluster.get("PersistentVolumeClaim", volume_claim)["metadata"].get("annotations") or {}
    return found


def events(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    return [one for one in cluster.all("Event", "default") if one["involvedObject"].get("name") == name]
