"""What did a claim or class configure? Opaque parameters of `resource.nvidia.com/v1beta1`, decoded strictly.

Pure: decodes, fills defaults, validates, and finds the entry that applies to each device. It never touches hardware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from dragoman.api.resource import DeviceRequestAllocationResult
from dragoman.drivers.nvidia.gates import DriverGates
from dragoman.errors import Invalid
from dragoman.node.driver import ClaimToPrepare
from dragoman.values.quantity import Quantity

API_VERSION = "resource.nvidia.com/v1beta1"
INTERVALS = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}
TIME_SLICING, MPS = "TimeSlicing", "MPS"
MIB = 2**20
NANOS = 10**9

DeviceType: TypeAlias = Literal["gpu", "mig", "vfio"]
Result: TypeAlias = DeviceRequestAllocationResult


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base: unknown fields are errors."""


class TimeSlicingConfig(_Part, frozen=True):
    """interval: Default, Short, Medium or Long."""

    interval: str | None = None


class MpsConfig(_Part, frozen=True):
    """Limits of the MPS daemon; quantities as text. Keys of the per-device map: UUIDs, or indexes of sorted UUIDs."""

    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: str | int | None = None
    default_per_device_pinned_memory_limit: dict[str, str | int] = {}
    multi_user: bool = False


class GpuSharing(_Part, frozen=True):
    """strategy TimeSlicing or MPS, and that strategy's settings."""

    strategy: str
    time_slicing_config: TimeSlicingConfig | None = None
    mps_config: MpsConfig | None = None


class MigSharing(_Part, frozen=True):
    """strategy MPS; TimeSlicing is accepted and changes nothing."""

    strategy: str
    mps_config: MpsConfig | None = None


class Iommu(_Part, frozen=True):
    """backendPolicy LegacyOnly or PreferIommuFD; enableAPIDevice injects the API's device too."""

    backend_policy: str = "LegacyOnly"
    enable_api_device: bool = msgspec.field(name="enableAPIDevice", default=False)


class GpuConfig(_Part, frozen=True):
    """Of full GPUs; sharing None is use by one without tuning."""

    sharing: GpuSharing | None = None


class MigDeviceConfig(_Part, frozen=True):
    """Of MIG devices."""

    sharing: MigSharing | None = None


class VfioDeviceConfig(_Part, frozen=True):
    """Of GPUs that are passed through."""

    iommu: Iommu = Iommu()


Config: TypeAlias = GpuConfig | MigDeviceConfig | VfioDeviceConfig
KINDS: dict[str, type[Config]] = {kind.__name__: kind for kind in (GpuConfig, MigDeviceConfig, VfioDeviceConfig)}
FITTING: dict[DeviceType, type[Config]] = {"gpu": GpuConfig, "mig": MigDeviceConfig, "vfio": VfioDeviceConfig}
OTHER_DRIVERS = ("ComputeDomainChannelConfig", "ComputeDomainDaemonConfig")


class ConfigGroup(msgspec.Struct, frozen=True):
    """Results that one entry configures together; where names the entry."""

    config: Config
    results: tuple[Result, ...]
    where: str


def decode(parameters: Any, where: str) -> Config:
    """The configuration in opaque parameters. Raises Invalid with the field."""
    if not isinstance(parameters, dict):
        raise Invalid(where, "must be an object with apiVersion and kind")
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != API_VERSION:
        raise Invalid(f"{where}.apiVersion", f"must be {API_VERSION}, got {version!r}")
    made = KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        hint = "; it belongs to compute-domain.nvidia.com" if kind in OTHER_DRIVERS else ""
        raise Invalid(f"{where}.kind", f"must be one of {', '.join(KINDS)}, got {kind!r}{hint}")
    fields = {name: value for name, value in parameters.items() if name not in ("apiVersion", "kind")}
    try:
        return msgspec.convert(fields, made)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        what = what.replace("Object contains unknown", "unknown").replace("Object missing required", "missing")
        raise Invalid(f"{where}{path.removesuffix('`')}", what[:1].lower() + what[1:]) from None


