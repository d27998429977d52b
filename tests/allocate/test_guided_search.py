"""A search that asks before each choice whether the rest can still be met finds the same first solution."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.guided_search import GUIDED_STEPS, GuidedSearch, find
from dragoman.allocate.ledger import Ledger
from dragoman.allocate.search import Exhausted, Found, Halted, OutOfSteps, Search, SearchResult
from tests.allocate.shortforms import DRIVER, asked, claim, device, first_of, resource_slice, search_requests, wants

X = f"device.attributes['{DRIVER}'].x"
Z = f"device.attributes['{DRIVER}'].z"
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
    "all devices, of which one breaks a constraint": (pool(1, 1, 2), [claim(wants(every=True), constraints=MATCH)]),
    "all devices that break a constraint with what an earlier request has": (
        [*pool(1, 1, 1), resource_slice([device("e0", attrs={"x": 3})], name="s2", pool="p2")],
        [claim(wants("first"), wants("every", every=True, select=f"{X} == 3"), constraints=MATCH)],
    ),
    "all devices that break a constraint, behind a request that cannot be met": (
        pool(1, 1, 2),
        [claim(wants("four", 4), wants("every", every=True), constraints=MATCH)],
    ),
    "an alternative for all devices that break a constraint": (
        pool(1, 2),
        [claim(first_of("r", asked(3), asked(every=True)), constraints=MATCH)],
    ),
    "all devices, on one of which a selector fails": (pool(1, 1, None), [claim(wants(every=True, select=f"{X} == 1"))]),
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


def test_a_search_that_is_hard_before_it_comes_to_all_devices_names_the_one_in_the_way() -> None:
    """Past the steps of the plain search: the first request can only have the device whose z is not that of all."""
    last = [device(f"e{i}", attrs={"z": 2}) for i in range(3)]
    every = wants("every", every=True, select=f"{Z} == 2 && !has({X})")
    objects, claims = _late(every, constraints=[{"matchAttribute": f"{DRIVER}/z", "requests": ["r0", "every"]}])
    objects = [*objects, resource_slice(last, name="s2", pool="p2")]
    outcome = find(search_requests(objects, *claims), Ledger(lists=False), steps_max=100_000)
    assert isinstance(outcome, Halted)
    assert outcome.steps > GUIDED_STEPS
    assert shown(outcome) == (24, "e0", 0)


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


def _late(*more: dict[str, Any], **devices: Any) -> tuple[list[Any], list[Any]]:
    """Requests in an order that is wrong for them: the choosiest come last. z is 2 on one device that they need."""
    count = 24
    late = (wants(f"r{i}", select=f"has({X}) && {X} <= {count - 1 - i}") for i in range(count))
    made = [device(f"d{i:02d}", attrs={"x": i, "z": 2 if i == 5 else 1}) for i in range(count)]
    return [resource_slice(made)], [claim(*late, *more, name="late", **devices)]
