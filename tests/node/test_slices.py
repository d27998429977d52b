"""Slices of a pool: how they are cut, and the least that has to be written."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api.meta import ObjectMeta, OwnerReference
from dragoman.api.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourceSlice,
)
from dragoman.errors import Invalid
from dragoman.node.driver import Pool, device
from dragoman.node.slices import PublisherScope, Writes, difference, dropped, layout
from dragoman.values.quantity import Quantity

SCOPE = PublisherScope("d.example.com", "n1", OwnerReference("v1", "Node", "n1", "u1", True))
TAINT = DeviceTaint("k", "v", "NoSchedule")


def devices(count: int, **fields: Any) -> tuple[Device, ...]:
    return tuple(device(f"d{n}", {"index": n}, **fields) for n in range(count))


class Store:
    """What a server does with writes."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.numbers = itertools.count()
        self.writes = 0

    def carry_out(self, writes: Writes) -> None:
        for old in writes.delete:
            del self.slices[old.metadata.name]
            self.writes += 1
        for new in writes.update:
            assert new.metadata.name in self.slices
            self._put(new.metadata.name, new)
        for new in writes.create:
            self._put(f"{new.metadata.generate_name}{next(self.numbers)}", new)

    def _put(self, name: str, new: ResourceSlice) -> None:
        # The server fills in when a taint was added.
        filled = tuple(
            msgspec.structs.replace(
                d,
                taints=tuple(
                    msgspec.structs.replace(t, time_added=t.time_added or f"2026-01-01T00:00:{self.writes % 60:02}Z")
                    for t in d.taints
                ),
            )
            for d in new.spec.devices
        )
        self.slices[name] = ResourceSlice(ObjectMeta(name=name), msgspec.structs.replace(new.spec, devices=filled))
        self.writes += 1

    def publish(self, pool: Pool) -> Writes:
        writes = difference(SCOPE, "p", pool, list(self.slices.values()), {})
        self.carry_out(writes)
        return writes

    @property
    def generations(self) -> set[int]:
        return {s.spec.pool.generation for s in self.slices.values()}


LAYOUTS: dict[str, tuple[Pool, list[int]]] = {
    "nothing: one empty slice shows that the driver lives": (Pool(), [0]),
    "a full slice": (Pool(devices(128)), [128]),
    "one more": (Pool(devices(129)), [128, 1]),
    "a taint halves the slice it is in": (
        Pool((*devices(100), *(device(f"t{n}", taints=[TAINT]) for n in range(30)))),
        [64, 64, 2],
    ),
    "a taint far behind does not": (
        Pool((*devices(128), device("t", taints=[TAINT]))),
        [128, 1],
    ),
    "list attributes halve": (Pool(tuple(device(f"d{n}", {"a": [1, 2]}) for n in range(65))), [64, 1]),
}


@pytest.mark.parametrize(("pool", "sizes"), LAYOUTS.values(), ids=LAYOUTS)
def test_cutting(pool: Pool, sizes: list[int]) -> None:
    specs = layout(SCOPE, "p", pool)
    assert [len(spec.devices) for spec in specs] == sizes
    assert {spec.pool.resource_slice_count for spec in specs} == {len(sizes)}
    assert [d for spec in specs for d in spec.devices] == list(pool.devices)


def test_a_driver_may_say_which_devices_begin_a_slice() -> None:
    pool = Pool(devices(100, taints=[TAINT]), slice_starts=("d0", "d10", "d90"))
    assert [s.devices[0].name for s in layout(SCOPE, "p", pool)] == ["d0", "d10", "d74", "d90"]


def test_counters_have_slices_of_their_own() -> None:
    sets = tuple(CounterSet(f"s{n}", {"c": Counter(Quantity.parse("1"))}) for n in range(10))
    draws = DeviceCounterConsumption("s9", {"c": Counter(Quantity.parse("1"))})
    specs = layout(SCOPE, "p", Pool(devices(3, consumes_counters=(draws,)), shared_counters=sets))
    assert [(len(s.shared_counters), len(s.devices)) for s in specs] == [(8, 0), (2, 0), (0, 3)]


WRONG: dict[str, tuple[Pool, str]] = {
    "a device twice": (Pool((device("a"), device("a"))), "device 'a' is defined twice"),
    "a counter set twice": (
        Pool(shared_counters=(CounterSet("s"), CounterSet("s"))),
        "counter set 's' is defined twice",
    ),
    "an unknown counter set": (
        Pool(devices(1, consumes_counters=(DeviceCounterConsumption("s"),))),
        "draws on counter set 's', which the pool does not have",
    ),
    "an unknown counter": (
        Pool(
            devices(1, consumes_counters=(DeviceCounterConsumption("s", {"x": Counter()}),)),
            shared_counters=(CounterSet("s"),),
        ),
        "draws on counter 'x', which set 's' does not have",
    ),
    "a pool for other nodes": (Pool(all_nodes=True), "only_pool"),
}