def normalised(config: Config, gates: DriverGates) -> Config:
    """With the defaults that the gates bring."""
    match config:
        case GpuConfig(sharing=GpuSharing(strategy="TimeSlicing", mps_config=None) as sharing):
            if gates.on("TimeSlicingSettings") and (
                sharing.time_slicing_config is None or sharing.time_slicing_config.interval is None
            ):
                filled = msgspec.structs.replace(sharing, time_slicing_config=TimeSlicingConfig("Default"))
                return GpuConfig(filled)
        case GpuConfig(sharing=GpuSharing(strategy="MPS", mps_config=None) as sharing) if gates.on("MPSSupport"):
            return GpuConfig(msgspec.structs.replace(sharing, mps_config=MpsConfig()))
        case MigDeviceConfig(sharing=MigSharing(strategy="MPS", mps_config=None)) if gates.on("MPSSupport"):
            return MigDeviceConfig(MigSharing(MPS, MpsConfig()))
    return config


def validate(config: Config, gates: DriverGates, where: str) -> None:
    """Raises Invalid for what can never be used."""
    match config:
        case GpuConfig(sharing=GpuSharing() as sharing):
            _validate_strategy(sharing.strategy, gates, where)
            if sharing.strategy == TIME_SLICING:
                if sharing.mps_config is not None:
                    raise Invalid(f"{where}.sharing.mpsConfig", "must not be set with strategy TimeSlicing")
                interval = sharing.time_slicing_config.interval if sharing.time_slicing_config else None
                if interval is not None and interval not in INTERVALS:
                    field = f"{where}.sharing.timeSlicingConfig.interval"
                    raise Invalid(field, f"must be one of {', '.join(INTERVALS)}, got {interval!r}")
            else:
                if sharing.time_slicing_config is not None:
                    raise Invalid(f"{where}.sharing.timeSlicingConfig", "must not be set with strategy MPS")
                _validate_mps(sharing.mps_config, f"{where}.sharing.mpsConfig")
        case MigDeviceConfig(sharing=MigSharing() as mig):
            _validate_strategy(mig.strategy, gates, where)
            if mig.strategy == TIME_SLICING and mig.mps_config is not None:
                raise Invalid(f"{where}.sharing.mpsConfig", "must not be set with strategy TimeSlicing")
            _validate_mps(mig.mps_config, f"{where}.sharing.mpsConfig")
        case VfioDeviceConfig(iommu=iommu):
            if not gates.on("PassthroughSupport"):
                raise Invalid(
                    where, "VfioDeviceConfig needs the driver's feature gate PassthroughSupport, which is off"
                )
            if iommu.backend_policy not in ("LegacyOnly", "PreferIommuFD"):
                field = f"{where}.iommu.backendPolicy"
                raise Invalid(field, f"must be LegacyOnly or PreferIommuFD, got {iommu.backend_policy!r}")


def _validate_strategy(strategy: str, gates: DriverGates, where: str) -> None:
    gate = {TIME_SLICING: "TimeSlicingSettings", MPS: "MPSSupport"}.get(strategy)
    field = f"{where}.sharing.strategy"
    if gate is None:
        raise Invalid(field, f"must be {TIME_SLICING} or {MPS}, got {strategy!r}")
    if not gates.on(gate):
        raise Invalid(field, f"{strategy} needs the driver's feature gate {gate}, which is off")
    if strategy == MPS and gates.on("ConsumableShares"):
        raise Invalid(field, "MPS cannot be combined with consumable shares")


def _validate_mps(mps: MpsConfig | None, where: str) -> None:
    if mps is None:
        return
    share = mps.default_active_thread_percentage
    if share is not None and not 0 <= share <= 100:
        raise Invalid(f"{where}.defaultActiveThreadPercentage", f"must be 0 to 100, got {share}")
    if mps.default_pinned_device_memory_limit is not None:
        mebibytes(mps.default_pinned_device_memory_limit, f"{where}.defaultPinnedDeviceMemoryLimit")
    for key, limit in mps.default_per_device_pinned_memory_limit.items():
        mebibytes(limit, f"{where}.defaultPerDevicePinnedMemoryLimit[{key}]")


def mebibytes(value: str | int, where: str) -> int:
    """A memory limit in whole MiB, rounded down. Raises Invalid below 1."""
    try:
        amount = Quantity.parse(value).nanos // NANOS // MIB
    except ValueError as error:
        raise Invalid(where, str(error)) from None
    if amount < 1:
        raise Invalid(where, f"value set too low: {value} is less than 1Mi")
    return amount


