"""What stands behind a node of the embedded cluster: its facts and its drivers, by the name of a profile.

A profile is a name and facts here, never a decision: the drivers are the ones that serve real kubelets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path

import msgspec

from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.drivers import example, nic
from dragoman.drivers.nvidia import run as nvidia
from dragoman.drivers.nvidia.driver import DRIVER as NVIDIA
from dragoman.drivers.nvidia.driver import DriverOptions
from dragoman.drivers.nvidia.gates import gates_with
from dragoman.drivers.nvidia.health import HealthOptions
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.errors import Invalid
from dragoman.kubelet.node_object import NodeProperties
from dragoman.node.driver import Driver
from dragoman.node.plugin import Places
from dragoman.profiles import Catalog, Profile
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics

EXAMPLE = "example"


class Site(msgspec.Struct, frozen=True):
    """Where a machine runs: its folder, its boot, and what its drivers share with the cluster."""

    root: Path
    boot_id: str
    client: Client
    clock: Clock
    entropy: Entropy
    metrics: Metrics
    durable: bool = False


class Machine(msgspec.Struct, frozen=True):
    """A node to come: name, facts, a maker for each of its drivers, and the DeviceClasses these bring.

    direct: drivers that the agent calls without sockets, which at a thousand nodes are memory that nothing shows.
    """

    name: str
    facts: NodeProperties
    drivers: tuple[Callable[[Site], Driver], ...]
    classes: tuple[Object, ...] = ()
    direct: frozenset[str] = frozenset()


class GpuSettings(msgspec.Struct, frozen=True):
    """How the GPU drivers of simulated machines behave: changes of feature gates (over the profile's), health."""

    gates: dict[str, bool] = {}
    health: HealthOptions = HealthOptions(clear_on_recovery=True)


GPU_SETTINGS = GpuSettings()


def machines(
    nodes: tuple[tuple[str, str], ...], files: tuple[Path, ...] = (), settings: GpuSettings = GPU_SETTINGS
) -> list[Machine]:
    """The machines of (name, profile) pairs; files: profiles beside the packaged ones.

    Raises Invalid for an unknown profile, a name given twice, a bad file.
    """
    made: dict[str, Machine] = {}
    kinds: dict[str, _Kind] = {}
    catalog = catalog_with(files) if files else None
    for name, profile in nodes:
        if profile != EXAMPLE and profile not in kinds:
            catalog = catalog or catalog_with(files)
            kinds[profile] = _kind(catalog, name, profile, settings)
        for machine in _example(name) if profile == EXAMPLE else kinds[profile].machines(name):
            if machine.name in made:
                raise Invalid(f"--node {name}={profile}", f"node {machine.name} is there already")
            made[machine.name] = machine
    return list(made.values())


def catalog_with(files: tuple[Path, ...]) -> Catalog:
    """The packaged profiles and those of files. Raises Invalid with file, line and field."""
    catalog = Catalog.packaged()
    for file in files:
        catalog = catalog.adding(file, gates_with)
    return catalog


def _example(name: str) -> Iterator[Machine]:
    yield Machine(name, NodeProperties(), (lambda site: example.ExampleDriver(name),), (example.DEVICE_CLASS,))


def _kind(catalog: Catalog, name: str, wanted: str, settings: GpuSettings) -> _Kind:
    profile = catalog.profile(wanted)
    if profile is None:
        near = get_close_matches(wanted, [EXAMPLE, *catalog.names()], 3, 0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise Invalid(f"--node {name}={wanted}", f"no such profile; {hint}`dragoman profiles` lists them")
    return _Kind(catalog, profile, settings)


class _Kind:
    """What all machines of one profile have in common."""

    def __init__(self, catalog: Catalog, profile: Profile, settings: GpuSettings) -> None:
        self.catalog = catalog
        self.profile = profile
        self.models = catalog.gpu_models(profile)
        where = f"driver of profile {profile.name}"
        gates = gates_with({**profile.feature_gates, **settings.gates}, where)
        self.options = nvidia.options_of(profile, DriverOptions(gates, health=settings.health))
        shape = profile.node
        capacity = {"cpu": str(shape.cpu), "memory": shape.memory, "ephemeral-storage": "1Ti", "pods": "110"}
        self.facts = NodeProperties(labels=nvidia.labels(profile, self.models), capacity=capacity)

    def machines(self, name: str) -> Iterator[Machine]:
        if self.profile.rack is None:
            yield self._machine(name, self.facts)
            return
        labels = nvidia.labels(self.profile, self.models, nvidia.cluster_uuid(name))
        facts = msgspec.structs.replace(self.facts, labels=labels)
        for tray in range(self.profile.rack.trays):
            yield self._machine(f"{name}-{tray}", facts)

    def _machine(self, name: str, facts: NodeProperties) -> Machine:
        drivers: list[Callable[[Site], Driver]] = [lambda site: self._gpu_driver(name, site)]
        classes = nvidia.DEVICE_CLASSES
        if self.profile.nics:
            drivers.append(lambda site: nic.NicDriver(name, self.profile, self.catalog.nics, site.clock))
            classes += nic.DEVICE_CLASSES
        return Machine(name, facts, tuple(drivers), classes, direct=frozenset({nic.DRIVER}))

    def _gpu_driver(self, name: str, site: Site) -> Driver:
        hardware = SimulatedHardware(self.catalog, self.profile, name, site.root, site.boot_id, durable=site.durable)
        return nvidia.driver(
            site.client,
            site.clock,
            site.entropy,
            hardware,
            node_name=name,
            data_dir=Places.under(site.root, NVIDIA).data_dir,
            options=self.options,
            metrics=site.metrics,
        )
