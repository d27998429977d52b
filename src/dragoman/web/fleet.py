"""What stands where in the fleet, and in what state? Nodes in groups, their devices as tiles, filtered.

States are those of `inspect.inventory`, counted once per pool and again only for pools whose slices, holders or nodes
are other objects than before. Here they are only arranged for a page: groups, pages of nodes, holders, problems.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from dragoman.api.core import Node
from dragoman.api.resource import Device
from dragoman.api.selectors import Selector, SelectorCompileError, SelectorFailed, compile_selector, device_view
from dragoman.inspect.inventory import NO_CLASS, NOWHERE, CountedDevice, PoolCounts, Trouble, keeps_pods_off
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.taints import rules_of_pool, taints_of
from dragoman.snapshot.unpublished import unpublished_of
from dragoman.snapshot.usage import DeviceId
from dragoman.values.names import split_qualified

STATES = ("free", "held", "shared", "tainted", "blocked", "unavailable", "unusable", "gone")
"""Those of the inventory; gone: held by a claim, but no longer published."""
FILTERS_KEPT = 8
SUMMARIES_KEPT = 64
PAGE_MAX = 200
_GROUP_LABELS = {"clique": ("gpu.clique", "clique"), "rack": ("rack",), "zone": ("zone",), "model": ("gpu.product",)}
_ATTRIBUTE = re.compile(r"([\w./-]+)\s*=\s*([^=].*)")
_DIGITS = re.compile(r"(\d+)")
_NIC_SIGNS = ("ifName", "rdma", "mac")


class Tile(NamedTuple):
    """A device as it is shown. kind: device, partition or nic. parent: what devices of one card share (its counters).

    tainted: also where it is in use. why: what keeps pods off its node.
    """

    id: DeviceId
    node: str
    state: str
    why: str
    classes: tuple[str, ...]
    kind: str
    parent: str
    numa: str
    root: str
    tainted: bool
    claims: tuple[str, ...]
    device: Device | None

    def as_json(self) -> dict[str, Any]:
        """{"id", "name", "state", ...}; what is empty is left out."""
        body: dict[str, Any] = {"id": str(self.id), "name": self.id.device, "state": self.state, "kind": self.kind}
        optional = {"parent": self.parent, "numa": self.numa, "root": self.root, "claims": self.claims}
        body |= {name: value for name, value in optional.items() if value}
        return body | ({"tainted": True} if self.tainted else {})


class FleetFilter(msgspec.Struct, frozen=True):
    """Which devices are meant; "" for any. node: a part of its name. expression: CEL, or ATTRIBUTE=VALUE."""

    class_name: str = ""
    namespace: str = ""
    node: str = ""
    state: str = ""
    expression: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether every device is meant."""
        return not (self.class_name or self.namespace or self.node or self.state or self.expression)


