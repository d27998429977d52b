"""Which claims must exist, for whom are they reserved, when are they given back?

Claims from templates (named, annotated, owned, reused as upstream does), reservations of pods that came past the
scheduler, and the way back: reservation removed, devices given back, finalizer off, claim deleted. Never chooses
devices. Source: the API's ResourceClaim life cycle, KEP-4381, and KEP-5729 for PodGroups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from dragoman.api import codec
from dragoman.api.core import Pod, PodGroup, PodResourceClaim
from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref
from dragoman.api.resource import FINALIZER, POD_CLAIM_ANNOTATION, ConsumerReference, ResourceClaim
from dragoman.effects import Create, Delete, Effect, Emit, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, owned_by, ref_of
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, keys_of
from dragoman.snapshot.usage import claim_names, is_finished

MANAGER = "ResourceClaimController"
COMPONENT = "resource_claim"
NAME_MAX = 57
"""Of a generateName: 63 for a label value, less 5 random characters, less the hyphen."""
RESERVED_MAX = 256
KINDS = frozenset({"Pod", "ResourceClaim", "ResourceClaimTemplate", "PodGroup"})
PODS = ("", "pods")
GROUPS = ("scheduling.k8s.io", "podgroups")

ClaimKey: TypeAlias = tuple[Literal["pod", "group", "claim"], str, str]


# ---- what a change means for which key


def keys(change: Change, before: Snapshot, after: Snapshot) -> list[ClaimKey]:
    """The keys to look at after a change."""
    kind, namespace, name = _named(change)
    if kind == "ResourceClaim":
        found: list[ClaimKey] = [("claim", namespace, name)]
        found += [("pod", *key) for key in keys_of(after.pods_by_claim, (namespace, name))]
        claim = change.object if isinstance(change, Put) else before.claims.get((namespace, name))
        owner = claim.metadata.controller if claim is not None else None
        if owner is not None:
            found.append(("pod" if owner.kind == "Pod" else "group", namespace, owner.name))
        return found
    if kind == "Pod":
        old, new = before.pods.get((namespace, name)), after.pods.get((namespace, name))
        known = [pod for pod in (old, new) if pod is not None and _uses_claims(pod)]
        if not known:
            return []
        found = []
        if new is None or needs_no_claims(new):
            # Also what it owns without naming it: a creation whose answer was lost may have been made twice.
            owned = (key[1] for pod in known for key in keys_of(after.claims_by_owner, pod.metadata.uid))
            names = dict.fromkeys([*(n for pod in known for n in claim_names(pod)), *owned])
            found = [("claim", namespace, claim) for claim in names]
        return [*found, ("pod", namespace, name)]
    if kind == "PodGroup":
        pods = keys_of(after.pods_by_group, (namespace, name))
        group = after.pod_groups.get((namespace, name)) or before.pod_groups.get((namespace, name))
        statuses = group.status.resource_claim_statuses if group is not None else ()
        found = [("claim", namespace, s.resource_claim_name) for s in statuses if s.resource_claim_name]
        entries = group.spec.resource_claims if group is not None else ()
        found += [("claim", namespace, e.resource_claim_name) for e in entries if e.resource_claim_name]
        return [("group", namespace, name), *found, *(("pod", *key) for key in pods)]
    if kind == "ResourceClaimTemplate" and isinstance(change, Put):
        # A template comes rarely; pods that wait for it are few among those of its namespace.
        waiting: list[ClaimKey] = [
            ("pod", *key) for key, pod in after.pods.items() if key[0] == namespace and _uses(pod, name)
        ]
        waiting += [
            ("group", *key) for key, group in after.pod_groups.items() if key[0] == namespace and _uses(group, name)
        ]
        return sorted(waiting)
    return []


def _named(change: Change) -> tuple[str, str, str]:
    if isinstance(change, Gone):
        return change.kind, change.namespace, change.name
    return change.kind, change.object.metadata.namespace, change.object.metadata.name


def _uses_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _uses(consumer: Pod | PodGroup, template: str) -> bool:
    return any(entry.resource_claim_template_name == template for entry in consumer.spec.resource_claims)


# ---- the door


def sync(world: ReconcileInput, key: ClaimKey) -> ReconcileResult:
    """What to do about a pod's, a group's or a claim's key."""
    what, namespace, name = key
    if what == "pod":
        pod = world.snapshot.pods.get((namespace, name))
        return NOTHING if pod is None or pod.metadata.deletion_timestamp else _pod(world, pod)
    if what == "group":
        group = world.snapshot.pod_groups.get((namespace, name))
        return NOTHING if group is None or group.metadata.deletion_timestamp else _group(world, group)
    claim = world.snapshot.claims.get((namespace, name))
    return NOTHING if claim is None else _claim(world, claim)


