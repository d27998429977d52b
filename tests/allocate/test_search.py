"""The first solution in the order of requests, alternatives and devices; or that there is none; or neither."""

from __future__ import annotations

from typing import Any

from dragoman.allocate.bounds import Scarce
from dragoman.allocate.ledger import Ledger
from dragoman.allocate.search import Exhausted, Found, Halted, OutOfSteps, Search, SearchResult, number
from tests.allocate.shortforms import DRIVER, asked, claim, device, first_of, resource_slice, search_requests, wants

X = f"device.attributes['{DRIVER}'].x"
MATCH = [{"matchAttribute": f"{DRIVER}/x"}]


def devices(**x: Any) -> list[Any]:
    """A pool of devices with their attribute x; None: without it."""
    return [resource_slice([device(name, attrs={} if value is None else {"x": value}) for name, value in x.items()])]


def searched(objects: list[Any], *claims: Any, steps_max: int = 10_000, **more: Any) -> tuple[SearchResult, Ledger]:
    ledger = Ledger(lists=False)
    return Search(search_requests(objects, *claims), ledger, steps_max=steps_max, **more).run(), ledger


def picks(outcome: SearchResult) -> list[str]:
    assert isinstance(outcome, Found), outcome
    return [pick.candidate.device_state.id.device for pick in outcome.picks]


def test_devices_are_taken_in_their_order() -> None:
    outcome, ledger = searched(devices(a=1, b=1, c=1), claim(wants("x", 2), wants("y")))
    assert picks(outcome) == ["a", "b", "c"]
    assert len(ledger.whole) == 3, "the ledger is left with what was taken"


def test_an_earlier_choice_is_taken_back_where_a_later_request_needs_the_device() -> None:
    outcome, _ = searched(devices(a=1, b=2), claim(wants("any"), wants("one", select=f"{X} == 1")))
    assert picks(outcome) == ["b", "a"]


def test_the_first_alternative_that_can_be_met_together_with_the_rest_is_chosen() -> None:
    made = claim(first_of("r", asked(3), asked(2), asked(1)), wants("other"))
    outcome, _ = searched(devices(a=1, b=1, c=1), made)
    assert isinstance(outcome, Found)
    assert [alternative.request_plan.request for alternative in outcome.alternatives] == ["r/s1", "other"]


def test_devices_of_one_value_are_found_behind_others() -> None:
    outcome, _ = searched(devices(a=1, b=2, c=2), claim(wants("x", 2), constraints=MATCH))
    assert picks(outcome) == ["b", "c"]


def test_two_claims_do_not_share_their_constraints() -> None:
    outcome, _ = searched(
        devices(a=1, b=1, c=2, d=2),
        claim(wants("x", 2), constraints=MATCH, name="one"),
        claim(wants("x", 2), constraints=MATCH, name="two"),
    )
    assert picks(outcome) == ["a", "b", "c", "d"]


def test_what_cannot_be_met_leaves_the_ledger_empty_and_says_what_is_scarce() -> None:
    outcome, ledger = searched(devices(a=1, b=1), claim(wants("x", 2), wants("y")))
    assert isinstance(outcome, Exhausted)
    assert outcome.cause == Scarce((0, 1), 3, 2)
    assert ledger.trail == []
    assert ledger.whole == {}


def test_a_search_out_of_steps_is_no_no() -> None:
    many = devices(**{f"d{i}": i for i in range(12)})
    made = claim(*(wants(f"r{i}", select=f"{X} <= {i // 2}") for i in range(12)))
    outcome, ledger = searched(many, made, steps_max=1)
    assert isinstance(outcome, OutOfSteps)
    assert ledger.trail == []


def test_a_selector_that_fails_on_a_device_halts_the_search_when_it_is_reached() -> None:
    fails = claim(wants("x", 1, select=f"{X} == 2"))
    outcome, ledger = searched(devices(a=1, b=None, c=2), fails)
    assert isinstance(outcome, Halted)
    assert (outcome.request, outcome.candidate.device_state.id.device, outcome.constraint) == (0, "b", -1)
    assert ledger.trail == []
    assert picks(searched(devices(a=2, b=None), fails)[0]) == ["a"], "not reached"


def test_all_devices_that_break_a_constraint_halt_or_are_a_plain_no() -> None:
    every = claim(wants(every=True), constraints=MATCH)
    outcome, _ = searched(devices(a=1, b=2), every)
    assert isinstance(outcome, Halted)
    assert (outcome.candidate.device_state.id.device, outcome.constraint) == ("b", 0)
    assert isinstance(searched(devices(a=1, b=2), every, soft=True)[0], Exhausted)
    assert picks(searched(devices(a=1, b=1), every)[0]) == ["a", "b"]


def test_a_claim_gets_at_most_32_results_over_all_its_requests() -> None:
    many = devices(**{f"d{i:02d}": 1 for i in range(40)})
    made = claim(first_of("a", asked(20), asked(2)), first_of("b", asked(20), asked(3)))
    outcome, _ = searched(many, made)
    assert isinstance(outcome, Found)
    assert [alternative.count for alternative in outcome.alternatives] == [20, 3]
    two, _ = searched(many, claim(wants("a", 20)), claim(wants("a", 20), name="d"))
    assert len(picks(two)) == 40, "each claim for itself"


def test_equivalent_devices_have_one_number() -> None:
    requests = search_requests(devices(a=1, b=1, c=2, d=2), claim(wants(select=f"{X} > 0"), constraints=MATCH))
    number(requests)
    a, b, c, d = [candidate.equivalent for candidate in requests[0].alternatives[0].candidates]
    assert a == b
    assert c == d
    assert a != c
