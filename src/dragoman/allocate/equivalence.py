"""Which nodes are equivalent for these claims, and what was already found out about them?

A Memory follows one line of snapshots: it keeps nodes in classes, one partition for each set of attributes that
claims read, and per class the outcomes of claims of one shape. It can be slow (shown another line it starts again)
but never wrong: everything in it is keyed by what it depends on. Never searches.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dragoman.allocate.attribute_reads import AttributeReads, Identities, attribute_reads_of
from dragoman.allocate.device_state import SKIP_OPERATIONS
from dragoman.allocate.match import Matcher
from dragoman.allocate.refusal import Refusal, Refusals, Undecided
from dragoman.allocate.remaining import ConsumedOnNode
from dragoman.allocate.slots import ClaimPlan, RequestPlan
from dragoman.allocate.values import ChosenAlternative
from dragoman.api.core import Node
from dragoman.api.resource import DeviceClass, ResourceSlice
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.pools import device_targets, slice_targets
from dragoman.snapshot.views import NOWHERE, Interned, NodeView

PARTITIONS_MAX = 32
BASES_MAX = 16_384
SHAPES_MAX = 512
OUTCOMES_MAX = 65_536


class ClaimSignature(NamedTuple):
    """Claims as far as allocation can tell them apart: their plans, and what they depend on."""

    plans: tuple[ClaimPlan, ...]
    classes: tuple[tuple[str, DeviceClass], ...]
    attributes: AttributeReads


class ClassOutcome(NamedTuple):
    """What was found for a class. picks: for each claim (request plan, position among the node's devices).

    node: for which it was found; a refusal's facts are those of the first of the class.
    consumed: in terms of policies that rank places.
    wide: the state of pools that several nodes see, if the class sees one.
    """

    node: str

    chosen: tuple[tuple[RequestPlan, ...], ...]
    picks: tuple[tuple[tuple[RequestPlan, int], ...], ...]
    alternatives: tuple[ChosenAlternative, ...]
    warnings: tuple[Refusal, ...]
    refusals: Refusals | Undecided | None
    steps: int
    consumed: ConsumedOnNode | None
    wide: object


class NodeClassGroup:
    """Equivalent nodes, sorted by name. sees_wide: a pool that other nodes see too."""

    __slots__ = ("_in_order", "_names", "key", "sees_wide")

    def __init__(self, key: Any, *, sees_wide: bool) -> None:
        self.key = key
        self.sees_wide = sees_wide
        self._names: list[str] = []
        self._in_order = True

    @property
    def names(self) -> list[str]:
        """The nodes, sorted. Do not keep: it changes with the snapshots."""
        if not self._in_order:
            self._names.sort()
            self._in_order = True
        return self._names

    def load(self, *names: str) -> None:
        """Adds nodes, many in a row."""
        self._names += names
        self._in_order = False

    def add(self, name: str) -> None:
        """Adds a node."""
        insort(self.names, name)

    def discard(self, name: str) -> None:
        """Takes a node out."""
        names = self.names
        del names[bisect_left(names, name)]


class NodePartition:
    """All nodes in groups for claims that read this."""

    def __init__(self, reading: AttributeReads) -> None:
        self.reading = reading
        self.groups: dict[Any, NodeClassGroup] = {}
        self._of: dict[str, NodeClassGroup] | None = None
        self._by_base: dict[Interned, tuple[Interned, Identities]] = {}

    def load(self, snapshot: Snapshot, wide: SharedPools) -> None:
        """Places all nodes."""
        nodes, views = snapshot.nodes, snapshot.views
        by_base: dict[Interned, list[str]] = {}
        for name, view in views.items():
            names = by_base.get(view.base)
            if names is None:
                by_base[view.base] = [name]
            else:
                names.append(name)
        for names in by_base.values():
            view = views[names[0]]
            if wide.pools or view.skips or self._reported(view)[1].any:
                for name in names:
                    self._group(self._key(nodes[name], views[name], wide)).load(name)
            else:
                self._group(self._key(nodes[names[0]], view, wide)).load(*names)
        if len(views) < len(nodes):
            for name, node in nodes.items():
                if name not in views:
                    self._group(self._key(node, NOWHERE, wide)).load(name)

    @property
    def of(self) -> dict[str, NodeClassGroup]:
        """The group of each node."""
        found = self._of
        if found is None:
            found = self._of = {}
            for group in self.groups.values():
                found.update(dict.fromkeys(group.names, group))
        return found

    def place(self, snapshot: Snapshot, name: str, wide: SharedPools) -> None:
        """Places one node again."""
        old = self.of.get(name)
        node = snapshot.nodes.get(name)
        key = None
        if node is not None:
            key = self._key(node, snapshot.views.get(name, NOWHERE), wide)
            if old is not None and old.key == key:
                return
        if old is not None:
            old.discard(name)
            del self.of[name]
            if not old.names:
                del self.groups[old.key]
        if key is not None:
            group = self.of[name] = self._group(key)
            group.add(name)

    def _group(self, key: Any) -> NodeClassGroup:
        found = self.groups.get(key)
        if found is None:
            found = self.groups[key] = NodeClassGroup(key, sees_wide=bool(key[1]))
        return found

    def _key(self, node: Node, view: NodeView, wide: SharedPools) -> tuple[Interned, Any, bool, tuple[Any, ...]]:
        seen = wide.of(node, view) if wide.pools else ()
        may_skip = view.skips and _may_skip(node)
        key, identities = self._reported(view)
        return (key, seen, may_skip, identities.of(view) if identities.any else ())

    def _reported(self, view: NodeView) -> tuple[Interned, Identities]:
        """What tells nodes like this from others, and among each other."""
        found = self._by_base.get(view.base)
        if found is None:
            if len(self._by_base) >= BASES_MAX:
                self._by_base.clear()
            found = self._by_base[view.base] = (view.key(self.reading.every), Identities(view, self.reading))
        return found


class SharedPools:
    """What each node sees of the pools that several nodes see."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools: list[tuple[tuple[str, str], list[ResourceSlice]]] = [
            (pool, [snapshot.slices[name] for name in keys_of(snapshot.slices_by_pool, pool)])
            for pool in sorted(snapshot.wide_pools)
        ]

    def of(self, node: Node, view: NodeView) -> tuple[Any, ...]:
        """For each pool that the node sees: its place among the node's own pools, and which devices it sees."""
        seen = []
        for pool, resource_slices in self.pools:
            topology = tuple(_topology(resource_slice, node) for resource_slice in resource_slices)
            if any(part is not False for part in topology):
                seen.append((pool, bisect_left(view.pools, pool), topology))
        return tuple(seen)


