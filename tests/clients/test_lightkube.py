"""lightkube: typed and generic resources, server-side apply, waits, logs, watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="pip install -r requirements-dev.txt")

import lightkube
from lightkube import codecs
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import CascadeType, PatchType

from dragoman.testing.wait import until_true
from tests.e2e.conftest import Cluster

pytestmark = pytest.mark.slow

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: busybox, command: [sh, -c, "echo hello; sleep 600"]}]}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.clients.example.com}
spec:
  group: clients.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def api(kubeconfig: Path, namespace: str) -> Any:
    return lightkube.Client(
        config=lightkube.KubeConfig.from_file(kubeconfig).get(), namespace=namespace, field_manager="test"
    )


def test_a_deployment_is_waited_for_scaled_and_deleted(api: Any) -> None:
    for made in codecs.load_all_yaml(WEB):
        api.create(made)
    api.wait(Deployment, "web", for_conditions=["Available"])
    (pod,) = api.list(Pod, labels={"app": "web"})
    until_true(lambda: list(api.log(pod.metadata.name)) == ["hello\n"], "the log")
    scale = api.get(Deployment.Scale, "web")
    scale.spec.replicas = 2
    assert api.replace(scale, "web").spec.replicas == 2
    for _, found in api.watch(Pod, labels={"app": "web"}):
        assert found.metadata.name.startswith("web-")
        break
    api.delete(Deployment, "web", cascade=CascadeType.FOREGROUND)
    until_true(lambda: not list(api.list(Pod)), "the pods to be gone")


def test_server_side_apply_and_its_conflicts(api: Any) -> None:
    def config_map(value: str) -> Any:
        return ConfigMap(metadata=ObjectMeta(name="one"), data={"a": value})

    assert api.apply(config_map("1")).data == {"a": "1"}
    with pytest.raises(lightkube.ApiError) as conflict:
        api.apply(config_map("2"), field_manager="other")
    assert conflict.value.status.code == 409
    assert api.apply(config_map("2"), field_manager="other", force=True).data == {"a": "2"}
    assert api.patch(ConfigMap, "one", {"data": {"b": "3"}}, patch_type=PatchType.MERGE).data == {"a": "2", "b": "3"}
    assert [found.metadata.name for found in api.list(ConfigMap, chunk_size=1)] == ["kube-root-ca.crt", "one"]


def test_a_custom_resource(api: Any, up: Cluster) -> None:
    up.apply(CRD)
    up.kubectl("wait", "--for=condition=Established", "crd/boats.clients.example.com", "--timeout=60s")
    boat = create_namespaced_resource("clients.example.com", "v1", "Boat", "boats")
    api.create(boat(metadata=ObjectMeta(name="one"), spec={"length": 12}))
    api.patch(boat.Status, "one", {"status": {"afloat": True}}, patch_type=PatchType.MERGE)
    assert api.get(boat, "one").status == {"afloat": True}
    api.delete(boat, "one")
