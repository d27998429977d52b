"""Pods, workloads and core kinds as tables: object, findings as kubectl shows them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.api import defaults, validate

Obj = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
META = {"name": "x", "namespace": "default"}
MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
GPU = "example.com/gpu"


def pod(*containers: Obj, **spec: Any) -> Obj:
    return {"metadata": META, "spec": {"containers": list(containers) or [{"name": "c", "image": "i"}], **spec}}


def container(**more: Any) -> Obj:
    return {"name": "c", "image": "i", **more}


def using(claims: list[Obj], **resources: Any) -> Obj:
    return pod(
        container(resources={"claims": claims, **resources}),
        resourceClaims=[{"name": "gpu", "resourceClaimName": "a"}, {"name": "nic", "resourceClaimTemplateName": "t"}],
    )


def workload(selector: Any = None, labels: Any = None, *, spec: Obj | None = None, pod_spec: Obj | None = None) -> Obj:
    selector = {"matchLabels": {"a": "b"}} if selector is None else selector
    labels = {"a": "b"} if labels is None else labels
    inner = {"containers": [{"name": "c", "image": "i"}], **(pod_spec or {})}
    body = {"selector": selector, "template": {"metadata": {"labels": labels}, "spec": inner}, **(spec or {})}
    return {"metadata": META, "spec": body}


JOB_TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}

# sentence: kind, object before defaulting, what kubectl shows
CREATE: dict[str, tuple[str, Obj, list[str]]] = {
    "a plain pod is valid": ("Pod", pod(), []),
    "a pod has containers": (
        "Pod",
        {"metadata": META, "spec": {"containers": []}},
        ["spec.containers: Required value"],
    ),
    "a container has a name and an image": (
        "Pod",
        pod({"name": "", "image": " "}),
        ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
    ),
    "container names are unique, init containers too": (
        "Pod",
        pod(initContainers=[container()]),
        ['spec.initContainers[0].name: Duplicate value: "c"'],
    ),
    "a restart policy is known": (
        "Pod",
        pod(restartPolicy="Sometimes"),
        ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
    ),
    "requests fit into limits": (
        "Pod",
        pod(container(resources={"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}})),
        ['spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1500m'],
    ),
    "extended resources are whole": (
        "Pod",
        pod(container(resources={"limits": {GPU: "500m"}})),
        [
            f'spec.containers[0].resources.limits[{GPU}]: Invalid value: "500m": must be an integer',
            f'spec.containers[0].resources.requests[{GPU}]: Invalid value: "500m": must be an integer',
        ],
    ),
    "extended resources need a limit": (
        "Pod",
        pod(container(resources={"requests": {GPU: 1}})),
        ["spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"],
    ),
    "extended resources are not overcommitted": (
        "Pod",
        pod(container(resources={"requests": {GPU: 1}, "limits": {GPU: 2}})),
        [f'spec.containers[0].resources.requests: Invalid value: "1": must be equal to {GPU} limit of 2'],
    ),
    "an implied extended resource behaves like others": (
        "Pod",
        pod(container(resources={"requests": {"deviceclass.resource.kubernetes.io/c": 1}})),
        ["spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"],
    ),
    "a resource is standard or has a domain": (
        "Pod",
        pod(container(resources={"limits": {"gpu": 1}})),
        [
            'spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": '
            "must be a standard resource type or fully qualified",
            'spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": '
            "must be a standard resource type or fully qualified",
        ],
    ),
    "nothing is negative": (
        "Pod",
        pod(container(resources={"requests": {"cpu": "-1"}})),
        ['spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
    ),
    "claims of a container are those of the pod": (
        "Pod",
        using([{"name": "gpu"}, {"name": "nic", "request": "r"}]),
        [],
    ),
    "a claim is one of the pod's": (
        "Pod",
        using([{"name": "fpga"}]),
        [
            'spec.containers[0].resources.claims[0]: Not found: "fpga": '
            "must be one of the names in pod.spec.resourceClaims: gpu, nic"
        ],
    ),
    "a pod without claims has none to name": (
        "Pod",
        pod(container(resources={"claims": [{"name": "gpu"}]})),
        [
            'spec.containers[0].resources.claims[0]: Not found: "gpu": '
            "must be one of the names in pod.spec.resourceClaims which is empty"
        ],
    ),
    "a claim as a whole and one of its requests exclude each other": (
        "Pod",
        using([{"name": "gpu"}, {"name": "gpu", "request": "r"}]),
        ['spec.containers[0].resources.claims[1]: Duplicate value: "gpu/r"'],
    ),
    "in any order": (
        "Pod",
        using([{"name": "gpu", "request": "r"}, {"name": "gpu"}]),
        ['spec.containers[0].resources.claims[1]: Duplicate value: "gpu"'],
    ),
    "no pair is named twice": (
        "Pod",
        using([{"name": "gpu", "request": "r"}, {"name": "gpu", "request": "s"}, {"name": "gpu", "request": "r"}]),
        ['spec.containers[0].resources.claims[2]: Duplicate value: "gpu/r"'],
    ),
    "a subrequest cannot be named": (
        "Pod",
        using([{"name": "gpu", "request": "r/s"}]),
        [
            'spec.containers[0].resources.claims[0].request: Invalid value: "r/s": a lowercase RFC 1123 label must '
            "consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character "
            "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ],
    ),
    "a claim entry names a claim or a template": (
        "Pod",
        pod(resourceClaims=[{"name": "a"}, {"name": "b", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}]),
        [
            'spec.resourceClaims[0]: Invalid value: {"name":"a"}: must specify one of: `resourceClaimName`, '
            "`resourceClaimTemplateName`",
            'spec.resourceClaims[1]: Invalid value: {"name":"b","resourceClaimName":"c","resourceClaimTemplateName":"t"}: '
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        ],
    ),
    "claim entries are unique": (
        "Pod",
        pod(resourceClaims=[{"name": "a", "resourceClaimName": "c"}] * 2),
        ['spec.resourceClaims[1].name: Duplicate value: "a"'],
    ),
    "ephemeral containers come later": (
        "Pod",
        pod(ephemeralContainers=[{"name": "e", "image": "i", "resources": {"claims": [{"name": "x"}]}}]),
        [
            "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ],
    ),
    "a mount has its volume": (
        "Pod",
        pod(
            container(volumeMounts=[{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/v"}]),
            volumes=[{"name": "w"}],
        ),
        [
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
            'spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/v": must be unique',
        ],
    ),
    "a projected certificate has a key type, a path and a bounded life": (
        "Pod",
        pod(
            volumes=[
                {
                    "name": "v",
                    "projected": {
                        "sources": [
                            {"podCertificate": {"signerName": "e.com/s", "keyType": "ED25519", "keyPath": "k"}},
                            {"podCertificate": {"signerName": "e.com/s", "maxExpirationSeconds": 60}},
                            {
                                "podCertificate": {
                                    "signerName": "kubernetes.io/s",
                                    "keyType": "ED25519",
                                    "keyPath": "k",
                                    "maxExpirationSeconds": 86401,
                                }
                            },
                        ]
                    },
                }
            ]
        ),
        [
            'spec.volumes[0].projected.sources[1].podCertificate.keyType: Unsupported value: "": supported values: '
            '"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"',
            "spec.volumes[0].projected.sources[1].podCertificate.maxExpirationSeconds: Invalid value: 60: "
            "if provided, maxExpirationSeconds must be >= 3600",
            "spec.volumes[0].projected.sources[1].podCertificate: Required value: "
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
            "spec.volumes[0].projected.sources[2].podCertificate.maxExpirationSeconds: Invalid value: 86401: "
            "if provided, maxExpirationSeconds must be <= 86400",
        ],
    ),
    "a volume has one source": (
        "Pod",
        pod(volumes=[{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]),
        ["spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type"],
    ),
    "a port is a port": (
        "Pod",
        pod(container(ports=[{"containerPort": 70000}])),
        ["spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
    ),
    "a variable has a name and one source": (
        "Pod",
        pod(
            container(env=[{"value": "x"}, {"name": "N", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}])
        ),
        [
            "spec.containers[0].env[0].name: Required value",
            'spec.containers[0].env[1].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
        ],
    ),
    "a probe has a handler": (
        "Pod",
        pod(container(livenessProbe={})),
        ["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
    ),
    "an empty toleration key matches everything with Exists only": (
        "Pod",
        pod(tolerations=[{"operator": "Equal", "value": "v"}]),
        [
            'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, '
            'which means "match all values and all keys"'
        ],
    ),
    "toleration seconds belong to NoExecute": (
        "Pod",
        pod(tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]),
        ["spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set"],
    ),
    "node affinity has valid terms": (
        "Pod",
        pod(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In"}]}]
                    }
                }
            }
        ),
        [
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
            ".matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
        ],
    ),
    "a gated pod has no node": (
        "Pod",
        pod(schedulingGates=[{"name": "g"}], nodeName="n"),
        ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
    ),
    # ---- workloads
    "a plain deployment is valid": ("Deployment", workload(), []),
    "a deployment has a selector": (
        "Deployment",
        {"metadata": META, "spec": {"template": workload()["spec"]["template"]}},
        ["spec.selector: Required value"],
    ),
    "an empty selector is no selector": (
        "Deployment",
        workload({}),
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    ),
    "a selector selects the template": (
        "Deployment",
        workload(labels={"c": "d"}),
        ['spec.template.metadata.labels: Invalid value: {"c":"d"}: `selector` does not match template `labels`'],
    ),
    "expressions select too": (
        "ReplicaSet",
        workload({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}),
        ['spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`'],
    ),
    "a deployment's pods are restarted": (
        "Deployment",
        workload(pod_spec={"restartPolicy": "Never"}),
        ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
    ),
    "a rollout can move": (
        "Deployment",
        workload(spec={"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}),
        ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
    ),
    "Recreate does not roll": (
        "Deployment",
        workload(spec={"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}),
        ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
    ),
    "a percentage is one": (
        "Deployment",
        workload(spec={"strategy": {"rollingUpdate": {"maxSurge": "half"}}}),
        [
            'spec.strategy.rollingUpdate.maxSurge: Invalid value: "half": a valid percent string must be a numeric '
            "string followed by an ending '%' (e.g. '1%', or '93%', regex used for validation is '[0-9]+%')"
        ],
    ),
    "replicas are not negative": (
        "Deployment",
        workload(spec={"replicas": -1}),
        ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
    ),
    "a template's pod is judged": (
        "StatefulSet",
        workload(pod_spec={"containers": [{"name": "c"}]}),
        ["spec.template.spec.containers[0].image: Required value"],
    ),
    "a daemon set is valid": ("DaemonSet", workload(), []),
    "a job's pods end": (
        "Job",
        {
            "metadata": META,
            "spec": {
                "selector": {"matchLabels": {"u": "1"}},
                "template": {"metadata": {"labels": {"u": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        },
        ['spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"'],
    ),
    "an indexed job has completions": (
        "Job",
        {
            "metadata": META,
            "spec": {
                "completionMode": "Indexed",
                "parallelism": 1,
                "selector": {"matchLabels": {"u": "1"}},
                "template": {**JOB_TEMPLATE, "metadata": {"labels": {"u": "1"}}},
            },
        },
        ["spec.completions: Required value: when completion mode is Indexed"],
    ),
    "a cron job has a schedule": (
        "CronJob",
        {"metadata": META, "spec": {"schedule": "* * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}},
        ["spec.schedule: Invalid value: \"* * *\": expected exactly 5 fields, found 3: ['*', '*', '*']"],
    ),
    "a cron job may be daily": (
        "CronJob",
        {"metadata": META, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}},
        [],
    ),
    "a gang counts at least one": (
        "PodGroup",
        {"metadata": META, "spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}},
        ["spec.schedulingPolicy.gang.minCount: Invalid value: 0: must be greater than or equal to 1"],
    ),
    "a group has one policy": (
        "PodGroup",
        {"metadata": META, "spec": {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}},
        [
            "spec.schedulingPolicy: Invalid value: null: exactly one of `basic` or `gang` is required, "
            "but multiple fields are set"
        ],
    ),
    "a group has four claims": (
        "PodGroup",
        {
            "metadata": META,
            "spec": {
                "schedulingPolicy": {"basic": {}},
                "resourceClaims": [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(5)],
            },
        },
        ["spec.resourceClaims: Too many: 5: must have at most 4 items"],
    ),
    # ---- core
    "a node's taints are known and unique": (
        "Node",
        {
            "metadata": {"name": "n"},
            "spec": {
                "taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"}, {"key": "k"}]
            },
        },
        [
            'spec.taints[1]: Duplicate value: {"key":"k","effect":"NoSchedule"}',
            "spec.taints[2].effect: Required value",
        ],
    ),
    "a namespace is a DNS label": (
        "Namespace",
        {"metadata": {"name": "a.b"}},
        ['metadata.name: Invalid value: "a.b": must not contain dots'],
    ),
    "a namespaced object has its namespace": (
        "ConfigMap",
        {"metadata": {"name": "x"}},
        ["metadata.namespace: Required value"],
    ),
    "a service has ports": ("Service", {"metadata": META, "spec": {}}, ["spec.ports: Required value"]),
    "a headless service needs none": ("Service", {"metadata": META, "spec": {"clusterIP": "None"}}, []),
    "several ports have names": (
        "Service",
        {"metadata": META, "spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2}]}},
        ["spec.ports[1].name: Required value"],
    ),
    "a budget says one of two": (
        "PodDisruptionBudget",
        {"metadata": META, "spec": {"minAvailable": 1, "maxUnavailable": 1}},
        [
            'spec: Invalid value: {"minAvailable":1,"maxUnavailable":1}: '
            "minAvailable and maxUnavailable cannot be both set"
        ],
    ),
    "a user's priority has a ceiling": (
        "PriorityClass",
        {"metadata": {"name": "p"}, "value": 1_000_000_001},
        ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
    ),
    "system priorities are the system's": (
        "PriorityClass",
        {"metadata": {"name": "system-mine"}, "value": 1},
        [
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
            "error: system-mine is not a known system priority class"
        ],
    ),
    "the system's own are known": (
        "PriorityClass",
        {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000},
        [],
    ),
    "a config key is one": (
        "ConfigMap",
        {"metadata": META, "data": {"a/b": "c"}},
        [
            "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or "
            "'.' (e.g. 'key.name', or 'KEY_NAME', or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        ],
    ),
    "a secret holds base64": (
        "Secret",
        {"metadata": META, "data": {"a": "%"}},
        ['data[a]: Invalid value: "<value omitted>": must be base64'],
    ),
    "a volume claim asks for storage": (
        "PersistentVolumeClaim",
        {"metadata": META, "spec": {}},
        [
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources.requests[storage]: Required value",
        ],
    ),
    "a role's name may have colons": (
        "ClusterRoleBinding",
        {"metadata": {"name": "system:x"}, "roleRef": {"kind": "ClusterRole", "name": "r"}},
        [],
    ),
    "a core finalizer has a domain or is known": (
        "Pod",
        {**pod(), "metadata": {**META, "finalizers": ["mine", "foregroundDeletion", "e.com/x"]}},
        [
            'metadata.finalizers[0]: Invalid value: "mine": '
            "name is neither a standard finalizer name nor is it fully qualified"
        ],
    ),
    "an event is where its object is": (
        "Event",
        {"metadata": META, "involvedObject": {"namespace": "other"}},
        ['involvedObject.namespace: Invalid value: "other": does not match event.namespace'],
    ),
    "a quota of a class's devices is valid": (
        "ResourceQuota",
        {"metadata": META, "spec": {"hard": {"gpu.example.com.deviceclass.resource.k8s.io/devices": 3, "pods": "1"}}},
        [],
    ),
}


@pytest.mark.parametrize(("kind", "obj", "expected"), CREATE.values(), ids=CREATE)
def test_create(kind: str, obj: Obj, expected: list[str]) -> None:
    stored = defaults.apply(kind, "v1", obj, NOW)
    before = copy.deepcopy(stored)
    assert [str(error) for error in validate.create(kind, stored)] == expected
    assert stored == before


POD = defaults.apply("Pod", "v1", pod(tolerations=[{"key": "k", "operator": "Exists"}]), NOW)


def changed(obj: Obj, **spec: Any) -> Obj:
    return {**obj, "spec": {**obj["spec"], **spec}}


GATED = changed(POD, schedulingGates=[{"name": "a"}])
CLAIMING = defaults.apply("Pod", "v1", using([{"name": "gpu"}], limits={GPU: 1}), NOW)
JOB = defaults.apply(
    "Job",
    "v1",
    {
        "metadata": META,
        "spec": {
            "suspend": True,
            "selector": {"matchLabels": {"u": "1"}},
            "template": {**JOB_TEMPLATE, "metadata": {"labels": {"u": "1"}}},
        },
    },
    NOW,
)
DEPLOYMENT = defaults.apply("Deployment", "v1", workload(), NOW)
STATEFUL = defaults.apply("StatefulSet", "v1", workload(spec={"serviceName": "a"}), NOW)


def with_status(obj: Obj, **status: Any) -> Obj:
    return {**obj, "status": status}


UPDATE: dict[str, tuple[str, str, Obj, Obj, list[str]]] = {
    "a pod's image may change": (
        "Pod",
        "",
        changed(POD, containers=[{**POD["spec"]["containers"][0], "image": "j"}]),
        POD,
        [],
    ),
    "but not vanish": (
        "Pod",
        "",
        changed(POD, containers=[{**POD["spec"]["containers"][0], "image": ""}]),
        POD,
        ["spec.containers[0].image: Required value"],
    ),
    "a pod's node may not change": ("Pod", "", changed(POD, nodeName="n"), POD, [f"spec: Forbidden: {MAY_CHANGE}"]),
    "a pod's claims may not change": (
        "Pod",
        "",
        changed(POD, resourceClaims=[{"name": "a", "resourceClaimName": "b"}]),
        POD,
        [f"spec: Forbidden: {MAY_CHANGE}"],
    ),
    "tolerations are added": (
        "Pod",
        "",
        changed(POD, tolerations=[*POD["spec"]["tolerations"], {"key": "m", "operator": "Exists"}]),
        POD,
        [],
    ),
    "tolerations stay": (
        "Pod",
        "",
        changed(POD, tolerations=[]),
        POD,
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    ),
    "gates are removed": ("Pod", "", changed(GATED, schedulingGates=[]), GATED, []),
    "gates are not added": (
        "Pod",
        "",
        changed(POD, schedulingGates=[{"name": "b"}]),
        POD,
        ["spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gates b"],
    ),
    "a gated pod may be narrowed": ("Pod", "", changed(GATED, nodeSelector={"a": "b"}), GATED, []),
    "a deadline is only shortened": (
        "Pod",
        "",
        changed(POD, activeDeadlineSeconds=20),
        changed(POD, activeDeadlineSeconds=10),
        ["spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value"],
    ),
    "a claim's name is reported for an entry": (
        "Pod",
        "status",
        with_status(CLAIMING, resourceClaimStatuses=[{"name": "nic", "resourceClaimName": "x"}, {"name": "other"}]),
        CLAIMING,
        [
            'status.resourceClaimStatuses[1].name: Invalid value: "other": '
            "must match the name of an entry in `spec.resourceClaims`"
        ],
    ),
    "extended resources are mapped to requests": (
        "Pod",
        "status",
        with_status(
            CLAIMING,
            extendedResourceClaimStatus={
                "resourceClaimName": "x",
                "requestMappings": [
                    {"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-0"},
                    {"containerName": "d", "resourceName": GPU, "requestName": "r"},
                    {"containerName": "c", "resourceName": "cpu", "requestName": "r"},
                    {"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-0"},
                ],
            },
        ),
        CLAIMING,
        [
            'status.extendedResourceClaimStatus.requestMappings[1].containerName: Invalid value: "d": '
            "must be a container of the pod",
            'status.extendedResourceClaimStatus.requestMappings[2].resourceName: Invalid value: "cpu": '
            "must be requested by the container",
            f'status.extendedResourceClaimStatus.requestMappings[3]: Duplicate value: "c/{GPU}/container-0-request-0"',
        ],
    ),
    "health is reported for claims of the pod": (
        "Pod",
        "status",
        with_status(
            CLAIMING,
            containerStatuses=[
                {
                    "name": "c",
                    "allocatedResourcesStatus": [
                        {"name": "claim:gpu/r", "resources": [{"resourceID": "a", "health": "Poorly"}]},
                        {"name": "claim:other"},
                    ],
                }
            ],
        ),
        CLAIMING,
        [
            "status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: "
            '"Poorly": supported values: "Healthy", "Unhealthy", "Unknown"',
            'status.containerStatuses[0].allocatedResourcesStatus[1].name: Invalid value: "claim:other": '
            "must match one of the pod's resource claims",
        ],
    ),
    "a deployment is scaled": ("Deployment", "", changed(DEPLOYMENT, replicas=5), DEPLOYMENT, []),
    "a selector stays": (
        "Deployment",
        "",
        {
            **DEPLOYMENT,
            "spec": {**DEPLOYMENT["spec"], "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        },
        DEPLOYMENT,
        ['spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"Exists"}]}: field is immutable'],
    ),
    "a new template is judged": (
        "Deployment",
        "",
        changed(DEPLOYMENT, template={**DEPLOYMENT["spec"]["template"], "metadata": {"labels": {"x": "y"}}}),
        DEPLOYMENT,
        ['spec.template.metadata.labels: Invalid value: {"x":"y"}: `selector` does not match template `labels`'],
    ),
    "little of a stateful set changes": (
        "StatefulSet",
        "",
        changed(STATEFUL, serviceName="b"),
        STATEFUL,
        [
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are "
            "forbidden"
        ],
    ),
    "a stateful set is scaled": ("StatefulSet", "", changed(STATEFUL, replicas=3), STATEFUL, []),
    "a job is resumed": ("Job", "", changed(JOB, suspend=False), JOB, []),
    "completions stay": (
        "Job",
        "",
        changed(JOB, completions=7),
        JOB,
        ["spec.completions: Invalid value: 7: field is immutable"],
    ),
    "a suspended job may be narrowed": (
        "Job",
        "",
        changed(
            JOB,
            template={
                **JOB["spec"]["template"],
                "spec": {**JOB["spec"]["template"]["spec"], "nodeSelector": {"a": "b"}},
            },
        ),
        JOB,
        [],
    ),
    "a priority stays": (
        "PriorityClass",
        "",
        {"metadata": {"name": "p"}, "value": 2},
        {"metadata": {"name": "p"}, "value": 1},
        ["value: Forbidden: may not be changed in an update."],
    ),
    "an immutable config map stays": (
        "ConfigMap",
        "",
        {"metadata": META, "data": {"a": "c"}, "immutable": True},
        {"metadata": META, "data": {"a": "b"}, "immutable": True},
        ["data: Forbidden: field is immutable when `immutable` is set"],
    ),
    "a secret's type stays": (
        "Secret",
        "",
        {"metadata": META, "type": "b"},
        {"metadata": META, "type": "a"},
        ['type: Invalid value: "b": field is immutable'],
    ),
    "a binding's role stays": (
        "RoleBinding",
        "",
        {"metadata": META, "roleRef": {"kind": "Role", "name": "b"}},
        {"metadata": META, "roleRef": {"kind": "Role", "name": "a"}},
        ['roleRef: Invalid value: {"kind":"Role","name":"b"}: cannot change roleRef'],
    ),
}


@pytest.mark.parametrize(("kind", "subresource", "new", "old", "expected"), UPDATE.values(), ids=UPDATE)
def test_update(kind: str, subresource: str, new: Obj, old: Obj, expected: list[str]) -> None:
    assert [str(error) for error in validate.update(kind, new, old, subresource)] == expected


CEL: dict[str, tuple[str, str]] = {
    "an unknown field": ("device.foo == 1", "compilation failed: ERROR: <input>:1:7: undefined field 'foo'"),
    "a number": ("1", "must evaluate to bool or the unknown type, not int"),
    "broken syntax": ("device.driver == ", "compilation failed: ERROR: <input>:1:18: Syntax error"),
    "a gated function": (
        "device.attributes['x'].y.includes(1)",
        "compilation failed: ERROR: <input>:1:34: undeclared reference to 'includes'",
    ),
}


@pytest.mark.parametrize(("expression", "message"), CEL.values(), ids=CEL)
def test_selectors_are_compiled(expression: str, message: str) -> None:
    obj = {"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    (error,) = validate.create("DeviceClass", obj)
    assert error.path == "spec.selectors[0].cel.expression"
    assert error.detail.startswith(message)


def test_a_stored_selector_may_use_what_is_off_today() -> None:
    obj = {
        "metadata": {"name": "c"},
        "spec": {"selectors": [{"cel": {"expression": "device.attributes['x'].y.includes(1)"}}]},
    }
    assert validate.create("DeviceClass", obj) != []
    assert validate.update("DeviceClass", obj, copy.deepcopy(obj)) == []
    more = copy.deepcopy(obj)
    more["spec"]["selectors"].append({"cel": {"expression": "true"}})
    assert len(validate.update("DeviceClass", more, obj)) == 1, "a list that changes is new as a whole"


def test_an_expensive_selector_is_refused_unless_stored() -> None:
    nested = "true"
    for name in "abcdef":
        nested = f"device.attributes['x'].exists({name}, {nested})"
    obj = {"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": nested}}]}}
    assert [str(error) for error in validate.create("DeviceClass", obj)] == [
        "spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"
    ]
    assert validate.update("DeviceClass", obj, copy.deepcopy(obj)) == []
