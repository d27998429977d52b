"""Which MIG instances should a machine's GPUs have, by a name in a file, and how do they get them?

The file is that of NVIDIA/mig-parted (`api/spec/v1`), parsed as strictly; `generated` makes one from the hardware, as
`nvidia-mig-parted generate-config`. `apply` changes GPUs; whether they may be changed is its caller's to know.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from dragoman.drivers.nvidia.hardware import Gpu, Hardware
from dragoman.errors import Invalid, Retry
from dragoman.profiles.mig import InstanceProfile, PlacedInstance, best_order, misfit

DISABLED, ENABLED, BALANCED = "all-disabled", "all-enabled", "all-balanced"
_PROFILE = re.compile(r"([1-9]c\.)?[1-9]g\.[1-9]\d*gb([+-][a-z.]+)?")
_SLOTS = {7: ((1, 2), (2, 1), (3, 1)), 4: ((1, 2), (2, 1))}
"""all-balanced by the GPU's compute slices: compute slices of a profile, and how many of it."""


class MigEntry(msgspec.Struct, frozen=True):
    """One entry of a configuration. devices: indices, None for all; filters: PCI ids `0xDDDDVVVV`, () for all."""

    enabled: bool
    instances: Mapping[str, int] = {}
    devices: tuple[int, ...] | None = None
    filters: tuple[str, ...] = ()

    def concerns(self, gpu: Gpu, pci_id: str) -> bool:
        """Whether the entry is for a GPU."""
        if self.filters and pci_id.lower() not in map(str.lower, self.filters):
            return False
        return self.devices is None or gpu.index in self.devices


MigConfigs = Mapping[str, tuple[MigEntry, ...]]


def parse(text: str, where: str) -> MigConfigs:
    """The configurations of a file by name. Raises Invalid with the place."""
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Invalid(where, f"is not YAML: {str(error).splitlines()[0]}") from None
    fields = _object(body, where, {"version", "mig-configs"})
    if fields.get("version") != "v1":
        raise Invalid(f"{where}: version", f"must be v1, got {fields.get('version')!r}")
    configs = fields.get("mig-configs")
    if not isinstance(configs, dict) or not configs:
        raise Invalid(f"{where}: mig-configs", "must be an object with at least one configuration")
    return {str(name): _entries(entries, f"{where}: mig-configs.{name}") for name, entries in configs.items()}


def _entries(entries: Any, where: str) -> tuple[MigEntry, ...]:
    if not isinstance(entries, list) or not entries:
        raise Invalid(where, "must be a list with at least one entry")
    return tuple(_entry(entry, f"{where}[{number}]") for number, entry in enumerate(entries))


def _entry(entry: Any, where: str) -> MigEntry:
    fields = _object(entry, where, {"device-filter", "devices", "mig-enabled", "mig-devices"})
    enabled = fields.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise Invalid(f"{where}.mig-enabled", "must be true or false")
    wanted = fields.get("mig-devices")
    if enabled and not isinstance(wanted, dict):
        raise Invalid(f"{where}.mig-devices", "must be an object of profiles; {} for MIG mode without instances")
    if not enabled and wanted:
        raise Invalid(f"{where}.mig-devices", "must be empty where mig-enabled is false")
    for name, count in (wanted or {}).items():
        if not isinstance(name, str) or not _PROFILE.fullmatch(name):
            raise Invalid(f"{where}.mig-devices", f"{name!r} is no profile such as 1g.10gb or 1g.10gb+me")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise Invalid(f"{where}.mig-devices.{name}", f"must be a number from 1 on, got {count!r}")
    filters = fields.get("device-filter") or ()
    filters = (filters,) if isinstance(filters, str) else tuple(map(str, filters))
    return MigEntry(enabled, dict(wanted or {}), _devices(fields.get("devices"), where), filters)


def _devices(devices: Any, where: str) -> tuple[int, ...] | None:
    if devices == "all":
        return None
    if not isinstance(devices, list) or not all(isinstance(one, int) for one in devices):
        raise Invalid(f"{where}.devices", f"must be all or a list of indices, got {devices!r}")
    return tuple(devices)


