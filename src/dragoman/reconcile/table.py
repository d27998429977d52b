"""Which controllers are there? Name, the kinds they look at, keys of a change, one step of a key.

The daemon runs them against an API, `whatif` over a Snapshot: one table, so that neither knows a controller that the
other does not. Runs nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from dragoman.api.kinds import KINDS
from dragoman.effects import Effect
from dragoman.reconcile import (
    claims,
    disruption,
    endpoints,
    garbage,
    namespaces,
    nodes,
    podgc,
    pool_status,
    quota,
    taints,
    volumes,
)
from dragoman.reconcile.step import ReconcileInput, ReconcileResult
from dragoman.reconcile.workloads import (
    cronjob,
    daemonset,
    deployment,
    job,
    replicaset,
    replicationcontroller,
    statefulset,
)
from dragoman.snapshot.change import Change, Snapshot

Keys: TypeAlias = Callable[[Change, ReconcileInput, ReconcileInput], Iterable[Any]]
WriteEvents: TypeAlias = Callable[[ReconcileInput, Any, Effect, dict[str, Any] | None, str], tuple[Effect, ...]]

EVERYTHING = frozenset(kind.kind for kind in KINDS if kind.kind != "Event")


class WritePace(msgspec.Struct, frozen=True):
    """At most `burst` requests at once, and `per_s` a second over time."""

    per_s: float
    burst: int


EVICTION_PACE = WritePace(20.0, 30)
"""kube-controller-manager's client (--kube-api-qps, --kube-api-burst), which is all that holds evictions back there: an
eviction is three requests."""


class Controller(msgspec.Struct, frozen=True):
    """One controller: which keys a change concerns, and what to do about a key.

    kinds: changes of these are looked at. events: what people read of each write of a step. idle: whether nothing of a
    snapshot can concern it, so that a first look over everything can leave it out. pace: how fast it writes at most.
    """

    name: str
    kinds: frozenset[str]
    keys: Keys
    sync: Callable[[ReconcileInput, Any], ReconcileResult]
    events: WriteEvents | None = None
    workers: int = 8
    idle: Callable[[Snapshot], bool] | None = None
    pace: WritePace | None = None


def table(root_ca: str = "") -> tuple[Controller, ...]:
    """All controllers. root_ca: PEM of the server's CA, if it has one."""

    def namespace(world: ReconcileInput, name: str) -> ReconcileResult:
        return namespaces.sync(world, name, root_ca)

    workloads = (
        Controller(
            "replicaset", frozenset({"ReplicaSet", "Pod"}), replicaset.keys, replicaset.sync, replicaset.write_events
        ),
        Controller("deployment", frozenset({"Deployment", "ReplicaSet", "Pod"}), deployment.keys, deployment.sync),
        Controller("job", frozenset({"Job", "Pod"}), job.keys, job.sync, job.write_events),
        Controller(
            "daemonset",
            frozenset({"DaemonSet", "Pod", "Node", "ControllerRevision"}),
            daemonset.keys,
            daemonset.sync,
            daemonset.write_events,
        ),
        Controller(
            "statefulset",
            frozenset({"StatefulSet", "Pod", "ControllerRevision"}),
            statefulset.keys,
            statefulset.sync,
            statefulset.write_events,
        ),
        Controller(
            "replicationcontroller",
            frozenset({"ReplicationController", "Pod"}),
            replicationcontroller.keys,
            replicationcontroller.sync,
            replicationcontroller.write_events,
        ),
        Controller("cronjob", frozenset({"CronJob", "Job"}), cronjob.keys, cronjob.sync, cronjob.write_events),
        Controller("job-orphans", frozenset({"Job", "Pod"}), job.orphan_keys, job.sync_orphan),
    )
    return (
        Controller("claims", claims.KINDS, _claim_keys, claims.sync, claims.write_events, workers=16),
        *workloads,
        Controller("taints", taints.KINDS, taints.keys, taints.sync, idle=taints.is_idle, pace=EVICTION_PACE),
        Controller("pool-status", frozenset({pool_status.KIND}), pool_status.keys, pool_status.sync, workers=2),
        Controller("nodes", frozenset({"Node", "Lease", "Pod"}), nodes.keys, nodes.sync),
        Controller("disruption", disruption.KINDS, disruption.keys, disruption.sync),
        Controller("endpoints", endpoints.KINDS, endpoints.keys, endpoints.sync),
        Controller("volumes", volumes.KINDS, volumes.keys, volumes.sync),
        Controller("podgc", frozenset({"Node", "Pod"}), podgc.keys, podgc.sync),
        Controller("resourcequota", EVERYTHING, quota.keys, quota.sync, workers=2),
        Controller("garbage", EVERYTHING, garbage.keys, garbage.sync),
        Controller("namespaces", EVERYTHING, namespaces.keys, namespace, workers=2),
    )


def _claim_keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[claims.ClaimKey]:
    return claims.keys(change, before.snapshot, after.snapshot)
