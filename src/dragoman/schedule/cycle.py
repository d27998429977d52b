"""What happens to this unit now? The door of `dragoman.schedule`.

    decision = decide(snapshot, unit_of(snapshot, pod, gates), now, context)

A unit is one pod or a gang, placed whole or not at all. The decision is a value: who holds the loop writes its
effects, shows its assumed changes, and tells people what was refused. Same arguments, same decision, whatever
`context.memory` remembers. Never waits, reads, writes or draws.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from dragoman.allocate.allocator import OPTIONS, Options
from dragoman.api.core import Pod
from dragoman.api.gates import Gates
from dragoman.api.resource import ResourceClaim
from dragoman.effects import Effect
from dragoman.schedule.claims import PodClaim, claims_of, group_name, same
from dragoman.schedule.conditions import TIMEOUT_S, Pending, binding_of
from dragoman.schedule.decision import (
    Decision,
    NewId,
    NodesRefused,
    Placement,
    Refused,
    Wait,
    bind_write,
    bound,
    pod_claim_writes,
    release_writes,
    remove_special_writes,
    special_writes,
)
from dragoman.schedule.extended import classes_by_resource, is_special, special_claim
from dragoman.schedule.filter import unsupported
from dragoman.schedule.place import Memory, NoPlace, Place, all_refusals, find_place
from dragoman.schedule.queue import Topic, UnitKey
from dragoman.schedule.refusal import (
    BindingFailed,
    ClaimElsewhere,
    Gated,
    GroupDoesNotFit,
    GroupMissing,
    GroupTooSmall,
)
from dragoman.schedule.wakeup import named, topics_of
from dragoman.schedule.wish import Wish, wish_of
from dragoman.snapshot.change import Change, Key, Put, Snapshot, apply_all, keys_of
from dragoman.snapshot.usage import claim_names, is_finished

GANGS = "GangScheduling"


class Unit(msgspec.Struct, frozen=True):
    """What is placed together. pods: those without a node, in order. wanted: how many of them must fit.

    placed: (pod, node) when the unit has its place already and only waits for conditions.
    """

    key: UnitKey
    pods: tuple[Key, ...]
    wanted: int = 1
    placed: tuple[tuple[Key, str], ...] = ()


class Context(msgspec.Struct):
    """What a decision depends on besides the snapshot.

    in_flight: claims that another decision is being written for. new_id: gives a new UUID at each call.
    """

    new_id: NewId
    options: Options = OPTIONS
    in_flight: Collection[Key] = ()
    binding_timeout_s: float = TIMEOUT_S
    memory: Memory = msgspec.field(default_factory=Memory)

    @property
    def gates(self) -> Gates:
        """The feature gates."""
        return self.options.gates


def unit_of(snapshot: Snapshot, pod: Pod, gates: Gates) -> Unit:
    """The unit a pod belongs to: its gang, or itself."""
    meta = pod.metadata
    key = (meta.namespace, meta.name)
    group = group_name(pod)
    if not group or not gates.on(GANGS):
        return Unit(("Pod", *key), (key,))
    pod_group = snapshot.pod_groups.get((meta.namespace, group))
    policy = pod_group.spec.scheduling_policy if pod_group is not None else None
    if pod_group is not None and (policy is None or policy.gang is None):
        return Unit(("Pod", *key), (key,))
    members = keys_of(snapshot.pods_by_group, (meta.namespace, group))
    waiting = tuple(member for member in members if is_waiting(snapshot.pods[member]))
    running = sum(1 for m in members if snapshot.pods[m].spec.node_name and not is_finished(snapshot.pods[m]))
    minimum = policy.gang.min_count if policy is not None and policy.gang is not None else len(waiting)
    return Unit(("PodGroup", meta.namespace, group), waiting, max(minimum - running, 1 if waiting else 0))


def is_waiting(pod: Pod) -> bool:
    """Whether the pod still needs a node."""
    return not pod.spec.node_name and not is_finished(pod) and pod.metadata.deletion_timestamp is None


def gated(pod: Pod) -> bool:
    """Whether scheduling gates hold the pod back."""
    return bool(pod.spec.scheduling_gates)


def priority_of(snapshot: Snapshot, pod: Pod) -> int:
    """The pod's priority; bare objects may only name the class."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    named_class = snapshot.priority_classes.get(pod.spec.priority_class_name)
    return named_class.value if named_class is not None else 0


