"""Does the real kubectl work against the embedded API? Every command of the promise, with the facts it must show."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.logs import LogOptions
from dragoman.apiserver.registry import Registry

from .conftest import Kubectl

pytestmark = pytest.mark.slow

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}}
spec:
  containers: [{name: main, image: "busybox:1.36"}]
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "busybox:1.36", env: [{name: A, value: "1"}]}]}
"""
DRA = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %(ns)s.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: old}
spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.example.com, count: 2}]}}
---
apiVersion: resource.k8s.io/v1beta2
kind: ResourceSlice
metadata: {name: %(ns)s-slice}
spec:
  driver: gpu.example.com
  nodeName: %(ns)s
  pool: {name: %(ns)s, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {index: {int: 0}}, capacity: {memory: {value: 80Gi}}}]
"""


def run_pod(registry: Registry, namespace: str, name: str = "p", node: str = "node-x") -> str:
    """What scheduler and node agent would do; returns the uid."""
    pod = BY_NAME["Pod"]
    registry.patch(pod, name, {"spec": {"nodeName": node}}, namespace, subresource="binding")
    status = {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "image": "busybox",
                "imageID": "",
                "state": {"running": {}},
            }
        ],
    }
    registry.patch(pod, name, {"status": status}, namespace, subresource="status")
    return registry.get(pod, name, namespace).uid


def test_version_and_discovery(kubectl: Kubectl) -> None:
    assert "Server Version: v1.37" in kubectl("version").out
    resources = kubectl("api-resources").out
    assert re.search(r"^pods +po +v1 +true +Pod$", resources, re.M)
    assert re.search(r"^resourceslices +resource.k8s.io/v1 +false +ResourceSlice$", resources, re.M)
    assert re.search(r"^deployments +deploy +apps/v1 +true +Deployment$", resources, re.M)
    versions = kubectl("api-versions").out.split()
    assert {"v1", "apps/v1", "resource.k8s.io/v1", "resource.k8s.io/v1beta1", "events.k8s.io/v1"} <= set(versions)
    narrow = kubectl("api-resources", "--api-group=resource.k8s.io", "--namespaced=true", "-o", "name").out.split()
    assert narrow == ["resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"]


def test_get_in_every_output(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    assert kubectl("get", "pods", "-n", ns).out.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    wide = kubectl("get", "po", "p", "-n", ns, "-o", "wide").out
    assert "NOMINATED NODE" in wide
    assert "Pending" in wide
    assert kubectl("get", "pod/p", "-n", ns, "-o", "json").json()["kind"] == "Pod"
    assert "kind: Pod" in kubectl("get", "pod", "p", "-n", ns, "-o", "yaml").out
    assert kubectl("get", "pods", "-n", ns, "-o", "name").out == "pod/p\n"
    image = "{.items[*].spec.containers[0].image}"
    assert kubectl("get", "pods", "-n", ns, "-o", f"jsonpath={image}").out == "busybox:1.36"
    columns = "N:.metadata.name,R:.spec.restartPolicy"
    rows = kubectl("get", "pods", "-n", ns, "-o", f"custom-columns={columns}", "--no-headers").out.split()
    assert rows == ["p", "Always"]
    labelled = kubectl("get", "pods", "-n", ns, "-L", "app", "--show-labels").out
    assert "app=web" in labelled
    assert "APP" in labelled
    every = kubectl("get", "pods", "-A").out
    assert re.search(rf"^{ns} +p ", every, re.M)
    assert kubectl("get", "pods", "-n", ns, "--sort-by=.metadata.name").out.count("\n") == 2
    assert "No resources" in kubectl("get", "pods", "-n", ns, "-l", "app!=web").err
    assert kubectl("get", "pods", "-n", ns, "-l", "app in (web,db)", "-o", "name").out == "pod/p\n"
    assert kubectl("get", "pods", "-n", ns, "--field-selector", "status.phase=Pending", "-o", "name").out == "pod/p\n"
    assert "No resources" in kubectl("get", "pods", "-n", ns, "--field-selector", "spec.nodeName!=").err
    wrong = kubectl("get", "pods", "-n", ns, "--field-selector", "spec.foo=1", ok=False)
    assert "field label not supported" in wrong.err
    assert 'pods "q" not found' in kubectl("get", "pod", "q", "-n", ns, ok=False).err
    everything = kubectl("get", "all", "-n", ns).out
    assert "pod/p" in everything


def test_get_many_in_pages(kubectl: Kubectl, ns: str) -> None:
    for at in range(7):
        kubectl.running.call(
            lambda registry, at=at: registry.create(BY_NAME["ConfigMap"], {"metadata": {"name": f"c{at}"}}, ns)
        )
    listed = kubectl("get", "configmaps", "-n", ns, "--chunk-size=3", "-o", "name").out.split()
    assert listed == [*(f"configmap/c{at}" for at in range(7)), "configmap/kube-root-ca.crt"]


def test_watch_shows_changes_as_they_come(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    watch = kubectl.start("get", "pods", "-n", ns, "-w", "--no-headers", "--output-watch-events")
    assert watch.stdout is not None
    assert watch.stdout.readline().split()[:3] == ["ADDED", "p", "0/1"]
    kubectl.running.call(lambda registry: run_pod(registry, ns))
    seen = [watch.stdout.readline().split() for _ in range(2)]
    assert seen[-1][:4] == ["MODIFIED", "p", "1/1", "Running"]
    kubectl("delete", "pod", "p", "-n", ns, "--grace-period=0", "--force")
    assert watch.stdout.readline().split()[0] in ("MODIFIED", "DELETED")
    watch.kill()
    watch.communicate()


def test_describe(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    kubectl("create", "-f", "-", stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {ns}}}\n")
    kubectl("apply", "-n", ns, "-f", "-", stdin=DRA % {"ns": ns})
    kubectl.running.call(lambda registry: run_pod(registry, ns, node=ns))
    uid = kubectl("get", "pod", "p", "-n", ns, "-o", "jsonpath={.metadata.uid}").out
    event = {
        "metadata": {"name": "p.1"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": ns, "uid": uid, "apiVersion": "v1"},
        "reason": "Scheduled",
        "message": "assigned p",
        "type": "Normal",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    kubectl.running.call(lambda registry: registry.create(BY_NAME["Event"], event, ns))
    described = kubectl("describe", "pod", "p", "-n", ns).out
    assert re.search(r"Scheduled +.*default-scheduler +assigned p", described)
    assert "QoS Class:                   BestEffort" in described or "QoS Class:" in described
    node = kubectl("describe", "node", ns).out
    assert re.search(rf"{ns} +p ", node), "the node's pods are listed"
    for what in ("resourceclaim/old", "resourceclaimtemplate/one", f"resourceslice/{ns}-slice"):
        assert "Name:" in kubectl("describe", what, "-n", ns).out


def test_create_of_every_form(kubectl: Kubectl, ns: str) -> None:
    """kubectl sends these as protobuf."""
    kubectl("create", "ns", f"{ns}-new")
    for words in (
        ("deployment", "d", "--image=busybox", "--replicas=3"),
        ("configmap", "c", "--from-literal=a=b"),
        ("secret", "generic", "s", "--from-literal=a=b"),
        ("secret", "docker-registry", "r", "--docker-username=u", "--docker-password=p"),
        ("serviceaccount", "sa"),
        ("job", "j", "--image=busybox", "--", "true"),
        ("cronjob", "cj", "--image=busybox", "--schedule=* * * * *"),
        ("service", "clusterip", "svc", "--tcp=80"),
        ("role", "ro", "--verb=get", "--resource=pods"),
        ("rolebinding", "rb", "--role=ro", "--serviceaccount=default:default"),
        ("clusterrole", f"cr-{ns}", "--verb=get", "--resource=pods"),
        ("clusterrolebinding", f"crb-{ns}", "--clusterrole=x", "--user=u"),
        ("priorityclass", f"pc-{ns}", "--value=7"),
        ("poddisruptionbudget", "pdb", "--selector=app=x", "--min-available=1"),
        ("quota", "q", "--hard=pods=3"),
        ("ingress", "i", "--rule=a.example.com/*=svc:80"),
    ):
        assert "created" in kubectl("-n", ns, "create", *words).out, words
    assert kubectl("get", "deploy", "d", "-n", ns, "-o", "jsonpath={.spec.replicas}").out == "3"
    assert kubectl("get", "secret", "s", "-n", ns, "-o", "jsonpath={.data.a}").out == "Yg=="
    assert kubectl("get", "job", "j", "-n", ns, "-o", "jsonpath={.spec.template.spec.containers[0].command}").out
    assert "already exists" in kubectl("create", "ns", f"{ns}-new", ok=False).err
    token = kubectl("create", "token", "sa", "-n", ns).out.strip()
    who = kubectl("auth", "whoami", "--token", token, "--kubeconfig", _without_token(kubectl), ok=False)
    assert f"system:serviceaccount:{ns}:sa" in who.out
    assert kubectl("run", "r", "--image=busybox", "-n", ns, "--restart=Never").out == "pod/r created\n"
    assert "pod/x created (dry run)" in kubectl("run", "x", "--image=i", "-n", ns, "--dry-run=client").out
    assert "pod/x created (server dry run)" in kubectl("run", "x", "--image=i", "-n", ns, "--dry-run=server").out
    assert kubectl("get", "pod", "x", "-n", ns, ok=False).code == 1


def _without_token(kubectl: Kubectl) -> str:
    from pathlib import Path

    source = Path(kubectl.env["KUBECONFIG"])
    bare = source.with_name("kubeconfig-bare")
    bare.write_text(re.sub(r"token: .*", "{}", source.read_text()))
    return str(bare)


def test_dra_kinds_in_all_versions(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=DRA % {"ns": ns})
    claim = kubectl("get", "resourceclaim", "old", "-n", ns, "-o", "json").json()
    assert claim["apiVersion"] == "resource.k8s.io/v1"
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    flat = kubectl("get", "resourceclaims.v1beta1.resource.k8s.io", "old", "-n", ns, "-o", "json").json()
    assert flat["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
    rows = kubectl("get", "resourceclaim", "-n", ns, "--no-headers").out.split()
    assert rows[:2] == ["old", "pending"]
    slice_row = kubectl("get", "resourceslice", f"{ns}-slice", "--no-headers").out.split()
    assert slice_row[:4] == [f"{ns}-slice", ns, "gpu.example.com", ns]
    selected = kubectl("get", "resourceslices", "--field-selector", f"spec.nodeName={ns}", "-o", "name").out
    assert selected == f"resourceslice.resource.k8s.io/{ns}-slice\n"
    device = "{.spec.devices[0].basic.capacity.memory.value}"
    old = kubectl("get", "resourceslices.v1beta1.resource.k8s.io", f"{ns}-slice", "-o", f"jsonpath={device}")
    assert old.out == "80Gi"


def test_apply_from_the_client(kubectl: Kubectl, ns: str) -> None:
    assert "created" in kubectl("apply", "-n", ns, "-f", "-", stdin=DEPLOYMENT).out
    assert "unchanged" in kubectl("apply", "-n", ns, "-f", "-", stdin=DEPLOYMENT).out
    kubectl("scale", "deploy/web", "-n", ns, "--replicas=5")
    changed = DEPLOYMENT.replace('value: "1"', 'value: "2"').replace("  replicas: 2\n", "")
    assert "configured" in kubectl("apply", "-n", ns, "-f", "-", stdin=changed).out
    live = kubectl("get", "deploy", "web", "-n", ns, "-o", "json").json()
    assert live["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "2"}]
    assert live["metadata"]["generation"] == 3
    diff = kubectl("diff", "-n", ns, "-f", "-", stdin=DEPLOYMENT, ok=False)
    assert diff.code == 1
    assert re.search(r"^\+ +value: \"1\"", diff.out, re.M)
    assert "unchanged" in kubectl("apply", "-n", ns, "-f", "-", "--dry-run=server", stdin=changed).out
    set_last = kubectl("apply", "view-last-applied", "deploy/web", "-n", ns).out
    assert "busybox" in set_last


def test_apply_on_the_server(kubectl: Kubectl, ns: str) -> None:
    words = ("apply", "--server-side", "-n", ns, "-f", "-")
    assert "serverside-applied" in kubectl(*words, stdin=DEPLOYMENT).out
    version = kubectl("get", "deploy", "web", "-n", ns, "-o", "jsonpath={.metadata.resourceVersion}").out
    kubectl(*words, stdin=DEPLOYMENT)
    again = kubectl("get", "deploy", "web", "-n", ns, "-o", "jsonpath={.metadata.resourceVersion}").out
    assert again == version, "applying the same again writes nothing"
    other = DEPLOYMENT.replace("replicas: 2", "replicas: 4")
    refused = kubectl(*words, "--field-manager=other", stdin=other, ok=False)
    assert refused.code == 1
    assert 'conflict with "kubectl": .spec.replicas' in refused.err
    kubectl(*words, "--field-manager=other", "--force-conflicts", stdin=other)
    assert kubectl("get", "deploy", "web", "-n", ns, "-o", "jsonpath={.spec.replicas}").out == "4"
    managers = kubectl("get", "deploy", "web", "-n", ns, "-o", "json", "--show-managed-fields").json()
    names = {(m["manager"], m["operation"]) for m in managers["metadata"]["managedFields"]}
    assert names == {("kubectl", "Apply"), ("other", "Apply")}
    dropped = DEPLOYMENT.replace(', env: [{name: A, value: "1"}]', "").replace("  replicas: 2\n", "")
    kubectl(*words, stdin=dropped)
    live = kubectl("get", "deploy", "web", "-n", ns, "-o", "json").json()
    assert live["spec"]["template"]["spec"]["containers"][0]["env"], "the other manager still wants it"
    assert kubectl("diff", "--server-side", "-n", ns, "-f", "-", stdin=dropped).code == 0


def test_from_client_side_to_server_side_apply(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=DEPLOYMENT)
    kubectl("apply", "--server-side", "-n", ns, "-f", "-", stdin=DEPLOYMENT.replace("replicas: 2", "replicas: 3"))
    live = kubectl("get", "deploy", "web", "-n", ns, "-o", "json").json()
    assert live["spec"]["replicas"] == 3


def test_replace_edit_and_patches(kubectl: Kubectl, ns: str, tmp_path: object) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=DEPLOYMENT)
    whole = kubectl("get", "deploy", "web", "-n", ns, "-o", "yaml").out
    assert "replaced" in kubectl("replace", "-n", ns, "-f", "-", stdin=whole.replace("replicas: 2", "replicas: 6")).out
    stale = kubectl("replace", "-n", ns, "-f", "-", stdin=whole, ok=False)
    assert "the object has been modified" in stale.err
    edited = kubectl("edit", "deploy/web", "-n", ns, KUBE_EDITOR="sed -i s/replicas:.6/replicas:\\ 7/")
    assert "edited" in edited.out
    for kind, patch, replicas in (
        ("merge", '{"spec":{"replicas":8}}', "8"),
        ("json", '[{"op":"replace","path":"/spec/replicas","value":9}]', "9"),
        (
            "strategic",
            '{"spec":{"replicas":10,"template":{"spec":{"containers":[{"name":"main","image":"i:2"}]}}}}',
            "10",
        ),
    ):
        assert "patched" in kubectl("patch", "deploy", "web", "-n", ns, "--type", kind, "-p", patch).out
        assert kubectl("get", "deploy", "web", "-n", ns, "-o", "jsonpath={.spec.replicas}").out == replicas
    live = kubectl("get", "deploy", "web", "-n", ns, "-o", "json").json()
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "i:2"
    assert container["env"], "a strategic patch merges containers by name"
    failed = kubectl(
        "patch", "deploy", "web", "-n", ns, "--type=json", "-p", '[{"op":"remove","path":"/spec/x"}]', ok=False
    )
    assert failed.code == 1
    same = kubectl("patch", "deploy", "web", "-n", ns, "-p", '{"spec":{"replicas":10}}')
    assert "patched (no change)" in same.out
    kubectl(
        "patch",
        "deploy",
        "web",
        "-n",
        ns,
        "--subresource=status",
        "-p",
        '{"status":{"replicas":4},"spec":{"replicas":1}}',
    )
    live = kubectl("get", "deploy", "web", "-n", ns, "-o", "json").json()
    assert (live["status"]["replicas"], live["spec"]["replicas"]) == (4, 10), "status is isolated"
    assert "image updated" in kubectl("set", "image", "deploy/web", "main=busybox:2", "-n", ns).out


def test_label_annotate_taint_cordon(kubectl: Kubectl, ns: str) -> None:
    kubectl("create", "-f", "-", stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {ns}}}\n")
    kubectl("label", "node", ns, "zone=a")
    assert "already has a value" in kubectl("label", "node", ns, "zone=b", ok=False).err
    kubectl("label", "node", ns, "zone-")
    kubectl("annotate", "node", ns, "note=hello")
    assert "tainted" in kubectl("taint", "node", ns, "gpu=yes:NoSchedule").out
    assert "cordoned" in kubectl("cordon", ns).out
    assert "SchedulingDisabled" in kubectl("get", "node", ns).out
    assert "uncordoned" in kubectl("uncordon", ns).out
    kubectl("taint", "node", ns, "gpu-")
    live = kubectl("get", "node", ns, "-o", "json").json()
    assert live["metadata"]["annotations"]["note"] == "hello"
    assert not live["spec"].get("taints")


def test_scale_and_rollout(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=DEPLOYMENT)
    assert "scaled" in kubectl("scale", "deploy/web", "-n", ns, "--replicas=4", "--current-replicas=2").out
    wrong = kubectl("scale", "deploy/web", "-n", ns, "--replicas=4", "--current-replicas=2", ok=False)
    assert wrong.code == 1
    waiting = kubectl.start("rollout", "status", "deploy/web", "-n", ns, "--timeout=25s")
    assert waiting.stdout is not None
    assert "Waiting" in waiting.stdout.readline()
    status = (
        '{"status":{"observedGeneration":2,"replicas":4,"updatedReplicas":4,"readyReplicas":4,"availableReplicas":4}}'
    )
    kubectl("patch", "deploy", "web", "-n", ns, "--subresource=status", "--type=merge", "-p", status)
    out, err = waiting.communicate(timeout=20)
    assert "successfully rolled out" in out, err
    assert kubectl("get", "deploy", "web", "-n", ns, "--no-headers").out.split()[:4] == ["web", "4/4", "4", "4"]
    assert "restarted" in kubectl("rollout", "restart", "deploy/web", "-n", ns).out


def test_wait(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    waiting = kubectl.start("wait", "pod/p", "-n", ns, "--for=condition=Ready", "--timeout=25s")
    kubectl.running.call(lambda registry: run_pod(registry, ns))
    out, err = waiting.communicate(timeout=25)
    assert "condition met" in out, err
    gone = kubectl.start("wait", "pod/p", "-n", ns, "--for=delete", "--timeout=25s")
    kubectl("delete", "pod", "p", "-n", ns, "--grace-period=0", "--force")
    out, err = gone.communicate(timeout=25)
    assert gone.returncode == 0, err


def test_delete_and_its_options(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    assert "(server dry run)" in kubectl("delete", "pod", "p", "-n", ns, "--dry-run=server").out
    assert 'pod "p" deleted' in kubectl("delete", "pod", "p", "-n", ns).out
    assert "ignore" not in kubectl("delete", "pod", "p", "-n", ns, "--ignore-not-found").err
    kubectl("apply", "-n", ns, "-f", "-", stdin=DEPLOYMENT)
    kubectl("delete", "deploy", "web", "-n", ns, "--cascade=orphan", "--wait=false")
    live = kubectl("get", "deploy", "web", "-n", ns, "-o", "json").json()
    assert live["metadata"]["finalizers"] == ["orphan"]
    assert "deletionTimestamp" in live["metadata"]
    kubectl("patch", "deploy", "web", "-n", ns, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert kubectl("get", "deploy", "web", "-n", ns, ok=False).code == 1
    for at in "ab":
        kubectl("run", at, "--image=i", "-n", ns, "-l", "x=y")
    kubectl("delete", "pods", "-n", ns, "-l", "x=y")
    kubectl("run", "c", "--image=i", "-n", ns)
    kubectl("delete", "pods", "-n", ns, "--all")
    assert "No resources" in kubectl("get", "pods", "-n", ns).err


def test_a_running_pod_is_deleted_gracefully(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    kubectl.running.call(lambda registry: run_pod(registry, ns))
    kubectl("delete", "pod", "p", "-n", ns, "--wait=false")
    live = kubectl("get", "pod", "p", "-n", ns, "-o", "json").json()
    assert live["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "Terminating" in kubectl("get", "pod", "p", "-n", ns).out
    kubectl("delete", "pod", "p", "-n", ns, "--grace-period=0", "--force")
    assert kubectl("get", "pod", "p", "-n", ns, ok=False).code == 1


def test_events(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    event = {
        "metadata": {"name": "p.1"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": ns, "apiVersion": "v1"},
        "reason": "FailedScheduling",
        "message": "0/1 nodes are available",
        "type": "Warning",
        "reportingComponent": "default-scheduler",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kubectl.running.call(lambda registry: registry.create(BY_NAME["Event"], event, ns))
    for words in (("events", "-n", ns), ("events", "-n", ns, "--for=pod/p"), ("get", "events", "-n", ns)):
        assert re.search(r"Warning +FailedScheduling +[pP]od/p +0/1 nodes", kubectl(*words).out)
    assert "No events" in kubectl("events", "-n", ns, "--types=Normal").err
    renamed = kubectl("get", "events.v1.events.k8s.io", "p.1", "-n", ns, "-o", "json").json()
    assert renamed["note"] == "0/1 nodes are available"
    assert renamed["regarding"]["name"] == "p"
    watch = kubectl.start("events", "-n", ns, "-w")
    assert watch.stdout is not None
    lines = [watch.stdout.readline(), watch.stdout.readline()]
    assert any("FailedScheduling" in line for line in lines)
    watch.kill()
    watch.communicate()


def test_explain(kubectl: Kubectl) -> None:
    assert "containers" in kubectl("explain", "pod.spec").out
    claim = kubectl("explain", "resourceclaim.spec.devices.requests").out
    assert "firstAvailable" in claim
    old = kubectl("explain", "resourceclaim.spec.devices.requests", "--api-version=resource.k8s.io/v1beta1").out
    assert "deviceClassName" in old


def test_logs(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    assert "does not have a host assigned" in kubectl("logs", "p", "-n", ns, ok=False).err
    uid = kubectl.running.call(lambda registry: run_pod(registry, ns))
    asked: list[LogOptions] = []

    async def source(options: LogOptions) -> AsyncIterator[bytes]:
        asked.append(options)
        for line in (b"one\n", b"two\n", b"three\n")[-(options.tail_lines or 3) :]:
            yield line

    kubectl.running.call(lambda registry: registry.logs.register(uid, source))
    assert kubectl("logs", "p", "-n", ns).out == "one\ntwo\nthree\n"
    assert kubectl("logs", "p", "-n", ns, "--tail=1", "-f", "-c", "main").out == "three\n"
    assert (asked[-1].tail_lines, asked[-1].follow, asked[-1].container) == (1, True, "main")
    assert "not valid" in kubectl("logs", "p", "-n", ns, "-c", "x", ok=False).err


def test_auth(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").out == "yes\n"
    assert "yes" in kubectl("auth", "can-i", "get", "nodes", "--all-namespaces").out
    assert "*.*" in kubectl("auth", "can-i", "--list").out
    assert "dragoman-admin" in kubectl("auth", "whoami").out
    anonymous = kubectl("get", "pods", "--kubeconfig", _without_token(kubectl), "--token=wrong", ok=False)
    assert anonymous.code == 1
    assert "Unauthorized" in anonymous.err


def test_what_is_wrong_is_said_in_one_message(kubectl: Kubectl, ns: str) -> None:
    unknown = POD.replace("image:", "imag: x, image:")
    refused = kubectl("apply", "-n", ns, "-f", "-", stdin=unknown, ok=False)
    assert 'unknown field "spec.containers[0].imag"' in refused.err
    warned = kubectl("apply", "-n", ns, "-f", "-", "--validate=warn", stdin=unknown)
    assert 'Warning: unknown field "spec.containers[0].imag"' in warned.err
    claim = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [%s]}}
"""
    one = "{name: a, exactly: {deviceClassName: c.example.com%s}}"
    for requests, message in (
        (one % ", count: -1", "spec.devices.requests[0].exactly.count"),
        (f"{one % ''}, {one % ''}", "Duplicate value"),
        (
            one % ", selectors: [{cel: {expression: 'device.attributes['}}]",
            "spec.devices.requests[0].exactly.selectors[0]",
        ),
    ):
        refused = kubectl("apply", "-n", ns, "-f", "-", stdin=claim % requests, ok=False)
        assert refused.code == 1
        assert message in refused.err
    typed = kubectl("apply", "-n", ns, "-f", "-", stdin=DEPLOYMENT.replace("replicas: 2", "replicas: two"), ok=False)
    assert typed.code == 1
    assert "spec.replicas" in typed.err


