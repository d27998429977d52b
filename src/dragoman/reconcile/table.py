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
from dragoman.reconcile import claims, garbage, namespaces, nodes, podgc, taints
from dragoman.reconcile.step import Step, World
from dragoman.reconcile.workloads import daemonset, deployment, job, replicaset, statefulset
from dragoman.snapshot.change import Change

Keys: TypeAlias = Callable[[Change, World, World], Iterable[Any]]
Told: TypeAlias = Callable[[World, Any, Effect, dict[str, Any] | None, str], tuple[Effect, ...]]

EVERYTHING = frozenset(kind.kind for kind in KINDS if kind.kind != "Event")


class Controller(msgspec.Struct, frozen=True):
    """One controller: which keys a change concerns, and what to do about a key.

    kinds: changes of these are looked at. told: what people are told of each write of a step.
    """

    name: str
    kinds: frozenset[str]
    keys: Keys
    sync: Callable[[World, Any], Step]
    told: Told | None = None
    workers: int = 8


def table(root_ca: str = "") -> tuple[Controller, ...]:
    """All controllers. root_ca: PEM of the server's CA, if it has one."""

    def namespace(world: World, name: str) -> Step:
        return namespaces.sync(world, name, root_ca)

    workloads = (
        Controller("replicaset", frozenset({"ReplicaSet", "Pod"}), replicaset.keys, replicaset.sync, replicaset.told),
        Controller("deployment", frozenset({"Deployment", "ReplicaSet", "Pod"}), deployment.keys, deployment.sync),
        Controller("job", frozenset({"Job", "Pod"}), job.keys, job.sync, job.told),
        Controller(
            "daemonset", frozenset({"DaemonSet", "Pod", "Node"}), daemonset.keys, daemonset.sync, daemonset.told
        ),
        Controller(
            "statefulset", frozenset({"StatefulSet", "Pod"}), statefulset.keys, statefulset.sync, statefulset.told
        ),
        Controller("job-strays", frozenset({"Job", "Pod"}), job.stray_keys, job.sync_stray),
    )
    return (
        Controller("claims", claims.KINDS, _claim_keys, claims.sync, workers=16),
        *workloads,
        Controller("taints", taints.KINDS, taints.keys, taints.sync),
        Controller("nodes", frozenset({"Node", "Lease", "Pod"}), nodes.keys, nodes.sync),
        Controller("podgc", frozenset({"Node", "Pod"}), podgc.keys, podgc.sync),
        Controller("garbage", EVERYTHING, garbage.keys, garbage.sync),
        Controller("namespaces", EVERYTHING, namespaces.keys, namespace, workers=2),
    )


def _claim_keys(change: Change, before: World, after: World) -> list[claims.Key]:
    return claims.keys(change, before.snapshot, after.snapshot)
