"""Placements of another scheduler decided again: the same, ties, other orders, other devices, refusals; and replays."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from dragoman.explain.comparison import AgreementCounts, as_json, difference, lines
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import DRIVER, claim, device_class, gpus, node, pod, snapshot_of
from dragoman.whatif.compare import DecisionComparison, compare, placement_seen
from dragoman.whatif.replay import bound_in_order, replay

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def context() -> SchedulingContext:
    numbers = count()
    return SchedulingContext(new_id=lambda: f"{next(numbers):08d}-0000-4000-8000-000000000000")


def held(name: str, where: str, device: str) -> dict[str, Any]:
    """A claim with that device, reserved for the pod of its name."""
    made = claim(name)
    result = {"request": "gpu", "driver": DRIVER, "pool": where, "device": device}
    made["metadata"]["uid"] = f"claim-{name}"
    made["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
    }
    return made


def bound(name: str, where: str, second: int = 0, **spec: Any) -> dict[str, Any]:
    """A pod that uses the claim of its name, bound at that second."""
    made = pod(name, name, nodeName=where, **spec)
    made["metadata"]["uid"] = f"uid-{name}"
    when = f"2026-01-01T11:00:{second:02}Z"
    made["status"] = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": when}]}
    return made


def world(*more: dict[str, Any]) -> Snapshot:
    nodes = [node(name, labels={"name": name}, cpu="10", memory="10Gi") for name in ("n1", "n2")]
    return snapshot_of(device_class(), *nodes, gpus("n1", 4), gpus("n2", 4), *more)


def compared(snapshot: Snapshot, name: str, later: tuple[str, ...] = ()) -> DecisionComparison:
    found = [placement_seen(snapshot, snapshot.pods["default", one]) for one in (name, *later)]
    seen, *others = [one for one in found if one is not None]
    return compare(snapshot, seen, others, (), context(), NOW)


def test_the_same_decision() -> None:
    found = compared(world(bound("p", "n1"), held("p", "n1", "gpu-0")), "p")
    assert (found.outcome, found.our_node, found.claims[0].same) == ("same", "n1", True)


def test_another_node_of_the_same_score_is_a_tie() -> None:
    found = compared(world(bound("p", "n2"), held("p", "n2", "gpu-0")), "p")
    assert (found.outcome, found.node, found.our_node, found.claims[0].same) == ("tie", "n2", "n1", True)


def test_a_node_that_scores_lower_here_is_a_difference_with_both_scores() -> None:
    busy = pod("busy", nodeName="n2", cpu="5")
    found = compared(world(busy, bound("p", "n2", cpu="1"), held("p", "n2", "gpu-0")), "p")
    assert found.outcome == "score"
    assert found.scores[0] < found.scores[1]
    assert "scores" in difference(found)


def test_other_devices_are_named_claim_by_claim() -> None:
    found = compared(world(bound("p", "n1"), held("p", "n1", "gpu-3")), "p")
    assert found.outcome == "devices"
    assert difference(found) == f"claim p got {DRIVER}/n1/gpu-3; here, on n1 too, {DRIVER}/n1/gpu-0"


def test_a_node_that_is_refused_here_comes_with_the_reason() -> None:
    found = compared(world(bound("p", "n1", nodeSelector={"zone": "b"}), held("p", "n1", "gpu-0")), "p")
    assert found.outcome == "refused"
    assert "didn't match Pod's node affinity/selector" in difference(found)


def test_another_order_of_pods_explains_a_difference() -> None:
    only = {"nodeSelector": {"name": "n1"}}
    objects = (bound("a", "n1", **only), held("a", "n1", "gpu-1"), bound("b", "n1", **only), held("b", "n1", "gpu-0"))
    found = compared(world(*objects), "a", later=("b",))
    assert (found.outcome, found.moved) == ("order", (("default", "b"),))


def test_a_shared_claim_is_allocated_by_its_first_user_alone() -> None:
    shared = held("a", "n1", "gpu-0")
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "b", "uid": "uid-b"})
    second = bound("b", "n1")
    second["spec"]["resourceClaims"][0]["resourceClaimName"] = "a"
    snapshot = world(bound("a", "n1"), second, shared)
    seen = [placement_seen(snapshot, snapshot.pods["default", name]) for name in ("a", "b")]
    assert [len(one.allocations) for one in seen if one is not None] == [1, 0]
    assert compared(snapshot, "b").claims == ()


def test_a_replay_follows_the_bindings_and_counts_what_it_leaves_out() -> None:
    pods = [bound(f"p{n}", "n1" if n % 2 else "n2", n, cpu="1") for n in range(6)]
    claims = [held(f"p{n}", "n1" if n % 2 else "n2", f"gpu-{n // 2}") for n in range(6)]
    ended = bound("ended", "n1")
    ended["status"]["phase"] = "Succeeded"
    snapshot = world(*pods, *claims, ended, pod("pinned", nodeName="n1"))
    order, skipped = bound_in_order(snapshot, [])
    assert [one.metadata.name for one in order] == [f"p{n}" for n in range(6)]
    assert sum(skipped.values()) == 2
    tally = AgreementCounts()
    for found in replay(snapshot, order, context(), NOW):
        tally.add(found, 0.001)
    assert (tally.total, tally.agreeing, tally.claims_same) == (6, 6, 6)
    assert "6 placements compared: 6 (100.0 %) agree" in list(lines(as_json(tally)))


def test_the_event_tells_the_order_more_exactly_than_the_condition() -> None:
    snapshot = world(bound("a", "n1"), held("a", "n1", "gpu-0"), bound("b", "n1"), held("b", "n1", "gpu-1"))
    events = [
        {"reason": "Scheduled", "regarding": {"uid": f"uid-{name}"}, "eventTime": f"2026-01-01T11:00:00.{part}Z"}
        for name, part in (("a", "000200"), ("b", "000100"))
    ]
    assert [one.metadata.name for one in bound_in_order(snapshot, events)[0]] == ["b", "a"]
