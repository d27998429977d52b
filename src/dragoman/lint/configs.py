"""Would the driver take this opaque configuration? For drivers of the catalogue; of others nothing is known.

The drivers decode strictly when they prepare a claim, long after scheduling; the same rules are said here as tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

import msgspec

from dragoman.api.files import Document
from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.lint.catalogue import CATALOGUE
from dragoman.lint.finding import Edit, Finding, ItemPath, Rename, SetValue, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.rewrite import path_text
from dragoman.values.quantity import Quantity


class _Word(msgspec.Struct, frozen=True):
    words: tuple[str, ...]


class _Number(msgspec.Struct, frozen=True):
    low: int
    high: int


class _Memory(msgspec.Struct, frozen=True):
    """A quantity of at least 1 MiB."""


class _Flag(msgspec.Struct, frozen=True):
    """true or false."""


class _Text(msgspec.Struct, frozen=True):
    """Any text but the empty one."""


class _Map(msgspec.Struct, frozen=True):
    value: _Memory


_Fields: TypeAlias = "Mapping[str, _Rule]"
_Rule: TypeAlias = "_Word | _Number | _Memory | _Flag | _Text | _Map | _Object"


class _Object(msgspec.Struct, frozen=True):
    fields: _Fields
    required: tuple[str, ...] = ()


# api/nvidia.com/resource/v1beta1 of dra-driver-nvidia-gpu 0.5.
_STRATEGY = _Word(("TimeSlicing", "MPS"))
_MPS = _Object(
    {
        "defaultActiveThreadPercentage": _Number(0, 100),
        "defaultPinnedDeviceMemoryLimit": _Memory(),
        "defaultPerDevicePinnedMemoryLimit": _Map(_Memory()),
        "multiUser": _Flag(),
    }
)
_TIME = _Object({"interval": _Word(("Default", "Short", "Medium", "Long"))})
_GPU = _Object(
    {"sharing": _Object({"strategy": _STRATEGY, "timeSlicingConfig": _TIME, "mpsConfig": _MPS}, ("strategy",))}
)
_MIG = _Object({"sharing": _Object({"strategy": _STRATEGY, "mpsConfig": _MPS}, ("strategy",))})
_IOMMU = _Object({"backendPolicy": _Word(("LegacyOnly", "PreferIommuFD")), "enableAPIDevice": _Flag()})
_CHANNEL = _Object({"domainID": _Text(), "allocationMode": _Word(("Single", "All"))}, ("domainID",))
_VERSION = "resource.nvidia.com/v1beta1"
_KINDS: dict[str, dict[str, _Object]] = {
    "gpu.nvidia.com": {"GpuConfig": _GPU, "MigDeviceConfig": _MIG, "VfioDeviceConfig": _Object({"iommu": _IOMMU})},
    "compute-domain.nvidia.com": {
        "ComputeDomainChannelConfig": _CHANNEL,
        "ComputeDomainDaemonConfig": _Object({"domainID": _Text()}, ("domainID",)),
    },
}
# Which kind fits the devices of the driver's own classes.
_FITTING = {
    "gpu.nvidia.com": "GpuConfig",
    "mig.nvidia.com": "MigDeviceConfig",
    "vfio.gpu.nvidia.com": "VfioDeviceConfig",
    "compute-domain-default-channel.nvidia.com": "ComputeDomainChannelConfig",
    "compute-domain-daemon.nvidia.com": "ComputeDomainDaemonConfig",
}


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on configuration in classes, claims and templates."""
    if document.value is None:
        return
    for holder_path, path, entry in _entries(document):
        opaque = dig(entry, "opaque")
        driver = text(opaque, "driver")
        if driver not in _KINDS:
            continue
        at = (*path, "opaque", "parameters")
        wrong = False
        for finding in _parameters(document, at, dig(opaque, "parameters"), driver):
            wrong = True
            yield finding
        if not wrong:
            yield from _fitting(document, at, dig(document.raw, *map(str, holder_path)), entry)
            yield from _gates(document, at, dig(opaque, "parameters"), driver)


def _entries(document: Document) -> Iterator[tuple[ItemPath, ItemPath, Object]]:
    paths: dict[str, ItemPath] = {
        "DeviceClass": ("spec",),
        "ResourceClaim": ("spec", "devices"),
        "ResourceClaimTemplate": ("spec", "spec", "devices"),
    }
    path = paths.get(document.kind_name, ())
    for index, entry in enumerate(objects(dig(document.raw, *map(str, path)), "config") if path else ()):
        yield path, (*path, "config", index), entry


