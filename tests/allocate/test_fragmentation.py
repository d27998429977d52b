"""What a node is worth to the tasks expected, how much of devices is left, what recent tasks teach."""

from __future__ import annotations

import pytest
from hypothesis import given as given_values
from hypothesis import strategies as st

from dragoman.allocate.allocator import (
    Allocation,
    AllocatorOptions,
    Ask,
    Demand,
    Supply,
    TaskHistory,
    TaskType,
    allocate,
    survey,
)
from dragoman.allocate.fragmentation import WHOLE, FreeResources, Mix, alone, expected_use, fed, fullness, mix_of
from dragoman.allocate.refusal import Refusals
from dragoman.allocate.task_history import FIRST, KINDS_MAX, WINDOW
from dragoman.api.resource import ResourceClaim
from dragoman.snapshot.change import Snapshot
from tests.allocate.shortforms import (
    claim,
    counter_set,
    device,
    device_class,
    draws,
    given,
    held,
    node,
    options,
    resource_slice,
    wants,
)

GPU = "gpu.example.com"


def room(*left: int, cpu: int | None = None, memory: int | None = None, make: str = GPU) -> FreeResources:
    return FreeResources(tuple((make, amount) for amount in left), cpu, memory)


ALONE = {
    "all devices with enough left": (room(1000, 600, 300), TaskType(1, 500), 1600),
    "as many as it takes": (room(1000, 1000, 1000), TaskType(2), 3000),
    "too few of them": (room(1000, 600), TaskType(2), 0),
    "cpu for it": (room(1000, cpu=4), TaskType(1, cpu=4), 1000),
    "too little cpu": (room(1000, cpu=4), TaskType(1, cpu=5), 0),
    "too little memory": (room(1000, memory=4), TaskType(1, memory=5), 0),
    "another make": (room(1000), TaskType(1, makes=frozenset({"nic"})), 0),
    "one of its makes": (room(1000), TaskType(1, makes=frozenset({"nic", GPU})), 1000),
}


@pytest.mark.parametrize("name", ALONE)
def test_alone(name: str) -> None:
    free, kind, expected = ALONE[name]
    assert alone(free, Demand(((kind, 7),))) == 7 * expected


FED = {
    "devices run out first": (room(1000, 500, cpu=100), Mix(1, 1000, 10, 0), 1500),
    "cpu runs out first": (room(1000, 1000, cpu=15), Mix(1, 1000, 10, 0), 1500),
    "memory runs out first": (room(1000, 1000, cpu=99, memory=3), Mix(2, 2000, 10, 4), 1500),
    "nothing is limited": (room(1000), Mix(1, 1000, 10, 10), 1000),
    "nobody asks for cpu": (room(1000, cpu=0), Mix(1, 1000, 0, 0), 1000),
}


@pytest.mark.parametrize("name", FED)
def test_fed(name: str) -> None:
    free, mix, expected = FED[name]
    assert fed(free, mix) == expected


def test_tasks_without_devices_do_not_count() -> None:
    demand = Demand(((TaskType(0, 0, cpu=50), 9), (TaskType(2, 500, cpu=4, memory=6), 3)))
    assert mix_of(demand) == Mix(3, 3000, 12, 18)


def test_nothing_expected_is_worth_nothing_and_fullness_is_what_is_free() -> None:
    assert expected_use(room(1000, 400, cpu=7), Demand()) == 0
    assert fullness(room(1000, 400, cpu=7), Demand()) == 1400


rooms = st.builds(
    lambda left, cpu, memory: FreeResources(tuple(sorted(left)), cpu, memory),
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, WHOLE)), max_size=6),
    st.integers(0, 50),
    st.integers(0, 50),
)
kinds = st.builds(
    TaskType,
    st.integers(0, 3),
    st.integers(1, WHOLE),
    st.integers(0, 20),
    st.integers(0, 20),
    st.frozensets(st.sampled_from(["a", "b"])),
)
demands = st.builds(lambda entries: Demand(tuple(entries)), st.lists(st.tuples(kinds, st.integers(1, 9)), max_size=5))


@given_values(rooms, demands, st.data())
def test_taking_never_adds_worth(before: FreeResources, demand: Demand, data: st.DataObject) -> None:
    assert before.cpu is not None
    assert before.memory is not None
    left = [(make, data.draw(st.integers(0, amount))) for make, amount in before.left]
    after = FreeResources(
        tuple(sorted(entry for entry in left if entry[1])),
        before.cpu - data.draw(st.integers(0, before.cpu)),
        before.memory - data.draw(st.integers(0, before.memory)),
    )
    assert 0 <= expected_use(after, demand) <= expected_use(before, demand)


# ---- devices in these terms


def kind_on(objects: list[tuple[str, object]], wanted: ResourceClaim) -> TaskType:
    snapshot = Snapshot.from_objects([node(), device_class(), *objects])
    found = survey(snapshot, [wanted], options(policy="pack"))
    assert not isinstance(found, Refusals)
    (only,) = found.classes
    kind = only.kind(3, 4)
    assert kind is not None
    return kind


