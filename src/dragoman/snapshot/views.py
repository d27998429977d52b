"""What can be distinguished on a node, as far as its own devices go? Views that are equal where nodes are equal.

A NodeView holds the node's own pools: those whose slices all name this node. What selectors read (attributes) is kept
in columns, one a slice and attribute, everything else in structures; both are interned, so that comparing is looking
at identity. Names of nodes, pools and slices do not count, nor do attributes whose values are unique to a device (a
uuid), unless somebody asks for them. Never judges a pool and never chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from immutables import Map

from dragoman.api.resource import Device, DeviceAttribute, DeviceTaintRule, ResourceSlice
from dragoman.snapshot.taints import applies
from dragoman.snapshot.unpublished import unpublished_names
from dragoman.snapshot.usage import DeviceId, Holder
from dragoman.values.names import split_qualified
from dragoman.values.semver import Semver

Attribute: TypeAlias = tuple[str, str]
"""(domain, name)."""

LOOKS_UNIQUE = 16
"""A lone device's text of at least this length is taken for an identifier."""


class Interned:
    """Stands for a value; equal values have the same Interned while one of them lives."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


_INTERNED: WeakValueDictionary[Any, Interned] = WeakValueDictionary()


def intern(value: Any) -> Interned:
    """The one Interned of a hashable value."""
    found = _INTERNED.get(value)
    if found is None:
        found = _INTERNED[value] = Interned(value)
    return found


class SliceShape:
    """A slice without its names. rare: attributes that identify devices, left out of `common`. skips: it asks to skip
    node operations, so that it matters what the node declares."""

    __slots__ = ("columns", "common", "count", "generation", "ids", "names", "pool", "rare", "skips", "structure")

    def __init__(self, resource_slice: ResourceSlice) -> None:
        spec = resource_slice.spec
        self.pool = (spec.driver, spec.pool.name)
        self.generation = spec.pool.generation
        self.count = spec.pool.resource_slice_count
        self.names = tuple(device.name for device in spec.devices)
        self.ids = tuple(DeviceId(spec.driver, spec.pool.name, name) for name in self.names)
        self.structure = intern(_structure(resource_slice))
        self.skips = bool(spec.skip_node_operations)
        values: dict[Attribute, list[Any]] = {}
        for index, device in enumerate(spec.devices):
            for key, attribute in device.attributes.items():
                column = values.setdefault(split_qualified(key, spec.driver), [None] * len(spec.devices))
                before = column[index]  # one name published twice, bare and with the driver's domain
                column[index] = attribute if before is None else (before, attribute)
        self.columns: dict[Attribute, Interned] = {name: intern(tuple(values[name])) for name in sorted(values)}
        self.rare = frozenset(name for name, column in values.items() if _identifies(column))
        self.common = intern(
            (
                self.structure,
                tuple(sorted(self.rare)),
                tuple((name, column) for name, column in self.columns.items() if name not in self.rare),
            )
        )


def _structure(resource_slice: ResourceSlice) -> tuple[Any, ...]:
    spec = resource_slice.spec
    counters = tuple(
        (group.name, tuple(sorted((name, c.value) for name, c in group.counters.items())))
        for group in spec.shared_counters
    )
    modes = (spec.per_device_node_selection, spec.all_nodes, spec.node_selector, spec.skip_node_operations)
    return (spec.driver, modes, counters, tuple(_device(device) for device in spec.devices))


def _device(device: Device) -> tuple[Any, ...]:
    capacity = tuple(device.capacity.items()) if device.capacity else ()
    uses = tuple(
        (use.counter_set, tuple((name, c.value) for name, c in use.counters.items()), use.compatibility_groups)
        for use in device.consumes_counters
    )
    return (
        capacity,
        uses,
        device.taints,
        bool(device.allow_multiple_allocations),
        bool(device.binding_conditions),
        any(_faulty(attribute) for attribute in device.attributes.values()),
        device.node_name,
        device.node_selector,
        device.all_nodes,
    )


def _faulty(attribute: DeviceAttribute) -> bool:
    """Whether no selector can be evaluated on a device that has it."""
    if attribute.version is not None:
        return not _is_version(attribute.version)
    if attribute.versions is not None:
        return not all(_is_version(text) for text in attribute.versions)
    return attribute == _UNSET


_UNSET = DeviceAttribute()


@lru_cache(maxsize=4096)
def _is_version(text: str) -> bool:
    try:
        Semver.parse(text)
    except ValueError:
        return False
    return True


def _identifies(column: Sequence[Any]) -> bool:
    texts = [getattr(attribute, "string", None) for attribute in column if attribute is not None]
    if not texts or None in texts:
        return False
    if len(texts) == 1:
        return len(texts[0] or "") >= LOOKS_UNIQUE
    return len(set(texts)) == len(texts)


class NodeView:
    """A node's own pools. base: equal for nodes that are equal except for identifying attributes.

    pools: (driver, name) in order. rare: identifying attributes of any slice. skips: of any slice.
    """

    __slots__ = ("base", "pools", "rare", "shapes", "skips")

    def __init__(self, pools: tuple[tuple[str, str], ...], shapes: tuple[SliceShape, ...], layout: Any) -> None:
        self.pools = pools
        self.shapes = shapes
        self.rare = frozenset().union(*(shape.rare for shape in shapes)) if shapes else frozenset()
        self.skips = any(shape.skips for shape in shapes)
        self.base = intern((layout, tuple(shape.common for shape in shapes)))

    def key(self, attributes: frozenset[tuple[str, str | None]] | None) -> Interned:
        """Equal for nodes that nobody can tell apart who reads these attributes (None: all) only, and of those that
        identify devices none."""
        parts: list[Any] = [self.base.value[0]]
        for shape in self.shapes:
            parts.append(shape.structure)
            parts.append(tuple(_columns(shape, attributes)))
        return intern(tuple(parts))


def _columns(
    shape: SliceShape, attributes: frozenset[tuple[str, str | None]] | None
) -> Iterable[tuple[Attribute, Interned]]:
    for name, column in shape.columns.items():
        if name not in shape.rare and is_read(name, attributes):
            yield name, column


def is_read(name: Attribute, attributes: frozenset[tuple[str, str | None]] | None) -> bool:
    """Whether an attribute is among those read; (domain, None) stands for the whole domain, None for everything."""
    return attributes is None or name in attributes or (name[0], None) in attributes


NOWHERE = NodeView((), (), None)
"""A node without devices of its own."""


def view_of(
    shapes: Iterable[SliceShape],
    holders: Map[DeviceId, tuple[Holder, ...]],
    rules: Mapping[str, DeviceTaintRule],
    held_by_pool: Mapping[tuple[str, str], Map[DeviceId, None]],
) -> NodeView:
    """The view made of a node's own slices, given in order of their names."""
    ordered = sorted(shapes, key=lambda shape: shape.pool)
    if not ordered:
        return NOWHERE
    pools: dict[tuple[str, str], list[SliceShape]] = {}
    for shape in ordered:
        pools.setdefault(shape.pool, []).append(shape)
    layout = []
    for pool, parts in pools.items():
        generations = sorted({part.generation for part in parts})
        names = [name for part in parts for name in part.names]
        layout.append(
            (
                tuple((generations.index(part.generation), part.count) for part in parts),
                tuple(names) if len(set(names)) != len(names) else None,
                _holding(parts, holders),
                _ruled(pool, parts, rules) if rules else None,
                _unpublished(parts, held_by_pool.get(pool)),
            )
        )
    return NodeView(tuple(pools), tuple(ordered), intern(tuple(layout)))


