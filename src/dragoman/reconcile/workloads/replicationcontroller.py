"""How does a ReplicationController keep its number of pods? As a ReplicaSet does, by plain labels."""

from __future__ import annotations

from typing import Any

from dragoman.api.meta import NamespacedName
from dragoman.effects import Effect
from dragoman.reconcile.step import ReconcileInput, ReconcileResult
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.reconcile.workloads import replicaset
from dragoman.snapshot.change import Change

KIND = "ReplicationController"
COMPONENT = "replication-controller"


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The ReplicationControllers to look at after a change."""
    return the_pods.owner_keys(KIND, "Pod", change, before, after)


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """Bring the number of pods to spec.replicas and the status up to date."""
    return replicaset.sync(world, key, KIND)


def write_events(
    world: ReconcileInput, key: NamespacedName, effect: Effect, written: dict[str, Any] | None, error: str
) -> tuple[Effect, ...]:
    """The event for a write."""
    return replicaset.write_events(world, key, effect, written, error, KIND, COMPONENT)
