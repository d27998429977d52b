"""What does the cluster look like now, and after one more change?

`Snapshot` is a value: frozen objects in persistent maps, with indexes that `apply` keeps up to date. Keeping an
old snapshot is free; a change costs what it touches, never the size of the cluster. Never reads a cluster and
never judges an object.

    snapshot = Snapshot.empty()
    snapshot = apply(snapshot, Put("Pod", pod))              # added or replaced
    snapshot = apply(snapshot, Gone("Pod", "default", "a"))  # deleted; absent is fine
    snapshot = Snapshot.from_objects([("Node", node), ("ResourceSlice", piece)])

Keys: cluster-scoped objects by name, namespaced ones by (namespace, name), workloads by (kind, namespace, name).
Index fields end in `_by_*` and map a term to a persistent set (a Map with the object's key as key); use
`keys_of(index, term)` to get the keys sorted. Iteration order of a Map is not defined: sort before choosing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from immutables import Map

from dragoman.api.core import (
    LimitRange,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ResourceQuota,
    StorageClass,
    Workload,
)
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dragoman.errors import Bug
from dragoman.snapshot.taints import applies
from dragoman.snapshot.usage import (
    DeviceId,
    Holder,
    assumed_extra,
    claim_names,
    group_of,
    holds,
    is_finished,
    pod_requests,
    volume_claim_names,
)
from dragoman.snapshot.views import NOWHERE, NodeView, SliceShape, view_of

WorkloadKey: TypeAlias = tuple[str, str, str]
K = TypeVar("K", bound=Hashable)
Index: TypeAlias = "Map[Any, Map[Any, None]]"

WORKLOADS = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"}
)
_STORES = {
    "Node": ("nodes", False),
    "Pod": ("pods", True),
    "ResourceClaim": ("claims", True),
    "ResourceClaimTemplate": ("templates", True),
    "DeviceClass": ("classes", False),
    "ResourceSlice": ("slices", False),
    "DeviceTaintRule": ("taint_rules", False),
    "Namespace": ("namespaces", False),
    "PodGroup": ("pod_groups", True),
    "PriorityClass": ("priority_classes", False),
    "ResourceQuota": ("quotas", True),
    "LimitRange": ("limit_ranges", True),
    "PodDisruptionBudget": ("budgets", True),
    "PersistentVolumeClaim": ("volume_claims", True),
    "PersistentVolume": ("volumes", False),
    "StorageClass": ("storage_classes", False),
}
HELD = frozenset(_STORES) | WORKLOADS
"""Kinds that a snapshot holds; `apply` refuses others, so filter before."""


class Put(msgspec.Struct, frozen=True):
    """The object is now like this (new or changed)."""

    kind: str
    object: Any


class Gone(msgspec.Struct, frozen=True):
    """The object of that name exists no longer; namespace "" for cluster scope."""

    kind: str
    namespace: str
    name: str


Change: TypeAlias = Put | Gone


class Touched(NamedTuple):
    """One step in the life of a snapshot. mark: identifies the snapshot after the step.

    nodes: those whose view of devices or whose object changed; loads: those whose object or pods changed. None: many.
    """

    mark: object
    nodes: frozenset[str] | None
    loads: frozenset[str] | None


REPELS = "repels"
"""Trait of pods with a podAntiAffinity, which concerns other pods too."""
RECENT_MAX = 64
TOUCHED_MAX = 256


class Snapshot(msgspec.Struct, frozen=True):
    """One picture of the cluster.

    version: counts the changes applied, for telling snapshots of one line apart
    pods_by_node: node name -> pods bound to it, finished ones too
    pods_by_volume_claim: (namespace, PersistentVolumeClaim) -> pods that mount it
    pods_by_claim: (namespace, claim) -> pods that use the claim (by name, by template once made, extended)
    pods_by_group: (namespace, pod group, or workload that is a gang: usage.group_of) -> its pods
    pods_by_trait: a trait (REPELS) -> pods that have it
    claims_by_owner: owner uid -> claims it owns (any owner reference)
    slices_by_pool: (driver, pool) -> slices, all generations
    slices_by_node: node name -> slices with that spec.nodeName; "" -> slices without nodeName
    holders: device -> who holds it (several: shares, or a double allocation)
    held_by_pool: (driver, pool) -> its held devices, published or not
    nodes_by_pool: (driver, pool) -> node names (and "" for none) that its slices name -> how many slices do
    wide_pools: pools that more than one node can see: with slices without nodeName or for several nodes
    shapes: slice name -> what can be distinguished in it (snapshot.views)
    views: node -> its own pools as far as they can be distinguished; no entry: no node or no pools
    wide_state: changes identity whenever a slice or holder of a wide pool changes
    recent: the last steps that touched a node, newest last
    requested: node name -> resource -> nano-units asked for by its unfinished pods, "pods" being 1e9 each
    assumed: node name -> cpu and memory that scores count on top (containers that state none), in nano-units
    """

    version: int
    nodes: Map[str, Node]
    pods: Map[NamespacedName, Pod]
    claims: Map[NamespacedName, ResourceClaim]
    templates: Map[NamespacedName, ResourceClaimTemplate]
    classes: Map[str, DeviceClass]
    slices: Map[str, ResourceSlice]
    taint_rules: Map[str, DeviceTaintRule]
    namespaces: Map[str, Namespace]
    pod_groups: Map[NamespacedName, PodGroup]
    priority_classes: Map[str, PriorityClass]
    quotas: Map[NamespacedName, ResourceQuota]
    limit_ranges: Map[NamespacedName, LimitRange]
    budgets: Map[NamespacedName, PodDisruptionBudget]
    volume_claims: Map[NamespacedName, PersistentVolumeClaim]
    volumes: Map[str, PersistentVolume]
    storage_classes: Map[str, StorageClass]
    workloads: Map[WorkloadKey, Workload]
    pods_by_node: Map[str, Map[NamespacedName, None]]
    pods_by_claim: Map[NamespacedName, Map[NamespacedName, None]]
    pods_by_volume_claim: Map[NamespacedName, Map[NamespacedName, None]]
    pods_by_group: Map[NamespacedName, Map[NamespacedName, None]]
    pods_by_trait: Map[str, Map[NamespacedName, None]]
    claims_by_owner: Map[str, Map[NamespacedName, None]]
    slices_by_pool: Map[NamespacedName, Map[str, None]]
    slices_by_node: Map[str, Map[str, None]]
    nodes_by_pool: Map[NamespacedName, Map[str, int]]
    wide_pools: Map[NamespacedName, None]
    holders: Map[DeviceId, tuple[Holder, ...]]
    held_by_pool: Map[NamespacedName, Map[DeviceId, None]]
    requested: Map[str, Map[str, int]]
    assumed: Map[str, Map[str, int]]
    shapes: Map[str, SliceShape]
    views: Map[str, NodeView]
    wide_state: object
    recent: tuple[Touched, ...]

    @classmethod
    def empty(cls) -> Snapshot:
        """A cluster without objects."""
        return _EMPTY

    @classmethod
    def from_objects(cls, objects: Iterable[tuple[str, Any]]) -> Snapshot:
        """All at once: pairs of kind and object. Faster than one `apply` each; later ones replace earlier ones."""
        return apply_all(_EMPTY, (Put(kind, value) for kind, value in objects))

    def consumers(self, claim: ResourceClaim) -> tuple[NamespacedName, ...]:
        """Keys of the pods that use a claim, sorted."""
        return keys_of(self.pods_by_claim, (claim.metadata.namespace, claim.metadata.name))


def keys_of(index: Map[Any, Map[K, None]], term: Hashable) -> tuple[K, ...]:
    """Keys under a term of an index, sorted; () if there are none."""
    found = index.get(term)
    return tuple(sorted(found)) if found is not None else ()  # type: ignore[type-var]


def apply(snapshot: Snapshot, change: Change) -> Snapshot:
    """The snapshot after one change. Raises Bug for a kind that snapshots do not hold."""
    return apply_all(snapshot, (change,))


def apply_all(snapshot: Snapshot, changes: Iterable[Change]) -> Snapshot:
    """The snapshot after several changes, in order."""
    draft = _Draft(snapshot)
    for change in changes:
        draft.step(change)
    return draft.finish()


def _terms_of_pod(pod: Pod) -> list[tuple[str, Hashable]]:
    namespace = pod.metadata.namespace
    terms: list[tuple[str, Hashable]] = [("pods_by_claim", (namespace, name)) for name in claim_names(pod)]
    if pod.spec.node_name:
        terms.append(("pods_by_node", pod.spec.node_name))
    if group := group_of(pod):
        terms.append(("pods_by_group", (namespace, group)))
    terms += [("pods_by_volume_claim", (namespace, name)) for name in volume_claim_names(pod)]
    if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity:
        terms.append(("pods_by_trait", REPELS))
    return terms


def _terms_of_claim(claim: ResourceClaim) -> list[tuple[str, Hashable]]:
    return [("claims_by_owner", uid) for uid in dict.fromkeys(o.uid for o in claim.metadata.owner_references) if uid]


def _terms_of_slice(resource_slice: ResourceSlice) -> list[tuple[str, Hashable]]:
    spec = resource_slice.spec
    return [("slices_by_pool", (spec.driver, spec.pool.name)), ("slices_by_node", spec.node_name or "")]


_TERMS: dict[str, Callable[[Any], list[tuple[str, Hashable]]]] = {
    "Pod": _terms_of_pod,
    "ResourceClaim": _terms_of_claim,
    "ResourceSlice": _terms_of_slice,
}


class _Draft:
    """Maps being changed, opened when first touched. Lives within one apply_all."""

    def __init__(self, base: Snapshot) -> None:
        self.base = base
        self.version = base.version
        self.opened: dict[str, Any] = {}
        self.touched: set[str] = set()
        self.loads: set[str] = set()
        self.wide = False
        self.many = False

    def map(self, field: str) -> Any:
        found = self.opened.get(field)
        if found is None:
            found = self.opened[field] = getattr(self.base, field).mutate()
        return found

    def read(self, field: str) -> Any:
        """The map as it is now, for iteration; a mutation cannot be iterated."""
        mutation = self.opened.get(field)
        if mutation is None:
            return getattr(self.base, field)
        found = mutation.finish()
        self.opened[field] = found.mutate()
        return found

    def finish(self) -> Snapshot:
        if self.version == self.base.version:
            return self.base
        self._view()
        closed = {field: mutation.finish() for field, mutation in self.opened.items()}
        recent = self.base.recent
        if self.many or self.touched or self.loads:
            nodes = None if self.many or len(self.touched) > TOUCHED_MAX else frozenset(self.touched)
            loads = None if len(self.loads) > TOUCHED_MAX else frozenset(self.loads)
            recent = (*recent[1 - RECENT_MAX :], Touched(object(), nodes, loads))
        return msgspec.structs.replace(
            self.base,
            version=self.version,
            wide_state=object() if self.wide else self.base.wide_state,
            recent=recent,
            **closed,
        )

    def _view(self) -> None:
        """Recomputes the views of the nodes touched."""
        if not self.touched:
            return
        by_node, shapes, wide = self.map("slices_by_node"), self.map("shapes"), self.map("wide_pools")
        views, holders, rules = self.map("views"), self.map("holders"), self.read("taint_rules")
        nodes, held = self.map("nodes"), self.map("held_by_pool")
        for node in self.touched:
            names = by_node.get(node) if node in nodes else None
            own = [shapes[name] for name in sorted(names)] if names is not None else []
            view = view_of([shape for shape in own if shape.pool not in wide], holders, rules, held)
            if view is not NOWHERE:
                views[node] = view
            elif node in views:
                del views[node]

    def step(self, change: Change) -> None:
        if isinstance(change, Put):
            meta = change.object.metadata
            namespace, name, new = meta.namespace, meta.name, change.object
        else:
            namespace, name, new = change.namespace, change.name, None
        field, key = _address(change.kind, namespace, name)
        store = self.map(field)
        old = store.get(key)
        if old is None and new is None:
            return
        self.version += 1
        if new is None:
            del store[key]
        else:
            store[key] = new
        self._reindex(change.kind, key, old, new)

    def _reindex(self, kind: str, key: Any, old: Any, new: Any) -> None:
        terms = _TERMS.get(kind)
        if terms is not None:
            before = terms(old) if old is not None else []
            after = terms(new) if new is not None else []
            if before != after:
                self._move(key, before, after)
        if kind == "ResourceClaim":
            self._hold(old, new)
        elif kind == "Pod":
            self._request(old, new)
        elif kind == "Node":
            self.touched.add(key)
            self.loads.add(key)
        elif kind == "ResourceSlice":
            self._slice(key, old, new)
        elif kind == "DeviceTaintRule":
            self._rule(old, new)

    def _slice(self, name: str, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        shapes, nodes_by_pool, wide = self.map("shapes"), self.map("nodes_by_pool"), self.map("wide_pools")
        if new is None:
            del shapes[name]
        else:
            shapes[name] = SliceShape(new)
        for resource_slice, sign in ((old, -1), (new, 1)):
            if resource_slice is None:
                continue
            pool, node = (
                (resource_slice.spec.driver, resource_slice.spec.pool.name),
                resource_slice.spec.node_name or "",
            )
            counts = nodes_by_pool.get(pool, _NOTHING)
            total = counts.get(node, 0) + sign
            counts = counts.set(node, total) if total else counts.delete(node)
            if counts:
                nodes_by_pool[pool] = counts
            else:
                del nodes_by_pool[pool]
            is_wide, was_wide = len(counts) > 1 or "" in counts, pool in wide
            self.touched.add(node)
            if is_wide != was_wide:
                self.touched.update(counts)
                if is_wide:
                    wide[pool] = None
                else:
                    del wide[pool]
            if is_wide or was_wide:  # many nodes may see something else now
                self.wide = self.many = True

    def _rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        rules = [rule for rule in (old, new) if rule is not None]
        wide = self.map("wide_pools")
        for pool, nodes in self.read("nodes_by_pool").items():
            if any(applies(rule, driver=pool[0], pool=pool[1], device=None) for rule in rules):
                self.touched.update(nodes)
                self.wide = self.wide or pool in wide

    def _touch(self, device: DeviceId) -> None:
        pool = (device.driver, device.pool)
        if pool in self.map("wide_pools"):
            self.wide = True
        else:
            self.touched.update(self.map("nodes_by_pool").get(pool, ()))

    def _move(self, key: Hashable, before: list[tuple[str, Hashable]], after: list[tuple[str, Hashable]]) -> None:
        for field, term in before:
            index = self.map(field)
            rest = index[term].delete(key)
            if rest:
                index[term] = rest
            else:
                del index[term]
        for field, term in after:
            index = self.map(field)
            index[term] = index.get(term, _NOTHING).set(key, None)

    def _hold(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before = holds(old) if old is not None else {}
        after = holds(new) if new is not None else {}
        if before == after:
            return
        holders = self.map("holders")
        for device in (*before, *after):
            self._touch(device)
        for device, gone in before.items():
            rest = tuple(holder for holder in holders[device] if holder not in gone)
            if rest:
                holders[device] = rest
            else:
                del holders[device]
                self._move(device, [("held_by_pool", device[:2])], [])
        for device, more in after.items():
            known = holders.get(device)
            if known is None:
                self._move(device, [], [("held_by_pool", device[:2])])
            together = (*(known or ()), *more)
            holders[device] = tuple(sorted(together, key=_holder_order))

    def _request(self, old: Pod | None, new: Pod | None) -> None:
        before, after = _demand(old), _demand(new)
        if before == after:
            return
        for (node, asked, extra), sign in ((before, -1), (after, 1)):
            if not node:
                continue
            self.loads.add(node)
            self._sum("requested", node, asked, sign)
            if extra:
                self._sum("assumed", node, extra, sign)

    def _sum(self, field: str, node: str, amounts: dict[str, int], sign: int) -> None:
        by_node = self.map(field)
        sums = by_node.get(node, _NOTHING)
        for name, nanos in amounts.items():
            total = sums.get(name, 0) + sign * nanos
            sums = sums.set(name, total) if total else sums.delete(name) if name in sums else sums
        if sums:
            by_node[node] = sums
        else:
            by_node.pop(node, None)


def _address(kind: str, namespace: str, name: str) -> tuple[str, Hashable]:
    if kind in WORKLOADS:
        return "workloads", (kind, namespace, name)
    try:
        field, namespaced = _STORES[kind]
    except KeyError:
        raise Bug(f"a snapshot holds no objects of kind {kind}; filter by snapshot.change.HELD before") from None
    return field, (namespace, name) if namespaced else name


def _holder_order(holder: Holder) -> tuple[str, str, str, str]:
    return (holder.namespace, holder.claim, holder.request, holder.share_id or "")


def _demand(pod: Pod | None) -> tuple[str, dict[str, int], dict[str, int]]:
    if pod is None or not pod.spec.node_name or is_finished(pod):
        return "", {}, {}
    return pod.spec.node_name, pod_requests(pod), assumed_extra(pod)


_NOTHING: Map[Any, Any] = Map()
_MAPS: Any = dict.fromkeys(Snapshot.__struct_fields__, _NOTHING)
_EMPTY = Snapshot(**{**_MAPS, "version": 0, "wide_state": object(), "recent": (Touched(object(), None, None),)})