def needs_no_claims(pod: Pod) -> bool:
    """The pod is finished, or was deleted before it got a node.

    The API sets the grace period with the deletion time. Without it, only our own request is known (an informer
    shows that at once), and the pod may have got a node before the request came.
    """
    meta = pod.metadata
    deleted = meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds is not None
    return is_finished(pod) or (deleted and not pod.spec.node_name)


# ---- claims from templates


def _pod(world: ReconcileInput, pod: Pod) -> ReconcileResult:
    if is_finished(pod):
        return NOTHING
    return _make(world, "Pod", pod, _reservations(world, pod))


def _group(world: ReconcileInput, group: PodGroup) -> ReconcileResult:
    return _make(world, "PodGroup", group, ())


def _make(world: ReconcileInput, kind: str, consumer: Pod | PodGroup, more: tuple[Effect, ...]) -> ReconcileResult:
    """Make what is missing and record what is there. Recording waits for the next look after a creation."""
    snapshot, meta = world.snapshot, consumer.metadata
    recorded = {s.name: s.resource_claim_name for s in consumer.status.resource_claim_statuses}
    names: dict[str, str] = {}
    created: list[Effect] = []
    for entry in consumer.spec.resource_claims:
        if entry.resource_claim_template_name is None:
            continue
        if entry.name in recorded and recorded[entry.name] is None:
            continue  # deliberately none
        found = _found(world, consumer, entry, recorded.get(entry.name))
        if found is not None:
            names[entry.name] = found
            continue
        if isinstance(consumer, Pod) and _of_group(snapshot, consumer, entry):
            continue  # the group's key makes it
        made = _claim_for(snapshot, kind, consumer, entry)
        if isinstance(made, str):
            message = f"{_prefix(kind)} {entry.name}: {made}"
            event = Emit(ref_of(kind, meta), "Warning", "FailedResourceClaimCreation", message, COMPONENT)
            return ReconcileResult((*created, event), problem=message)
        created.append(made)
    if created:
        return ReconcileResult(tuple(created))
    effects: tuple[Effect, ...] = more
    if any(recorded.get(entry) != name for entry, name in names.items()):
        # Server-side apply drops list entries that a manager stops naming: always name all.
        statuses = [{"name": entry, "resourceClaimName": name} for entry, name in sorted(names.items())]
        effects = (
            Patch(
                ref_of(kind, meta),
                {"status": {"resourceClaimStatuses": statuses}},
                type="apply",
                subresource="status",
                manager=MANAGER,
                force=True,
            ),
            *effects,
        )
    return ReconcileResult(effects)


def _prefix(kind: str) -> str:
    return "PodResourceClaim" if kind == "Pod" else "PodGroupResourceClaim"


def _found(
    world: ReconcileInput, consumer: Pod | PodGroup, entry: PodResourceClaim, recorded: str | None
) -> str | None:
    """The claim that serves an entry: the one recorded, or one made before a crash, or the group's."""
    snapshot, meta = world.snapshot, consumer.metadata
    if recorded is not None:
        claim = snapshot.claims.get((meta.namespace, recorded))
        if claim is not None and is_owned(claim, consumer):
            return recorded
    owner = meta.uid
    if isinstance(consumer, Pod) and (group := _of_group(snapshot, consumer, entry)) is not None:
        owner = group.metadata.uid
    candidates = [snapshot.claims[key] for key in keys_of(snapshot.claims_by_owner, owner)]
    for claim in candidates:
        controller = claim.metadata.controller
        if (
            controller is not None
            and controller.uid == owner
            and claim.metadata.annotations.get(POD_CLAIM_ANNOTATION) == entry.name
            and not claim.metadata.deletion_timestamp
        ):
            return claim.metadata.name
    return None


