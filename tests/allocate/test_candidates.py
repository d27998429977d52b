"""Which devices of a node can serve a request, in which order, and the step that drops each of the others."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.candidates import DeviceFilter, RequestCandidates
from dragoman.allocate.device_state import DeviceState, device_states_of
from dragoman.allocate.fragmentation import Demand
from dragoman.allocate.match import Matcher
from dragoman.allocate.policy import FIRST_FIT, PACK
from dragoman.allocate.slots import ClaimPlan, plan_claim, rules_of
from dragoman.api.resource import ResourceClaim
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.pools import pools_for
from tests.allocate.shortforms import (
    DRIVER,
    claim,
    counter_set,
    device,
    device_class,
    draws,
    held,
    node,
    options,
    resource_slice,
    wants,
)

X = f"device.attributes['{DRIVER}'].x"


def filtered(
    objects: list[Any], made: ResourceClaim, policy: Any = FIRST_FIT
) -> tuple[DeviceFilter, ClaimPlan, list[DeviceState], RequestCandidates]:
    """What is left of a node's devices for the claim's first request."""
    snapshot = Snapshot.from_objects([node(), device_class(), *objects])
    rules = rules_of(options().gates)
    states = device_states_of(snapshot, snapshot.nodes["n1"], pools_for(snapshot, snapshot.nodes["n1"]), rules)
    plan = plan_claim(made, snapshot, rules)
    assert isinstance(plan, ClaimPlan)
    found = DeviceFilter(rules, Matcher(), policy, Demand())
    return found, plan, states, found.alternative(plan, plan.requests[0][0], states)


def names(found: RequestCandidates) -> list[str]:
    return [candidate.device_state.id.device for candidate in found.candidates]


TAINT = {"key": "k", "effect": "NoSchedule"}
SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}

DROPPED: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "that no selector matches": ([resource_slice([device("d", attrs={"x": 2})])], {"select": f"{X} == 1"}, "selector"),
    "that somebody holds": (
        [resource_slice([device("d", attrs={"x": 1})]), held("d")],
        {"select": f"{X} == 1"},
        "held",
    ),
    "held, but not matching either": (
        [resource_slice([device("d", attrs={"x": 2})]), held("d")],
        {"select": f"{X} == 1"},
        "selector",
    ),
    "with a taint": ([resource_slice([device("d", taints=[TAINT])])], {}, "taint"),
    "without the amount's name": (
        [resource_slice([device("d", **SHARED)])],
        {"capacity": {"requests": {"cores": "1"}}},
        "lacking",
    ),
    "with too little": (
        [resource_slice([device("d", **SHARED)])],
        {"capacity": {"requests": {"memory": "9"}}},
        "capacity",
    ),
    "whose counters are used up": (
        [
            resource_slice(name="counters", count=2, sharedCounters=[counter_set(memory=4)]),
            resource_slice([device("d", consumesCounters=[draws(memory=5)])], count=2),
        ],
        {},
        "counters",
    ),
}


@pytest.mark.parametrize("case", DROPPED)
def test_a_device_is_dropped(case: str) -> None:
    objects, fields, step = DROPPED[case]
    found, plan, states, candidates = filtered(objects, claim(wants(**fields)))
    request = plan.requests[0][0]
    assert names(candidates) == []
    assert [found.reported(request, state) for state in states] == [step]
    dropped = found.tally(request, states, bad=3)
    assert (dropped.seen, getattr(dropped, step), dropped.bad_pool, dropped.available) == (1, 1, 3, 0)


def test_a_taint_that_is_tolerated_drops_nothing() -> None:
    tolerations = [{"key": "k", "operator": "Exists"}]
    objects = [resource_slice([device("d", taints=[TAINT])])]
    assert names(filtered(objects, claim(wants(tolerations=tolerations)))[3]) == ["d"]


def test_admin_access_sees_what_is_held_and_draws_on_nothing() -> None:
    objects = [resource_slice([device("d"), device("e")]), held("d")]
    assert names(filtered(objects, claim(wants()))[3]) == ["e"]
    assert names(filtered(objects, claim(wants(adminAccess=True)))[3]) == ["d", "e"]


def test_for_all_devices_the_first_that_is_held_is_what_blocks() -> None:
    objects = [resource_slice([device(name, attrs={"x": int(name != "c")}) for name in "abc"]), held("b")]
    found = filtered(objects, claim(wants(every=True, select=f"{X} == 1")))[3]
    assert names(found) == ["a", "b"]
    assert found.count == 2
    assert found.blocked is not None
    assert (found.blocked[0].id.device, found.blocked[1]) == ("b", "held")


def test_a_selector_that_fails_is_a_candidate_of_its_own_and_alone_for_all_devices() -> None:
    devices = [resource_slice([device("a", attrs={"x": 1}), device("b"), device("c", attrs={"x": 1})])]
    found = filtered(devices, claim(wants(select=f"{X} == 1")))[3]
    assert names(found) == ["a", "b", "c"]
    assert [candidate.failure is not None for candidate in found.candidates] == [False, True, False]
    assert names(filtered(devices, claim(wants(every=True, select=f"{X} == 1")))[3]) == ["b"]


def test_a_device_without_the_attribute_of_a_constraint_is_no_candidate_but_bars_all() -> None:
    devices = [resource_slice([device("a", attrs={"root": "1"}), device("b")])]
    match = [{"matchAttribute": f"{DRIVER}/root"}]
    assert names(filtered(devices, claim(wants(), constraints=match))[3]) == ["a"]
    every = filtered(devices, claim(wants(every=True), constraints=match))[3]
    assert [candidate.barred for candidate in every.candidates] == [-1, 0]


def test_a_policy_that_weighs_puts_devices_of_less_worth_first_and_leaves_failing_ones_out() -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}
    objects = [
        resource_slice([device("a", **shared), device("b", **shared), device("broken")]),
        held("b", shareID="00000000-0000-4000-8000-000000000001", consumedCapacity={"memory": "4"}),
    ]
    asks = claim(
        wants(
            capacity={"requests": {"memory": "2"}},
            select="device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1'))",
        )
    )
    found = filtered(objects, asks, PACK)[3]
    assert names(found) == ["b", "a"], "what is begun is filled first"
    assert len(found.skipped) == 1
    assert names(filtered(objects, asks)[3]) == ["a", "b", "broken"]
