"""A decision made on an older picture: written only if everything it rests on still holds."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.schedule.revalidate import still_holds
from dragoman.snapshot.change import Change, Gone, Put, apply_all
from dragoman.testing.build import claim, device_class, gpus, node, pod, snapshot_of, typed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORLD = [node("a", cpu="4", pods="9"), gpus("a", 2), device_class(), claim("c"), pod("p", "c", cpu="2")]
ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}]}}


def put(made: dict[str, Any]) -> Change:
    return Put(made["kind"], typed(made))


CASES: dict[str, tuple[Change, bool]] = {
    "something that does not matter": (put(pod("other")), True),
    "another claim takes another device": (
        put(
            claim(
                "d",
                status={
                    "allocation": {
                        "devices": {
                            "results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-1"}]
                        }
                    }
                },
            )
        ),
        True,
    ),
    "another claim takes the device": (put(claim("d", status={"allocation": ALLOCATION})), False),
    "the device is gone": (put(gpus("a", 0)), False),
    "the node is gone": (Gone("Node", "", "a"), False),
    "the node is cordoned": (put(node("a", cpu="4", pods="9", unschedulable=True)), False),
    "the room is used": (put(pod("other", cpu="3", nodeName="a")), False),
    "the pod is gone": (Gone("Pod", "default", "p"), False),
    "the pod is another one": (put(pod("p", "c", cpu="2", metadata={"uid": "new"})), False),
    "the pod is bound": (put(pod("p", "c", cpu="2", nodeName="a")), False),
    "the claim is gone": (Gone("ResourceClaim", "default", "c"), False),
    "the claim is allocated meanwhile": (put(claim("c", status={"allocation": ALLOCATION})), False),
}


@pytest.mark.parametrize("name", CASES)
def test_holds(name: str) -> None:
    change, holds = CASES[name]
    numbers = count()
    context = SchedulingContext(new_id=lambda: f"{next(numbers):08d}")
    snapshot = snapshot_of(*WORLD)
    decision = decide(snapshot, unit_of(snapshot, snapshot.pods["default", "p"], context.gates), NOW, context)
    assert decision.placements
    assert still_holds(snapshot, decision, context)
    assert still_holds(apply_all(snapshot, [change]), decision, context) is holds


def test_what_is_not_placed_always_holds() -> None:
    snapshot = snapshot_of(node("a"), device_class(), claim("c"), pod("p", "c"))
    context = SchedulingContext(new_id=lambda: "x")
    decision = decide(snapshot, unit_of(snapshot, snapshot.pods["default", "p"], context.gates), NOW, context)
    assert still_holds(apply_all(snapshot, [put(node("b"))]), decision, context)
