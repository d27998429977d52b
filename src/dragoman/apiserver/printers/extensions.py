"""What do the kinds that extend or secure a cluster look like in a table, and those of its network and storage?

Admission, certificates, flow control, custom resource definitions, CSI, addresses, autoscaling, pod groups.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object
from dragoman.apiserver.printers.column import (
    NONE,
    UNKNOWN,
    UNSET,
    Cell,
    Printer,
    age,
    at,
    columns,
    entries,
    human_duration,
    labels_text,
    name_of,
    number,
    selector_text,
    since,
    text,
)


def _true_conditions(obj: Object) -> list[str]:
    return [text(c, "type") for c in entries(obj, "status", "conditions") if c.get("status") == "True"]


def _condition(obj: Object, type_: str) -> Any:
    return next((c for c in entries(obj, "status", "conditions") if c.get("type") == type_), None)


# ---- admission and extension


def _webhooks(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), len(entries(obj, "webhooks")), age(obj, now)]


def _param_kind(obj: Object) -> str:
    kind = at(obj, "spec", "paramKind")
    return f"{text(kind, 'apiVersion')}/{text(kind, 'kind')}" if kind else UNSET


def _validating_policy(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), len(entries(obj, "spec", "validations")), _param_kind(obj), age(obj, now)]


def _mutating_policy(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), len(entries(obj, "spec", "mutations")), _param_kind(obj), age(obj, now)]


def _policy_binding(obj: Object, now: float) -> list[Cell]:
    ref = at(obj, "spec", "paramRef") or {}
    shown = UNSET
    if ref.get("name"):
        shown = f"{ref.get('namespace') or '*'}/{ref['name']}"
    elif "selector" in ref:
        shown = selector_text(ref["selector"])
    return [name_of(obj), text(obj, "spec", "policyName"), shown, age(obj, now)]


def _definition(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), text(obj, "metadata", "creationTimestamp") or UNKNOWN]


def _api_service(obj: Object, now: float) -> list[Cell]:
    service = at(obj, "spec", "service")
    where = f"{text(service, 'namespace')}/{text(service, 'name')}" if service else "Local"
    available = _condition(obj, "Available")
    shown = "Unknown"
    if available:
        shown = (
            "True" if available.get("status") == "True" else f"{available.get('status')} ({text(available, 'reason')})"
        )
    return [name_of(obj), where, shown, age(obj, now)]


# ---- certificates


def _signing_request(obj: Object, now: float) -> list[Cell]:
    types = {text(c, "type") for c in entries(obj, "status", "conditions")}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    state += ",Failed" if "Failed" in types else ""
    state += ",Issued" if at(obj, "status", "certificate") else ""
    seconds = at(obj, "spec", "expirationSeconds")
    duration = NONE if seconds is None else human_duration(seconds)
    signer = text(obj, "spec", "signerName") or NONE
    return [name_of(obj), age(obj, now), signer, text(obj, "spec", "username"), duration, state]


def _trust_bundle(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), text(obj, "spec", "signerName") or NONE]


def _pod_certificate(obj: Object, now: float) -> list[Cell]:
    ends = [text(c, "type") for c in entries(obj, "status", "conditions")]
    state = next((type_ for type_ in reversed(ends) if type_ in ("Issued", "Denied", "Failed")), "Pending")
    fields = ("podName", "serviceAccountName", "nodeName", "signerName")
    shown = [text(obj, "spec", field) for field in fields]
    return [name_of(obj), *shown, state, labels_text(at(obj, "spec", "unverifiedUserAnnotations"))]


# ---- flow control, migration


def _flow_schema(obj: Object, now: float) -> list[Cell]:
    dangling = _condition(obj, "Dangling")
    return [
        name_of(obj),
        text(obj, "spec", "priorityLevelConfiguration", "name"),
        number(obj, "spec", "matchingPrecedence"),
        text(obj, "spec", "distinguisherMethod", "type") or NONE,
        age(obj, now),
        text(dangling, "status") if dangling else "?",
    ]


def _priority_level(obj: Object, now: float) -> list[Cell]:
    limited = at(obj, "spec", "limited")
    queuing = at(limited, "limitResponse", "queuing")
    shares: Cell = number(limited, "nominalConcurrencyShares") if limited else NONE
    fields = ("queues", "handSize", "queueLengthLimit")
    queues: list[Cell] = [number(queuing, field) if queuing else NONE for field in fields]
    return [name_of(obj), text(obj, "spec", "type"), shares, *queues, age(obj, now)]


def _migration(obj: Object, now: float) -> list[Cell]:
    group, resource = text(obj, "spec", "resource", "group"), text(obj, "spec", "resource", "resource")
    states = [type_ for type_ in _true_conditions(obj) if type_ in ("Running", "Failed", "Succeeded")]
    return [name_of(obj), f"{resource}.{group}" if group else resource, states[-1] if states else "Unknown"]


# ---- network


def _ingress_class(obj: Object, now: float) -> list[Cell]:
    default = text(obj, "metadata", "annotations", "ingressclass.kubernetes.io/is-default-class") == "true"
    parameters = at(obj, "spec", "parameters")
    shown = NONE
    if parameters:
        group = text(parameters, "apiGroup")
        kind = f"{text(parameters, 'kind')}.{group}" if group else text(parameters, "kind")
        shown = f"{kind}/{text(parameters, 'name')}"
    name = f"{name_of(obj)} (default)" if default else name_of(obj)
    return [name, text(obj, "spec", "controller"), shown, age(obj, now)]


def _address(obj: Object, now: float) -> list[Cell]:
    ref = at(obj, "spec", "parentRef")
    if not ref:
        return [name_of(obj), NONE]
    resource = ".".join(filter(None, (text(ref, "resource"), text(ref, "group")))).lower()
    return [name_of(obj), "/".join(filter(None, (resource, text(ref, "namespace"), text(ref, "name"))))]


def _service_cidr(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), ",".join(map(str, entries(obj, "spec", "cidrs"))), age(obj, now)]


# ---- storage


def _csi_driver(obj: Object, now: float) -> list[Cell]:
    spec: Object = at(obj, "spec") or {}
    requests = spec.get("tokenRequests")
    audiences = UNSET if requests is None else ",".join(text(request, "audience") for request in requests)
    modes = ",".join(map(str, entries(spec, "volumeLifecycleModes"))) or NONE
    return [
        name_of(obj),
        bool(spec.get("attachRequired", True)),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        audiences,
        bool(spec.get("requiresRepublish")),
        modes,
        age(obj, now),
    ]


def _csi_capacity(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), text(obj, "storageClassName"), text(obj, "capacity") or UNSET]


def _attachment(obj: Object, now: float) -> list[Cell]:
    return [
        name_of(obj),
        text(obj, "spec", "attacher"),
        text(obj, "spec", "source", "persistentVolumeName"),
        text(obj, "spec", "nodeName"),
        bool(at(obj, "status", "attached")),
        age(obj, now),
    ]


def _attributes_class(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), text(obj, "driverName"), age(obj, now)]


# ---- workloads and devices


def _autoscaler(obj: Object, now: float) -> list[Cell]:
    target = at(obj, "spec", "scaleTargetRef")
    least = at(obj, "spec", "minReplicas")
    return [
        name_of(obj),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _metrics(entries(obj, "spec", "metrics"), entries(obj, "status", "currentMetrics")),
        UNSET if least is None else str(least),
        number(obj, "spec", "maxReplicas"),
        number(obj, "status", "currentReplicas"),
        age(obj, now),
    ]


_METRIC_SHOWN = 2
_SOURCES = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _metrics(specs: list[Any], statuses: list[Any]) -> str:
    if not specs:
        return NONE
    shown = [_metric(spec, statuses[index] if index < len(statuses) else None) for index, spec in enumerate(specs)]
    more = f" + {len(shown) - _METRIC_SHOWN} more..." if len(shown) > _METRIC_SHOWN else ""
    return ", ".join(shown[:_METRIC_SHOWN]) + more


def _metric(spec: Object, status: Any) -> str:
    source = _SOURCES.get(text(spec, "type"))
    if source is None:
        return "<unknown type>"
    target, current = at(spec, source, "target") or {}, at(status, source, "current") or {}
    average = target.get("averageValue")
    if source in ("resource", "containerResource"):
        name = text(spec, source, "name")
        if average is not None:
            return f"{name}: {current.get('averageValue', UNKNOWN)}/{average}"
        now, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        return f"{name}: {UNKNOWN if now is None else f'{now}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if source == "pods":
        return f"{current.get('averageValue', UNKNOWN)}/{average}"
    if average is not None:
        return f"{current.get('averageValue', UNKNOWN)}/{average} (avg)"
    return f"{current.get('value', UNKNOWN)}/{target.get('value')}"


def _pod_group(obj: Object, now: float) -> list[Cell]:
    policy = "Gang" if at(obj, "spec", "schedulingPolicy", "gang") is not None else "Basic"
    state = "Pending"
    if scheduled := _condition(obj, "PodGroupInitiallyScheduled"):
        state = "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"
    if disrupted := _condition(obj, "DisruptionTarget"):
        state = text(disrupted, "reason")
    return [name_of(obj), policy, text(obj, "spec", "workloadRef", "workloadName") or NONE, state, age(obj, now)]


def _taint_rule(obj: Object, now: float) -> list[Cell]:
    taint = at(obj, "spec", "taint")
    fields = [text(taint, field) for field in ("key", "value", "effect")]
    return [name_of(obj), *fields, since(at(taint, "timeAdded"), now), age(obj, now)]


def _pool_status(obj: Object, now: float) -> list[Cell]:
    status = at(obj, "status")
    conditions = {text(c, "type"): c for c in entries(status, "conditions") if c.get("status") == "True"}
    pools = entries(status, "pools")
    count = number(status, "poolCount")
    state, completed = "Pending", NONE
    counts = ["-"] * 5
    if "Complete" in conditions:
        state = "Complete" if count <= len(pools) else f"Complete ({len(pools)}/{count} pools)"
        completed = since(at(conditions["Complete"], "lastTransitionTime"), now)
    elif "Failed" in conditions:
        state = "Failed"
    if status and state != "Failed":
        fields = ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")
        counts = [str(sum(number(pool, field) for pool in pools)) for field in fields]
        counts.append(str(sum(at(pool, "validationError") is not None for pool in pools)))
    return [name_of(obj), text(obj, "spec", "driver"), *counts, count, state, completed]


_ADMISSION, _STORAGE, _NETWORK = "admissionregistration.k8s.io", "storage.k8s.io", "networking.k8s.io"
_CERTIFICATES, _FLOW, _DRA = "certificates.k8s.io", "flowcontrol.apiserver.k8s.io", "resource.k8s.io"
_GROUPING = "scheduling.k8s.io"
_HOOKS = Printer(columns("Name", "Webhooks", "Age", integers=("Webhooks",)), _webhooks)
_BINDING = Printer(columns("Name", "PolicyName", "ParamRef", "Age"), _policy_binding)

PRINTERS = {
    (_ADMISSION, "MutatingWebhookConfiguration"): _HOOKS,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _HOOKS,
    (_ADMISSION, "ValidatingAdmissionPolicy"): Printer(
        columns("Name", "Validations", "ParamKind", "Age", integers=("Validations",)), _validating_policy
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): Printer(
        columns("Name", "Mutations", "ParamKind", "Age", integers=("Mutations",)), _mutating_policy
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _BINDING,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _BINDING,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Printer(columns("Name", "Created At"), _definition),
    ("apiregistration.k8s.io", "APIService"): Printer(columns("Name", "Service", "Available", "Age"), _api_service),
    (_CERTIFICATES, "CertificateSigningRequest"): Printer(
        columns("Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"), _signing_request
    ),
    (_CERTIFICATES, "ClusterTrustBundle"): Printer(columns("Name", "SignerName"), _trust_bundle),
    (_CERTIFICATES, "PodCertificateRequest"): Printer(
        columns(
            *("Name", "PodName", "ServiceAccountName", "NodeName", "SignerName", "State", "UnverifiedUserAnnotations"),
            wide=("UnverifiedUserAnnotations",),
        ),
        _pod_certificate,
    ),
    (_FLOW, "FlowSchema"): Printer(
        columns(
            *("Name", "PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", "Age", "MissingPL"),
            integers=("MatchingPrecedence",),
        ),
        _flow_schema,
    ),
    (_FLOW, "PriorityLevelConfiguration"): Printer(
        columns("Name", "Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"),
        _priority_level,
    ),
    ("storagemigration.k8s.io", "StorageVersionMigration"): Printer(columns("Name", "Resource", "Status"), _migration),
    (_NETWORK, "IngressClass"): Printer(columns("Name", "Controller", "Parameters", "Age"), _ingress_class),
    (_NETWORK, "IPAddress"): Printer(columns("Name", "ParentRef"), _address),
    (_NETWORK, "ServiceCIDR"): Printer(columns("Name", "CIDRs", "Age"), _service_cidr),
    (_STORAGE, "CSIDriver"): Printer(
        columns(
            *("Name", "AttachRequired", "PodInfoOnMount", "StorageCapacity", "TokenRequests", "RequiresRepublish"),
            *("Modes", "Age"),
            booleans=("AttachRequired", "PodInfoOnMount", "StorageCapacity", "RequiresRepublish"),
        ),
        _csi_driver,
    ),
    (_STORAGE, "CSIStorageCapacity"): Printer(columns("Name", "StorageClassName", "Capacity"), _csi_capacity),
    (_STORAGE, "VolumeAttachment"): Printer(
        columns("Name", "Attacher", "PV", "Node", "Attached", "Age", booleans=("Attached",)), _attachment
    ),
    (_STORAGE, "VolumeAttributesClass"): Printer(columns("Name", "DriverName", "Age"), _attributes_class),
    ("autoscaling", "HorizontalPodAutoscaler"): Printer(
        columns(
            *("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"),
            integers=("MaxPods", "Replicas"),
        ),
        _autoscaler,
    ),
    (_GROUPING, "PodGroup"): Printer(columns("Name", "Policy", "Workload", "Status", "Age"), _pod_group),
    (_DRA, "DeviceTaintRule"): Printer(columns("Name", "Key", "Value", "Effect", "TimeAdded", "Age"), _taint_rule),
    (_DRA, "ResourcePoolStatusRequest"): Printer(
        columns(
            *("Name", "Driver", "Total", "Available", "Allocated", "Unavailable", "Errors"),
            *("Pools", "Status", "Completed"),
            integers=("Pools",),
        ),
        _pool_status,
    ),
}
