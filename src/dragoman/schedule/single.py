"""What happens to one pod? Placed with its writes, or refused with its reasons, or one of its claims given up.

Never binds: the unit does, once all its pods have their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import ResourceClaim
from dragoman.effects import Effect
from dragoman.schedule.claims import PodClaim, claims_of, same
from dragoman.schedule.conditions import Pending, binding_of
from dragoman.schedule.decision import (
    AnyReason,
    NodesRefused,
    Placement,
    Refused,
    UndecidedPod,
    Wait,
    bound,
    node_allocatable_write,
    pod_claim_writes,
    release_writes,
    remove_special_writes,
    special_writes,
)
from dragoman.schedule.extended import classes_by_resource, is_special, special_claim
from dragoman.schedule.placement import (
    NoFit,
    PlacementCache,
    ScheduleResult,
    UndecidedFit,
    all_refusals,
    find_node,
    node_scores,
)
from dragoman.schedule.pod_info import PodInfo, pod_info_of
from dragoman.schedule.queue import Topic
from dragoman.schedule.refusal import BindingFailed, ClaimNotAvailableOnNode, PodReason, SchedulingGated
from dragoman.schedule.units import SchedulingContext, gated
from dragoman.schedule.volumes import volume_writes
from dragoman.schedule.wakeup import named, topics_of
from dragoman.snapshot.change import Change, Put, Snapshot, keys_of
from dragoman.snapshot.usage import claim_names


class PodOutcome(msgspec.Struct, frozen=True):
    """What happens to one pod: one of placement, refused and undecided is set. writes: before any binding."""

    pod: Pod
    placement: Placement | None = None
    wait: Wait | None = None
    refused: Refused | None = None
    undecided: UndecidedPod | None = None
    writes: tuple[Effect, ...] = ()
    assumed: tuple[Change, ...] = ()
    written: tuple[NamespacedName, ...] = ()
    topics: frozenset[Topic] = frozenset()


def place_pod(
    snapshot: Snapshot, pod: Pod, now: datetime, context: SchedulingContext, memory: PlacementCache
) -> PodOutcome:
    """The outcome for a pod that waits for its node."""
    if gated(pod):
        return refuse(snapshot, pod, NoFit((SchedulingGated(tuple(g.name for g in pod.spec.scheduling_gates)),)))
    left_over = _left_over_special(snapshot, pod)
    if left_over is not None:
        writes, changes = remove_special_writes(pod, left_over)
        return _release(snapshot, pod, left_over, NoFit(), writes, changes)
    claims = claims_of(snapshot, pod, context.in_flight)
    if not isinstance(claims, tuple):
        return refuse(snapshot, pod, NoFit((claims,)))
    for used in claims:
        failed = binding_of(used.claim, now, context.binding_timeout_s)
        if isinstance(failed, BindingFailed):
            return give_up_one(snapshot, pod, [used], NoFit((failed,)))
    by_resource = by_resource_of(snapshot, context)
    pod_info = pod_info_of(snapshot, pod, claims, by_resource, context.profile)
    if context.within is not None:
        pod_info = msgspec.structs.replace(pod_info, within=context.within)
    if pod_info.volumes is not None and pod_info.volumes.reasons:
        return refuse(snapshot, pod, _volumes_and_devices(snapshot, pod_info, by_resource, context, memory))
    place = find_node(snapshot, pod_info, context.options, by_resource, memory, context.new_id)
    if isinstance(place, ScheduleResult):
        return placed(pod_info, place, now, context)
    if isinstance(place, UndecidedFit):  # gives up nothing: there may be a place with the claims as they are
        return undecided(snapshot, pod, place)
    elsewhere = {r.claim for some in place.nodes for r in some.reasons if isinstance(r, ClaimNotAvailableOnNode)}
    return give_up_one(snapshot, pod, [c for c in claims if c.claim.metadata.name in elsewhere], place)


def _volumes_and_devices(
    snapshot: Snapshot, info: PodInfo, by_resource: dict[str, str], context: SchedulingContext, memory: PlacementCache
) -> NoFit:
    """What is wrong with the pod's volumes, and what else no volume would help: both are to be mended."""
    assert info.volumes is not None
    without = msgspec.structs.replace(info, volumes=None)
    place = find_node(snapshot, without, context.options, by_resource, memory, context.new_id)
    if not isinstance(place, NoFit):
        return NoFit(info.volumes.reasons)
    return NoFit((*info.volumes.reasons, *place.reasons), place.nodes)


def by_resource_of(snapshot: Snapshot, context: SchedulingContext) -> dict[str, str]:
    """Extended resource -> class, if that gate is on."""
    return classes_by_resource(snapshot.classes) if context.gates.on("DRAExtendedResource") else {}


def placed(pod_info: PodInfo, place: ScheduleResult, now: datetime, context: SchedulingContext) -> PodOutcome:
    """The outcome for a pod with its place: what is written, what is assumed, whether it waits."""
    pod, shown = pod_info.pod, pod_info.pod
    results = iter(place.results)
    writes: list[Effect] = []
    changes: list[Change] = []
    written: list[NamespacedName] = []
    allocations = []
    claims: list[ResourceClaim] = []
    for used in pod_info.claims:
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
    if place.node_allocatable or pod.status.node_allocatable_resource_claim_statuses:
        write, shown = node_allocatable_write(shown, place.node_allocatable)
        writes.append(write)
    more_writes, more_changes, volume_claims = volume_writes(place.volumes, place.node)
    writes += more_writes
    changes += more_changes
    changes.append(Put("Pod", bound(shown, place.node)))
    key = (pod.metadata.namespace, pod.metadata.name)
    wait = wait_of(key, place.node, claims, now, context, volume_claims)
    topics = wait_topics(wait) if wait is not None else frozenset()
    return PodOutcome(
        pod,
        Placement(key, pod.metadata.uid, place.node, tuple(allocations), place.kind, place.warnings),
        wait,
        writes=tuple(writes),
        assumed=tuple(changes),
        written=tuple(written),
        topics=topics,
    )


