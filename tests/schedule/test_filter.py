"""Node checks: each with a pod and node that pass and ones that do not."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.core import Node, Pod
from dragoman.schedule import refusal
from dragoman.schedule.filter import insufficient_resources, projection_of, static_reason
from dragoman.schedule.needs import NANOS
from dragoman.snapshot.usage import pod_requests
from dragoman.testing.build import node, pod, typed
from dragoman.values.quantity import Quantity


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


ZONE_A = node("n", labels={"zone": "a", "cores": "8"})
STATIC: dict[str, tuple[dict[str, Any], dict[str, Any], object]] = {
    "a plain pod passes a plain node": (pod("p"), node("n"), None),
    "a cordoned node refuses": (pod("p"), node("n", unschedulable=True), refusal.NodeUnschedulable()),
    "a tolerated cordon does not": (
        pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        node("n", unschedulable=True),
        None,
    ),
    "an untolerated taint refuses": (
        pod("p"),
        node("n", taints=["gpu=yes:NoSchedule"]),
        refusal.UntoleratedTaint("gpu", "yes", "NoSchedule"),
    ),
    "a toleration of the same key and value helps": (
        pod("p", tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
        node("n", taints=["gpu=yes:NoSchedule"]),
        None,
    ),
    "a toleration of another value does not": (
        pod("p", tolerations=[{"key": "gpu", "value": "no"}]),
        node("n", taints=["gpu=yes:NoExecute"]),
        refusal.UntoleratedTaint("gpu", "yes", "NoExecute"),
    ),
    "Exists without key tolerates everything": (
        pod("p", tolerations=[{"operator": "Exists"}]),
        node("n", taints=["gpu=yes:NoExecute", "a=b:NoSchedule"]),
        None,
    ),
    "a soft taint never refuses": (pod("p"), node("n", taints=["a=b:PreferNoSchedule"]), None),
    "a node selector that matches passes": (pod("p", nodeSelector={"zone": "a"}), ZONE_A, None),
    "a node selector that does not refuses": (
        pod("p", nodeSelector={"zone": "b"}),
        ZONE_A,
        refusal.NodeAffinityMismatch("zone=b"),
    ),
    "affinity: one term of several is enough": (
        pod("p", affinity=required(expression("zone", "In", "b"), expression("zone", "In", "a", "c"))),
        ZONE_A,
        None,
    ),
    "affinity: Gt compares numbers": (
        pod("p", affinity=required(expression("cores", "Gt", "10"))),
        ZONE_A,
        refusal.NodeAffinityMismatch("cores > 10"),
    ),
    "affinity: NotIn holds where the label is missing": (
        pod("p", affinity=required(expression("rack", "NotIn", "r1"))),
        ZONE_A,
        None,
    ),
    "affinity by node name": (
        pod("p", affinity=required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]})),
        ZONE_A,
        refusal.NodeAffinityMismatch("metadata.name=m"),
    ),
}


@pytest.mark.parametrize("name", STATIC)
def test_static_checks(name: str) -> None:
    wanting, offered, expected = STATIC[name]
    pod_info, device_state = typed(wanting), typed(offered)
    assert isinstance(pod_info, Pod)
    assert isinstance(device_state, Node)
    assert static_reason(pod_info.spec, device_state) == expected


def allocatable(**amounts: str) -> dict[str, Quantity]:
    return {name.replace("_", "-"): Quantity.parse(amount) for name, amount in amounts.items()}


def room(wanting: dict[str, Any], used: dict[str, int] | None = None, **amounts: str) -> list[object]:
    return list(insufficient_resources(pod_requests(typed(wanting)), allocatable(**amounts), used or {}))


def test_all_resources_that_do_not_suffice_are_named() -> None:
    found = room(pod("p", cpu="2", memory="2Gi"), {"cpu": NANOS}, cpu="2", memory="1Gi", pods="10")
    assert found == [
        refusal.InsufficientResource("cpu", Quantity.parse("2"), Quantity.parse("1"), Quantity.parse("2")),
        refusal.InsufficientResource("memory", Quantity.parse("2Gi"), Quantity.parse("1Gi"), Quantity.parse("1Gi")),
    ]


def test_exactly_what_is_left_fits() -> None:
    assert room(pod("p", cpu="1"), {"cpu": NANOS}, cpu="2", pods="1") == []


def test_a_node_full_of_pods_says_so() -> None:
    assert room(pod("p"), {"pods": 3 * NANOS}, pods="3") == [refusal.TooManyPods(3)]


def test_without_allocatable_there_is_room_for_everything() -> None:
    assert insufficient_resources(pod_requests(typed(pod("p", cpu="1000"))), None, {}) == []


def test_a_resource_the_node_does_not_have_is_zero_or_unknown() -> None:
    assert room(pod("p", cpu="1"), memory="1Gi") == [
        refusal.InsufficientResource("cpu", Quantity.parse("1"), Quantity.parse("0"), Quantity.parse("0"))
    ]
    assert room(pod("p", extended={"e.com/gpu": "1"}), cpu="1") == [refusal.UnknownResource("e.com/gpu")]


def test_a_pod_sees_of_a_node_only_the_labels_its_selectors_name() -> None:
    pod_info = typed(pod("p", nodeSelector={"zone": "a"}, affinity=required(expression("rack", "Exists"))))
    projection = projection_of(pod_info.spec)
    assert projection.labels == ("rack", "zone")
    one = projection.project(typed(node("n1", labels={"zone": "a", "rack": "1"})))
    assert one == projection.project(typed(node("n2", labels={"zone": "a", "rack": "1", "other": "x"})))
    assert one != projection.project(typed(node("n3", labels={"zone": "a", "rack": "2"})))
