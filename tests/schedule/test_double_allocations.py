"""Two claims on one device: the newer one gives way, unless somebody would lose running work."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.effects import Patch
from dragoman.schedule.double_allocations import double_allocations
from dragoman.snapshot.change import Put, Snapshot
from dragoman.testing.build import claim, node, pod, snapshot_of

RUNS = {"phase": "Running"}


def holding(name: str, when: str, *, device: str = "x", share: str = "", admin: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"request": "gpu", "driver": "d", "pool": "p", "device": device}
    if share:
        result["shareID"] = share
    if admin:
        result["adminAccess"] = True
    return claim(name, status={"allocation": {"devices": {"results": [result]}, "allocationTimestamp": when}})


OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"
CASES: dict[str, tuple[list[dict[str, Any]], str | None, list[type]]] = {
    "the newer one is released": ([pod("a", "old"), pod("b", "new")], "new", [Patch]),
    "a bound pod that has not started stays and waits": (
        [pod("a", "old"), pod("b", "new", nodeName="n")],
        "new",
        [Patch],
    ),
    "running work is never taken": (
        [pod("a", "old", nodeName="n", status=RUNS), pod("b", "new", nodeName="n", status=RUNS)],
        None,
        [],
    ),
    "the pod of another scheduler is not ours to decide": (
        [pod("a", "old"), pod("b", "new", schedulerName="x")],
        None,
        [],
    ),
    "a claim without pods is somebody else's": ([pod("a", "old")], None, []),
}


def reported(snapshot: Snapshot) -> list[Any]:
    changes = [Put("ResourceClaim", value) for _, value in sorted(snapshot.claims.items())]
    return double_allocations(snapshot, changes, ("default-scheduler",))


@pytest.mark.parametrize("name", CASES)
def test_who_gives_way(name: str) -> None:
    pods, loser, effects = CASES[name]
    snapshot = snapshot_of(node("n"), holding("old", OLD), holding("new", NEW), *pods)
    (double_allocation,) = reported(snapshot)
    assert str(double_allocation.device) == "d/p/x"
    assert double_allocation.loser == (("default", loser) if loser else None)
    assert [type(effect) for effect in double_allocation.effects] == effects
    assert double_allocation.pods == ((("default", "b"),) if "stays" in name else ())


def test_what_may_stand_beside_each_other_is_no_double() -> None:
    pods = [pod("a", "old"), pod("b", "new")]
    assert reported(snapshot_of(holding("old", OLD, share="1"), holding("new", NEW, share="2"), *pods)) == []
    assert reported(snapshot_of(holding("old", OLD), holding("new", NEW, admin=True), *pods)) == []
    assert reported(snapshot_of(holding("old", OLD), holding("new", NEW, device="y"), *pods)) == []
    (double_allocation,) = reported(snapshot_of(holding("old", OLD), holding("new", NEW, share="2"), *pods))
    assert double_allocation.loser == ("default", "new")
