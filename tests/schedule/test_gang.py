"""A gang is placed with as many pods as it wants or not at all; devices of earlier pods may be chosen again."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from dragoman.schedule.gang import place_gang
from dragoman.schedule.refusal import PodGroupDoesNotFit, PodGroupNotFound, PodGroupTooSmall
from dragoman.schedule.single import PodOutcome
from dragoman.schedule.units import SchedulingContext, SchedulingUnit
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import claim, device, device_class, gpus, manifest, node, pod, pool, request, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = device_class()
GROUP = manifest("PodGroup", "g", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})


def member(name: str, *claims: str, **spec: Any) -> dict[str, Any]:
    return pod(name, *claims, schedulingGroup={"podGroupName": "g"}, **spec)


def placed(snapshot: Snapshot, wanted: int, *names: str) -> list[PodOutcome]:
    numbers = count()
    context = SchedulingContext(new_id=lambda: f"{next(numbers):08d}")
    unit = SchedulingUnit(("PodGroup", "default", "g"), tuple(("default", name) for name in names), wanted)
    return place_gang(snapshot, unit, NOW, context)


def nodes(outcomes: list[PodOutcome]) -> list[str | None]:
    return [one.placement.node if one.placement is not None else None for one in outcomes]


def reasons(outcomes: list[PodOutcome]) -> list[Any]:
    return [one.refused.reasons[0] if one.refused is not None else None for one in outcomes]


def gang(devices: int, *pods: str, group: bool = True) -> Snapshot:
    made = [thing for name in pods for thing in (claim(f"c-{name}"), member(name, f"c-{name}"))]
    return snapshot_of(node("a"), gpus("a", devices), GPU, *made, *([GROUP] if group else []))


def test_every_pod_sees_what_the_ones_before_it_took() -> None:
    outcomes = placed(gang(2, "p", "q"), 2, "p", "q")
    assert nodes(outcomes) == ["a", "a"]
    devices = [r.device for o in outcomes if o.placement for _, a in o.placement.allocations for r in a.devices.results]
    assert devices == ["gpu-0", "gpu-1"]


def test_one_too_few_refuses_all_with_the_first_that_does_not_fit() -> None:
    outcomes = placed(gang(2, "p", "q", "r"), 3, "p", "q", "r")
    assert nodes(outcomes) == [None] * 3
    assert set(reasons(outcomes)) == {PodGroupDoesNotFit("g", 2, 3, "r")}
    assert not any(one.writes for one in outcomes)
    assert all(one.topics for one in outcomes), "what may help any of them helps all"


def test_more_pods_than_wanted_may_be_left_over() -> None:
    outcomes = placed(gang(2, "p", "q", "r"), 2, "p", "q", "r")
    assert nodes(outcomes) == ["a", "a", None]
    assert outcomes[2].refused is not None


def test_a_gang_waits_for_its_group_and_for_enough_pods_that_are_ready() -> None:
    assert reasons(placed(gang(2, "p", group=False), 1, "p")) == [PodGroupNotFound("g")]
    assert reasons(placed(gang(2, "p"), 2, "p")) == [PodGroupTooSmall("g", 1, 2)]
    gated = snapshot_of(node("a"), GROUP, member("p"), member("q", schedulingGates=[{"name": "x/y"}]))
    assert reasons(placed(gated, 2, "p", "q")) == [PodGroupTooSmall("g", 1, 2)] * 2


def test_devices_of_an_earlier_pod_are_chosen_again_but_not_its_node() -> None:
    """The first pod takes the first device, which is the only one that serves the second."""
    devices = [device("big", size=2), device("small", size=1)]
    large = request(select="device.attributes['gpu.example.com'].size == 2")
    objects = [node("a"), pool("a", devices, node="a"), GPU, GROUP]
    snapshot = snapshot_of(*objects, claim("any"), claim("large", large), member("p", "any"), member("q", "large"))
    outcomes = placed(snapshot, 2, "p", "q")
    assert nodes(outcomes) == ["a", "a"]
    chosen = {
        key[1]: allocation.devices.results[0].device
        for one in outcomes
        if one.placement is not None
        for key, allocation in one.placement.allocations
    }
    assert chosen == {"any": "small", "large": "big"}


def test_a_claim_that_two_pods_share_is_allocated_once() -> None:
    snapshot = snapshot_of(node("a"), gpus("a", 1), GPU, GROUP, claim("c"), member("p", "c"), member("q", "c"))
    first, second = placed(snapshot, 2, "p", "q")
    assert first.placement is not None
    assert second.placement is not None
    assert (len(first.placement.allocations), len(second.placement.allocations)) == (1, 0)
