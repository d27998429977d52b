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
from dragoman.drivers.entry import DriverEntry, DriverFactory
from dragoman.drivers.entry import MachineProfile as Hardware
from dragoman.drivers.registry import DRIVERS, catalog_with
from dragoman.errors import Invalid
from dragoman.kubelet.node_object import CAPACITY, NodeProperties
from dragoman.profiles import Catalog, Profile
from dragoman.profiles.machine import EXAMPLE


class Machine(msgspec.Struct, frozen=True):
    """A node to come: name, facts, a factory for each of its drivers by name, the DeviceClasses these bring, and what
    the registry has of them."""

    name: str
    facts: NodeProperties
    drivers: Mapping[str, DriverFactory]
    classes: tuple[Object, ...] = ()
    entries: tuple[DriverEntry, ...] = ()


def machines(
    nodes: tuple[tuple[str, str], ...], files: tuple[Path, ...] = (), settings: Mapping[str, Any] | None = None
) -> list[Machine]:
    """The machines of (name, profile) pairs; files: profiles beside the packaged ones; settings: by driver's name.

    Raises Invalid for an unknown profile, a name given twice, a bad file.
    """
    made: dict[str, Machine] = {}
    kinds: dict[str, _Kind] = {}
    only_example = not files and all(profile == EXAMPLE.name for _, profile in nodes)
    catalog = Catalog.example() if only_example else catalog_with(files)
    for name, wanted in nodes:
        if wanted not in kinds:
            kinds[wanted] = _Kind(catalog, catalog.named(wanted, f"--node {name}={wanted}"), settings or {})
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

    def __init__(self, catalog: Catalog, profile: Profile, settings: Mapping[str, Any]) -> None:
        self.profile = profile
        hardware = Hardware(catalog, profile)
        found: list[tuple[DriverEntry, DriverFactory]] = []
        for entry in DRIVERS:
            factory = entry.on_machine(hardware, settings.get(entry.name))
            if factory is not None:
                found.append((entry, factory))
        self.drivers = {entry.name: factory for entry, factory in found}
        self.entries = tuple(entry for entry, _ in found)
        self.classes = tuple(body for entry in self.entries for body in entry.classes)

    def machines(self, name: str) -> Iterator[Machine]:
        if self.profile.rack is None:
            yield Machine(name, self.properties(""), self.drivers, self.classes, self.entries)
            return
        facts = self.properties(name)
        for tray in range(self.profile.rack.trays):
            yield Machine(f"{name}-{tray}", facts, self.drivers, self.classes, self.entries)

    def properties(self, rack: str) -> NodeProperties:
        """Labels and capacity; rack: the group of nodes that shares a fabric."""
        labels = node_labels(self.profile)
        for factory in self.drivers.values():
            labels |= factory.labels(rack)
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
