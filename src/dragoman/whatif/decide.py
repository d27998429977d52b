"""Where would pods run? The scheduler's own decisions, one unit after the other, with what controllers do in between.

    for step in run(settled(bring(snapshot, now)), order, context): ...     # until nothing is left to decide
    for step in steps(snapshot, units, now, context): ...                   # decisions alone, for small questions

A pod of a workload that is placed counts as running and ready at once, so that its controller goes on: the next pod of
a StatefulSet, the next step of a rollout. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from dragoman.allocate.allocator import TaskHistory
from dragoman.allocate.refusal import Refusal
from dragoman.api.core import Pod
from dragoman.api.meta import Condition, NamespacedName
from dragoman.api.resource import AllocationResult
from dragoman.reconcile.table import Controller
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide, refusing_nodes
from dragoman.schedule.decision import Decision, NodesRefused, Preemption, Refused, UndecidedPod
from dragoman.snapshot.change import WORKLOADS, Change, Put, Snapshot, apply_all
from dragoman.whatif.cluster import ClusterState, Rejection
from dragoman.whatif.settle import CONTROLLERS, changed
from dragoman.whatif.units import Named, units

MAX_ROUNDS = 8
"""Decisions for one unit, which may give up idle claims one by one before it is placed."""
ROUNDS_MAX = 1_000
"""Times that one run looks for pods that wait: controllers may make pods without end."""


class ClaimVerdict(msgspec.Struct, frozen=True):
    """A claim of a pod. pod_claim None: the special one. new: allocated by this very decision."""

    pod_claim: str | None
    name: str
    template: str | None
    new: bool
    allocation: AllocationResult | None


class PodPrediction(msgspec.Struct, frozen=True):
    """What would become of a pod. nodes: those that cannot take it, also when it has a place. undecided: instead of
    node and refused, where the search stopped.

    rejected: what the API server refused to create for it. preemption: who would make room for it; nobody does here.
    warnings: what does not forbid its place and should be known.
    """

    pod: NamespacedName
    node: str | None
    claims: tuple[ClaimVerdict, ...]
    nodes: tuple[NodesRefused, ...]
    refused: Refused | None
    undecided: UndecidedPod | None = None
    rejected: tuple[Rejection, ...] = ()
    preemption: Preemption | None = None
    warnings: tuple[Refusal, ...] = ()


class DecidedUnit(msgspec.Struct, frozen=True, eq=False):
    """A unit that was decided: on which snapshot, what it left, what became of each pod.

    cluster: once controllers have done what follows; None where nobody asked for that.
    """

    unit: SchedulingUnit
    before: Snapshot
    after: Snapshot
    verdicts: tuple[PodPrediction, ...]
    cluster: ClusterState | None = None


def run(
    cluster: ClusterState,
    order: Sequence[Named],
    context: SchedulingContext,
    *,
    controllers: Sequence[Controller] = CONTROLLERS,
) -> Iterator[DecidedUnit]:
    """Decides what waits, in this order and then what else waits, until nothing new does. The cluster is settled.

    A unit that is refused comes again if controllers have deleted something since: of several answers the last counts.
    """
    context, recent = msgspec.structs.replace(context), TaskHistory()
    seen: dict[NamespacedName, int] = {}
    for _ in range(ROUNDS_MAX):
        deleted = len(cluster.gone)
        waiting = [unit for unit in units(cluster, order) if any(seen.get(key, -1) < deleted for key in unit.pods)]
        if not waiting:
            return
        for unit in waiting:
            if any(key not in cluster.snapshot.pods for key in unit.pods):
                continue  # a controller took the pod away since
            seen.update(dict.fromkeys(unit.pods, len(cluster.gone)))
            step = _step(cluster, unit, context, recent, controllers)
            assert step.cluster is not None
            cluster = step.cluster
            yield step


def _step(
    cluster: ClusterState,
    unit: SchedulingUnit,
    context: SchedulingContext,
    recent: TaskHistory,
    controllers: Sequence[Controller],
) -> DecidedUnit:
    """One decision, and what controllers and kubelets make of it."""
    before = cluster.snapshot
    decision, assumed = _decided(before, unit, cluster.now, context)
    context.learn(decision.placements, recent)
    after = changed(cluster, assumed, controllers=controllers) if assumed else cluster
    refused = _without_place(decision)
    shown_as = apply_all(before, assumed)
    verdicts = tuple(_verdicts(before, shown_as, unit, refused, context, after.rejected, decision))
    started = [change for p in decision.placements for change in _started(after, p.pod)]
    after = changed(after, started, controllers=controllers) if started else after
    return DecidedUnit(unit, before, shown_as, verdicts, after)


def steps(
    snapshot: Snapshot, wanted: Iterable[SchedulingUnit], now: datetime, context: SchedulingContext
) -> Iterator[DecidedUnit]:
    """The decisions for these units alone, each on what those before it left; no controller does anything."""
    context, recent = msgspec.structs.replace(context), TaskHistory()
    for unit in wanted:
        before = snapshot
        decision, assumed = _decided(snapshot, unit, now, context)
        snapshot = apply_all(snapshot, assumed)
        context.learn(decision.placements, recent)
        refused = _without_place(decision)
        yield DecidedUnit(
            unit, before, snapshot, tuple(_verdicts(before, snapshot, unit, refused, context, (), decision))
        )


def _decided(
    snapshot: Snapshot, unit: SchedulingUnit, now: datetime, context: SchedulingContext
) -> tuple[Decision, list[Change]]:
    changes: list[Change] = []
    for _ in range(MAX_ROUNDS):
        decision = decide(snapshot, unit, now, context)
        changes += decision.assumed
        if not any(one.released for one in decision.refused):
            break
        snapshot = apply_all(snapshot, decision.assumed)
    return decision, changes


def _without_place(decision: Decision) -> dict[NamespacedName, Refused | UndecidedPod]:
    found: dict[NamespacedName, Refused | UndecidedPod] = {one.pod: one for one in decision.refused}
    return found | {one.pod: one for one in decision.undecided}


def _started(cluster: ClusterState, key: NamespacedName) -> Iterator[Change]:
    """A placed pod of a workload as its kubelet reports it soon after."""
    pod = cluster.snapshot.pods.get(key)
    owner = pod.metadata.controller if pod is not None else None
    if pod is None or owner is None or owner.kind not in WORKLOADS:
        return
    ready = Condition(type="Ready", status="True", last_transition_time=cluster.now_text)
    others = tuple(condition for condition in pod.status.conditions if condition.type != "Ready")
    status = msgspec.structs.replace(pod.status, phase="Running", conditions=(*others, ready))
    yield Put("Pod", msgspec.structs.replace(pod, status=status))


def _verdicts(
    before: Snapshot,
    after: Snapshot,
    unit: SchedulingUnit,
    refused: dict[NamespacedName, Refused | UndecidedPod],
    context: SchedulingContext,
    rejected: Sequence[Rejection],
    decision: Decision,
) -> Iterator[PodPrediction]:
    warnings = {placement.pod: placement.warnings for placement in decision.placements}
    for key in unit.pods:
        verdict = _verdict(before, after, key, refused.get(key), context, rejected)
        yield msgspec.structs.replace(verdict, preemption=decision.preemption, warnings=warnings.get(key, ()))


def _verdict(
    before: Snapshot,
    after: Snapshot,
    key: NamespacedName,
    refused: Refused | UndecidedPod | None,
    context: SchedulingContext,
    rejected: Sequence[Rejection],
) -> PodPrediction:
    pod = after.pods[key]
    node = pod.spec.node_name or None
    if node is not None:
        nodes = refusing_nodes(before, before.pods[key], context)
    else:
        nodes = refused.nodes if refused is not None else ()
    mine = tuple(r for r in rejected if r.owner is not None and r.owner.uid == pod.metadata.uid) if rejected else ()
    no = refused if node is None and isinstance(refused, Refused) else None
    unknown = refused if node is None and isinstance(refused, UndecidedPod) else None
    return PodPrediction(key, node, tuple(_claims(before, after, pod)), nodes, no, unknown, mine)


def _claims(before: Snapshot, after: Snapshot, pod: Pod) -> Iterator[ClaimVerdict]:
    namespace = pod.metadata.namespace
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    named = [
        (entry.name, entry.resource_claim_name or made.get(entry.name), entry.resource_claim_template_name)
        for entry in pod.spec.resource_claims
    ]
    special = pod.status.extended_resource_claim_status
    every: list[tuple[str | None, str | None, str | None]] = [*named]
    if special is not None:
        every.append((None, special.resource_claim_name, None))
    for entry, name, template in every:
        claim = after.claims.get((namespace, name or ""))
        allocation = claim.status.allocation if claim is not None else None
        old = before.claims.get((namespace, name or ""))
        new = allocation is not None and (old is None or old.status.allocation != allocation)
        yield ClaimVerdict(entry, name or "", template, new, allocation)
