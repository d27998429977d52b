"""Devices that are held and that no slice shows: counted, warned of, refused if asked to; and cards that were changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.allocate.allocator import Allocation, AllocatorOptions, Ask, allocate
from dragoman.allocate.refusal import Refusals, UnpublishedOverlap
from dragoman.cli.main import main
from dragoman.snapshot.change import Gone, Put, Snapshot, apply
from dragoman.snapshot.unpublished import overlaps, related, replaced_of, unpublished_of
from dragoman.snapshot.usage import DeviceId
from dragoman.testing.build import claim, device, device_class, node, pod, pool, request, snapshot_of
from tests.reports.situations import KILN, counters, held, kiln, kiln_class, kilns, of_pool

SHELVES = {"shelves": "6"}


def ovens(*devices: dict[str, Any], **spec: Any) -> list[dict[str, Any]]:
    return [
        node("shed-1"),
        kiln_class(),
        counters("shed-1", 2, oven_0=SHELVES, oven_1=SHELVES),
        of_pool(kilns("shed-1", *devices, **spec), 2),
    ]


def whole(number: int) -> dict[str, Any]:
    return kiln(f"oven-{number}", draws={f"oven-{number}": SHELVES})


def gone(snapshot: Snapshot) -> list[str]:
    return [one.id.device for one in unpublished_of(snapshot, KILN, "shed-1")]


def test_held_names_are_compared_with_the_newest_generation() -> None:
    old = kilns("shed-1", kiln("part-7"), pool={"name": "shed-1", "generation": 1, "resourceSliceCount": 1})
    new = kilns("shed-1", kiln("part-8"), pool={"name": "shed-1", "generation": 2, "resourceSliceCount": 1})
    new["metadata"]["name"] = "newer"
    claims = [held("a", "shed-1", "part-7"), held("b", "shed-1", "part-8")]
    assert gone(snapshot_of(old, *claims)) == ["part-8"]
    assert gone(snapshot_of(old, new, *claims)) == ["part-7"]
    assert gone(snapshot_of(*claims)) == ["part-7", "part-8"]


def test_the_index_follows_claims() -> None:
    made = snapshot_of(*ovens(whole(0)), held("a", "shed-1", "part-7"), held("b", "shed-1", "part-7", "part-9"))
    one = apply(made, Gone("ResourceClaim", "default", "a"))
    assert gone(one) == ["part-7", "part-9"]
    none = apply(one, Gone("ResourceClaim", "default", "b"))
    assert gone(none) == []
    assert not none.held_by_pool
    again = apply(none, Put("ResourceClaim", made.claims["default", "a"]))
    assert gone(again) == ["part-7"]


def test_an_older_slice_says_what_it_draws_on() -> None:
    old = kilns("shed-1", kiln("part-7", draws={"oven-1": {"shelves": "2"}}))
    current = {"name": "shed-1", "generation": 2, "resourceSliceCount": 2}
    new = kilns("shed-1", whole(0), whole(1), pool=current)
    new["metadata"]["name"] = "newer"
    sets = counters("shed-1", 2, oven_0=SHELVES, oven_1=SHELVES)
    sets["spec"]["pool"] = current
    snapshot = snapshot_of(old, new, sets, held("a", "shed-1", "part-7"))
    (one,) = unpublished_of(snapshot, KILN, "shed-1")
    assert one.sets == {"oven-1"}
    devices = snapshot.slices["newer"].spec.devices
    assert [overlaps(one, found) for found in devices] == [False, True]


def test_a_name_that_extends_another_is_a_part_of_it() -> None:
    assert related("oven-1", "oven-1-part-3")
    assert related("oven-1:part", "oven-1")
    assert not related("oven-1", "oven-10")
    assert not related("oven-1", "oven-1")
    snapshot = snapshot_of(*ovens(whole(0), whole(1)), held("a", "shed-1", "oven-1-part-3"))
    (one,) = unpublished_of(snapshot, KILN, "shed-1")
    assert one.sets == {"oven-1"}


def test_devices_without_counters_and_other_names_do_not_overlap() -> None:
    cards = [node("shed-1"), kiln_class(), kilns("shed-1", *(kiln(f"card-{i}") for i in range(3)))]
    snapshot = snapshot_of(*cards, held("a", "shed-1", "card-9"))
    (one,) = unpublished_of(snapshot, KILN, "shed-1")
    (found,) = snapshot.slices.values()
    assert not any(overlaps(one, card) for card in found.spec.devices)


def asked(snapshot: Snapshot, *, strict: bool = False, policy: str = "first-fit") -> Any:
    ask = Ask((snapshot.claims["default", "next"],), "shed-1")
    return allocate(snapshot, [ask], AllocatorOptions(strict=strict, policy=policy), share_id=str)


@pytest.mark.parametrize("policy", ["first-fit", "pack"])
def test_a_warning_by_default_and_a_refusal_if_strict(policy: str) -> None:
    snapshot = snapshot_of(
        *ovens(whole(0)), held("old", "shed-1", "part-7"), claim("next", request(device_class="kiln"))
    )
    given = asked(snapshot, policy=policy)
    assert isinstance(given, Allocation)
    (fact,) = given.warnings
    assert isinstance(fact, UnpublishedOverlap)
    assert (fact.device.device, fact.unpublished.device, fact.counter_sets) == ("oven-0", "part-7", ("oven-0",))
    assert [holder.claim for holder in fact.holders] == ["old"]
    assert isinstance(asked(snapshot, strict=True, policy=policy), Refusals)


def test_strict_gives_what_does_not_overlap() -> None:
    snapshot = snapshot_of(
        *ovens(whole(0), whole(1)), held("old", "shed-1", "oven-0-part-7"), claim("next", request(device_class="kiln"))
    )
    given = asked(snapshot, strict=True)
    assert isinstance(given, Allocation)
    assert [result.device for result in given.results[0][0].devices.results] == ["oven-1"]
    assert given.warnings == ()


def test_admin_access_is_not_refused() -> None:
    objects = [*ovens(whole(0)), held("old", "shed-1", "part-7")]
    snapshot = snapshot_of(*objects, claim("next", request(device_class="kiln", adminAccess=True)))
    given = asked(snapshot, strict=True)
    assert isinstance(given, Allocation)
    assert given.warnings == ()


def ran(tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]], *args: str) -> Any:
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    main([*args, "-f", str(file)])
    out = capsys.readouterr().out
    return json.loads(out) if "json" in args else out


def test_nodes_that_differ_in_nothing_else_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheds = []
    for number in (1, 2, 3):
        sheds += [node(f"shed-{number}"), kilns(f"shed-{number}", kiln("oven-0"))]
    objects = [*sheds, kiln_class(), held("old", "shed-1", "oven-0-part"), held("older", "shed-2", "oven-0-part")]
    objects += [claim("next", request(device_class="kiln")), pod("bowls", "next")]
    found = ran(tmp_path, capsys, objects, "simulate", "--strict", "-o", "json")
    assert found["pods"][0]["node"] == "shed-3"
    found = ran(tmp_path, capsys, objects, "simulate", "-o", "json")
    (warning,) = found["pods"][0]["warnings"]
    assert (found["pods"][0]["node"], warning["code"]) == ("shed-1", "UnpublishedOverlap")
    assert warning["holders"][0]["claim"] == "old"
    text = ran(tmp_path, capsys, objects, "simulate")
    assert "warning: pod default/bowls" in text
    assert "default/old" in text


def test_it_counts_as_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [*ovens(whole(0), whole(1)), held("old", "shed-1", "oven-1-part"), held("far", "shed-9", "oven-4")]
    found = ran(tmp_path, capsys, objects, "devices", "-o", "json", "--by", "node,class")
    rows = {row["node"]: row for row in found["rows"]}
    assert {k: (v["total"], v["held"], v["free"], v["blocked"], v["unpublished"]) for k, v in rows.items()} == {
        "shed-1": (3, 1, 1, 1, 1),
        "shed-9": (1, 1, 0, 0, 1),
    }
    assert {row["class"] for row in found["rows"]} == {"kiln"}
    assert found["pools"] == 1
    assert [p["message"] for p in found["problems"]] == ["oven-1-part by default/old", "oven-4 by default/far"]
    about = ran(tmp_path, capsys, objects, "explain", f"device/{KILN}/shed-1/oven-1", "-o", "json")
    assert about["devices"][0]["state"] == "blocked"
    assert about["devices"][0]["overlapping"] == [{"device": f"{KILN}/shed-1/oven-1-part", "claims": ["default/old"]}]
    about = ran(tmp_path, capsys, objects, "explain", "node/shed-1", "-o", "json")
    assert [(p["devices"], p["held"], p["unpublished"]) for p in about["nodes"][0]["pools"]] == [(2, 1, 1)]


@pytest.mark.parametrize("where", ["status", "older slice"])
def test_another_card_under_the_old_name(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = kilns("shed-1", kiln("oven-0", serial="s-77"))
    holder = held("old", "shed-1", "oven-0")
    objects = [node("shed-1"), kiln_class(), now, holder]
    if where == "status":
        about = {"driver": KILN, "pool": "shed-1", "device": "oven-0", "data": {"card": {"serial": "s-12"}}}
        holder["status"]["devices"] = [about]
    else:
        now["spec"]["pool"]["generation"] = 5
        before = kilns("shed-1", kiln("oven-0", serial="s-12"))
        before["metadata"]["name"] = "before"
        objects.append(before)
    snapshot = snapshot_of(*objects)
    (one,) = replaced_of(snapshot, snapshot.claims["default", "old"])
    assert one == (DeviceId(KILN, "shed-1", "oven-0"), "serial", "s-12", "s-77")
    for command in (["devices"], ["explain", "claim/old"], ["explain", f"device/{KILN}/shed-1/oven-0"], ["lint"]):
        text = ran(tmp_path, capsys, objects, *command)
        assert "s-12" in text, command
        assert "s-77" in text, command


def test_the_same_card_is_not_another_one() -> None:
    now = pool("n", [device("gpu-0", uuid="u-1", model="B")], node="n")
    holder = claim(
        "c",
        status={
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": now["spec"]["driver"], "pool": "n", "device": "gpu-0"}]
                }
            },
            "devices": [
                {"driver": now["spec"]["driver"], "pool": "n", "device": "gpu-0", "data": {"uuid": "u-1", "model": "A"}}
            ],
        },
    )
    snapshot = snapshot_of(node("n"), device_class(), now, holder)
    assert list(replaced_of(snapshot, snapshot.claims["default", "c"])) == []