def _parameters(document: Document, path: ItemPath, parameters: Object, driver: str) -> Iterator[Finding]:
    version, kind = text(parameters, "apiVersion"), text(parameters, "kind")
    if version != _VERSION:
        message = f"the driver does not know {version or 'a configuration without apiVersion'}: Prepare fails"
        edit = SetValue((*path, "apiVersion"), _VERSION)
        fix = f"write apiVersion: {_VERSION}"
        yield found(document, "WrongConfig", path_text((*path, "apiVersion")), message, fix, edit)
    kinds = _KINDS[driver]
    if kind not in kinds:
        message = f"the driver does not know {kind or 'a configuration without kind'}: Prepare fails"
        near = get_close_matches(kind, kinds, n=1)
        owner = next((other for other, known in _KINDS.items() if kind in known), "")
        fix = f"write {near[0]}" if near else f"it takes {', '.join(sorted(kinds))}"
        fix = f"it belongs to driver {owner}" if owner else fix
        yield found(document, "WrongConfig", path_text((*path, "kind")), message, fix)
        return
    fields = {name: value for name, value in parameters.items() if name not in ("apiVersion", "kind")}
    for steps, message, fix, edits in _judged(fields, kinds[kind], path):
        yield found(document, "WrongConfig", path_text(steps), f"{message}: Prepare fails", fix, *edits)
    sharing = dig(parameters, "sharing")
    strategy = text(sharing, "strategy")
    for field, own in (("timeSlicingConfig", "TimeSlicing"), ("mpsConfig", "MPS")):
        if sharing.get(field) is not None and strategy in _STRATEGY.words and strategy != own:
            at = (*path, "sharing", field)
            message = f"{field} must not be set with strategy {strategy}: Prepare fails"
            yield found(document, "WrongConfig", path_text(at), message, f"remove it, or set strategy to {own}")


_Judgement: TypeAlias = tuple[ItemPath, str, str, tuple[Edit, ...]]


def _judged(value: Any, rule: _Rule, path: ItemPath) -> Iterator[_Judgement]:
    """What is wrong with a value: where, what, how to put it right."""
    if value is None:
        return
    name = str(path[-1])
    match rule:
        case _Object():
            yield from _object(value, rule, path)
        case _Map(inner):
            for key, one in value.items() if isinstance(value, dict) else ():
                yield from _judged(one, inner, (*path, str(key)))
        case _Word(words):
            if value not in words:
                near = get_close_matches(str(value), words, n=1)
                fix = f"write {near[0]}" if near else f"it takes {', '.join(words)}"
                yield path, f"{name} cannot be {value!r}", fix, (SetValue(path, near[0]),) if near else ()
        case _Number(low, high):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                yield path, f"{name} must be a number from {low} to {high}, got {value}", "", ()
        case _Flag():
            if not isinstance(value, bool):
                yield path, f"{name} must be true or false, got {value!r}", "", ()
        case _Text():
            if not isinstance(value, str) or not value:
                yield path, f"{name} must not be empty", "", ()
        case _Memory():
            if not _is_memory(value):
                yield path, f"{name} must be a quantity of at least 1Mi, got {value}", "", ()


def _object(value: Any, rule: _Object, path: ItemPath) -> Iterator[_Judgement]:
    if not isinstance(value, dict):
        yield path, f"{path[-1]} must be an object", "", ()
        return
    for key, inner in value.items():
        if key in rule.fields:
            yield from _judged(inner, rule.fields[key], (*path, key))
            continue
        near = get_close_matches(key, [field for field in rule.fields if field not in value], n=1, cutoff=0.75)
        fix = f"write {near[0]}" if near else f"it knows {', '.join(rule.fields)}"
        yield (*path, key), f"unknown field {key!r}", fix, (Rename((*path, key), near[0]),) if near else ()
    for field in rule.required:
        if value.get(field) in (None, ""):
            yield path, f"{field} is missing", f"set {field}", ()


def _is_memory(value: Any) -> bool:
    try:
        return Quantity.parse(value).nanos >= 2**20 * 10**9
    except (ValueError, TypeError):
        return False


def _gates(document: Document, path: ItemPath, parameters: Object, driver: str) -> Iterator[Finding]:
    strategy = text(dig(parameters, "sharing"), "strategy")
    gate, field = CATALOGUE[driver].config_gates.get(strategy), (*path, "sharing", "strategy")
    if text(parameters, "kind") == "VfioDeviceConfig":
        gate, field, strategy = "PassthroughSupport", (*path, "kind"), "VfioDeviceConfig"
    if gate:
        message = f"{strategy} needs the driver's feature gate {gate}, which is off by default: Prepare fails without"
        yield found(document, "NeedsDriverGate", path_text(field), message, f"set {gate}=true for the driver")


def _fitting(document: Document, path: ItemPath, devices: Object, entry: Object) -> Iterator[Finding]:
    """An entry that names requests must be of the kind that fits their devices."""
    kind = text(dig(entry, "opaque", "parameters"), "kind")
    named = {str(name).partition("/")[0] for name in items(entry, "requests")}
    for request in objects(devices, "requests"):
        if text(request, "name") not in named:
            continue
        exact_request = dig(request, "exactly") or request
        fitting = _FITTING.get(text(exact_request, "deviceClassName"), kind)
        if fitting != kind:
            message = f"{kind} is for other devices than request {text(request, 'name')} gets: Prepare fails"
            yield found(document, "WrongConfig", path_text((*path, "kind")), message, f"write {fitting}")