@pytest.mark.parametrize(("pool", "words"), WRONG.values(), ids=WRONG)
def test_what_no_allocator_would_take_is_refused(pool: Pool, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        layout(SCOPE, "p", pool)


def test_pools_beyond_the_node() -> None:
    cluster = PublisherScope("d.example.com")
    (spec,) = layout(cluster, "p", Pool(devices(1), all_nodes=True))
    assert (spec.node_name, spec.all_nodes) == (None, True)
    (spec,) = layout(cluster, "p", Pool((device("a", node_name="n1"), device("b", all_nodes=True))))
    assert (spec.node_name, spec.all_nodes, spec.per_device_node_selection) == (None, None, True)


def test_names_carry_index_driver_and_owner() -> None:
    store = Store()
    store.publish(Pool(devices(200)))
    assert sorted(name.rpartition("-")[0] for name in store.slices) == [
        "00000-d.example.com-n1",
        "00001-d.example.com-n1",
    ]
    assert store.generations == {1}


def test_one_changed_slice_keeps_the_generation() -> None:
    store = Store()
    store.publish(Pool(devices(200)))
    changed = (*devices(199), device("d199", {"index": 7}))
    writes = store.publish(Pool(changed))
    assert (len(writes.update), len(writes.create), len(writes.delete)) == (1, 0, 0)
    assert store.generations == {1}


def test_two_changed_slices_raise_it_everywhere() -> None:
    store = Store()
    store.publish(Pool(devices(300)))
    changed = [device("d0", {"index": 9}), *devices(299)[1:], device("d299", {"index": 9})]
    writes = store.publish(Pool(tuple(changed)))
    assert len(writes.update) == 3
    assert store.generations == {2}


def test_a_given_generation_counts_if_it_is_higher() -> None:
    store = Store()
    store.publish(Pool(devices(1), generation=7))
    assert store.generations == {7}
    assert not store.publish(Pool(devices(1), generation=3))


def test_slices_of_an_older_generation_are_obsolete() -> None:
    store = Store()
    store.publish(Pool(devices(1)))
    (old,) = store.slices.values()
    orphan = msgspec.structs.replace(old, metadata=ObjectMeta(name="00000-stray"))
    newer = msgspec.structs.replace(old.spec, pool=msgspec.structs.replace(old.spec.pool, generation=5))
    store.slices = {"00000-stray": orphan, "00000-new": ResourceSlice(ObjectMeta(name="00000-new"), newer)}
    store.publish(Pool(devices(1)))
    assert set(store.slices) == {"00000-new"}


def test_taint_times_are_kept_and_make_no_writes() -> None:
    store = Store()
    store.publish(Pool((device("a", taints=[TAINT]),)))
    assert not store.publish(Pool((device("a", taints=[TAINT]),)))
    (before,) = store.slices.values()
    added = before.spec.devices[0].taints[0].time_added
    more = DeviceTaint("other", "", "None")
    store.publish(Pool((device("a", taints=[TAINT, more]),)))
    (after,) = store.slices.values()
    assert after.spec.devices[0].taints[0].time_added == added


POOLS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3), st.booleans()), min_size=1, max_size=6).map(
    lambda rows: [
        Pool(
            tuple(
                device(
                    f"d{n}", {"value": value if n % 97 == 0 else 0}, taints=[TAINT] if tainted and n % 50 == 0 else ()
                )
                for n in range(count)
            )
        )
        for count, value, tainted in rows
    ]
)


@pytest.mark.slow
@given(pools=POOLS, lost=st.integers(0, 3), forged=st.integers(0, 3))
def test_whatever_was_there_the_pool_is_right_afterwards(pools: list[Pool], lost: int, forged: int) -> None:
    """After the writes: all slices of one generation, complete, exactly the devices, and nothing left to write."""
    store = Store()
    for pool in pools:
        store.publish(pool)
        for name in sorted(store.slices)[:lost]:
            del store.slices[name]
        for name in sorted(store.slices)[:forged]:
            old = store.slices[name]
            store.slices[name] = msgspec.structs.replace(
                old, spec=msgspec.structs.replace(old.spec, devices=(device("forged"),))
            )
        before = max(store.generations, default=0)
        writes = store.publish(pool)
        assert len(store.generations) == 1
        assert max(store.generations) >= before
        ordered = [store.slices[name].spec for name in sorted(store.slices)]
        assert [d.name for spec in ordered for d in spec.devices] == [d.name for d in pool.devices]
        assert {spec.pool.resource_slice_count for spec in ordered} == {len(ordered)}
        assert not store.publish(pool), "a second look finds nothing to do"
        if lost == forged == 0:
            assert not writes


def test_gates_are_guessed_from_what_was_dropped() -> None:
    full = Device(
        name="a", taints=(TAINT,), allow_multiple_allocations=True, binding_conditions=("x",), consumes_counters=()
    )
    (sent,) = layout(SCOPE, "p", Pool((full,)))
    kept = msgspec.structs.replace(sent, devices=(Device(name="a"),))
    assert dropped(sent, kept) == ["DRADeviceTaints", "DRADeviceBindingConditions", "DRAConsumableCapacity"]
    assert dropped(sent, sent) == []
