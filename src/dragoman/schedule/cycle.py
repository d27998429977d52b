"""What happens to this unit now? The door of `dragoman.schedule`.

    decision = decide(snapshot, unit_of(snapshot, pod, gates), now, context)

A unit is one pod or a gang, placed whole or not at all. The decision is a value: who holds the loop writes its
effects, shows its assumed changes, and tells people what was refused. Same arguments, same decision, whatever
`context.memory` remembers. Never waits, reads, writes or draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dragoman.api.core import Pod
from dragoman.schedule.claims import claims_of
from dragoman.schedule.conditions import binding_of
from dragoman.schedule.decision import Decision, Placement, Wait, bind_write
from dragoman.schedule.gang import place_gang
from dragoman.schedule.placement import NoFit
from dragoman.schedule.preempt import effects_of, preempt
from dragoman.schedule.refusal import BindingFailed
from dragoman.schedule.single import PodOutcome, give_up_one, place_pod, refusing_nodes, wait_of, wait_topics
from dragoman.schedule.units import SchedulingContext, SchedulingUnit, gated, is_waiting, priority_of, unit_of
from dragoman.schedule.volumes import VolumeState, volume_state_of
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import is_finished
from dragoman.snapshot.volumes import SELECTED_NODE, is_kept_for

__all__ = [
    "SchedulingContext",
    "SchedulingUnit",
    "decide",
    "gated",
    "is_waiting",
    "priority_of",
    "refusing_nodes",
    "unit_of",
]


def decide(snapshot: Snapshot, unit: SchedulingUnit, now: datetime, context: SchedulingContext) -> Decision:
    """The decision for a unit. Deterministic but for the ids that context.new_id gives."""
    if unit.placed:
        return _resume(snapshot, unit, now, context)
    if unit.key[0] == "Pod":
        return _one_pod(snapshot, unit, now, context)
    return decision_of(snapshot, unit, place_gang(snapshot, unit, now, context))


def _one_pod(snapshot: Snapshot, unit: SchedulingUnit, now: datetime, context: SchedulingContext) -> Decision:
    pod = snapshot.pods.get(unit.pods[0])
    if pod is None or not is_waiting(pod):
        return Decision(unit.key, snapshot.version)
    outcome = place_pod(snapshot, pod, now, context, context.memory)
    decision = decision_of(snapshot, unit, [outcome])
    if context.preemption == "off" or outcome.refused is None or outcome.writes:
        return decision
    found = preempt(snapshot, pod, outcome.refused, now, context)
    if found is None:
        return decision
    effects = effects_of(snapshot, pod, found, now)
    return msgspec.structs.replace(decision, effects=effects, preemption=found)


def decision_of(snapshot: Snapshot, unit: SchedulingUnit, outcomes: Sequence[PodOutcome]) -> Decision:
    """All writes first, then the bindings, so that a failure on the way binds nobody."""
    waits = tuple(outcome.wait for outcome in outcomes if outcome.wait is not None)
    placements = tuple(outcome.placement for outcome in outcomes if outcome.placement is not None)
    effects = [effect for outcome in outcomes for effect in outcome.writes]
    assumed = [change for outcome in outcomes for change in outcome.assumed]
    if not waits:
        effects += [bind_write(o.pod, o.placement.node) for o in outcomes if o.placement is not None]
    return Decision(
        unit.key,
        snapshot.version,
        tuple(effects),
        tuple(assumed),
        placements,
        waits,
        tuple(outcome.refused for outcome in outcomes if outcome.refused is not None),
        tuple(outcome.undecided for outcome in outcomes if outcome.undecided is not None),
        frozenset().union(*(outcome.topics for outcome in outcomes)),
        tuple(dict.fromkeys(key for outcome in outcomes for key in outcome.written)),
    )


# ---- units that have their place


def _resume(snapshot: Snapshot, unit: SchedulingUnit, now: datetime, context: SchedulingContext) -> Decision:
    """Bind if the conditions hold, wait on if not yet, give the claims up if they failed or were lost."""
    waits: list[Wait] = []
    pods: list[tuple[Pod, str]] = []
    for key, node in unit.placed:
        pod = snapshot.pods.get(key)
        if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
            continue
        pods.append((pod, node))
        claims = claims_of(snapshot, pod)
        if not isinstance(claims, tuple) or not all(used.allocated and used.reserved for used in claims):
            return Decision(unit.key, snapshot.version, lost=True)
        for used in claims:
            failed = binding_of(used.claim, now, context.binding_timeout_s)
            if isinstance(failed, BindingFailed):
                outcome = give_up_one(snapshot, pod, [used], NoFit((failed,)))
                return msgspec.structs.replace(decision_of(snapshot, unit, [outcome]), lost=True)
        volumes = volume_state_of(snapshot, pod, context.profile.off)
        if volumes is not None and (volumes.reasons or _moved(volumes, node)):
            return Decision(unit.key, snapshot.version, lost=True)
        open_volumes = (
            tuple((key[0], claim.metadata.name) for claim, _ in volumes.waiting) if volumes is not None else ()
        )
        wait = wait_of(key, node, [used.claim for used in claims], now, context, open_volumes)
        if wait is not None:
            waits.append(wait)
    placements = tuple(Placement((p.metadata.namespace, p.metadata.name), p.metadata.uid, n) for p, n in pods)
    if waits:
        topics = frozenset().union(*(wait_topics(wait) for wait in waits))
        return Decision(unit.key, snapshot.version, placements=placements, waits=tuple(waits), topics=topics)
    return Decision(unit.key, snapshot.version, tuple(bind_write(p, n) for p, n in pods), placements=placements)


def _moved(volumes: VolumeState, node: str) -> bool:
    """Whether a volume that was to be made for the node is not made there any more: its provisioner gave up."""
    return any(
        claim.metadata.annotations.get(SELECTED_NODE, node) != node
        or (SELECTED_NODE not in claim.metadata.annotations and not any(is_kept_for(v, claim) for v in volumes.free))
        for claim, _ in volumes.waiting
    )
