from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api import convert
from dragoman.api.kinds import BY_NAME, KINDS
from dragoman.errors import Invalid

G = "resource.k8s.io/"


def claim(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests)}}}


def pool_slice(spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", **spec}}


# sentence: v1beta1, v1
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a flat request is nested": (
        claim({"name": "r", "deviceClassName": "c", "count": 2, "selectors": [{"cel": {"expression": "true"}}]}),
        claim(
            {
                "name": "r",
                "exactly": {"deviceClassName": "c", "count": 2, "selectors": [{"cel": {"expression": "true"}}]},
            }
        ),
    ),
    "a bare request has no exactly": (claim({"name": "r"}), claim({"name": "r"})),
    "adminAccess false is a set field": (
        claim({"name": "r", "adminAccess": False}),
        claim({"name": "r", "exactly": {"adminAccess": False}}),
    ),
    "alternatives stay as they are": (
        claim({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}),
        claim({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}),
    ),
    "both forms at once stay both": (
        claim({"name": "r", "deviceClassName": "c", "firstAvailable": []}),
        claim({"name": "r", "exactly": {"deviceClassName": "c"}, "firstAvailable": []}),
    ),
    "an unknown field of a request stays": (
        claim({"name": "r", "deviceClassName": "c", "later": 1}),
        claim({"name": "r", "exactly": {"deviceClassName": "c"}, "later": 1}),
    ),
    "a device loses its wrapper": (
        pool_slice({"devices": [{"name": "d", "basic": {"attributes": {"a": {"int": 1}}, "later": True}}]}),
        pool_slice({"devices": [{"name": "d", "attributes": {"a": {"int": 1}}, "later": True}]}),
    ),
    "an empty wrapper is a name": (
        pool_slice({"devices": [{"name": "d", "basic": {}}]}),
        pool_slice({"devices": [{"name": "d"}]}),
    ),
}


@pytest.mark.parametrize(("beta", "stored"), SHAPES.values(), ids=SHAPES)
def test_shapes_convert_both_ways(beta: dict[str, Any], stored: dict[str, Any]) -> None:
    beta = {"apiVersion": G + "v1beta1", **beta}
    stored = {"apiVersion": G + "v1", **stored}
    kind = beta["kind"]
    before = copy.deepcopy((beta, stored))
    assert convert.to_stored(kind, "v1beta1", beta) == stored
    assert convert.from_stored(kind, "v1beta1", stored) == beta
    assert (beta, stored) == before, "inputs are never changed"


ONE_WAY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "flat fields that are empty or zero are not set": (
        claim({"name": "r", "deviceClassName": "", "count": 0, "selectors": None}),
        claim({"name": "r"}),
    ),
    "empty nodeName and allNodes false are not set": (
        pool_slice({"nodeName": "", "allNodes": False}),
        pool_slice({}),
    ),
    "a device without wrapper is a name": (
        pool_slice({"devices": [{"name": "d"}]}),
        pool_slice({"devices": [{"name": "d"}]}),
    ),
    "a null wrapper is a name": (
        pool_slice({"devices": [{"name": "d", "basic": None}]}),
        pool_slice({"devices": [{"name": "d"}]}),
    ),
    "wrong types pass through": (
        {"kind": "ResourceClaim", "spec": {"devices": {"requests": "none", "x": 1}}},
        {"kind": "ResourceClaim", "spec": {"devices": {"requests": "none", "x": 1}}},
    ),
    "wrong elements pass through": (
        {"kind": "ResourceSlice", "spec": {"devices": [3, {"name": "d", "basic": 4}]}},
        {"kind": "ResourceSlice", "spec": {"devices": [3, {"name": "d", "basic": 4}]}},
    ),
    "a spec of a wrong type passes through": (
        {"kind": "ResourceSlice", "spec": 1},
        {"kind": "ResourceSlice", "spec": 1},
    ),
}


@pytest.mark.parametrize(("beta", "stored"), ONE_WAY.values(), ids=ONE_WAY)
def test_reading_the_old_version(beta: dict[str, Any], stored: dict[str, Any]) -> None:
    assert convert.to_stored(beta["kind"], "v1beta1", beta) == stored


def test_templates_convert_their_inner_spec() -> None:
    beta = {
        "apiVersion": G + "v1beta1",
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "c"}]}}},
    }
    stored = convert.to_stored("ResourceClaimTemplate", "v1beta1", beta)
    assert stored["spec"]["spec"]["devices"]["requests"] == [{"name": "r", "exactly": {"deviceClassName": "c"}}]
    assert convert.from_stored("ResourceClaimTemplate", "v1beta1", stored) == beta


