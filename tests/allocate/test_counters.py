"""What held devices leave of a pool's counters, and who may join the consumers of a set."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.counters import BARE, Book, admits, book_of, joined
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.pools import pools_for
from dragoman.values.quantity import Quantity
from tests.allocate.shortforms import DRIVER, counter_set, device, draws, held, node, resource_slice

SET = (DRIVER, "p1", "set")


def amount(value: int) -> int:
    return Quantity.parse(str(value)).nanos


def book(*devices: dict[str, Any], holds: list[Any], sets: list[dict[str, Any]] | None = None, **more: Any) -> Book:
    """The counters of pool p1: its devices, what is held, and the sets (10 of mem and 4 of cpu)."""
    objects = [
        node(),
        resource_slice(list(devices), count=2, **more),
        resource_slice(name="s2", count=2, sharedCounters=sets or [counter_set(mem=10, cpu=4)]),
        *holds,
    ]
    snapshot = Snapshot.from_objects(objects)
    (pool,) = pools_for(snapshot, snapshot.nodes["n1"])
    return book_of(pool, snapshot.holders)


def part(name: str, groups: list[str] | None = None, **amounts: int) -> dict[str, Any]:
    return device(name, consumesCounters=[draws(compatibility=groups, **amounts)])


def test_only_held_devices_draw() -> None:
    found = book(part("a", mem=3), part("b", mem=4, cpu=1), holds=[held("b")])
    assert found.published == {(SET, "mem"): amount(10), (SET, "cpu"): amount(4)}
    assert found.left == {(SET, "mem"): amount(6), (SET, "cpu"): amount(3)}
    assert found.overdrawn is None


def test_a_device_with_several_holders_draws_once() -> None:
    shares = [held("a", shareID=f"0000000{i}-0000-4000-8000-000000000000", claim_name=f"c{i}") for i in range(3)]
    shared = part("a", mem=4) | {"allowMultipleAllocations": True}
    assert book(shared, holds=shares).left[SET, "mem"] == amount(6)


def test_a_held_device_of_the_same_name_in_another_pool_draws_nothing() -> None:
    assert book(part("a", mem=4), holds=[held("a", pool="p2")]).left[SET, "mem"] == amount(10)


def test_what_is_held_beyond_the_counters_is_named() -> None:
    found = book(part("a", mem=8), part("b", mem=5, cpu=5), holds=[held("a"), held("b")])
    assert found.left == {(SET, "mem"): amount(-3), (SET, "cpu"): amount(-1)}
    assert found.overdrawn == ("set", "cpu")


def test_each_set_has_its_own_consumers() -> None:
    both = device("a", consumesCounters=[draws("left", mem=1), draws("right", mem=2)])
    found = book(both, holds=[held("a")], sets=[counter_set("left", mem=5), counter_set("right", mem=5)])
    assert {key[0][2]: left for key, left in found.left.items()} == {"left": amount(4), "right": amount(3)}
    assert {key[2]: groups for key, groups in found.present.items()} == {"left": BARE, "right": BARE}


def test_groups_are_those_that_the_allocation_recorded() -> None:
    """The driver may publish others by now."""
    recorded = held("a", compatibilityGroups={"set": ["old"]})
    found = book(part("a", ["new"], mem=1), part("b", ["new"], mem=1), holds=[recorded])
    assert found.present == {SET: frozenset({"old"})}
    assert found.recorded == {SET}


JOINS: dict[str, tuple[list[tuple[str, ...]], tuple[str, ...], bool]] = {
    "nobody is there": ([], ("g",), True),
    "nobody is there, and no groups": ([], (), True),
    "one group in common": ([("g", "h")], ("h", "i"), True),
    "no group in common": ([("g",)], ("h",), False),
    "all must share one group": ([("g", "h"), ("h", "i")], ("g", "i"), False),
    "all share one group": ([("g", "h"), ("h", "i")], ("h",), True),
    "none beside none": ([(), ()], (), True),
    "a group beside none": ([()], ("g",), False),
    "none beside a group": ([("g",)], (), False),
    "those present share nothing": ([("g",), ("h",)], ("g",), False),
}


@pytest.mark.parametrize("name", JOINS)
def test_who_may_join(name: str) -> None:
    consumers, groups, may = JOINS[name]
    present = None
    for consumer in consumers:
        present = joined(present, consumer)
    assert admits(present, groups) is may
