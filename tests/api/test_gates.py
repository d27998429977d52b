"""Feature gates: Kubernetes' names, 1.37 defaults, dependants, and what Kubernetes itself would refuse."""

from __future__ import annotations

import pytest

from dragoman.api.gates import DEFAULTS, GATES, gates_with, parse_gates, refusals_of, strict_gates
from dragoman.errors import Invalid


def test_defaults_are_those_of_1_37() -> None:
    assert DEFAULTS.on("DRAConsumableCapacity")
    assert DEFAULTS.on("DRADeviceTaintRules")
    assert not DEFAULTS.on("DRAListTypeAttributes")
    assert not DEFAULTS.on("DRAWorkloadResourceClaims")


def test_no_gate_is_on_by_default_without_what_it_needs() -> None:
    for name in DEFAULTS.enabled:
        assert all(DEFAULTS.on(needed) for needed in GATES[name].needs), name


def test_turning_a_gate_off_turns_off_its_dependants_and_says_so() -> None:
    gates, dropped = parse_gates("DRADeviceTaints=false")
    assert not gates.on("DRADeviceTaintRules")
    assert dropped == ("DRADeviceTaintRules",)


def test_a_gate_that_is_asked_for_brings_what_it_needs() -> None:
    gates, dropped = parse_gates("DRAWorkloadResourceClaims=true")
    assert gates.on("GenericWorkload")
    assert dropped == ()


def test_contradictions_are_reported() -> None:
    gates, dropped = parse_gates("DRADeviceTaints=false, DRADeviceTaintRules=true")
    assert not gates.on("DRADeviceTaintRules")
    assert dropped == ("DRADeviceTaintRules",)


def test_dynamic_resource_allocation_takes_everything_with_it() -> None:
    gates, dropped = gates_with({"DynamicResourceAllocation": False})
    assert not any(name.startswith("DRA") for name in gates.enabled)
    assert "DRADeviceTaintRules" in dropped


@pytest.mark.parametrize("text", ["DRANonsense=true", "DRAAdminAccess", "DRAAdminAccess=perhaps"])
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(Invalid, match=text.partition("=")[0]):
        parse_gates(text)


def test_asking_for_an_unknown_gate_is_an_error() -> None:
    with pytest.raises(Invalid, match="DRANonsense"):
        DEFAULTS.on("DRANonsense")


def test_what_kubernetes_would_not_start_with() -> None:
    assert refusals_of({"DRAAdminAccess": False}) == ("cannot set feature gate DRAAdminAccess to false, it is locked",)
    assert refusals_of({"DRAAdminAccess": True, "DRAListTypeAttributes": True}) == ()
    assert refusals_of({"DRADeviceTaints": False, "DRADeviceTaintRules": True}) == (
        "feature gate DRADeviceTaintRules needs DRADeviceTaints, which is off",
    )
    assert refusals_of({"Nope": True}) == ("unknown feature gate 'Nope'",)
    assert strict_gates("DRANodeAllocatableResources=true").on("DRANodeAllocatableResources")
    with pytest.raises(Invalid, match="DRAAdminAccess to false, it is locked"):
        strict_gates("DRAAdminAccess=false")
