"""Which pods must leave because a device of theirs is tainted NoExecute, and when? (KEP-5055)

Taints are those that devices publish and those of DeviceTaintRules, which count even when no slice has the device
any more. Never chooses devices; after the pods are gone the claims' own controller gives the devices back.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from dragoman.api.core import Pod
from dragoman.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from dragoman.effects import Effect, Emit, Patch
from dragoman.reconcile.claims import GROUPS, PODS, is_owned
from dragoman.reconcile.nodes import evicted
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, ref_of
from dragoman.reconcile.workloads.pods import seconds_of, time_text
from dragoman.snapshot.change import Change, Gone, Snapshot, keys_of
from dragoman.snapshot.taints import applies, tolerates
from dragoman.snapshot.usage import DeviceId, claim_names, is_finished

NAME = "device-taint-eviction-controller"
NO_EXECUTE = "NoExecute"
STATUS_S = 10.0
"""A rule's status is written at most so often."""
KINDS = frozenset({"ResourceSlice", "DeviceTaintRule", "ResourceClaim", "Pod"})

EvictionKey: TypeAlias = tuple[Literal["pod", "spared", "rule"], str, str]
"""What to look at, namespace and name. "spared" is a pod that was to leave and may stay after all."""
EVENT = "DeviceTaintManagerEviction"


class EvictionReason(NamedTuple):
    """Why a pod must leave: when (epoch seconds), uid of the rule or "", and the claim's device that is tainted."""

    when: float
    rule: str
    claim: str
    device: DeviceId


# ---- which keys


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[EvictionKey]:
    """Pods and rules to look at after a change."""
    match change.kind:
        case "DeviceTaintRule":
            found = _after_rule(change, before.snapshot, after.snapshot)
        case "ResourceSlice":
            found = _after_slice(change, before.snapshot, after.snapshot)
        case "ResourceClaim":
            found = _after_claim(change, before, after)
        case "Pod":
            return _after_pod(change, before, after)
        case _:
            return []
    return list(dict.fromkeys(key for one in found for key in _or_spared(one, before, after)))


def is_idle(snapshot: Snapshot) -> bool:
    """Whether there is neither a rule nor a device that a driver taints NoExecute."""
    return not snapshot.taint_rules and not any(
        taint.effect == NO_EXECUTE
        for resource_slice in snapshot.slices.values()
        for device in resource_slice.spec.devices
        for taint in device.taints
    )


def _or_spared(key: EvictionKey, before: ReconcileInput, after: ReconcileInput) -> list[EvictionKey]:
    """A pod's key, or if it was to leave and now may stay: that, and the rules that wait for it."""
    old, new = before.snapshot.pods.get(key[1:]), after.snapshot.pods.get(key[1:])
    if key[0] != "pod" or old is None or new is None or reasons(after, new):
        return [key]
    why = reasons(before, old)
    if not why:
        return []
    return [("spared", *key[1:]), *(("rule", "", rule) for rule in _rule_names(after.snapshot, why))]


