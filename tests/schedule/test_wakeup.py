"""Wake-ups: each change tells the topics it is about, and reasons ask for the topics that may remove them."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.refusal import ClassNotFound, Dropped, InsufficientDevices
from dragoman.schedule import refusal
from dragoman.schedule.wakeup import topics, topics_of
from dragoman.snapshot.change import Change, Gone, Put
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod, snapshot_of, template, typed
from dragoman.values.quantity import Quantity

ALLOCATED = {
    "allocation": {
        "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}]}
    }
}
HELD = claim("c", status=ALLOCATED)
RUNNING = pod("r", cpu="1", nodeName="n")


def put(made: dict[str, Any]) -> Change:
    return Put(made["kind"], typed(made))


CLAIM = ("ResourceClaim", "default", "c")
FREE = ("freed",)
CASES: dict[str, tuple[list[dict[str, Any]], Change, set[tuple[str, ...]]]] = {
    "a new node": ([], put(node("n")), {("nodes",)}),
    "a node that goes away helps nobody": ([node("n")], Gone("Node", "", "n"), set()),
    "the same node again": ([node("n", cpu="1")], put(node("n", cpu="1")), set()),
    "labels of a node": ([node("n")], put(node("n", labels={"a": "b"})), {("labels",)}),
    "a taint removed": ([node("n", taints=["a=b:NoSchedule"])], put(node("n")), {("taints",)}),
    "a cordon lifted": ([node("n", unschedulable=True)], put(node("n")), {("taints",)}),
    "more of one resource": (
        [node("n", cpu="1", memory="2Gi")],
        put(node("n", cpu="2", memory="1Gi")),
        {("resource", "cpu")},
    ),
    "devices published": ([node("n")], put(gpus("n", 1)), {("devices",)}),
    "a slice gone may complete or repair a pool": (
        [gpus("n", 1)],
        Gone("ResourceSlice", "", "n-gpu.example.com"),
        {("devices",)},
    ),
    "a class": ([], put(device_class("k")), {("DeviceClass", "", "k"), ("classes",)}),
    "a namespace labelled": ([], put(manifest("Namespace", "default")), {("Namespace", "", "default")}),
    "a template": ([], put(template("t")), {("ResourceClaimTemplate", "default", "t")}),
    "a claim allocated": ([claim("c")], put(HELD), {CLAIM}),
    "a claim deallocated": ([HELD], put(claim("c")), {CLAIM, FREE, ("freed", "gpu.example.com")}),
    "an allocated claim deleted by force": (
        [HELD],
        Gone("ResourceClaim", "default", "c"),
        {CLAIM, FREE, ("freed", "gpu.example.com")},
    ),
    "a running pod gone": (
        [RUNNING],
        Gone("Pod", "default", "r"),
        {("resource", "cpu"), ("resource", "pods"), ("inter-pod",)},
    ),
    "a running pod done": (
        [RUNNING],
        put(pod("r", cpu="1", nodeName="n", status={"phase": "Succeeded"})),
        {("resource", "cpu"), ("resource", "pods"), ("inter-pod",)},
    ),
    "a done pod gone": ([pod("r", nodeName="n", status={"phase": "Failed"})], Gone("Pod", "default", "r"), set()),
    "a pod's claim made": (
        [pod("p", templates=["t"])],
        put(pod("p", templates=["t"], status={"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "x"}]})),
        {("Pod", "default", "p")},
    ),
    "only a pod's condition": (
        [pod("p")],
        put(pod("p", status={"conditions": [{"type": "PodScheduled", "status": "False"}]})),
        set(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_topics_of_a_change(name: str) -> None:
    objects, change, expected = CASES[name]
    assert set(topics(snapshot_of(*objects), change)) == expected


SHORT = InsufficientDevices(
    claim="default/c", request="gpu", class_name="k", requested=1, dropped=Dropped(seen=1, held=1), node="n"
)
ONE = Quantity.parse("1")
# Reason, a change that may remove it, a change that cannot.
HELPS: dict[str, tuple[object, str, str]] = {
    "too few devices: a claim deallocated": (SHORT, "a claim deallocated", "a taint removed"),
    "too few devices: devices published": (SHORT, "devices published", "more of one resource"),
    "too few devices: a node's labels": (SHORT, "labels of a node", "only a pod's condition"),
    "too little cpu: a running pod gone": (
        refusal.InsufficientResource("cpu", ONE, ONE, ONE),
        "a running pod gone",
        "a claim deallocated",
    ),
    "too little memory: not by more cpu": (
        refusal.InsufficientResource("memory", ONE, ONE, ONE),
        "a new node",
        "more of one resource",
    ),
    "a taint": (refusal.UntoleratedTaint("a", "b", "NoSchedule"), "a taint removed", "devices published"),
    "a cordon": (refusal.NodeUnschedulable(), "a cordon lifted", "a claim allocated"),
    "affinity": (refusal.NodeAffinityMismatch("a=b"), "labels of a node", "a cordon lifted"),
    "a missing class": (ClassNotFound(claim="default/c", request="r", class_name="k"), "a class", "devices published"),
    "a missing template": (refusal.ClaimNotCreated("t", "t", False), "a template", "a class"),
    "admin access not allowed": (
        refusal.ClaimNotCreated("t", "t", True, "default"),
        "a namespace labelled",
        "a class",
    ),
    "a claim not made": (refusal.ClaimNotCreated("t", "t", True), "a pod's claim made", "devices published"),
    "a claim elsewhere": (refusal.ClaimNotAvailableOnNode("c"), "a claim deallocated", "devices published"),
}


@pytest.mark.parametrize("name", HELPS)
def test_a_reason_waits_for_what_may_remove_it_and_for_nothing_else(name: str) -> None:
    reason, helps, does_not = HELPS[name]
    waiting = topics_of(typed(pod("p")), ["c"] if isinstance(reason, refusal.ClaimNotAvailableOnNode) else [], [reason])

    def reported(case: str) -> set[tuple[str, ...]]:
        objects, change, _ = CASES[case]
        return set(topics(snapshot_of(*objects), change))

    assert waiting & reported(helps)
    assert not waiting & reported(does_not)
