"""The steps of one decision: what is refused before any search, shared claims, and what the answer carries."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate import refusal
from dragoman.allocate.allocator import Allocation, Ask, SearchLimits, allocate
from dragoman.allocate.match import Matcher
from dragoman.allocate.pace import OutOfTime
from dragoman.allocate.refusal import Refusals
from dragoman.allocate.values import ChosenAlternative
from dragoman.snapshot.change import Snapshot
from tests.allocate.shortforms import (
    DRIVER,
    asked,
    claim,
    device,
    device_class,
    first_of,
    given,
    node,
    options,
    resource_slice,
    run,
    wants,
)


def reason(answer: Any) -> Any:
    assert isinstance(answer, Refusals), answer
    (only,) = answer.reasons
    return only


def snapshot(*objects: tuple[str, Any]) -> Snapshot:
    return Snapshot.from_objects([node(), node("n2"), device_class(), *objects])


def ask(on: Snapshot, *asks: Ask) -> Any:
    return allocate(on, asks, options(), share_id=lambda: "id")


def test_a_node_that_is_not_there_is_named() -> None:
    assert reason(ask(snapshot(), Ask((claim(wants()),), "n3"))) == refusal.NodeNotFound(node="n3")


def test_more_devices_than_a_claim_may_have_are_refused_before_any_search() -> None:
    objects = [resource_slice([device(f"d{i:02d}") for i in range(40)])]
    answer = run(objects, claim(wants("x", 20), first_of("y", asked(30), asked(13))))
    assert reason(answer) == refusal.TooManyDevices(claim="default/c", count=33, limit=32, node="")
    assert answer.pod_wide, "whatever the node"
    assert isinstance(run(objects, claim(wants("x", 20), first_of("y", asked(30), asked(12)))), Allocation)


def test_all_devices_of_a_node_that_are_too_many_are_its_own_refusal() -> None:
    objects = [resource_slice([device(f"d{i:02d}") for i in range(33)])]
    answer = run(objects, claim(wants(every=True)))
    assert reason(answer) == refusal.TooManyDevices(claim="default/c", count=33, limit=32, node="n1")
    assert (answer.pod_wide, answer.steps) == (False, 0)


def test_too_few_for_one_request_alone_take_no_search() -> None:
    answer = run([resource_slice([device("a"), device("b")])], claim(wants("x"), wants("y", 3)))
    assert isinstance(reason(answer), refusal.InsufficientDevices)
    assert (reason(answer).request, answer.steps) == ("y", 0)


def test_all_devices_of_a_pool_that_is_not_complete_are_not_all() -> None:
    objects = [resource_slice([device("a")], count=2)]
    assert given(run(objects, claim(wants(every=True)))) == ["!PoolIncomplete"]


def test_a_selector_that_fails_on_the_first_of_all_devices_is_named() -> None:
    broken = claim(wants(every=True, select=f"device.attributes['{DRIVER}'].x == 1"))
    answer = run([resource_slice([device("a"), device("b")])], broken)
    assert isinstance(reason(answer), refusal.SelectorError)
    assert reason(answer).device.device == "a"


def test_a_claim_of_two_pods_on_two_nodes_gets_only_devices_that_both_reach() -> None:
    shared = claim(wants())
    local = resource_slice([device("local")])
    asks = (Ask((shared,), "n1"), Ask((shared,), "n2"))
    assert isinstance(ask(snapshot(local), *asks), Refusals)
    everywhere = resource_slice([device("far")], name="s2", pool="p2", allNodes=True)
    answer = ask(snapshot(local, everywhere), *asks)
    assert isinstance(answer, Allocation)
    first, second = (row[0] for row in answer.results)
    assert first == second
    assert [result.device for result in first.devices.results] == ["far"]


def test_several_claims_of_several_asks_come_back_in_their_places() -> None:
    one, two = claim(wants(), name="one"), claim(wants(), name="two")
    answer = ask(snapshot(resource_slice([device("a"), device("b")])), Ask((one,), "n1"), Ask((two, one), "n1"))
    assert isinstance(answer, Allocation)
    names = [[a.devices.results[0].device for a in row] for row in answer.results]
    assert names == [["a"], ["b", "a"]]


def test_what_was_chosen_among_alternatives_is_said_for_scores() -> None:
    answer = run([resource_slice([device("a"), device("b")])], claim(first_of("r", asked(3), asked(2)), name="c"))
    assert isinstance(answer, Allocation)
    assert answer.chosen == (ChosenAlternative("default/c", "r", 1),)


def test_a_slice_with_several_selector_terms_is_refused_when_its_device_is_picked() -> None:
    selector = [{"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]} for key in ("x", "y")]
    wide = resource_slice([device("a")], nodeSelector={"nodeSelectorTerms": selector})
    found = reason(run([wide], claim(wants())))
    assert isinstance(found, refusal.MultipleSelectorTerms)
    assert (found.terms, found.device.device) == (2, "a")


def test_a_limit_of_steps_is_no_refusal() -> None:
    many = [resource_slice([device(f"d{i}", attrs={"a": i % 3, "b": i % 5}) for i in range(20)])]
    constraints = [{"distinctAttribute": f"{DRIVER}/b", "requests": ["x"]}, {"matchAttribute": f"{DRIVER}/a"}]
    wanted = claim(wants("x", 2), wants("y", 5), constraints=constraints)
    few = options()
    few = type(few)(gates=few.gates, limits=SearchLimits(search_steps=3))
    answer = allocate(snapshot(*many), [Ask((wanted,), "n1")], few, share_id=lambda: "id")
    assert isinstance(answer, refusal.Undecided)
    assert answer.limit.claims == ("default/c",)


def test_a_decision_that_is_out_of_time_names_its_node() -> None:
    def check(work: int) -> None:
        raise OutOfTime

    matcher = Matcher()
    matcher.check = check
    with pytest.raises(OutOfTime) as stopped:
        allocate(
            snapshot(resource_slice([device("a")])),
            [Ask((claim(wants()),), "n1")],
            options(),
            share_id=lambda: "id",
            matcher=matcher,
        )
    assert stopped.value.node == "n1"