def _object(value: Any, where: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(where, "must be an object")
    if unknown := sorted(str(key) for key in value if key not in known):
        raise Invalid(where, f"unknown field {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    return value


# ---- made from the hardware


def most_of(shape: InstanceProfile) -> int:
    """How many instances of one profile fit on a GPU together."""
    placed: list[PlacedInstance] = []
    for start in shape.starts:
        more = PlacedInstance(shape, start)
        if not misfit([*placed, more]):
            placed.append(more)
    return len(placed)


def generated(models: Mapping[str, Sequence[InstanceProfile]]) -> MigConfigs:
    """all-disabled, all-enabled, all-<profile>, all-balanced. models: profiles by PCI id; filters where there are
    several."""
    found: dict[str, list[MigEntry]] = {DISABLED: [MigEntry(False)], ENABLED: [MigEntry(True)]}
    for pci_id, shapes in models.items():
        filters = (pci_id,) if len(models) > 1 else ()
        for shape in shapes:
            entry = MigEntry(True, {shape.name: most_of(shape)}, None, filters)
            found.setdefault(f"all-{shape.name.replace('+', '.')}", []).append(entry)
        if balanced := _balanced(shapes):
            found.setdefault(BALANCED, []).append(MigEntry(True, balanced, None, filters))
    return {name: tuple(entries) for name, entries in found.items()}


def _balanced(shapes: Sequence[InstanceProfile]) -> dict[str, int]:
    plain: dict[int, InstanceProfile] = {}
    for shape in shapes:
        if "+" in shape.name or "-" in shape.name:
            continue
        best = plain.get(shape.compute)
        if best is None or most_of(shape) > most_of(best):
            plain[shape.compute] = shape
    slots = _SLOTS.get(shapes[0].gpu_compute, ()) if shapes else ()
    if not slots or any(compute not in plain for compute, _ in slots):
        return {}
    return {plain[compute].name: number for compute, number in slots}


def to_yaml(configs: MigConfigs) -> str:
    """The file."""

    def plain(entry: MigEntry) -> dict[str, Any]:
        made: dict[str, Any] = {"device-filter": list(entry.filters)} if entry.filters else {}
        made |= {"devices": "all" if entry.devices is None else list(entry.devices), "mig-enabled": entry.enabled}
        return {**made, "mig-devices": dict(entry.instances)} if entry.enabled else made

    body = {"version": "v1", "mig-configs": {name: [plain(e) for e in entries] for name, entries in configs.items()}}
    return str(yaml.safe_dump(body, sort_keys=False))


# ---- how GPUs get it


class WantedLayout(msgspec.Struct, frozen=True):
    """What one GPU should have."""

    gpu: Gpu
    entry: MigEntry


def wanted(hardware: Hardware, entries: Iterable[MigEntry]) -> list[WantedLayout]:
    """The GPUs that a configuration concerns; the last entry that does counts. Others stay as they are."""
    ids = {function.pci_bus_id: pci_id(function.device_id) for function in hardware.functions()}
    found: dict[str, WantedLayout] = {}
    for entry in entries:
        for gpu in hardware.gpus():
            if entry.concerns(gpu, ids.get(gpu.pci_bus_id, "")):
                found[gpu.uuid] = WantedLayout(gpu, entry)
    return list(found.values())


def pci_id(device_id: str) -> str:
    """`0x233010DE` of a device id `0x2330`, as filters have it."""
    return f"0x{device_id.removeprefix('0x').upper()}10DE"


def is_applied(hardware: Hardware, layout: WantedLayout) -> bool:
    """Whether a GPU has what it should have."""
    if layout.gpu.mig_enabled != layout.entry.enabled:
        return False
    there = Counter(instance.shape.name for instance in hardware.instances(layout.gpu.uuid))
    return there == Counter(dict(layout.entry.instances))


def apply(hardware: Hardware, layout: WantedLayout, reset: Callable[[str], None]) -> None:
    """Give a GPU what it should have. reset: a GPU whose mode changes with that. Raises Retry, Invalid."""
    gpu, entry = layout.gpu, layout.entry
    for instance in hardware.instances(gpu.uuid):
        hardware.destroy_instance(gpu.uuid, instance.gi)
    if gpu.mig_enabled != entry.enabled:
        if not gpu.mig_capable:
            raise Invalid(f"GPU {gpu.index}", f"{gpu.name} has no MIG")
        try:
            hardware.set_mig_mode(gpu.uuid, entry.enabled)
        except Retry:
            if gpu.toggles_mig:
                raise
            reset(gpu.uuid)
    for placed in best_order(placed_for(entry.instances, hardware.shapes(gpu.uuid), f"GPU {gpu.index}")):
        hardware.create_instance(gpu.uuid, placed.shape, placed.start)


def placed_for(
    instances: Mapping[str, int], shapes: Sequence[InstanceProfile], where: str
) -> tuple[PlacedInstance, ...]:
    """Places for these instances together. Raises Invalid where there are none."""
    by_name = {shape.name: shape for shape in shapes}
    if unknown := [name for name in instances if name not in by_name]:
        raise Invalid(where, f"has no profile {unknown[0]}; it has: {', '.join(by_name) or 'none'}")
    todo = [by_name[name] for name, count in instances.items() for _ in range(count)]
    todo.sort(key=lambda shape: (-shape.size, -shape.compute, shape.name))

    def placed(chosen: tuple[PlacedInstance, ...]) -> tuple[PlacedInstance, ...] | None:
        if len(chosen) == len(todo):
            return chosen
        shape = todo[len(chosen)]
        # Equal profiles one behind the other: else every order of them would be tried.
        least = chosen[-1].start if chosen and chosen[-1].shape is shape else -1
        for start in shape.starts:
            more = (*chosen, PlacedInstance(shape, start))
            if start > least and not misfit(more) and (found := placed(more)) is not None:
                return found
        return None

    found = placed(())
    if found is None:
        listed = ", ".join(f"{count}x {name}" for name, count in instances.items())
        raise Invalid(where, f"cannot have {listed} together")
    return found
