"""Helm 3 and 4 with a chart of our own: install, upgrade, rollback, test, uninstall, with hooks and a CRD."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster, kubectls
from tests.real.build import OTHERS, found

VERSIONS = [part.version for part in OTHERS if part.name == "helm"]
FILES = {
    "Chart.yaml": "apiVersion: v2\nname: station\nversion: 0.1.0\n",
    "values.yaml": "replicas: 1\nword: hello\n",
    "crds/platforms.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: platforms.charts.example.com}
spec:
  group: charts.example.com
  scope: Namespaced
  names: {plural: platforms, singular: platform, kind: Platform}
  versions:
  - {name: v1, served: true, storage: true,
     schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
""",
    "templates/all.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-words}
data: {word: {{ .Values.word | quote }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - {name: main, image: busybox, command: [sh, -c, "echo {{ .Values.word }}; sleep 600"]}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80}]}
{{- if .Capabilities.APIVersions.Has "autoscaling/v2" }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: {{ .Release.Name }}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .Release.Name }}}
  minReplicas: {{ .Values.replicas }}
  maxReplicas: 5
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
{{- end }}
---
apiVersion: charts.example.com/v1
kind: Platform
metadata: {name: {{ .Release.Name }}}
spec: {tracks: {{ .Values.replicas }}}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-looked-up}
{{- end }}
""",
    "templates/hooks.yaml": """
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-before
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox, command: [echo, before]}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: {{ .Release.Name }}-test, annotations: {helm.sh/hook: test}}
spec: {restartPolicy: Never, containers: [{name: main, image: busybox, command: [sh, -c, "echo tested; exit 0"]}]}
""",
}

Helm = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not kubectls():
        pytest.skip("no kubectl: pip install -r requirements-dev.txt")
    made = Cluster(tmp_path_factory.mktemp("up"), "--node", "worker=example")
    made.start()
    yield made
    made.stop()


@pytest.fixture(params=VERSIONS)
def helm(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Helm:
    """helm(*arguments) in a namespace of its own; what it printed."""
    program = found("helm", request.param)
    if program is None:
        pytest.skip(f"no helm {request.param}: make real")
    namespace = f"helm-{request.param.split('.')[0]}"
    cluster.kubectl("create", "namespace", namespace)
    for name, text in FILES.items():
        path = tmp_path / "station" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(*arguments: str) -> str:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}
        done = subprocess.run(
            [str(program), *arguments, "--namespace", namespace],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    run.namespace = namespace  # type: ignore[attr-defined]
    return run


def test_a_release_from_install_to_uninstall(cluster: Cluster, helm: Helm) -> None:
    namespace = helm.namespace  # type: ignore[attr-defined]

    def get(*what: str) -> str:
        return cluster.kubectl("get", *what, "-n", namespace, "--ignore-not-found").stdout

    helm("install", "main", "station", "--wait", "--timeout", "90s")
    assert get("deployment", "main", "-o", "jsonpath={.status.readyReplicas}") == "1"
    assert get("configmap", "main-looked-up", "-o", "name")
    assert get("job", "main-before", "-o", "jsonpath={.status.succeeded}") == "1"
    helm("upgrade", "main", "station", "--set", "word=bye,replicas=2", "--wait", "--timeout", "90s")
    assert get("configmap", "main-words", "-o", "jsonpath={.data.word}") == "bye"
    assert get("deployment", "main", "-o", "jsonpath={.status.readyReplicas}") == "2"
    assert get("platform", "main", "-o", "jsonpath={.spec.tracks}") == "2"
    helm("rollback", "main", "1", "--wait", "--timeout", "90s")
    assert get("configmap", "main-words", "-o", "jsonpath={.data.word}") == "hello"
    assert "tested" in helm("test", "main", "--logs", "--timeout", "90s")
    assert [line.split()[0] for line in helm("history", "main").splitlines()[1:]] == ["1", "2", "3"]
    assert "main" in helm("list")
    helm("uninstall", "main", "--wait", "--timeout", "90s")
    assert not get("deployment,service,configmap,platform,hpa", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name")
    cluster.until(lambda: not get("pods", "-l", "app=main", "-o", "name"), "the pods to be gone")
    assert not get("deployment,hpa,platform", "-o", "name")
