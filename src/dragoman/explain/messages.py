"""How is a "no" said? The one module that turns refusals into sentences: events, terminal and JSON use it.

`sentence` says one reason with its numbers, `fragment` says it as upstream's scheduler does, `message` tells why a
pod is pending: upstream's words first, then what somebody can act on. Given the reader's namespace, no object of
another one is named. Never decides and never looks anything up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, assert_never

import msgspec

from dragoman.allocate import refusal as device
from dragoman.api import codec
from dragoman.api.resource import ADMIN_ACCESS_LABEL
from dragoman.explain import state_messages
from dragoman.explain.state import StateBase, StateReason
from dragoman.schedule import refusal as pod
from dragoman.schedule.decision import AnyReason, Refused, UndecidedPod
from dragoman.snapshot.usage import DeviceId, Holder

MAX_MESSAGE = 1024  # of an Event, by the API's validation
MAX_SENTENCES = 4
DOMAINS_SHOWN = 6
ALL_CLAIMS = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"


StatedFact: TypeAlias = AnyReason | StateReason | device.SearchLimitReached
"""All that has a sentence: reasons against, what state an object is in, and that nothing is known yet."""


def code(reason: StatedFact) -> str:
    """The reason's stable code."""
    return type(reason).__name__


def plural(count: int, noun: str) -> str:
    """`1 device`, `2 devices`, `2 classes`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(('s', 'x')) else 's'}"


def as_json(reason: StatedFact, reader: str | None = None) -> dict[str, Any]:
    """{"code", "message", facts}: camelCase fields, devices as `driver/pool/device`, quantities as text."""
    facts: dict[str, Any] = {}
    for field in type(reason).__struct_fields__:
        value = getattr(reason, field)
        if field == "holders" and reader is not None:
            value = tuple(holder for holder in value if holder.namespace == reader)
        facts[camel(field)] = _fact(value)
    return {"code": code(reason), "message": sentence(reason, reader), **facts}


def camel(field: str) -> str:
    """A field's name in JSON; seconds are `...Seconds` there, as in the API."""
    if field == "class_name":
        return "deviceClass"
    if field.endswith("_s"):
        field = f"{field}econds"
    return re.sub(r"_(.)", lambda found: found[1].upper(), field)