def decide(snapshot: Snapshot, unit: Unit, now: datetime, context: Context) -> Decision:
    """The decision for a unit. Deterministic but for the ids that context.new_id gives."""
    if unit.placed:
        return _resume(snapshot, unit, now, context)
    if unit.key[0] == "Pod":
        return _one_pod(snapshot, unit, now, context)
    return _gang(snapshot, unit, now, context)


def refusing_nodes(snapshot: Snapshot, pod: Pod, context: Context) -> tuple[NodesRefused, ...]:
    """The nodes that cannot take a pod, alike ones together, whether or not it has a place elsewhere."""
    claims = claims_of(snapshot, pod, context.gates, context.in_flight)
    if not isinstance(claims, tuple):
        return ()
    by_resource = _by_resource(snapshot, context)
    wish = wish_of(pod, claims, by_resource)
    return all_refusals(snapshot, wish, context.options, by_resource, context.memory)


# ---- one pod


class _Outcome(msgspec.Struct, frozen=True):
    """What happens to one pod: placed (placement set) or refused. writes: before any binding."""

    pod: Pod
    placement: Placement | None = None
    wait: Wait | None = None
    refused: Refused | None = None
    writes: tuple[Effect, ...] = ()
    assumed: tuple[Change, ...] = ()
    written: tuple[Key, ...] = ()
    topics: frozenset[Topic] = frozenset()


def _one_pod(snapshot: Snapshot, unit: Unit, now: datetime, context: Context) -> Decision:
    pod = snapshot.pods.get(unit.pods[0])
    if pod is None or not is_waiting(pod):
        return Decision(unit.key, snapshot.version)
    return _decision(snapshot, unit, [_place_pod(snapshot, pod, now, context, context.memory)])


def _decision(snapshot: Snapshot, unit: Unit, outcomes: Sequence[_Outcome]) -> Decision:
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
        frozenset().union(*(outcome.topics for outcome in outcomes)),
        tuple(dict.fromkeys(key for outcome in outcomes for key in outcome.written)),
    )


def _place_pod(snapshot: Snapshot, pod: Pod, now: datetime, context: Context, memory: Memory) -> _Outcome:
    if gated(pod):
        return _refuse(snapshot, pod, NoPlace((Gated(tuple(g.name for g in pod.spec.scheduling_gates)),)))
    unknown = unsupported(pod)
    if unknown is not None:
        return _refuse(snapshot, pod, NoPlace((unknown,)))
    left_over = _left_over_special(snapshot, pod)
    if left_over is not None:
        writes, changes = remove_special_writes(pod, left_over)
        return _release(snapshot, pod, left_over, NoPlace(), writes, changes)
    claims = claims_of(snapshot, pod, context.gates, context.in_flight)
    if not isinstance(claims, tuple):
        return _refuse(snapshot, pod, NoPlace((claims,)))
    for used in claims:
        failed = binding_of(used.claim, now, context.binding_timeout_s)
        if isinstance(failed, BindingFailed):
            return _give_up_one(snapshot, pod, [used], NoPlace((failed,)))
    by_resource = _by_resource(snapshot, context)
    wish = wish_of(pod, claims, by_resource)
    place = find_place(snapshot, wish, context.options, by_resource, memory, context.new_id)
    if isinstance(place, Place):
        return _placed(snapshot, wish, place, now, context)
    elsewhere = {r.claim for some in place.nodes for r in some.reasons if isinstance(r, ClaimElsewhere)}
    return _give_up_one(snapshot, pod, [c for c in claims if c.claim.metadata.name in elsewhere], place)


def _by_resource(snapshot: Snapshot, context: Context) -> dict[str, str]:
    return classes_by_resource(snapshot.classes) if context.gates.on("DRAExtendedResource") else {}


