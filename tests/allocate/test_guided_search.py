"""A search that asks before each choice whether the rest can still be met finds the same first solution."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.guided_search import GUIDED_STEPS, GuidedSearch, find
from dragoman.allocate.ledger import Ledger
from dragoman.allocate.search import Exhausted, Found, Halted, OutOfSteps, Search, SearchResult
from tests.allocate.shortforms import DRIVER, asked, claim, device, first_of, resource_slice, search_requests, wants

X = f"device.attributes['{DRIVER}'].x"
MATCH = [{"matchAttribute": f"{DRIVER}/x"}]


def pool(*values: Any) -> list[Any]:
    return [resource_slice([device(f"d{i:02d}", attrs={} if x is None else {"x": x}) for i, x in enumerate(values)])]


def guided(objects: list[Any], *claims: Any, steps_max: int = 100_000) -> tuple[SearchResult, Ledger]:
    ledger = Ledger(lists=False)
    return GuidedSearch(search_requests(objects, *claims), ledger, steps=0, steps_max=steps_max).run(), ledger


def shown(outcome: SearchResult) -> Any:
    if isinstance(outcome, Found):
        picks = [(pick.request, pick.candidate.device_state.id.device) for pick in outcome.picks]
        return picks, [alternative.request_plan.request for alternative in outcome.alternatives]
    if isinstance(outcome, Halted):
        return outcome.request, outcome.candidate.device_state.id.device, outcome.constraint
    return type(outcome)


SAME: dict[str, tuple[list[Any], list[Any]]] = {
    "one request": (pool(1, 1), [claim(wants())]),
    "an earlier request leaves the one device that a later one needs": (
        pool(1, 2),
        [claim(wants("any"), wants("one", select=f"{X} == 1"))],
    ),
    "alternatives": (pool(1, 1, 1), [claim(first_of("r", asked(3), asked(2)), wants("other"))]),
    "devices of one value": (pool(1, 2, 2), [claim(wants("x", 2), constraints=MATCH)]),
    "two claims": (pool(1, 1, 2, 2), [claim(wants("x", 2), constraints=MATCH), claim(wants("x", 2), name="d")]),
    "all devices": (pool(1, 1), [claim(wants(every=True), constraints=MATCH)]),
    "a selector that fails on the way": (pool(1, None, 2), [claim(wants(select=f"{X} == 2"))]),
    "a selector that fails after a device was taken": (
        pool(1, 1, None, 2),
        [claim(wants("first"), wants("x", select=f"{X} == 2"))],
    ),
    "too few": (pool(1, 1), [claim(wants("x", 2), wants("y"))]),
}


@pytest.mark.parametrize("case", SAME)
def test_it_comes_to_what_the_plain_search_comes_to(case: str) -> None:
    objects, claims = SAME[case]
    plain = Search(search_requests(objects, *claims), Ledger(lists=False), steps_max=100_000).run()
    outcome, ledger = guided(objects, *claims)
    assert shown(outcome) == shown(plain)
    assert bool(ledger.trail) == isinstance(outcome, Found)


def test_all_devices_that_break_a_constraint_are_a_plain_no() -> None:
    """The plain search, which comes first, names the device."""
    outcome, ledger = guided(pool(1, 2), claim(wants(every=True), constraints=MATCH))
    assert isinstance(outcome, Exhausted)
    assert ledger.trail == []


def test_without_steps_nothing_is_decided_and_the_ledger_stays_empty() -> None:
    outcome, ledger = guided(*_hard(possible=False), steps_max=1)
    assert isinstance(outcome, OutOfSteps)
    assert ledger.trail == []


def _hard(*, possible: bool) -> tuple[list[Any], Any]:
    """Pairs that must match in one attribute each, of devices that match in pairs of another: trying goes wrong late."""
    count = 10
    devices = [
        device(f"d{i:02d}", attrs={"x": i % count, "y": i // 2 if possible else i, "serial": i})
        for i in range(2 * count)
    ]
    requests = [wants(f"r{i}", 2) for i in range(count)]
    constraints = [{"matchAttribute": f"{DRIVER}/y", "requests": [f"r{i}"]} for i in range(count)]
    return [resource_slice(devices)], claim(*requests, constraints=constraints)


def test_find_goes_on_guided_where_the_plain_search_ran_out_of_its_steps() -> None:
    objects, made = _hard(possible=True)
    outcome = find(search_requests(objects, made), Ledger(lists=False), steps_max=100_000)
    assert isinstance(outcome, Found)
    objects, made = _hard(possible=False)
    no = find(search_requests(objects, made), Ledger(lists=False), steps_max=100_000)
    assert isinstance(no, Exhausted)


def test_find_stays_within_the_steps_that_it_is_given() -> None:
    objects, claims = _late()
    requests = search_requests(objects, *claims)
    plain = Search(requests, Ledger(lists=False), steps_max=GUIDED_STEPS).run()
    assert isinstance(plain, OutOfSteps), "hard enough for the plain search"
    assert isinstance(find(search_requests(objects, *claims), Ledger(lists=False), steps_max=GUIDED_STEPS), OutOfSteps)
    assert isinstance(find(search_requests(objects, *claims), Ledger(lists=False), steps_max=100_000), Found)


def _late() -> tuple[list[Any], list[Any]]:
    """Requests in an order that is wrong for them: the choosiest come last."""
    count = 24
    return pool(*range(count)), [
        claim(*(wants(f"r{i}", select=f"{X} <= {count - 1 - i}") for i in range(count)), name="late")
    ]
