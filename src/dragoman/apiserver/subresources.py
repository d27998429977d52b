"""What do the verbs below an object do? scale, binding, eviction, ephemeral containers.

Each reads or changes the object it belongs to through the registry, so that all rules of writing hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.custom import paths
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.registry import Registry, patched_by
from dragoman.apiserver.request import DeleteOptions, Write
from dragoman.apiserver.selectors import accepts, of_object, to_text
from dragoman.apiserver.status import bad_request, conflict, invalid, success, too_many
from dragoman.apiserver.store import Selection, StoredObject
from dragoman.apiserver.strategies.base import dig
from dragoman.apiserver.strategies.pods import FINISHED

POD = BY_NAME["Pod"]
BUDGET = BY_NAME["PodDisruptionBudget"]


# ---- scale


def scale_of(record: StoredObject, version: str = "") -> Object:
    """autoscaling/v1 Scale of a workload, or of a custom resource in a version that has one."""
    obj = record.decode()
    meta = obj["metadata"]
    kept = {f: meta[f] for f in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if f in meta}
    if isinstance(record.kind, CustomKind):
        return _custom_scale(record.kind.definition.version(version).scale or {}, obj, kept)
    selector = dig(obj, "spec", "selector")
    if record.kind.kind == "ReplicationController":
        selector = {"matchLabels": selector or {}}
    status: Object = {"replicas": dig(obj, "status", "replicas") or 0}
    if text := to_text(of_object(selector) or ()):
        status["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": kept,
        "spec": {"replicas": dig(obj, "spec", "replicas") or 0},
        "status": status,
    }


def _custom_scale(declared: Object, obj: Object, metadata: Object) -> Object:
    """By the paths of the definition; replicas that are absent count as 0."""
    status: Object = {"replicas": paths.first(obj, declared.get("statusReplicasPath", "")) or 0}
    if text := paths.first(obj, declared.get("labelSelectorPath") or ".nothing"):
        status["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": paths.first(obj, declared.get("specReplicasPath", "")) or 0},
        "status": status,
    }


async def set_scale(registry: Registry, record: StoredObject, scale: Object, write: Write, version: str = "") -> Object:
    """Change the number of replicas to that of a Scale; returns the new Scale. Raises 409, 422."""
    replicas = dig(scale, "spec", "replicas")
    replicas = 0 if replicas is None else replicas
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid(record.kind, record.name, [("FieldValueInvalid", text, "spec.replicas")])
    version = dig(scale, "metadata", "resourceVersion")
    if version and version != str(record.version):
        raise conflict(
            record.kind,
            record.name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )

    def change(obj: Object) -> Object:
        if isinstance(record.kind, CustomKind):
            paths.put(obj, (record.kind.definition.version(version).scale or {})["specReplicasPath"], replicas)
        else:
            obj["spec"]["replicas"] = replicas
        return obj

    outcome = await registry.changing(record, change, subresource="scale", write=write)
    if write.dry_run:
        return {**scale, "spec": {"replicas": replicas}}
    return scale_of(registry.get(outcome.kind, record.name, record.namespace), version)


# ---- binding


async def bind(registry: Registry, name: str, namespace: str, binding: Object, write: Write) -> Object:
    """Assign a pod to a node, once (core/v1 Binding). Raises 404, 409."""
    node = dig(binding, "target", "name")
    if not isinstance(node, str) or not node:
        raise bad_request("binding: target.name must name a node")
    if dig(binding, "target", "kind") not in (None, "", "Node"):
        raise bad_request(f"binding: target.kind must be Node, got {dig(binding, 'target', 'kind')!r}")
    record = registry.get(POD, name, namespace)
    meta: Object = binding.get("metadata") or {}
    uid = meta.get("uid")
    if uid and uid != record.uid:
        raise conflict(POD, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}")

    def change(pod: Object) -> Object:
        if "deletionTimestamp" in pod["metadata"]:
            raise conflict(POD, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise conflict(POD, name, f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
        if pod["spec"].get("schedulingGates"):
            raise conflict(POD, name, f"pod {name} has non-empty .spec.schedulingGates")
        pod["spec"]["nodeName"] = node
        for field in ("annotations", "labels"):
            if meta.get(field):
                pod["metadata"].setdefault(field, {}).update(meta[field])
        _scheduled(pod, registry.now_text())
        return pod

    await registry.changing(record, change, subresource="binding", write=write)
    return success(code=201)


def _scheduled(pod: Object, now: str) -> None:
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    known = next((c for c in conditions if c.get("type") == "PodScheduled"), None)
    if known is None:
        known = {"type": "PodScheduled"}
        conditions.append(known)
    if known.get("status") != "True":
        known["lastTransitionTime"] = now
    known["status"] = "True"
    for field in ("reason", "message"):
        known.pop(field, None)


# ---- eviction


async def evict(registry: Registry, name: str, namespace: str, options: DeleteOptions, write: Write) -> Object:
    """Delete a pod unless that breaks a disruption budget (policy/v1 Eviction). Raises 404, 409, 429.

    Budgets are counted here, from the pods of this moment, not read from the budget's status.
    """
    record = registry.get(POD, name, namespace)
    if options.uid and options.uid != record.uid:
        text = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {record.uid}"
        raise conflict(POD, name, text)
    if options.resource_version and options.resource_version != str(record.version):
        text = (
            f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, "
            f"ResourceVersion in object meta: {record.version}"
        )
        raise conflict(POD, name, text)
    pod = record.decode()
    if dig(pod, "status", "phase") not in (*FINISHED, "Pending") and "deletionTimestamp" not in pod["metadata"]:
        for budget in registry.store.select(BUDGET, Selection(namespace)):
            _respect(registry, budget, record)
    if not options.dry_run and not write.dry_run and "deletionTimestamp" not in pod["metadata"]:
        registry.change(record, _disrupted(registry.now_text()), subresource="status", write=write)
        # The client's condition was met above; the version has moved since by our own hand.
        options = msgspec.structs.replace(options, resource_version="")
    await registry.deleting(POD, name, namespace, options, write=write)
    return success(code=201)


def _disrupted(now: str) -> Callable[[Object], Object]:
    """The change that tells why the pod ends: Jobs with a failure policy read it."""

    def change(pod: Object) -> Object:
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        conditions[:] = [condition for condition in conditions if condition.get("type") != "DisruptionTarget"]
        conditions.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastTransitionTime": now,
            }
        )
        return pod

    return change


def eviction_options(body: Object, *, dry_run: bool = False) -> DeleteOptions:
    """The options of the deletion in an Eviction."""
    options: Object = body.get("deleteOptions") or {}
    preconditions = options.get("preconditions") or {}
    return DeleteOptions(
        grace_s=options.get("gracePeriodSeconds"),
        propagation=options.get("propagationPolicy") or "",
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=dry_run or bool(options.get("dryRun")),
    )


def _respect(registry: Registry, budget: StoredObject, evicted: StoredObject) -> None:
    spec = budget.decode().get("spec") or {}
    selector = of_object(spec.get("selector"))
    if selector is None or not accepts(selector, evicted.labels):
        return
    pods = [p for p in registry.store.select(POD, Selection(budget.namespace)) if accepts(selector, p.labels)]
    expected = [p for p in pods if p.fields.get("status.phase") not in FINISHED]
    healthy = sum(_is_healthy(p) for p in expected)
    if spec.get("minAvailable") is not None:
        needed = _share(spec["minAvailable"], len(expected))
    elif spec.get("maxUnavailable") is not None:
        needed = len(expected) - _share(spec["maxUnavailable"], len(expected))
    else:
        return
    if not _is_healthy(evicted) and healthy >= needed:
        return
    if healthy - 1 < needed:
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {budget.name} needs {needed} healthy pods and has {healthy} currently",
        }
        raise too_many("Cannot evict pod as it would violate the pod's disruption budget.", causes=[cause])


def _is_healthy(record: StoredObject) -> bool:
    pod = record.decode()
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = dig(pod, "status", "conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _share(value: Any, total: int) -> int:
    """A count, or a percentage of the total rounded up."""
    if isinstance(value, int):
        return value
    try:
        return math.ceil(int(str(value).rstrip("%")) * total / 100)
    except ValueError:
        return 0


def patched_scale(type: str, scale: Object, patch: Any) -> Object:
    """A Scale after a patch of any type. Raises 400, 422."""
    if type == "apply":
        type = "merge"
    wanted = patched_by(type, scale, patch, ("autoscaling", "v1", "Scale"))
    if not isinstance(wanted, dict):
        raise bad_request("the patch leaves no Scale behind")
    return wanted