def _fact(value: Any) -> Any:
    if isinstance(value, DeviceId):
        return str(value)
    if isinstance(value, tuple):
        return [_fact(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return {camel(field): _fact(getattr(value, field)) for field in type(value).__struct_fields__}
    return codec.to_json(value)


# ---- why a pod is pending


def message(refused: Refused | UndecidedPod, reader: str | None = None) -> str:
    """One text for the pod's event and condition, at most MAX_MESSAGE characters."""
    if isinstance(refused, UndecidedPod):
        return _shortened(_undecided(refused))
    upstream = _upstream(refused)
    said = " ".join(f"{text[0].upper()}{text[1:]}." for text in details(refused, reader))
    return _shortened(f"{upstream} {said}" if said else upstream)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def _undecided(one: UndecidedPod) -> str:
    """Where the search stopped, and how many nodes refuse."""
    refusing = sum(len(some.nodes) for some in one.nodes)
    texts = dict.fromkeys(_stopped(some.limit) for some in one.undecided[:MAX_SENTENCES])
    also = f" {refusing} of {plural(one.total, 'node')} cannot take the pod." if refusing else ""
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts) + also


def _upstream(refused: Refused) -> str:
    total = f"0/{refused.total} nodes are available"
    in_a_group = bool(refused.nodes) and all(isinstance(reason, pod.PodGroupDoesNotFit) for reason in refused.reasons)
    if refused.reasons and not in_a_group:
        first = refused.reasons[0]
        if isinstance(first, pod.SchedulingGated):
            return f"Scheduling is blocked due to non-empty scheduling gates: {', '.join(first.gates)}."
        if isinstance(first, pod.NoNodes):
            return "no nodes available to schedule pods."
        said = "; ".join(dict.fromkeys(fragment(reason) for reason in refused.reasons))
        return f"{total}: {said}."
    counts: Counter[str] = Counter()
    for some in refused.nodes:
        texts = dict.fromkeys(fragment(reason) for reason in some.reasons)
        if INVALID_POOLS in texts:
            texts.pop(ALL_CLAIMS, None)  # upstream does not come as far as to allocate there
        for text in texts:
            counts[text] += len(some.nodes)
    # Upstream sorts the texts with their numbers in front.
    said = ", ".join(sorted(f"{count} {text}" for text, count in counts.items()))
    if refused.released:
        return f"{total}: {said}. deallocation of ResourceClaim completed."
    return f"{total}: {said}. {_preemption(refused)}"


def _preemption(refused: Refused) -> str:
    resources = (pod.InsufficientResource, pod.TooManyPods, pod.PortConflict)
    helpful = sum(len(s.nodes) for s in refused.nodes if all(isinstance(r, resources) for r in s.reasons))
    if helpful:
        return "preemption: not attempted."
    total = refused.total
    return f"preemption: 0/{total} nodes are available: {total} Preemption is not helpful for scheduling."


def details(refused: Refused, reader: str | None = None) -> list[str]:
    """What can be acted on, most telling first: a sentence for each kind of reason, with numbers.

    Left out is what upstream's words in front of it say already.
    """
    texts = [sentence(reason, reader) for reason in refused.reasons if _says_more(reason)]
    grouped: dict[tuple[str, ...], list[tuple[AnyReason, int]]] = {}
    for some in refused.nodes:
        for reason in some.reasons:
            if _says_more(reason):
                grouped.setdefault(topic(reason), []).append((reason, len(some.nodes)))
    texts += [_together(reasons, refused.total, reader) for reasons in grouped.values()]
    if refused.released:
        texts.insert(0, f"claim {refused.released} was released to be allocated again")
    if len(texts) > MAX_SENTENCES:
        more = len(texts) - MAX_SENTENCES + 1
        texts = [*texts[: MAX_SENTENCES - 1], f"and {plural(more, 'other reason')}"]
    return texts


def _says_more(reason: AnyReason) -> bool:
    silent = (pod.NodeUnschedulable, pod.NoNodes, pod.UntoleratedTaint, pod.SchedulingGated)
    return not isinstance(reason, silent) and fragment(reason) != sentence(reason)


def topic(reason: AnyReason) -> tuple[str, ...]:
    """Equal for reasons that are reported as one: the kind, whose they are and what they are about."""
    parts = [code(reason)]
    for field in ("claim", "volume_claim", "request", "resource", "device", "attribute", "pool", "required"):
        value = getattr(reason, field, "")
        if isinstance(value, str):
            parts.append(value)
    return tuple(parts)


def _together(reasons: Sequence[tuple[AnyReason, int]], total: int, reader: str | None) -> str:
    """One sentence for reasons of one kind on several nodes: that of the node that comes nearest."""
    nodes = sum(count for _, count in reasons)
    best = max((reason for reason, _ in reasons), key=_nearness)
    text = sentence(without_node(best), reader)
    if total == 1:
        return text
    return f"on {plural(nodes, 'node')}: {text}" if len(reasons) == 1 else f"on {nodes} nodes, the best: {text}"


def _nearness(reason: AnyReason) -> int:
    match reason:
        case device.InsufficientDevices():
            return reason.dropped.available * 1_000_000 + reason.dropped.matched
        case pod.InsufficientResource():
            return reason.available.nanos
        case device.RequestsContended():
            return reason.available
        case _:
            return 0


def without_node(reason: AnyReason) -> AnyReason:
    """The reason for a sentence that names the node already."""
    return msgspec.structs.replace(reason, node="") if getattr(reason, "node", "") else reason


# ---- upstream's words


def fragment(reason: AnyReason) -> str:
    """The reason as kube-scheduler says it, where it has words for it."""
    match reason:
        case pod.NodeUnschedulable():
            return "node(s) were unschedulable"
        case pod.UntoleratedTaint():
            return f"node(s) had untolerated taint {{{reason.key}: {reason.value}}}"
        case pod.NodeAffinityMismatch():
            return "node(s) didn't match Pod's node affinity/selector"
        case pod.AddedAffinityMismatch():
            return "node(s) didn't match scheduler-enforced node affinity"
        case pod.InsufficientResource() | pod.UnknownResource():
            return f"Insufficient {reason.resource}"
        case pod.TooManyPods():
            return "Too many pods"
        case pod.PortConflict():
            return "node(s) didn't have free ports for the requested pod ports"
        case pod.PodAffinity():
            return "node(s) didn't match pod affinity rules"
        case pod.PodAntiAffinity():
            whose = "satisfy existing pods" if reason.by_others else "match pod"
            return f"node(s) didn't {whose} anti-affinity rules"
        case pod.TopologySpread():
            missing = " (missing required label)" if reason.unlabelled else ""
            return f"node(s) didn't match pod topology spread constraints{missing}"
        case pod.VolumeClaimUnbound():
            return "pod has unbound immediate PersistentVolumeClaims"
        case pod.VolumeClaimInUse():
            return (
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
                "another pod"
            )
        case pod.VolumeAffinityMismatch():
            return "node(s) didn't match PersistentVolume's node affinity"
        case pod.VolumeZone():
            return "node(s) had no available volume zone"
        case pod.VolumeNotAvailable():
            return "node(s) didn't find available persistent volumes to bind"
        case pod.ClaimNotAvailableOnNode() | pod.BindingFailed():
            return "resourceclaim not available on the node"
        case pod.PodGroupDoesNotFit():
            return f"pod group is unschedulable, minCount ({reason.min_count}) cannot be satisfied"
        case pod.PodGroupTopologyMismatch():
            return sentence(reason)
        case device.PoolInvalid() if not reason.claim:
            return INVALID_POOLS
        case _ if isinstance(reason, pod.ReasonBase) or device.is_pod_wide(reason):
            return sentence(reason)
        case _:
            return ALL_CLAIMS


# ---- sentences


def sentence(reason: StatedFact, reader: str | None = None) -> str:
    """The reason with its facts, no full stop. reader: their namespace; None: may see everything."""
    if isinstance(reason, StateBase):
        return state_messages.sentence(reason)
    if isinstance(reason, device.SearchLimitReached):
        return _stopped(reason)
    return _of_pod(reason) if isinstance(reason, pod.ReasonBase) else _of_devices(reason, reader)


def _of_pod(reason: pod.ScheduleReason) -> str:
    match reason:
        case pod.SchedulingGated():
            return f"scheduling gates block the pod: {', '.join(reason.gates)}"
        case pod.ClaimNotCreated():
            if reason.unlabelled:
                return (
                    f"claim entry {reason.pod_claim}: the ResourceClaim cannot be created: ResourceClaimTemplate "
                    f"{reason.template} requests admin access, and namespace {reason.unlabelled} lacks the label "
                    f"{ADMIN_ACCESS_LABEL}=true"
                )
            if reason.template_exists:
                return f"claim entry {reason.pod_claim}: the ResourceClaim is not created yet"
            return f"claim entry {reason.pod_claim}: ResourceClaimTemplate {reason.template} does not exist"
        case pod.ClaimNotFound():
            return f'resourceclaim.resource.k8s.io "{reason.claim}" not found'
        case pod.ClaimDeleting():
            return f'resourceclaim "{reason.claim}" is being deleted'
        case pod.ClaimNotOwned():
            return f"ResourceClaim {reason.claim} was not created for this pod (pod is not owner)"
        case pod.ClaimUnknown():
            return f'spec.resourceClaim "{reason.pod_claim}": none of the supported fields are set'
        case pod.ClaimInFlight():
            return f"resource claim {reason.claim} is in the process of being allocated"
        case pod.ClaimFull():
            return f"claim {reason.claim} has {reason.consumers} consumers, the API allows {reason.limit}"
        case pod.PodGroupTooSmall():
            return f"pod group {reason.group} is waiting for its pods: {reason.pods} of {reason.min_count} exist"
        case pod.PodGroupNotFound():
            return f"PodGroup {reason.group} does not exist"
        case pod.PodGroupDoesNotFit():
            return (
                f"pod group {reason.group} is placed whole or not at all: {reason.fitted} of {reason.min_count} pods "
                f"fit, pod {reason.pod} does not"
            )
        case pod.PodGroupTopologyMismatch() if not reason.domains:
            return f"pod group {reason.group} needs one {reason.topology_key} for all pods, and no node offers that"
        case pod.PodGroupTopologyMismatch():
            shown = ", ".join(f"{one.domain} {one.pods}" for one in reason.domains[:DOMAINS_SHOWN])
            more = len(reason.domains) - DOMAINS_SHOWN
            return (
                f"pod group {reason.group}: no {reason.topology_key} can take {plural(reason.min_count, 'pod')}: "
                f"{shown}{f', and {more} more' if more > 0 else ''}"
            )
        case pod.VolumeClaimNotFound() if reason.ephemeral:
            return (
                f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{reason.volume_claim}"'
            )
        case pod.VolumeClaimNotFound():
            return f'persistentvolumeclaim "{reason.volume_claim}" not found'
        case pod.VolumeClaimDeleting():
            return f'persistentvolumeclaim "{reason.volume_claim}" is being deleted'
        case pod.VolumeClaimNotOwned():
            return f"PersistentVolumeClaim {reason.volume_claim} was not created for this pod (pod is not owner)"
        case pod.VolumeClaimLost():
            name = reason.volume_claim
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{reason.volume}"'
        case pod.VolumeClaimUnbound() if not reason.storage_class:
            return f"PersistentVolumeClaim {reason.volume_claim} has no volume and names no StorageClass that makes one"
        case pod.VolumeClaimUnbound() if not reason.class_exists:
            return f"PersistentVolumeClaim {reason.volume_claim}: StorageClass {reason.storage_class} does not exist"
        case pod.VolumeClaimUnbound():
            return f"PersistentVolumeClaim {reason.volume_claim} (StorageClass {reason.storage_class}) is not bound yet"
        case pod.NoNodes():
            return "the cluster has no node"
        case _:
            return _of_node(reason)


def _of_node(reason: pod.NodeReason) -> str:
    match reason:
        case pod.NodeUnschedulable():
            return "the node is cordoned"
        case pod.UntoleratedTaint():
            value = f"={reason.value}" if reason.value else ""
            return f"the node's taint {reason.key}{value}:{reason.effect} is not tolerated"
        case pod.NodeAffinityMismatch():
            return f"the node does not match {reason.required}"
        case pod.AddedAffinityMismatch():
            return f"the node does not match {reason.required}, which the scheduler's profile adds (addedAffinity)"
        case pod.InsufficientResource():
            return f"{reason.requested} of {reason.resource} requested, {reason.available} of {reason.allocatable} free"
        case pod.TooManyPods():
            return f"the node is at its pod limit ({reason.allocatable})"
        case pod.UnknownResource():
            return f"the node has no {reason.resource}, and no DeviceClass provides it"
        case pod.PortConflict():
            return f"host port {reason.port}/{reason.protocol} is in use"
        case pod.PodAffinity():
            return f"no pod that the pod's affinity asks for is in the node's {reason.topology_key}"
        case pod.PodAntiAffinity():
            whose = "a pod there" if reason.by_others else "the pod"
            return f"the anti-affinity of {whose} forbids the node's {reason.topology_key}"
        case pod.TopologySpread() if reason.unlabelled:
            return f"the node has no label {reason.topology_key}, by which the pod's group is spread"
        case pod.TopologySpread():
            return f"one more pod in the node's {reason.topology_key} would exceed maxSkew {reason.max_skew}"
        case pod.VolumeClaimInUse():
            return f"PersistentVolumeClaim {reason.volume_claim} is ReadWriteOncePod, and pod {reason.pod} uses it"
        case pod.VolumeAffinityMismatch():
            return (
                f"PersistentVolumeClaim {reason.volume_claim}: its volume {reason.volume} can only be reached from "
                f"nodes with {reason.required}"
            )
        case pod.VolumeZone():
            return (
                f"PersistentVolumeClaim {reason.volume_claim}: its volume {reason.volume} is in {reason.label}="
                f"{reason.value}"
            )
        case pod.VolumeNotAvailable() if reason.selected_node:
            return (
                f"PersistentVolumeClaim {reason.volume_claim}: its volume is being made for node {reason.selected_node}"
            )
        case pod.VolumeNotAvailable():
            return (
                f"PersistentVolumeClaim {reason.volume_claim} requests {reason.requested}: no volume of StorageClass "
                f"{reason.storage_class} that fits can be reached from the node, and none is made there"
            )
        case pod.ClaimNotAvailableOnNode() if reason.feature:
            return f"claim {reason.claim} has devices that need a node with the feature {reason.feature}"
        case pod.ClaimNotAvailableOnNode():
            return f"claim {reason.claim} has devices that the node cannot reach"
        case pod.NodeAllocatableClaimShared():
            return (
                f"node allocatable resource claim {reason.claim} has a mapped device and cannot be shared across pods"
            )
        case pod.NodeAllocatableAmountUnknown():
            return f"claim {reason.claim} does not say how much {reason.capacity} of device {reason.device} it holds"
        case pod.InsufficientPodLevelResource():
            return (
                f"pod level request for {reason.resource} is insufficient to cover the aggregated container and "
                f"node-allocatable DRA requests: {reason.pod_level} of {reason.requested}"
            )
        case pod.BindingFailed():
            if reason.timed_out:
                return (
                    f"claim {reason.claim}: binding timeout: {reason.condition} of device {reason.device} is not true"
                )
            reported = f" ({reason.reported})" if reason.reported else ""
            return f"claim {reason.claim}: device {reason.device} reports {reason.condition}{reported}"
        case _:
            assert_never(reason)


def _where(claim: str, request: str = "") -> str:
    name = claim.rpartition("/")[2]
    return f"claim {name}, request {request}" if request else f"claim {name}"


def _wheres(requests: Iterable[tuple[str, str]]) -> Iterable[str]:
    """`claim a, requests r and s`, a claim once."""
    by_claim: dict[str, list[str]] = {}
    for claim, request in requests:
        by_claim.setdefault(claim, []).append(request)
    for claim, names in by_claim.items():
        yield f"{_where(claim)}, request{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _stopped(limit: device.SearchLimitReached) -> str:
    claims = " and ".join(_where(claim) for claim in limit.claims)
    return f"not decided for {claims}{_at(limit)}: the search stopped after {limit.steps} steps"


def _at(reason: device.Fact) -> str:
    node = getattr(reason, "node", "")
    return f" on node {node}" if node else ""


def _of_devices(reason: device.Refusal, reader: str | None) -> str:
    match reason:
        case (
            device.FeatureGateDisabled()
            | device.UnsupportedRequest()
            | device.UnsupportedMode()
            | device.ClassNotSpecified()
            | device.ClassNotFound()
            | device.UnsupportedSelector()
            | device.SelectorInvalid()
            | device.EmptyConstraint()
            | device.TooManyDevices()
        ):
            return _of_claim(reason)
        case (
            device.SelectorError()
            | device.PoolIncomplete()
            | device.PoolInvalid()
            | device.AllModeConstraintUnsatisfied()
        ):
            return _of_fault(reason)
        case device.InsufficientDevices():
            return _too_few(reason)
        case device.ConstraintUnsatisfied():
            return _constraint(reason)
        case device.RequestsContended():
            asked = " and ".join(_wheres(reason.requests))
            count = plural(reason.requested, "device")
            return f"{asked} together request {count}{_at(reason)}, {reason.available} available"
        case device.NoCombination():
            claims = " and ".join(_where(claim) for claim in reason.claims)
            return f"no combination of devices{_at(reason)} fulfils {claims} ({reason.steps} steps searched)"
        case device.AllocatedElsewhere():
            return f"{_where(reason.claim)} has devices that node {reason.node} cannot reach"
        case device.NodeNotFound():
            return f"node {reason.node} does not exist"
        case device.MultipleSelectorTerms():
            return (
                f"{_where(reason.claim)}: the node selector of device {reason.device} has {reason.terms} terms, "
                "an allocation can hold one"
            )
        case _:
            return f"{_where(reason.claim, reason.request)}: {_of_device(reason, reader)}"


def _of_claim(reason: device.PodWide) -> str:
    match reason:
        case device.FeatureGateDisabled():
            return f"{_where(reason.claim, reason.request)} uses {reason.field}, feature gate {reason.feature} is off"
        case device.UnsupportedRequest():
            return f"{_where(reason.claim, reason.request)}: unknown request type"
        case device.UnsupportedMode():
            return f"{_where(reason.claim, reason.request)}: unsupported allocation mode {reason.mode}"
        case device.ClassNotSpecified():
            return f"{_where(reason.claim, reason.request)}: names no device class"
        case device.ClassNotFound():
            near = f"; did you mean {' or '.join(reason.near)}?" if reason.near else ""
            return f"request {reason.request}: device class {reason.class_name} does not exist{near}"
        case device.UnsupportedSelector():
            return f"{_selector(reason)}: CEL expression empty (unsupported selector type?)"
        case device.SelectorInvalid():
            return f"{_selector(reason)}: CEL compile error: {reason.error}"
        case device.EmptyConstraint():
            return f"{_where(reason.claim)}, constraint {reason.index}: names no attribute"
        case device.TooManyDevices():
            return f"{_where(reason.claim)}: {reason.count} devices{_at(reason)} exceed the limit of {reason.limit}"
        case _:
            assert_never(reason)


def _selector(reason: device.UnsupportedSelector | device.SelectorInvalid | device.SelectorError) -> str:
    derived = getattr(reason, "derived", "")
    what = f"derived attribute {derived}" if derived else f"selector {reason.index}"
    if reason.class_name:
        return f"device class {reason.class_name}, {what}"
    return f"{_where(reason.claim, reason.request)}, {what}"


def _of_fault(
    reason: device.SelectorError | device.PoolIncomplete | device.PoolInvalid | device.AllModeConstraintUnsatisfied,
) -> str:
    match reason:
        case device.SelectorError():
            text = f"{_selector(reason)} on device {reason.device}: CEL runtime error: {reason.error}"
            if reason.attribute and reason.lacking:
                text += f"; {reason.lacking} of {plural(reason.seen, 'device')} without {reason.attribute}"
            return text
        case device.PoolIncomplete():
            asked = f"{_where(reason.claim, reason.request)} asks for all devices, but " if reason.claim else ""
            return (
                f"{asked}pool {reason.driver}/{reason.pool} is being updated: {reason.slices} of "
                f"{reason.resource_slice_count} slices of generation {reason.generation} are published"
            )
        case device.PoolInvalid():
            asked = f"{_where(reason.claim, reason.request)} asks for all devices, but " if reason.claim else ""
            return f"{asked}pool {reason.driver}/{reason.pool} is invalid: {reason.what} {', '.join(reason.names)}"
        case device.AllModeConstraintUnsatisfied():
            return (
                f"{_where(reason.claim, reason.request)} asks for all devices, but {reason.device} breaks constraint "
                f"{reason.index} on {reason.attribute}"
            )
        case _:
            assert_never(reason)


def _too_few(reason: device.InsufficientDevices) -> str:
    dropped = reason.dropped
    wanted = "all devices" if not reason.requested else plural(reason.requested, "device")
    head = f"{_where(reason.claim, reason.request)}: {wanted} of class {reason.class_name} requested{_at(reason)}"
    if not dropped.seen:
        bad = f", {plural(dropped.bad_pool, 'device')} in incomplete or invalid pools" if dropped.bad_pool else ""
        return f"{head}, no devices there{bad}"
    if not dropped.matched:
        return f"{head}, none of {plural(dropped.seen, 'device')} matches{_lost(dropped, matching=False)}"
    free = dropped.matched - dropped.held
    match = f"{plural(dropped.matched, 'device')} {'matches' if dropped.matched == 1 else 'match'}"
    return f"{head}, {match}, {free} of them free{_lost(dropped, matching=True)}"


def _lost(dropped: device.Dropped, *, matching: bool) -> str:
    steps: Iterable[tuple[int, str]] = (
        (dropped.bad_pool, "in incomplete or invalid pools"),
        (dropped.lacking, "without a requested capacity"),
        (dropped.gated, "ruled out by a feature gate"),
    )
    if matching:
        steps = (
            *steps,
            (dropped.capacity, "with too little capacity left"),
            (dropped.counters, "with too little of a shared counter left"),
            (dropped.groups, "incompatible with present users"),
            (dropped.taint, "tainted"),
        )
    reported = [f"{count} {what}" for count, what in steps if count]
    return f" ({', '.join(reported)})" if reported else ""


def _constraint(reason: device.ConstraintUnsatisfied) -> str:
    requests = f" over {', '.join(reason.requests)}" if reason.requests else ""
    head = f"{_where(reason.claim)}, constraint {reason.index}{requests}{_at(reason)}"
    values = ", ".join(f"{value} ({count})" for value, count in reason.values[:8]) or "none"
    lacking = f"; {plural(reason.missing, 'device')} without it" if reason.missing else ""
    pod_info = "the same" if reason.kind == "match" else "distinct"
    return (
        f"{head}: {plural(reason.requested, 'device')} with {pod_info} {reason.attribute} requested, "
        f"values of usable devices: {values}{lacking}"
    )


_OneDevice = (
    device.SelectorFalse
    | device.DeviceInUse
    | device.UnpublishedOverlap
    | device.DeviceTainted
    | device.InsufficientCounter
    | device.CompatibilityGroupConflict
    | device.InsufficientCapacity
    | device.CapacityPolicyViolated
    | device.CapacityNotFound
    | device.DeviceFeatureGateDisabled
)


def _of_device(reason: _OneDevice, reader: str | None) -> str:
    name = f"device {reason.device}{_at(reason)}"
    match reason:
        case device.SelectorFalse():
            read = ", ".join(f"{attribute} is {value}" for attribute, value in reason.attributes)
            whose = f"class {reason.class_name}" if reason.class_name else "the request"
            reported = f" ({read})" if read else ""
            return f"{name} does not match selector {reason.index} of {whose}: {reason.expression}{reported}"
        case device.DeviceInUse():
            return f"{name} is in use by {_holders(reason.holders, reader)}"
        case device.UnpublishedOverlap():
            what = f"counter set {', '.join(reason.counter_sets)}" if reason.counter_sets else "the same hardware"
            return (
                f"{name} may use {what} together with {reason.unpublished.device}, which "
                f"{_holders(reason.holders, reader)} holds and no ResourceSlice shows any longer"
            )
        case device.DeviceTainted():
            value = f"={reason.value}" if reason.value else ""
            rule = f" by rule {reason.rule}" if reason.rule else ""
            return f"{name} has taint {reason.key}{value}:{reason.effect}{rule}, not tolerated"
        case device.InsufficientCounter():
            return (
                f"{name} needs {reason.requested} of counter {reason.counter_set}/{reason.counter}, {reason.available} "
                f"is available{' (the pool is overdrawn)' if reason.frozen else ''}"
            )
        case device.CompatibilityGroupConflict():
            return f"{name} is not compatible with the present users of counter set {reason.counter_set}"
        case device.InsufficientCapacity():
            what = _capacity(reason.capacity, reason.device)
            return f"{name} has {reason.available} of {reason.total} {what} left, {_asked(reason)} requested"
        case device.CapacityPolicyViolated():
            what = _capacity(reason.capacity, reason.device)
            return f"{name} has {reason.total} of {what} and cannot give {_asked(reason)}: {reason.rule}"
        case device.CapacityNotFound():
            return f"{name} has no capacity {reason.capacity}"
        case device.DeviceFeatureGateDisabled():
            return f"{name} needs feature gate {reason.feature}, which is off"
        case _:
            assert_never(reason)


def _asked(reason: device.InsufficientCapacity | device.CapacityPolicyViolated) -> str:
    return (
        str(reason.requested)
        if reason.requested == reason.consumed
        else f"{reason.requested} (rounded to {reason.consumed})"
    )


def _capacity(name: str, owner: DeviceId) -> str:
    return name if "/" in name else f"{owner.driver}/{name}"


def _holders(holders: tuple[Holder, ...], reader: str | None) -> str:
    seen = [holder for holder in holders if reader is None or holder.namespace == reader]
    hidden = len(holders) - len(seen)
    names = [f"claim {h.claim}" if reader is not None else f"claim {h.namespace}/{h.claim}" for h in seen]
    if hidden:
        names.append(f"{plural(hidden, 'claim')} outside this namespace")
    return ", ".join(dict.fromkeys(names))
