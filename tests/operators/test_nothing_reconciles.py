"""Custom kinds without an operator are installed and stored, and `explain` says that nothing reconciles them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.e2e.conftest import Cluster
from tests.operators.conftest import StartUp

pytestmark = pytest.mark.slow

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %(plural)s.%(group)s}
spec:
  group: %(group)s
  scope: %(scope)s
  names: {plural: %(plural)s, singular: %(singular)s, kind: %(kind)s, shortNames: [%(short)s]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
KINDS = [
    {"plural": "growers", "singular": "grower", "kind": "Grower", "short": "gr", "scope": "Namespaced"}
    | {"group": "a.example.com"},
    {"plural": "pools", "singular": "pool", "kind": "Pool", "short": "pl", "scope": "Cluster"}
    | {"group": "b.example.com"},
]
OBJECT = "{apiVersion: %(group)s/v1, kind: %(kind)s, metadata: {name: one}, spec: {size: 3}}"


def explain(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dragoman.cli", "explain", "--kubeconfig", str(cluster.kubeconfig), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_explain_says_whether_anything_reconciles_a_custom_object(start_up: StartUp) -> None:
    cluster = start_up()
    for kind in KINDS:
        cluster.apply(DEFINITION % kind)
        name = f"crd/{kind['plural']}.{kind['group']}"
        cluster.kubectl("wait", "--for=condition=Established", name, "--timeout=60s")
        cluster.apply(OBJECT % kind)
    for word in ("grower/one", "growers.a.example.com/one", "gr/one"):
        done = explain(cluster, word)
        assert done.returncode == 1
        assert "Grower default/one (a.example.com/v1): nothing reconciles it" in done.stdout
    assert "Pool one (b.example.com/v1): nothing reconciles it" in explain(cluster, "pool", "one").stdout

    patch = ("--subresource=status", "--type=merge", "-p", '{"status":{"ready":true}}', "--field-manager=grower")
    cluster.kubectl("patch", "grower", "one", *patch)
    done = explain(cluster, "grower/one", "-o", "json")
    assert done.returncode == 0
    (custom,) = json.loads(done.stdout)["custom"]
    assert (custom["reconciled"], custom["managers"]) == (True, ["grower"])

    assert "must be pod/NAME" in explain(cluster, "unknown/one").stderr
    missing = explain(cluster, "grower/two")
    assert missing.returncode
    assert "not found" in missing.stderr