def wait_topics(wait: Wait) -> frozenset[Topic]:
    """What may end a wait."""
    return frozenset(named("ResourceClaim", *claim) for claim in wait.claims) | frozenset(
        named("PersistentVolumeClaim", *claim) for claim in wait.volume_claims
    )


def wait_of(
    pod: NamespacedName,
    node: str,
    claims: Sequence[ResourceClaim],
    now: datetime,
    context: SchedulingContext,
    volume_claims: tuple[NamespacedName, ...] = (),
) -> Wait | None:
    """What a placed pod waits for; None if nothing. volume_claims: those that are not bound yet."""
    deadlines: list[datetime | None] = []
    for claim in claims:
        binding = binding_of(claim, now, context.binding_timeout_s)
        if isinstance(binding, Pending):
            deadlines.append(binding.deadline)
    if not deadlines and not volume_claims:
        return None
    known = [deadline for deadline in deadlines if deadline is not None]
    keys = tuple((claim.metadata.namespace, claim.metadata.name) for claim in claims)
    return Wait(pod, node, keys if deadlines else (), min(known) if known else None, volume_claims)


# ---- refusals


def refuse(snapshot: Snapshot, pod: Pod, no: NoFit) -> PodOutcome:
    """Refused, with the topics that may help."""
    reasons = [*no.reasons, *(reason for some in no.nodes for reason in some.reasons)]
    meta = pod.metadata
    refused = Refused((meta.namespace, meta.name), meta.uid, no.reasons, no.nodes, len(snapshot.nodes))
    return PodOutcome(pod, refused=refused, topics=topics_of(pod, claim_names(pod), reasons))


def undecided(snapshot: Snapshot, pod: Pod, fit: UndecidedFit, reasons: tuple[AnyReason, ...] = ()) -> PodOutcome:
    """Neither placed nor refused. reasons: what is known of its gang."""
    meta = pod.metadata
    one = UndecidedPod(
        (meta.namespace, meta.name), meta.uid, fit.undecided, fit.nodes, reasons, total=len(snapshot.nodes)
    )
    known = [*reasons, *(reason for some in fit.nodes for reason in some.reasons)]
    return PodOutcome(pod, undecided=one, topics=topics_of(pod, claim_names(pod), known))


def give_up_one(snapshot: Snapshot, pod: Pod, candidates: Sequence[PodClaim], no: NoFit) -> PodOutcome:
    """Refused; the first candidate that nobody else uses loses its devices, so that it can be allocated again."""
    for used in candidates:
        others = [e for e in used.claim.status.reserved_for if e.resource != "pods" or not same(e.uid, e.name, pod)]
        if used.allocated and not others:
            writes, released = release_writes(used.claim)
            return _release(snapshot, pod, used.claim, no, writes, (Put("ResourceClaim", released),))
    return refuse(snapshot, pod, no)


def _release(
    snapshot: Snapshot,
    pod: Pod,
    claim: ResourceClaim,
    no: NoFit,
    writes: tuple[Effect, ...],
    changes: tuple[Change, ...],
) -> PodOutcome:
    outcome = refuse(snapshot, pod, no)
    assert outcome.refused is not None
    name = claim.metadata.name
    refused = msgspec.structs.replace(outcome.refused, released=name)
    topic = named("ResourceClaim", claim.metadata.namespace, name)
    return PodOutcome(
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


def place_on(
    snapshot: Snapshot, pod: Pod, node: str, context: SchedulingContext
) -> ScheduleResult | NoFit | UndecidedFit | PodReason:
    """What the pod would get on that very node, or why nothing; nothing is written."""
    claims = claims_of(snapshot, pod, context.in_flight)
    if not isinstance(claims, tuple):
        return claims
    by_resource = by_resource_of(snapshot, context)
    info = pod_info_of(snapshot, pod, claims, by_resource, context.profile)
    if info.volumes is not None and info.volumes.reasons:
        return info.volumes.reasons[0]
    pinned = (node,) if info.pinned is None or node in info.pinned else ()
    info = msgspec.structs.replace(info, pinned=pinned)
    return find_node(snapshot, info, context.options, by_resource, context.memory, context.new_id)


def scores_of(snapshot: Snapshot, pod: Pod, context: SchedulingContext) -> dict[str, int]:
    """The score of every node that can take the pod."""
    claims = claims_of(snapshot, pod, context.in_flight)
    if not isinstance(claims, tuple):
        return {}
    by_resource = by_resource_of(snapshot, context)
    info = pod_info_of(snapshot, pod, claims, by_resource, context.profile)
    return node_scores(snapshot, info, context.options, by_resource, context.memory)


def refusing_nodes(snapshot: Snapshot, pod: Pod, context: SchedulingContext) -> tuple[NodesRefused, ...]:
    """The nodes that cannot take a pod, equal ones together, whether or not it has a place elsewhere."""
    claims = claims_of(snapshot, pod, context.in_flight)
    if not isinstance(claims, tuple):
        return ()
    by_resource = by_resource_of(snapshot, context)
    pod_info = pod_info_of(snapshot, pod, claims, by_resource, context.profile)
    return all_refusals(snapshot, pod_info, context.options, by_resource, context.memory)