def _holding(parts: list[SliceShape], holders: Map[DeviceId, tuple[Holder, ...]]) -> Any:
    if not any(device in holders for part in parts for device in part.ids):
        return None
    return tuple(tuple(_held(holders.get(device)) for device in part.ids) for part in parts)


def _unpublished(parts: list[SliceShape], held: Map[DeviceId, None] | None) -> Any:
    """Names of held devices that are not published, and those that are: what the former may use depends on both."""
    if held is None:
        return None
    newest = max(part.generation for part in parts)
    published = tuple(name for part in parts if part.generation == newest for name in part.names)
    names = unpublished_names(held, published)
    if not names:
        return None
    if all(part.generation == newest for part in parts):
        return names, published
    return names, published, tuple((part.structure, tuple(part.columns.items())) for part in parts)


def _held(held: tuple[Holder, ...] | None) -> Any:
    if held is None:
        return None
    return tuple(
        (
            holder.share_id is None,
            tuple(sorted((name, amount.nanos) for name, amount in holder.consumed.items())) if holder.consumed else (),
            tuple(sorted(holder.groups.items())) if holder.groups else (),
        )
        for holder in held
    )


def _ruled(pool: tuple[str, str], parts: list[SliceShape], rules: Mapping[str, DeviceTaintRule]) -> Any:
    concerned = [rule for _, rule in sorted(rules.items()) if applies(rule, driver=pool[0], pool=pool[1], device=None)]
    if not concerned:
        return None
    return tuple(
        tuple(
            tuple(rule.spec.taint for rule in concerned if applies(rule, driver=pool[0], pool=pool[1], device=name))
            for name in part.names
        )
        for part in parts
    )