def _placed(snapshot: Snapshot, wish: Wish, place: Place, now: datetime, context: Context) -> _Outcome:
    pod, shown = wish.pod, wish.pod
    results = iter(place.results)
    writes: list[Effect] = []
    changes: list[Change] = []
    written: list[Key] = []
    allocations = []
    claims: list[ResourceClaim] = []
    for used in wish.claims:
        allocation = None if used.allocated else next(results)
        if allocation is not None:
            allocations.append((used.key, allocation))
        more, puts = pod_claim_writes(used, allocation, now)
        writes += more
        changes += puts
        written += [used.key] if more else []
        claims.append(puts[0].object if puts else used.claim)
    if place.special is not None:
        name = f"{pod.metadata.name[:229]}-extended-resources-{context.new_id().replace('-', '')[:5]}"
        claim = special_claim(pod, place.special.requests, name)
        more, allocated, shown = special_writes(pod, claim, place.special, next(results), now)
        writes += more
        changes.append(Put("ResourceClaim", allocated))
        written.append((pod.metadata.namespace, name))
        assert allocated.status.allocation is not None
        allocations.append(((pod.metadata.namespace, name), allocated.status.allocation))
        claims.append(allocated)
    changes.append(Put("Pod", bound(shown, place.node)))
    key = (pod.metadata.namespace, pod.metadata.name)
    wait = _wait(key, place.node, claims, now, context)
    topics = frozenset(named("ResourceClaim", *claim) for claim in wait.claims) if wait is not None else frozenset()
    return _Outcome(
        pod,
        Placement(key, pod.metadata.uid, place.node, tuple(allocations)),
        wait,
        None,
        tuple(writes),
        tuple(changes),
        tuple(written),
        topics,
    )


def _wait(pod: Key, node: str, claims: Sequence[ResourceClaim], now: datetime, context: Context) -> Wait | None:
    deadlines: list[datetime | None] = []
    for claim in claims:
        binding = binding_of(claim, now, context.binding_timeout_s)
        if isinstance(binding, Pending):
            deadlines.append(binding.deadline)
    if not deadlines:
        return None
    known = [deadline for deadline in deadlines if deadline is not None]
    keys = tuple((claim.metadata.namespace, claim.metadata.name) for claim in claims)
    return Wait(pod, node, keys, min(known) if known else None)


# ---- refusals


def _refuse(snapshot: Snapshot, pod: Pod, no: NoPlace) -> _Outcome:
    reasons = [*no.reasons, *(reason for some in no.nodes for reason in some.reasons)]
    meta = pod.metadata
    refused = Refused(
        (meta.namespace, meta.name), meta.uid, no.reasons, no.nodes, len(snapshot.nodes), gave_up=no.gave_up
    )
    return _Outcome(pod, refused=refused, topics=topics_of(pod, claim_names(pod), reasons))


def _give_up_one(snapshot: Snapshot, pod: Pod, candidates: Sequence[PodClaim], no: NoPlace) -> _Outcome:
    """Refused; the first candidate that nobody else uses loses its devices, so that it can be allocated anew."""
    for used in candidates:
        others = [e for e in used.claim.status.reserved_for if e.resource != "pods" or not same(e.uid, e.name, pod)]
        if used.allocated and not others:
            writes, released = release_writes(used.claim)
            return _release(snapshot, pod, used.claim, no, writes, (Put("ResourceClaim", released),))
    return _refuse(snapshot, pod, no)


def _release(
    snapshot: Snapshot,
    pod: Pod,
    claim: ResourceClaim,
    no: NoPlace,
    writes: tuple[Effect, ...],
    changes: tuple[Change, ...],
) -> _Outcome:
    outcome = _refuse(snapshot, pod, no)
    assert outcome.refused is not None
    name = claim.metadata.name
    refused = msgspec.structs.replace(outcome.refused, released=name)
    topic = named("ResourceClaim", claim.metadata.namespace, name)
    return _Outcome(
        pod,
        refused=refused,
        writes=writes,
        assumed=changes,
        written=((claim.metadata.namespace, name),),
        topics=outcome.topics | {topic},
    )


