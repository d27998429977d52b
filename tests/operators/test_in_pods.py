"""The kopf operator in a pod: a Deployment whose container is a process, with webhooks through their Service."""

from __future__ import annotations

import base64
import sys

import pytest
from cryptography.hazmat.primitives import serialization

from dragoman.kubelet import podnetwork
from tests.operators.certificates import self_signed
from tests.operators.conftest import StartUp
from tests.operators.test_kopf import CRD, OPERATOR, TRAIN, runs_trains

pytest.importorskip("kopf", reason="pip install -r requirements-dev.txt")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not podnetwork.possible(), reason="networks of one's own need root or user namespaces"),
]

OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: trains}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: trains}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: trains}
rules:
- {apiGroups: [operators.example.com], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps, events], verbs: ["*"]}
- {apiGroups: ["", apiextensions.k8s.io], resources: [namespaces, customresourcedefinitions], verbs: [get, list, watch]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: trains}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trains}
subjects: [{kind: ServiceAccount, name: operator, namespace: trains}]
---
apiVersion: v1
kind: Secret
metadata: {name: certs, namespace: trains}
data: {tls.crt: CRT, tls.key: KEY}
---
apiVersion: v1
kind: Service
metadata: {name: webhooks, namespace: trains}
spec: {selector: {app: trains}, ports: [{port: 443, targetPort: 9443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: operator, namespace: trains}
spec:
  selector: {matchLabels: {app: trains}}
  template:
    metadata: {labels: {app: trains}}
    spec:
      serviceAccountName: operator
      containers:
      - name: main
        image: registry.example/trains:1
        args: [run, --all-namespaces, --liveness=http://0.0.0.0:8080/healthz, OPERATOR]
        env:
        - {name: TRAINS_SERVICE, value: trains/webhooks}
        - {name: TRAINS_CERTS, value: /certs}
        - {name: TRAINS_PORT, value: "9443"}
        ports: [{containerPort: 9443}, {containerPort: 8080}]
        livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 60}
        readinessProbe: {tcpSocket: {port: 9443}, periodSeconds: 1}
        volumeMounts: [{name: certs, mountPath: /certs}]
      volumes: [{name: certs, secret: {secretName: certs}}]
"""


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_an_operator_in_a_pod_with_webhooks(start_up: StartUp) -> None:
    maps = ("--image-map", f"registry.example/trains={sys.executable} -m kopf")
    cluster = start_up("--runtime", "process", "--process-network", "pod", *maps)
    certificate, key = self_signed("webhooks.trains.svc")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    cluster.apply(CRD)
    cluster.apply(
        OBJECTS.replace("CRT", encoded(pem)).replace("KEY", encoded(private)).replace("OPERATOR", str(OPERATOR))
    )
    cluster.kubectl("rollout", "status", "-n", "trains", "deployment/operator", "--timeout=110s")
    cluster.until(
        lambda: cluster.get("mutatingwebhookconfigurations")["items"], "the operator to register its webhooks"
    )
    refused = cluster.until(
        lambda: (done := cluster.apply(TRAIN % ("long", 10), ok=None)).returncode and done.stderr, "the refusal"
    )
    assert "a train has at most 9 cars" in refused
    runs_trains(cluster)
    cluster.apply(TRAIN % ("day", 1))
    assert cluster.get("train", "day")["metadata"]["labels"] == {"checked": "yes"}
    cluster.kubectl("delete", "train", "day", "--timeout=60s")
    cluster.kubectl("delete", "namespace", "trains", "--timeout=60s")