class FilterError(Exception):
    """The expression is wrong. place: line and column from 1, 0 if unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class _PoolTiles(NamedTuple):
    signature: Any
    tiles: tuple[Tile, ...]
    troubles: tuple[Trouble, ...]


class Fleet:
    """The devices of one snapshot. Made from the one before it, it counts only what differs."""

    def __init__(self, snapshot: Snapshot, before: Fleet | None = None, *, nodes_known: bool = True) -> None:
        self.snapshot = snapshot
        self._nodes_known = nodes_known
        same = before is not None and _rules(before.snapshot) == _rules(snapshot)
        self._counts: PoolCounts = before._counts if before is not None and same else PoolCounts(snapshot)
        known = before._pools if before is not None and same else {}
        self._pools: dict[tuple[str, str], _PoolTiles] = {}
        for pool in sorted({*snapshot.slices_by_pool, *snapshot.held_by_pool}):
            signature = self._signature(pool)
            old = known.get(pool)
            self._pools[pool] = old if old is not None and old.signature == signature else self._count(pool, signature)
        self.by_node: dict[str, list[Tile]] = {name: [] for name in sorted(snapshot.nodes, key=_natural)}
        for entry in self._pools.values():
            for tile in entry.tiles:
                self.by_node.setdefault(tile.node or NOWHERE, []).append(tile)
        self.troubles = tuple(trouble for entry in self._pools.values() for trouble in entry.troubles)
        self._filters: dict[str, Callable[[Tile], bool]] = {}
        self._groups: dict[str, dict[str, list[str]]] = {}
        self._summaries: dict[tuple[str, FleetFilter], dict[str, Any]] = {}
        self._terms = self.group_terms()
        every = [tile for tiles in self.by_node.values() for tile in tiles]
        self._classes = dict(sorted(Counter(name for tile in every for name in tile.classes).items()))
        self._namespaces = sorted({claim.partition("/")[0] for tile in every for claim in tile.claims})
        self.problems = self._problems()
        """What is broken: pools, nodes, devices; each {"kind", "name", "reason", "count"}."""

    # ---- counting

    def _signature(self, pool: tuple[str, str]) -> Any:
        snapshot = self.snapshot
        names = keys_of(snapshot.slices_by_pool, pool)
        parts: list[Any] = [tuple((i, snapshot.holders[i]) for i in sorted(snapshot.held_by_pool.get(pool, ())))]
        for name in names:
            resource_slice = snapshot.slices[name]
            node = snapshot.nodes.get(resource_slice.spec.node_name or "")
            version = resource_slice.metadata.resource_version or id(resource_slice)
            off = keeps_pods_off(node) if node is not None else None
            parts.append((name, version, off))
        if pool in snapshot.wide_pools:
            parts.append(tuple((name, keeps_pods_off(node)) for name, node in sorted(snapshot.nodes.items())))
        return tuple(parts)

    def _count(self, pool: tuple[str, str], signature: Any) -> _PoolTiles:
        tiles: list[Tile] = []
        snapshot = self.snapshot
        rules = rules_of_pool(snapshot, *pool)
        gone = {one.id for one in unpublished_of(snapshot, *pool)}

        def each(seen: CountedDevice) -> None:
            device = seen.device
            found = DeviceId(seen.driver, seen.pool, device.name)
            tainted = bool(device.taints or rules) and any(
                taint.effect in ("NoSchedule", "NoExecute")
                for _, taint in taints_of(device, seen.driver, seen.pool, rules)
            )
            facts = {split_qualified(name, "")[1]: value for name, value in device.attributes.items()}
            claims = tuple(dict.fromkeys(f"{h.namespace}/{h.claim}" for h in snapshot.holders.get(found, ())))
            tiles.append(
                Tile(
                    found,
                    seen.node,
                    "gone" if found in gone else seen.state,
                    seen.why,
                    tuple(name for name in seen.classes if name != NO_CLASS),
                    _kind(device, facts),
                    device.consumes_counters[0].counter_set if device.consumes_counters else "",
                    _shown(facts.get("numaNode")),
                    _shown(facts.get("pcieRoot")),
                    tainted,
                    claims,
                    device,
                )
            )

        found = self._counts.of(snapshot, *pool, each)
        troubles = tuple(t for t in found.troubles if self._nodes_known or t.what != "no node")
        return _PoolTiles(signature, tuple(tiles), troubles)

    # ---- filters

    def matching(self, wanted: FleetFilter) -> Callable[[Tile], bool]:
        """Whether a device is meant. Raises FilterError."""
        by_expression = self._expression(wanted.expression.strip())
        space = f"{wanted.namespace}/"

        def matches(tile: Tile) -> bool:
            if wanted.class_name and wanted.class_name not in tile.classes:
                return False
            if wanted.state and not (tile.state == wanted.state or (wanted.state == "tainted" and tile.tainted)):
                return False
            if wanted.namespace and not any(claim.startswith(space) for claim in tile.claims):
                return False
            if wanted.node and wanted.node not in tile.node:
                return False
            return by_expression is None or by_expression(tile)

        return matches

    def _expression(self, text: str) -> Callable[[Tile], bool] | None:
        if not text:
            return None
        known = self._filters.get(text)
        if known is None:
            if len(self._filters) >= FILTERS_KEPT:
                self._filters.clear()
            pair = _ATTRIBUTE.fullmatch(text)
            known = self._filters[text] = _by_attribute(*pair.groups()) if pair else self._by_cel(text)
        return known

    def _by_cel(self, text: str) -> Callable[[Tile], bool]:
        compiled = compile_selector(text)
        if isinstance(compiled, SelectorCompileError):
            raise FilterError(compiled.message, compiled.line, compiled.column)
        matched: set[DeviceId] = set()
        failed: list[SelectorFailed] = []
        total = 0
        layouts: dict[Any, list[bool]] = {}
        for name, shape in self.snapshot.shapes.items():
            resource_slice = self.snapshot.slices[name]
            key = (shape.structure, tuple(c for a, c in shape.columns.items() if _reads(compiled, a)))
            answers = layouts.get(key)
            total += len(shape.ids)
            if answers is None:
                answers = layouts[key] = []
                for device in resource_slice.spec.devices:
                    found = compiled.match(device_view(device, resource_slice.spec.driver))
                    answers.append(found is True)
                    if isinstance(found, SelectorFailed):
                        failed.append(found)
            matched.update(i for i, answer in zip(shape.ids, answers, strict=True) if answer)
        if failed and not matched:
            first = failed[0]
            near = f"; near: {first.near}" if first.near else ""
            raise FilterError(first.message + near, first.line, first.column)
        return lambda tile: tile.id in matched

    # ---- what is shown

    def group_terms(self) -> list[str]:
        """By what nodes can be grouped, most telling first."""
        found = [term for term in _GROUP_LABELS if self._label(term)]
        return [*found, "none"]

    def _label(self, term: str) -> str:
        """The label that tells a node's group, "" if no node has one."""
        ends = _GROUP_LABELS.get(term, ())
        for node in self.snapshot.nodes.values():
            for label in node.metadata.labels:
                if label == term or label.rpartition("/")[2] in ends:
                    return str(label)
        return ""

    def groups(self, term: str) -> dict[str, list[str]]:
        """Group to its nodes, by name."""
        known = self._groups.get(term)
        if known is None:
            label = self._label(term) if term != "none" else ""
            known = {}
            for name in self.by_node:
                node = self.snapshot.nodes.get(name)
                value = node.metadata.labels.get(label, "") if node is not None and label else ""
                known.setdefault(value, []).append(name)
            known = self._groups[term] = dict(sorted(known.items(), key=lambda entry: (not entry[0], entry[0])))
        return known

    def summary(self, term: str, wanted: FleetFilter) -> dict[str, Any]:
        """{"by", "terms", "nodes", "counts", "matching", "groups": [{"name", "nodes", "counts"}], "classes", ...}."""
        term = term or self._terms[0]
        known = self._summaries.get((term, wanted))
        if known is None:
            if len(self._summaries) >= SUMMARIES_KEPT:
                self._summaries.clear()
            known = self._summaries[term, wanted] = self._counted(term, wanted)
        return known

    def _counted(self, term: str, wanted: FleetFilter) -> dict[str, Any]:
        matches = None if wanted.is_empty else self.matching(wanted)
        total: Counter[str] = Counter()
        groups = []
        nodes = 0
        for name, members in self.groups(term).items():
            counts: Counter[str] = Counter()
            shown = 0
            for node in members:
                states = [tile.state for tile in self.by_node[node] if matches is None or matches(tile)]
                counts.update(states)
                shown += bool(states) or matches is None
            if shown:
                groups.append({"name": name, "nodes": shown, "counts": dict(counts)})
                nodes += shown
                total.update(counts)
        return {
            "by": term,
            "terms": self._terms,
            "nodes": nodes,
            "counts": {state: total[state] for state in STATES if total[state]},
            "groups": groups,
            "classes": self._classes,
            "namespaces": self._namespaces,
            "problems": len(self.problems),
        }

    def nodes(self, term: str, group: str, wanted: FleetFilter, offset: int, limit: int) -> dict[str, Any]:
        """{"total", "nodes": [...]}: a page of the nodes of a group that have matching devices."""
        matches = self.matching(wanted)
        found = [
            name
            for name in self.groups(term).get(group, ())
            if wanted.is_empty or any(matches(tile) for tile in self.by_node[name])
        ]
        page = found[offset : offset + min(max(limit, 1), PAGE_MAX)]
        return {"total": len(found), "nodes": [self.node(name, matches) for name in page]}

    def node(self, name: str, matches: Callable[[Tile], bool] | None = None) -> dict[str, Any]:
        """{"name", "why", "counts", "devices"}; a device that a filter leaves out has "out"."""
        node: Node | None = self.snapshot.nodes.get(name)
        tiles = self.by_node.get(name, [])
        devices = []
        for tile in tiles:
            body = tile.as_json()
            if matches is not None and not matches(tile):
                body["out"] = True
            devices.append(body)
        return {
            "name": name,
            "why": keeps_pods_off(node) if node is not None else "" if name == NOWHERE else "no such node",
            "counts": dict(Counter(tile.state for tile in tiles)),
            "devices": devices,
        }

    def holders(self, wanted: FleetFilter, offset: int, limit: int) -> dict[str, Any]:
        """{"total", "namespaces", "holders": [{"namespace", "claim", "pods", "count", "devices", "nodes"}]}: a page of
        the claims that have matching devices, who has most first."""
        matches = self.matching(wanted)
        found: dict[str, list[Tile]] = {}
        for tiles in self.by_node.values():
            for tile in tiles:
                if tile.claims and matches(tile):
                    for claim in tile.claims:
                        found.setdefault(claim, []).append(tile)
        rows = []
        held: Counter[str] = Counter()
        for claim, tiles in found.items():
            held[claim.partition("/")[0]] += len(tiles)
        ordered = sorted(found.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        for claim, tiles in ordered[offset : offset + limit]:
            namespace, _, name = claim.partition("/")
            pods = [pod for _, pod in keys_of(self.snapshot.pods_by_claim, (namespace, name))]
            nodes = sorted({tile.node for tile in tiles if tile.node})
            devices = [str(tile.id) for tile in tiles[:32]]
            body = {"namespace": namespace, "claim": name, "pods": pods, "count": len(tiles), "devices": devices}
            rows.append({**body, "nodes": nodes[:8]})
        return {"total": len(found), "namespaces": dict(held.most_common()), "holders": rows}

    def _problems(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [
            {"kind": "pool", "name": f"{t.driver}/{t.pool}", "reason": t.what, "detail": t.detail, "count": t.devices}
            for t in self.troubles
        ]
        for name, tiles in self.by_node.items():
            node = self.snapshot.nodes.get(name)
            if node is None:
                if name != NOWHERE:
                    found.append({"kind": "node", "name": name, "reason": "no such node", "count": len(tiles)})
            elif (why := keeps_pods_off(node)) and tiles:
                found.append({"kind": "node", "name": name, "reason": why, "count": len(tiles)})
            tainted = [tile for tile in tiles if tile.tainted]
            found += [{"kind": "device", "name": str(tile.id), "reason": "tainted", "count": 1} for tile in tainted[:4]]
            if len(tainted) > 4:
                more = len(tainted) - 4
                found.append({"kind": "node", "name": name, "reason": "more tainted devices", "count": more})
        return found


def _natural(name: str) -> tuple[str | int, ...]:
    """Orders node-2 before node-10."""
    return tuple(int(part) if part.isdecimal() else part for part in _DIGITS.split(name))


def _rules(snapshot: Snapshot) -> tuple[Any, ...]:
    return (snapshot.classes, snapshot.taint_rules)


def _reads(selector: Selector, name: tuple[str, str]) -> bool:
    reads = selector.reads.attributes
    return reads is None or name in reads or (name[0], None) in reads


def _by_attribute(name: str, value: str) -> Callable[[Tile], bool]:
    wanted = value.strip().strip("\"'")

    def matches(tile: Tile) -> bool:
        attributes: Iterable[tuple[str, Any]] = tile.device.attributes.items() if tile.device is not None else ()
        return any(
            _shown(entry) == wanted for known, entry in attributes if name in (known, split_qualified(known, "")[1])
        )

    return matches


def _kind(device: Device, facts: dict[str, Any]) -> str:
    if any(sign in facts for sign in _NIC_SIGNS):
        return "nic"
    return "partition" if device.consumes_counters and ("profile" in facts or "parentUUID" in facts) else "device"


def _shown(attribute: Any) -> str:
    """An attribute's value as text; "" for none."""
    if attribute is None:
        return ""
    for value in (attribute.string, attribute.int_, attribute.bool_, attribute.version):
        if value is not None:
            return str(value).lower() if isinstance(value, bool) else str(value)
    return ""
