"""Which fields of an object does the API server drop because their feature gate is off?

A field stays where the stored object uses the feature already, anywhere: turning a gate off destroys nothing.
Kept apart from validation, which then judges what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from dragoman.api import deepjson
from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, objects, sub
from dragoman.api.validate.field import path_text

_LISTS = ("ints", "bools", "strings", "versions")
_BINDING = ("bindingConditions", "bindingFailureConditions")

# Holders are the objects in which the gated fields stand.
Holders = Callable[[Object], Iterator[Object]]


class Feature(msgspec.Struct, frozen=True):
    """Fields that need all of the gates, and where they stand."""

    gates: tuple[str, ...]
    holders: Holders
    fields: tuple[str, ...]


def gates_drop(kind: str, obj: Object, old: Object | None, gates: Gates) -> Object:
    """The object (a copy where something was dropped) without the fields of features that are off.

    `old` is the stored object on update, None on create.
    """
    for features in _off(kind, gates):
        if old is not None and any(_used(feature, old) for feature in features):
            continue
        if any(_used(feature, obj) for feature in features):
            obj = deepjson.copied(obj)
            for feature in features:
                _drop(feature, obj)
    return obj


@lru_cache(maxsize=256)
def _off(kind: str, gates: Gates) -> tuple[tuple[Feature, ...], ...]:
    """The features of a kind that are off: few, and asked for at every write."""
    return tuple(
        features
        for features in _FEATURES.get(kind, ())
        if not all(gates.on(gate) for feature in features for gate in feature.gates)
    )


def _used(feature: Feature, obj: Object) -> bool:
    return any(holder.get(field) is not None for holder in feature.holders(obj) for field in feature.fields)


def _drop(feature: Feature, obj: Object) -> None:
    for holder in feature.holders(obj):
        for field in feature.fields:
            holder.pop(field, None)


# ---- where fields stand


def _spec(obj: Object) -> Iterator[Object]:
    yield dig(obj, "spec")


def _status(obj: Object) -> Iterator[Object]:
    yield dig(obj, "status")


def _devices(obj: Object) -> Iterator[Object]:
    yield from objects(dig(obj, "spec"), "devices")


def _attributes(obj: Object) -> Iterator[Object]:
    for device in _devices(obj):
        yield from (value for value in dig(device, "attributes").values() if isinstance(value, dict))


def _capacities(obj: Object) -> Iterator[Object]:
    for device in _devices(obj):
        yield from (value for value in dig(device, "capacity").values() if isinstance(value, dict))


def _consumptions(obj: Object) -> Iterator[Object]:
    for device in _devices(obj):
        yield from objects(device, "consumesCounters")


def _claim_devices(obj: Object) -> Object:
    """spec.devices of a claim, or of a template's inner spec."""
    spec = dig(obj, "spec")
    return dig(spec, "devices") or dig(spec, "spec", "devices")


def _requests(obj: Object) -> Iterator[Object]:
    yield from objects(_claim_devices(obj), "requests")


def _exactly(obj: Object) -> Iterator[Object]:
    yield from (exactly for request in _requests(obj) if (exactly := sub(request, "exactly")) is not None)


def _exact_requests(obj: Object) -> Iterator[Object]:
    yield from _exactly(obj)
    for request in _requests(obj):
        yield from objects(request, "firstAvailable")


def _constraints(obj: Object) -> Iterator[Object]:
    yield from objects(_claim_devices(obj), "constraints")


def _results(obj: Object) -> Iterator[Object]:
    yield from objects(dig(obj, "status", "allocation", "devices"), "results")


def _allocation(obj: Object) -> Iterator[Object]:
    yield dig(obj, "status", "allocation")


def _container_resources(obj: Object) -> Iterator[Object]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from (dig(container, "resources") for container in objects(dig(obj, "spec"), field))


def _group_templates(obj: Object) -> Iterator[Object]:
    yield from objects(dig(obj, "spec"), "podGroupTemplates")


def _pod_templates(obj: Object) -> Iterator[Object]:
    yield dig(obj, "spec", "template", "spec")
    yield dig(obj, "spec", "jobTemplate", "spec", "template", "spec")


def _jobs(obj: Object) -> Iterator[Object]:
    yield dig(obj, "spec")
    yield dig(obj, "spec", "jobTemplate", "spec")


# ---- the table: features of a kind, each a group of fields that are kept or dropped together

