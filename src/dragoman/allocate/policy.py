"""Among devices that fit, which are taken first? Placement policies.

A policy weighs devices and places of pods; what weighs least comes first, ties in publication order and by name of
node. It changes the order of trial only, never what is possible. To write one, make a Policy of a
`weigh(candidate, topology, demand)` and a `rank(move, demand)` that depend on nothing but their arguments, name in
`reads` the attributes that they look at (nodes which differ in others count as equivalent), and give it as
`Options(policy=...)`. docs/guides/policies.md is the guide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from dragoman.allocate.constraint import attribute_named
from dragoman.allocate.device_state import DeviceState
from dragoman.allocate.fragmentation import Demand, FreeResources, expected_use, fullness
from dragoman.allocate.remaining import ConsumedDevice, Stock
from dragoman.api.resource import DeviceAttribute
from dragoman.errors import Invalid

Weight: TypeAlias = tuple[int, ...]

TOPOLOGY = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")
"""Standard attributes by which devices of one or several drivers are aligned."""

PARTS = 1000
"""Fractions are whole numbers of thousandths."""


class WeighedDevice(Protocol):
    """A device that can serve a request. amounts: nano-units it would take, in the order of the device's capacity."""

    device_state: DeviceState
    amounts: tuple[int, ...]


class NodeChange(NamedTuple):
    """A pod's place on a node: what is free before and after it. Without cpu and memory: they do not matter."""

    before: FreeResources
    after: FreeResources


class NodeTopology:
    """A node as policies see it, without the candidate's request."""

    def __init__(self, device_states: Sequence[DeviceState]) -> None:
        self.device_states = device_states
        self._stock: Stock | None = None
        self._free: Counter[tuple[str, DeviceAttribute]] = Counter()
        for device_state in device_states:
            if not device_state.exclusive and not device_state.shares:
                self._free.update(_places(device_state))

    def aligned(self, device_state: DeviceState) -> int:
        """Free devices on the same PCIe root or NUMA node, by each of these."""
        return sum(self._free[place] for place in _places(device_state))

    def without(self, candidate: WeighedDevice) -> FreeResources:
        """What is free of the devices once the candidate is taken."""
        if self._stock is None:
            self._stock = Stock(self.device_states)
        return FreeResources(self._stock.left([ConsumedDevice(candidate.device_state, candidate.amounts)]))


def _places(device_state: DeviceState) -> list[tuple[str, DeviceAttribute]]:
    attributes = device_state.seen.device.attributes
    found = ((name, attribute_named(attributes, device_state.driver, name)) for name in TOPOLOGY)
    return [(name, attribute) for name, attribute in found if attribute is not None]


class Policy(msgspec.Struct, frozen=True):
    """weigh: of a device, before the search; rank: of a place. None: publication order, and no say about nodes."""

    name: str
    weigh: Callable[[WeighedDevice, NodeTopology, Demand], Weight] | None = None
    rank: Callable[[NodeChange, Demand], Weight] | None = None
    reads: frozenset[tuple[str, str | None]] = frozenset()


def pack(candidate: WeighedDevice, topology: NodeTopology, demand: Demand) -> Weight:
    """Leave the node most useful, fill what is begun, take what is least capable, leave aligned devices together.

    In this order: what the node is still worth to the tasks expected; a shared device in use before an untouched one,
    the fuller the better; a partition of the set with least left, so that whole devices stay whole; the smallest
    capacity; the fewest free mates.
    """
    device_state = candidate.device_state
    begun = 0 if device_state.multi and device_state.shares else 1
    lost = -expected_use(topology.without(candidate), demand) if demand.kinds else 0
    return (lost, begun, _left_of(device_state), _size(device_state), topology.aligned(device_state))


def least_lost(move: NodeChange, demand: Demand) -> Weight:
    """What the node loses of its worth to the tasks expected; of equals the fullest, as it would be then."""
    return (expected_use(move.before, demand) - expected_use(move.after, demand), fullness(move.after, demand))


def _left_of(device_state: DeviceState) -> int:
    """Thousandths left of the capacities or counters that the device draws on, the scarcest of them."""
    if device_state.multi:
        return _share_left(device_state)
    book = device_state.book
    if book is None or not device_state.uses:
        return PARTS
    shares = [
        PARTS * book.left[use.key, counter] // total
        for use in device_state.uses
        for counter, _ in use.amounts
        if (total := book.published[use.key, counter]) > 0
    ]
    return min(shares, default=PARTS)


def _share_left(device_state: DeviceState) -> int:
    shares = [
        PARTS * device_state.left[name] // entry.value.nanos
        for name, entry in device_state.capacity.items()
        if entry.value is not None and entry.value.nanos > 0
    ]
    return min(shares, default=PARTS)


def _size(device_state: DeviceState) -> int:
    """The device's capacities together; only compared among devices."""
    return sum(entry.value.nanos for entry in device_state.seen.device.capacity.values() if entry.value is not None)


FIRST_FIT = Policy("first-fit")
PACK = Policy(
    "pack",
    pack,
    least_lost,
    frozenset(("resource.kubernetes.io", name.partition("/")[2]) for name in TOPOLOGY),
)
POLICIES = {policy.name: policy for policy in (FIRST_FIT, PACK)}


def policy_of(wanted: str | Policy) -> Policy:
    """A policy, or the one of that name. Raises Invalid."""
    if isinstance(wanted, Policy):
        return wanted
    found = POLICIES.get(wanted)
    if found is None:
        raise Invalid("policy", f"must be one of {', '.join(POLICIES)}, got {wanted!r}")
    return found
