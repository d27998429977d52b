"""An operator written with kopf (`trains.py`): custom resource, finalizer, owners, status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster
from tests.operators.conftest import StartUp

pytest.importorskip("kopf", reason="pip install -r requirements-dev.txt")

pytestmark = pytest.mark.slow

OPERATOR = Path(__file__).with_name("trains.py")
START_S = 240.0
"""kopf and the client that it uses are imported meanwhile; a busy machine takes its time for that."""
KOPF = (sys.executable, "-m", "kopf", "run", "--all-namespaces", str(OPERATOR))
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trains.operators.example.com}
spec:
  group: operators.example.com
  scope: Namespaced
  names: {plural: trains, singular: train, kind: Train}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {cars: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
TRAIN = """
apiVersion: operators.example.com/v1
kind: Train
metadata: {name: %s}
spec: {cars: %d}
"""


def cars(cluster: Cluster, train: str) -> list[str]:
    return cluster.kubectl("get", "configmap", "-l", f"train={train}", "-o", "name").stdout.split()


def runs_trains(cluster: Cluster) -> None:
    """What the operator does, from a Train's beginning to its end."""
    cluster.apply(TRAIN % ("night", 2))
    cluster.until(lambda: len(cars(cluster, "night")) == 2, "two cars", START_S)
    cluster.until(lambda: cluster.get("train", "night")["status"].get("cars") == 2, "the status")
    assert cluster.get("train", "night")["metadata"]["finalizers"] == ["operators.example.com/finalizer"]
    cluster.apply(TRAIN % ("night", 1))
    cluster.until(lambda: cars(cluster, "night") == ["configmap/night-car-0"], "one car")
    cluster.kubectl("delete", "train", "night", "--timeout=60s")
    cluster.until(lambda: not cars(cluster, "night"), "no car, being owned by the train")
    cluster.kubectl("get", "configmap", "night-arrived")


@pytest.fixture
def operator(start_up: StartUp, tmp_path: Path) -> Iterator[Cluster]:
    cluster = start_up()
    cluster.apply(CRD)
    cluster.kubectl("wait", "--for=condition=Established", "crd/trains.operators.example.com", "--timeout=60s")
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with (tmp_path / "kopf.log").open("wb") as log:
        process = subprocess.Popen(KOPF, env=environment, stdout=log, stderr=log)
    yield cluster
    process.terminate()
    process.wait(60)


def test_it_runs_beside_the_cluster(operator: Cluster) -> None:
    runs_trains(operator)