def _of_group(snapshot: Snapshot, pod: Pod, entry: PodResourceClaim) -> PodGroup | None:
    """The pod's group, if it has an equal entry: then the claim is the group's (KEP-5729)."""
    named = pod.spec.scheduling_group
    if named is None or not named.pod_group_name:
        return None
    group = snapshot.pod_groups.get((pod.metadata.namespace, named.pod_group_name))
    return group if group is not None and entry in group.spec.resource_claims else None


def is_owned(claim: ResourceClaim, consumer: Pod | PodGroup) -> bool:
    """Whether a claim made from a template is the consumer's: its own or its group's."""
    owner = claim.metadata.controller
    if owner is None:
        return False
    if owner.uid == consumer.metadata.uid:
        return True
    if not isinstance(consumer, Pod) or consumer.spec.scheduling_group is None:
        return False
    group = owner.api_version.partition("/")[0]
    named = consumer.spec.scheduling_group.pod_group_name
    return owner.kind == "PodGroup" and group == "scheduling.k8s.io" and owner.name == named


def _claim_for(snapshot: Snapshot, kind: str, consumer: Pod | PodGroup, entry: PodResourceClaim) -> Create | str:
    meta = consumer.metadata
    name = entry.resource_claim_template_name or ""
    template = snapshot.templates.get((meta.namespace, name))
    if template is None:
        return f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found'
    template_spec = template.spec
    claim = kind_of("ResourceClaim")
    metadata: dict[str, Any] = {
        "generateName": generate_name(meta.name, entry.name),
        "namespace": meta.namespace,
        "annotations": {**template_spec.metadata.annotations, POD_CLAIM_ANNOTATION: entry.name},
        "ownerReferences": [owned_by(kind, meta, block=False)],
    }
    if template_spec.metadata.labels:
        metadata["labels"] = dict(template_spec.metadata.labels)
    body = {
        "apiVersion": claim.api_version,
        "kind": claim.kind,
        "metadata": metadata,
        "spec": codec.to_json(template_spec.spec),
    }
    return Create(body)


def write_events(
    world: ReconcileInput, key: ClaimKey, effect: Effect, written: dict[str, Any] | None, error: str
) -> tuple[Effect, ...]:
    """What the pod or group hears of a claim that the server refuses, as upstream words it."""
    what, namespace, name = key
    if not error or not isinstance(effect, Create) or what == "claim":
        return ()
    consumer: Pod | PodGroup | None = world.snapshot.pods.get((namespace, name))
    kind = "Pod"
    if what == "group":
        consumer, kind = world.snapshot.pod_groups.get((namespace, name)), "PodGroup"
    if consumer is None:
        return ()
    entry = effect.body["metadata"]["annotations"][POD_CLAIM_ANNOTATION]
    message = f"{_prefix(kind)} {entry}: failed to create ResourceClaim: {error}"
    return (Emit(ref_of(kind, consumer.metadata), "Warning", "FailedResourceClaimCreation", message, COMPONENT),)


def generate_name(consumer: str, entry: str) -> str:
    """`<consumer>-<entry>-`; longer than 57 characters both parts are cut in proportion, the last hyphen too."""
    whole = f"{consumer}-{entry}-"
    size = len(whole)
    if size <= NAME_MAX:
        return whole
    return f"{consumer[: len(consumer) * NAME_MAX // size]}-{entry[: len(entry) * NAME_MAX // size]}"


# ---- pods that came past the scheduler


def _reservations(world: ReconcileInput, pod: Pod) -> tuple[Effect, ...]:
    if not pod.spec.node_name:
        return ()
    effects: list[Effect] = []
    own = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    for name in claim_names(pod):
        claim = world.snapshot.claims.get((pod.metadata.namespace, name))
        if claim is None or claim.status.allocation is None or claim.metadata.deletion_timestamp:
            continue
        reserved = claim.status.reserved_for
        if any(r.uid == own.uid for r in reserved) or len(reserved) >= RESERVED_MAX or _is_group_reserved(claim, pod):
            continue
        if _is_generated(pod, name) and not is_owned(claim, pod):
            continue
        effects.append(_status(claim, reserved_for=(*reserved, own)))
    return tuple(effects)


