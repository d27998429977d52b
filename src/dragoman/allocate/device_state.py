"""What does a node offer, with gates applied and holders known? One Offer a device, in the order of trial.

Never looks at a claim. What is off by a gate is marked here, so that nothing behind asks for gates.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.allocate.counters import Book, Use, book_of, uses_of
from dragoman.allocate.slots import Rules
from dragoman.api.core import Node
from dragoman.api.resource import DeviceCapacity, DeviceTaint
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.pools import SeenDevice, VisiblePool
from dragoman.snapshot.unpublished import UnpublishedDevice, overlaps, unpublished_of
from dragoman.snapshot.usage import Holder

SKIP_OPERATIONS = "DRAOptionalNodeOperations"
"""The gate, and the feature that a node declares, without which slices that skip node operations are of no use."""

NO_CAPACITY: Mapping[str, DeviceCapacity] = {}


class DeviceState:
    """A device as one search sees it.

    multi: several claims may share it. exclusive: held by one claim alone (or the device is no longer shareable but
    shared still). shares: shares that exist. left: what is left of each capacity, in nano-units, of shareable
    devices. gated: the feature gate without which the device cannot be used, checked before selectors (early) or
    after. frozen: an overdrawn counter of the pool as (set, counter). overlapping: held devices that the pool no longer
    publishes and that may use the same hardware.
    """

    __slots__ = (
        "book",
        "capacity",
        "driver",
        "exclusive",
        "gated",
        "gated_early",
        "holders",
        "id",
        "left",
        "multi",
        "overlapping",
        "position",
        "seen",
        "shares",
        "taints",
        "uses",
    )

    def __init__(
        self,
        position: int,
        seen: SeenDevice,
        book: Book | None,
        held: tuple[Holder, ...],
        rules: Rules,
        *,
        may_skip: bool,
        overlapping: tuple[UnpublishedDevice, ...] = (),
    ) -> None:
        device = seen.device
        self.position = position
        self.seen = seen
        self.id = seen.id
        self.driver = seen.id.driver
        self.holders = held
        self.book = book
        self.multi = rules.shares and bool(device.allow_multiple_allocations)
        self.capacity = device.capacity if rules.shares else NO_CAPACITY
        self.exclusive = bool(held) and (not self.multi or any(holder.share_id is None for holder in held))
        self.overlapping = overlapping
        if overlapping and rules.strict:
            self.exclusive = True
        self.shares = len(held)
        self.left: dict[str, int] = {}
        if self.multi:
            self.left = _left(device.capacity, held)
        self.taints: tuple[tuple[str, DeviceTaint], ...] = ()
        if rules.taints and seen.taints:
            self.taints = tuple(pair for pair in seen.taints if rules.taint_rules or not pair[0])
        self.uses: tuple[Use, ...] = ()
        if device.consumes_counters:
            self.uses = uses_of(device, seen.id.driver, seen.id.pool)
        self.gated_early = "DRADeviceBindingConditions" if device.binding_conditions and not rules.binding else ""
        self.gated = self._gate(rules, may_skip=may_skip)

    def _gate(self, rules: Rules, *, may_skip: bool) -> str:
        if self.seen.resource_slice.spec.skip_node_operations and not may_skip:
            return SKIP_OPERATIONS
        if not self.uses:
            return ""
        if not rules.counters:
            return "DRAPartitionableDevices"
        if not rules.groups:
            recorded = self.book.recorded if self.book is not None else frozenset()
            if any(use.groups or use.key in recorded for use in self.uses):
                return "DRADeviceCompatibilityGroups"
        return ""


def _left(capacity: Mapping[str, DeviceCapacity], held: tuple[Holder, ...]) -> dict[str, int]:
    left = {name: entry.value.nanos if entry.value is not None else 0 for name, entry in capacity.items()}
    for holder in held:
        for name, amount in holder.consumed.items():
            if name in left:
                left[name] -= amount.nanos
    return left


def device_states_of(snapshot: Snapshot, node: Node, pools: tuple[VisiblePool, ...], rules: Rules) -> list[DeviceState]:
    """The devices of the node's pools that are fit for use, in order."""
    found: list[DeviceState] = []
    holders = snapshot.holders
    may_skip = rules.skip_operations and SKIP_OPERATIONS in node.status.declared_features
    for pool in pools:
        if pool.state != "ok":
            continue
        book = book_of(pool, holders) if pool.counters else None
        unpublished = unpublished_of(snapshot, pool.driver, pool.name)
        for seen in pool.devices:
            overlapping = tuple(one for one in unpublished if overlaps(one, seen.device)) if unpublished else ()
            held = holders.get(seen.id, ())
            found.append(DeviceState(len(found), seen, book, held, rules, may_skip=may_skip, overlapping=overlapping))
    return found
