"""Is this object valid, and may it change so? As the API server judges, with field paths and its wording.

Works on JSON-shaped dicts of the stored version, after defaulting (`api.defaults`), conversion (`api.convert`) and
whatever the server sets itself. Never changes what it judges; other objects (namespaces, quotas) are the
business of admission.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.api.codec import TYPES, decode
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.api.validate import autoscaling, claims, core, meta, others, pods, slices, workloads
from dragoman.api.validate.field import TYPE_INVALID, Errors, FieldError, FieldReason
from dragoman.errors import Invalid
from dragoman.values import names

__all__ = ["FieldError", "create", "update"]

ValidateCreate = Callable[[Object, Gates], Errors]
Update = Callable[[Object, Object, Gates], Errors]


def create(kind: str, obj: Object, *, gates: Gates = DEFAULTS) -> list[FieldError]:
    """What is wrong with an object to be created, [] for nothing. `kind` is the kind's name."""
    if (mistyped := _mistyped(kind, obj)) is not None:
        return [mistyped]
    reason = _NAMES.get(kind, names.dns_subdomain)
    known = BY_NAME.get(kind)
    namespaced = known.namespaced if known else bool((obj.get("metadata") or {}).get("namespace"))
    errors = meta.metadata(obj, reason, namespaced=namespaced)
    errors += meta.core_finalizers(obj) if known is not None and not known.group else []
    if (rules := _CREATE.get(kind)) is not None:
        errors += rules(obj, gates)
    return errors


def update(kind: str, new: Object, old: Object, subresource: str = "", *, gates: Gates = DEFAULTS) -> list[FieldError]:
    """What is wrong with a change, [] for nothing. `subresource` is "" or e.g. `status`."""
    if (mistyped := _mistyped(kind, new)) is not None:
        return [mistyped]
    known = BY_NAME.get(kind)
    errors = meta.metadata_update(new, old)
    errors += meta.core_finalizers(new) if known is not None and not known.group else []
    if not subresource and (always := _ALWAYS.get(kind)) is not None:
        errors += always(new, gates)
    if (rules := _UPDATE.get((kind, subresource))) is not None:
        errors += rules(new, old, gates)
    return errors


def _mistyped(kind: str, obj: Object) -> FieldError | None:
    """A wrong JSON type makes all other findings moot."""
    if kind not in TYPES:
        return None
    try:
        decode(TYPES[kind], obj)
    except Invalid as error:
        return FieldError(error.where, TYPE_INVALID, "", error.what)
    return None


def _name_in_path(text: str) -> str | None:
    """Kinds whose names only must fit into a URL."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    return next((f"may not contain '{sign}'" for sign in "/%" if sign in text), None)


_NAMES: dict[str, FieldReason] = {
    "Namespace": names.dns_label,
    "Service": names.dns_label_1035,
    "Role": _name_in_path,
    "RoleBinding": _name_in_path,
    "ClusterRole": _name_in_path,
    "ClusterRoleBinding": _name_in_path,
    "ClusterTrustBundle": _name_in_path,
}

# Rules that look at the new object alone: run on creation and on every change of the main resource.
_ALWAYS: dict[str, ValidateCreate] = {
    "DeviceTaintRule": others.taint_rule,
    "Deployment": workloads.deployment,
    "ReplicaSet": workloads.replica_set,
    "ReplicationController": workloads.replication_controller,
    "DaemonSet": workloads.daemon_set,
    "CronJob": workloads.cron_job,
    "HorizontalPodAutoscaler": autoscaling.autoscaler,
    "Node": core.node,
    "Service": core.service,
    "PodDisruptionBudget": core.disruption_budget,
    "ResourceQuota": core.resource_quota,
    "LimitRange": core.limit_range,
    "ConfigMap": core.config_map,
    "Secret": core.secret,
    "Ingress": core.ingress,
    "NetworkPolicy": core.network_policy,
    "RoleBinding": core.binding,
    "ClusterRoleBinding": core.binding,
    "Lease": core.lease,
}

_CREATE: dict[str, ValidateCreate] = {
    **_ALWAYS,
    "ResourceClaim": claims.claim,
    "ResourceClaimTemplate": claims.template,
    "ResourceSlice": slices.resource_slice,
    "DeviceClass": others.device_class,
    "ResourcePoolStatusRequest": others.pool_status_request,
    "Pod": pods.pod,
    "StatefulSet": workloads.stateful_set,
    "Job": workloads.job,
    "PodGroup": workloads.pod_group,
    "Workload": workloads.gang_workload,
    "PriorityClass": core.priority_class,
    "PersistentVolumeClaim": core.volume_claim,
    "StorageClass": core.storage_class,
    "RuntimeClass": core.runtime_class,
    "Event": core.event,
    "EndpointSlice": core.endpoint_slice,
}


def _selector_kept(new: Object, old: Object, gates: Gates) -> Errors:
    return workloads.selector_kept(new, old)


# What a change must keep, beside _ALWAYS.
_UPDATE: dict[tuple[str, str], Update] = {
    ("ResourceClaim", ""): claims.claim_update,
    ("ResourceClaim", "status"): claims.claim_status_update,
    ("ResourceClaimTemplate", ""): claims.template_update,
    ("ResourceSlice", ""): slices.resource_slice_update,
    ("DeviceClass", ""): others.device_class_update,
    ("DeviceTaintRule", "status"): others.taint_rule_status_update,
    ("ResourcePoolStatusRequest", ""): others.pool_status_request_update,
    ("ResourcePoolStatusRequest", "status"): others.pool_status_request_status_update,
    ("Pod", ""): pods.pod_update,
    ("Pod", "status"): pods.pod_status_update,
    ("Pod", "ephemeralcontainers"): pods.pod_ephemeral_update,
    ("Deployment", ""): _selector_kept,
    ("ReplicaSet", ""): _selector_kept,
    ("DaemonSet", ""): _selector_kept,
    ("StatefulSet", ""): workloads.stateful_set_update,
    ("Job", ""): workloads.job_update,
    ("PodGroup", ""): workloads.pod_group_update,
    ("PodGroup", "status"): workloads.pod_group_status_update,
    ("Workload", ""): workloads.gang_workload_update,
    ("Node", ""): core.node_update,
    ("Node", "status"): core.node_status,
    ("PriorityClass", ""): core.priority_class_update,
    ("ConfigMap", ""): core.config_map_update,
    ("Secret", ""): core.secret_update,
    ("RoleBinding", ""): core.binding_update,
    ("ClusterRoleBinding", ""): core.binding_update,
}