def test_lists_convert_with_their_items() -> None:
    items = [claim({"name": "r", "exactly": {"deviceClassName": "c"}})]
    stored = {"apiVersion": G + "v1", "kind": "ResourceClaimList", "metadata": {"resourceVersion": "7"}, "items": items}
    beta = convert.from_stored("ResourceClaim", "v1beta1", stored)
    assert beta["apiVersion"] == G + "v1beta1"
    assert beta["metadata"] == {"resourceVersion": "7"}
    assert beta["items"][0]["spec"]["devices"]["requests"] == [{"name": "r", "deviceClassName": "c"}]
    assert convert.to_stored("ResourceClaim", "v1beta1", beta) == stored


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
def test_a_taint_rule_differs_only_in_its_version(version: str) -> None:
    rule = {"apiVersion": G + "v1", "kind": "DeviceTaintRule", "spec": {"taint": {"key": "k", "effect": "NoExecute"}}}
    old = convert.from_stored("DeviceTaintRule", version, rule)
    assert old == {**rule, "apiVersion": G + version}
    assert convert.to_stored("DeviceTaintRule", version, old) == rule


def test_every_served_version_of_every_kind_converts() -> None:
    for kind in KINDS:
        for version in kind.versions:
            obj = {"apiVersion": kind.version_text(version), "kind": kind.kind, "metadata": {"name": "n"}}
            stored = convert.to_stored(kind.kind, version, obj)
            assert stored["apiVersion"] == kind.api_version
            assert convert.from_stored(kind.kind, version, stored) == obj


def test_a_version_the_kind_lacks_is_invalid() -> None:
    with pytest.raises(Invalid, match="ResourceClaim has no version v1alpha3"):
        convert.to_stored("ResourceClaim", "v1alpha3", {})
    assert "v1alpha3" in BY_NAME["DeviceTaintRule"].versions


def test_unknown_kinds_are_left_alone() -> None:
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    assert convert.to_stored("LocalQueue", "v1beta1", obj) is obj


# ---- laws

json_values = st.one_of(st.integers(-5, 5), st.text(max_size=3), st.lists(st.integers(), max_size=2))
unknown = st.dictionaries(st.sampled_from(["later", "alsoLater"]), json_values, max_size=2)
exact = st.fixed_dictionaries(
    {"deviceClassName": st.text(min_size=1, max_size=5)},
    optional={
        "selectors": st.lists(st.just({"cel": {"expression": "true"}}), max_size=2),
        "allocationMode": st.sampled_from(["ExactCount", "All", "Odd"]),
        "count": st.integers(-3, 40).filter(bool),
        "adminAccess": st.booleans(),
        "tolerations": st.lists(st.just({"operator": "Exists"}), max_size=2),
        "capacity": st.just({"requests": {"memory": "1Gi"}}),
        "derivedAttributes": st.just([{"name": "a", "expression": "1"}]),
    },
)
requests = st.lists(
    st.builds(
        lambda name, body, more: {**more, "name": name, **body},
        st.text(max_size=5),
        st.one_of(
            st.builds(lambda e: {"exactly": e}, exact),
            st.builds(lambda subs: {"firstAvailable": subs}, st.lists(exact, max_size=2)),
            st.just({}),
        ),
        unknown,
    ),
    max_size=3,
)
devices = st.lists(
    st.builds(
        lambda name, more, node: {"name": name, **more, **node},
        st.text(max_size=5),
        unknown,
        st.sampled_from([{}, {"nodeName": "n"}, {"allNodes": True}, {"attributes": {"a": {"bool": False}}}]),
    ),
    max_size=4,
)


@given(requests)
def test_claims_come_back_from_v1beta1(drawn: list[dict[str, Any]]) -> None:
    stored = {"apiVersion": G + "v1", "status": {"x": 1}, **claim(*drawn)}
    beta = convert.from_stored("ResourceClaim", "v1beta1", stored)
    assert not any("exactly" in request for request in beta["spec"]["devices"]["requests"])
    assert convert.to_stored("ResourceClaim", "v1beta1", beta) == stored


@given(devices, st.sampled_from([{}, {"nodeName": "n"}, {"allNodes": True}, {"perDeviceNodeSelection": True}]))
def test_slices_come_back_from_v1beta1(drawn: list[dict[str, Any]], placement: dict[str, Any]) -> None:
    stored = {"apiVersion": G + "v1", **pool_slice({"devices": drawn, **placement})}
    beta = convert.from_stored("ResourceSlice", "v1beta1", stored)
    assert all(set(device) == {"name", "basic"} for device in beta["spec"]["devices"])
    assert convert.to_stored("ResourceSlice", "v1beta1", beta) == stored


def test_an_autoscaler_of_v1_has_its_number_as_a_metric_of_v2_and_other_metrics_in_an_annotation():
    from dragoman.api import convert

    target = {"kind": "Deployment", "name": "d"}
    old = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": target, "targetCPUUtilizationPercentage": 55}}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 55}}
    new = convert.to_stored("HorizontalPodAutoscaler", "v1", old)
    assert new["spec"] == {"scaleTargetRef": target, "metrics": [{"type": "Resource", "resource": cpu}]}
    assert convert.from_stored("HorizontalPodAutoscaler", "v1", new) == old
    pods = {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}
    more = {**new, "spec": {"scaleTargetRef": target, "metrics": [pods, *new["spec"]["metrics"]]}}
    flat = convert.from_stored("HorizontalPodAutoscaler", "v1", more)
    assert flat["spec"] == old["spec"]
    assert convert.to_stored("HorizontalPodAutoscaler", "v1", flat) == more
