"""What do the numbers of `families` come to, now? Sums over a snapshot that are kept up to date change by change.

    tally = ClusterTally(); tally.advance(before, after, changes); tally.values(now_s, max_nodes=200, by_namespace=True)

Work costs what changed: pools, nodes and claims that a change touches are counted again and replace what they added
before. Restarting loses nothing but counters, since ages come from the objects. Never names pods or claims.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from dragoman.api.core import Node, Pod
from dragoman.api.meta import NamespacedName, parse_time
from dragoman.api.resource import ResourceClaim
from dragoman.inspect.inventory import CountedDevice, PoolCounts
from dragoman.ops.families import AGES
from dragoman.schedule.units import gated
from dragoman.snapshot.change import Change, Gone, Snapshot
from dragoman.snapshot.taints import rules_of_pool, taints_of
from dragoman.snapshot.usage import ASSUMED, DeviceId, claim_names, holds, is_finished

Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[str, Labels, float]
"""(family, label values, value)."""

PRESENT = "nvidia.com/gpu.present"
GPU_DRIVER = "gpu.nvidia.com"
MIG_STATE = "nvidia.com/mig.config.state"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
LEFT_OUT = "(others)"
SERIES_MAX = 500
"""Label values of classes, namespaces, partition types and taint keys that get series of their own."""
STATES = ("free", "held", "shared", "blocked", "tainted", "unavailable", "unusable")
POOL_STATES = ("usable", "incomplete", "invalid", "obsolete")
_KEPT = ("node not ready", "node cordoned")


class Contribution(NamedTuple):
    """What one pool, node or claim contributes. tops: values of which the largest counts."""

    sums: dict[tuple[str, Labels], int]
    tops: dict[tuple[str, Labels], int]


_NOTHING = Contribution({}, {})


class ClusterTally:
    """The sums. `advance` with every step, `values` whenever somebody asks."""

    def __init__(self) -> None:
        self._snapshot = Snapshot.empty()
        self._pools = PoolCounts(self._snapshot)
        self._parts: dict[Hashable, Contribution] = {}
        self._sums: Counter[tuple[str, Labels]] = Counter()
        self._tops: dict[tuple[str, Labels], Counter[int]] = {}
        self._dirty: dict[tuple[Any, ...], None] = {}
        self._everything = False
        self._free: dict[tuple[str, str], dict[str, Counter[str]]] = {}
        """Pool -> node -> class -> free devices."""
        self._waiting: dict[NamespacedName, float] = {}
        self._allocated: dict[NamespacedName, float] = {}

    # ---- keeping up

    def advance(self, before: Snapshot, after: Snapshot, changes: Sequence[Change]) -> None:
        """Note what a step touches. Counting waits for `values`."""
        self._snapshot = after
        for change in changes:
            gone = isinstance(change, Gone)
            meta = change if isinstance(change, Gone) else change.object.metadata
            match change.kind:
                case "ResourceSlice":
                    self._slice(before, after, meta.name)
                case "ResourceClaim":
                    self._claim(before, after, (meta.namespace, meta.name))
                case "Pod":
                    key = (meta.namespace, meta.name)
                    for pod in (before.pods.get(key), None if gone else after.pods.get(key)):
                        if pod is not None:
                            for name in claim_names(pod):
                                self._dirty["claim", meta.namespace, name] = None
                case "Node":
                    self._node(before, after, meta.name)
                case "DeviceClass" | "DeviceTaintRule":
                    self._everything = True

    def _slice(self, before: Snapshot, after: Snapshot, name: str) -> None:
        for snapshot in (before, after):
            resource_slice = snapshot.slices.get(name)
            if resource_slice is not None:
                spec = resource_slice.spec
                self._dirty["pool", spec.driver, spec.pool.name] = None
                if spec.node_name:
                    self._dirty["node", spec.node_name] = None

    def _claim(self, before: Snapshot, after: Snapshot, key: NamespacedName) -> None:
        old, new = before.claims.get(key), after.claims.get(key)
        self._dirty["claim", *key] = None
        held, holding = _devices(old), _devices(new)
        if held != holding:
            for device in held ^ holding:
                self._dirty["pool", device.driver, device.pool] = None

    def _node(self, before: Snapshot, after: Snapshot, name: str) -> None:
        old, new = before.nodes.get(name), after.nodes.get(name)
        self._dirty["node", name] = None
        if old is None or new is None or _for_pods(old) != _for_pods(new):
            for resource_slice in after.slices_by_node.get(name, ()):
                self._dirty["pool", *after.shapes[resource_slice].pool] = None
            for pool in after.wide_pools:
                self._dirty["pool", *pool] = None

    def _catch_up(self) -> None:
        snapshot = self._snapshot
        if self._everything:
            self._everything = False
            self._pools = PoolCounts(snapshot)
            self._dirty.update(dict.fromkeys(("pool", *pool) for pool in snapshot.slices_by_pool))
            self._dirty.update(dict.fromkeys(("pool", *pool) for pool in snapshot.held_by_pool))
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            kind, *names = key
            match kind:
                case "pool":
                    part = self._count_pool(names[0], names[1])
                case "node":
                    part = self._count_node(names[0])
                case _:
                    part = self._count_claim((names[0], names[1]))
            self._replace(key, part)

    def _replace(self, key: Hashable, part: Contribution) -> None:
        old = self._parts.pop(key, _NOTHING)
        for name, number in old.sums.items():
            self._sums[name] -= number
            if not self._sums[name]:
                del self._sums[name]
        for name, top in old.tops.items():
            tops = self._tops[name]
            tops[top] -= 1
            if not tops[top]:
                del tops[top]
            if not tops:
                del self._tops[name]
        if part.sums or part.tops:
            self._parts[key] = part
        for name, number in part.sums.items():
            self._sums[name] += number
        for name, top in part.tops.items():
            self._tops.setdefault(name, Counter())[top] += 1

    # ---- one pool, node, claim

    def _count_pool(self, driver: str, pool: str) -> Contribution:
        snapshot = self._snapshot
        self._free.pop((driver, pool), None)
        if (driver, pool) not in snapshot.slices_by_pool and (driver, pool) not in snapshot.held_by_pool:
            return _NOTHING
        sums: Counter[tuple[str, Labels]] = Counter()
        tops: dict[tuple[str, Labels], int] = {}
        free: dict[str, Counter[str]] = {}
        roots: Counter[tuple[str, str, str]] = Counter()
        rules = rules_of_pool(snapshot, driver, pool)

        def each(seen: CountedDevice) -> None:
            state, device = seen.state, seen.device
            sums["dragoman_driver_devices", (driver, state)] += 1
            if seen.node:
                sums["node total", (seen.node,)] += 1
                if state in ("held", "shared"):
                    sums["node in use", (seen.node,)] += 1
            if device.taints or rules:
                for taint in {(t.key, t.effect) for _, t in taints_of(device, driver, pool, rules)}:
                    sums["dragoman_device_taints", (driver, *taint)] += 1
            available = state == "free" or (state == "unavailable" and seen.why not in _KEPT)
            for name in seen.classes:
                sums["dragoman_class_devices", (name,)] += 1
                sums["dragoman_devices", (name, state)] += 1
                if not available:
                    continue
                sums["dra_devices_available", (name,)] += 1
                if seen.node:
                    free.setdefault(seen.node, Counter())[name] += 1
                    root = device.attributes.get(PCIE_ROOT)
                    if root is not None and root.string:
                        roots[name, seen.node, root.string] += 1
                if memory := _memory(device, driver):
                    top = ("dragoman_class_largest_memory_bytes", (name,))
                    tops[top] = max(tops.get(top, 0), memory)

        found = self._pools.of(snapshot, driver, pool, each)
        what = {trouble.what for trouble in found.troubles}
        for state in what & set(POOL_STATES):
            sums["dragoman_pools", (driver, state)] += 1
        if not what & {"incomplete", "invalid"} and (driver, pool) in snapshot.slices_by_pool:
            sums["dragoman_pools", (driver, "usable")] += 1
        for row in found.rows:
            for partition, number in row.fits.items():
                if partition:
                    sums["dragoman_partitions_available", (row.terms[0], partition)] += number
        for by_class in free.values():
            for name, number in by_class.items():
                top = ("dragoman_class_largest_group", (name, "node"))
                tops[top] = max(tops.get(top, 0), number)
        for (name, _, _), number in roots.items():
            top = ("dragoman_class_largest_group", (name, "pcie_root"))
            tops[top] = max(tops.get(top, 0), number)
        if free:
            self._free[driver, pool] = free
        return Contribution(dict(sums), tops)

    def _count_node(self, name: str) -> Contribution:
        node = self._snapshot.nodes.get(name)
        if node is None:
            return _NOTHING
        sums: dict[tuple[str, Labels], int] = {}
        capacity, allocatable = node.status.capacity or {}, node.status.allocatable or {}
        for what, amounts in (("capacity", capacity), ("allocatable", allocatable)):
            for resource, amount in amounts.items():
                if "/" in resource:
                    sums["dragoman_extended_resources", (resource, what)] = amount.nanos // 1_000_000_000
        has_slices = name in self._snapshot.slices_by_node
        if has_slices or PRESENT in node.metadata.labels:
            ready = not _not_ready(node)
            sums["dragoman_nodes", ("ready" if ready else "not_ready",)] = 1
            for problem in self._problems(node, ready=ready):
                sums["dragoman_node_problem", (name, problem)] = 1
                sums["dragoman_node_problems", (problem,)] = 1
        return Contribution(sums, {})

    def _problems(self, node: Node, *, ready: bool) -> Iterator[str]:
        if not ready:
            yield "not_ready"
        if node.metadata.labels.get(PRESENT) == "true" and not self._has_gpus(node):
            yield "no_slices"
        if node.metadata.labels.get(MIG_STATE) == "failed":
            yield "mig_config_failed"

    def _has_gpus(self, node: Node) -> bool:
        slices = self._snapshot.slices_by_node.get(node.metadata.name, ())
        if any(self._snapshot.shapes[name].pool[0] == GPU_DRIVER for name in slices):
            return True
        capacity = node.status.capacity or {}
        return any(resource.startswith("nvidia.com/") and amount.nanos for resource, amount in capacity.items())

    def _count_claim(self, key: NamespacedName) -> Contribution:
        claim = self._snapshot.claims.get(key)
        self._waiting.pop(key, None)
        self._allocated.pop(key, None)
        if claim is None:
            return _NOTHING
        allocation = claim.status.allocation
        sums: dict[tuple[str, Labels], int] = {("dra_resource_claims_total", ()): 1}
        sums["dragoman_claims", (self._state(claim),)] = 1
        if allocation is None:
            sums["dra_resource_claims_pending", ()] = 1
            return Contribution(sums, {})
        sums["dra_resource_claims_allocated", ()] = 1
        since = allocation.allocation_timestamp or claim.metadata.creation_timestamp
        self._allocated[key] = seconds_of(since)
        classes = _classes(claim)
        for device, holders in holds(claim).items():
            label = ("dragoman_namespace_devices", (key[0], classes.get(holders[0].request, "")))
            sums[label] = sums.get(label, 0) + 1
            del device
        return Contribution(sums, {})

    def _state(self, claim: ResourceClaim) -> str:
        if claim.metadata.deletion_timestamp:
            return "deleting"
        if claim.status.allocation is not None:
            return "in_use" if claim.status.reserved_for else "allocated"
        pods = [self._snapshot.pods[key] for key in self._snapshot.consumers(claim)]
        began = [seconds_of(pod.metadata.creation_timestamp) for pod in pods if _wants(pod)]
        if not began:
            return "unreferenced"
        meta = claim.metadata
        self._waiting[meta.namespace, meta.name] = max(min(began), seconds_of(meta.creation_timestamp))
        return "waiting"

    # ---- asked

    def values(self, now_s: float, *, max_nodes: int, by_namespace: bool) -> Iterator[Sample]:
        """All gauges but those of pending pods. now_s: seconds since the epoch."""
        self._catch_up()
        left_out: dict[str, int] = {}
        grouped: dict[str, dict[Labels, float]] = {}
        for (family, labels), total in self._sums.items():
            grouped.setdefault(family, {})[labels] = total
        for (family, labels), tops in self._tops.items():
            grouped.setdefault(family, {})[labels] = max(tops)
        self._complete(grouped, now_s)
        nodes = {family: grouped.pop(family, {}) for family in ("node total", "node in use")}
        grouped["dragoman_node_devices"] = _first_nodes(nodes, max_nodes, left_out)
        if not by_namespace:
            grouped.pop("dragoman_namespace_devices", None)
        for family, found in grouped.items():
            limit = max_nodes if family == "dragoman_node_problem" else SERIES_MAX
            if family != "dragoman_node_devices":
                found = _bounded(family, found, limit, left_out)
            for labels, number in sorted(found.items()):
                yield family, labels, number
        for family, number in sorted(left_out.items()):
            yield "dragoman_exporter_left_out", (family,), number

    def _complete(self, grouped: dict[str, dict[Labels, float]], now_s: float) -> None:
        """Zeros where a series that comes and goes would be hard to alert on; what depends on time and load."""
        for name in ("dra_resource_claims_total", "dra_resource_claims_pending", "dra_resource_claims_allocated"):
            grouped.setdefault(name, {}).setdefault((), 0)
        grouped["dra_devices_allocated"] = {(): len(self._snapshot.holders)}
        for state in ("unreferenced", "waiting", "allocated", "in_use", "deleting"):
            grouped.setdefault("dragoman_claims", {}).setdefault((state,), 0)
        grouped["dragoman_claims_waiting"] = _ages(self._waiting, now_s)
        grouped["dragoman_claims_allocated"] = _ages(self._allocated, now_s)
        stranded = self._stranded()
        for name in self._snapshot.classes:
            for family in ("dragoman_class_devices", "dra_devices_available", "dragoman_class_largest_memory_bytes"):
                grouped.setdefault(family, {}).setdefault((name,), 0)
            grouped.setdefault("dragoman_stranded_devices", {})[name,] = stranded.get(name, 0)
            for scope in ("node", "pcie_root"):
                grouped.setdefault("dragoman_class_largest_group", {}).setdefault((name, scope), 0)
        for driver in {driver for driver, _ in self._snapshot.slices_by_pool}:
            for state in STATES:
                grouped.setdefault("dragoman_driver_devices", {}).setdefault((driver, state), 0)
            for state in POOL_STATES:
                grouped.setdefault("dragoman_pools", {}).setdefault((driver, state), 0)
        for problem in ("not_ready", "no_slices", "mig_config_failed"):
            grouped.setdefault("dragoman_node_problems", {}).setdefault((problem,), 0)
        for state in ("ready", "not_ready"):
            grouped.setdefault("dragoman_nodes", {}).setdefault((state,), 0)

    def _stranded(self) -> Counter[str]:
        full: dict[str, bool] = {}
        found: Counter[str] = Counter()
        for by_node in self._free.values():
            for name, by_class in by_node.items():
                if name not in full:
                    full[name] = self._is_full(name)
                if full[name]:
                    found.update(by_class)
        return found

    def _is_full(self, name: str) -> bool:
        """Whether the smallest pod that counts (what kube-scheduler assumes of one without requests) does not fit."""
        node, used = self._snapshot.nodes.get(name), self._snapshot.requested.get(name)
        if node is None or used is None or node.status.allocatable is None:
            return False
        limits = node.status.allocatable
        needs = {**ASSUMED, "pods": 1_000_000_000}
        return any(limits[what].nanos - used.get(what, 0) < least for what, least in needs.items() if what in limits)


def seconds_of(text: str | None) -> float:
    """Seconds since the epoch of an API time; 0 where there is none."""
    try:
        return parse_time(text or "").timestamp()
    except ValueError:
        return 0.0


def _devices(claim: ResourceClaim | None) -> set[DeviceId]:
    return set(holds(claim)) if claim is not None else set()


def _for_pods(node: Node) -> tuple[Any, ...]:
    return node.spec.unschedulable, node.spec.taints, _not_ready(node)


def _not_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status != "True" for condition in node.status.conditions)


def _wants(pod: Pod) -> bool:
    """Whether a pod waits for its claims: it is not over, not going, and not held back on purpose."""
    return not is_finished(pod) and not pod.metadata.deletion_timestamp and not gated(pod)


def _memory(device: Any, driver: str) -> int:
    for name in ("memory", f"{driver}/memory"):
        found = device.capacity.get(name) if device.capacity else None
        if found is not None and found.value is not None:
            return int(found.value.nanos) // 1_000_000_000
    return 0


def _classes(claim: ResourceClaim) -> dict[str, str]:
    """Request (request/alternative) -> class."""
    found: dict[str, str] = {}
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            found[request.name] = request.exactly.device_class_name
        for sub in request.first_available or ():
            found[f"{request.name}/{sub.name}"] = sub.device_class_name
    return found


def _ages(since: dict[NamespacedName, float], now_s: float) -> dict[Labels, float]:
    limits = [seconds for _, seconds in AGES]
    counts = [0] * (len(limits) + 1)
    for then in since.values():
        counts[bisect_right(limits, max(0.0, now_s - then))] += 1
    return {(text,): sum(counts[index + 1 :]) for index, (text, _) in enumerate(AGES)}


def _first_nodes(
    nodes: dict[str, dict[Labels, float]], max_nodes: int, left_out: dict[str, int]
) -> dict[Labels, float]:
    names = sorted(nodes["node total"])
    if len(names) > max_nodes:
        left_out["dragoman_node_devices"] = len(names) - max_nodes
    found: dict[Labels, float] = {}
    for (name,) in names[:max_nodes]:
        found[name, "total"] = nodes["node total"][name,]
        found[name, "in_use"] = nodes["node in use"].get((name,), 0)
    return found


def _bounded(family: str, found: dict[Labels, float], limit: int, left_out: dict[str, int]) -> dict[Labels, float]:
    """At most so many values of the first label, those with the most; the others are left out, and counted."""
    weight: Counter[str] = Counter()
    for labels, number in found.items():
        if labels:
            weight[labels[0]] += int(number)
    if len(weight) <= limit:
        return found
    kept = set(sorted(weight, key=lambda name: (-weight[name], name))[:limit])
    left_out[family] = len(weight) - limit
    return {labels: number for labels, number in found.items() if labels[0] in kept}
