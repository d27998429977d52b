from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.api import convert, defaults

Obj = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
STAMP = "2026-01-02T03:04:05Z"


def in_claim(*requests: Obj) -> Obj:
    return {"spec": {"devices": {"requests": list(requests)}}}


def in_slice(device: Obj) -> Obj:
    return {"spec": {"devices": [device]}}


TAINT = {"key": "k", "effect": "NoSchedule"}

# sentence: kind, version, sent, stored in that version
DRA: dict[str, tuple[str, str, Obj, Obj]] = {
    "an exact request is one device": (
        "ResourceClaim",
        "v1",
        in_claim({"name": "r", "exactly": {"deviceClassName": "c"}}),
        in_claim({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}),
    ),
    "All has no count": (
        "ResourceClaim",
        "v1beta2",
        in_claim({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All"}}),
        in_claim({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All"}}),
    ),
    "an unknown mode has no count": (
        "ResourceClaim",
        "v1",
        in_claim({"name": "r", "exactly": {"allocationMode": "Some"}}),
        in_claim({"name": "r", "exactly": {"allocationMode": "Some"}}),
    ),
    "an empty exactly is defaulted in v1": (
        "ResourceClaim",
        "v1",
        in_claim({"name": "r", "exactly": {}}),
        in_claim({"name": "r", "exactly": {"allocationMode": "ExactCount", "count": 1}}),
    ),
    "a bare request stays bare": ("ResourceClaim", "v1", in_claim({"name": "r"}), in_claim({"name": "r"})),
    "a flat request is defaulted if it has a class": (
        "ResourceClaim",
        "v1beta1",
        in_claim({"name": "r", "deviceClassName": "c"}),
        in_claim({"name": "r", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}),
    ),
    "a flat request without class is not": (
        "ResourceClaim",
        "v1beta1",
        in_claim({"name": "r", "adminAccess": False}),
        in_claim({"name": "r", "adminAccess": False}),
    ),
    "alternatives are defaulted in all versions": (
        "ResourceClaim",
        "v1beta1",
        in_claim({"name": "r", "firstAvailable": [{"name": "s", "tolerations": [{"key": "k"}]}]}),
        in_claim(
            {
                "name": "r",
                "firstAvailable": [
                    {
                        "name": "s",
                        "tolerations": [{"key": "k", "operator": "Equal"}],
                        "allocationMode": "ExactCount",
                        "count": 1,
                    }
                ],
            }
        ),
    ),
    "a template's claim is defaulted": (
        "ResourceClaimTemplate",
        "v1",
        {"spec": in_claim({"name": "r", "exactly": {"deviceClassName": "c"}})},
        {
            "spec": in_claim(
                {"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}
            )
        },
    ),
    "results have tolerations too": (
        "ResourceClaim",
        "v1",
        {"status": {"allocation": {"devices": {"results": [{"tolerations": [{"key": "k", "operator": ""}]}]}}}},
        {"status": {"allocation": {"devices": {"results": [{"tolerations": [{"key": "k", "operator": "Equal"}]}]}}}},
    ),
    "a taint of a device is stamped": (
        "ResourceSlice",
        "v1",
        in_slice({"name": "d", "taints": [TAINT, {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"}]}),
        in_slice(
            {"name": "d", "taints": [{**TAINT, "timeAdded": STAMP}, {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"}]}
        ),
    ),
    "so it is in a v1beta1 device": (
        "ResourceSlice",
        "v1beta1",
        in_slice({"name": "d", "basic": {"taints": [TAINT]}}),
        in_slice({"name": "d", "basic": {"taints": [{**TAINT, "timeAdded": STAMP}]}}),
    ),
    "quantities get their canonical text": (
        "ResourceSlice",
        "v1",
        in_slice(
            {
                "name": "d",
                "capacity": {
                    "a": {
                        "value": "1024Mi",
                        "requestPolicy": {"default": 1.5, "validValues": [1500, "2000m"], "validRange": {"min": "0.5"}},
                    }
                },
                "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": 1000}}}],
            }
        ),
        in_slice(
            {
                "name": "d",
                "capacity": {
                    "a": {
                        "value": "1Gi",
                        "requestPolicy": {
                            "default": "1500m",
                            "validValues": ["1500", "2"],
                            "validRange": {"min": "500m"},
                        },
                    }
                },
                "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1k"}}}],
            }
        ),
    ),
    "a rule's taint is stamped": (
        "DeviceTaintRule",
        "v1",
        {"spec": {"taint": TAINT}},
        {"spec": {"taint": {**TAINT, "timeAdded": STAMP}}},
    ),
    "a status request has a limit": ("ResourcePoolStatusRequest", "v1alpha3", {"spec": {}}, {"spec": {"limit": 100}}),
    "a class has no defaults": ("DeviceClass", "v1", {"spec": {"selectors": []}}, {"spec": {"selectors": []}}),
}


@pytest.mark.parametrize(("kind", "version", "sent", "stored"), DRA.values(), ids=DRA)
def test_kinds_of_resource_k8s_io(kind: str, version: str, sent: Obj, stored: Obj) -> None:
    before = copy.deepcopy(sent)
    assert defaults.apply(kind, version, sent, NOW) == stored
    assert sent == before
    assert defaults.apply(kind, version, stored, datetime(2030, 1, 1, tzinfo=UTC)) == stored, "again changes nothing"


def test_a_claim_of_v1beta1_is_stored_as_v1_is() -> None:
    old = in_claim({"name": "r", "deviceClassName": "c"})
    new = in_claim({"name": "r", "exactly": {"deviceClassName": "c"}})
    assert convert.to_stored("ResourceClaim", "v1beta1", defaults.apply("ResourceClaim", "v1beta1", old, NOW)) == (
        defaults.apply("ResourceClaim", "v1", new, NOW)
    )


CONTAINER = {
    "name": "c",
    "image": "app:1",
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
POD_SPEC = {
    "containers": [CONTAINER],
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}
FULL_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}


def pod(**container: Any) -> Obj:
    return {"spec": {"containers": [{"name": "c", "image": "app:1", **container}]}}


def full_pod(**container: Any) -> Obj:
    return {"spec": {**POD_SPEC, "enableServiceLinks": True, "containers": [{**CONTAINER, **container}]}}


KINDS: dict[str, tuple[str, Obj, Obj]] = {
    "a pod": ("Pod", pod(), full_pod()),
    "a pod's limits are its requests": (
        "Pod",
        pod(resources={"limits": {"cpu": "0.5", "example.com/gpu": 1}, "requests": {"cpu": "250m"}}),
        full_pod(
            resources={
                "limits": {"cpu": "500m", "example.com/gpu": "1"},
                "requests": {"cpu": "250m", "example.com/gpu": "1"},
            }
        ),
    ),
    "a pod's ports, probes and variables": (
        "Pod",
        pod(
            ports=[{"containerPort": 80}],
            livenessProbe={"httpGet": {"port": 80}},
            env=[{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        ),
        full_pod(
            ports=[{"containerPort": 80, "protocol": "TCP"}],
            livenessProbe={
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            },
            env=[{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}}],
        ),
    ),
    "a deployment": (
        "Deployment",
        {"spec": {"template": TEMPLATE}},
        {
            "spec": {
                "template": FULL_TEMPLATE,
                "replicas": 1,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            }
        },
    ),
    "a deployment scaled to nothing stays there": (
        "Deployment",
        {"spec": {"replicas": 0, "strategy": {"type": "Recreate"}}},
        {
            "spec": {
                "replicas": 0,
                "strategy": {"type": "Recreate"},
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            }
        },
    ),
    "a replica set": (
        "ReplicaSet",
        {"spec": {"template": TEMPLATE}},
        {"spec": {"template": FULL_TEMPLATE, "replicas": 1}},
    ),
    "a stateful set": (
        "StatefulSet",
        {"spec": {"template": TEMPLATE, "volumeClaimTemplates": [{"spec": {}}]}},
        {
            "spec": {
                "template": FULL_TEMPLATE,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "volumeClaimTemplates": [{"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}],
            }
        },
    ),
    "a daemon set": (
        "DaemonSet",
        {"spec": {"template": TEMPLATE}},
        {
            "spec": {
                "template": FULL_TEMPLATE,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
                "revisionHistoryLimit": 10,
            }
        },
    ),
    "a job": (
        "Job",
        {"spec": {"template": TEMPLATE}},
        {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "template": FULL_TEMPLATE,
                "completions": 1,
                "parallelism": 1,
                "backoffLimit": 6,
                "completionMode": "NonIndexed",
                "suspend": False,
                "podReplacementPolicy": "TerminatingOrFailed",
                "manualSelector": False,
            },
        },
    ),
    "a job with parallelism works off a queue": (
        "Job",
        {"spec": {"parallelism": 3, "backoffLimitPerIndex": 1}},
        {
            "metadata": {},
            "spec": {
                "parallelism": 3,
                "backoffLimit": 2**31 - 1,
                "backoffLimitPerIndex": 1,
                "completionMode": "NonIndexed",
                "suspend": False,
                "podReplacementPolicy": "TerminatingOrFailed",
                "manualSelector": False,
            },
        },
    ),
    "a cron job": (
        "CronJob",
        {"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": TEMPLATE}}}},
        {
            "spec": {
                "schedule": "@daily",
                "jobTemplate": {"spec": {"template": FULL_TEMPLATE}},
                "concurrencyPolicy": "Allow",
                "suspend": False,
                "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 1,
            }
        },
    ),
    "a namespace is labelled": (
        "Namespace",
        {"metadata": {"name": "n"}},
        {"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}},
    ),
    "a node's capacity is allocatable": (
        "Node",
        {"status": {"capacity": {"memory": "1024Ki"}}},
        {"status": {"capacity": {"memory": "1Mi"}, "allocatable": {"memory": "1Mi"}}},
    ),
    "a secret": ("Secret", {}, {"type": "Opaque"}),
    "a service": (
        "Service",
        {"spec": {"ports": [{"port": 80}]}},
        {
            "spec": {
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                "sessionAffinity": "None",
                "type": "ClusterIP",
                "internalTrafficPolicy": "Cluster",
            }
        },
    ),
    "a priority class": (
        "PriorityClass",
        {"value": 0},
        {"value": 0, "preemptionPolicy": "PreemptLowerPriority"},
    ),
    "a binding": (
        "RoleBinding",
        {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User"}, {"kind": "ServiceAccount"}]},
        {
            "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount"}],
        },
    ),
    "a limit range": (
        "LimitRange",
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": 2}, "min": {"memory": "1Mi"}}]}},
        {
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "2"},
                        "min": {"memory": "1Mi"},
                        "default": {"cpu": "2"},
                        "defaultRequest": {"cpu": "2", "memory": "1Mi"},
                    }
                ]
            }
        },
    ),
    "an unknown kind": ("Widget", {"spec": {"a": None}}, {"spec": {"a": None}}),
}