SHARED = {"allowMultipleAllocations": True, "capacity": {"milli": {"value": "1000"}, "mem": {"value": "80Gi"}}}
KINDS = {
    "two whole devices": ([resource_slice([device("a"), device("b")])], claim(wants(count=2)), (2, 1000)),
    "a share, by the scarcest capacity": (
        [resource_slice([device("a", **SHARED)])],
        claim(wants(capacity={"requests": {"milli": "250", "mem": "40Gi"}})),
        (1, 500),
    ),
    "a partition, by what it draws": (
        [
            resource_slice([device("a", consumesCounters=[draws("g", mem=2)])], count=2),
            resource_slice(name="s2", count=2, devices=None, sharedCounters=[counter_set("g", mem=7)]),
        ],
        claim(wants()),
        (1, 286),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_a_claim_takes_as_a_kind(name: str) -> None:
    objects, wanted, (devices, share) = KINDS[name]
    assert kind_on(objects, wanted) == TaskType(devices, share, 3, 4, frozenset({GPU}))


def test_first_fit_does_not_learn() -> None:
    snapshot = Snapshot.from_objects([node(), device_class(), resource_slice([device("a")])])
    found = survey(snapshot, [claim(wants())])
    assert not isinstance(found, Refusals)
    assert found.classes[0].kind(0, 0) is None
    assert found.classes[0].rank() == ()


def expecting(*entries: tuple[TaskType, int]) -> AllocatorOptions:
    return AllocatorOptions(policy="pack", demand=Demand(entries))


def share(milli: int) -> ResourceClaim:
    return claim(wants(capacity={"requests": {"milli": str(milli)}}))


def place_for(milli: int, demand: Demand) -> list[str]:
    """Where a share goes beside one device that is half free and one that is untouched."""
    milli_only = {"allowMultipleAllocations": True, "capacity": {"milli": {"value": "1000"}}}
    objects = [
        resource_slice([device("whole", **milli_only), device("begun", **milli_only)]),
        held("begun", shareID="x", consumedCapacity={"milli": "500"}),
    ]
    snapshot = Snapshot.from_objects([node(), device_class(), *objects])
    asks = [Ask((share(milli),), "n1")]
    answer = allocate(snapshot, asks, AllocatorOptions(policy="pack", demand=demand), share_id=lambda: "id")
    assert isinstance(answer, Allocation)
    return given(answer)


def test_pack_keeps_whole_devices_for_those_who_need_them() -> None:
    assert place_for(300, Demand(((TaskType(1, 1000), 5),))) == ["r=p1/begun"]


def test_pack_keeps_half_devices_where_halves_are_expected() -> None:
    # 300 of the begun device would leave 200, of use to nobody; 300 of the whole one leaves 700, good for a half.
    assert place_for(300, Demand(((TaskType(1, 500), 5),))) == ["r=p1/whole"]
    assert place_for(500, Demand(((TaskType(1, 500), 5),))) == ["r=p1/begun"]
    assert place_for(300, Demand()) == ["r=p1/begun"]


def test_a_place_that_leaves_devices_without_cpu_costs_more() -> None:
    snapshot = Snapshot.from_objects([node(), device_class(), resource_slice([device("a"), device("b")])])
    found = survey(snapshot, [claim(wants())], expecting((TaskType(1, 1000, cpu=4), 1)))
    assert not isinstance(found, Refusals)
    (only,) = found.classes
    frugal, hungry = only.rank(Supply(8, 4)), only.rank(Supply(8, 6))
    assert frugal < hungry


# ---- learning


def test_the_first_demand_comes_after_some_tasks_and_then_at_doublings() -> None:
    recent = TaskHistory()
    reported = [count for count in range(1, 200) if recent.add(TaskType(1, count % 3))]
    assert reported == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]
    assert sum(count for _, count in recent.demand.kinds) == 8 * FIRST


def test_a_mix_that_changes_is_followed() -> None:
    recent, old, new = TaskHistory(), TaskType(1, 100), TaskType(1, 900)
    for _ in range(WINDOW):
        recent.add(old)
    for _ in range(2 * WINDOW):
        recent.add(new)
    counts = dict(recent.demand.kinds)
    assert counts[new] > 4 * counts[old]


def test_the_demand_does_not_depend_on_the_order_of_tasks() -> None:
    tasks = [TaskType(1, 100 * (n % 4 + 1), cpu=n % 2) for n in range(FIRST)]
    first, second = TaskHistory(), TaskHistory()
    for task in tasks:
        first.add(task)
    for task in reversed(tasks):
        second.add(task)
    assert first.demand == second.demand


def test_only_the_commonest_kinds_count() -> None:
    recent = TaskHistory()
    for number in range(16 * KINDS_MAX):
        recent.add(TaskType(1, cpu=number))
        recent.add(TaskType(2))
    assert len(recent.demand.kinds) == KINDS_MAX
    assert recent.demand.kinds[0][0] == TaskType(2)