def _left_over_special(snapshot: Snapshot, pod: Pod) -> ResourceClaim | None:
    """A special claim of an earlier attempt that was not finished."""
    for key in keys_of(snapshot.claims_by_owner, pod.metadata.uid):
        claim = snapshot.claims[key]
        if is_special(claim, pod) and claim.metadata.deletion_timestamp is None:
            return claim
    return None


# ---- gangs


def _gang(snapshot: Snapshot, unit: Unit, now: datetime, context: Context) -> Decision:
    """Pods one after the other on a trial snapshot; fewer than wanted: nothing happened."""
    _, namespace, group = unit.key
    pods = [snapshot.pods[key] for key in unit.pods if key in snapshot.pods]
    if (namespace, group) not in snapshot.pod_groups and any(group_name(pod) == group for pod in pods):
        outcomes = [_refuse(snapshot, pod, NoPlace((GroupMissing(group),))) for pod in pods]
        return _decision(snapshot, unit, outcomes)
    ready = [pod for pod in pods if is_waiting(pod) and not gated(pod)]
    if len(ready) < unit.wanted:
        no = NoPlace((GroupTooSmall(group, len(ready), unit.wanted),))
        return _decision(snapshot, unit, [_refuse(snapshot, pod, no) for pod in pods])
    trial, memory = snapshot, Memory()
    outcomes = []
    for pod in ready:
        outcome = _place_pod(trial, pod, now, context, memory)
        outcomes.append(outcome)
        if outcome.placement is not None:
            after = apply_all(trial, outcome.assumed)
            memory.alike.follow(trial, outcome.assumed, after)
            trial = after
    placed = [outcome for outcome in outcomes if outcome.placement is not None]
    if len(placed) >= unit.wanted:
        return _decision(snapshot, unit, outcomes)
    return _decision(snapshot, unit, _refuse_gang(snapshot, unit, outcomes, len(placed)))


def _refuse_gang(snapshot: Snapshot, unit: Unit, outcomes: Sequence[_Outcome], fitted: int) -> list[_Outcome]:
    group = unit.key[2]
    without = next(outcome for outcome in outcomes if outcome.placement is None)
    reason = GroupDoesNotFit(group, fitted, unit.wanted, without.pod.metadata.name)
    refused = []
    for outcome in outcomes:
        if outcome.refused is not None:
            no = NoPlace((reason, *outcome.refused.reasons), outcome.refused.nodes, outcome.refused.gave_up)
        else:
            no = NoPlace((reason,))
        again = _refuse(snapshot, outcome.pod, no)
        refused.append(msgspec.structs.replace(again, topics=again.topics | outcome.topics))
    return refused


# ---- units that have their place


def _resume(snapshot: Snapshot, unit: Unit, now: datetime, context: Context) -> Decision:
    """Bind if the conditions hold, wait on if not yet, give the claims up if they failed or were lost."""
    waits: list[Wait] = []
    pods: list[tuple[Pod, str]] = []
    for key, node in unit.placed:
        pod = snapshot.pods.get(key)
        if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
            continue
        pods.append((pod, node))
        claims = claims_of(snapshot, pod, context.gates)
        if not isinstance(claims, tuple) or not all(used.allocated and used.reserved for used in claims):
            return Decision(unit.key, snapshot.version, lost=True)
        for used in claims:
            failed = binding_of(used.claim, now, context.binding_timeout_s)
            if isinstance(failed, BindingFailed):
                outcome = _give_up_one(snapshot, pod, [used], NoPlace((failed,)))
                return msgspec.structs.replace(_decision(snapshot, unit, [outcome]), lost=True)
        wait = _wait(key, node, [used.claim for used in claims], now, context)
        if wait is not None:
            waits.append(wait)
    placements = tuple(Placement((p.metadata.namespace, p.metadata.name), p.metadata.uid, n) for p, n in pods)
    if waits:
        topics = frozenset(named("ResourceClaim", *claim) for wait in waits for claim in wait.claims)
        return Decision(unit.key, snapshot.version, placements=placements, waits=tuple(waits), topics=topics)
    return Decision(unit.key, snapshot.version, tuple(bind_write(p, n) for p, n in pods), placements=placements)