def _is_generated(pod: Pod, name: str) -> bool:
    return all(entry.resource_claim_name != name for entry in pod.spec.resource_claims)


def _is_group_reserved(claim: ResourceClaim, pod: Pod) -> bool:
    named = pod.spec.scheduling_group
    return named is not None and any(
        (r.api_group, r.resource) == GROUPS and r.name == named.pod_group_name for r in claim.status.reserved_for
    )


# ---- the way back


def _claim(world: ReconcileInput, claim: ResourceClaim) -> ReconcileResult:
    kept: list[ConsumerReference] = []
    asks: list[Ref] = []
    for reserved in claim.status.reserved_for:
        verdict = _keeps(world, claim.metadata.namespace, reserved)
        if isinstance(verdict, Ref):
            asks.append(verdict)
        elif verdict:
            kept.append(reserved)
    if asks:
        return ReconcileResult(asks=tuple(asks))
    meta = claim.metadata
    protected = FINALIZER in meta.finalizers
    allocated = claim.status.allocation is not None
    effects: list[Effect] = []
    if len(kept) < len(claim.status.reserved_for):
        give_back = not kept and protected
        effects.append(_status(claim, reserved_for=kept, give_back=give_back and allocated))
        if protected and (give_back or not allocated):
            effects.append(_unprotected(claim))
    elif meta.deletion_timestamp and protected and not kept:
        if allocated:
            effects.append(_status(claim, reserved_for=(), give_back=True))
        effects.append(_unprotected(claim))
    if not kept and not meta.deletion_timestamp and _outlived_its_pod(world, claim):
        effects.append(Delete(ref_of("ResourceClaim", meta)))
    return ReconcileResult(tuple(effects))


def _keeps(world: ReconcileInput, namespace: str, reserved: ConsumerReference) -> bool | Ref:
    """Whether a reservation stays; a Ref when only the API can tell."""
    what = (reserved.api_group, reserved.resource)
    if what not in (PODS, GROUPS):
        return True  # whoever put it there takes it away
    key = (namespace, reserved.name)
    pod = world.snapshot.pods.get(key) if what == PODS else None
    group = world.snapshot.pod_groups.get(key) if what == GROUPS else None
    if pod is not None:
        return pod.metadata.uid == reserved.uid and not needs_no_claims(pod)
    if group is not None:
        return group.metadata.uid == reserved.uid
    if reserved.uid in world.gone:
        return False
    ref = Ref("Pod" if what == PODS else "PodGroup", namespace, reserved.name, reserved.uid)
    if ref not in world.answers:
        return ref
    return world.answers[ref] == reserved.uid


def _outlived_its_pod(world: ReconcileInput, claim: ResourceClaim) -> bool:
    owner = claim.metadata.controller
    if owner is None or (owner.api_version, owner.kind) != ("v1", "Pod"):
        return False
    pod = world.snapshot.pods.get((claim.metadata.namespace, owner.name))
    return pod is not None and (pod.metadata.uid != owner.uid or needs_no_claims(pod))


def _status(claim: ResourceClaim, *, reserved_for: Iterable[ConsumerReference], give_back: bool = False) -> Patch:
    status: dict[str, Any] = {"reservedFor": [codec.to_json(entry) for entry in reserved_for] or None}
    if give_back:
        status |= {"allocation": None, "devices": None}
    return Patch(
        ref_of("ResourceClaim", claim.metadata),
        {"status": status},
        subresource="status",
        resource_version=claim.metadata.resource_version,
    )


def _unprotected(claim: ResourceClaim) -> Patch:
    rest = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
    return Patch(
        ref_of("ResourceClaim", claim.metadata),
        {"metadata": {"finalizers": rest or None}},
        resource_version=claim.metadata.resource_version,
    )
