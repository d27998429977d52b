from __future__ import annotations

import copy
from typing import Any

import pytest

from dragoman.api import validate
from dragoman.api.gated import gates_drop, unused_fields
from dragoman.api.gates import DEFAULTS, GATES, gates_with

Obj = dict[str, Any]
ALL_ON, _ = gates_with(dict.fromkeys(GATES, True))

SLICE: Obj = {
    "spec": {
        "driver": "d",
        "perDeviceNodeSelection": True,
        "sharedCounters": [{"name": "s"}],
        "skipNodeOperations": ["*"],
        "partitionTypeAttribute": "d/x",
        "devices": [
            {
                "name": "g",
                "attributes": {"a": {"ints": [1]}, "b": {"int": 1}},
                "capacity": {"m": {"value": 1, "requestPolicy": {}}},
                "consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["x"]}],
                "nodeName": "n",
                "taints": [{"key": "k"}],
                "bindsToNode": True,
                "bindingConditions": ["b"],
                "bindingFailureConditions": ["f"],
                "allowMultipleAllocations": True,
                "nodeAllocatableResources": {"cpu": {}},
            }
        ],
    }
}
EXACT = {
    "deviceClassName": "c",
    "adminAccess": True,
    "tolerations": [{"operator": "Exists"}],
    "capacity": {"requests": {"m": 1}},
    "derivedAttributes": [{"name": "x"}],
}
RESULT = {
    "request": "a",
    "adminAccess": True,
    "tolerations": [{"operator": "Exists"}],
    "bindingConditions": ["b"],
    "bindingFailureConditions": ["f"],
    "shareID": "u",
    "consumedCapacity": {"m": 1},
    "skipNodeOperations": ["*"],
    "compatibilityGroups": {"s": ["x"]},
}
DEVICES: Obj = {
    "requests": [{"name": "a", "exactly": EXACT}, {"name": "b", "firstAvailable": [{"name": "s", "capacity": {}}]}],
    "constraints": [{"distinctAttribute": "d/x"}],
}
CLAIM: Obj = {
    "spec": {"devices": DEVICES},
    "status": {
        "allocation": {"devices": {"results": [RESULT]}, "allocationTimestamp": "t"},
        "devices": [{"driver": "d"}],
    },
}


def lost(before: Any, after: Any, path: str = "") -> set[str]:
    """Names of the fields that are gone."""
    if isinstance(before, dict):
        return {
            name
            for field, value in before.items()
            for name in (lost(value, after[field], f"{path}.{field}") if field in after else {field})
        }
    if isinstance(before, list):
        return {name for one, two in zip(before, after, strict=True) for name in lost(one, two, path)}
    return set()


