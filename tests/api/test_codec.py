from __future__ import annotations

import json

import pytest

from dragoman.api import codec
from dragoman.api.core import Node, Pod, Workload
from dragoman.api.resource import Device, DeviceAttribute, ResourceClaim, ResourceSlice
from dragoman.errors import Invalid
from dragoman.values.quantity import Quantity

SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s", "creationTimestamp": None},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "n1", "generation": 2, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"index": {"int": 0}, "fast": {"bool": False}, "model": {"string": "X"}},
                "capacity": {"memory": {"value": "80Gi"}, "compute": {"value": 100}},
                "inventedLater": {"a": 1},
            }
        ],
    },
}


def test_bytes_text_and_dict_give_the_same_value() -> None:
    text = json.dumps(SLICE)
    from_dict = codec.decode(ResourceSlice, SLICE)
    assert codec.decode(ResourceSlice, text) == codec.decode(ResourceSlice, text.encode()) == from_dict
    device = from_dict.spec.devices[0]
    assert device.attributes["index"] == DeviceAttribute(int_=0)
    assert device.attributes["fast"] == DeviceAttribute(bool_=False)
    assert device.capacity["memory"].value == Quantity.parse("80Gi")
    assert device.capacity["compute"].value == Quantity.parse("100")


def test_encoding_leaves_out_defaults_and_writes_lists_and_quantity_text() -> None:
    device = codec.decode(Device, SLICE["spec"]["devices"][0])  # type: ignore[index]
    assert codec.to_json(device) == {
        "name": "gpu-0",
        "attributes": {"index": {"int": 0}, "fast": {"bool": False}, "model": {"string": "X"}},
        "capacity": {"memory": {"value": "80Gi"}, "compute": {"value": "100"}},
    }
    assert codec.to_json(codec.decode(Pod, {"spec": {"containers": [{"name": "c"}]}})) == {
        "spec": {"containers": [{"name": "c"}]}
    }


NULLS = {
    "null spec": {"spec": None},
    "null list": {"spec": {"devices": {"requests": None}}},
    "null map": {"metadata": {"labels": None}},
    "null string": {"metadata": {"name": None}},
}


@pytest.mark.parametrize("raw", NULLS.values(), ids=NULLS)
def test_null_is_the_same_as_absent(raw: dict[str, object]) -> None:
    assert codec.decode(ResourceClaim, raw) == ResourceClaim()
    assert codec.decode(ResourceClaim, json.dumps(raw).encode()) == ResourceClaim()


def test_null_inside_opaque_parameters_stays() -> None:
    raw = {
        "metadata": {"labels": None},
        "spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {"a": None}}}]}},
    }
    claim = codec.decode(ResourceClaim, raw)
    opaque = claim.spec.devices.config[0].opaque
    assert opaque is not None
    assert opaque.parameters == {"a": None}


WRONG = {
    "text for a count": (
        ResourceClaim,
        {"spec": {"devices": {"requests": [{"exactly": {"count": "2"}}]}}},
        "spec.devices.requests[0].exactly.count",
        "must be an integer, got a string",
    ),
    "a list for a map": (Node, {"metadata": {"labels": []}}, "metadata.labels", "must be an object, got a list"),
    "a map for a list": (Pod, {"spec": {"containers": {}}}, "spec.containers", "must be a list, got an object"),
    "a number for a name": (Pod, {"metadata": {"name": 3}}, "metadata.name", "must be a string, got an integer"),
    "a bool for a quantity": (
        Node,
        {"status": {"allocatable": {"cpu": True}}},
        "status.allocatable[cpu]",
        "must be a quantity, got true or false",
    ),
    "one of several values of a map": (
        ResourceSlice,
        {"spec": {"devices": [{}, {"capacity": {"a": {"value": 1}, "b.c/d": {"value": []}}}]}},
        "spec.devices[1].capacity[b.c/d].value",
        "must be a quantity, got a list",
    ),
    "a null element": (
        Workload,
        {"spec": {"selector": {"matchExpressions": [None]}}},
        "spec.selector.matchExpressions[0]",
        "must be an object, got null",
    ),
    "a number for text or nothing": (
        Pod,
        {"spec": {"preemptionPolicy": 1}},
        "spec.preemptionPolicy",
        "must be a string, got an integer",
    ),
}


@pytest.mark.parametrize(("kind", "raw", "where", "what"), WRONG.values(), ids=WRONG)
def test_a_wrong_type_names_the_field(kind: type, raw: dict[str, object], where: str, what: str) -> None:
    for source in (raw, json.dumps(raw)):
        with pytest.raises(Invalid) as caught:
            codec.decode(kind, source)
        assert (caught.value.where, caught.value.what) == (where, what)


def test_a_bad_quantity_names_the_field() -> None:
    with pytest.raises(Invalid) as caught:
        codec.decode(Node, {"status": {"capacity": {"cpu": "many"}}})
    assert caught.value.where == "status.capacity[cpu]"
    assert "many" in caught.value.what


def test_broken_json_is_invalid() -> None:
    with pytest.raises(Invalid, match="must be JSON"):
        codec.decode(Node, b"{")


def test_every_type_decodes_an_empty_object() -> None:
    for kind in codec.TYPES.values():
        assert codec.to_json(codec.decode(kind, {})) == {}
