"""Where does a Service lead? EndpointSlices and Endpoints of the pods that its selector names.

One slice for each Service, of up to MOST endpoints; slices and Endpoints that others keep (Services without selector)
are not touched. It opens no connection.
"""

from __future__ import annotations

import hashlib
from typing import Any

from dragoman.api.core import ClusterService, Pod
from dragoman.api.meta import NamespacedName, ObjectMeta
from dragoman.effects import Create, Delete, Effect, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, owned_by, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.snapshot.change import Change, Gone
from dragoman.snapshot.usage import is_finished

SLICE, ENDPOINTS, SERVICE = "EndpointSlice", "Endpoints", "Service"
KINDS = frozenset({SLICE, ENDPOINTS, SERVICE, "Pod"})
NAME_LABEL, MANAGER_LABEL = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
ENDPOINTS_MANAGER_LABEL, ENDPOINTS_MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
MOST = 1000


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The Services to look at after a change."""
    if isinstance(change, Gone):
        namespace, name = change.namespace, change.name
    else:
        namespace, name = change.object.metadata.namespace, change.object.metadata.name
    if change.kind in (SERVICE, ENDPOINTS):
        return [(namespace, name)]
    if change.kind == SLICE:
        found = [world.other(SLICE, namespace, name) for world in (before, after)]
        names = {
            endpoint_slice.metadata.labels.get(NAME_LABEL, "") for endpoint_slice in found if endpoint_slice is not None
        }
        return [(namespace, service) for service in sorted(names - {""})]
    services = after.others_of(SERVICE, namespace)
    if not services:
        return []
    pods = [world.snapshot.pods.get((namespace, name)) for world in (before, after)]
    return [
        (namespace, service.metadata.name)
        for service in services
        if any(pod is not None and _selects(service, pod) for pod in pods)
    ]


def _selects(service: ClusterService, pod: Pod) -> bool:
    selector = service.spec.selector
    return bool(selector) and selector is not None and selector.items() <= pod.metadata.labels.items()


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """Bring the slice and the Endpoints of a Service up to date."""
    service: ClusterService | None = world.other(SERVICE, *key)
    left = world.other(ENDPOINTS, *key)
    if service is None and left is not None and left.metadata.labels.get(ENDPOINTS_MANAGER_LABEL) == ENDPOINTS_MANAGER:
        return ReconcileResult((Delete(ref_of(ENDPOINTS, left.metadata)),))
    if service is None or not service.spec.selector or service.metadata.deletion_timestamp:
        return NOTHING
    if service.spec.type == "ExternalName":
        return NOTHING
    content = world.ownership.content(key[0], ("Pod",))
    found = [world.snapshot.pods.get((key[0], owned.ref.name)) for owned in content]
    pods = [p for p in found if p is not None and _selects(service, p) and not is_finished(p) and p.status.pod_ip][
        :MOST
    ]
    return ReconcileResult((*_slice(world, service, pods), *_endpoints(world, service, pods)))


def _slice(world: ReconcileInput, service: ClusterService, pods: list[Pod]) -> list[Effect]:
    meta = service.metadata
    name = f"{meta.name}-{hashlib.sha256(meta.uid.encode()).hexdigest()[:5]}"
    labels = {**meta.labels, NAME_LABEL: meta.name, MANAGER_LABEL: MANAGER}
    if service.spec.cluster_ip == "None":
        labels["service.kubernetes.io/headless"] = ""
    body: dict[str, Any] = {
        "endpoints": [_endpoint(service, pod) for pod in pods],
        "ports": _ports(service, pods),
    }
    old = world.other(SLICE, meta.namespace, name)
    if old is None:
        metadata: dict[str, Any] = {"name": name, "namespace": meta.namespace, "labels": labels}
        metadata["ownerReferences"] = [owned_by(SERVICE, meta)]
        return [
            Create(
                {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": SLICE,
                    "metadata": metadata,
                    "addressType": "IPv4",
                    **body,
                }
            )
        ]
    if old.metadata.labels.get(MANAGER_LABEL) != MANAGER:
        return []
    same = list(old.endpoints or ()) == body["endpoints"] and list(old.ports or ()) == body["ports"]
    if same and labels.items() <= old.metadata.labels.items():
        return []
    return [Patch(ref_of(SLICE, old.metadata), {"metadata": {"labels": labels}, **body})]


def _endpoint(service: ClusterService, pod: Pod) -> dict[str, Any]:
    ready = the_pods.ready_since(pod) is not None
    leaving = bool(pod.metadata.deletion_timestamp)
    conditions = {
        "ready": (ready and not leaving) or service.spec.publish_not_ready_addresses,
        "serving": ready or service.spec.publish_not_ready_addresses,
        "terminating": leaving,
    }
    made: dict[str, Any] = {
        "addresses": [pod.status.pod_ip],
        "conditions": conditions,
        "nodeName": pod.spec.node_name,
        "targetRef": _target(pod.metadata),
    }
    if host := _hostname(service, pod):
        made["hostname"] = host
    return made


def _hostname(service: ClusterService, pod: Pod) -> str:
    return pod.spec.hostname if pod.spec.hostname and pod.spec.subdomain == service.metadata.name else ""


def _target(meta: ObjectMeta) -> dict[str, Any]:
    return {"kind": "Pod", "name": meta.name, "namespace": meta.namespace, "uid": meta.uid}


def _ports(service: ClusterService, pods: list[Pod]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for port in service.spec.ports:
        number = _number(port, pods)
        if number is None:
            continue
        entry: dict[str, Any] = {
            "name": port.get("name", ""),
            "protocol": port.get("protocol") or "TCP",
            "port": number,
        }
        if port.get("appProtocol"):
            entry["appProtocol"] = port["appProtocol"]
        made.append(entry)
    return made


def _number(port: dict[str, Any], pods: list[Pod]) -> int | None:
    target = port.get("targetPort") or port.get("port")
    if isinstance(target, int):
        return target
    for pod in pods:
        for container in pod.spec.containers:
            for declared in container.ports:
                if declared.name == target:
                    return declared.container_port
    return None


def _endpoints(world: ReconcileInput, service: ClusterService, pods: list[Pod]) -> list[Effect]:
    meta = service.metadata
    ready, waiting = [], []
    for pod in pods:
        address: dict[str, Any] = {
            "ip": pod.status.pod_ip,
            "nodeName": pod.spec.node_name,
            "targetRef": _target(pod.metadata),
        }
        if host := _hostname(service, pod):
            address["hostname"] = host
        is_ready = the_pods.ready_since(pod) is not None and not pod.metadata.deletion_timestamp
        if is_ready or service.spec.publish_not_ready_addresses:
            ready.append(address)
        elif not pod.metadata.deletion_timestamp:
            waiting.append(address)
    subset: dict[str, Any] = {}
    if ready:
        subset["addresses"] = ready
    if waiting:
        subset["notReadyAddresses"] = waiting
    ports = _ports(service, pods)
    if subset and ports:
        subset["ports"] = [{k: v for k, v in port.items() if v != ""} for port in ports]
    subsets = [subset] if subset else []
    old = world.other(ENDPOINTS, meta.namespace, meta.name)
    if old is None:
        metadata: dict[str, Any] = {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {**meta.labels, ENDPOINTS_MANAGER_LABEL: ENDPOINTS_MANAGER},
        }
        return [Create({"apiVersion": "v1", "kind": ENDPOINTS, "metadata": metadata, "subsets": subsets})]
    if list(old.subsets or ()) == subsets:
        return []
    return [Patch(ref_of(ENDPOINTS, old.metadata), {"subsets": subsets or None})]
