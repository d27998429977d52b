"""What does one object use of a quota? Quota resource -> amount, as upstream's evaluators count it.

Pure functions of an object and of what its usage depends on beside it. Sources: pkg/quota/v1/evaluator/core of
Kubernetes (pods, claims, services, volume claims), generic object counts for every other kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from dragoman.api.core import ClusterService, PersistentVolumeClaim, Pod, PodSpec, ResourceRequirements
from dragoman.api.kinds import Kind
from dragoman.api.resource import (
    ALL,
    EXACT_COUNT,
    EXTENDED_CLAIM_ANNOTATION,
    IMPLICIT_EXTENDED_PREFIX,
    DeviceClass,
    ResourceClaim,
)
from dragoman.snapshot.usage import POD_LEVEL, is_finished
from dragoman.values.quantity import Quantity

Amounts: TypeAlias = dict[str, Quantity]
"""Resource, or quota resource, -> amount."""

DEVICES_SUFFIX = ".deviceclass.resource.k8s.io/devices"
REQUESTS = "requests."
WORST_CASE = 32
"""Devices that a request for all is charged: the most results that an allocation may have."""
ONE = Quantity.of(1)
ZERO = Quantity.of(0)
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_ALIASES = frozenset(
    {"configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services"}
)
_CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"
_POD_RESOURCES = frozenset(
    {
        "count/pods",
        "pods",
        *_COMPUTE,
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _COMPUTE),
    }
)
_SERVICE_RESOURCES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_VOLUME_RESOURCES = frozenset({"count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"})


class UsageContext(msgspec.Struct, frozen=True):
    """What usage depends on beside the object. extended: whether DRAExtendedResource is on.

    pods: the pods of the namespace by name, claims: those for extended resources of the namespace; both may be a part
    that does not matter to the objects asked about.
    """

    classes: Mapping[str, DeviceClass] = {}
    extended: bool = True
    pods: Mapping[str, Pod] = {}
    claims: Sequence[ResourceClaim] = ()

    def resources_of(self, device_class: str) -> tuple[str, ...]:
        """The extended resource names that a class goes by."""
        found = self.classes.get(device_class)
        explicit = found.spec.extended_resource_name if found is not None else None
        return (IMPLICIT_EXTENDED_PREFIX + device_class, *([explicit] if explicit else []))

    def has_device_class(self, resource: str) -> bool:
        """Whether a class stands for this extended resource."""
        if resource.startswith(IMPLICIT_EXTENDED_PREFIX):
            return resource.removeprefix(IMPLICIT_EXTENDED_PREFIX) in self.classes
        return any(found.spec.extended_resource_name == resource for found in self.classes.values())


NOTHING_AROUND = UsageContext()


def usage(kind: Kind, value: Any, around: UsageContext = NOTHING_AROUND) -> Amounts:
    """What an object uses. value: typed for Pod, ResourceClaim, Service, PersistentVolumeClaim, else not looked at."""
    match value:
        case Pod():
            return _pod(value)
        case ResourceClaim():
            return _claim(value, around)
        case ClusterService():
            return {**_count(kind), **_service(value)}
        case PersistentVolumeClaim():
            return {**_count(kind), **_volume_claim(value)}
    return _count(kind)


def matching(kind: Kind, names: Iterable[str], around: UsageContext = NOTHING_AROUND) -> list[str]:
    """Those of the quota resources that can concern an object of this kind, sorted."""
    return sorted(name for name in names if _concerns(kind, name, around))


def _concerns(kind: Kind, name: str, around: UsageContext) -> bool:
    if kind.group == "" and kind.kind == "Pod":
        return name in _POD_RESOURCES or name.startswith(("hugepages-", "requests.hugepages-")) or _is_extended(name)
    if kind.group == "resource.k8s.io" and kind.kind == "ResourceClaim":
        if name == _CLAIM_COUNT or name.endswith(DEVICES_SUFFIX):
            return True
        return around.extended and _is_extended(name) and around.has_device_class(name.removeprefix(REQUESTS))
    if kind.group == "" and kind.kind == "Service":
        return name in _SERVICE_RESOURCES
    if kind.group == "" and kind.kind == "PersistentVolumeClaim":
        return name in _VOLUME_RESOURCES or _STORAGE_CLASS in name
    return name in _count(kind)


def _is_extended(name: str) -> bool:
    """requests.<extended resource>: a qualified name that is not Kubernetes' own, or the implicit one of a class."""
    if name.startswith(REQUESTS + IMPLICIT_EXTENDED_PREFIX):
        return True
    return name.startswith(REQUESTS) and "/" in name and "kubernetes.io/" not in name


def _count(kind: Kind) -> Amounts:
    found = {f"count/{kind.plural}.{kind.group}" if kind.group else f"count/{kind.plural}": ONE}
    if not kind.group and kind.plural in _ALIASES:
        found[kind.plural] = ONE
    return found


# ---- pods


def _pod(pod: Pod) -> Amounts:
    found: Amounts = {"count/pods": ONE}
    if is_finished(pod):
        return found
    return found | {"pods": ONE} | compute_usage(pod_total(pod.spec, "requests"), pod_total(pod.spec, "limits"))


