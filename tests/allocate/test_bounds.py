"""Counting says no only where there is no way, and says so for each reason that it counts by."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.bounds import Bounds, Scarce, UnsatisfiedConstraint
from dragoman.allocate.ledger import Ledger
from dragoman.allocate.search import Found, Search
from tests.allocate.shortforms import (
    DRIVER,
    claim,
    counter_set,
    device,
    draws,
    first_of,
    resource_slice,
    search_requests,
    wants,
)
from tests.allocate.shortforms import asked as ask
from tests.laws.oracle import Fatal, Oracle, TooLong
from tests.laws.worlds import snapshot_of, world

Case = tuple[list[Any], list[Any], object]


def kind(*names: str) -> str:
    return f"device.attributes['{DRIVER}'].kind in {list(names)}"


def kinds(**counts: int) -> list[Any]:
    """Devices of each kind."""
    return [device(f"{name}{i}", attrs={"kind": name}) for name, count in counts.items() for i in range(count)]


def valued(*values: int) -> list[Any]:
    return [device(f"d{i}", attrs={"root": value}) for i, value in enumerate(values)]


def shared(*amounts: int) -> list[Any]:
    return [
        device(f"d{i}", allowMultipleAllocations=True, capacity={"mem": {"value": str(amount)}})
        for i, amount in enumerate(amounts)
    ]


def part(name: str, amount: int) -> Any:
    return wants(name, capacity={"requests": {"mem": str(amount)}})


def drawing(*amounts: int, of: int) -> list[Any]:
    """A pool of devices that draw on one counter."""
    devices = [device(f"d{i}", consumesCounters=[draws(mem=amount)]) for i, amount in enumerate(amounts)]
    return [resource_slice(devices, count=2), resource_slice(name="s2", count=2, sharedCounters=[counter_set(mem=of)])]


ROOT = {"matchAttribute": f"{DRIVER}/root"}
CASES: dict[str, Case] = {
    "enough of one kind": ([resource_slice(kinds(a=3))], [claim(wants(count=3))], None),
    "one request for too many": ([resource_slice(kinds(a=2))], [claim(wants(count=3))], Scarce((0,), 3, 0)),
    "two requests for the same devices": (
        [resource_slice(kinds(a=2))],
        [claim(wants("x", 2), wants("y"))],
        Scarce((0, 1), 3, 2),
    ),
    "requests of two claims": (
        [resource_slice(kinds(a=2))],
        [claim(wants("x", 2)), claim(wants("y"), name="other")],
        Scarce((0, 1), 3, 2),
    ),
    "kinds that overlap, enough": (
        [resource_slice(kinds(a=1, b=1, c=1))],
        [
            claim(
                wants("x", select=kind("a", "b")), wants("y", select=kind("b", "c")), wants("z", select=kind("c", "a"))
            )
        ],
        None,
    ),
    "kinds that overlap, one too few": (
        [resource_slice(kinds(a=1, b=1, c=3))],
        [claim(wants("x", select=kind("a", "b")), wants("y", select=kind("b")), wants("z", select=kind("a")))],
        Scarce((0, 1, 2), 3, 2),
    ),
    "others do not matter": (
        [resource_slice(kinds(a=1, c=5))],
        [claim(wants("w", 2, select=kind("c")), wants("x", select=kind("a")), wants("y", select=kind("a")))],
        Scarce((1, 2), 2, 1),
    ),
    "alternatives need what the least of them needs": (
        [resource_slice(kinds(a=2))],
        [claim(first_of("x", ask(2), ask(1)), wants("y"))],
        None,
    ),
    "alternatives, and even the least does not fit": (
        [resource_slice(kinds(a=2))],
        [claim(first_of("x", ask(3), ask(2)), wants("y"))],
        Scarce((0, 1), 3, 2),
    ),
    "all, and one more": (
        [resource_slice(kinds(a=2))],
        [claim(wants("x", every=True), wants("y"))],
        Scarce((1,), 1, 0),
    ),
    "counters for three of four": (drawing(2, 2, 2, 2, of=7), [claim(wants(count=4))], Scarce((0,), 4, 3)),
    "counters for four": (drawing(2, 2, 2, 2, of=8), [claim(wants(count=4))], None),
    "counters and small devices": (drawing(6, 1, 1, of=7), [claim(wants(count=3))], Scarce((0,), 3, 2)),
    "shares of a size of which two fit": (
        [resource_slice(shared(10))],
        [claim(part("x", 4), part("y", 4), part("z", 4))],
        Scarce((0, 1, 2), 3, 2),
    ),
    "shares on two devices": (
        [resource_slice(shared(10, 5))],
        [claim(part("x", 4), part("y", 4), part("z", 4))],
        None,
    ),
    "distinct values": (
        [resource_slice(valued(1, 1, 2, 2))],
        [claim(wants(count=3), constraints=[{"distinctAttribute": f"{DRIVER}/root"}])],
        UnsatisfiedConstraint(0, 0, (0,), 3, (("1", 2), ("2", 2))),
    ),
    "distinct values, enough": (
        [resource_slice(valued(1, 1, 2, 3))],
        [claim(wants(count=3), constraints=[{"distinctAttribute": f"{DRIVER}/root"}])],
        None,
    ),
    "one value for all": (
        [resource_slice(valued(7, 7, 8, 8))],
        [claim(wants("x", 2), wants("y"), constraints=[ROOT])],
        UnsatisfiedConstraint(0, 0, (0, 1), 3, (("7", 2), ("8", 2))),
    ),
    "one value for all, with admin access": (
        [resource_slice(valued(7, 7, 8, 8))],
        [claim(wants("x", 3, adminAccess=True), constraints=[ROOT])],
        UnsatisfiedConstraint(0, 0, (0,), 3, (("7", 2), ("8", 2))),
    ),
    "one value for all, enough": (
        [resource_slice(valued(7, 7, 8, 8, 8))],
        [claim(wants("x", 2), wants("y"), constraints=[ROOT])],
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cause(name: str) -> None:
    objects, claims, expected = CASES[name]
    assert Bounds(search_requests(objects, *claims)).cause(0, Ledger(lists=True)) == expected


def test_sets_of_requests_that_each_need_a_root_of_their_own() -> None:
    """Two pairs, and only one root has two devices."""
    constraints = [{"requests": [f"a{i}", f"b{i}"], **ROOT} for i in range(2)]
    made = claim(*(wants(f"{letter}{i}") for i in range(2) for letter in "ab"), constraints=constraints)
    requests = search_requests([resource_slice(valued(1, 1, 2, 3))], made)
    assert isinstance(Bounds(requests).cause(0, Ledger(lists=True)), Scarce)
    requests = search_requests([resource_slice(valued(1, 1, 2, 2))], made)
    assert Bounds(requests).cause(0, Ledger(lists=True)) is None


def test_what_the_search_has_taken_counts() -> None:
    requests = search_requests([resource_slice(kinds(a=3))], claim(wants("x"), wants("y", 2)))
    ledger = Ledger(lists=True)
    bounds = Bounds(requests)
    assert bounds.cause(1, ledger) is None
    mark = ledger.mark()
    for candidate in requests[0].alternatives[0].candidates[:2]:
        ledger.take(candidate.device_state, 0, (), admin=False)
    assert bounds.cause(1, ledger) == Scarce((1,), 2, 0)
    ledger.rewind(mark)
    assert bounds.cause(1, ledger) is None


SEEDS = 400


def test_random_claims_are_refused_only_where_a_plain_search_finds_nothing() -> None:
    """And often where it finds nothing, without which counting would be of no use."""
    refused = impossible = possible = 0
    for seed in range(SEEDS):
        objects, claims = world(seed)
        snapshot = snapshot_of(objects)
        try:
            expected = Oracle(snapshot, snapshot.nodes["node-0"], claims).allocate()
        except (Fatal, TooLong):
            continue
        requests = search_requests(objects, *claims, on="node-0")
        cause = Bounds(requests).cause(0, Ledger(lists=True))
        if expected is None:
            impossible += 1
            refused += cause is not None
        else:
            possible += 1
            assert cause is None, (seed, cause)
    assert possible > SEEDS // 6
    assert refused > impossible * 9 // 10


def test_no_state_on_the_way_to_a_solution_is_refused() -> None:
    steps = 0
    for seed in range(SEEDS):
        objects, claims = world(seed)
        requests = search_requests(objects, *claims, on="node-0")
        outcome = Search(requests, Ledger(lists=True), steps_max=20_000).run()
        if not isinstance(outcome, Found):
            continue
        ledger, bounds = Ledger(lists=True), Bounds(requests)
        for index, request in enumerate(requests):
            assert bounds.cause(index, ledger) is None, (seed, index)
            for pick in (pick for pick in outcome.picks if pick.request == index):
                candidate = pick.candidate
                ledger.take(
                    candidate.device_state, request.claim, candidate.amounts, admin=pick.alternative.request_plan.admin
                )
                steps += 1
    assert steps > SEEDS // 3
