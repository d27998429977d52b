"""Opaque configuration: which entry applies, what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api import codec
from dragoman.api.resource import DeviceAllocationConfiguration
from dragoman.drivers.nvidia.classes import GPU as DRIVER
from dragoman.drivers.nvidia.config import (
    API_VERSION,
    ConfigGroup,
    DeviceType,
    MpsConfig,
    admission,
    decode,
    memory_limits,
    normalised,
    resolved,
    validate,
)
from dragoman.drivers.nvidia.gates import gates_with
from dragoman.errors import Invalid
from dragoman.node.driver import ClaimToPrepare

from .bench_of_gpus import gpus_claim, opaque, ref

ALL = gates_with({"TimeSlicingSettings": True, "MPSSupport": True, "PassthroughSupport": True})
NONE = gates_with({})


def gpu(strategy: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": strategy, **more}}


REFUSED = {
    "no object": ("text", "p: must be an object"),
    "an old version": ({"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig"}, "p.apiVersion: must be resource.nv"),
    "an unknown kind": ({"apiVersion": API_VERSION, "kind": "Gpu"}, "p.kind: must be one of GpuConfig, MigDeviceConfig"),
    "a kind of the other driver": (
        {"apiVersion": API_VERSION, "kind": "ComputeDomainChannelConfig"},
        "it belongs to compute-domain.nvidia.com",
    ),
    "an unknown field": (
        {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharin": {}},
        "p: unknown field `sharin`",
    ),
    "an unknown field inside": (gpu("MPS", mpsConfig={"limit": 1}), "p.sharing.mpsConfig: unknown field `limit`"),
    "no strategy": (
        {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {}},
        "p.sharing: missing field `strategy`",
    ),
    "an unknown strategy": (gpu("Turns"), "p.sharing.strategy: must be TimeSlicing or MPS, got 'Turns'"),
    "an unknown interval": (
        gpu("TimeSlicing", timeSlicingConfig={"interval": "Huge"}),
        "p.sharing.timeSlicingConfig.interval: must be one of Default, Short, Medium, Long, got 'Huge'",
    ),
    "a wrong type": (
        gpu("MPS", mpsConfig={"defaultActiveThreadPercentage": "50"}),
        "p.sharing.mpsConfig.defaultActiveThreadPercentage: expected `int | null`, got `str`",
    ),
    "too many per cent": (
        gpu("MPS", mpsConfig={"defaultActiveThreadPercentage": 101}),
        "p.sharing.mpsConfig.defaultActiveThreadPercentage: must be 0 to 100, got 101",
    ),
    "too little memory": (
        gpu("MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "1023Ki"}),
        "p.sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: value set too low",
    ),
    "no quantity": (
        gpu("MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"0": "lots"}}),
        "p.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[0]",
    ),
    "MPS settings with time-slicing": (gpu("TimeSlicing", mpsConfig={}), "p.sharing.mpsConfig: must not be set"),
    "time-slicing settings with MPS": (gpu("MPS", timeSlicingConfig={}), "p.sharing.timeSlicingConfig: must not be set"),
    "time-slicing settings of a MIG device": (
        {
            "apiVersion": API_VERSION,
            "kind": "MigDeviceConfig",
            "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}},
        },
        "p.sharing: unknown field `timeSlicingConfig`",
    ),
    "an unknown backend": (
        {"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": {"backendPolicy": "Best"}},
        "p.iommu.backendPolicy: must be LegacyOnly or PreferIommuFD",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_configuration_gets_one_error_with_the_field(case: str) -> None:
    parameters, text = REFUSED[case]
    with pytest.raises(Invalid) as caught:
        validate(normalised(decode(parameters, "p"), ALL), ALL, "p")
    assert text in str(caught.value)


GATED = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}


@pytest.mark.parametrize("strategy", GATED)
def test_a_strategy_needs_its_gate(strategy: str) -> None:
    with pytest.raises(Invalid, match=f"needs the driver's feature gate {GATED[strategy]}, which is off"):
        validate(decode(gpu(strategy), "p"), NONE, "p")
    validate(normalised(decode(gpu(strategy), "p"), ALL), ALL, "p")


def test_defaults_come_with_the_gate() -> None:
    assert normalised(decode(gpu("TimeSlicing"), "p"), ALL).sharing.time_slicing_config.interval == "Default"  # type: ignore[union-attr]
    assert normalised(decode(gpu("TimeSlicing"), "p"), NONE).sharing.time_slicing_config is None  # type: ignore[union-attr]
    assert normalised(decode(gpu("MPS"), "p"), ALL).sharing.mps_config == MpsConfig()  # type: ignore[union-attr]


def groups(*entries: dict[str, Any], **types: DeviceType) -> tuple[ConfigGroup, ...]:
    """Resolve for devices given as name=type; request r0 for the first, ..."""
    names = {name.replace("_", "-"): kind for name, kind in types.items()}
    allocated = gpus_claim("a", *names)
    assert allocated.status.allocation is not None
    config = codec.decode(list[DeviceAllocationConfiguration], list(entries))
    work = ClaimToPrepare(
        ref("a"), allocated.status.allocation.devices.results, tuple(config), allocated, lambda state: None
    )
    return resolved(work, names, ALL)


def intervals(made: tuple[ConfigGroup, ...]) -> dict[str, str]:
    found = {}
    for group in made:
        sharing = getattr(group.config, "sharing", None)
        settings = getattr(sharing, "time_slicing_config", None)
        for result in group.results:
            found[result.device] = settings.interval if settings else "-"
    return found


def slicing(interval: str, *requests: str, source: str = "FromClaim") -> dict[str, Any]:
    settings = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return opaque("GpuConfig", *requests, source=source, sharing=settings)


PRECEDENCE = {
    "nothing": ((), {"gpu-0": "-", "gpu-1": "-"}),
    "the claim over the class": (
        (slicing("Short", source="FromClass"), slicing("Long")),
        {"gpu-0": "Long", "gpu-1": "Long"},
    ),
    "the later of two": ((slicing("Short"), slicing("Long")), {"gpu-0": "Long", "gpu-1": "Long"}),
    "by request": ((slicing("Short", "r0"), slicing("Long", "r1")), {"gpu-0": "Short", "gpu-1": "Long"}),
    "a later general entry wins over an earlier particular one": (
        (slicing("Short", "r0"), slicing("Long")),
        {"gpu-0": "Long", "gpu-1": "Long"},
    ),
    "what does not fit is passed over": (
        (slicing("Short"), opaque("MigDeviceConfig")),
        {"gpu-0": "Short", "gpu-1": "Short"},
    ),
}


@pytest.mark.parametrize("case", PRECEDENCE)
def test_the_entry_that_applies(case: str) -> None:
    entries, expected = PRECEDENCE[case]
    assert intervals(groups(*entries, gpu_0="gpu", gpu_1="gpu")) == expected


def test_results_of_one_entry_form_a_group() -> None:
    made = groups(slicing("Long", "r0", "r2"), gpu_0="gpu", gpu_1="gpu", gpu_2="gpu")
    assert sorted([result.device for result in group.results] for group in made) == [["gpu-0", "gpu-2"], ["gpu-1"]]


def test_a_named_request_must_fit_the_kind() -> None:
    with pytest.raises(Invalid, match="MigDeviceConfig cannot configure request r0, whose device is of type gpu"):
        groups(opaque("MigDeviceConfig", "r0"), gpu_0="gpu")


def test_the_parent_of_a_subrequest_counts_as_its_name() -> None:
    entries = codec.decode(list[DeviceAllocationConfiguration], [slicing("Long", "r")])
    allocated = gpus_claim("a", "gpu-0", request="r/second")
    assert allocated.status.allocation is not None
    results = allocated.status.allocation.devices.results
    work = ClaimToPrepare(ref("a"), results, tuple(entries), allocated, lambda state: None)
    assert intervals(resolved(work, {"gpu-0": "gpu"}, ALL)) == {"gpu-0": "Long"}


def test_one_vfio_entry_a_claim() -> None:
    with pytest.raises(Invalid, match="at most one VfioDeviceConfig"):
        groups(opaque("VfioDeviceConfig", "r0"), opaque("VfioDeviceConfig", "r1"), gpu_vfio_0="vfio", gpu_vfio_1="vfio")


LIMITS = {
    "one for all": ({"default_pinned_device_memory_limit": "1Gi"}, {"GPU-a": "1024M", "GPU-b": "1024M"}),
    "by index of the sorted uuids": ({"default_per_device_pinned_memory_limit": {"1": "2Gi"}}, {"GPU-b": "2048M"}),
    "by uuid over the default": (
        {"default_pinned_device_memory_limit": "1Gi", "default_per_device_pinned_memory_limit": {"GPU-a": "1536Mi"}},
        {"GPU-a": "1536M", "GPU-b": "1024M"},
    ),
    "rounded down": ({"default_pinned_device_memory_limit": "3000Ki"}, {"GPU-a": "2M", "GPU-b": "2M"}),
}


@pytest.mark.parametrize("case", LIMITS)
def test_memory_limits(case: str) -> None:
    fields, expected = LIMITS[case]
    assert memory_limits(MpsConfig(**fields), ["GPU-b", "GPU-a"], "p") == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "text"), [("2", "index out of range: the group has 2 devices"), ("x", "must be the UUID")]
)
def test_limits_of_devices_that_are_not_there(key: str, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        memory_limits(MpsConfig(default_per_device_pinned_memory_limit={key: "1Gi"}), ["GPU-a", "GPU-b"], "p")


def test_admission_lists_all_problems_of_claims_templates_and_classes() -> None:
    bad = {"opaque": {"driver": DRIVER, "parameters": gpu("Turns")}}
    good = {"opaque": {"driver": DRIVER, "parameters": gpu("MPS")}}
    other = {"opaque": {"driver": "other.example.com", "parameters": {"kind": 1}}}
    devices = {"devices": {"config": [good, bad, other, bad]}}
    text = admission({"kind": "ResourceClaim", "spec": devices}, DRIVER, ALL)
    assert text.startswith("2 configs failed to validate: spec.devices.config[1].opaque.parameters.sharing.strategy")
    assert "spec.spec.devices.config[3]" in admission(
        {"kind": "ResourceClaimTemplate", "spec": {"spec": devices}}, DRIVER, ALL
    )
    assert "spec.config[0]" in admission({"kind": "DeviceClass", "spec": {"config": [bad]}}, DRIVER, ALL)
    assert not admission({"kind": "ResourceClaim", "spec": {"devices": {"config": [good, other]}}}, DRIVER, ALL)
    vfio = {"opaque": {"driver": DRIVER, "parameters": {"apiVersion": API_VERSION, "kind": "VfioDeviceConfig"}}}
    assert not admission({"kind": "ResourceClaim", "spec": {"devices": {"config": [vfio]}}}, DRIVER, ALL)
