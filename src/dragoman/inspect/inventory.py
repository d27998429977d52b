"""Which devices exist, which are held, and what still fits? Counts over a snapshot by any term.

    found = inventory(snapshot, ("class",), now)
    found.total.free, found.rows[0].terms, found.rows[0].counts.held, found.rows[0].fits

Devices in the same pool layout are judged once. Admin access holds nothing. Where devices draw on shared counters,
`fits` counts how many of a partition type can still be given together, which is less than how many nobody holds.
Never decides who gets what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec

from dragoman.api.core import Node
from dragoman.api.meta import NamespacedName, parse_time
from dragoman.api.resource import Device, DeviceTaint, ResourceSlice
from dragoman.api.selectors import DeviceView, Selector, compile_selector, device_view
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.taints import rules_of_pool, taints_of
from dragoman.snapshot.unpublished import UnpublishedDevice, overlaps, replaced_of, unpublished_of
from dragoman.snapshot.usage import DeviceId, Holder
from dragoman.values.names import split_qualified
from dragoman.values.quantity import Quantity

TERMS = ("class", "driver", "node", "pool", "namespace", "claim", "age", "type")
NO_CLASS = "(no class)"
NOWHERE = "(no single node)"
UNALLOCATED = "<none>"
AGES = ((3600, "under 1 h"), (86_400, "under 1 day"), (604_800, "under 7 days"))
OLDEST = "7 days and more"
_EFFECTIVE = frozenset({"NoSchedule", "NoExecute"})
_TYPE_NAMES = ("profile", "type", "partition")

Terms: TypeAlias = tuple[str, ...]


class Counts(msgspec.Struct):
    """Devices by state; each device is in exactly one.

    held: given to a claim, alone. shared: in use by shares, others may join. blocked: nobody holds it, but others use
    up a counter that it draws on. tainted: free but for an effective taint. unavailable: free, but on a node that
    takes no pod now (not ready, cordoned) or only pods that tolerate its taints. unusable: its pool is incomplete,
    invalid or obsolete, or its node does not exist. heldTainted counts the tainted among those in use once more, and
    unpublished those that claims hold and no slice shows any longer; what may overlap with one of these is blocked.
    admin counts those that claims have with admin access, which holds nothing, whatever their state.
    """

    total: int = 0
    held: int = 0
    shared: int = 0
    free: int = 0
    tainted: int = 0
    blocked: int = 0
    unusable: int = 0
    held_tainted: int = 0
    unavailable: int = 0
    unpublished: int = 0
    admin: int = 0

    def add(self, state: str, number: int, *, tainted: bool) -> None:
        """Counts devices in a state."""
        self.total += number
        setattr(self, state, getattr(self, state) + number)
        if tainted and state in ("held", "shared"):
            self.held_tainted += number


class CapacityUse(msgspec.Struct, frozen=True):
    """A capacity of devices that may be shared: what their shares have of it, and all that there is."""

    used: Quantity
    total: Quantity


class Row(msgspec.Struct):
    """Devices with the same terms. fits: partition type to how many of them can still be given together. capacity: by
    name, of the devices that may be shared."""

    terms: Terms
    counts: Counts
    fits: dict[str, int]
    capacity: dict[str, CapacityUse] = {}


class Trouble(msgspec.Struct, frozen=True):
    """A pool whose devices cannot be used, or a device that is held in a way that should not be. what: incomplete,
    invalid, obsolete, no node, allocated twice, held but not published, another device."""

    what: str
    driver: str
    pool: str
    devices: int
    detail: str


class AdminClaim(msgspec.Struct, frozen=True):
    """A claim that has devices with admin access, beside whoever holds them."""

    namespace: str
    claim: str
    devices: tuple[str, ...]


class Inventory(msgspec.Struct, frozen=True):
    """All devices. by: the terms of the rows, which stand in the order of their terms."""

    by: Terms
    total: Row
    rows: tuple[Row, ...]
    troubles: tuple[Trouble, ...]
    nodes: int
    pools: int
    unavailable: dict[str, int] = {}
    """Why devices are unavailable: the node's state to the number of devices."""
    admin: tuple[AdminClaim, ...] = ()