_BINDING_GATES = ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
_CLAIM_SPEC: tuple[tuple[Feature, ...], ...] = (
    (Feature(("DRAPrioritizedList",), _requests, ("firstAvailable",)),),
    (
        Feature(("DRAAdminAccess",), _exactly, ("adminAccess",)),
        Feature(("DRAAdminAccess",), _results, ("adminAccess",)),
    ),
    (
        Feature(("DRADeviceTaints",), _exact_requests, ("tolerations",)),
        Feature(("DRADeviceTaints",), _results, ("tolerations",)),
    ),
    (
        Feature(("DRAConsumableCapacity",), _exact_requests, ("capacity",)),
        Feature(("DRAConsumableCapacity",), _constraints, ("distinctAttribute",)),
        Feature(("DRAConsumableCapacity",), _results, ("shareID", "consumedCapacity")),
    ),
    (Feature(("DRADerivedAttributes",), _exact_requests, ("derivedAttributes",)),),
)
_IN_TEMPLATES: tuple[tuple[Feature, ...], ...] = (
    (Feature(("GenericWorkload",), _pod_templates, ("schedulingGroup",)),),
)
_OF_JOBS = (*_IN_TEMPLATES, (Feature(("WorkloadWithJob",), _jobs, ("scheduling",)),))
_FEATURES: dict[str, tuple[tuple[Feature, ...], ...]] = {
    "ResourceSlice": (
        (Feature(("DRADeviceTaints",), _devices, ("taints",)),),
        (
            Feature(("DRAPartitionableDevices",), _spec, ("sharedCounters", "perDeviceNodeSelection")),
            Feature(
                ("DRAPartitionableDevices",), _devices, ("nodeName", "nodeSelector", "allNodes", "consumesCounters")
            ),
        ),
        (Feature(_BINDING_GATES, _devices, ("bindsToNode", *_BINDING)),),
        (
            Feature(("DRAConsumableCapacity",), _devices, ("allowMultipleAllocations",)),
            Feature(("DRAConsumableCapacity",), _capacities, ("requestPolicy",)),
        ),
        (Feature(("DRAListTypeAttributes",), _attributes, _LISTS),),
        (Feature(("DRANodeAllocatableResources",), _devices, ("nodeAllocatableResources",)),),
        (Feature(("DRAOptionalNodeOperations",), _spec, ("skipNodeOperations",)),),
        (Feature(("DRADeviceCompatibilityGroups",), _consumptions, ("compatibilityGroups",)),),
        (Feature(("DRAPartitionableDevicesType",), _spec, ("partitionTypeAttribute",)),),
    ),
    "DeviceClass": ((Feature(("DRAExtendedResource",), _spec, ("extendedResourceName",)),),),
    "ResourceClaim": (
        *_CLAIM_SPEC,
        (Feature(("DRAResourceClaimDeviceStatus",), _status, ("devices",)),),
        (
            Feature(_BINDING_GATES, _results, _BINDING),
            Feature(_BINDING_GATES, _allocation, ("allocationTimestamp",)),
        ),
        (Feature(("DRAOptionalNodeOperations",), _results, ("skipNodeOperations",)),),
        (Feature(("DRADeviceCompatibilityGroups",), _results, ("compatibilityGroups",)),),
    ),
    "ResourceClaimTemplate": _CLAIM_SPEC,
    "Pod": (
        (
            Feature(("DynamicResourceAllocation",), _spec, ("resourceClaims",)),
            Feature(("DynamicResourceAllocation",), _container_resources, ("claims",)),
        ),
        (Feature(("GenericWorkload",), _spec, ("schedulingGroup",)),),
        (Feature(("DRAExtendedResource",), _status, ("extendedResourceClaimStatus",)),),
        (Feature(("DRANodeAllocatableResources",), _status, ("nodeAllocatableResourceClaimStatuses",)),),
    ),
    **dict.fromkeys(("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"), _IN_TEMPLATES),
    **dict.fromkeys(("Job", "CronJob"), _OF_JOBS),
    "PodGroup": (
        (
            Feature(("DRAWorkloadResourceClaims",), _spec, ("resourceClaims",)),
            Feature(("DRAWorkloadResourceClaims",), _status, ("resourceClaimStatuses",)),
        ),
    ),
    "Workload": ((Feature(("DRAWorkloadResourceClaims",), _group_templates, ("resourceClaims",)),),),
}


def unused_fields(kind: str, obj: Object, gates: Gates) -> list[tuple[str, tuple[str, ...]]]:
    """What `gates_drop` would drop of a new object: field name and the gates it needs that are off."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for features in _FEATURES.get(kind, ()):
        for feature in features:
            off = tuple(gate for gate in feature.gates if not gates.on(gate))
            names: set[Any] = {f for h in feature.holders(obj) for f in feature.fields if h.get(f) is not None}
            found += [(name, off) for name in sorted(names) if off]
    return found


def place_of(raw: Any, field: str, path: tuple[str | int, ...] = ()) -> str:
    """The path of the first field of that name in an object as written, "" for none."""
    if isinstance(raw, dict):
        if path and path[-1] in ("parameters", "labels", "annotations"):
            return ""
        for key, inner in raw.items():
            if key == field:
                return path_text((*path, key))
            if text := place_of(inner, field, (*path, key)):
                return text
    if isinstance(raw, list):
        for index, inner in enumerate(raw):
            if text := place_of(inner, field, (*path, index)):
                return text
    return ""
