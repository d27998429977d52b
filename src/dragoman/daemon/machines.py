"""What stands behind a node of the embedded cluster: its facts and its drivers, by the name of a profile.

A profile is a name and facts here, never a decision: which drivers find devices on it, the drivers say
(`drivers.registry`), and they are the ones that serve real kubelets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.drivers.entry import DevicePluginEntry, DevicePluginFactory, DriverEntry, DriverFactory
from dragoman.drivers.entry import MachineProfile as Hardware
from dragoman.drivers.registry import DEVICE_PLUGINS, DRIVERS, catalog_with
from dragoman.errors import Invalid
from dragoman.kubelet.node_object import CAPACITY, NodeProperties
from dragoman.profiles import Catalog, Profile
from dragoman.profiles.machine import EXAMPLE


class Machine(msgspec.Struct, frozen=True):
    """A node to come: name, facts, a factory for each of its drivers by name, the DeviceClasses these bring, and what
    the registry has of them. device_plugins: by the name of the driver that they stand in for."""

    name: str
    facts: NodeProperties
    drivers: Mapping[str, DriverFactory]
    classes: tuple[Object, ...] = ()
    entries: tuple[DriverEntry, ...] = ()
    device_plugins: Mapping[str, DevicePluginFactory] = {}
    plugin_entries: tuple[DevicePluginEntry, ...] = ()


DRA, DEVICE_PLUGIN = "dra", "device-plugin"
GPU_PATHS = (DRA, DEVICE_PLUGIN)
"""How containers of a node get its GPUs."""


def machines(
    nodes: tuple[tuple[str, str], ...],
    files: tuple[Path, ...] = (),
    settings: Mapping[str, Any] | None = None,
    gpu_path: str = DRA,
) -> list[Machine]:
    """The machines of (name, profile) pairs; files: profiles beside the packaged ones; settings: by driver's name.

    A profile may be followed by `@dra` or `@device-plugin`, which counts before gpu_path.

    Raises Invalid for an unknown profile, a name given twice, a bad file.
    """
    made: dict[str, Machine] = {}
    kinds: dict[str, _Kind] = {}
    only_example = not files and all(profile == EXAMPLE.name for _, profile in nodes)
    catalog = Catalog.example() if only_example else catalog_with(files)
    for name, wanted in nodes:
        if wanted not in kinds:
            where = f"--node {name}={wanted}"
            profile, at, path = wanted.partition("@")
            if at and path not in GPU_PATHS:
                raise Invalid(where, f"after @ there must be one of {', '.join(GPU_PATHS)}, got {path!r}")
            found = catalog.named(profile, where)
            kinds[wanted] = kind = _Kind(catalog, found, settings or {}, path or gpu_path)
            if path == DEVICE_PLUGIN and not kind.device_plugins:
                raise Invalid(where, f"machines of profile {profile} have no devices of a device plugin")
        for machine in kinds[wanted].machines(name):
            if machine.name in made:
                raise Invalid(f"--node {name}={wanted}", f"node {machine.name} already exists")
            made[machine.name] = machine
    return list(made.values())


def node_properties(wanted: str, files: tuple[Path, ...], where: str) -> NodeProperties:
    """What a node of that profile says of itself. Raises Invalid for `where`, or a bad file."""
    catalog = catalog_with(files)
    return _Kind(catalog, catalog.named(wanted, where), {}).properties("")


class _Kind:
    """What all machines of one profile have in common."""

    def __init__(self, catalog: Catalog, profile: Profile, settings: Mapping[str, Any], gpu_path: str = DRA) -> None:
        self.profile = profile
        hardware = Hardware(catalog, profile)
        found: list[tuple[DriverEntry, DriverFactory]] = []
        plugins: list[tuple[DevicePluginEntry, DevicePluginFactory]] = []
        for plugin in DEVICE_PLUGINS if gpu_path == DEVICE_PLUGIN else ():
            made = plugin.on_machine(hardware, settings.get(plugin.name))
            if made is not None:
                plugins.append((plugin, made))
        self.device_plugins = {plugin.instead_of: made for plugin, made in plugins}
        self.plugin_entries = tuple(plugin for plugin, _ in plugins)
        for entry in DRIVERS:
            if entry.name in self.device_plugins:
                continue  # never both on the same devices
            factory = entry.on_machine(hardware, settings.get(entry.name))
            if factory is not None:
                found.append((entry, factory))
        self.drivers = {entry.name: factory for entry, factory in found}
        self.entries = tuple(entry for entry, _ in found)
        self.classes = tuple(body for entry in self.entries for body in entry.classes)

    def machines(self, name: str) -> Iterator[Machine]:
        if self.profile.rack is None:
            yield self._machine(name, self.properties(""))
            return
        facts = self.properties(name)
        for tray in range(self.profile.rack.trays):
            yield self._machine(f"{name}-{tray}", facts)

    def _machine(self, name: str, facts: NodeProperties) -> Machine:
        return Machine(name, facts, self.drivers, self.classes, self.entries, self.device_plugins, self.plugin_entries)

    def properties(self, rack: str) -> NodeProperties:
        """Labels and capacity; rack: the group of nodes that shares a fabric."""
        labels = node_labels(self.profile)
        for factory in self.drivers.values():
            labels |= factory.labels(rack)
        for plugin in self.device_plugins.values():
            labels |= plugin.labels(rack)
        return NodeProperties(labels=labels, capacity=node_capacity(self.profile))


def node_labels(profile: Profile) -> dict[str, str]:
    """A profile's own labels, and those that clouds and kubelets set."""
    labels = dict(profile.labels)
    if profile.node.instance_type:
        labels["node.kubernetes.io/instance-type"] = profile.node.instance_type
    if profile.node.architecture:
        labels["kubernetes.io/arch"] = labels["beta.kubernetes.io/arch"] = profile.node.architecture
    return labels


def node_capacity(profile: Profile) -> dict[str, str]:
    """CPU and memory of the profile; the rest as every simulated node has it."""
    return {**CAPACITY, "cpu": str(profile.node.cpu), "memory": profile.node.memory}
