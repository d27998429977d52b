"""What claims ask for in plain terms, and what is wrong with a claim whatever the devices are."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.slots import ClaimPlan, plan_claim, plan_claims, rules_of
from dragoman.api.gates import gates_with
from dragoman.api.resource import ResourceClaim
from dragoman.snapshot.change import Snapshot
from dragoman.values.quantity import Quantity
from tests.allocate.shortforms import ALPHA, asked, claim, device_class, first_of, wants

SNAPSHOT = Snapshot.from_objects([device_class(), device_class("fpga", "device.driver == 'fpga.example.com'")])


def planned(made: ResourceClaim, **gates: bool) -> Any:
    return plan_claim(made, SNAPSHOT, rules_of(gates_with({**ALPHA, **gates})[0]))


def test_a_request_has_the_selectors_of_its_class_before_its_own() -> None:
    plan = planned(claim(wants("r", 3, select="device.attributes['gpu.example.com'].x == 1")))
    ((request,),) = plan.requests
    assert (request.request, request.parent, request.option, request.count) == ("r", "r", -1, 3)
    assert [(s.class_name, s.index) for s in request.selectors] == [("gpu", 0), ("", 0)]
    assert plan.key == "default/c"


def test_all_devices_are_a_count_of_nothing() -> None:
    ((request,),) = planned(claim(wants(every=True))).requests
    assert request.count == 0


def test_alternatives_keep_their_order_and_their_names() -> None:
    (alternatives,) = planned(claim(first_of("r", asked(2), asked(1)))).requests
    assert [(a.request, a.parent, a.option, a.count) for a in alternatives] == [
        ("r/s0", "r", 0, 2),
        ("r/s1", "r", 1, 1),
    ]


def test_a_constraint_concerns_the_requests_that_it_names_or_all() -> None:
    constraints = [
        {"matchAttribute": "e.com/a", "requests": ["x"]},
        {"matchAttribute": "e.com/b", "requests": ["y/s1"]},
        {"distinctAttribute": "e.com/c"},
    ]
    plan = planned(claim(wants("x"), first_of("y", asked(), asked()), constraints=constraints))
    assert [[a.constraints for a in alternatives] for alternatives in plan.requests] == [[(0, 2)], [(2,), (1, 2)]]
    assert [(c.kind, c.attribute) for c in plan.constraints] == [
        ("match", "e.com/a"),
        ("match", "e.com/b"),
        ("distinct", "e.com/c"),
    ]


def test_amounts_and_admin_access_are_those_of_the_request() -> None:
    ((request,),) = planned(claim(wants(capacity={"requests": {"memory": "4Gi"}}, adminAccess=True))).requests
    assert request.capacity == {"memory": Quantity(4 * 2**30 * 10**9)}
    assert request.admin


WRONG: dict[str, tuple[ResourceClaim, dict[str, bool], str, dict[str, Any]]] = {
    "no such class, and one that is near": (
        claim(wants(deviceClassName="gpus")),
        {},
        "ClassNotFound",
        {"class_name": "gpus", "near": ("gpu",)},
    ),
    "no class": (claim(wants(deviceClassName="")), {}, "ClassNotSpecified", {"request": "r"}),
    "an unknown mode": (claim(wants(allocationMode="Some")), {}, "UnsupportedMode", {"mode": "Some"}),
    "a selector that does not compile": (claim(wants(select="device.")), {}, "SelectorInvalid", {"index": 0}),
    "a request of a kind that is not known": (claim({"name": "r"}), {}, "UnsupportedRequest", {"request": "r"}),
    "a constraint of a kind that is not known": (claim(wants(), constraints=[{}]), {}, "EmptyConstraint", {"index": 0}),
    "too many devices over all requests": (
        claim(wants("a", 20), wants("b", 13)),
        {},
        "TooManyDevices",
        {"count": 33, "limit": 32},
    ),
    "alternatives, with the gate off": (
        claim(first_of("r", asked())),
        {"DRAPrioritizedList": False},
        "FeatureGateDisabled",
        {"field": "firstAvailable"},
    ),
    "admin access, with the gate off": (
        claim(wants(adminAccess=True)),
        {"DRAAdminAccess": False},
        "FeatureGateDisabled",
        {"feature": "DRAAdminAccess"},
    ),
    "amounts, with the gate off": (
        claim(wants(capacity={"requests": {"m": "1"}})),
        {"DRAConsumableCapacity": False},
        "FeatureGateDisabled",
        {"field": "capacity"},
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_device_can_help_is_refused_for_the_whole_pod(case: str) -> None:
    made, gates, kind, fields = WRONG[case]
    found = planned(made, **gates)
    assert type(found).__name__ == kind
    assert {name: getattr(found, name) for name in fields} == fields
    assert found.claim == "default/c"


def test_the_least_of_all_alternatives_counts_against_the_limit() -> None:
    plan = planned(claim(first_of("a", asked(32), asked(2)), wants("b", 30)))
    assert isinstance(plan, ClaimPlan)


def test_of_several_claims_the_first_fault_is_given() -> None:
    rules = rules_of(gates_with({})[0])
    good, bad, worse = (
        claim(wants(), name="good"),
        claim(wants(deviceClassName=""), name="bad"),
        claim(wants(count=99), name="worse"),
    )
    found = plan_claims([good, bad, worse], SNAPSHOT, rules)
    assert not isinstance(found, list)
    assert found.claim == "default/bad"
    assert isinstance(plan_claims([good], SNAPSHOT, rules), list)
