"""The contradiction: irreducible, with what counting tells beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dragoman.allocate.allocator import AllocatorOptions, Ask, allocate, diagnose
from dragoman.allocate.refusal import Refusals
from dragoman.explain.conflict import Conflict, conflict_on
from dragoman.explain.conflict_messages import conflict_json, conflict_text, ranges
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import DRIVER, claim, device, device_class, gpus, manifest, node, pool, request, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NIC = "nic.example.com"


def conflict(snapshot: Snapshot, name: str = "c", *, over: bool = False) -> Conflict | None:
    claims = (snapshot.claims["default", name],)
    facts = diagnose(snapshot, Ask(claims, "a"))
    return conflict_on(snapshot, claims, "a", AllocatorOptions(), facts, lambda: over)


def found(*objects: dict[str, Any]) -> Conflict:
    answer = conflict(snapshot_of(node("a"), device_class(), *objects))
    assert answer is not None
    return answer


def elements(reported: Conflict) -> tuple[list[str], list[int]]:
    return [part.request for part in reported.parts], [constraint.index for constraint in reported.constraints]


def test_what_fits_has_no_contradiction() -> None:
    assert conflict(snapshot_of(node("a"), device_class(), gpus("a", 2), claim("c"))) is None


def test_requests_that_have_nothing_to_do_with_it_are_left_out() -> None:
    other = device_class("other.example.com", driver="other.example.com")
    wanted = claim("c", request("many", count=3), request("some", device_class="other.example.com"))
    reported = found(gpus("a", 2), gpus("a", 4, driver="other.example.com"), other, wanted)
    assert elements(reported) == (["many"], [])
    assert reported.minimal
    assert [(part.requested, part.matching, part.available) for part in reported.parts] == [(3, 2, 2)]


def test_a_constraint_stays_where_it_is_needed() -> None:
    constraints = [{"matchAttribute": f"{DRIVER}/index"}, {"matchAttribute": f"{DRIVER}/model"}]
    reported = found(gpus("a", 4, model="A"), claim("c", request("r", count=2), request("s"), constraints=constraints))
    assert elements(reported)[1] == [0]
    assert reported.minimal


@pytest.mark.parametrize("leave_out", ["request", "constraint"])
def test_every_element_is_needed(leave_out: str) -> None:
    """Leaving out any one makes it possible."""
    constraints = [{"matchAttribute": f"{DRIVER}/index", "requests": ["x", "y"]}]
    names = [request(name) for name in ("x", "y", "z")]
    snapshot = snapshot_of(node("a"), device_class(), gpus("a", 4), claim("c", *names, constraints=constraints))
    reported = conflict(snapshot)
    assert reported is not None
    requests, indexes = elements(reported)
    assert (requests, indexes) == (["x", "y"], [0])
    spec = snapshot.claims["default", "c"].spec
    for out in requests if leave_out == "request" else [""]:
        kept = tuple(r for r in spec.devices.requests if r.name in requests and r.name != out)
        made = [msgspec.structs.replace(c, requests=tuple(r.name for r in kept)) for c in spec.devices.constraints]
        devices = msgspec.structs.replace(spec.devices, requests=kept, constraints=tuple(made) if out else ())
        less = msgspec.structs.replace(
            snapshot.claims["default", "c"], spec=msgspec.structs.replace(spec, devices=devices)
        )
        assert not isinstance(allocate(snapshot, [Ask((less,), "a")], share_id=lambda: ""), Refusals)


def test_without_time_it_says_that_there_may_be_less() -> None:
    snapshot = snapshot_of(node("a"), device_class(), gpus("a", 2), claim("c", request("r", count=3), request("s")))
    reported = conflict(snapshot, over=True)
    assert reported is not None
    assert not reported.minimal
    assert reported.tried == 1


def test_pairs_are_counted_by_value() -> None:
    root = f"{DRIVER}/root"
    cards = [device(f"g{i}", root=f"pci{i // 2}") for i in range(4)]
    nics = [{"name": f"n{i}", "attributes": {root: {"string": f"pci{i}"}}} for i in range(2)]
    names = [(f"g{i}", f"n{i}") for i in range(3)]
    requests = [r for g, n in names for r in (request(g), request(n, device_class="nic"))]
    constraints = [{"matchAttribute": root, "requests": list(pair)} for pair in names]
    reported = found(
        pool("a", cards, node="a"),
        pool("a", nics, node="a", driver=NIC),
        device_class("nic", driver=NIC),
        claim("c", *requests, constraints=constraints),
    )
    (sets,) = reported.sets
    assert (sets.attribute, sets.requested, sets.available) == (root, 3, 2)
    assert [(v.value, v.devices, v.sets) for v in sets.values] == [
        ("pci0", ((DRIVER, 2), ("nic", 1)), 1),
        ("pci1", ((DRIVER, 2), ("nic", 1)), 1),
    ]
    assert "3 gpu.example.com+nic pairs wanted, 2 devices of class nic on a; at most 2 pairs" in conflict_text(reported)


def partitions(*drawn: tuple[str, list[str]], slots: int = 4) -> list[dict[str, Any]]:
    body = {"driver": DRIVER, "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 2}}
    card = {"name": "card", "counters": {f"slot-{i}": {"value": "1"} for i in range(slots)}}
    devices = [
        {**device(name), "consumesCounters": [{"counterSet": "card", "counters": {s: {"value": "1"} for s in names}}]}
        for name, names in drawn
    ]
    return [
        manifest("ResourceSlice", "counters", spec={**body, "sharedCounters": [card]}),
        manifest("ResourceSlice", "devices", spec={**body, "devices": devices}),
    ]


def held(name: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": name}
    return claim(f"held-{name}", status={"allocation": {"devices": {"results": [result]}}})


def test_slots_that_are_free_but_not_together_are_fragmented() -> None:
    pool_ = partitions(
        ("low", ["slot-0", "slot-1"]), ("high", ["slot-2", "slot-3"]), ("x", ["slot-1"]), ("y", ["slot-2"])
    )
    reported = found(*pool_, held("x"), held("y"), claim("c"))
    (fragment,) = reported.fragments
    assert fragment.needs == (("slot-0", "slot-1"), ("slot-2", "slot-3"))
    assert (fragment.free_slots, fragment.slots, fragment.fragmented) == (("slot-0", "slot-3"), 4, True)
    assert [str(user.device) for user in fragment.users] == [f"{DRIVER}/a/x", f"{DRIVER}/a/y"]
    assert "needs slot 0-1 or 2-3 of card together; free are 0, 3 (2 of 4): fragmented, not full" in conflict_text(
        reported
    )


def test_slots_that_are_used_up_are_not_fragmented() -> None:
    pool_ = partitions(
        ("low", ["slot-0", "slot-1"]), ("high", ["slot-2", "slot-3"]), ("x", ["slot-1", "slot-2", "slot-3"])
    )
    reported = found(*pool_, held("x"), claim("c"))
    assert [fragment.fragmented for fragment in reported.fragments] == [False]
    assert "used up" in conflict_text(reported)


def test_an_attribute_that_a_driver_does_not_publish_is_named_with_what_it_does() -> None:
    nics = [{"name": "n0", "attributes": {"rootBus": {"string": "x"}, "speed": {"int": 1}}}]
    constraints = [{"matchAttribute": f"{DRIVER}/root"}]
    reported = found(
        pool("a", [device("g0", root="x")], node="a"),
        pool("a", nics, node="a", driver=NIC),
        device_class("nic", driver=NIC),
        claim("c", request("g"), request("n", device_class="nic"), constraints=constraints),
    )
    (entry,) = reported.unpublished
    assert (entry.request, entry.drivers, entry.matching, entry.publishing) == ("n", (NIC,), 1, 0)
    assert entry.near == (f"{NIC}/rootBus",)
    assert entry.others == ((DRIVER, 1),)


def test_the_nearest_miss_is_the_device_that_fails_latest() -> None:
    tainted = {**device("tainted", model="A"), "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    devices = [device("other", model="B"), device("held", model="A"), tainted]
    wanted = claim("c", select=f"device.attributes['{DRIVER}'].model == 'A'")
    reported = found(pool("a", devices, node="a"), held("held"), wanted)
    assert reported.nearest is not None
    assert reported.nearest.device.device == "tainted"
    assert type(reported.nearest.reason).__name__ == "DeviceTainted"
    assert conflict_json(reported)["nearest"]["reason"]["code"] == "DeviceTainted"


RANGES = {"0-3": [0, 1, 2, 3], "0, 2-3": [0, 2, 3], "5": [5]}


@pytest.mark.parametrize("text", RANGES)
def test_numbers_as_ranges(text: str) -> None:
    assert ranges([f"m{i}" for i in RANGES[text]], "m") == text
