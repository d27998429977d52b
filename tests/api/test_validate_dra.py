"""Sections 5 and 15 of the rules of resource.k8s.io as tables: object, findings as kubectl shows them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dragoman.api import validate
from dragoman.api.gates import gates_with

Obj = dict[str, Any]
CLASS = "gpu.example.com"


def claim(*requests: Obj, **devices: Any) -> Obj:
    return {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def exact(name: str = "r", **more: Any) -> Obj:
    return {"name": name, "exactly": {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1, **more}}


def sub(name: str, **more: Any) -> Obj:
    return {"name": name, "deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1, **more}


def first(*subs: Obj, name: str = "r") -> Obj:
    return {"name": name, "firstAvailable": list(subs)}


def pool_slice(*devices: Obj, **spec: Any) -> Obj:
    body = {"driver": "gpu.example.com", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}}
    placed = (
        {} if {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & set(spec) else {"nodeName": "n1"}
    )
    listed = {"devices": list(devices)} if devices else {}
    return {"metadata": {"name": "s"}, "spec": {**body, **placed, **listed, **spec}}


def device(name: str = "gpu-0", **more: Any) -> Obj:
    return {"name": name, **more}


def shared(policy: Obj, value: Any = 10, **more: Any) -> Obj:
    return device(capacity={"mem": {"value": value, "requestPolicy": policy}}, allowMultipleAllocations=True, **more)


def findings(errors: list[validate.FieldError]) -> list[str]:
    return [str(error) for error in errors]


MANY = [exact(f"r{i}") for i in range(33)]
EMPTY_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
ONE_OF_TWO = "exactly one of `exactly` or `firstAvailable` is required"
NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
ONE_OF_ATTRIBUTES = "exactly one of `matchAttribute` or `distinctAttribute` is required"

# sentence: kind, object, what kubectl shows
CREATE: dict[str, tuple[str, Obj, list[str]]] = {
    "a plain claim is valid": ("ResourceClaim", claim(exact()), []),
    "a claim without requests is valid": ("ResourceClaim", claim(), []),
    "a request needs a name": (
        "ResourceClaim",
        claim({**exact(), "name": ""}),
        ["spec.devices.requests[0].name: Required value"],
    ),
    "a request name is a DNS label": (
        "ResourceClaim",
        claim(exact("a.b")),
        ['spec.devices.requests[0].name: Invalid value: "a.b": must not contain dots'],
    ),
    "request names are unique": (
        "ResourceClaim",
        claim(exact(), exact()),
        ['spec.devices.requests[1].name: Duplicate value: "r"'],
    ),
    "at most 32 requests": (
        "ResourceClaim",
        claim(*MANY),
        ["spec.devices.requests: Too many: 33: must have at most 32 items"],
    ),
    "one of exactly and firstAvailable is needed": (
        "ResourceClaim",
        claim({"name": "r"}),
        [f"spec.devices.requests[0]: Required value: {ONE_OF_TWO}"],
    ),
    "an empty firstAvailable counts as unset": (
        "ResourceClaim",
        claim({"name": "r", "firstAvailable": []}),
        [f"spec.devices.requests[0]: Required value: {ONE_OF_TWO}"],
    ),
    "exactly and firstAvailable exclude each other": (
        "ResourceClaim",
        claim({**exact(), "firstAvailable": [sub("a")]}),
        [f"spec.devices.requests[0]: Invalid value: null: {ONE_OF_TWO}, but multiple fields are set"],
    ),
    "a class name is needed": (
        "ResourceClaim",
        claim(exact(deviceClassName="")),
        ["spec.devices.requests[0].exactly.deviceClassName: Required value"],
    ),
    "All has no count": (
        "ResourceClaim",
        claim(exact(allocationMode="All", count=1)),
        [
            "spec.devices.requests[0].exactly.count: Invalid value: 1: "
            "must not be specified when allocationMode is 'All'"
        ],
    ),
    "ExactCount needs a positive count": (
        "ResourceClaim",
        claim(exact(count=-1)),
        ["spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero"],
    ),
    "the mode is one of two": (
        "ResourceClaim",
        claim(exact(allocationMode="Some")),
        [
            'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some": '
            'supported values: "All", "ExactCount"'
        ],
    ),
    "at most 8 alternatives": (
        "ResourceClaim",
        claim(first(*(sub(f"s{i}") for i in range(9)))),
        ["spec.devices.requests[0].firstAvailable: Too many: 9: must have at most 8 items"],
    ),
    "names of alternatives are unique": (
        "ResourceClaim",
        claim(first(sub("a"), sub("a"))),
        ['spec.devices.requests[0].firstAvailable[1].name: Duplicate value: "a"'],
    ),
    "an empty selector is unknown": (
        "ResourceClaim",
        claim(exact(selectors=[{}])),
        ["spec.devices.requests[0].exactly.selectors[0].cel: Required value"],
    ),
    "an expression is needed": (
        "ResourceClaim",
        claim(exact(selectors=[{"cel": {"expression": ""}}])),
        ["spec.devices.requests[0].exactly.selectors[0].cel.expression: Required value"],
    ),
    "an expression has at most 10 KiB": (
        "ResourceClaim",
        claim(exact(selectors=[{"cel": {"expression": "true || " * 2000 + "true"}}])),
        ["spec.devices.requests[0].exactly.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
    ),
    "at most 32 selectors": (
        "ResourceClaim",
        claim(exact(selectors=[{"cel": {"expression": "true"}}] * 33)),
        ["spec.devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items"],
    ),
    "Exists takes no value": (
        "ResourceClaim",
        claim(exact(tolerations=[{"operator": "Exists", "value": "v"}])),
        [
            'spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: "v": '
            "must be empty for operator `Exists`"
        ],
    ),
    "a toleration may name every effect that a taint may have": (
        "ResourceClaim",
        claim(exact(tolerations=[{"operator": "Equal", "key": "k", "effect": "None"}])),
        [],
    ),
    "a toleration's effect is known": (
        "ResourceClaim",
        claim(exact(tolerations=[{"operator": "Equal", "key": "k", "effect": "PreferNoSchedule"}])),
        [
            "spec.devices.requests[0].exactly.tolerations[0].effect: Unsupported value: "
            '"PreferNoSchedule": supported values: "NoExecute", "NoSchedule", "None"'
        ],
    ),
    "capacity is asked for by qualified name": (
        "ResourceClaim",
        claim(exact(capacity={"requests": {"a/b/c": "1Gi"}})),
        [
            'spec.devices.requests[0].exactly.capacity.requests[a/b/c]: Invalid value: "a/b/c": '
            "must not contain more than one slash"
        ],
    ),
    "a constraint refers to a request": (
        "ResourceClaim",
        claim(exact(), constraints=[{"requests": ["x"], "matchAttribute": "d.com/a"}]),
        [f'spec.devices.constraints[0].requests[0]: Invalid value: "x": {NOT_A_REQUEST}'],
    ),
    "a constraint cannot name an alternative of an exact request": (
        "ResourceClaim",
        claim(exact("a"), constraints=[{"requests": ["a/b"], "matchAttribute": "d.com/a"}]),
        [f'spec.devices.constraints[0].requests[0]: Invalid value: "a/b": {NOT_A_REQUEST}'],
    ),
    "a constraint may name an alternative, or all of them": (
        "ResourceClaim",
        claim(first(sub("s"), name="a"), constraints=[{"requests": ["a/s", "a"], "matchAttribute": "d.com/a"}]),
        [],
    ),
    "two slashes name nothing": (
        "ResourceClaim",
        claim(exact("a"), constraints=[{"requests": ["a/b/c"], "matchAttribute": "d.com/a"}]),
        [f'spec.devices.constraints[0].requests[0]: Invalid value: "a/b/c": {NOT_A_REQUEST}'],
    ),
    "a constraint has an attribute": (
        "ResourceClaim",
        claim(exact(), constraints=[{"requests": []}]),
        [f"spec.devices.constraints[0]: Required value: {ONE_OF_ATTRIBUTES}"],
    ),
    "a constraint has one attribute": (
        "ResourceClaim",
        claim(exact(), constraints=[{"matchAttribute": "d.com/a", "distinctAttribute": "d.com/a"}]),
        [f"spec.devices.constraints[0]: Invalid value: null: {ONE_OF_ATTRIBUTES}, but multiple fields are set"],
    ),
    "a constraint's attribute has its domain": (
        "ResourceClaim",
        claim(exact(), constraints=[{"matchAttribute": "model"}]),
        ['spec.devices.constraints[0].matchAttribute: Invalid value: "model": must include a domain'],
    ),
    "configuration needs parameters": (
        "ResourceClaim",
        claim(exact(), config=[{"opaque": {"driver": "d.com"}}]),
        ["spec.devices.config[0].opaque.parameters: Required value"],
    ),
    "parameters are an object": (
        "ResourceClaim",
        claim(exact(), config=[{"opaque": {"driver": "d.com", "parameters": [1]}}]),
        ['spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object'],
    ),
    "parameters have at most 10 KiB": (
        "ResourceClaim",
        claim(exact(), config=[{"opaque": {"driver": "d.com", "parameters": {"a": "x" * 10240}}}]),
        ["spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"],
    ),
    "configuration needs opaque": (
        "ResourceClaim",
        claim(exact(), config=[{}]),
        ["spec.devices.config[0].opaque: Required value"],
    ),
    "a wrong type is the only finding": (
        "ResourceClaim",
        claim({**exact(), "name": 3}),
        ['spec.devices.requests[0].name: Invalid value: "": must be a string, got an integer'],
    ),
    "a derived attribute is used by a constraint": (
        "ResourceClaim",
        claim(exact(derivedAttributes=[{"name": "d.com/x", "expression": "1"}])),
        [
            "spec.devices.requests[0].exactly.derivedAttributes[0].name: Invalid value: "
            '"d.com/x": must be used by a constraint for this request'
        ],
    ),
    "a template checks its inner spec": (
        "ResourceClaimTemplate",
        {
            "metadata": {"name": "t", "namespace": "default"},
            "spec": {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": claim({"name": "r"})["spec"]},
        },
        [
            'spec.metadata.name: Invalid value: "x": cannot be set for an Object inside a template',
            f"spec.spec.devices.requests[0]: Required value: {ONE_OF_TWO}",
        ],
    ),
    # ---- slices
    "a slice without devices says that the driver is alive": ("ResourceSlice", pool_slice(), []),
    "a slice belongs somewhere": (
        "ResourceSlice",
        pool_slice(nodeName=None),
        [
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, or "
            "`perDeviceNodeSelection` is required"
        ],
    ),
    "a slice does not belong to one node and to all": (
        "ResourceSlice",
        pool_slice(nodeName="n1", allNodes=True),
        [
            'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, '
            "or `perDeviceNodeSelection` is required, but multiple fields are set"
        ],
    ),
    "allNodes is true or absent": (
        "ResourceSlice",
        pool_slice(allNodes=False),
        ["spec.allNodes: Invalid value: false: must be either unset or set to true"],
    ),
    "a slice's node selector has one term": (
        "ResourceSlice",
        pool_slice(nodeSelector={"nodeSelectorTerms": [EMPTY_TERM, EMPTY_TERM]}),
        ["spec.nodeSelector.nodeSelectorTerms: Invalid value: 2: must have exactly one node selector term"],
    ),
    "devices and shared counters exclude each other, even empty": (
        "ResourceSlice",
        pool_slice(devices=[], sharedCounters=[]),
        ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
    ),
    "128 plain devices are allowed": ("ResourceSlice", pool_slice(*(device(f"d{i}") for i in range(128))), []),
    "129 devices are too many": (
        "ResourceSlice",
        pool_slice(*(device(f"d{i}") for i in range(129))),
        ["spec.devices: Too many: 129: must have at most 128 items"],
    ),
    "100 devices are too many if one carries a taint": (
        "ResourceSlice",
        pool_slice(*(device(f"d{i}") for i in range(99)), device("t", taints=[{"key": "k", "effect": "NoSchedule"}])),
        ["spec.devices: Too many: 100: must have at most 64 items"],
    ),
    "device names are unique": (
        "ResourceSlice",
        pool_slice(device(), device()),
        ['spec.devices[1].name: Duplicate value: "gpu-0"'],
    ),
    "33 attributes and capacities are too many": (
        "ResourceSlice",
        pool_slice(
            device(
                attributes={f"a{i}": {"int": i} for i in range(30)}, capacity={f"c{i}": {"value": 1} for i in range(3)}
            )
        ),
        ["spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
    ),
    "51 attribute values are too many": (
        "ResourceSlice",
        pool_slice(device(attributes={f"a{i}": {"strings": ["x"] * 17} for i in range(3)})),
        ["spec.devices[0].attributes: Invalid value: 51: the total number of attribute values must not exceed 48"],
    ),
    "a version has no v": (
        "ResourceSlice",
        pool_slice(device(attributes={"v": {"version": "v1.0.0"}})),
        [
            'spec.devices[0].attributes[v].version: Invalid value: "v1.0.0": '
            "must be a string compatible with semver.org spec 2.0.0"
        ],
    ),
    "a version has three parts": (
        "ResourceSlice",
        pool_slice(device(attributes={"v": {"version": "1.0"}})),
        [
            'spec.devices[0].attributes[v].version: Invalid value: "1.0": '
            "must be a string compatible with semver.org spec 2.0.0"
        ],
    ),
    "an attribute has a value": (
        "ResourceSlice",
        pool_slice(device(attributes={"v": {}})),
        ["spec.devices[0].attributes[v]: Required value: exactly one value must be specified"],
    ),
    "an attribute has one value": (
        "ResourceSlice",
        pool_slice(device(attributes={"v": {"int": 1, "bool": False}})),
        ['spec.devices[0].attributes[v]: Invalid value: "{`int`, `bool`}": exactly one value must be specified'],
    ),
    "a text value has at most 64 bytes": (
        "ResourceSlice",
        pool_slice(device(attributes={"v": {"string": "x" * 65}})),
        ["spec.devices[0].attributes[v].string: Too long: may not be more than 64 bytes"],
    ),
    "an identifier has at most 32 bytes": (
        "ResourceSlice",
        pool_slice(device(attributes={"x" * 33: {"int": 1}})),
        [f'spec.devices[0].attributes[{"x" * 33}]: Invalid value: "{"x" * 33}": must be no more than 32 bytes'],
    ),
    "capacity needs a value": (
        "ResourceSlice",
        pool_slice(device(capacity={"mem": {}})),
        ["spec.devices[0].capacity[mem].value: Required value"],
    ),
    "a range's maximum is reached by steps": (
        "ResourceSlice",
        pool_slice(shared({"default": 2, "validRange": {"min": 2, "step": 2, "max": 9}})),
        [
            'spec.devices[0].capacity[mem].requestPolicy.validRange.max: Invalid value: "9": '
            "value is not a multiple of a given step (2) from (2)"
        ],
    ),
    "a policy is only for devices that are shared": (
        "ResourceSlice",
        pool_slice({**shared({"default": 2}), "allowMultipleAllocations": None}),
        [
            "spec.devices[0].capacity[mem].requestPolicy: Forbidden: "
            "must not be set unless `allowMultipleAllocations` is set to true on the device"
        ],
    ),
    "an empty policy is valid": ("ResourceSlice", pool_slice(shared({})), []),
    "a policy may have a default alone": ("ResourceSlice", pool_slice(shared({"default": 2})), []),
    "options are sorted, unique, within the capacity and contain the default": (
        "ResourceSlice",
        pool_slice(shared({"default": 7, "validValues": [4, 2, 2, 12]})),
        [
            'spec.devices[0].capacity[mem].requestPolicy.validValues[1]: Invalid value: "2": '
            "values must be sorted in ascending order",
            'spec.devices[0].capacity[mem].requestPolicy.validValues[2]: Duplicate value: "2"',
            'spec.devices[0].capacity[mem].requestPolicy.validValues[3]: Invalid value: "12": '
            "option is larger than capacity value: 10",
            'spec.devices[0].capacity[mem].requestPolicy.validValues: Invalid value: "7": '
            "default value is not valid according to the requestPolicy",
        ],
    ),
    "options need a default": (
        "ResourceSlice",
        pool_slice(shared({"validValues": [2]})),
        [
            "spec.devices[0].capacity[mem].requestPolicy.default: Required value: "
            "required when `validValues` or `validRange` is set"
        ],
    ),
    "a step is positive": (
        "ResourceSlice",
        pool_slice(shared({"default": 2, "validRange": {"min": 2, "step": 0}})),
        ['spec.devices[0].capacity[mem].requestPolicy.validRange.step: Invalid value: "0": must be greater than zero'],
    ),
    "a fractional range is exact to thousandths": (
        "ResourceSlice",
        pool_slice(shared({"default": "0.5", "validRange": {"min": "0.5", "step": "0.25", "max": "2"}})),
        [],
    ),
    "a fractional step must hit the default": (
        "ResourceSlice",
        pool_slice(shared({"default": "600m", "validRange": {"min": "500m", "step": "250m"}})),
        [
            'spec.devices[0].capacity[mem].requestPolicy.default: Invalid value: "600m": '
            "value is not a multiple of a given step (250m) from (500m)"
        ],
    ),
    "a range finer than thousandths has no milli value": (
        "ResourceSlice",
        pool_slice(shared({"default": 1, "validRange": {"min": "1u"}})),
        [
            'spec.devices[0].capacity[mem].requestPolicy.validRange.min: Invalid value: "1u": '
            "value cannot be represented as a milli value"
        ],
    ),
    "binding conditions need failure conditions": (
        "ResourceSlice",
        pool_slice(device(bindingConditions=["ready"])),
        [
            "spec.devices[0].bindingFailureConditions: Invalid value: []: "
            "bindingFailureConditions are required to use bindingConditions"
        ],
    ),
    "binding and failure conditions are disjoint": (
        "ResourceSlice",
        pool_slice(device(bindingConditions=["a"], bindingFailureConditions=["a"])),
        [
            'spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": '
            "bindingFailureConditions must not overlap with bindingConditions"
        ],
    ),
    "a device draws on two counter sets at most": (
        "ResourceSlice",
        pool_slice(
            device(consumesCounters=[{"counterSet": f"s{i}", "counters": {"m": {"value": 1}}} for i in range(3)])
        ),
        ["spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items"],
    ),
    "a consumption has counters": (
        "ResourceSlice",
        pool_slice(device(consumesCounters=[{"counterSet": "s", "counters": {}}])),
        ["spec.devices[0].consumesCounters[0].counters: Required value"],
    ),
    "counter sets are unique": (
        "ResourceSlice",
        pool_slice(sharedCounters=[{"name": "s", "counters": {"m": {"value": 1}}}] * 2),
        ['spec.sharedCounters[1].name: Duplicate value: "s"'],
    ),
    "at most 8 counter sets": (
        "ResourceSlice",
        pool_slice(sharedCounters=[{"name": f"s{i}", "counters": {"m": {"value": 1}}} for i in range(9)]),
        ["spec.sharedCounters: Too many: 9: must have at most 8 items"],
    ),
    "a device says where it is only if the slice says so": (
        "ResourceSlice",
        pool_slice(device(nodeName="n2")),
        [
            'spec.devices[0].nodeName: Invalid value: "n2": must not be set unless `perDeviceNodeSelection` is set to '
            "true in the ResourceSlice spec"
        ],
    ),
    "a device says where it is if the slice leaves it open": (
        "ResourceSlice",
        pool_slice(device(), perDeviceNodeSelection=True),
        [
            "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
            "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        ],
    ),
    "a taint has a known effect": (
        "ResourceSlice",
        pool_slice(device(taints=[{"key": "k", "effect": "PreferNoSchedule"}])),
        [
            'spec.devices[0].taints[0].effect: Unsupported value: "PreferNoSchedule": '
            'supported values: "NoExecute", "NoSchedule", "None"'
        ],
    ),
    "at most 16 taints": (
        "ResourceSlice",
        pool_slice(device(taints=[{"key": "k", "effect": "None"}] * 17)),
        ["spec.devices[0].taints: Too many: 17: must have at most 16 items"],
    ),
    "a pool has at least one slice": (
        "ResourceSlice",
        pool_slice(pool={"name": "n1", "generation": -1}),
        [
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ],
    ),
    "a pool name has no empty segment": (
        "ResourceSlice",
        pool_slice(pool={"name": "a//b", "generation": 1, "resourceSliceCount": 1}),
        [
            'spec.pool.name: Invalid value: "a//b": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
            "'example.com', regex used for validation is "
            r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ],
    ),
    "skipping prepare alone is pointless": (
        "ResourceSlice",
        pool_slice(skipNodeOperations=["NodePrepareResources"]),
        [
            'spec.skipNodeOperations: Invalid value: ["NodePrepareResources"]: '
            "NodePrepareResources may be skipped only together with NodeUnprepareResources"
        ],
    ),
    "a partition type is published by every device that consumes counters": (
        "ResourceSlice",
        pool_slice(
            device(
                "ok",
                attributes={"profile": {"string": "x"}},
                consumesCounters=[{"counterSet": "s", "counters": {"m": {"value": 1}}}],
            ),
            device("bad", consumesCounters=[{"counterSet": "s", "counters": {"m": {"value": 1}}}]),
            partitionTypeAttribute="gpu.example.com/profile",
        ),
        [
            "spec.devices[1].attributes: Required value: a device that consumes counters needs the string attribute "
            "gpu.example.com/profile"
        ],
    ),
    "a node-allocatable mapping names a capacity": (
        "ResourceSlice",
        pool_slice(
            device(
                nodeAllocatableResources={"cpu": {"mapping": {"capacityKey": "x", "capacityMultiplier": 0}}, "gpu": {}}
            )
        ),
        [
            'spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityKey: Invalid value: "x": '
            "must be a capacity of the device",
            "spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityMultiplier: Invalid value: 0: "
            "must be greater than zero",
            'spec.devices[0].nodeAllocatableResources[gpu]: Invalid value: "gpu": '
            "must be a node-allocatable resource: cpu, memory, ephemeral-storage or hugepages-*",
            "spec.devices[0].nodeAllocatableResources[gpu]: Required value: "
            "at least one of `mapping` or `overhead` is required",
        ],
    ),
    # ---- classes, rules, requests
    "an extended resource is not Kubernetes' own": (
        "DeviceClass",
        {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "foo.kubernetes.io/gpu"}},
        ['spec.extendedResourceName: Invalid value: "foo.kubernetes.io/gpu": must be a valid extended resource name'],
    ),
    "an extended resource has a domain": (
        "DeviceClass",
        {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "gpu"}},
        ['spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name'],
    ),
    "a class needs nothing": ("DeviceClass", {"metadata": {"name": "c"}, "spec": {}}, []),
    "a taint rule needs a taint": (
        "DeviceTaintRule",
        {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"driver": ""}}},
        [
            "spec.deviceSelector.driver: Required value",
            "spec.taint.key: Required value",
            "spec.taint.effect: Required value",
        ],
    ),
    "a pool status request has a limit of a thousand": (
        "ResourcePoolStatusRequest",
        {"metadata": {"name": "r"}, "spec": {"driver": "d.com", "poolName": "", "limit": 1001}},
        [
            "spec.poolName: Required value",
            "spec.limit: Invalid value: 1001: must be between 1 and 1000, inclusive",
        ],
    ),
}


@pytest.mark.parametrize(("kind", "obj", "expected"), CREATE.values(), ids=CREATE)
def test_create(kind: str, obj: Obj, expected: list[str]) -> None:
    before = copy.deepcopy(obj)
    # On only from a minimal compatibility version of 1.37.
    gates, _ = gates_with({"DRAFractionalCapacityRange": True})
    assert findings(validate.create(kind, obj, gates=gates)) == expected
    assert obj == before


# ---- updates


def allocated(*devices: str, reserved: tuple[str, ...] = (), deleted: bool = False, **status: Any) -> Obj:
    obj = claim(exact())
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": name} for name in devices]
    obj["status"] = {**({"allocation": {"devices": {"results": results}}} if devices else {}), **status}
    if reserved:
        obj["status"]["reservedFor"] = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    if deleted:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return obj


def device_status(name: str, **more: Any) -> Obj:
    return {"driver": "gpu.example.com", "pool": "n1", "device": name, **more}


GPU = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
BAD_RESULT = allocated("gpu-0")
BAD_RESULT["status"]["allocation"]["devices"] = {
    "results": [{**GPU, "request": "other", "shareID": "NOT-A-UUID"}],
    "config": [{"source": "FromPod", "opaque": {"driver": "d.com", "parameters": {}}}],
}
TAINTED = pool_slice(device(taints=[{"key": "k", "effect": "Newer"}]))

STATUS: dict[str, tuple[Obj, Obj, list[str]]] = {
    "an allocation may be set": (allocated("gpu-0"), allocated(), []),
    "an allocation may be set and reserved at once": (allocated("gpu-0", reserved=("u",)), allocated(), []),
    "an allocation may be cleared": (allocated(), allocated("gpu-0"), []),
    "a reservation needs an allocation": (
        allocated(reserved=("u",)),
        allocated(),
        ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
    ),
    "an allocation never changes": (
        allocated("gpu-1"),
        allocated("gpu-0"),
        [
            'status.allocation: Invalid value: {"devices":{"results":[{"request":"r","driver":"gpu.example.com",'
            '"pool":"n1","device":"gpu-1"}]}}: field is immutable'
        ],
    ),
    "a claim that is being deleted takes no new reservation": (
        allocated("gpu-0", reserved=("a", "b"), deleted=True),
        allocated("gpu-0", reserved=("a",), deleted=True),
        [
            "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or "
            "`deletionTimestamp` are set"
        ],
    ),
    "a claim that is being deleted loses reservations": (
        allocated("gpu-0", reserved=("a",), deleted=True),
        allocated("gpu-0", reserved=("a", "b"), deleted=True),
        [],
    ),
    "at most 256 consumers": (
        allocated("gpu-0", reserved=tuple(f"u{i}" for i in range(257))),
        allocated("gpu-0"),
        ["status.reservedFor: Too many: 257: must have at most 256 items"],
    ),
    "a consumer is named once": (
        allocated("gpu-0", reserved=("u", "u")),
        allocated("gpu-0"),
        ['status.reservedFor[1].uid: Duplicate value: "u"'],
    ),
    "a consumer is named fully": (
        allocated("gpu-0", reservedFor=[{}]),
        allocated("gpu-0"),
        [
            "status.reservedFor[0].resource: Required value",
            "status.reservedFor[0].name: Required value",
            "status.reservedFor[0].uid: Required value",
        ],
    ),
    "a result belongs to a request": (
        BAD_RESULT,
        allocated(),
        [
            f'status.allocation.devices.results[0].request: Invalid value: "other": {NOT_A_REQUEST}',
            'status.allocation.devices.results[0].shareID: Invalid value: "NOT-A-UUID": uuid must be in RFC 4122 '
            "normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters",
            'status.allocation.devices.config[0].source: Unsupported value: "FromPod": '
            'supported values: "FromClaim", "FromClass"',
        ],
    ),
    "at most 32 results": (
        allocated(*(f"gpu-{i}" for i in range(33))),
        allocated(),
        ["status.allocation.devices.results: Too many: 33: must have at most 32 items"],
    ),
    "a device's status belongs to an allocated device": (
        allocated("gpu-0", devices=[device_status("gpu-1")]),
        allocated("gpu-0"),
        ['status.devices[0]: Invalid value: "gpu.example.com/n1/gpu-1": must be an allocated device in the claim'],
    ),
    "a device has one status": (
        allocated("gpu-0", devices=[device_status("gpu-0")] * 2),
        allocated("gpu-0"),
        ['status.devices[1]: Duplicate value: ["gpu.example.com","n1","gpu-0",""]'],
    ),
    "an address may have bits beyond its prefix": (
        allocated("gpu-0", devices=[device_status("gpu-0", networkData={"ips": ["192.0.2.5/24", "2001:db8::5/64"]})]),
        allocated("gpu-0"),
        [],
    ),
    "addresses are canonical, unique and have a prefix": (
        allocated(
            "gpu-0",
            devices=[
                device_status("gpu-0", networkData={"ips": ["192.0.2.5", "2001:DB8::5/64", "::1/128", "::1/128"]})
            ],
        ),
        allocated("gpu-0"),
        [
            'status.devices[0].networkData.ips[0]: Invalid value: "192.0.2.5": must be a valid address in CIDR form, '
            "(e.g. 10.9.8.7/24 or 2001:db8::1/64)",
            'status.devices[0].networkData.ips[1]: Invalid value: "2001:DB8::5/64": '
            'must be in canonical form ("2001:db8::5/64")',
            'status.devices[0].networkData.ips[3]: Duplicate value: "::1/128"',
        ],
    ),
    "conditions are unique and complete": (
        allocated(
            "gpu-0",
            devices=[
                device_status(
                    "gpu-0", conditions=[{"type": "Ready", "status": "True", "reason": "r"}, {"type": "Ready"}]
                )
            ],
        ),
        allocated("gpu-0"),
        [
            "status.devices[0].conditions[0].lastTransitionTime: Required value: must be set",
            'status.devices[0].conditions[1].status: Unsupported value: "": '
            'supported values: "False", "True", "Unknown"',
            "status.devices[0].conditions[1].lastTransitionTime: Required value: must be set",
            "status.devices[0].conditions[1].reason: Required value: must be set",
            'status.devices[0].conditions[1].type: Duplicate value: "Ready"',
        ],
    ),
    "a device's data is an object": (
        allocated("gpu-0", devices=[device_status("gpu-0", data="x")]),
        allocated("gpu-0"),
        ['status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object'],
    ),
}


@pytest.mark.parametrize(("new", "old", "expected"), STATUS.values(), ids=STATUS)
def test_status_of_claims(new: Obj, old: Obj, expected: list[str]) -> None:
    assert findings(validate.update("ResourceClaim", new, old, "status")) == expected


UPDATE: dict[str, tuple[str, Obj, Obj, list[str]]] = {
    "a claim's spec is immutable": (
        "ResourceClaim",
        claim(exact("b")),
        claim(exact("a")),
        [
            'spec: Invalid value: {"devices":{"requests":[{"name":"b","exactly":{"deviceClassName":"gpu.example.com",'
            '"allocationMode":"ExactCount","count":1}}]}}: field is immutable'
        ],
    ),
    "null and absent are no change": (
        "ResourceClaim",
        claim(exact(selectors=None), constraints=[]),
        claim(exact()),
        [],
    ),
    "a slice stays with driver, pool and node": (
        "ResourceSlice",
        pool_slice(driver="x.com", pool={"name": "p2", "generation": 1, "resourceSliceCount": 1}, allNodes=True),
        pool_slice(),
        [
            'spec.driver: Invalid value: "x.com": field is immutable',
            'spec.pool.name: Invalid value: "p2": field is immutable',
            "spec.nodeName: Invalid value: null: field is immutable",
        ],
    ),
    "a slice's devices may change": ("ResourceSlice", pool_slice(device("b")), pool_slice(device("a")), []),
    "a stored taint with an effect of later survives": ("ResourceSlice", TAINTED, copy.deepcopy(TAINTED), []),
    "a policy that does not change is not judged again": (
        "ResourceSlice",
        pool_slice(shared({"validValues": [2]})),
        pool_slice(shared({"validValues": [2]})),
        [],
    ),
    "a class may change": (
        "DeviceClass",
        {"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}},
        {"metadata": {"name": "c"}, "spec": {}},
        [],
    ),
    "a class keeps stored parameters that are too large today": (
        "DeviceClass",
        {
            "metadata": {"name": "c"},
            "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"a": "x" * 11000}}}]},
        },
        {
            "metadata": {"name": "c"},
            "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"a": "x" * 11000}}}]},
        },
        [],
    ),
    "names and uids stay": (
        "DeviceClass",
        {"metadata": {"name": "d", "uid": "2"}, "spec": {}},
        {"metadata": {"name": "c", "uid": "1"}, "spec": {}},
        [
            'metadata.name: Invalid value: "d": field is immutable',
            'metadata.uid: Invalid value: "2": field is immutable',
        ],
    ),
    "no finalizer is added during deletion": (
        "DeviceClass",
        {"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}},
        {"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
            'found new finalizers []string{"a/b"}'
        ],
    ),
}


@pytest.mark.parametrize(("kind", "new", "old", "expected"), UPDATE.values(), ids=UPDATE)
def test_update(kind: str, new: Obj, old: Obj, expected: list[str]) -> None:
    assert findings(validate.update(kind, new, old)) == expected


METADATA: dict[str, tuple[Obj, list[str]]] = {
    "a name or its prefix is needed": ({}, ["metadata.name: Required value: name or generateName is required"]),
    "a prefix may end in a dash": ({"name": "x-abcde", "generateName": "x-"}, []),
    "a name is a DNS subdomain": (
        {"name": "A"},
        [
            'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
            "characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex "
            r"used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ],
    ),
    "a cluster-scoped object has no namespace": (
        {"name": "a", "namespace": "b"},
        ["metadata.namespace: Forbidden: not allowed on this type"],
    ),
    "labels have short values": (
        {"name": "a", "labels": {"k": "v" * 64}},
        [f'metadata.labels: Invalid value: "{"v" * 64}": must be no more than 63 bytes'],
    ),
    "annotation keys may be upper case": ({"name": "a", "annotations": {"Example.com/K": "any thing"}}, []),
    "annotations have 256 KiB": (
        {"name": "a", "annotations": {"k": "v" * 256 * 1024}},
        ["metadata.annotations: Too long: may not be more than 262144 bytes"],
    ),
    "an owner is named fully": (
        {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
        ['metadata.ownerReferences[0].uid: Invalid value: "": uid must not be empty'],
    ),
}


@pytest.mark.parametrize(("meta", "expected"), METADATA.values(), ids=METADATA)
def test_metadata(meta: Obj, expected: list[str]) -> None:
    assert findings(validate.create("DeviceClass", {"metadata": meta, "spec": {}})) == expected


def test_whole_units_are_rounded_up_without_the_fractional_gate() -> None:
    gates, _ = gates_with({"DRAFractionalCapacityRange": False})
    on, _ = gates_with({"DRAFractionalCapacityRange": True})
    obj = pool_slice(shared({"default": "0.5", "validRange": {"min": "0.5", "step": "0.25", "max": "2"}}))
    assert validate.create("ResourceSlice", obj, gates=gates) == []
    odd = pool_slice(shared({"default": 1, "validRange": {"min": 1, "step": "1.5", "max": 4}}))
    assert findings(validate.create("ResourceSlice", odd, gates=gates)) == [
        'spec.devices[0].capacity[mem].requestPolicy.validRange.max: Invalid value: "4": '
        "value is not a multiple of a given step (1500m) from (1)"
    ]
    assert validate.create("ResourceSlice", odd, gates=on) == []


def test_errors_know_their_place_in_a_status() -> None:
    error = validate.create("ResourceClaim", claim({"name": "r"}))[0]
    assert (error.path, error.type, error.reason) == ("spec.devices.requests[0]", "Required", "FieldValueRequired")
    assert error.body == f"Required value: {ONE_OF_TWO}"