def memory_limits(mps: MpsConfig, uuids: Sequence[str], where: str) -> dict[str, str]:
    """The pinned memory limit of each device that has one, `<MiB>M`. uuids in any order. Raises Invalid."""
    ordered = sorted(uuids)
    limits: dict[str, str] = {}
    if mps.default_pinned_device_memory_limit is not None:
        amount = mebibytes(mps.default_pinned_device_memory_limit, f"{where}.defaultPinnedDeviceMemoryLimit")
        limits = dict.fromkeys(ordered, f"{amount}M")
    for key, value in mps.default_per_device_pinned_memory_limit.items():
        field = f"{where}.defaultPerDevicePinnedMemoryLimit[{key}]"
        limits[_device_of(key, ordered, field)] = f"{mebibytes(value, field)}M"
    return limits


def _device_of(key: str, ordered: list[str], field: str) -> str:
    if key in ordered:
        return key
    if not key.isdecimal():
        raise Invalid(field, "must be the UUID of a device of the group, or its index among the sorted UUIDs")
    if int(key) >= len(ordered):
        raise Invalid(field, f"index out of range: the group has {len(ordered)} devices")
    return ordered[int(key)]


def resolved(claim: ClaimToPrepare, types: Mapping[str, DeviceType], gates: DriverGates) -> tuple[ConfigGroup, ...]:
    """Which entry configures which results; types by device name. Later entries win, the claim's over the class's.

    An entry that names the request (or the parent of its subrequest) must fit the device's type; one that names none
    is taken only if it fits. Raises Invalid for what cannot be decoded, does not fit or is not valid.
    """
    entries: list[tuple[Config, tuple[str, ...], str]] = [(kind(), (), "default") for kind in FITTING.values()]
    for index, entry in enumerate(claim.config):
        where = f"claim {claim.ref}: status.allocation.devices.config[{index}].opaque.parameters"
        assert entry.opaque is not None
        entries.append((decode(entry.opaque.parameters, where), entry.requests, where))
    chosen: dict[int, list[Result]] = {}
    for result in claim.results:
        chosen.setdefault(_entry_for(result, types[result.device], entries), []).append(result)
    groups = []
    for index in sorted(chosen):
        config, _, where = entries[index]
        config = normalised(config, gates)
        if where != "default":
            validate(config, gates, where)
        groups.append(ConfigGroup(config, tuple(chosen[index]), where))
    if sum(isinstance(group.config, VfioDeviceConfig) for group in groups) > 1:
        raise Invalid(f"claim {claim.ref}", "at most one VfioDeviceConfig may apply within a claim")
    return tuple(groups)


def _entry_for(result: Result, kind: DeviceType, entries: Sequence[tuple[Config, tuple[str, ...], str]]) -> int:
    top = result.request.partition("/")[0]
    for index in range(len(entries) - 1, -1, -1):
        config, requests, where = entries[index]
        fits = isinstance(config, FITTING[kind])
        if result.request in requests or top in requests:
            if not fits:
                what = (
                    f"{type(config).__name__} cannot configure request {result.request}, whose device is of type {kind}"
                )
                raise Invalid(where, what)
            return index
        if not requests and fits:
            return index
    raise AssertionError("the defaults fit every type")


def problems(entries: Sequence[Any], driver: str, gates: DriverGates, path: str) -> tuple[str, ...]:
    """What is wrong with the configurations of a claim, template or class: entries of spec...config, as JSON.

    path is that of the list. The admission check; an empty answer admits.
    """
    found: list[str] = []
    for index, entry in enumerate(entries):
        opaque = entry.get("opaque") if isinstance(entry, dict) else None
        if not isinstance(opaque, dict) or opaque.get("driver") != driver:
            continue
        where = f"{path}[{index}].opaque.parameters"
        try:
            validate(normalised(decode(opaque.get("parameters"), where), gates), gates, where)
        except Invalid as error:
            found.append(str(error))
    return tuple(found)


def admission(obj: Mapping[str, Any], driver: str, gates: DriverGates) -> str:
    """Why a ResourceClaim, ResourceClaimTemplate or DeviceClass (JSON, any version) is denied; empty to admit."""
    spec = obj.get("spec") or {}
    if obj.get("kind") == "DeviceClass":
        found = problems(spec.get("config") or [], driver, gates, "spec.config")
    else:
        inner, path = spec, "spec.devices.config"
        if obj.get("kind") == "ResourceClaimTemplate":
            inner, path = spec.get("spec") or {}, "spec.spec.devices.config"
        found = problems((inner.get("devices") or {}).get("config") or [], driver, gates, path)
    return f"{len(found)} configs failed to validate: {'; '.join(found)}" if found else ""