def compute_usage(requests: Amounts, limits: Amounts) -> Amounts:
    """Quota resources of requests and limits."""
    found: Amounts = {}
    for name in _COMPUTE:
        if name in requests:
            found[name] = found[REQUESTS + name] = requests[name]
        if name in limits:
            found["limits." + name] = limits[name]
    for name, amount in requests.items():
        if name.startswith("hugepages-"):
            found[name] = found[REQUESTS + name] = amount
        elif _is_extended(REQUESTS + name):
            found[REQUESTS + name] = amount
    return found


def pod_total(spec: PodSpec, side: str, *, overhead: bool = True) -> Amounts:
    """The requests or limits of a pod as a whole: what `snapshot.usage.pod_requests` counts, for either side, in
    Quantities whose format people see, and without what devices need of the node."""
    total: Amounts = {}
    peak: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.init_containers:
        stated = _side(container.resources, side)
        if container.restart_policy == "Always":
            _add(sidecars, stated)
            stated = dict(sidecars)
        else:
            _add(stated, sidecars)
        _raise(peak, stated)
    for container in spec.containers:
        _add(total, _side(container.resources, side))
    _add(total, sidecars)
    _raise(total, peak)
    if spec.resources is not None:
        level = _side(spec.resources, side)
        total |= {name: amount for name, amount in level.items() if name.startswith(POD_LEVEL)}
    if overhead:
        _add(total, {n: a for n, a in spec.overhead.items() if side == "requests" or total.get(n)})
    return total


def _side(resources: ResourceRequirements, side: str) -> Amounts:
    return {**resources.limits, **resources.requests} if side == "requests" else dict(resources.limits)


def _add(total: Amounts, more: Mapping[str, Quantity]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: Amounts, least: Mapping[str, Quantity]) -> None:
    for name, amount in least.items():
        if name not in total or total[name] < amount:
            total[name] = amount


# ---- claims


def _claim(claim: ResourceClaim, around: UsageContext) -> Amounts:
    devices: dict[str, int] = {}
    for request in claim.spec.devices.requests:
        if request.first_available:
            most: dict[str, int] = {}
            for sub in request.first_available:
                count = _devices(sub.allocation_mode, sub.count)
                most[sub.device_class_name] = max(most.get(sub.device_class_name, 0), count)
        elif request.exactly is not None:
            exactly = request.exactly
            most = {exactly.device_class_name: _devices(exactly.allocation_mode, exactly.count)}
        else:
            continue
        for name, count in most.items():
            devices[name] = devices.get(name, 0) + count
    found: Amounts = {_CLAIM_COUNT: ONE}
    found |= {name + DEVICES_SUFFIX: Quantity.of(count) for name, count in devices.items()}
    if around.extended:
        charged = _charged_to_pod(claim, around)
        for name, count in devices.items():
            for resource in around.resources_of(name):
                rest = Quantity.of(count) - charged.get(REQUESTS + resource, ZERO)
                if rest.sign() > 0:
                    found[REQUESTS + resource] = rest
    return found


def _devices(mode: str, count: int) -> int:
    if mode == ALL:
        return WORST_CASE
    return (count or 1) if mode in (EXACT_COUNT, "") else 0


def _charged_to_pod(claim: ResourceClaim, around: UsageContext) -> Amounts:
    """What the pod is charged for whose extended resources the claim was made; nothing where that is not certain."""
    owner = claim.metadata.controller
    if not is_for_extended(claim) or owner is None or owner.kind != "Pod":
        return {}
    pod = around.pods.get(owner.name)
    if pod is None or pod.metadata.uid != owner.uid:
        return {}
    named = pod.status.extended_resource_claim_status
    if named is not None:
        return _pod(pod) if named.resource_claim_name == claim.metadata.name else {}
    mine = (claim.metadata.creation_timestamp or "", claim.metadata.name)
    for other in around.claims:
        controller = other.metadata.controller
        if not is_for_extended(other) or controller is None or controller.uid != owner.uid:
            continue
        if (other.metadata.creation_timestamp or "", other.metadata.name) < mine:
            return {}
    return _pod(pod)


def is_for_extended(claim: ResourceClaim) -> bool:
    """Whether the scheduler made the claim for a pod's extended resources."""
    return claim.metadata.annotations.get(EXTENDED_CLAIM_ANNOTATION) == "true"


# ---- the others


def _service(service: ClusterService) -> Amounts:
    spec = service.spec
    ports = len(spec.ports)
    balanced = spec.type == "LoadBalancer"
    if balanced and spec.allocate_load_balancer_node_ports is False:
        ports = sum(1 for port in spec.ports if isinstance(port, dict) and port.get("nodePort"))
    found = {"services.nodeports": Quantity.of(ports if balanced or spec.type == "NodePort" else 0)}
    return found | {"services.loadbalancers": Quantity.of(1 if balanced else 0)}


def _volume_claim(claim: PersistentVolumeClaim) -> Amounts:
    found: Amounts = {}
    if "storage" in claim.spec.resources.requests:
        asked = claim.spec.resources.requests["storage"]
        found["requests.storage"] = max(asked, claim.status.allocated_resources.get("storage", asked))
    name = claim.spec.storage_class_name
    if name:
        found[f"{name}{_STORAGE_CLASS}persistentvolumeclaims"] = ONE
        if "requests.storage" in found:
            found[f"{name}{_STORAGE_CLASS}requests.storage"] = found["requests.storage"]
    return found
