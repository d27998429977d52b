"""kr8s: objects that wait, scale, exec, and a custom kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kr8s", reason="pip install -r requirements-dev.txt")

import kr8s
from kr8s.objects import ConfigMap, Deployment, Pod

# It warns of servers that are newer than itself.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")]

CONTAINER = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello; sleep 600"]}


@pytest.fixture
def api(kubeconfig: Path) -> Any:
    return kr8s.api(kubeconfig=str(kubeconfig))


def test_a_pod_is_created_waited_for_labelled_and_deleted(api: Any, namespace: str) -> None:
    pod = Pod({"metadata": {"name": "one", "namespace": namespace}, "spec": {"containers": [CONTAINER]}}, api=api)
    pod.create()
    pod.wait("condition=Ready", timeout=60)
    assert pod.ready()
    assert list(pod.logs()) == ["hello"]
    done = pod.exec(["sh", "-c", "echo out; echo err >&2; exit 0"])
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 0)
    pod.label(team="a")
    pod.annotate({"why": "test"})
    pod.patch([{"op": "add", "path": "/metadata/labels/more", "value": "yes"}], type="json")
    assert pod.labels == {"team": "a", "more": "yes"}
    assert [found.name for found in kr8s.get("pods", namespace=namespace, label_selector="team=a", api=api)] == ["one"]
    pod.delete()
    pod.wait("delete", timeout=60)
    assert not pod.exists()


def test_a_deployment_is_scaled(api: Any, namespace: str) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    web = Deployment({"metadata": {"name": "web", "namespace": namespace}, "spec": spec}, api=api)
    web.create()
    web.scale(2)
    web.wait("condition=Available", timeout=60)
    assert web.replicas == 2
    assert len(web.pods()) == 2
    web.delete(propagation_policy="Background")


def test_watches_and_kinds_by_name(api: Any, namespace: str) -> None:
    ConfigMap({"metadata": {"name": "one", "namespace": namespace}, "data": {"a": "b"}}, api=api).create()
    for what, found in api.watch("configmaps", namespace=namespace, field_selector="metadata.name=one"):
        assert (what, found.raw.data.a) == ("ADDED", "b")
        break
    classes = kr8s.get("deviceclasses.resource.k8s.io", api=api)
    assert "gpu.example.com" in [found.name for found in classes]
    assert api.whoami() == "dragoman-admin"
