"""What would a machine of a profile publish? Its Node, slices and classes, as the real drivers make them, unconnected.

kinds = await published("dgx-h100", "shape", ())        # (kind, typed object): for plans that add machines
"""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any, cast

import msgspec

from dragoman.api import codec
from dragoman.cluster.client import Client
from dragoman.daemon.machines import Machine, machines
from dragoman.drivers.entry import Site
from dragoman.node.slices import PublisherScope, difference
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics


async def published(profile: str, name: str, files: tuple[Path, ...]) -> tuple[tuple[str, Any], ...]:
    """The objects of one node of a profile, of a rack those of its first. Raises Invalid for an unknown profile."""
    machine = machines(((name, profile),), files)[0]
    return (
        ("Node", codec.decode(codec.TYPES["Node"], _node(machine))),
        *(("DeviceClass", codec.decode(codec.TYPES["DeviceClass"], body)) for body in machine.classes),
        *[("ResourceSlice", made) for made in await _slices(machine)],
    )


def _node(machine: Machine) -> dict[str, Any]:
    facts = machine.facts
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": {"kubernetes.io/hostname": machine.name, **facts.labels}},
        "status": {"capacity": dict(facts.capacity), "allocatable": dict(facts.capacity)},
    }


async def _slices(machine: Machine) -> list[Any]:
    found = []
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        # Drivers reach the API to prepare, never to say which devices there are.
        nobody = cast("Client", None)
        site = Site(Path(folder), "never-booted", nobody, Clock(), Entropy(), Metrics())
        for driver, factory in machine.drivers.items():
            made = factory.make(machine.name, site).pools()
            pools = await made if inspect.isawaitable(made) else made
            scope = PublisherScope(driver, machine.name)
            for pool_name, pool in pools.items():
                for new in difference(scope, pool_name, pool, (), {}).create:
                    meta = msgspec.structs.replace(new.metadata, name=f"{new.metadata.generate_name}{pool_name}")
                    found.append(msgspec.structs.replace(new, metadata=meta))
    return found
