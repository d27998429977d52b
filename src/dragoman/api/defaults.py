"""Which fields does the API server fill in that the writer left out?

Works on JSON-shaped dicts in the version they were sent in, before conversion. Null counts as absent, as do "" and
0 where the API's field is no pointer. Quantities are brought to their canonical text, as the server stores them.
Values of a wrong type are left for validation to judge. Never looks at other objects: what admission adds to a pod
is the API server's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from dragoman.api import deepjson
from dragoman.api.meta import format_time
from dragoman.api.pod_defaults import canonical, canonical_each, container_quantities, default_pod, default_pod_spec
from dragoman.api.shape import Object, dig, objects, sub
from dragoman.api.shape import fill as _fill

_MAX_INT32 = 2**31 - 1


def apply(kind: str, version: str, obj: Object, now: datetime) -> Object:
    """A copy with defaults filled in. `version` is without the group; `now` stamps new device taints."""
    copied: Object = deepjson.copied(obj)
    if (fill_in := _BY_KIND.get(kind)) is not None:
        fill_in(copied, version, now)
    return copied


# ---- resource.k8s.io


def _request_defaults(request: Object) -> None:
    _fill(request, "allocationMode", "ExactCount")
    if request["allocationMode"] == "ExactCount":
        _fill(request, "count", 1)
    _toleration_defaults(request)


def _toleration_defaults(holder: Object) -> None:
    for toleration in objects(holder, "tolerations"):
        _fill(toleration, "operator", "Equal")


def _claim_spec(spec: Object, version: str) -> None:
    for request in objects(dig(spec, "devices"), "requests"):
        for subrequest in objects(request, "firstAvailable"):
            _request_defaults(subrequest)
            canonical_each(dig(subrequest, "capacity"), "requests")
        if version == "v1beta1":
            main: Object | None = request if request.get("deviceClassName") else None
            _toleration_defaults(request)
        else:
            main = sub(request, "exactly")
        if main is not None:
            _request_defaults(main)
        canonical_each(dig(request, "exactly", "capacity"), "requests")
        canonical_each(dig(request, "capacity"), "requests")


def _claim(obj: Object, version: str, now: datetime) -> None:
    _claim_spec(dig(obj, "spec"), version)
    for result in objects(dig(obj, "status", "allocation", "devices"), "results"):
        _toleration_defaults(result)
        canonical_each(result, "consumedCapacity")


def _claim_template(obj: Object, version: str, now: datetime) -> None:
    _claim_spec(dig(obj, "spec", "spec"), version)


def _stamp_taint(taint: Object, now: datetime) -> None:
    _fill(taint, "timeAdded", format_time(now))


def _slice(obj: Object, version: str, now: datetime) -> None:
    spec = dig(obj, "spec")
    for device in objects(spec, "devices"):
        body = dig(device, "basic") if version == "v1beta1" else device
        for taint in objects(body, "taints"):
            _stamp_taint(taint, now)
        for capacity in _members(body, "capacity"):
            canonical(capacity, "value")
            policy = dig(capacity, "requestPolicy")
            canonical(policy, "default")
            for bound in ("min", "max", "step"):
                canonical(dig(policy, "validRange"), bound)
            if isinstance(values := policy.get("validValues"), list):
                box: Object = dict(enumerate(values))  # type: ignore[arg-type]
                for index in box:
                    canonical(box, index)
                policy["validValues"] = list(box.values())
        for consumption in objects(body, "consumesCounters"):
            for counter in _members(consumption, "counters"):
                canonical(counter, "value")
    for counter_set in objects(spec, "sharedCounters"):
        for counter in _members(counter_set, "counters"):
            canonical(counter, "value")


def _members(holder: Object, field: str) -> Iterator[Object]:
    yield from (value for value in dig(holder, field).values() if isinstance(value, dict))


def _taint_rule(obj: Object, version: str, now: datetime) -> None:
    if (taint := sub(dig(obj, "spec"), "taint")) is not None:
        _stamp_taint(taint, now)


def _pool_status_request(obj: Object, version: str, now: datetime) -> None:
    if (spec := sub(obj, "spec")) is not None:
        _fill(spec, "limit", 100)


# ---- workloads


def _template(spec: Object) -> None:
    default_pod_spec(dig(spec, "template", "spec"))


def _deployment(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _template(spec)
    _fill_pointer(spec, "replicas", 1)
    strategy = _made(spec, "strategy")
    _fill(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = _made(strategy, "rollingUpdate")
        _fill_pointer(rolling, "maxUnavailable", "25%")
        _fill_pointer(rolling, "maxSurge", "25%")
    _fill_pointer(spec, "revisionHistoryLimit", 10)
    _fill_pointer(spec, "progressDeadlineSeconds", 600)


def _autoscaler(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _fill_pointer(spec, "minReplicas", 1)
    if version == "v1":
        if "autoscaling.alpha.kubernetes.io/metrics" not in dig(obj, "metadata", "annotations"):
            _fill_pointer(spec, "targetCPUUtilizationPercentage", 80)
        return
    if not spec.get("metrics"):
        target: Object = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if (behavior := sub(spec, "behavior")) is not None:
        up, down = _made(behavior, "scaleUp"), _made(behavior, "scaleDown")
        _fill_pointer(up, "stabilizationWindowSeconds", 0)
        every: Object = {"type": "Percent", "value": 100, "periodSeconds": 15}
        for rules, policies in ((up, [{"type": "Pods", "value": 4, "periodSeconds": 15}, every]), (down, [every])):
            _fill_pointer(rules, "selectPolicy", "Max")
            if rules.get("policies") is None:
                rules["policies"] = [dict(policy) for policy in policies]


def _replica_set(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _template(spec)
    _fill_pointer(spec, "replicas", 1)


def _replication_controller(obj: Object, version: str, now: datetime) -> None:
    _replica_set(obj, version, now)
    spec, metadata = _made(obj, "spec"), _made(obj, "metadata")
    if labels := dig(spec, "template", "metadata", "labels"):
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)


def _stateful_set(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _template(spec)
    _fill(spec, "podManagementPolicy", "OrderedReady")
    strategy = _made(spec, "updateStrategy")
    _fill(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill_pointer(_made(strategy, "rollingUpdate"), "partition", 0)
    retention = _made(spec, "persistentVolumeClaimRetentionPolicy")
    _fill(retention, "whenDeleted", "Retain")
    _fill(retention, "whenScaled", "Retain")
    _fill_pointer(spec, "replicas", 1)
    _fill_pointer(spec, "revisionHistoryLimit", 10)
    for claim in objects(spec, "volumeClaimTemplates"):
        _volume_claim(claim, version, now)


def _daemon_set(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _template(spec)
    strategy = _made(spec, "updateStrategy")
    _fill(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = _made(strategy, "rollingUpdate")
        _fill_pointer(rolling, "maxUnavailable", 1)
        _fill_pointer(rolling, "maxSurge", 0)
    _fill_pointer(spec, "revisionHistoryLimit", 10)


def _job(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _template(spec)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _fill_pointer(spec, "parallelism", 1)
    per_index = spec.get("backoffLimitPerIndex") is not None
    _fill_pointer(spec, "backoffLimit", _MAX_INT32 if per_index else 6)
    metadata = _made(obj, "metadata")
    labels = dig(spec, "template", "metadata", "labels")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    _fill(spec, "completionMode", "NonIndexed")
    _fill_pointer(spec, "suspend", False)
    policy = spec.get("podFailurePolicy")
    _fill(spec, "podReplacementPolicy", "TerminatingOrFailed" if policy is None else "Failed")
    for rule in objects(dig(spec, "podFailurePolicy"), "rules"):
        for condition in objects(rule, "onPodConditions"):
            _fill(condition, "status", "True")
    _fill_pointer(spec, "manualSelector", False)


def _cron_job(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _template(dig(spec, "jobTemplate", "spec"))
    _fill(spec, "concurrencyPolicy", "Allow")
    _fill_pointer(spec, "suspend", False)
    _fill_pointer(spec, "successfulJobsHistoryLimit", 3)
    _fill_pointer(spec, "failedJobsHistoryLimit", 1)


# ---- core and others


def _pod(obj: Object, version: str, now: datetime) -> None:
    default_pod(obj)


def _pod_template(obj: Object, version: str, now: datetime) -> None:
    default_pod_spec(dig(obj, "template", "spec"))


def _namespace(obj: Object, version: str, now: datetime) -> None:
    metadata = _made(obj, "metadata")
    if name := metadata.get("name"):
        if not isinstance(metadata.get("labels"), dict):
            metadata["labels"] = {}
        metadata["labels"].setdefault("kubernetes.io/metadata.name", name)


def _node(obj: Object, version: str, now: datetime) -> None:
    status = dig(obj, "status")
    canonical_each(status, "capacity")
    canonical_each(status, "allocatable")
    if status.get("allocatable") is None and status.get("capacity"):
        status["allocatable"] = dict(status["capacity"])


def _secret(obj: Object, version: str, now: datetime) -> None:
    _fill(obj, "type", "Opaque")


def _service(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    _fill(spec, "sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        _fill_pointer(_made(_made(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10800)
    _fill(spec, "type", "ClusterIP")
    for port in objects(spec, "ports"):
        _fill(port, "protocol", "TCP")
        if port.get("port") is not None:
            _fill(port, "targetPort", port["port"])
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _fill(spec, "externalTrafficPolicy", "Cluster")
    if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
        _fill_pointer(spec, "internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        _fill_pointer(spec, "allocateLoadBalancerNodePorts", True)


def _endpoints(obj: Object, version: str, now: datetime) -> None:
    for subset in objects(obj, "subsets"):
        for port in objects(subset, "ports"):
            _fill(port, "protocol", "TCP")


def _endpoint_slice(obj: Object, version: str, now: datetime) -> None:
    for port in objects(obj, "ports"):
        _fill_pointer(port, "name", "")
        _fill_pointer(port, "protocol", "TCP")


def _volume(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    canonical_each(spec, "capacity")
    _fill(spec, "persistentVolumeReclaimPolicy", "Retain")
    _fill_pointer(spec, "volumeMode", "Filesystem")
    if (host_path := sub(spec, "hostPath")) is not None:
        _fill_pointer(host_path, "type", "")
    _fill(_made(obj, "status"), "phase", "Pending")


def _volume_claim(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    container_quantities(dig(spec, "resources"))
    _fill_pointer(spec, "volumeMode", "Filesystem")
    _fill(_made(obj, "status"), "phase", "Pending")


def _storage_class(obj: Object, version: str, now: datetime) -> None:
    _fill_pointer(obj, "reclaimPolicy", "Delete")
    _fill_pointer(obj, "volumeBindingMode", "Immediate")


def _priority_class(obj: Object, version: str, now: datetime) -> None:
    _fill_pointer(obj, "preemptionPolicy", "PreemptLowerPriority")


def _resource_quota(obj: Object, version: str, now: datetime) -> None:
    canonical_each(dig(obj, "spec"), "hard")
    canonical_each(dig(obj, "status"), "hard")
    canonical_each(dig(obj, "status"), "used")


def _limit_range(obj: Object, version: str, now: datetime) -> None:
    for item in objects(dig(obj, "spec"), "limits"):
        for field in ("default", "defaultRequest", "max", "min", "maxLimitRequestRatio"):
            canonical_each(item, field)
        if item.get("type") != "Container":
            continue
        limits = _made(item, "default")
        requests = _made(item, "defaultRequest")
        for name, value in dig(item, "max").items():
            limits.setdefault(name, value)
        for name, value in limits.items():
            requests.setdefault(name, value)
        for name, value in dig(item, "min").items():
            requests.setdefault(name, value)


def _binding(obj: Object, version: str, now: datetime) -> None:
    rbac = "rbac.authorization.k8s.io"
    if (role := sub(obj, "roleRef")) is not None:
        _fill(role, "apiGroup", rbac)
    for subject in objects(obj, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            _fill(subject, "apiGroup", rbac)


def _network_policy(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    for direction in ("ingress", "egress"):
        for rule in objects(spec, direction):
            for port in objects(rule, "ports"):
                _fill_pointer(port, "protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _mutating_webhooks(obj: Object, version: str, now: datetime) -> None:
    _validating_webhooks(obj, version, now)
    for webhook in objects(obj, "webhooks"):
        webhook.setdefault("reinvocationPolicy", "Never")


def _validating_webhooks(obj: Object, version: str, now: datetime) -> None:
    for webhook in objects(obj, "webhooks"):
        _admission_constraints(webhook, "rules")
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("timeoutSeconds", 10)
        service = (webhook.get("clientConfig") or {}).get("service")
        if isinstance(service, dict):
            service.setdefault("port", 443)


def _admission_constraints(holder: Object, rules: str) -> None:
    holder.setdefault("matchPolicy", "Equivalent")
    holder.setdefault("namespaceSelector", {})
    holder.setdefault("objectSelector", {})
    for rule in objects(holder, rules):
        rule.setdefault("scope", "*")


def _admission_policy(obj: Object, version: str, now: datetime) -> None:
    spec = _made(obj, "spec")
    spec.setdefault("failurePolicy", "Fail")
    constraints = spec.get("matchConstraints")
    if isinstance(constraints, dict):
        _admission_constraints(constraints, "resourceRules")
        for rule in objects(constraints, "excludeResourceRules"):
            rule.setdefault("scope", "*")


def _admission_binding(obj: Object, version: str, now: datetime) -> None:
    resources = _made(obj, "spec").get("matchResources")
    if isinstance(resources, dict):
        _admission_constraints(resources, "resourceRules")


def _made(holder: Object, field: str) -> Object:
    """The object under the field, made if absent; a detached one if the field holds something else."""
    if holder.get(field) is None:
        holder[field] = {}
    return dig(holder, field)


def _fill_pointer(holder: Object, field: str, value: Any) -> None:
    """Sets an absent or null field; unlike `fill`, 0 and "" are values."""
    if holder.get(field) is None:
        holder[field] = value


_BY_KIND: dict[str, Callable[[Object, str, datetime], None]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _claim_template,
    "ResourceSlice": _slice,
    "DeviceTaintRule": _taint_rule,
    "ResourcePoolStatusRequest": _pool_status_request,
    "Pod": _pod,
    "PodTemplate": _pod_template,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "ReplicationController": _replication_controller,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "CronJob": _cron_job,
    "HorizontalPodAutoscaler": _autoscaler,
    "Namespace": _namespace,
    "Node": _node,
    "Secret": _secret,
    "Service": _service,
    "Endpoints": _endpoints,
    "EndpointSlice": _endpoint_slice,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _volume_claim,
    "StorageClass": _storage_class,
    "PriorityClass": _priority_class,
    "ResourceQuota": _resource_quota,
    "LimitRange": _limit_range,
    "ValidatingWebhookConfiguration": _validating_webhooks,
    "MutatingWebhookConfiguration": _mutating_webhooks,
    "ValidatingAdmissionPolicy": _admission_policy,
    "MutatingAdmissionPolicy": _admission_policy,
    "ValidatingAdmissionPolicyBinding": _admission_binding,
    "MutatingAdmissionPolicyBinding": _admission_binding,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "NetworkPolicy": _network_policy,
}
