"""Purchases against brute force on small cases, and what limits, spot, unfit shapes and gangs do to them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Any

import pytest

from dragoman.errors import Invalid
from dragoman.plan.buy import OfferedShape, Purchase, WantedCopies, labelled, purchase
from dragoman.plan.catalogue import price_list
from dragoman.plan.cover import Cover, Limit, NoCover, Pattern, cover
from dragoman.plan.demand import parted
from dragoman.runtime.entropy import Entropy
from dragoman.schedule.units import SchedulingContext
from dragoman.testing.build import device_class, gpus, node, pod, snapshot_of, template, typed
from dragoman.whatif.cluster import bring
from dragoman.whatif.settle import settled
from tests.plan.cases import SEEDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def shape(name: str, devices: int, cpu: int, price: int, **rest: Any) -> OfferedShape:
    objects = [node(name, cpu=str(cpu), memory="64Gi", pods="110"), gpus(name, devices)]
    return OfferedShape(name, name, tuple((one["kind"], typed(one)) for one in objects), price, **rest)


def bought(
    world: list[dict[str, Any]],
    wanted: list[tuple[dict[str, Any], int]],
    shapes: list[OfferedShape],
    **rest: Any,
) -> Purchase:
    cluster = settled(bring(snapshot_of(*world), NOW))
    copies = []
    for made, number in wanted:
        (demand,) = parted([(made["kind"], typed(made))])
        copies.append(WantedCopies(demand, number))
    return purchase(cluster, copies, shapes, SchedulingContext(new_id=Entropy().uuid4), **rest)


@cache
def cheapest(wanted: tuple[int, ...], nodes: tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]) -> int:
    """The least price by trying every way to fill one more node."""
    if not any(wanted):
        return 0
    best = 10**9
    for price, fillings in nodes:
        for filling in fillings:
            after = tuple(max(0, a - b) for a, b in zip(wanted, filling, strict=True))
            if after != wanted:
                best = min(best, price + cheapest(after, nodes))
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_small_purchases_against_brute_force(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [(draw.randint(1, 3), draw.randint(1, 3)) for _ in range(draw.randint(1, 2))]
    numbers = [draw.randint(1, 5) for _ in kinds]
    offers = [(draw.randint(1, 4), draw.randint(2, 8), draw.randint(1, 20)) for _ in range(draw.randint(1, 3))]
    world = [device_class(), *(template(f"t{devices}", count=devices) for devices in {d for d, _ in kinds})]
    wanted = [
        (pod(f"p{index}", templates=[f"t{devices}"], cpu=str(cpu)), number)
        for index, ((devices, cpu), number) in enumerate(zip(kinds, numbers, strict=True))
    ]
    shapes = [shape(f"s{index}", *offer) for index, offer in enumerate(offers)]

    found = bought(world, wanted, shapes)
    greedy = bought(world, wanted, shapes, solver=False)

    nodes = tuple((price, fillings(devices, cpu, kinds)) for devices, cpu, price in offers)
    best = cheapest(tuple(numbers), nodes)
    if best >= 10**9:
        assert (found.possible, greedy.possible) == (False, False)
        assert found.never
        return
    assert (found.price, found.exact, found.verified) == (best, True, True)
    assert greedy.bound <= best <= greedy.price
    assert greedy.verified


def fillings(devices: int, cpu: int, kinds: list[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        counts
        for counts in product(range(5), repeat=len(kinds))
        if sum(n * d for n, (d, _) in zip(counts, kinds, strict=True)) <= devices
        and sum(n * c for n, (_, c) in zip(counts, kinds, strict=True)) <= cpu
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_covers_with_limits_against_brute_force(seed: int) -> None:
    draw = random.Random(seed)
    items = draw.randint(1, 3)
    patterns = [
        Pattern(tuple(draw.randint(0, 3) for _ in range(items)), draw.randint(1, 9)) for _ in range(draw.randint(1, 4))
    ]
    wanted = [draw.randint(0, 5) for _ in range(items)]
    limits = [Limit(((index, 1),), draw.randint(0, 4)) for index in range(len(patterns)) if draw.random() < 0.4]
    best = None
    for counts in product(range(6), repeat=len(patterns)):
        served = all(
            sum(n * p.gives[i] for n, p in zip(counts, patterns, strict=True)) >= w for i, w in enumerate(wanted)
        )
        if served and all(sum(counts[i] * w for i, w in limit.weights) <= limit.most for limit in limits):
            cost = sum(n * p.cost for n, p in zip(counts, patterns, strict=True))
            best = cost if best is None else min(best, cost)
    exact, greedy = cover(patterns, wanted, limits), cover(patterns, wanted, limits, solver=False)
    if best is None:
        assert isinstance(exact, NoCover)
        assert exact.certain
        assert isinstance(greedy, NoCover)
    else:
        assert isinstance(exact, Cover)
        assert (exact.cost, exact.exact) == (best, True)
        if isinstance(greedy, Cover):
            assert greedy.bound <= best <= greedy.cost
        else:
            assert not greedy.certain, "greedy may miss a cover, and then does not claim that there is none"


def test_what_is_free_is_used_first() -> None:
    world = [device_class(), template("t", count=1), node("a", cpu="8"), gpus("a", 3)]
    found = bought(world, [(pod("p", templates=["t"]), 8)], [shape("box", 4, 8, 100)])
    assert [(one.fit_now, one.to_buy_for) for one in found.demands] == [(3, 5)]
    assert [(one.shape, one.nodes) for one in found.bought] == [("box", 2)]
    assert found.verified


def test_limits_of_pools_and_shapes_hold() -> None:
    world = [device_class(), template("t", count=1)]
    shapes = [shape("cheap", 4, 8, 10, most=1), shape("dear", 4, 8, 100, pool="p")]
    found = bought(world, [(pod("p", templates=["t"]), 8)], shapes, limits={"p": {"nodes": 1}})
    assert sorted((one.shape, one.nodes) for one in found.bought) == [("cheap", 1), ("dear", 1)]
    found = bought(world, [(pod("p", templates=["t"]), 9)], shapes, limits={"p": {"devices": "4"}})
    assert (found.possible, found.never) == (False, ())
    assert "limits" in found.reason


def test_a_shape_that_never_fits_is_said_with_its_reason() -> None:
    world = [device_class(), template("t", count=2)]
    found = bought(world, [(pod("p", templates=["t"], cpu="4"), 1)], [shape("small", 1, 8, 1), shape("slow", 8, 2, 1)])
    assert not found.possible
    assert found.never == ("Pod default/p",)
    assert {one.shape: one.blocks[0].cause for one in found.unfit} == {"small": "device", "slow": "node resource"}


def test_spot_nodes_are_only_for_pods_that_tolerate_them() -> None:
    world = [device_class(), template("t", count=1)]
    spot = shape("spot", 4, 8, 1)
    (kind, value), *rest = spot.objects
    spot = OfferedShape("spot", "spot", ((kind, labelled(value, {}, ["spot=true:NoSchedule"])), *rest), 1)
    tolerant = pod("q", templates=["t"], tolerations=[{"key": "spot", "operator": "Exists"}])
    wanted = [(pod("p", templates=["t"]), 1), (tolerant, 1)]
    found = bought(world, wanted, [spot, shape("steady", 1, 8, 50)])
    assert sorted((one.shape, one.nodes) for one in found.bought) == [("spot", 1), ("steady", 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shapes: [{profile: a, pricePerHour: x}]", r"line 1, field shapes\[0\]\.pricePerHour: is no number"),
        ("shapes: [{profile: a}]", "pricePerHour is missing"),
        ("shapes: [{profile: a, likeNode: b, pricePerHour: 1}]", "either profile or likeNode"),
        ("shapes: [{profile: a, pricePerHour: 1, pool: p}]", "no pool 'p'; there are: none"),
        ("shapes: [{profile: a, pricePerHour: -1}]", "between 0"),
        ("shapes: [{profile: a, price: 1}]", "unknown field"),
        ("shapes: [{profile: a, pricePerHour: 1}, {profile: a, pricePerHour: 2}]", "exists already"),
        ("shapes: []", "at least one"),
        ("- a", "one document"),
        ("pools: [{name: p, limits: {cpu: many}}]\nshapes: [{profile: a, pricePerHour: 1}]", "is no quantity"),
        ("shapes: [{profile: a, pricePerHour: 1, taints: [x]}]", "KEY"),
    ],
)
def test_wrong_price_files_are_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        price_list("prices.yaml", text)


def test_prices_are_exact() -> None:
    made = price_list("p", "shapes: [{profile: a, pricePerHour: 0.1}, {profile: b, pricePerHour: '12.345678'}]")
    assert [one.price for one in made.shapes] == [100_000, 12_345_678]
