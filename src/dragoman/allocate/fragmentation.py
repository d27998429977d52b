"""What is a node still good for, given the claims that are expected?

`worth` of what is free on a node, in thousandths of devices times tasks; a placement costs what it takes away from it.
Two views of the same free part are added:

- each kind of task on its own: the device thousandths it could use there, nothing if it does not fit;
- the mix of all kinds: the device thousandths that the node's cpu and memory would feed at the mix's usual amounts,
  at most what is free. It keeps cpu and memory beside the devices that will need them.

The first is what fragmentation gradient descent weighs (Weng et al., USENIX ATC 2023); the second makes nodes run out
of everything at once. Exact integers. Never looks at claims or devices; callers bring them into these terms.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TypeAlias

import msgspec

WHOLE = 1000
"""Thousandths of a device."""

MIX = 2
"""How much the mix counts, for each task expected; anything from 1 to 4 serves as well (docs/guides/policies.md)."""

_Devices: TypeAlias = tuple[int, int, frozenset[str]]


class TaskType(msgspec.Struct, frozen=True, cache_hash=True):
    """Tasks that are equal: `devices` devices, `share` thousandths of each, cpu and memory of the pod.

    makes: what the devices may be (see Room), empty if any. cpu and memory: any unit, the same as in Room.
    """

    devices: int
    share: int = WHOLE
    cpu: int = 0
    memory: int = 0
    makes: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Thousandths of devices."""
        return self.devices * self.share


class Demand(msgspec.Struct, frozen=True, cache_hash=True):
    """Which tasks to expect: (kind, how many came lately). Empty: nothing is known."""

    kinds: tuple[tuple[TaskType, int], ...] = ()


class FreeResources(msgspec.Struct, frozen=True, cache_hash=True):
    """What is free on a node. left: (make, thousandths left) of each device; cpu, memory None: no limit."""

    left: tuple[tuple[str, int], ...]
    cpu: int | None = None
    memory: int | None = None

    @property
    def total(self) -> int:
        """Thousandths of devices that are free."""
        return sum(left for _, left in self.left)


class Mix(msgspec.Struct, frozen=True):
    """All expected tasks with devices together: how many, and the sums of what they ask for."""

    tasks: int
    size: int
    cpu: int
    memory: int


@lru_cache(maxsize=64)
def mix_of(demand: Demand) -> Mix:
    """The tasks with devices, added up."""
    some = [(kind, count) for kind, count in demand.kinds if kind.devices]
    return Mix(
        sum(count for _, count in some),
        sum(count * kind.size for kind, count in some),
        sum(count * kind.cpu for kind, count in some),
        sum(count * kind.memory for kind, count in some),
    )


def alone(free: FreeResources, demand: Demand) -> int:
    """Thousandths of devices that tasks of each kind could draw on, times how many; 0 of a kind that does not fit."""
    cpu = inf if free.cpu is None else free.cpu
    memory = inf if free.memory is None else free.memory
    found = 0
    for (devices, share, makes), needs in _by_devices(demand):
        serving = [left for make, left in free.left if left >= share and (not makes or make in makes)]
        if len(serving) >= devices:
            tasks = sum([count for cores, size, count in needs if cores <= cpu and size <= memory])
            found += tasks * sum(serving)
    return found


@lru_cache(maxsize=64)
def _by_devices(demand: Demand) -> tuple[tuple[_Devices, tuple[tuple[int, int, int], ...]], ...]:
    """The kinds that want the same devices together, each as (cpu, memory, count)."""
    found: dict[_Devices, list[tuple[int, int, int]]] = {}
    for kind, count in demand.kinds:
        if kind.devices:
            wanted = (kind.devices, kind.share, kind.makes)
            found.setdefault(wanted, []).append((kind.cpu, kind.memory, count))
    return tuple((wanted, tuple(needs)) for wanted, needs in found.items())


def fed(free: FreeResources, mix: Mix) -> int:
    """Thousandths of devices that the mix could use before cpu, memory or devices run out."""
    found = free.total
    if free.cpu is not None and mix.cpu:
        found = min(found, free.cpu * mix.size // mix.cpu)
    if free.memory is not None and mix.memory:
        found = min(found, free.memory * mix.size // mix.memory)
    return found


@lru_cache(maxsize=65_536)
def expected_use(free: FreeResources, demand: Demand) -> int:
    """What is free, weighed by what is expected. Loses with everything taken; 0 if nothing is expected."""
    mix = mix_of(demand)
    return alone(free, demand) + MIX * mix.tasks * fed(free, mix)


def fullness(free: FreeResources, demand: Demand) -> int:
    """What is free in thousandths of devices, cpu counted at the mix's usual amount; least is fullest."""
    mix = mix_of(demand)
    cpu = free.cpu * mix.size // mix.cpu if free.cpu is not None and mix.cpu else 0
    return free.total + cpu
