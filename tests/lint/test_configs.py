"""Configuration of drivers is judged as the drivers themselves judge it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api import files
from dragoman.drivers.nvidia.config import decode, validate
from dragoman.drivers.nvidia.gates import DriverGates
from dragoman.drivers.registry import known_drivers
from dragoman.errors import Invalid
from dragoman.lint.finding import Finding
from dragoman.lint.fix import fixed
from dragoman.lint.linter import LintTarget, lint

TARGET = LintTarget(known=known_drivers())

NV = "resource.nvidia.com/v1beta1"
ALL_ON = DriverGates(frozenset({"TimeSlicingSettings", "MPSSupport", "PassthroughSupport"}))


def text_of(
    parameters: Any, driver: str = "gpu.nvidia.com", class_name: str = "gpu.nvidia.com", requests: str = ""
) -> str:
    entry = {"opaque": {"driver": driver, "parameters": parameters}, "requests": [requests] if requests else []}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": class_name}}],
                "config": [entry],
            }
        },
    }
    return json.dumps(claim)


def findings(parameters: Any, **more: str) -> list[Finding]:
    return lint(files.scan([("f.json", text_of(parameters, **more))]), TARGET)


def gpu(**sharing: Any) -> dict[str, Any]:
    return {"apiVersion": NV, "kind": "GpuConfig", "sharing": sharing}


# sentence: parameters, field below parameters, part of the message, the fix
WRONG: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no kind": (
        {"apiVersion": NV},
        "kind",
        "a configuration without kind",
        "it takes GpuConfig, MigDeviceConfig, VfioDeviceConfig",
    ),
    "a misspelt kind": ({"apiVersion": NV, "kind": "GPUConfig"}, "kind", "does not know GPUConfig", "write GpuConfig"),
    "a kind of another driver": (
        {"apiVersion": NV, "kind": "ComputeDomainChannelConfig", "domainID": "x"},
        "kind",
        "does not know ComputeDomainChannelConfig",
        "it belongs to driver compute-domain.nvidia.com",
    ),
    "no strategy": (gpu(), "sharing", "strategy is missing", "set strategy"),
    "an unknown strategy": (
        gpu(strategy="Timeslicing"),
        "sharing.strategy",
        "cannot be 'Timeslicing'",
        "write TimeSlicing",
    ),
    "an unknown interval": (
        gpu(strategy="TimeSlicing", timeSlicingConfig={"interval": "Forever"}),
        "sharing.timeSlicingConfig.interval",
        "cannot be 'Forever'",
        "it takes Default, Short, Medium, Long",
    ),
    "a misspelt field": (
        gpu(strategy="MPS", mpsConfig={"defaultActiveThreadPercent": 10}),
        "sharing.mpsConfig.defaultActiveThreadPercent",
        "unknown field 'defaultActiveThreadPercent'",
        "write defaultActiveThreadPercentage",
    ),
    "a percentage over 100": (
        gpu(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 101}),
        "sharing.mpsConfig.defaultActiveThreadPercentage",
        "must be a number from 0 to 100, got 101",
        "",
    ),
    "too little memory": (
        gpu(strategy="MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"0": "1000"}}),
        "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.0",
        "at least 1Mi, got 1000",
        "",
    ),
    "settings of the other strategy": (
        gpu(strategy="MPS", timeSlicingConfig={"interval": "Long"}),
        "sharing.timeSlicingConfig",
        "must not be set with strategy MPS",
        "remove it, or set strategy to TimeSlicing",
    ),
    "time slices of a MIG device": (
        {"apiVersion": NV, "kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}},
        "sharing.timeSlicingConfig",
        "unknown field 'timeSlicingConfig'",
        "it knows strategy, mpsConfig",
    ),
    "an unknown policy": (
        {"apiVersion": NV, "kind": "VfioDeviceConfig", "iommu": {"backendPolicy": "Always"}},
        "iommu.backendPolicy",
        "cannot be 'Always'",
        "it takes LegacyOnly, PreferIommuFD",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_driver_does_not_take(name: str) -> None:
    parameters, field, message, fix = WRONG[name]
    (finding,) = findings(parameters)
    assert finding.code == "WrongConfig"
    assert finding.field == f"spec.devices.config[0].opaque.parameters.{field}"
    assert message in finding.message
    assert finding.fix == fix
    with pytest.raises(Invalid):
        validate(decode(parameters, "p"), ALL_ON, "p")


def test_gates_are_asked_for() -> None:
    gates = {
        "TimeSlicingSettings": gpu(strategy="TimeSlicing"),
        "MPSSupport": gpu(strategy="MPS"),
        "PassthroughSupport": {"apiVersion": NV, "kind": "VfioDeviceConfig"},
    }
    for gate, parameters in gates.items():
        class_name = "vfio.gpu.nvidia.com" if gate == "PassthroughSupport" else "gpu.nvidia.com"
        (finding,) = findings(parameters, class_name=class_name)
        assert (finding.code, finding.fix) == ("NeedsDriverGate", f"set {gate}=true for the driver")


def test_an_entry_for_a_request_must_fit_its_devices() -> None:
    plain = {"apiVersion": NV, "kind": "GpuConfig"}
    (finding,) = findings(plain, class_name="mig.nvidia.com", requests="gpu")
    assert (finding.code, finding.fix) == ("WrongConfig", "write MigDeviceConfig")
    assert findings(plain, requests="gpu") == []
    assert findings(plain, class_name="mig.nvidia.com") == [], "one for no request in particular is passed over"


def test_a_channel_needs_its_domain() -> None:
    channel = {"apiVersion": NV, "kind": "ComputeDomainChannelConfig"}
    (finding,) = findings(channel, driver="compute-domain.nvidia.com")
    assert "domainID is missing" in finding.message
    assert findings({**channel, "domainID": "d"}, driver="compute-domain.nvidia.com") == []


def test_near_words_are_put_right() -> None:
    text = text_of(gpu(strategy="Timeslicing", timeSlicingConfig={"intervall": "Short"}))
    after, _ = fixed(text, lint(files.scan([("f.json", text)]), TARGET))
    sharing = json.loads(after)["spec"]["devices"]["config"][0]["opaque"]["parameters"]["sharing"]
    assert sharing == {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}


PARTS = st.sampled_from(["TimeSlicing", "MPS", "LegacyOnly", "Short", "", "1Gi", "5", 0, 50, 200, True, None])
FIELDS = st.sampled_from(
    [
        "strategy",
        "timeSlicingConfig",
        "mpsConfig",
        "interval",
        "defaultActiveThreadPercentage",
        "defaultPinnedDeviceMemoryLimit",
        "multiUser",
        "backendPolicy",
        "enableAPIDevice",
        "other",
    ]
)
SHARING = st.dictionaries(FIELDS, PARTS | st.dictionaries(FIELDS, PARTS, max_size=2), max_size=3)


@given(
    kind=st.sampled_from(["GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"]),
    body=st.dictionaries(st.sampled_from(["sharing", "iommu", "more"]), SHARING, max_size=2),
)
def test_lint_and_driver_agree(kind: str, body: dict[str, Any]) -> None:
    parameters = {"apiVersion": NV, "kind": kind, **body}
    try:
        validate(decode(parameters, "p"), ALL_ON, "p")
        takes = True
    except Invalid:
        takes = False
    wrong = [finding for finding in findings(parameters) if finding.code == "WrongConfig"]
    assert (not wrong) == takes, wrong
