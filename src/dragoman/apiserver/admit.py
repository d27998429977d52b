"""May this write happen, and what does the cluster add to it? Admission that looks at other objects.

Namespace life cycle, service accounts, priorities, the admin-access label, and the judgement of `api.validate`.
What concerns only the object itself stands in its strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.api import validate
from dragoman.api.admission import admin_access_refused
from dragoman.api.gates import Gates
from dragoman.api.kinds import BY_NAME, Kind
from dragoman.apiserver.request import Write
from dragoman.apiserver.status import Object, forbidden, not_found
from dragoman.apiserver.store import Record

if TYPE_CHECKING:
    from dragoman.apiserver.registry import Registry

NAMESPACE = BY_NAME["Namespace"]
SERVICE_ACCOUNT = BY_NAME["ServiceAccount"]
CONFIG_MAP = BY_NAME["ConfigMap"]
PRIORITY_CLASS = BY_NAME["PriorityClass"]
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
ROOT_CA = "kube-root-ca.crt"
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_BOOT = Write(manager="dragoman-apiserver")
Cause = tuple[str, str, str]
"""Reason, text, field path."""


def bootstrap(registry: Registry) -> None:
    """Make the namespaces, service accounts and priority classes that every cluster has, where absent."""
    for name in NAMESPACES:
        if registry.find(NAMESPACE, name) is None:
            registry.create(NAMESPACE, {"metadata": {"name": name}}, write=_BOOT)
    for record in registry.store.select(NAMESPACE):
        if record.fields.get("status.phase") != "Terminating":
            _furnish(registry, record.name)
    for name, value in SYSTEM_PRIORITIES.items():
        if registry.find(PRIORITY_CLASS, name) is None:
            what = "Used for system critical pods that must run in the cluster"
            body: Object = {"metadata": {"name": name}, "value": value, "description": what}
            registry.create(PRIORITY_CLASS, body, write=_BOOT)


def create(registry: Registry, kind: Kind, obj: Object, write: Write) -> None:
    """Admit a new object, adding what the cluster decides. Raises 403 and 404."""
    namespace = obj["metadata"].get("namespace", "")
    if kind.namespaced:
        _namespace_accepts(registry, kind, obj["metadata"]["name"], namespace)
    if kind.kind == "Pod":
        _service_account(registry, obj, namespace)
        _priority(registry, kind, obj)
    elif kind.kind == "PodGroup":
        _priority(registry, kind, obj)
    elif kind.kind in ("ResourceClaim", "ResourceClaimTemplate"):
        _admin_access(registry, kind, obj, namespace)


def _namespace_accepts(registry: Registry, kind: Kind, name: str, namespace: str) -> None:
    record = registry.find(NAMESPACE, namespace)
    if record is None:
        raise not_found(NAMESPACE, namespace)
    if record.fields.get("status.phase") == "Terminating":
        refused = forbidden(
            kind,
            name,
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        if refused.details is not None:
            refused.details["causes"] = [cause]
        raise refused


def _service_account(registry: Registry, pod: Object, namespace: str) -> None:
    spec = pod["spec"]
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    if registry.find(SERVICE_ACCOUNT, name, namespace) is None:
        raise forbidden(
            BY_NAME["Pod"],
            pod["metadata"]["name"],
            f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
        )


def _priority(registry: Registry, kind: Kind, obj: Object) -> None:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return  # validation has its say about that
    name = spec.get("priorityClassName") or ""
    found = registry.find(PRIORITY_CLASS, name) if name else None
    if name and found is None:
        raise forbidden(kind, obj["metadata"]["name"], f"no PriorityClass with name {name} was found")
    chosen = found.decode() if found else _default_priority(registry)
    value = chosen["value"] if chosen else 0
    policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
    sent = spec.get("priority")
    if sent is not None and sent != value:
        raise forbidden(
            kind,
            obj["metadata"]["name"],
            f"the integer value of priority ({sent}) must not be provided in pod spec; priority admission controller "
            f"computed {value} from the given PriorityClass name",
        )
    if chosen and not name:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = value
    if kind.kind == "Pod" or "preemptionPolicy" not in spec:
        spec.setdefault("preemptionPolicy", policy)


def _default_priority(registry: Registry) -> Object | None:
    chosen: Object | None = None
    for record in registry.store.select(PRIORITY_CLASS):
        if b'"globalDefault":true' not in record.body:
            continue
        obj = record.decode()
        if chosen is None or obj["value"] < chosen["value"]:
            chosen = obj
    return chosen


def _admin_access(registry: Registry, kind: Kind, obj: Object, namespace: str) -> None:
    """controllers.md: requests with adminAccess need the namespace's label (KEP-5018)."""
    record = registry.find(NAMESPACE, namespace)
    path, why = admin_access_refused(kind.kind, obj, record.labels if record is not None else None)
    if path:
        raise forbidden(kind, obj["metadata"]["name"], f"{path}: Forbidden: {why}")


def validate_create(kind: Kind, obj: Object, gates: Gates) -> list[Cause]:
    """The judgement of api.validate on a new object."""
    return [(error.reason, error.body, error.path) for error in validate.create(kind.kind, obj, gates=gates)]


def validate_update(kind: Kind, new: Object, old: Object, subresource: str, gates: Gates) -> list[Cause]:
    """The judgement of api.validate on a change."""
    return [
        (error.reason, error.body, error.path)
        for error in validate.update(kind.kind, new, old, subresource, gates=gates)
    ]


def created(registry: Registry, kind: Kind, record: Record) -> None:
    """What follows at once from a new object: a namespace gets its default service account and root certificate."""
    if kind.kind == "Namespace":
        _furnish(registry, record.name)


def _furnish(registry: Registry, namespace: str) -> None:
    """At start too: a process may have died between a namespace and its content, or the CA may be a new one."""
    if registry.find(SERVICE_ACCOUNT, "default", namespace) is None:
        registry.create(SERVICE_ACCOUNT, {"metadata": {"name": "default"}}, namespace, _BOOT)
    data = {"ca.crt": registry.ca_text}
    if registry.find(CONFIG_MAP, ROOT_CA, namespace) is None:
        registry.create(CONFIG_MAP, {"metadata": {"name": ROOT_CA}, "data": data}, namespace, _BOOT)
    else:
        registry.patch(CONFIG_MAP, ROOT_CA, {"data": data}, namespace, write=_BOOT)


def deleted(registry: Registry, kind: Kind, record: Record) -> None:
    """What follows at once from a deletion."""
    if kind.kind == "Pod":
        registry.logs.forget(record.uid)
