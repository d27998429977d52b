"""Where do the controllers come to rest? Those of `reconcile`, run until none has anything to write.

    cluster = settled(cluster)                          # looks at every object once
    cluster = changed(cluster, [Put("Node", node)])     # looks at what these changes concern

Work costs what it touches. Time stands still unless `until` lets it pass, as for pods that tolerate a taint for a
while. Never decides: it asks `sync`, carries out the effects by `writes`, and looks at the keys that follow.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from dragoman.api.meta import Ref
from dragoman.reconcile.ownership import Ownership
from dragoman.reconcile.step import ReconcileInput, ReconcileResult
from dragoman.reconcile.table import Controller, table
from dragoman.snapshot.change import Change, Put, Snapshot
from dragoman.whatif.cluster import ClusterState, Rejection, objects, shown
from dragoman.whatif.writes import write

_Key: TypeAlias = tuple[int, Any]
"""Which controller is to look at which of its keys."""

NO_PART = {
    "endpoints": "no pod, claim or device depends on what it writes; snapshots hold no Services",
    "pool-status": "it answers ResourcePoolStatusRequests, which snapshots do not hold",
    "volumes": "others make volumes in most clusters; the scheduler decides where a claim can be bound or made",
    "cronjob": "a dump shows the past: what came due since then the cluster has started; here no time passes",
    "resourcequota": "it would recount from what a file shows; what is used follows each change (`cluster.shown`)",
}
"""Controllers that have no part here, each with the reason."""
CONTROLLERS: tuple[Controller, ...] = tuple(controller for controller in table() if controller.name not in NO_PART)
"""All others."""
ASKS_MAX = 5
_COVERED = frozenset(
    {
        *(("claims", "ResourceClaimTemplate"), ("taints", "ResourceSlice"), ("taints", "ResourceClaim")),
        *(("daemonset", "Pod"), ("daemonset", "Node"), ("deployment", "Pod"), ("deployment", "ReplicaSet")),
        *(("job", "Pod"), ("replicaset", "Pod"), ("replicationcontroller", "Pod"), ("statefulset", "Pod")),
    }
)
"""What need not be looked at in a first look over everything: the pods or workloads that these concern are looked at
themselves."""


def _is_covered(controller: str, kind: str) -> bool:
    # What a namespace that ends still holds is looked for when the namespace is looked at.
    return (controller, kind) in _COVERED or (controller == "namespaces" and kind != "Namespace")


class SettleLimits(msgspec.Struct, frozen=True):
    """When it is said that controllers do not come to rest: looks of all of them, and at one key."""

    steps_min: int = 20_000
    steps_per_object: int = 50
    looks: int = 200

    def steps(self, snapshot: Snapshot) -> int:
        """How many looks a cluster of this size may take."""
        size = len(snapshot.pods) + len(snapshot.claims) + len(snapshot.nodes) + len(snapshot.workloads)
        return self.steps_min + self.steps_per_object * size


SETTLE_LIMITS = SettleLimits()


def settled(
    cluster: ClusterState, *, controllers: Sequence[Controller] = CONTROLLERS, limits: SettleLimits = SETTLE_LIMITS
) -> ClusterState:
    """The cluster once controllers have looked at every object and at all that follows."""
    run = _Run(cluster, controllers)
    run.look_at_everything()
    return run.to_rest(limits)


def changed(
    cluster: ClusterState,
    changes: Iterable[Change],
    *,
    until: datetime | None = None,
    controllers: Sequence[Controller] = CONTROLLERS,
    limits: SettleLimits = SETTLE_LIMITS,
) -> ClusterState:
    """The cluster after these changes and all that controllers do about them, by `until` if that is later."""
    run = _Run(cluster, controllers)
    run.show(list(changes))
    return run.to_rest(limits, until)


class _Run:
    """Queues of keys over one cluster. Lives within one call."""

    def __init__(self, cluster: ClusterState, controllers: Sequence[Controller]) -> None:
        self.cluster = cluster
        self.controllers = controllers
        self.by_kind: dict[str, list[int]] = {}
        self.queue: deque[_Key] = deque()
        self.queued: set[_Key] = set()
        self.looks: Counter[_Key] = Counter()
        self.endless = False
        self.seen: tuple[ClusterState, ReconcileInput] | None = None
        self.stuck: dict[_Key, Snapshot] = {}
        self.later: list[tuple[datetime, int, _Key]] = []
        self.rejected: dict[Rejection, None] = dict.fromkeys(cluster.rejected)

    def look_at_everything(self) -> None:
        """Every controller looks at every object of its kinds."""
        before, after = self._world(Snapshot.empty()), self._world()
        idle = {c.name for c in self.controllers if c.idle is not None and c.idle(self.cluster.snapshot)}
        looking: dict[str, list[int]] = {}
        for kind, value in objects(self.cluster.snapshot):
            indices = looking.get(kind)
            if indices is None:
                names = [(index, self.controllers[index].name) for index in self._interested(kind)]
                indices = [index for index, name in names if not _is_covered(name, kind) and name not in idle]
                looking[kind] = indices
            change = Put(kind, value)
            for index in indices:
                self._add(index, self.controllers[index].keys(change, before, after))

    def show(self, changes: Sequence[Change]) -> None:
        """Makes changes, and queues what they concern."""
        before = self._world()
        self.cluster = shown(self.cluster, changes)
        after = self._world()
        for change in changes:
            for index in self._interested(change.kind):
                self._add(index, self.controllers[index].keys(change, before, after))

    def to_rest(self, limits: SettleLimits, until: datetime | None = None) -> ClusterState:
        """Works the queue off; then again what was stuck and can go on, then what time brings."""
        left = limits.steps(self.cluster.snapshot)
        while left > 0:
            while self.queue and left > 0:
                self._step(limits.looks)
                left -= 1
            if not self.queue and not self._try_again() and not self._wait(until):
                break
        return msgspec.structs.replace(self.cluster, unsettled=left <= 0 or self.endless, rejected=tuple(self.rejected))

    def _interested(self, kind: str) -> list[int]:
        found = self.by_kind.get(kind)
        if found is None:
            found = [i for i, controller in enumerate(self.controllers) if kind in controller.kinds]
            self.by_kind[kind] = found
        return found

    def _add(self, index: int, keys: Iterable[Any]) -> None:
        for key in keys:
            entry = (index, key)
            if entry not in self.queued:
                self.queued.add(entry)
                self.queue.append(entry)

    def _world(self, snapshot: Snapshot | None = None) -> ReconcileInput:
        """What controllers see, or an empty world of that snapshot; made once for each state of the cluster."""
        cluster = self.cluster
        if snapshot is None and self.seen is not None and self.seen[0] is cluster:
            return self.seen[1]
        now = cluster.now.timestamp()
        shown_as = cluster.snapshot if snapshot is None else snapshot
        world = ReconcileInput(
            shown_as,
            cluster.ownership if snapshot is None else _NOTHING,
            now,
            gone=cluster.gone,
            heartbeats=_Alive(shown_as.nodes, now),
        )
        if snapshot is None:
            self.seen = (cluster, world)
        return world

    # ---- one look

    def _step(self, looks_max: int) -> None:
        entry = self.queue.popleft()
        self.queued.discard(entry)
        self.looks[entry] += 1
        if self.looks[entry] > looks_max:
            self.endless = True
            return
        self.stuck.pop(entry, None)
        step = self._asked(*entry)
        refused = False
        for effect in step.effects:
            changes, rejection = write(self.cluster, effect)
            if rejection is not None:
                refused = True
                self.rejected[rejection] = None
                break  # as a commit does: what follows a write that failed is not written
            self.cluster = msgspec.structs.replace(self.cluster, made=self.cluster.made + 1)
            if changes:
                self.show(changes)
        if step.again_s is not None:
            due = self.cluster.now + timedelta(seconds=step.again_s)
            heapq.heappush(self.later, (due, len(self.later), entry))
        if refused or step.problem:
            self.stuck[entry] = self.cluster.snapshot

    def _asked(self, index: int, key: Any) -> ReconcileResult:
        answers: dict[Ref, str] = {}
        controller = self.controllers[index]
        for _ in range(ASKS_MAX):
            world = self._world()
            step = controller.sync(msgspec.structs.replace(world, answers=answers) if answers else world, key)
            if not step.asks:
                return step
            for ref in step.asks:
                answers[ref] = self._answer(ref)
        return ReconcileResult(problem="still asking")

    def _answer(self, ref: Ref) -> str:
        """The uid of the object of that name: what the picture does not show exists as it is referred to."""
        known = self.cluster.ownership.find(ref.kind, ref.namespace, ref.name)
        if known is not None:
            return known.ref.uid
        if ref.kind in self.cluster.complete or (ref.kind, ref.namespace, ref.name) in self.cluster.removed:
            return ""
        return ref.uid or "not in the picture"

    def _try_again(self) -> bool:
        """Queues what was stuck if anything has changed since."""
        again = [entry for entry, seen in self.stuck.items() if seen is not self.cluster.snapshot]
        for index, key in again:
            self._add(index, [key])
        return bool(again)

    def _wait(self, until: datetime | None) -> bool:
        """Moves on to the next time that somebody wants to look again, if that is not after `until`."""
        if until is None or not self.later or self.later[0][0] > until:
            return False
        due = self.later[0][0]
        self.cluster = msgspec.structs.replace(self.cluster, now=max(due, self.cluster.now))
        while self.later and self.later[0][0] <= due:
            _, _, (index, key) = heapq.heappop(self.later)
            self._add(index, [key])
        return True


class _Alive(Mapping[str, float]):
    """Heartbeats of nodes whose kubelets are taken to live: all that are there, now."""

    def __init__(self, nodes: Collection[str], now: float) -> None:
        self._nodes = nodes
        self._now = now

    def __getitem__(self, name: str) -> float:
        if name not in self._nodes:
            raise KeyError(name)
        return self._now

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


_NOTHING = Ownership.empty()