@pytest.mark.parametrize(("kind", "sent", "stored"), KINDS.values(), ids=KINDS)
def test_other_kinds(kind: str, sent: Obj, stored: Obj) -> None:
    before = copy.deepcopy(sent)
    assert defaults.apply(kind, "v1", sent, NOW) == stored
    assert sent == before
    assert defaults.apply(kind, "v1", stored, NOW) == stored, "again changes nothing"


IMAGES = {
    "": "IfNotPresent",
    "app": "Always",
    "app:latest": "Always",
    "host:5000/app": "Always",
    "host:5000/app:1": "IfNotPresent",
    "app@sha256:abc": "IfNotPresent",
    "app:latest@sha256:abc": "IfNotPresent",
}


@pytest.mark.parametrize(("image", "policy"), IMAGES.items(), ids=IMAGES)
def test_an_image_is_pulled_by_its_tag(image: str, policy: str) -> None:
    got = defaults.apply("Pod", "v1", pod(image=image), NOW)["spec"]["containers"][0]
    assert got["imagePullPolicy"] == policy


def test_volumes_get_a_source_and_a_mode() -> None:
    volumes = [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "hostPath": {"path": "/"}}]
    got = defaults.apply("Pod", "v1", {"spec": {"volumes": volumes}}, NOW)["spec"]["volumes"]
    assert got == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "hostPath": {"path": "/", "type": ""}},
    ]
