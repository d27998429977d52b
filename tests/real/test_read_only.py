"""What do the tools that only read say to users of a real kube-apiserver: all rights, a namespace, none, a token too old?"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.real.cluster import Cluster
from tests.real.objects import device_class, slice_of

pytestmark = pytest.mark.slow

TEAM = """
apiVersion: v1
kind: Namespace
metadata: {name: blue}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: blue}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: blue}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: blue}
rules:
- {apiGroups: [""], resources: [pods, events], verbs: [get, list]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims, resourceclaimtemplates], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: blue}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: blue}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: four, namespace: blue}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, count: 4}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: fit, namespace: blue}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: four}]
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpu}]}}]
"""


def ask(folder: Path, kubeconfig: Path, *command: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one command, in a folder without other kubeconfigs."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
    argv = [sys.executable, "-m", "dragoman.cli", *command]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)
    assert "defect" not in done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def _expired(cluster: Cluster, issuer: str) -> str:
    """A token of the reader that the API server's own key signed and that ended an hour ago."""
    key = serialization.load_pem_private_key((cluster.folder / "pki" / "sa.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    now = int(time.time())
    claims = {"iss": issuer, "aud": [issuer], "sub": "system:serviceaccount:blue:reader", "iat": now - 7200}
    claims |= {"exp": now - 3600, "kubernetes.io": {"namespace": "blue", "serviceaccount": {"name": "reader"}}}
    parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
    signature = key.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
    return ".".join([*parts, _base64(signature)])


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_four_kubeconfigs(cluster: Cluster, tmp_path: Path) -> None:
    cluster.node("worker")
    cluster.apply(device_class(), slice_of("worker", devices=2))
    for document in TEAM.split("\n---\n"):
        cluster.apply(document)
    server = f"https://127.0.0.1:{cluster.port}"

    full = cluster.kubeconfig
    code, out, err = ask(tmp_path, full, "explain", "pod", "fit", "-n", "blue")
    assert (code, "note:" in err) == (1, False), err
    assert "cannot be scheduled" in out
    assert ask(tmp_path, full, "devices")[0] == 0

    reader = cluster.kubeconfig_of("blue/reader")
    code, out, err = ask(tmp_path, reader, "explain", "pod", "fit", "-n", "blue")
    assert code == 1, err
    assert "is pending; why is not decided here: nodes, resourceslices, deviceclasses not visible" in out
    assert "note: nodes not visible" in err
    code, out, err = ask(tmp_path, reader, "devices", "-n", "blue")
    assert (code, out) == (2, "")
    assert "resourceslices not visible" in err

    lint = tmp_path / "pod.yaml"
    lint.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n")
    expired = tmp_path / "expired.kubeconfig"
    cluster._write_kubeconfig(expired, _expired(cluster, "https://kubernetes.default.svc"))
    cases = {
        cluster.kubeconfig_of("blue/nobody"): ("nothing is visible", "system:serviceaccount:blue:nobody"),
        expired: ("does not accept the credentials of user user, context real", "log in again"),
    }
    for kubeconfig, words in cases.items():
        for command in (["explain"], ["devices"], ["record", "-o", "x.json"], ["lint", "--live", "-f", str(lint)]):
            code, out, err = ask(tmp_path, kubeconfig, *command)
            assert (code, out) == (2, ""), (command, err)
            (line,) = err.splitlines()
            assert server in line
            for word in words:
                assert word in line
        assert not (tmp_path / "x.json").exists()
        code, out, err = ask(tmp_path, kubeconfig, "get", "pods", "-n", "blue")
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
