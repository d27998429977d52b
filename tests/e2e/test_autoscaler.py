"""Load that is set by an object, `kubectl top`, and an autoscaler that follows it up and down, in fast time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Cluster, kubectls

pytestmark = pytest.mark.skipif(not kubectls(), reason="needs kubectl")
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata:
      labels: {app: shop}
    spec:
      containers:
      - {name: main, image: shop, resources: {requests: {cpu: 250m, memory: 64Mi}}}
"""
FIXED = """
apiVersion: v1
kind: Pod
metadata: {name: fixed, annotations: {dragoman.dev/cpu: "1500m", dragoman.dev/memory: 200Mi}}
spec: {containers: [{name: main, image: pause}]}
"""


RUSH_HOUR = """
apiVersion: v1
kind: ConfigMap
metadata: {name: rush-hour, labels: {dragoman.dev/simulate: load}}
data: {selector: app=shop, cpu: 700m}
"""


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("scaled"), "--node", "a=example", "--speed", "30")
    cluster.start()
    yield cluster
    cluster.stop()


def test_top_shows_what_annotations_say(fast: Cluster) -> None:
    fast.apply(FIXED)
    fast.kubectl("wait", "--for=condition=Ready", "pod/fixed", "--timeout=30s")
    assert fast.kubectl("top", "pod", "fixed", "--no-headers").stdout.split() == ["fixed", "1500m", "200Mi"]
    name, cpu, _, memory, _ = fast.kubectl("top", "node", "--no-headers").stdout.split()
    assert (name, int(cpu.removesuffix("m")) >= 1550, int(memory.removesuffix("Mi")) >= 456) == ("a", True, True)
    shown = fast.get("podmetrics", "fixed")
    assert (shown["kind"], shown["containers"][0]["usage"]["memory"]) == ("PodMetrics", "204800Ki")
    assert "fixed" in fast.kubectl("get", "podmetrics").stdout


def test_a_deployment_follows_its_load_up_and_down(fast: Cluster) -> None:
    fast.apply(DEPLOYMENT)
    fast.kubectl("autoscale", "deployment", "shop", "--cpu=60%", "--min=1", "--max=8")
    fast.apply(RUSH_HOUR)

    def replicas() -> int:
        return int(fast.get("deployment", "shop")["spec"]["replicas"])

    # 700m are 2.8 requests of 250m; at 60 percent each that is the work of five.
    fast.until(lambda: replicas() == 5, "five replicas")
    fast.kubectl("delete", "configmap", "rush-hour")
    fast.until(lambda: replicas() == 1, "one replica")
    shown = fast.kubectl("describe", "hpa", "shop").stdout
    assert "New size: 1; reason: All metrics below target" in shown
