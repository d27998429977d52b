"""The official Python client: typed, dynamic and asynchronous calls, watches, streams, informers, leader election."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.testing.wait import until_true
from tests.e2e.conftest import Cluster

kubernetes = pytest.importorskip("kubernetes", reason="pip install -r requirements-dev.txt")

from kubernetes import client, config, dynamic, informer, utils, watch  # noqa: E402
from kubernetes.stream import stream  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture
def api(kubeconfig: Path) -> Any:
    return config.new_client_from_config(str(kubeconfig))


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello; sleep 600"]}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trains.clients.example.com}
spec:
  group: clients.example.com
  scope: Namespaced
  names: {plural: trains, singular: train, kind: Train}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.cars, statusReplicasPath: .status.cars}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {cars: {type: integer, default: 3}}}
          status: {type: object, properties: {cars: {type: integer}}}
"""


def test_typed_calls_watches_logs_and_exec(api: Any, namespace: str) -> None:
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, deployment("web", 2))
    ready: dict[str, Any] = {}
    watcher = watch.Watch()
    for event in watcher.stream(core.list_namespaced_pod, namespace, label_selector="app=web", timeout_seconds=60):
        pod = event["object"]
        if pod.status.phase == "Running":
            ready[pod.metadata.name] = pod
        if len(ready) == 2:
            watcher.stop()
    assert len(ready) == 2
    name = sorted(ready)[0]
    until_true(lambda: core.read_namespaced_pod_log(name, namespace) == "hello\n", "the log")
    said = stream(
        core.connect_get_namespaced_pod_exec,
        name,
        namespace,
        command=["sh", "-c", "cat; exit 3"],
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    said.write_stdin("ping\n")
    assert said.readline_stdout(timeout=20) == "ping"
    said.close()
    assert apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 3}}).spec.replicas == 3
    apps.delete_namespaced_deployment("web", namespace, propagation_policy="Foreground")
    until_true(lambda: not core.list_namespaced_pod(namespace).items, "the pods to be gone")


def test_errors_are_those_of_kubernetes(api: Any, namespace: str) -> None:
    apps = client.AppsV1Api(api)
    with pytest.raises(client.ApiException) as missing:
        apps.read_namespaced_deployment("none", namespace)
    assert missing.value.status == 404
    apps.create_namespaced_deployment(namespace, deployment("twice"))
    with pytest.raises(client.ApiException) as twice:
        apps.create_namespaced_deployment(namespace, deployment("twice"))
    assert (twice.value.status, '"reason":"AlreadyExists"' in twice.value.body) == (409, True)


def test_dynamic_calls_on_a_custom_resource(api: Any, namespace: str, up: Cluster) -> None:
    up.apply(CRD)
    dyn = dynamic.DynamicClient(api)

    def trains() -> Any:
        try:
            return dynamic.DynamicClient(api).resources.get(api_version="clients.example.com/v1", kind="Train")
        except dynamic.exceptions.ResourceNotFoundError:
            return None

    kind = until_true(trains, "the custom resource in discovery")
    body = {"apiVersion": "clients.example.com/v1", "kind": "Train", "metadata": {"name": "one"}}
    made = dyn.server_side_apply(kind, body | {"spec": {}}, namespace=namespace, field_manager="test")
    assert made.spec.cars == 3
    status = {**made.to_dict(), "status": {"cars": 2}}
    assert kind.status.replace(body=status, namespace=namespace).status.cars == 2
    assert kind.scale.get(name="one", namespace=namespace).status.replicas == 2
    merge = {"metadata": {"name": "one"}, "spec": {"cars": 9}}
    kind.patch(body=merge, namespace=namespace, content_type="application/merge-patch+json")
    assert [item.spec.cars for item in kind.get(namespace=namespace).items] == [9]
    kind.delete(name="one", namespace=namespace)
    assert kind.get(namespace=namespace).items == []


def test_files_are_created(api: Any, namespace: str) -> None:
    utils.create_from_dict(api, deployment("from-file"), namespace=namespace)
    assert client.AppsV1Api(api).read_namespaced_deployment("from-file", namespace).spec.replicas == 1


def test_asynchronous_calls(kubeconfig: Path, namespace: str) -> None:
    from kubernetes.aio import client as aio
    from kubernetes.aio import config as aio_config
    from kubernetes.aio import watch as aio_watch

    async def run() -> list[str]:
        seen: list[str] = []
        async with await aio_config.new_client_from_config(str(kubeconfig)) as api:
            core = aio.CoreV1Api(api)
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}}
            await core.create_namespaced_config_map(namespace, body)
            await core.patch_namespaced_config_map("one", namespace, {"data": {"a": "2"}})
            async with aio_watch.Watch() as watcher:
                listed = watcher.stream(
                    core.list_namespaced_config_map, namespace, field_selector="metadata.name=one", timeout_seconds=30
                )
                async for event in listed:
                    seen.append(event["object"].data["a"])
                    break
            await core.delete_collection_namespaced_config_map(namespace)
        return seen

    assert asyncio.run(asyncio.wait_for(run(), 60)) == ["2"]


def test_an_informer_follows(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    seen: list[tuple[str, str]] = []
    shared = informer.SharedInformer(core.list_namespaced_config_map, namespace=namespace, label_selector="seen=yes")
    for event in (informer.ADDED, informer.MODIFIED, informer.DELETED):
        shared.add_event_handler(event, lambda item, event=event: seen.append((event, item.metadata.name)))
    shared.start()
    try:
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "a", "labels": {"seen": "yes"}}})
        until_true(lambda: ("ADDED", "a") in seen, "the informer to see it")
        core.patch_namespaced_config_map("a", namespace, {"data": {"x": "y"}})
        until_true(lambda: ("MODIFIED", "a") in seen, "the informer to see the change")
        core.delete_namespaced_config_map("a", namespace)
        until_true(lambda: ("DELETED", "a") in seen, "the informer to see the end")
    finally:
        shared.stop()


CANDIDATE = """
import sys, time
from kubernetes import config
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

kubeconfig, namespace, name = sys.argv[1:]
config.load_kube_config(kubeconfig)

def lead():
    print('leads', flush=True)
    time.sleep(600)

leaderelection.LeaderElection(electionconfig.Config(
    LeaseLock('lock', namespace, name), lease_duration=6, renew_deadline=4, retry_period=1,
    onstarted_leading=lead, onstopped_leading=lambda: None,
)).run()
"""


def test_who_leads_is_followed_when_killed(api: Any, kubeconfig: Path, namespace: str) -> None:
    coordination = client.CoordinationV1Api(api)
    candidates: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", CANDIDATE, str(kubeconfig), namespace, name]
        candidates.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return candidates[-1]

    def lease() -> Any:
        found = coordination.list_namespaced_lease(namespace).items
        return found[0].spec if found else None

    try:
        first = start("first")
        began = until_true(lease, "the lease")
        assert began.holder_identity == "first"
        start("second")
        until_true(lambda: lease().renew_time > began.renew_time, "the lease to be renewed")
        assert lease().holder_identity == "first"
        first.kill()
        until_true(lambda: lease().holder_identity == "second", "the second to lead")
    finally:
        for candidate in candidates:
            candidate.kill()
            candidate.wait()
