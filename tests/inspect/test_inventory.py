"""Counts of devices: every device in one state, by any term; what still fits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.inspect.inventory import TERMS, Inventory, devices_on, inventory
from dragoman.testing.build import DRIVER, claim, device, device_class, gpus, manifest, node, pool, snapshot_of

NOW = datetime(2026, 1, 10, tzinfo=UTC)
STATES = ("held", "shared", "free", "tainted", "blocked", "unusable")


def held(
    name: str, on: str, *devices: str, since: str | None = None, namespace: str = "", **result: Any
) -> dict[str, Any]:
    results = [{"request": "gpu", "driver": DRIVER, "pool": on, "device": d, **result} for d in devices]
    allocation: dict[str, Any] = {"devices": {"results": results}}
    if since:
        allocation["allocationTimestamp"] = since
    return claim(name, namespace=namespace, status={"allocation": allocation})


def found(*objects: dict[str, Any], by: str = "class") -> Inventory:
    return inventory(snapshot_of(*objects), tuple(by.split(",")), NOW)


def states(reported: Inventory) -> dict[str, int]:
    counts = reported.total.counts
    return {state: getattr(counts, state) for state in STATES if getattr(counts, state)}


def rule(name: str, **selector: str) -> dict[str, Any]:
    taint = {"key": "drain", "effect": "NoExecute"}
    return manifest("DeviceTaintRule", name, spec={"deviceSelector": selector, "taint": taint})


def draws(name: str, *slots: int, **attributes: Any) -> dict[str, Any]:
    counters = {f"m{i}": {"value": "1"} for i in slots}
    return {**device(name, **attributes), "consumesCounters": [{"counterSet": "card", "counters": counters}]}


def card(*devices: dict[str, Any], slots: int = 4) -> list[dict[str, Any]]:
    body = {"driver": DRIVER, "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 2}}
    counters = [{"name": "card", "counters": {f"m{i}": {"value": "1"} for i in range(slots)}}]
    return [
        manifest("ResourceSlice", "counters", spec={**body, "sharedCounters": counters}),
        manifest("ResourceSlice", "devices", spec={**body, "devices": list(devices)}),
    ]


BASE = [node("a"), device_class()]
TAINTED = {**device("gpu-0"), "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
SITUATIONS: dict[str, tuple[list[dict[str, Any]], dict[str, int]]] = {
    "held and free": ([gpus("a", 4), held("c", "a", "gpu-0", "gpu-1")], {"held": 2, "free": 2}),
    "admin access holds nothing": ([gpus("a", 2), held("c", "a", "gpu-0", adminAccess=True)], {"free": 2}),
    "a published taint": ([pool("a", [TAINTED, device("gpu-1")], node="a")], {"tainted": 1, "free": 1}),
    "a rule's taint": ([gpus("a", 2), rule("r", device="gpu-1")], {"tainted": 1, "free": 1}),
    "held stays held when tainted": ([gpus("a", 1), rule("r", pool="a"), held("c", "a", "gpu-0")], {"held": 1}),
    "an incomplete pool": (
        [pool("a", [device("gpu-0")], node="a", pool={"name": "a", "generation": 1, "resourceSliceCount": 2})],
        {"unusable": 1},
    ),
    "a device that is defined twice": ([pool("a", [device("g"), device("g")], node="a")], {"unusable": 2}),
    "a node that does not exist": ([gpus("gone", 2)], {"unusable": 2}),
    "shares": (
        [pool("a", [{"name": "g", "allowMultipleAllocations": True}], node="a"), held("c", "a", "g", shareID="s")],
        {"shared": 1},
    ),
    "a partition that others' use blocks": (
        [*card(draws("half", 0, 1), draws("quarter", 0)), held("c", "a", "quarter")],
        {"held": 1, "blocked": 1},
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_states(name: str) -> None:
    objects, expected = SITUATIONS[name]
    reported = found(*BASE, *objects)
    assert states(reported) == expected
    assert reported.total.counts.total == sum(expected.values())


def test_held_devices_with_a_taint_are_counted_beside() -> None:
    reported = found(*BASE, gpus("a", 2), rule("r", pool="a"), held("c", "a", "gpu-0"))
    assert reported.total.counts.held_tainted == 1


BY: dict[str, dict[tuple[str, ...], tuple[int, int]]] = {
    "class": {(DRIVER,): (3, 2)},
    "driver": {(DRIVER,): (3, 2)},
    "node": {("a",): (2, 1), ("b",): (1, 1)},
    "pool": {(f"{DRIVER}/a",): (2, 1), (f"{DRIVER}/b",): (1, 1)},
    "namespace": {("<none>",): (1, 0), ("ml",): (1, 1), ("web",): (1, 1)},
    "claim": {("<none>",): (1, 0), ("ml/one",): (1, 1), ("web/two",): (1, 1)},
    "age": {("<none>",): (1, 0), ("7 days and more",): (1, 1), ("under 1 h",): (1, 1)},
    "model": {("A",): (2, 1), ("B",): (1, 1)},
    f"{DRIVER}/model": {("A",): (2, 1), ("B",): (1, 1)},
    "node,namespace": {("a", "<none>"): (1, 0), ("a", "ml"): (1, 1), ("b", "web"): (1, 1)},
}


@pytest.mark.parametrize("by", BY)
def test_rows_by_any_term(by: str) -> None:
    objects = [*BASE, node("b"), gpus("a", 2, model="A"), gpus("b", 1, model="B")]
    objects += [
        held("one", "a", "gpu-0", namespace="ml", since="2026-01-01T00:00:00Z"),
        held("two", "b", "gpu-0", namespace="web", since="2026-01-09T23:30:00Z"),
    ]
    reported = found(*objects, by=by)
    assert {row.terms: (row.counts.total, row.counts.held) for row in reported.rows} == BY[by]


def test_a_device_stands_in_each_class_it_is_in() -> None:
    every = device_class("every", selectors=[])
    reported = found(*BASE, every, gpus("a", 2))
    assert {row.terms[0]: row.counts.total for row in reported.rows} == {DRIVER: 2, "every": 2}
    assert reported.total.counts.total == 2
    assert [row.terms for row in found(node("a"), gpus("a", 1)).rows] == [("(no class)",)]


def test_classes_that_read_what_sets_devices_apart() -> None:
    uuid = f"device.attributes['{DRIVER}'].uuid == 'GPU-00000000000000002'"
    one = device_class("one", selectors=[{"cel": {"expression": uuid}}])
    devices = [device(f"gpu-{i}", uuid=f"GPU-{i:017d}") for i in range(4)]
    reported = found(node("a"), one, pool("a", devices, node="a"))
    assert {row.terms[0]: row.counts.total for row in reported.rows} == {"(no class)": 3, "one": 1}


def test_what_still_fits_counts_the_counters() -> None:
    halves = [draws("h0", 0, 1, profile="half"), draws("h1", 1, 2, profile="half"), draws("h2", 2, 3, profile="half")]
    quarters = [draws(f"q{i}", i, profile="quarter") for i in range(4)]
    empty = found(*BASE, *card(*halves, *quarters))
    assert empty.total.fits == {"half": 2, "quarter": 4}
    assert empty.total.counts.free == 7
    used = found(*BASE, *card(*halves, *quarters), held("c", "a", "q1"))
    assert used.total.fits == {"half": 1, "quarter": 3}
    full = found(*BASE, *card(*halves, *quarters), held("c", "a", "q1", "q2"))
    assert full.total.fits == {"half": 0, "quarter": 2}


def test_the_partition_type_is_what_the_slice_says() -> None:
    devices = [{**draws("x", 0), "attributes": {"size": {"string": "one"}}}]
    slices = card(*devices)
    slices[1]["spec"]["partitionTypeAttribute"] = f"{DRIVER}/size"
    assert found(*BASE, *slices).total.fits == {"one": 1}


def test_trouble_is_named() -> None:
    reported = found(*BASE, gpus("a", 1), held("c", "a", "gpu-0"), held("d", "a", "gpu-0"))
    (trouble,) = reported.troubles
    assert (trouble.what, trouble.pool, trouble.detail) == ("allocated twice", "a", "default/c, default/d")
    old = pool("a", [device("old")], node="a", pool={"name": "a", "generation": 0, "resourceSliceCount": 1})
    old["metadata"]["name"] = "old"
    assert [t.what for t in found(*BASE, gpus("a", 1), old).troubles] == ["obsolete"]


def test_one_node_alone() -> None:
    snapshot = snapshot_of(*BASE, node("b"), gpus("a", 2), gpus("b", 3), held("c", "a", "gpu-0"))
    assert states(devices_on(snapshot, "a", NOW)) == {"held": 1, "free": 1}


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from("AB")), min_size=1, max_size=5),
    st.sampled_from([*TERMS, "model"]),
)
def test_rows_add_up_and_equal_layouts_change_nothing(nodes: list[tuple[int, int, str]], by: str) -> None:
    objects = [device_class()]
    expected = 0
    for index, (number, taken, model) in enumerate(nodes):
        name = f"n{index}"
        objects += [node(name), gpus(name, number, model=model)]
        for i in range(min(taken, number)):
            objects.append(held(f"{name}-{i}", name, f"gpu-{i}"))
            expected += 1
    reported = found(*objects, by=by)
    assert reported.total.counts.held == expected
    assert sum(row.counts.total for row in reported.rows) == sum(number for number, _, _ in nodes)
    assert sum(row.counts.held for row in reported.rows) == expected


OFF: dict[str, tuple[dict[str, Any], str]] = {
    "not ready": ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "node not ready"),
    "cordoned": ({"spec": {"unschedulable": True}}, "node cordoned"),
    "tainted": (
        {"spec": {"taints": [{"key": "b.io/x", "effect": "NoExecute"}, {"key": "a.io/y", "effect": "NoSchedule"}]}},
        "node tainted a.io/y, b.io/x",
    ),
    "tainted in vain": ({"spec": {"taints": [{"key": "b.io/x", "effect": "PreferNoSchedule"}]}}, ""),
}


@pytest.mark.parametrize("name", OFF)
def test_free_devices_of_nodes_that_take_no_pods_are_unavailable(name: str) -> None:
    fields, why = OFF[name]
    snapshot = snapshot_of(node("ok"), gpus("ok", 2), manifest("Node", "off", **fields), gpus("off", 3))
    found = inventory(snapshot, ("driver",), NOW)
    assert (found.total.counts.free, found.total.counts.unavailable) == ((2, 3) if why else (5, 0))
    assert found.unavailable == ({why: 3} if why else {})
