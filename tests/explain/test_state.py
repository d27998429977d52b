"""What keeps bound pods and deletions waiting, and what is told of claims, devices and nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.explain import describe
from dragoman.explain.focus import focus
from dragoman.explain.objects import claim_facts, device_facts, node_facts, pod_facts
from dragoman.explain.state import consumers_of, deletion, events_of, stuck
from dragoman.explain.state_messages import sentence
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.usage import DeviceId
from dragoman.testing.build import DRIVER, claim, device, device_class, gpus, manifest, node, pod, pool, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTEXT = SchedulingContext(new_id=lambda: "")


def given(
    name: str, index: int = 0, *, by: str = "p", meta: dict[str, Any] | None = None, **result: Any
) -> dict[str, Any]:
    allocated = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": f"gpu-{index}", **result}
    where = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    consumers = [{"resource": "pods", "name": by, "uid": f"uid-{by}"}] if by else []
    status = {"allocation": {"devices": {"results": [allocated]}, "nodeSelector": where}, "reservedFor": consumers}
    return claim(name, status=status, metadata=meta or {})


def bound(name: str, *claims: str, phase: str = "Pending", **rest: Any) -> dict[str, Any]:
    return pod(name, *claims, nodeName="a", status={"phase": phase, **rest})


WORLD = [node("a"), device_class(), gpus("a", 3)]
FATES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "gone": ([], "gone"),
    "replaced": ([pod("p", metadata={"uid": "another"})], "replaced"),
    "finished": ([bound("p", phase="Succeeded")], "finished"),
    "deleting": ([pod("p", nodeName="a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})], "deleting"),
    "running": ([bound("p", phase="Running")], "running"),
    "not started": ([bound("p")], "pending"),
}


@pytest.mark.parametrize("name", FATES)
def test_what_became_of_consumers(name: str) -> None:
    objects, state = FATES[name]
    snapshot = snapshot_of(given("c"), *objects)
    (consumer,) = consumers_of(snapshot, snapshot.claims["default", "c"])
    assert consumer.state == state


def test_a_deletion_says_since_when_it_waits_for_whom() -> None:
    snapshot = snapshot_of(given("c", meta={"deletionTimestamp": "2025-12-31T23:00:00Z", "finalizers": ["f"]}))
    waits = deletion(snapshot, snapshot.claims["default", "c"], NOW)
    assert waits is not None
    assert (waits.finalizers, waits.since_s, waits.devices) == (("f",), 3600, (f"{DRIVER}/a/gpu-0",))
    assert deletion(snapshot_of(given("d")), snapshot_of(given("d")).claims["default", "d"], NOW) is None


def test_a_pod_that_runs_is_not_stuck() -> None:
    snapshot = snapshot_of(*WORLD, given("c"), bound("p", "c", phase="Running"))
    assert stuck(snapshot, snapshot.pods["default", "p"], (), NOW) == ()


def test_events_of_other_pods_and_incarnations_do_not_count() -> None:
    snapshot = snapshot_of(*WORLD, given("c"), bound("p", "c"))
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "older"}
    event = manifest("Event", "e", involvedObject=about, reason="FailedPrepareDynamicResources", message="x")
    (reason,) = stuck(snapshot, snapshot.pods["default", "p"], events_of([event]), NOW)
    assert type(reason).__name__ == "Starting"


def test_events_of_both_groups_are_read() -> None:
    new = {
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "R",
        "note": "n",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "series": {"count": 3, "lastObservedTime": "2026-01-01T00:05:00.000000Z"},
    }
    (reported,) = events_of([new])
    assert (reported.key, reported.message, reported.count) == (("default", "p"), "n", 3)
    assert reported.last == "2026-01-01T00:05:00.000000Z"


# ---- objects


def test_why_this_device() -> None:
    snapshot = snapshot_of(
        *WORLD, given("other", 0, by="q"), given("c", 1), bound("p", "c", phase="Running"), bound("q", "other")
    )
    facts = pod_facts(snapshot, snapshot.pods["default", "p"], (), NOW, CONTEXT)
    (choice,) = facts.choices
    assert (facts.state, choice.position, choice.matching, choice.passed) == ("running", 2, 3, (("held", 1),))
    assert describe.pod_lines(facts)[1].strip() == (
        f"gpu-1 for request gpu: one of 3 matching of 3 devices on a, class {DRIVER}; before it 1 held (claim c)"
    )


def test_a_claim_and_its_state() -> None:
    snapshot = snapshot_of(*WORLD, given("c"), bound("p", "c"), claim("d"), given("e", 1, by=""))
    states = {
        name: claim_facts(snapshot, snapshot.claims["default", name], NOW, CONTEXT).state for name in ("c", "d", "e")
    }
    assert states == {"c": "reserved", "d": "pending", "e": "allocated"}


def test_a_device_with_everything_that_is_known() -> None:
    rule = manifest(
        "DeviceTaintRule",
        "r",
        spec={"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "k", "effect": "NoExecute"}},
    )
    other = device_class("other", selectors=[{"cel": {"expression": "device.driver == 'x'"}}])
    snapshot = snapshot_of(*WORLD, other, rule, given("c"), given("watch", adminAccess=True, by=""), bound("p", "c"))
    facts = device_facts(snapshot, DeviceId(DRIVER, "a", "gpu-0"), CONTEXT)
    assert facts is not None
    assert (facts.state, facts.nodes, facts.pool_state) == ("held", ("a",), "ok")
    assert [(h.claim, h.pods, h.admin) for h in facts.holders] == [("c", ("p",), False), ("watch", (), True)]
    assert [(t.key, t.rule) for t in facts.taints] == [("k", "r")]
    assert {entry.name: entry.matches for entry in facts.classes} == {DRIVER: True, "other": False}
    reported = describe.device_json(facts)
    assert (reported["driver"], reported["pool"], reported["device"]) == (DRIVER, "a", "gpu-0")
    assert "  held by claim default/c, request gpu, used by p" in describe.device_lines(facts)


def test_a_device_that_is_allocated_but_published_no_longer() -> None:
    snapshot = snapshot_of(node("a"), given("c", 7))
    facts = device_facts(snapshot, DeviceId(DRIVER, "a", "gpu-7"), CONTEXT)
    assert facts is not None
    assert facts.state == "gone"
    assert device_facts(snapshot, DeviceId(DRIVER, "a", "gpu-8"), CONTEXT) is None


def test_a_node_and_what_is_wrong_with_it() -> None:
    bad = pool(
        "b",
        [device("x")],
        node="a",
        driver="nic.example.com",
        pool={"name": "b", "generation": 1, "resourceSliceCount": 2},
    )
    snapshot = snapshot_of(*WORLD, bad, given("c"), bound("p", "c"))
    facts = node_facts(snapshot, snapshot.nodes["a"], NOW)
    assert facts.pools == (
        (DRIVER, "a", "ok", 1, 1, 3, 1, 0, 0),
        ("nic.example.com", "b", "incomplete", 1, 2, 1, 0, 0, 0),
    )
    assert facts.pods == (("default", "p", (f"{DRIVER}/a/gpu-0",), ()),)
    lines = describe.node_lines(facts)
    assert f"  class {DRIVER}: 2 of 3 free, 1 held" in lines
    assert "  pool nic.example.com/b: 1 device, 0 held; incomplete: 1 of 2 slices" in lines


# ---- what if


def test_the_part_around_a_node_holds_what_decides_there() -> None:
    other = [node("b"), gpus("b", 1), claim("elsewhere"), pod("r", "elsewhere", nodeName="b")]
    snapshot = snapshot_of(*WORLD, *other, given("c"), bound("p", "c"), claim("new"), pod("n", "new"))
    small = focus(snapshot, ["a"], [("default", "n")])
    assert set(small.nodes) == {"a"}
    assert {key[1] for key in small.pods} == {"p", "n"}
    assert {key[1] for key in small.claims} == {"c", "new"}
    assert set(small.holders) == set(snapshot.holders)


def tainted(effect: str = "NoExecute", added: str = "2025-12-31T23:59:00Z") -> dict[str, Any]:
    taint = {"key": "example.com/sick", "value": "ecc", "effect": effect, "timeAdded": added}
    rule = {"deviceSelector": {"driver": DRIVER, "device": "gpu-2"}, "taint": taint}
    return manifest("DeviceTaintRule", "ecc", api_version="resource.k8s.io/v1beta2", spec=rule)


TOLERATIONS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "none": ([], "now"),
    "for ever": ([{"key": "example.com/sick", "operator": "Exists", "effect": "NoExecute"}], ""),
    "for a while": (
        [{"key": "example.com/sick", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        "at 2026-01-01T00:04:00Z (in 240 s), when its toleration ends",
    ),
    "without the effect": ([{"operator": "Exists"}], "now; its toleration does not name the effect NoExecute"),
    "of another key": ([{"key": "example.com/sik", "operator": "Exists", "effect": "NoExecute"}], "now"),
}


@pytest.mark.parametrize("name", TOLERATIONS)
def test_a_running_pod_on_a_tainted_device_is_evicted_when(name: str) -> None:
    tolerations, words = TOLERATIONS[name]
    snapshot = snapshot_of(*WORLD, tainted(), given("c", 2, tolerations=tolerations), bound("p", "c", phase="Running"))
    reasons = stuck(snapshot, snapshot.pods["default", "p"], (), NOW)
    sentences = [sentence(reason) for reason in reasons]
    if not words:
        assert sentences == []
        return
    (said,) = sentences
    assert said.startswith(f"device {DRIVER}/a/gpu-2 of claim c is tainted example.com/sick=ecc:NoExecute by ")
    assert "DeviceTaintRule ecc" in said
    assert f"the pod is evicted {words}" in said


def test_taints_that_only_keep_new_pods_away_evict_nobody() -> None:
    snapshot = snapshot_of(*WORLD, tainted("NoSchedule"), given("c", 2), bound("p", "c", phase="Running"))
    assert stuck(snapshot, snapshot.pods["default", "p"], (), NOW) == ()


def test_a_running_pod_on_a_lost_node_and_one_that_ends_behind_a_missing_driver() -> None:
    lost = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
    snapshot = snapshot_of(
        manifest("Node", "a", status=lost), gpus("a", 3), given("c", 1), bound("p", "c", phase="Running")
    )
    (reason,) = stuck(snapshot, snapshot.pods["default", "p"], (), NOW)
    assert "node a is not ready" in sentence(reason)
    meta = {"deletionTimestamp": "2025-12-31T23:50:00Z"}
    ending = pod("p", "c", nodeName="a", status={"phase": "Running"}, metadata=meta)
    snapshot = snapshot_of(node("a"), given("c", 1), ending)
    (reason,) = stuck(snapshot, snapshot.pods["default", "p"], (), NOW)
    assert sentence(reason) == f"no ResourceSlice of driver {DRIVER} for a"
