"""Which nodes can node checks and scores not tell apart? Groups of them, kept as changes come in.

A decision then costs what the number of groups is, not that of nodes. This is a memory beside the snapshot: it
catches up by the last steps that snapshots record, and starts again when it has lost the line, so that it can be
slow but never wrong. Never judges a node, never looks at devices.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from immutables import Map

from dragoman.api.core import Node
from dragoman.schedule.filter import NodeProjection
from dragoman.snapshot.change import Snapshot
from dragoman.values.quantity import Quantity

PROJECTIONS_MAX = 32
FEW = 16
"""A search among sorted names costs about as much as looking at so many."""
Load: TypeAlias = "tuple[Map[str, int], Map[str, int]]"
_NOTHING: Map[str, int] = Map()


class NodeGroup:
    """Equivalent nodes. `node` is one of them. Compare by identity.

    used and extra: what pods asked of each, and what scores assume on top (Snapshot.requested, Snapshot.assumed).
    """

    __slots__ = ("_heap", "extra", "key", "members", "node", "used")

    def __init__(self, key: Any, node: Node, load: Load) -> None:
        self.key = key
        self.node = node
        self.used, self.extra = load
        self.members: set[str] = set()
        self._heap: list[str] = []

    @property
    def allocatable(self) -> Mapping[str, Quantity] | None:
        """What each node has; None: room for everything."""
        return self.node.status.allocatable

    def first(self) -> str:
        """The smallest name."""
        while self._heap[0] not in self.members:
            heapq.heappop(self._heap)
        return self._heap[0]

    def first_of(self, names: Sequence[str], before: str = "") -> str | None:
        """The smallest member among sorted names (that sorts before `before`, if given); None if there is none."""
        members = self.members
        end = bisect_left(names, before) if before else len(names)
        if len(members) * FEW < end:
            return min((name for name in members if (not before or name < before) and _has(names, name)), default=None)
        for name in islice(names, end):
            if name in members:
                return name
        return None

    def add(self, name: str) -> None:
        """One more member."""
        self.members.add(name)
        heapq.heappush(self._heap, name)
        if len(self._heap) > 2 * len(self.members) + 64:
            self._heap = sorted(self.members)


def _has(names: Sequence[str], name: str) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name


def lone(snapshot: Snapshot, node: Node) -> NodeGroup:
    """A group of one node, for questions about named nodes."""
    name = node.metadata.name
    group = NodeGroup(None, node, _load(snapshot, name))
    group.add(name)
    return group


def _load(snapshot: Snapshot, name: str) -> Load:
    return snapshot.requested.get(name, _NOTHING), snapshot.assumed.get(name, _NOTHING)


class _Partition:
    """All nodes in groups, for pods with one projection."""

    def __init__(self, projection: NodeProjection) -> None:
        self.projection = projection
        self.groups: dict[Any, NodeGroup] = {}
        self._of: dict[str, NodeGroup] = {}

    def place(self, name: str, node: Node | None, body: int, load: Load) -> None:
        old = self._of.get(name)
        key = None
        if node is not None:
            key = (body, load, self.projection.project(node))
            if old is not None and old.key == key:
                return
        if old is not None:
            old.members.discard(name)
            del self._of[name]
            if not old.members:
                del self.groups[old.key]
        if node is not None:
            group = self.groups.get(key)
            if group is None:
                group = self.groups[key] = NodeGroup(key, node, load)
            group.add(name)
            self._of[name] = group


class NodeEquivalence:
    """The groups of all nodes, for each projection that was asked for."""

    def __init__(self) -> None:
        self._mark: object = None
        self._partitions: dict[NodeProjection, _Partition] = {}
        self._bodies: dict[Any, int] = {}
        self._body_of: dict[str, tuple[Node, int]] = {}

    def groups(self, snapshot: Snapshot, projection: NodeProjection) -> Iterable[NodeGroup]:
        """Groups of nodes that are equivalent for pods with that projection."""
        self._follow(snapshot)
        partition = self._partitions.pop(projection, None)
        if partition is None:
            if len(self._partitions) >= PROJECTIONS_MAX:
                self._partitions.pop(next(iter(self._partitions)))
            partition = _Partition(projection)
            for name, node in snapshot.nodes.items():
                partition.place(name, node, self._body(name, node), _load(snapshot, name))
        self._partitions[projection] = partition
        return partition.groups.values()

    def _follow(self, snapshot: Snapshot) -> None:
        """Catches up with a snapshot, by the steps it remembers since the one seen last."""
        names: set[str] = set()
        for step in reversed(snapshot.recent):
            if step.mark is self._mark:
                break
            if step.loads is None:
                self._forget()
                break
            names |= step.loads
        else:
            self._forget()
        self._mark = snapshot.recent[-1].mark
        for name in names if self._partitions else ():
            self._place(snapshot, name)

    def _forget(self) -> None:
        self._partitions.clear()
        self._bodies.clear()
        self._body_of.clear()

    def _place(self, snapshot: Snapshot, name: str) -> None:
        node = snapshot.nodes.get(name)
        load = _load(snapshot, name)
        body = self._body(name, node) if node is not None else 0
        if node is None:
            self._body_of.pop(name, None)
        for partition in self._partitions.values():
            partition.place(name, node, body, load)

    def _body(self, name: str, node: Node) -> int:
        """A number for what the node offers, equal for equal allocatable."""
        known = self._body_of.get(name)
        if known is not None and known[0] is node:
            return known[1]
        offered = node.status.allocatable
        key = None if offered is None else tuple(sorted((k, v.nanos) for k, v in offered.items()))
        body = self._bodies.setdefault(key, len(self._bodies))
        self._body_of[name] = (node, body)
        return body