def _after_claim(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[EvictionKey]:
    name = _named(change)
    old, new = before.snapshot.claims.get(name), after.snapshot.claims.get(name)
    if not any(_reasons(world, claim) for world, claim in ((before, old), (after, new)) if claim is not None):
        return []
    return [("pod", *key) for key in keys_of(after.snapshot.pods_by_claim, name)]


def _after_pod(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[EvictionKey]:
    name = _named(change)
    pod = after.snapshot.pods.get(name) or before.snapshot.pods.get(name)
    if pod is None or not claim_names(pod) or not pod.spec.node_name:
        return []
    why = reasons(after, pod)
    if not why:
        return []
    return [("pod", *name), *(("rule", "", rule) for rule in _rule_names(after.snapshot, why))]


def _named(change: Change) -> tuple[str, str]:
    if isinstance(change, Gone):
        return change.namespace, change.name
    return change.object.metadata.namespace, change.object.metadata.name


def _after_rule(change: Change, before: Snapshot, after: Snapshot) -> list[EvictionKey]:
    name = _named(change)[1]
    old, new = before.taint_rules.get(name), after.taint_rules.get(name)
    found: list[EvictionKey] = [("rule", "", name)] if new is not None else []
    known = [rule for rule in (old, new) if rule is not None and rule.spec.taint.effect == NO_EXECUTE]
    touched = [
        claim
        for _, claim in sorted(after.claims.items())
        if any(_hits(rule, result) for rule in known for result in _results(claim))
    ]
    return [*found, *_pods_of(after, touched)]


def _after_slice(change: Change, before: Snapshot, after: Snapshot) -> list[EvictionKey]:
    name = _named(change)[1]
    resource_slices = [
        resource_slice
        for resource_slice in (before.slices.get(name), after.slices.get(name))
        if resource_slice is not None
    ]
    pools = dict.fromkeys(
        (resource_slice.spec.driver, resource_slice.spec.pool.name) for resource_slice in resource_slices
    )
    changed = [
        (*pool, device) for pool in pools for device in _differing(_published(before, *pool), _published(after, *pool))
    ]
    if not changed:
        return []
    touched = [
        claim
        for _, claim in sorted(after.claims.items())
        if any((r.driver, r.pool, r.device) in changed for r in _results(claim))
    ]
    return _pods_of(after, touched)


def _differing(old: dict[str, tuple[DeviceTaint, ...]], new: dict[str, tuple[DeviceTaint, ...]]) -> list[str]:
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _pods_of(snapshot: Snapshot, claims: list[ResourceClaim]) -> list[EvictionKey]:
    return list(dict.fromkeys(("pod", *key) for claim in claims for key in snapshot.consumers(claim)))


# ---- taints of devices


def _published(snapshot: Snapshot, driver: str, pool: str) -> dict[str, tuple[DeviceTaint, ...]]:
    """NoExecute taints by device, as the highest generation of a pool publishes them."""
    resource_slices: list[ResourceSlice] = [
        snapshot.slices[n] for n in keys_of(snapshot.slices_by_pool, (driver, pool))
    ]
    newest = max((resource_slice.spec.pool.generation for resource_slice in resource_slices), default=0)
    found: dict[str, tuple[DeviceTaint, ...]] = {}
    for resource_slice in resource_slices:
        if resource_slice.spec.pool.generation == newest:
            for device in resource_slice.spec.devices:
                if taints := tuple(t for t in device.taints if t.effect == NO_EXECUTE):
                    found[device.name] = taints
    return found


def _hits(rule: DeviceTaintRule, result: DeviceRequestAllocationResult) -> bool:
    return applies(rule, driver=result.driver, pool=result.pool, device=result.device)


def _results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    return allocation.devices.results if allocation is not None else ()


def delay_s(tolerations: tuple[DeviceToleration, ...], taint: DeviceTaint) -> float | None:
    """How long a result's tolerations hold a taint off; None for ever.

    Only tolerations whose effect says NoExecute protect: an empty effect is enough for scheduling, not here.
    """
    covering = [t for t in tolerations if t.effect == NO_EXECUTE and tolerates(t, taint)]
    limits = [float(max(0, t.toleration_seconds)) for t in covering if t.toleration_seconds is not None]
    if len(limits) < len(covering):
        return None
    return min(limits, default=0.0)


def _reasons(world: ReconcileInput, claim: ResourceClaim) -> list[EvictionReason]:
    """When and why a claim's users must leave; [] if they may stay."""
    found: list[EvictionReason] = []
    snapshot = world.snapshot
    rules = [rule for _, rule in sorted(snapshot.taint_rules.items()) if rule.spec.taint.effect == NO_EXECUTE]
    for result in _results(claim):
        published = _published(snapshot, result.driver, result.pool).get(result.device, ())
        taints = [("", taint) for taint in published]
        taints += [(rule.metadata.uid, rule.spec.taint) for rule in rules if _hits(rule, result)]
        for uid, taint in taints:
            delay = delay_s(result.tolerations, taint)
            if delay is not None:
                since = seconds_of(taint.time_added) or world.now
                device = DeviceId(result.driver, result.pool, result.device)
                found.append(EvictionReason(since + delay, uid, claim.metadata.name, device))
    return found


def reasons(world: ReconcileInput, pod: Pod) -> list[EvictionReason]:
    """The same for a scheduled pod, over the claims that are reserved for it.

    Claims for extended resources count, too; upstream leaves their pods on tainted devices.
    """
    if not pod.spec.node_name or is_finished(pod):
        return []
    named = {entry.resource_claim_name for entry in pod.spec.resource_claims}
    found: list[EvictionReason] = []
    for name in claim_names(pod):
        claim = world.snapshot.claims.get((pod.metadata.namespace, name))
        if claim is None or (name not in named and not is_owned(claim, pod)):
            continue
        if _is_reserved(claim, pod):
            found += _reasons(world, claim)
    return found


def _is_reserved(claim: ResourceClaim, pod: Pod) -> bool:
    group = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else None
    for reserved in claim.status.reserved_for:
        what = (reserved.api_group, reserved.resource)
        if what == PODS and reserved.uid == pod.metadata.uid:
            return True
        if what == GROUPS and group and reserved.name == group:
            return True
    return False


def _rule_names(snapshot: Snapshot, why: list[EvictionReason]) -> list[str]:
    uids = {reason.rule for reason in why if reason.rule}
    return sorted(name for name, rule in snapshot.taint_rules.items() if rule.metadata.uid in uids)


# ---- the door


def sync(world: ReconcileInput, key: EvictionKey) -> ReconcileResult:
    """One look at a pod or a rule."""
    what, namespace, name = key
    if what == "rule":
        rule = world.snapshot.taint_rules.get(name)
        return NOTHING if rule is None else _rule(world, rule)
    pod = world.snapshot.pods.get((namespace, name))
    if pod is None or pod.metadata.deletion_timestamp or is_finished(pod):
        return NOTHING
    why = reasons(world, pod)
    if what == "spared":
        event = Emit(ref_of("Pod", pod.metadata), "Normal", EVENT, "Cancelling deletion", NAME)
        return NOTHING if why else ReconcileResult((event,))
    if not why:
        return NOTHING
    due = min(reason.when for reason in why)
    if due > world.now:
        return ReconcileResult(again_s=due - world.now)
    uids = sorted({reason.rule for reason in why if reason.rule})
    if any(_is_unannounced(rule) for rule in world.snapshot.taint_rules.values() if rule.metadata.uid in uids):
        return ReconcileResult(again_s=1.0)  # the rule says first what it will do; that change comes back here
    effects = evicted(
        pod, world.now, "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint",
        EVENT, NAME,
    )  # fmt: skip
    return ReconcileResult(tuple(effects), tally=tuple(uids))


# ---- what a rule says about itself


def _is_unannounced(rule: DeviceTaintRule) -> bool:
    return all(c.observed_generation != rule.metadata.generation for c in rule.status.conditions)


def _rule(world: ReconcileInput, rule: DeviceTaintRule) -> ReconcileResult:
    known = next((c for c in rule.status.conditions if c.type == "EvictionInProgress"), None)
    generation = rule.metadata.generation
    is_current = known is not None and known.observed_generation == generation
    effect = rule.spec.taint.effect
    if effect != NO_EXECUTE:
        if is_current:
            return NOTHING  # simulated once a generation
        reason, message = ("NoEffect", _simulated(world, rule)) if effect == "None" else _OTHER
        return ReconcileResult((_status(world, rule, "False", reason, message),))
    status, reason, message = _progress(world, rule)
    if known is not None and is_current:
        if (known.status, known.reason, known.message) == (status, reason, message):
            return NOTHING
        left_s = seconds_of(known.last_transition_time) + STATUS_S - world.now
        if left_s > 0:
            return ReconcileResult(again_s=left_s)
    return ReconcileResult((_status(world, rule, status, reason, message),))


_OTHER = ("OtherEffect", "Eviction only happens for the NoExecute effect.")


def _progress(world: ReconcileInput, rule: DeviceTaintRule) -> tuple[str, str, str]:
    pods, namespaces = _count(_leaving(world, rule.metadata.uid))
    evictions = world.tally.get(rule.metadata.uid, 0)
    suffix = ""
    if evictions:
        suffix = f"{evictions} pod{'' if evictions == 1 else 's'} evicted since starting the controller."
    if pods:
        text = f"{_pods_text(pods, 'needs', 'need')} to be evicted in {_namespaces_text(namespaces)}."
        return "True", "PodsPendingEviction", f"{text} {suffix}".rstrip()
    return "False", ("Completed" if evictions else "NotStarted"), suffix


def _leaving(world: ReconcileInput, uid: str) -> list[tuple[str, str]]:
    """Pods not deleted yet that a rule drives out, now or later."""
    return [
        key
        for key, pod in world.snapshot.pods.items()
        if claim_names(pod)
        and not pod.metadata.deletion_timestamp
        and any(reason.rule == uid for reason in reasons(world, pod))
    ]


def _simulated(world: ReconcileInput, rule: DeviceTaintRule) -> str:
    snapshot = world.snapshot
    newest: dict[tuple[str, str], int] = {}
    for resource_slice in snapshot.slices.values():
        pool = (resource_slice.spec.driver, resource_slice.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), resource_slice.spec.pool.generation)
    published = sum(
        1
        for resource_slice in snapshot.slices.values()
        if resource_slice.spec.pool.generation == newest[resource_slice.spec.driver, resource_slice.spec.pool.name]
        for device in resource_slice.spec.devices
        if applies(rule, driver=resource_slice.spec.driver, pool=resource_slice.spec.pool.name, device=device.name)
    )
    hit = [claim for claim in snapshot.claims.values() if any(_hits(rule, r) for r in _results(claim))]
    allocated = {(r.driver, r.pool, r.device) for claim in hit for r in _results(claim) if _hits(rule, r)}
    leaving = {
        key for claim in hit for key in snapshot.consumers(claim) if _would_leave(snapshot.pods[key], claim, rule)
    }
    pods, namespaces = _count(sorted(leaving))
    would = f"{pods} pod{'' if pods == 1 else 's'} would be evicted in {_namespaces_text(namespaces)}"
    return (
        f"{_devices_text(published, 'published')} {_devices_text(len(allocated), 'allocated')} "
        f"{would} if the effect was NoExecute. "
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )


def _would_leave(pod: Pod, claim: ResourceClaim, rule: DeviceTaintRule) -> bool:
    if not pod.spec.node_name or is_finished(pod) or not _is_reserved(claim, pod):
        return False
    return any(_hits(rule, r) and delay_s(r.tolerations, rule.spec.taint) is not None for r in _results(claim))


def _count(pods: list[tuple[str, str]]) -> tuple[int, int]:
    return len(pods), len({namespace for namespace, _ in pods})


def _pods_text(count: int, one: str, many: str) -> str:
    return f"1 pod {one}" if count == 1 else f"{count} pods {many}"


def _namespaces_text(count: int) -> str:
    return "1 namespace" if count == 1 else f"{count} different namespaces"


def _devices_text(count: int, what: str) -> str:
    return f"1 {what} device selected." if count == 1 else f"{count} {what} devices selected."


def _status(world: ReconcileInput, rule: DeviceTaintRule, status: str, reason: str, message: str) -> Effect:
    condition: dict[str, Any] = {
        "type": "EvictionInProgress",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": rule.metadata.generation,
        "lastTransitionTime": time_text(world.now),
    }
    return Patch(
        ref_of("DeviceTaintRule", rule.metadata),
        {"status": {"conditions": [condition]}},
        type="apply",
        subresource="status",
        manager=NAME,
        force=True,
    )
