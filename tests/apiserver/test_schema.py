"""Field checks: unknown fields in upstream's words, wrong types with their path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api.kinds import KINDS
from dragoman.apiserver.schema import MAX_STRICT_ERRORS, _fits, _walk, strict_errors
from dragoman.apiserver.shape import shape_of
from dragoman.errors import Invalid

POD = ("", "v1", "Pod")
DRA = "resource.k8s.io"


def pod(**container: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


FITTING: dict[str, tuple[Any, Any]] = {
    "a pod": (POD, pod(name="c", image="i", ports=[{"containerPort": 80}])),
    "nulls anywhere": (POD, {"metadata": {"creationTimestamp": None, "labels": None}, "spec": {"containers": None}}),
    "quantities as text or number": (POD, pod(resources={"limits": {"cpu": 1, "memory": "4Gi", "x": 0.5, "y": "1e3"}})),
    "a port by name or number": (
        POD,
        pod(livenessProbe={"httpGet": {"port": "web"}}, readinessProbe={"httpGet": {"port": 80}}),
    ),
    "parameters of any form": (
        (DRA, "v1", "DeviceClass"),
        {"spec": {"config": [{"opaque": {"driver": "d", "parameters": {"anything": [1, {"x": None}]}}}]}},
    ),
    "a kind without schema": (("example.com", "v1", "Thing"), {"whatever": 1}),
    "times with fractions and zones": (POD, {"metadata": {"creationTimestamp": "2026-01-01T00:00:00.123+02:00"}}),
    "bytes": (("", "v1", "Secret"), {"data": {"a": "aGk=", "b": ""}}),
}


@pytest.mark.parametrize("sentence", FITTING)
def test_what_fits(sentence):
    gvk, obj = FITTING[sentence]
    assert strict_errors(gvk, obj) == []


UNKNOWN: dict[str, tuple[Any, Any, list[str]]] = {
    "at the top": (POD, {"foo": 1}, ["foo"]),
    "in spec": (POD, {"spec": {"foo": 1}}, ["spec.foo"]),
    "in an item": (POD, pod(name="c", imag="i"), ["spec.containers[0].imag"]),
    "the case counts": (POD, {"spec": {"hostnetwork": True}}, ["spec.hostnetwork"]),
    "several, in order": (POD, {"a": 1, "spec": {"b": 2}, "metadata": {"c": 3}}, ["a", "spec.b", "metadata.c"]),
    "below a map": (
        (DRA, "v1", "ResourceSlice"),
        {"spec": {"devices": [{"name": "d", "attributes": {"x": {"integer": 1}}}]}},
        ["spec.devices[0].attributes.x.integer"],
    ),
    "a field of another version": (
        (DRA, "v1", "ResourceClaim"),
        {"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "c"}]}}},
        ["spec.devices.requests[0].deviceClassName"],
    ),
}


@pytest.mark.parametrize("sentence", UNKNOWN)
def test_unknown_fields(sentence):
    gvk, obj, paths = UNKNOWN[sentence]
    assert strict_errors(gvk, obj) == [f'unknown field "{path}"' for path in paths]


def test_a_field_of_v1beta1_is_known_there():
    obj = {"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "c"}]}}}
    assert strict_errors((DRA, "v1beta1", "ResourceClaim"), obj) == []


def test_counting_ends_somewhere():
    obj = {f"x{index}": 1 for index in range(1000)}
    assert len(strict_errors(POD, obj)) == MAX_STRICT_ERRORS


WRONG: dict[str, tuple[Any, Any, str, str]] = {
    "text for a number": (
        ("apps", "v1", "Deployment"),
        {"spec": {"replicas": "3"}},
        "spec.replicas",
        "integer, got string '3'",
    ),
    "a fraction for an integer": (
        ("apps", "v1", "Deployment"),
        {"spec": {"replicas": 1.0}},
        "spec.replicas",
        "got number 1.0",
    ),
    "a boolean for an integer": (
        ("apps", "v1", "Deployment"),
        {"spec": {"replicas": True}},
        "spec.replicas",
        "boolean true",
    ),
    "beyond 32 bits": (("apps", "v1", "Deployment"), {"spec": {"replicas": 2**31}}, "spec.replicas", "int32"),
    "a number for text": (POD, {"metadata": {"labels": {"a": 1}}}, "metadata.labels.a", "string, got number 1"),
    "an object for a list": (POD, {"spec": {"containers": {}}}, "spec.containers", "list, got an object"),
    "a list for an object": (POD, {"spec": []}, "spec", "object, got a list"),
    "text for a map": (POD, {"metadata": {"labels": "x"}}, "metadata.labels", "object, got string 'x'"),
    "no quantity": (
        POD,
        pod(resources={"limits": {"cpu": "one"}}),
        "spec.containers[0].resources.limits.cpu",
        "quantity",
    ),
    "no time": (POD, {"metadata": {"creationTimestamp": "today"}}, "metadata.creationTimestamp", "RFC 3339"),
    "no base64": (("", "v1", "Secret"), {"data": {"a": "ä"}}, "data.a", "base64"),
    "text for a boolean": (POD, {"spec": {"hostNetwork": "yes"}}, "spec.hostNetwork", "boolean, got string 'yes'"),
    "a list for a port": (
        POD,
        pod(livenessProbe={"httpGet": {"port": [80]}}),
        "spec.containers[0].livenessProbe.httpGet.port",
        "a list",
    ),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_types(sentence):
    gvk, obj, where, says = WRONG[sentence]
    with pytest.raises(Invalid) as wrong:
        strict_errors(gvk, obj)
    assert wrong.value.where == where
    assert says in wrong.value.what


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_served_kind_has_a_schema(kind):
    for version in kind.versions:
        gvk = (kind.group, version, kind.kind)
        assert shape_of(gvk) is not None
        assert strict_errors(gvk, {"apiVersion": kind.version_text(version), "kind": kind.kind}) == []


def members(inner):
    names = ["metadata", "spec", "status", "name", "labels", "containers", "image", "resources", "limits", "nope"]
    return st.dictionaries(st.sampled_from(names), inner, max_size=3)


values = st.none() | st.booleans() | st.integers(-5, 2**40) | st.sampled_from(["x", "1", "4Gi", "aGk="])
trees = st.recursive(values, lambda inner: st.lists(inner, max_size=2) | members(inner), max_leaves=10)


@pytest.mark.slow
@given(members(trees))
def test_the_compiled_check_and_the_walk_agree(obj):
    fits = _fits(POD)
    shape = shape_of(POD)
    assert fits is not None
    assert shape is not None
    try:
        unknown = list(_walk(shape, obj, ""))
    except Invalid:
        unknown = ["wrong"]
    assert fits(obj) == (not unknown)