def test_drain_evicts_and_respects_budgets(kubectl: Kubectl, ns: str) -> None:
    kubectl("create", "-f", "-", stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {ns}}}\n")
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    kubectl.running.call(lambda registry: run_pod(registry, ns, node=ns))
    kubectl("create", "pdb", "keep", "-n", ns, "--selector=app=web", "--min-available=1")
    held = kubectl("drain", ns, "--force", "--timeout=1s", ok=False)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in held.err
    kubectl("delete", "pdb", "keep", "-n", ns)
    draining = kubectl.start("drain", ns, "--force", "--grace-period=1", "--timeout=25s")

    def deleting() -> bool:
        pod = kubectl.running.call(lambda registry: registry.find(BY_NAME["Pod"], "p", ns))
        return pod is not None and b"deletionTimestamp" in pod.body

    while not deleting():
        assert draining.poll() is None, draining.communicate()
    kubectl.running.call(lambda r: r.delete(BY_NAME["Pod"], "p", ns, _now()))
    out, err = draining.communicate(timeout=25)
    assert draining.returncode == 0, err
    assert "drained" in out


def _now() -> object:
    from dragoman.apiserver.request import DeleteOptions

    return DeleteOptions(grace_s=0)


def test_namespace_deletion_by_phase_and_finalizers(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    kubectl("delete", "ns", ns, "--wait=false")
    assert "Terminating" in kubectl("get", "ns", ns).out
    refused = kubectl("run", "x", "--image=i", "-n", ns, ok=False)
    assert "because it is being terminated" in refused.err
    live = kubectl("get", "ns", ns, "-o", "json").json()
    live["spec"]["finalizers"] = []
    import json

    kubectl("replace", "--raw", f"/api/v1/namespaces/{ns}/finalize", "-f", "-", stdin=json.dumps(live))
    assert kubectl("get", "ns", ns, ok=False).code == 1


def test_what_is_not_served_is_said(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    kubectl.running.call(lambda registry: run_pod(registry, ns))
    assert kubectl("exec", "p", "-n", ns, "--", "true", ok=False).code == 1
    assert kubectl("port-forward", "p", "8080", "-n", ns, ok=False).code == 1
    assert "Metrics API not available" in kubectl("top", "nodes", ok=False).err


def test_debug_adds_an_ephemeral_container(kubectl: Kubectl, ns: str) -> None:
    kubectl("apply", "-n", ns, "-f", "-", stdin=POD)
    kubectl("debug", "p", "-n", ns, "--image=busybox", "--container=dbg", "--profile=general", "--", "true")
    live = kubectl("get", "pod", "p", "-n", ns, "-o", "json").json()
    assert [c["name"] for c in live["spec"]["ephemeralContainers"]] == ["dbg"]