# gate: kind, object, fields that go with it
DROPS: dict[str, tuple[str, Obj, set[str]]] = {
    "DynamicResourceAllocation": (
        "Pod",
        {"spec": {"resourceClaims": [{"name": "g"}], "containers": [{"resources": {"claims": [{"name": "g"}]}}]}},
        {"resourceClaims", "claims"},
    ),
    "DRAPrioritizedList": ("ResourceClaim", CLAIM, {"firstAvailable"}),
    "DRAAdminAccess": ("ResourceClaim", CLAIM, {"adminAccess"}),
    "DRADeviceTaints": ("ResourceSlice", SLICE, {"taints"}),
    "DRAPartitionableDevices": (
        "ResourceSlice",
        SLICE,
        {"sharedCounters", "perDeviceNodeSelection", "nodeName", "consumesCounters", "partitionTypeAttribute"},
    ),
    "DRAResourceClaimDeviceStatus": (
        "ResourceClaim",
        CLAIM,
        {"devices", "bindingConditions", "bindingFailureConditions", "allocationTimestamp"},
    ),
    "DRADeviceBindingConditions": (
        "ResourceSlice",
        SLICE,
        {"bindsToNode", "bindingConditions", "bindingFailureConditions"},
    ),
    "DRAConsumableCapacity": (
        "ResourceClaim",
        CLAIM,
        {"capacity", "distinctAttribute", "shareID", "consumedCapacity"},
    ),
    "DRAListTypeAttributes": ("ResourceSlice", SLICE, {"ints"}),
    "DRANodeAllocatableResources": ("ResourceSlice", SLICE, {"nodeAllocatableResources"}),
    "DRAOptionalNodeOperations": ("ResourceSlice", SLICE, {"skipNodeOperations"}),
    "DRADerivedAttributes": ("ResourceClaim", CLAIM, {"derivedAttributes"}),
    "DRADeviceCompatibilityGroups": ("ResourceSlice", SLICE, {"compatibilityGroups"}),
    "DRAPartitionableDevicesType": ("ResourceSlice", SLICE, {"partitionTypeAttribute"}),
    "DRAExtendedResource": ("DeviceClass", {"spec": {"extendedResourceName": "e.com/x"}}, {"extendedResourceName"}),
    "GenericWorkload": (
        "Pod",
        {"spec": {"schedulingGroup": {"podGroupName": "g"}, "containers": []}},
        {"schedulingGroup"},
    ),
    "WorkloadWithJob": ("Job", {"spec": {"scheduling": {"schedulingPolicy": {}}, "template": {}}}, {"scheduling"}),
    "DRAWorkloadResourceClaims": ("PodGroup", {"spec": {"resourceClaims": [{"name": "x"}]}}, {"resourceClaims"}),
}


@pytest.mark.parametrize(("gate", "case"), DROPS.items(), ids=DROPS)
def test_a_gate_that_is_off_drops_its_fields(gate: str, case: tuple[str, Obj, set[str]]) -> None:
    kind, obj, fields = case
    gates, _ = gates_with({**dict.fromkeys(GATES, True), gate: False})
    before = copy.deepcopy(obj)
    dropped = gates_drop(kind, obj, None, gates)
    # Compatibility groups stand inside consumesCounters and go with them.
    assert lost(obj, dropped) == fields
    assert obj == before
    assert {name for name, _gates in unused_fields(kind, obj, gates)} >= fields
    assert gates_drop(kind, obj, None, ALL_ON) is obj


@pytest.mark.parametrize(("gate", "case"), DROPS.items(), ids=DROPS)
def test_what_is_stored_stays(gate: str, case: tuple[str, Obj, set[str]]) -> None:
    kind, obj, _fields = case
    gates, _ = gates_with({**dict.fromkeys(GATES, True), gate: False})
    assert gates_drop(kind, obj, obj, gates) == obj


def test_templates_drop_what_claims_drop() -> None:
    gates, _ = gates_with({"DRAPrioritizedList": False})
    template = {"spec": {"spec": {"devices": DEVICES}}}
    assert lost(template, gates_drop("ResourceClaimTemplate", template, None, gates)) == {
        "firstAvailable",
        "derivedAttributes",
    }


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_pod_templates_drop_what_pods_drop(kind: str) -> None:
    inner: Obj = {"template": {"spec": {"schedulingGroup": {"podGroupName": "g"}}}}
    obj: Obj = {"spec": {"jobTemplate": {"spec": inner}} if kind == "CronJob" else inner}
    assert lost(obj, gates_drop(kind, obj, None, DEFAULTS)) == {"schedulingGroup"}


def test_a_list_attribute_without_its_gate_has_no_value_left() -> None:
    obj = {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "allNodes": True,
            "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "g", "attributes": {"a": {"ints": [1]}}}],
        },
    }
    assert [str(e) for e in validate.create("ResourceSlice", gates_drop("ResourceSlice", obj, None, DEFAULTS))] == [
        "spec.devices[0].attributes[a]: Required value: exactly one value must be specified"
    ]


def test_other_kinds_are_left_alone() -> None:
    obj = {"spec": {"firstAvailable": 1}}
    assert gates_drop("ConfigMap", obj, None, DEFAULTS) is obj
