"""What a node's devices offer, with holders and gates applied: shares, what is left, taints, and gates that are off."""

from __future__ import annotations

from typing import Any

from dragoman.allocate.device_state import DeviceState, device_states_of
from dragoman.allocate.slots import rules_of
from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.pools import pools_for
from dragoman.values.quantity import Quantity
from tests.allocate.shortforms import counter_set, device, draws, held, node, options, resource_slice, rule

GI = Quantity.parse("1Gi").nanos
SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}


def states(*objects: tuple[str, Any], on: tuple[str, Any] | None = None, **gates: bool) -> dict[str, DeviceState]:
    snapshot = Snapshot.from_objects([on or node(), *objects])
    here, rules = snapshot.nodes["n1"], rules_of(options(**gates).gates)
    found = device_states_of(snapshot, here, pools_for(snapshot, here), rules)
    assert [state.position for state in found] == list(range(len(found)))
    return {state.id.device: state for state in found}


def test_a_plain_device_is_free_until_a_claim_holds_it_alone() -> None:
    found = states(resource_slice([device("a"), device("b")]), held("b"))
    assert [(s.exclusive, s.shares, s.multi) for s in found.values()] == [(False, 0, False), (True, 1, False)]


def test_shares_leave_what_they_did_not_consume() -> None:
    shares = [
        held("a", claim_name=name, shareID=f"id-{name}", consumedCapacity={"memory": size, "other": "1"})
        for name, size in (("one", "3Gi"), ("two", "512Mi"))
    ]
    state = states(resource_slice([device("a", **SHARED)]), *shares)["a"]
    assert (state.multi, state.exclusive, state.shares) == (True, False, 2)
    assert state.left == {"memory": 8 * GI - 3 * GI - GI // 2}


def test_a_device_that_is_no_longer_shareable_belongs_to_whom_has_it() -> None:
    shared = held("a", claim_name="one", shareID="id")
    assert states(resource_slice([device("a")]), shared)["a"].exclusive
    assert states(resource_slice([device("a", **SHARED)]), held("a", claim_name="whole"))["a"].exclusive


def test_without_consumable_capacity_nothing_is_shared() -> None:
    state = states(resource_slice([device("a", **SHARED)]), DRAConsumableCapacity=False)["a"]
    assert (state.multi, state.left, dict(state.capacity)) == (False, {}, {})


def test_taints_of_rules_count_beside_those_of_the_driver_unless_their_gate_is_off() -> None:
    tainted = resource_slice([device("a", taints=[{"key": "own", "effect": "NoSchedule"}])])
    drain = rule("drain", {"device": "a"}, key="drain")
    found = {
        gate: [(by, taint.key) for by, taint in states(tainted, drain, **{gate: False})["a"].taints]
        for gate in ("DRADeviceTaints", "DRADeviceTaintRules", "DRAListTypeAttributes")
    }
    assert found == {
        "DRADeviceTaints": [],
        "DRADeviceTaintRules": [("", "own")],
        "DRAListTypeAttributes": [("", "own"), ("drain", "drain")],
    }


def test_partitions_are_gated_by_their_counters_and_by_groups_that_somebody_recorded() -> None:
    counters = resource_slice(name="s2", count=2, sharedCounters=[counter_set(mem=8)])
    plain = device("plain", consumesCounters=[draws(mem=4)])
    grouped = device("grouped", consumesCounters=[draws(mem=4, compatibility=["x"])])
    pool = (resource_slice([plain, grouped, device("whole")], count=2), counters)
    names = {gate: {n: s.gated for n, s in states(*pool, **{gate: False}).items()} for gate in GATES}
    assert names["DRAPartitionableDevices"] == dict.fromkeys(("plain", "grouped"), "DRAPartitionableDevices") | {
        "whole": ""
    }
    assert names["DRADeviceCompatibilityGroups"] == {
        "plain": "",
        "grouped": "DRADeviceCompatibilityGroups",
        "whole": "",
    }
    assert set(names["DRADeviceTaints"].values()) == {""}
    recorded = held("grouped", compatibilityGroups={"set": ["x"]})
    assert states(*pool, recorded, DRADeviceCompatibilityGroups=False)["plain"].gated == "DRADeviceCompatibilityGroups"


GATES = ("DRAPartitionableDevices", "DRADeviceCompatibilityGroups", "DRADeviceTaints")


def test_binding_conditions_are_gated_before_selectors() -> None:
    binding = device("a", bindingConditions=["Ready"], bindingFailureConditions=["Broken"])
    assert states(resource_slice([binding]))["a"].gated_early == ""
    off = states(resource_slice([binding]), DRADeviceBindingConditions=False)["a"]
    assert (off.gated_early, off.gated) == ("DRADeviceBindingConditions", "")


def test_slices_that_skip_node_operations_need_a_node_that_declares_it() -> None:
    skipping = resource_slice([device("a")], skipNodeOperations=["All"])
    body = {"metadata": {"name": "n1"}, "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    declares = ("Node", decode(Node, body))
    assert states(skipping)["a"].gated == "DRAOptionalNodeOperations"
    assert states(skipping, on=declares)["a"].gated == ""
    assert states(skipping, on=declares, DRAOptionalNodeOperations=False)["a"].gated == "DRAOptionalNodeOperations"


def test_pools_that_are_not_complete_offer_nothing() -> None:
    assert list(
        states(resource_slice([device("a")], count=2), resource_slice([device("b")], pool="p2", name="s2"))
    ) == ["b"]
