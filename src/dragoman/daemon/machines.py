"""What stands behind a node of the embedded cluster: its facts and its drivers, by the name of a profile.

A profile is a name here, never a decision: the drivers are the ones that serve real kubelets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.drivers import example
from dragoman.errors import Invalid
from dragoman.kubelet.node_object import NodeFacts
from dragoman.node.driver import Driver


class Machine(msgspec.Struct, frozen=True):
    """A node to come: name, facts, a maker for each of its drivers, and the DeviceClasses these bring."""

    name: str
    facts: NodeFacts
    drivers: tuple[Callable[[], Driver], ...]
    classes: tuple[dict[str, Any], ...] = ()


def _example(name: str) -> tuple[Machine, ...]:
    return (Machine(name, NodeFacts(), (lambda: example.ExampleDriver(name),), (example.DEVICE_CLASS,)),)


PROFILES: dict[str, Callable[[str], tuple[Machine, ...]]] = {"example": _example}


def machines(nodes: tuple[tuple[str, str], ...]) -> list[Machine]:
    """The machines of (name, profile) pairs. Raises Invalid for an unknown profile or a name given twice."""
    made: dict[str, Machine] = {}
    for name, profile in nodes:
        make = PROFILES.get(profile)
        if make is None:
            raise Invalid(f"--node {name}={profile}", f"no such profile; there are: {', '.join(sorted(PROFILES))}")
        for machine in make(name):
            if machine.name in made:
                raise Invalid(f"--node {name}={profile}", f"node {machine.name} is there already")
            made[machine.name] = machine
    return list(made.values())
