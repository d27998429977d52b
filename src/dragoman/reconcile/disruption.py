"""How many pods may be missing? The status of PodDisruptionBudgets, which evictions and drains read.

Expected pods are counted from the scale of their controllers for maxUnavailable and percentages, as upstream does it; a
pod of an unknown controller makes the budget allow nothing, with the reason in its condition. It never evicts.
"""

from __future__ import annotations

import math
from typing import Any

from dragoman.api.core import Pod, PodDisruptionBudget
from dragoman.api.meta import NamespacedName
from dragoman.effects import Effect, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, difference, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.snapshot.change import Change, Gone
from dragoman.snapshot.selection import matches
from dragoman.snapshot.usage import is_finished

KIND = "PodDisruptionBudget"
_SCALED = ("ReplicaSet", "StatefulSet", "ReplicationController", "Deployment", "Job")
KINDS = frozenset({KIND, "Pod", "ReplicaSet", "StatefulSet", "ReplicationController", "Deployment"})


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The budgets to look at after a change."""
    if isinstance(change, Gone):
        namespace, name = change.namespace, change.name
    else:
        namespace, name = change.object.metadata.namespace, change.object.metadata.name
    if change.kind == KIND:
        return [(namespace, name)]
    if not after.snapshot.budgets:
        return []
    names = (owned.ref.name for owned in after.ownership.content(namespace, (KIND,)))
    budgets = [found for name in names if (found := after.snapshot.budgets.get((namespace, name))) is not None]
    if not budgets:
        return []
    if change.kind != "Pod":
        return [(namespace, budget.metadata.name) for budget in budgets]
    pods = [world.snapshot.pods.get((namespace, name)) for world in (before, after)]
    return [
        (namespace, budget.metadata.name)
        for budget in budgets
        if any(pod is not None and matches(budget.spec.selector, pod.metadata.labels) for pod in pods)
    ]


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """Bring a budget's status up to date."""
    budget = world.snapshot.budgets.get(key)
    if budget is None or budget.metadata.deletion_timestamp:
        return NOTHING
    selector = budget.spec.selector
    content = world.ownership.content(key[0], ("Pod",)) if selector is not None else ()
    found = (world.snapshot.pods.get((key[0], owned.ref.name)) for owned in content)
    pods = [pod for pod in found if pod is not None and not is_finished(pod) and matches(selector, pod.metadata.labels)]
    healthy = sum(the_pods.ready_since(pod) is not None and not pod.metadata.deletion_timestamp for pod in pods)
    expected, desired, fault = _counts(world, budget, pods)
    allowed = 0 if fault or expected <= 0 else max(0, healthy - desired)
    old = budget.status or {}
    reason = "SyncFailed" if fault else "SufficientPods" if allowed else "InsufficientPods"
    conditions = the_pods.with_condition(
        old.get("conditions") or [],
        world.now,
        "DisruptionAllowed",
        "True" if allowed else "False",
        reason,
        fault,
    )
    for condition in conditions:
        if (
            condition["type"] == "DisruptionAllowed"
            and condition.get("observedGeneration") != budget.metadata.generation
        ):
            conditions = [{**condition, "observedGeneration": budget.metadata.generation}]
    new = {"conditions": conditions, "observedGeneration": budget.metadata.generation}
    patch = difference(old, new)
    # Zeros count here: printers and clients read all four.
    counts = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    patch |= {field: count for field, count in counts.items() if old.get(field) != count}
    effects: list[Effect] = []
    if patch:
        effects.append(Patch(ref_of(KIND, budget.metadata), {"status": patch}, subresource="status"))
    return ReconcileResult(tuple(effects))


def _counts(world: ReconcileInput, budget: PodDisruptionBudget, pods: list[Pod]) -> tuple[int, int, str]:
    """(expected, desired healthy, what is wrong)."""
    spec = budget.spec
    if spec.max_unavailable is None and not isinstance(spec.min_available, str):
        needed = spec.min_available if spec.min_available is not None else 1
        return len(pods), int(needed), ""
    expected, fault = _expected(world, pods)
    if fault:
        return expected, 0, fault
    if spec.max_unavailable is not None:
        return expected, max(0, expected - share(spec.max_unavailable, expected)), ""
    return expected, share(spec.min_available, expected), ""


def share(value: Any, total: int) -> int:
    """A number, or a percentage of the total rounded up."""
    if isinstance(value, int):
        return value
    text = str(value).rstrip("%")
    return math.ceil(int(text) * total / 100) if text.isdecimal() else 0


def _expected(world: ReconcileInput, pods: list[Pod]) -> tuple[int, str]:
    """The scales of the controllers of those pods together."""
    scales: dict[str, int] = {}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is None:
            name = pod.metadata.name
            return 0, f"found no controllers for pod {name!r}"
        workload = world.snapshot.workloads.get((owner.kind, pod.metadata.namespace, owner.name))
        if owner.kind not in _SCALED or workload is None:
            return 0, f"{owner.kind} {owner.name} does not implement the scale subresource"
        upper = workload.metadata.controller
        if upper is not None and upper.kind == "Deployment":
            above = world.snapshot.workloads.get(("Deployment", pod.metadata.namespace, upper.name))
            workload = above or workload
        replicas = workload.spec.replicas if workload.spec.replicas is not None else workload.spec.parallelism
        scales[workload.metadata.uid] = 1 if replicas is None else replicas
    return sum(scales.values()), ""