def inventory(snapshot: Snapshot, by: Sequence[str], now: datetime, *, nodes_known: bool = True) -> Inventory:
    """Counts all devices. by: any of TERMS, or the name of an attribute (bare or with its domain).

    nodes_known: False where nodes may not be listed, so that their absence means nothing.
    """
    return _Count(snapshot, tuple(by), now, nodes_known=nodes_known).run()


def devices_on(snapshot: Snapshot, node: str, now: datetime) -> Inventory:
    """The devices whose slices name one node, by class."""
    count = _Count(snapshot, ("class",), now)
    pools = {count.pool_of(name): None for name in keys_of(snapshot.slices_by_node, node)}
    gone = (pool for pool in snapshot.held_by_pool if pool not in snapshot.slices_by_pool)
    pools |= {pool: None for pool in gone if any(_node_of(snapshot, d) == node for d in snapshot.held_by_pool[pool])}
    return count.run(pools)


class CountedDevice(NamedTuple):
    """One device as it was counted. why: what keeps pods off its node, if unavailable. node: "" for no single one."""

    driver: str
    pool: str
    device: Device
    classes: tuple[str, ...]
    state: str
    why: str
    node: str


class PoolCounts:
    """Counts pool by pool by class, for whoever keeps sums of many pools.

    What classes select is judged once for each layout: make another one when the classes change.
    """

    LAYOUTS_MAX = 4096

    def __init__(self, snapshot: Snapshot) -> None:
        self._classes = snapshot
        self._count = _Count(snapshot, ("class",), datetime.min)

    def of(self, snapshot: Snapshot, driver: str, pool: str, each: Callable[[CountedDevice], None]) -> Inventory:
        """One pool as a snapshot has it, each device passed to `each`."""
        count = self._count
        if len(count.layouts) > self.LAYOUTS_MAX:
            count = self._count = _Count(self._classes, ("class",), datetime.min)
        count.begin(snapshot)
        count.each = each
        return count.run(((driver, pool),))


class _Part(NamedTuple):
    """What is known of a device by its slice's layout alone."""

    classes: tuple[str, ...]
    kind: str
    uses: tuple[tuple[tuple[str, str], int], ...]
    tainted: bool
    is_shared: bool
    node: str
    values: tuple[str, ...]
    capacity: tuple[tuple[str, Quantity], ...] = ()


