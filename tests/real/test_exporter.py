"""The exporter on a real API server, with the rights of deploy/exporter.yaml and no others."""

from __future__ import annotations

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from tests.real.conftest import StartCluster
from tests.real.objects import device_class, pod_with_device, slice_of
from tests.real.process import free_ports

pytestmark = pytest.mark.slow
MANIFEST = Path(__file__).parents[2] / "deploy" / "exporter.yaml"


def test_least_rights_are_enough(start: StartCluster) -> None:
    cluster = start(scheduler="kube", controllers="kube")
    cluster.node("worker")
    cluster.apply(device_class(), slice_of("worker", devices=3), *pod_with_device("train"))
    kinds = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    cluster.apply(*(body for body in yaml.safe_load_all(MANIFEST.read_text()) if body["kind"] in kinds))
    cluster.until(lambda: cluster.get("Pod", "train")["spec"].get("nodeName"), "train to be bound")
    (port,) = free_ports(1)
    exporter = cluster.dragoman("exporter", "--listen", f"127.0.0.1:{port}", user="dragoman/dragoman-exporter").start()

    def page() -> str:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except (URLError, ConnectionError):
            return ""

    cluster.until(lambda: "dragoman_exporter_synced 1.0" in page(), "the exporter to know everything")
    shown = page()
    assert "dra_resource_claims_allocated 1.0" in shown
    assert "dra_devices_allocated 1.0" in shown
    assert 'dra_devices_available{device_class="gpu.example.com"} 2.0' in shown
    assert "forbidden" not in exporter.log().lower()
