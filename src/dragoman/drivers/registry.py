"""Which drivers are there? The one table; a driver is added by a package with an `entry` module, and a line here.

Answers for all of them together: the gates that a machine profile may set, the faults, what lint knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.drivers.entry import DevicePluginEntry, DriverEntry, DriverFault, DriverPlan
from dragoman.drivers.example.entry import ENTRY as EXAMPLE
from dragoman.drivers.nic.entry import ENTRY as NIC
from dragoman.drivers.nvidia.compute_domain.entry import ENTRY as COMPUTE_DOMAIN
from dragoman.drivers.nvidia.device_plugin.entry import ENTRY as NVIDIA_PLUGIN
from dragoman.drivers.nvidia.entry import ENTRY as NVIDIA
from dragoman.errors import Invalid
from dragoman.known_drivers import KnownDrivers
from dragoman.kubelet.faults import KINDS, FaultKind

if TYPE_CHECKING:
    from dragoman.profiles import Catalog

DRIVERS: tuple[DriverEntry, ...] = (EXAMPLE, NVIDIA, COMPUTE_DOMAIN, NIC)
"""In the order of help texts, and in which they start on a node."""


DEVICE_PLUGINS: tuple[DevicePluginEntry, ...] = (NVIDIA_PLUGIN,)
"""Device plugins, for nodes whose devices are extended resources."""


def entry_of(name: str) -> DriverEntry | None:
    """The entry of a driver by its name in slices."""
    return next((entry for entry in DRIVERS if entry.name == name), None)


# ---- profiles and gates


def catalog_with(files: tuple[Path, ...]) -> Catalog:
    """The packaged machine profiles and those of files. Raises Invalid with file, line and field."""
    from dragoman.profiles import Catalog  # reads YAML

    catalog = Catalog.packaged()
    for file in files:
        catalog = catalog.adding(file, check_gates)
    return catalog


def check_gates(changes: Mapping[str, bool]) -> None:
    """Whether a machine profile may set these gates of drivers. Raises Invalid."""
    tables = {id(entry.gates): entry.gates for entry in DRIVERS if entry.gates is not None}.values()
    names = sorted({name for table in tables for name in table.defaults})
    for name in changes:
        if name not in names:
            raise Invalid("feature gates", f"unknown feature gate {name!r}; there are: {', '.join(names)}")
    for table in tables:
        table.check({name: on for name, on in changes.items() if name in table.defaults}, "feature gates")


# ---- faults


def driver_faults() -> Iterator[tuple[DriverEntry, DriverFault]]:
    """Every fault that a driver offers, with its driver."""
    for entry in DRIVERS:
        for fault in entry.faults:
            yield entry, fault


@lru_cache(maxsize=1)
def fault_kinds() -> Mapping[str, FaultKind]:
    """Every kind of fault by name: those of drivers' hardware first, then those of any machine."""
    return {fault.kind.name: fault.kind for _, fault in driver_faults()} | {kind.name: kind for kind in KINDS}


# ---- plans


def driver_plans() -> tuple[DriverPlan, ...]:
    """The plans of `dragoman plan` that belong to one kind of device."""
    return tuple(plan for entry in DRIVERS for plan in entry.plans)


# ---- facts


@lru_cache(maxsize=1)
def known_drivers() -> KnownDrivers:
    """What is known of drivers without their slices, for lint and whoever else judges manifests."""
    return KnownDrivers.of(known for entry in DRIVERS for known in entry.known())