class _Count:
    def __init__(self, snapshot: Snapshot, by: Terms, now: datetime, *, nodes_known: bool = True) -> None:
        self.nodes_known = nodes_known
        self.by = by
        self.now = now
        self.attributes = tuple(term for term in by if term not in TERMS)
        self.selectors = tuple(_selectors(snapshot))
        self.reads = _read_by(self.selectors)
        self.layouts: dict[Any, list[_Part]] = {}
        self.static: dict[tuple[int, str | None, str], list[Terms]] = {}
        self.dynamic = bool({"namespace", "claim", "age"} & set(by))
        self.placed = bool({"node", "pool"} & set(by))
        self.each: Callable[[CountedDevice], None] | None = None
        self.begin(snapshot)

    def begin(self, snapshot: Snapshot) -> None:
        """Start from nothing; what is known of layouts stays."""
        self.snapshot = snapshot
        self.seen: dict[tuple[Terms, str, bool], int] = {}
        self.states: dict[tuple[str, bool], int] = {}
        self.fits: dict[Terms | None, dict[str, int]] = {}
        self.troubles: list[Trouble] = []
        self.unavailable: dict[str, int] = {}
        self.node_states: dict[str, str] = {}
        self.gone: dict[Terms | None, int] = {}
        self.admin: dict[Terms | None, int] = {}
        self.amounts: dict[Terms | None, dict[str, list[Any]]] = {}
        self.admin_claims: dict[tuple[str, str, str], list[NamespacedName]] = {}
        self.ages: dict[tuple[str, str], str] = {}

    def pool_of(self, resource_slice: str) -> tuple[str, str]:
        """(driver, pool) of a slice."""
        return self.snapshot.shapes[resource_slice].pool

    def run(self, pools: Iterable[tuple[str, str]] | None = None) -> Inventory:
        snapshot = self.snapshot
        if pools is None or self.each is None:
            self.admin_claims = _admin_claims(snapshot)
        every = sorted({*snapshot.slices_by_pool, *snapshot.held_by_pool}) if pools is None else sorted(pools)
        for driver, pool in every:
            unpublished = unpublished_of(snapshot, driver, pool)
            if (driver, pool) in snapshot.slices_by_pool:
                self._pool(driver, pool, unpublished)
            self._unpublished(driver, pool, unpublished)
        if pools is None:
            self._replaced()
        rows: dict[Terms, Row] = {}
        for (terms, state, tainted), number in sorted(self.seen.items()):
            row = rows.setdefault(terms, Row(terms, Counts(), self.fits.get(terms, {})))
            row.counts.add(state, number, tainted=tainted)
            row.counts.unpublished, row.counts.admin = self.gone.get(terms, 0), self.admin.get(terms, 0)
            row.capacity = _capacity_use(self.amounts.get(terms, {}))
        total = Row((), Counts(), self.fits.get(None, {}))
        for (state, tainted), number in self.states.items():
            total.counts.add(state, number, tainted=tainted)
        total.counts.unpublished, total.counts.admin = self.gone.get(None, 0), self.admin.get(None, 0)
        total.capacity = _capacity_use(self.amounts.get(None, {}))
        nodes, published = len(snapshot.nodes), sum(pool in snapshot.slices_by_pool for pool in every)
        troubles = tuple(self.troubles)
        return Inventory(
            self.by, total, tuple(rows.values()), troubles, nodes, published, self.unavailable, self._admin(every)
        )

    def _pool(self, driver: str, pool: str, unpublished: Sequence[UnpublishedDevice]) -> None:
        snapshot = self.snapshot
        names = keys_of(snapshot.slices_by_pool, (driver, pool))
        resource_slices = [snapshot.slices[name] for name in names]
        newest = max(resource_slice.spec.pool.generation for resource_slice in resource_slices)
        current = [
            resource_slice for resource_slice in resource_slices if resource_slice.spec.pool.generation == newest
        ]
        old = sum(len(p.spec.devices) for p in resource_slices if p.spec.pool.generation < newest)
        trouble = self._trouble(driver, pool, current)
        if old:
            self.troubles.append(Trouble("obsolete", driver, pool, old, f"newer generation {newest} exists"))
        left = _counters(current)
        seen = [
            (resource_slice, part, snapshot.holders.get(device, ()))
            for resource_slice in current
            for part, device in zip(
                self._parts(resource_slice), snapshot.shapes[resource_slice.metadata.name].ids, strict=True
            )
        ]
        for _, part, holders in seen:
            if holders:
                for key, amount in part.uses:
                    left[key] = left.get(key, 0) - amount
        tainted = self._ruled(driver, pool, current)
        seen_at = [at for resource_slice in current for at in range(len(resource_slice.spec.devices))]
        free: dict[tuple[Terms | None, str], list[_Part]] = {}
        for index, (resource_slice, part, holders) in enumerate(seen):
            is_tainted = part.tainted or index in tainted
            unusable = trouble or self._homeless(resource_slice, part)
            state = _state(part, holders, left, unusable=unusable, tainted=is_tainted)
            why = self._node_state(resource_slice.spec.node_name or part.node) if state == "free" else ""
            if unpublished and state in ("free", "tainted"):
                device = resource_slice.spec.devices[seen_at[index]]
                if any(overlaps(one, device) for one in unpublished):
                    state, why = "blocked", ""
            if why:
                state = "unavailable"
                self.unavailable[why] = self.unavailable.get(why, 0) + 1
            if self.each is not None:
                device = resource_slice.spec.devices[seen_at[index]]
                node = resource_slice.spec.node_name or part.node
                self.each(CountedDevice(driver, pool, device, part.classes, state, why, node))
            every = self._terms(driver, pool, resource_slice, part, holders)
            for terms in every:
                mark = (terms, state, is_tainted)
                self.seen[mark] = self.seen.get(mark, 0) + 1
            self.states[state, is_tainted] = self.states.get((state, is_tainted), 0) + 1
            if self.admin_claims:
                name = resource_slice.spec.devices[seen_at[index]].name
                for owner in (None, *every) if (driver, pool, name) in self.admin_claims else ():
                    self.admin[owner] = self.admin.get(owner, 0) + 1
            if part.capacity and state != "unusable":
                for owner in (None, *every):
                    _add_amounts(self.amounts.setdefault(owner, {}), part, holders)
            if part.uses and state in ("free", "blocked"):
                for owner in (None, *every):
                    fitting = free.setdefault((owner, part.kind), [])
                    if state == "free":
                        fitting.append(part)
            if len(holders) > 1 and any(holder.share_id is None for holder in holders):
                self.troubles.append(Trouble("allocated twice", driver, pool, 1, _claims(holders)))
        for (whose, kind), fitting in free.items():
            fits = self.fits.setdefault(whose, {})
            fits[kind] = fits.get(kind, 0) + _greedy(fitting, left)

    def _unpublished(self, driver: str, pool: str, unpublished: Sequence[UnpublishedDevice]) -> None:
        """Devices that are held and that no slice shows: they count as held."""
        for one in unpublished:
            classes = tuple(sorted({_class_of(self.snapshot, holder) for holder in one.holders}))
            node = _node_of(self.snapshot, one.id)
            part = _Part(classes, "", (), False, False, node, ("",) * len(self.attributes))
            state = "shared" if all(holder.share_id is not None for holder in one.holders) else "held"
            if self.each is not None:
                self.each(CountedDevice(driver, pool, Device(name=one.id.device), classes, state, "", node))
            for terms in self._combined(driver, pool, node, part, one.holders if self.dynamic else ()):
                mark = (terms, state, False)
                self.seen[mark] = self.seen.get(mark, 0) + 1
                self.gone[terms] = self.gone.get(terms, 0) + 1
            self.states[state, False] = self.states.get((state, False), 0) + 1
            self.gone[None] = self.gone.get(None, 0) + 1
        if unpublished:
            names = ", ".join(f"{one.id.device} by {_claims(one.holders)}" for one in unpublished)
            self.troubles.append(Trouble("held but not published", driver, pool, len(unpublished), names))

    def _admin(self, pools: Iterable[tuple[str, str]]) -> tuple[AdminClaim, ...]:
        counted = set(pools)
        devices: dict[NamespacedName, list[str]] = {}
        for (driver, pool, name), claims in sorted(self.admin_claims.items()):
            for key in claims if (driver, pool) in counted else ():
                devices.setdefault(key, []).append(f"{driver}/{pool}/{name}")
        return tuple(AdminClaim(*key, tuple(names)) for key, names in sorted(devices.items()))

    def _replaced(self) -> None:
        """Devices that came back as other hardware under the name that a claim holds."""
        snapshot = self.snapshot
        for key in sorted(snapshot.claims):
            for one in replaced_of(snapshot, snapshot.claims[key]):
                detail = (
                    f"{one.id.device}, held by {'/'.join(key)}, is {one.attribute} {one.now}, and was {one.before} "
                    "when it was allocated"
                )
                self.troubles.append(Trouble("another device", one.id.driver, one.id.pool, 1, detail))

    def _ruled(self, driver: str, pool: str, current: list[ResourceSlice]) -> frozenset[int]:
        """Positions of devices that a DeviceTaintRule taints."""
        rules = rules_of_pool(self.snapshot, driver, pool)
        if not rules:
            return frozenset()
        devices = [device for resource_slice in current for device in resource_slice.spec.devices]
        return frozenset(i for i, d in enumerate(devices) if _tainted(taints_of(d, driver, pool, rules)))

    def _trouble(self, driver: str, pool: str, current: list[ResourceSlice]) -> bool:
        expected, have = current[0].spec.pool.resource_slice_count, len(current)
        devices = sum(len(resource_slice.spec.devices) for resource_slice in current)
        if have != expected:
            self.troubles.append(Trouble("incomplete", driver, pool, devices, f"{have} of {expected} slices"))
            return True
        names = [device.name for resource_slice in current for device in resource_slice.spec.devices]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            detail = f"device {', '.join(twice)} is defined twice"
            self.troubles.append(Trouble("invalid", driver, pool, devices, detail))
        return bool(twice)

    def _homeless(self, resource_slice: ResourceSlice, part: _Part) -> bool:
        node = resource_slice.spec.node_name or part.node
        return self.nodes_known and bool(node) and node not in self.snapshot.nodes

    def _node_state(self, name: str | None) -> str:
        if not name:
            return ""
        known = self.node_states.get(name)
        if known is None:
            node = self.snapshot.nodes.get(name)
            known = self.node_states[name] = keeps_pods_off(node) if node is not None else ""
        return known

    # ---- what a device is

    def _parts(self, resource_slice: ResourceSlice) -> list[_Part]:
        shape = self.snapshot.shapes[resource_slice.metadata.name]
        partition_type = resource_slice.spec.partition_type_attribute
        columns = tuple((name, column) for name, column in shape.columns.items() if self._reads(name, partition_type))
        key = (shape.structure, partition_type, columns)
        known = self.layouts.get(key)
        if known is None:
            known = self.layouts[key] = [self._part(resource_slice, device) for device in resource_slice.spec.devices]
        return known

    def _reads(self, name: tuple[str, str], partition_type: str | None) -> bool:
        """Whether a class, a term or the partition type can depend on an attribute."""
        domain, last = name
        full = f"{domain}/{last}"
        if last in _TYPE_NAMES or full == partition_type or last in self.attributes or full in self.attributes:
            return True
        reads = self.reads
        return reads is None or name in reads or (domain, None) in reads

    def _part(self, resource_slice: ResourceSlice, device: Device) -> _Part:
        spec = resource_slice.spec
        view = device_view(device, spec.driver)
        classes = tuple(name for name, found in self.selectors if all(s.match(view) is True for s in found))
        return _Part(
            classes or (NO_CLASS,),
            _kind(resource_slice, device, view),
            tuple(
                ((use.counter_set, name), counter.value.nanos if counter.value is not None else 0)
                for use in device.consumes_counters
                for name, counter in use.counters.items()
            ),
            _tainted(("", taint) for taint in device.taints),
            bool(device.allow_multiple_allocations),
            device.node_name or "",
            tuple(_value(view, name) for name in self.attributes),
            tuple((n, c.value) for n, c in device.capacity.items() if c.value is not None)
            if device.allow_multiple_allocations
            else (),
        )

    def _terms(
        self, driver: str, pool: str, resource_slice: ResourceSlice, part: _Part, holders: Sequence[Holder]
    ) -> list[Terms]:
        """The terms of a device; several where it is in several classes or used from several namespaces."""
        if self.dynamic and holders:
            return self._combined(driver, pool, resource_slice.spec.node_name or part.node, part, holders)
        key = (id(part), resource_slice.spec.node_name, pool) if self.placed else (id(part), "", "")
        found = self.static.get(key)
        if found is None:
            found = self.static[key] = self._combined(
                driver, pool, resource_slice.spec.node_name or part.node, part, ()
            )
        return found

    def _combined(self, driver: str, pool: str, node: str, part: _Part, holders: Sequence[Holder]) -> list[Terms]:
        found: list[Terms] = [()]
        values = iter(part.values)
        for term in self.by:
            options: Iterable[str]
            match term:
                case "class":
                    options = part.classes
                case "driver":
                    options = (driver,)
                case "pool":
                    options = (f"{driver}/{pool}",)
                case "node":
                    options = (node or NOWHERE,)
                case "namespace":
                    options = dict.fromkeys(holder.namespace for holder in holders) or (UNALLOCATED,)
                case "claim":
                    options = dict.fromkeys(f"{h.namespace}/{h.claim}" for h in holders) or (UNALLOCATED,)
                case "age":
                    options = dict.fromkeys(self._age(holder) for holder in holders) or (UNALLOCATED,)
                case "type":
                    options = (part.kind,)
                case _:
                    options = (next(values),)
            found = [(*terms, option) for terms in found for option in options]
        return found

    def _age(self, holder: Holder) -> str:
        key = (holder.namespace, holder.claim)
        found = self.ages.get(key)
        if found is None:
            claim = self.snapshot.claims[key]
            allocation = claim.status.allocation
            since = allocation.allocation_timestamp if allocation is not None else None
            found = self.ages[key] = age_of(since or claim.metadata.creation_timestamp, self.now)
        return found


