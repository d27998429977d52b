"""An operator of our own with controller-runtime (`programs/bridges`): two replicas, leader election, owned objects,
finalizer, and webhooks that default and check through a Service."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.operators.certificates import self_signed
from tests.real.operators.conftest import HELMS, WAIT, Operated, StartOperated, binary

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: bridges\nversion: 0.1.0\n",
    "crds/bridges.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bridges.operators.example.com}
spec:
  group: operators.example.com
  scope: Namespaced
  names: {plural: bridges, singular: bridge, kind: Bridge}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Lanes, type: integer, jsonPath: .status.lanes}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {lanes: {type: integer}}}
          status: {type: object, properties: {lanes: {type: integer}, observedGeneration: {type: integer}}}
""",
    "templates/all.yaml": """
apiVersion: v1
kind: ServiceAccount
metadata: {name: bridges}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bridges}
rules:
- {apiGroups: [operators.example.com], resources: [bridges, bridges/status, bridges/finalizers], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps], verbs: ["*"]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bridges}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bridges}
subjects: [{kind: ServiceAccount, name: bridges, namespace: {{ .Release.Namespace }}}]
---
apiVersion: v1
kind: Secret
metadata: {name: bridges-certs}
type: kubernetes.io/tls
data: {tls.crt: {{ .Values.crt }}, tls.key: {{ .Values.key }}}
---
apiVersion: v1
kind: Service
metadata: {name: bridges}
spec: {selector: {app: bridges}, ports: [{port: 443, targetPort: webhooks}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: bridges}
spec:
  replicas: 2
  selector: {matchLabels: {app: bridges}}
  template:
    metadata: {labels: {app: bridges}}
    spec:
      serviceAccountName: bridges
      securityContext: {runAsNonRoot: true, runAsUser: 1000}
      containers:
      - name: manager
        image: registry.example/bridges:{{ .Values.version }}
        env: [{name: VERSION, value: {{ .Values.version | quote }}}]
        ports: [{name: webhooks, containerPort: 9443}, {name: health, containerPort: 8081}]
        readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 1}
        volumeMounts: [{name: certs, mountPath: /certs, readOnly: true}]
      volumes: [{name: certs, secret: {secretName: bridges-certs}}]
{{- range list "Mutating" "Validating" }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {{ . }}WebhookConfiguration
metadata: {name: bridges}
webhooks:
- name: {{ lower . }}.operators.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  rules: [{apiGroups: [operators.example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [bridges]}]
  clientConfig:
    caBundle: {{ $.Values.crt }}
    service: {name: bridges, namespace: {{ $.Release.Namespace }}, path: {{ ternary "/fill" "/check" (eq . "Mutating") }}}
{{- end }}
""",
}
BRIDGE = "{apiVersion: operators.example.com/v1, kind: Bridge, metadata: {name: %s}, spec: {%s}}"
SPACE = ("--namespace", "bridges")


def chart(folder: Path) -> Path:
    certificate, key = self_signed("bridges.bridges.svc")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    values = {"crt": certificate.public_bytes(serialization.Encoding.PEM), "key": private}
    lines = [f"{name}: {base64.b64encode(data).decode()}" for name, data in values.items()]
    for name, text in {**CHART, "values.yaml": "\n".join(["version: '1'", *lines, ""])}.items():
        path = folder / "bridges" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "bridges"


def plan(cluster: Operated, bridge: str) -> tuple[str, str]:
    data = cluster.get("configmap", f"{bridge}-plan", "--ignore-not-found=false").get("data", {})
    return data["lanes"], data["version"]


@pytest.mark.parametrize("helm", HELMS[-1:])
def test_install_reconcile_upgrade_remove(start: StartOperated, helm: str) -> None:
    cluster = start(helm, f"registry.example/bridges={binary('bridges')}")
    files = str(chart(cluster.folder))
    cluster.helm("install", "bridges", files, *SPACE, "--create-namespace", *WAIT)
    made = cluster.apply(BRIDGE % ("golden", ""))
    assert "looked at by version 1" in made.stderr
    assert cluster.get("bridge", "golden")["spec"]["lanes"] == 2
    cluster.until(lambda: cluster.get("bridge", "golden").get("status"), "the operator's status")
    assert plan(cluster, "golden") == ("2", "1")
    refused = cluster.apply(BRIDGE % ("wide", "lanes: 9"), ok=False).stderr
    assert 'admission webhook "validating.operators.example.com" denied the request' in refused
    assert "at most 8 lanes" in refused

    # What it owns comes back.
    cluster.kubectl("delete", "configmap", "golden-plan")
    cluster.until(lambda: cluster.kubectl("get", "configmap", "golden-plan", ok=None).returncode == 0, "a new plan")

    # When the leader goes, the other leads.
    leads = cluster.get("lease", "-n", "bridges", "bridges.operators.example.com")["spec"]["holderIdentity"]
    cluster.kubectl("delete", "pod", "-n", "bridges", leads.rpartition("_")[0], "--timeout=60s")
    cluster.apply(BRIDGE % ("golden", "lanes: 4"))
    cluster.until(lambda: plan(cluster, "golden") == ("4", "1"), "the change to be made")

    cluster.helm("upgrade", "bridges", files, *SPACE, "--set", "version=2", *WAIT)
    cluster.until(lambda: plan(cluster, "golden") == ("4", "2"), "the new version's plan")
    assert "looked at by version 2" in cluster.apply(BRIDGE % ("golden", "lanes: 5")).stderr
    cluster.helm("rollback", "bridges", "1", *SPACE, *WAIT)
    cluster.until(lambda: plan(cluster, "golden") == ("5", "1"), "the old version's plan")

    cluster.kubectl("delete", "bridge", "golden", "--timeout=60s")
    cluster.kubectl("get", "configmap", "golden-gone")
    cluster.until(lambda: cluster.kubectl("get", "configmap", "golden-plan", ok=None).returncode, "the plan to be gone")
    cluster.helm("uninstall", "bridges", *SPACE, *WAIT)
    cluster.gone("pods", "-n", "bridges")
    # Nobody checks any more.
    cluster.apply(BRIDGE % ("wide", "lanes: 9"))
