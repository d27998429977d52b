"""Kueue as it is: its chart by Helm 3 and 4; jobs wait for quota and are admitted, webhooks check, default and convert."""

from __future__ import annotations

import json

import pytest

from tests.real.operators.conftest import HELMS, WAIT, Operated, StartOperated, binary, module

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, gpus]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 4}, {name: gpus, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team}
spec: {clusterQueue: team}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]}}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: team}}
spec:
  template:
    spec:
      restartPolicy: Never
      resourceClaims: [{name: gpu, resourceClaimTemplateName: two}]
      containers:
      - {name: main, image: busybox, command: [sleep, "4"], resources: {requests: {cpu: 1}, claims: [{name: gpu}]}}
"""
BAD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: bad}
spec: {namespaceSelector: {}, preemption: {reclaimWithinCohort: Never, borrowWithinCohort: {policy: LowerPriority}}}
"""
VALUES = """
controllerManager:
  featureGates: [{name: DynamicResourceAllocation, enabled: true}]
managerConfig:
  controllerManagerConfigYaml: |
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    health: {healthProbeBindAddress: ":8081"}
    metrics: {bindAddress: ":8443"}
    webhook: {port: 9443}
    leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
    integrations: {frameworks: [batch/job]}
    resources: {deviceClassMappings: [{name: gpus, deviceClassNames: [gpu.nvidia.com]}]}
"""
SPACE = ("--namespace", "kueue-system")


def suspended(cluster: Operated, job: str) -> bool:
    return bool(cluster.get("job", job)["spec"].get("suspend"))


def counts(cluster: Operated) -> tuple[int, int]:
    status = cluster.get("clusterqueue", "team")["status"]
    return status["admittedWorkloads"], status["pendingWorkloads"]


def two_jobs_take_turns(cluster: Operated, *names: str) -> None:
    """Each wants all devices of the quota."""
    for name in names:
        cluster.apply(JOB % name)
    cluster.until(lambda: [suspended(cluster, name) for name in names].count(False) == 1, "one job to be admitted")
    cluster.until(lambda: counts(cluster) == (1, 1), "one admitted and one pending job in the queue's status")
    for name in names:
        cluster.kubectl("wait", "--for=condition=Complete", f"job/{name}", "--timeout=90s")


@pytest.mark.parametrize("helm", HELMS)
def test_install_admit_upgrade_remove(start: StartOperated, helm: str) -> None:
    chart = module("kueue") / "charts" / "kueue"
    cluster = start(helm, f"us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue={binary('kueue')}")
    values = cluster.folder / "values.yaml"
    values.write_text(VALUES)
    cluster.helm("install", "kueue", str(chart), *SPACE, "--create-namespace", "--values", str(values), *WAIT)
    cluster.apply(QUEUES)
    two_jobs_take_turns(cluster, "a", "b")
    assert "borrowWithinCohort" in cluster.apply(BAD, ok=False).stderr
    older = json.loads(cluster.kubectl("get", "--raw", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/team").stdout)
    assert older["apiVersion"] == "kueue.x-k8s.io/v1beta1"

    level = ("--set", "controllerManager.manager.logLevel=3")
    cluster.helm("upgrade", "kueue", str(chart), *SPACE, "--values", str(values), *level, *WAIT)
    two_jobs_take_turns(cluster, "c", "d")

    cluster.kubectl("delete", "localqueue,job,workload", "--all", "--timeout=60s")
    cluster.kubectl("delete", "clusterqueue,resourceflavor", "--all", "--timeout=60s")
    cluster.helm("uninstall", "kueue", *SPACE, *WAIT)
    cluster.gone("pods", "-n", "kueue-system")
    cluster.gone("mutatingwebhookconfigurations,validatingwebhookconfigurations")
    assert "kueue" not in cluster.kubectl("api-resources", "-o", "name").stdout