def _admin_claims(snapshot: Snapshot) -> dict[tuple[str, str, str], list[NamespacedName]]:
    """By device: the claims that have it with admin access."""
    found: dict[tuple[str, str, str], list[NamespacedName]] = {}
    for key, claim in snapshot.claims.items():
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if result.admin_access:
                found.setdefault((result.driver, result.pool, result.device), []).append(key)
    return found


def _add_amounts(amounts: dict[str, list[Any]], part: _Part, holders: Sequence[Holder]) -> None:
    """Adds a device that may be shared: who holds it alone has all of it."""
    alone = any(holder.share_id is None for holder in holders)
    for name, total in part.capacity:
        consumed = (holder.consumed.get(name) for holder in holders)
        used = total.nanos if alone else sum(amount.nanos for amount in consumed if amount is not None)
        entry = amounts.setdefault(name, [0, 0, total.format])
        entry[0] += used
        entry[1] += total.nanos


def _capacity_use(amounts: dict[str, list[Any]]) -> dict[str, CapacityUse]:
    return {
        name: CapacityUse(Quantity(used, form), Quantity(total, form))
        for name, (used, total, form) in sorted(amounts.items())
    }


def _claims(holders: Iterable[Holder]) -> str:
    return ", ".join(dict.fromkeys(f"{holder.namespace}/{holder.claim}" for holder in holders))