def _topology(resource_slice: ResourceSlice, node: Node) -> Any:
    if not slice_targets(resource_slice, node):
        return False
    if resource_slice.spec.skip_node_operations and not _may_skip(node):
        return None
    if not resource_slice.spec.per_device_node_selection:
        return True
    return tuple(device_targets(resource_slice, device, node) for device in resource_slice.spec.devices)


def _may_skip(node: Node) -> bool:
    return SKIP_OPERATIONS in node.status.declared_features


class AllocationCache:
    """What earlier questions found out, for one line of snapshots. Leaving it out changes no answer.

    Give the same Memory to `survey` for each snapshot of a line; not to be shared between threads.
    """

    def __init__(self, matcher: Matcher | None = None) -> None:
        self.matcher = matcher or Matcher()
        self._mark: object = None
        self._wide: SharedPools | None = None
        self._partitions: dict[AttributeReads, NodePartition] = {}
        self._shapes: dict[Any, ClaimSignature] = {}
        self._outcomes: dict[Any, ClassOutcome] = {}

    def follow(self, snapshot: Snapshot) -> None:
        """Catches up with a snapshot."""
        mark = snapshot.recent[-1].mark
        if mark is self._mark:
            return
        names = self._since(snapshot)
        self._mark = mark
        if names is None or self._wide is None:
            self._partitions.clear()
            self._wide = SharedPools(snapshot)
            return
        for name in names:
            for partition in self._partitions.values():
                partition.place(snapshot, name, self._wide)

    def _since(self, snapshot: Snapshot) -> set[str] | None:
        """The nodes touched since the last snapshot seen; None if that is not known."""
        names: set[str] = set()
        for touched in reversed(snapshot.recent):
            if touched.mark is self._mark:
                return names
            if touched.nodes is None:
                return None
            names |= touched.nodes
        return None

    def partition(self, snapshot: Snapshot, reading: AttributeReads) -> NodePartition:
        """The nodes of the snapshot followed last, in groups."""
        found = self._partitions.pop(reading, None)
        if found is None:
            if len(self._partitions) >= PARTITIONS_MAX:
                self._partitions.pop(next(iter(self._partitions)))
            found = NodePartition(reading)
            assert self._wide is not None
            found.load(snapshot, self._wide)
        self._partitions[reading] = found
        return found

    def shape(self, key: Any, snapshot: Snapshot) -> ClaimSignature | None:
        """Plans of claims of that shape, unless a class changed."""
        found = self._shapes.get(key)
        if found is None or any(snapshot.classes.get(name) is not known for name, known in found.classes):
            return None
        return found

    def keep_shape(self, key: Any, shape: ClaimSignature) -> None:
        """Remembers plans. Outcomes of an older version of the shape are forgotten."""
        if len(self._shapes) >= SHAPES_MAX or key in self._shapes:
            self._shapes.clear()
            self._outcomes.clear()
        self._shapes[key] = shape

    def outcome(self, key: Any, group: NodeClassGroup, snapshot: Snapshot) -> ClassOutcome | None:
        """What was found for claims of that shape on nodes like these."""
        found = self._outcomes.get((key, group.key))
        if found is None or (group.sees_wide and found.wide is not snapshot.wide_state):
            return None
        return found if found.refusals is None or found.node == group.names[0] else None

    def keep_outcome(self, key: Any, group: NodeClassGroup, outcome: ClassOutcome) -> None:
        """Remembers an outcome."""
        if len(self._outcomes) >= OUTCOMES_MAX:
            self._outcomes.clear()
        self._outcomes[key, group.key] = outcome


def shape_of(plans: Sequence[ClaimPlan], read: Iterable[tuple[str, str | None]] = ()) -> ClaimSignature:
    """What plans depend on: classes, and the attributes that selectors, constraints and the policy (read) read."""
    classes: dict[str, DeviceClass] = {}
    for plan in plans:
        for request_plans in plan.requests:
            for request_plan in request_plans:
                classes[request_plan.device_class.metadata.name] = request_plan.device_class
    return ClaimSignature(tuple(plans), tuple(classes.items()), attribute_reads_of(plans, read))