def _class_of(snapshot: Snapshot, holder: Holder) -> str:
    """The class by which a claim asked for what it holds."""
    parent, _, option = holder.request.partition("/")
    for request in snapshot.claims[holder.namespace, holder.claim].spec.devices.requests:
        if request.name != parent:
            continue
        for alternative in request.first_available:
            if alternative.name == option:
                return alternative.device_class_name
        if request.exactly is not None:
            return request.exactly.device_class_name
    return NO_CLASS


def _node_of(snapshot: Snapshot, device: DeviceId) -> str:
    """The one node that the allocation of a held device is for, "" if it is for several."""
    for holder in snapshot.holders[device]:
        allocation = snapshot.claims[holder.namespace, holder.claim].status.allocation
        terms = allocation.node_selector.node_selector_terms if allocation and allocation.node_selector else ()
        names = {value for term in terms for field in term.match_fields for value in field.values}
        if len(names) == 1:
            return names.pop()
    return ""


def age_of(since: str | None, now: datetime) -> str:
    """The span of AGES that a time lies back; "unknown" without one."""
    try:
        seconds = (now - parse_time(since or "")).total_seconds()
    except ValueError:
        return "unknown"
    return next((name for limit, name in AGES if seconds < limit), OLDEST)


def _selectors(snapshot: Snapshot) -> Iterator[tuple[str, tuple[Selector, ...]]]:
    """Classes whose selectors all compile."""
    for name in sorted(snapshot.classes):
        texts = [s.cel.expression for s in snapshot.classes[name].spec.selectors if s.cel is not None]
        compiled = [compile_selector(text) for text in texts]
        if all(isinstance(found, Selector) for found in compiled):
            yield name, tuple(found for found in compiled if isinstance(found, Selector))


def _read_by(classes: Iterable[tuple[str, tuple[Selector, ...]]]) -> frozenset[tuple[str, str | None]] | None:
    """Attributes that classes read; None: any."""
    found: set[tuple[str, str | None]] = set()
    for _, selectors in classes:
        for selector in selectors:
            if selector.reads.attributes is None:
                return None
            found |= selector.reads.attributes
    return frozenset(found)


def _tainted(taints: Iterable[tuple[str, DeviceTaint]]) -> bool:
    return any(taint.effect in _EFFECTIVE for _, taint in taints)


def _kind(resource_slice: ResourceSlice, device: Device, view: DeviceView) -> str:
    """The partition type: what the slice's partitionTypeAttribute says, else an attribute that is named like one."""
    named = resource_slice.spec.partition_type_attribute
    if named:
        return _value(view, named)
    if not device.consumes_counters:
        return ""
    own = view.attributes.get(resource_slice.spec.driver, {})
    return next((str(own[name]) for name in _TYPE_NAMES if isinstance(own.get(name), str)), "")


def _value(view: DeviceView, name: str) -> str:
    """An attribute's value as text, by full or bare name; "" if the device has none."""
    domain, last = split_qualified(name, "")
    for known, values in sorted(view.attributes.items()):
        if last in values and domain in ("", known):
            return _text(values[last])
    return ""


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_text(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _counters(current: Iterable[ResourceSlice]) -> dict[tuple[str, str], int]:
    return {
        (group.name, name): counter.value.nanos if counter.value is not None else 0
        for resource_slice in current
        for group in resource_slice.spec.shared_counters
        for name, counter in group.counters.items()
    }


def _state(
    part: _Part, holders: Sequence[Holder], left: dict[tuple[str, str], int], *, unusable: bool, tainted: bool
) -> str:
    if holders:
        return "shared" if part.is_shared and all(holder.share_id is not None for holder in holders) else "held"
    if unusable:
        return "unusable"
    if any(left.get(key, 0) < amount for key, amount in part.uses):
        return "blocked"
    return "tainted" if tainted else "free"


def keeps_pods_off(node: Node) -> str:
    """What keeps pods off a node: not ready, cordoned or tainted; "" for nothing."""
    if any(condition.type == "Ready" and condition.status != "True" for condition in node.status.conditions):
        return "node not ready"
    if node.spec.unschedulable:
        return "node cordoned"
    keys = sorted({taint.key for taint in node.spec.taints if taint.effect in _EFFECTIVE})
    return f"node tainted {', '.join(keys)}" if keys else ""


def _greedy(parts: Iterable[_Part], left: dict[tuple[str, str], int]) -> int:
    """How many of these fit into what is left, taken in order. Exact where each needs slots of equal length."""
    rest, number = dict(left), 0
    for part in parts:
        if all(rest.get(key, 0) >= amount for key, amount in part.uses):
            number += 1
            for key, amount in part.uses:
                rest[key] = rest.get(key, 0) - amount
    return number
