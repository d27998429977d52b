"""What would happen if these pods were scheduled now? For tools over files and snapshots; nothing is kept.

    world = settled(expanded(snapshot))
    for verdict in simulate(world, units(world, order), now, context): ...

`expanded` makes the pods of workloads, `settled` what the claim controller would have done by then, `units` the pods
to place in the order given, gangs together. The order of other objects is irrelevant. Never writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from dragoman.allocate.allocator import TaskHistory
from dragoman.api import codec
from dragoman.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodResourceClaimStatus,
    PodSpec,
    Workload,
)
from dragoman.api.meta import NamespacedName, ObjectMeta, OwnerReference
from dragoman.api.resource import (
    POD_CLAIM_ANNOTATION,
    AllocationResult,
    ResourceClaim,
)
from dragoman.schedule.claims import group_name, owned_by, same
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide, is_waiting, refusing_nodes
from dragoman.schedule.decision import Decision, NodesRefused, Refused
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply_all, keys_of
from dragoman.snapshot.usage import is_finished

GANG_LABELS = ("scheduling.x-k8s.io/pod-group", "gang")
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
NAME_MAX = 57
MAX_ROUNDS = 8
"""Decisions for one unit, which may give up idle claims one by one before it is placed."""

Named = tuple[str, str, str]
"""(kind, namespace, name) of a pod or workload."""


class ClaimVerdict(msgspec.Struct, frozen=True):
    """A claim of a pod. pod_claim None: the special one. new: allocated by this very decision."""

    pod_claim: str | None
    name: str
    template: str | None
    new: bool
    allocation: AllocationResult | None


class PodPrediction(msgspec.Struct, frozen=True):
    """What would become of a pod. nodes: those that cannot take it, also when it has a place."""

    pod: NamespacedName
    node: str | None
    claims: tuple[ClaimVerdict, ...]
    nodes: tuple[NodesRefused, ...]
    refused: Refused | None


class DecidedUnit(msgspec.Struct, frozen=True, eq=False):
    """A unit that was decided: on which snapshot, what it left, what became of each pod."""

    unit: SchedulingUnit
    before: Snapshot
    after: Snapshot
    verdicts: tuple[PodPrediction, ...]


def simulate(
    snapshot: Snapshot, wanted: Iterable[SchedulingUnit], now: datetime, context: SchedulingContext
) -> Iterator[PodPrediction]:
    """Decides the units one after the other, each on what the ones before left. The snapshot is settled."""
    for step in steps(snapshot, wanted, now, context):
        yield from step.verdicts


def steps(
    snapshot: Snapshot, wanted: Iterable[SchedulingUnit], now: datetime, context: SchedulingContext
) -> Iterator[DecidedUnit]:
    """The same unit by unit, with the snapshots between."""
    context, recent = msgspec.structs.replace(context), TaskHistory()
    for unit in wanted:
        before = snapshot
        decision, snapshot = _decided(snapshot, unit, now, context)
        context.learn(decision.placements, recent)
        refused = {one.pod: one for one in decision.refused}
        verdicts = tuple(_verdict(before, snapshot, key, refused.get(key), context) for key in unit.pods)
        yield DecidedUnit(unit, before, snapshot, verdicts)


def _decided(
    snapshot: Snapshot, unit: SchedulingUnit, now: datetime, context: SchedulingContext
) -> tuple[Decision, Snapshot]:
    for _ in range(MAX_ROUNDS):
        decision = decide(snapshot, unit, now, context)
        after = apply_all(snapshot, decision.assumed)
        snapshot = after
        if not any(one.released for one in decision.refused):
            break
    return decision, snapshot


def _verdict(
    before: Snapshot, after: Snapshot, key: NamespacedName, refused: Refused | None, context: SchedulingContext
) -> PodPrediction:
    pod = after.pods[key]
    node = pod.spec.node_name or None
    if node is not None:
        nodes = refusing_nodes(before, before.pods[key], context)
    else:
        nodes = refused.nodes if refused is not None else ()
    return PodPrediction(key, node, tuple(_claims(before, after, pod)), nodes, refused if node is None else None)


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


# ---- pods in order


def units(snapshot: Snapshot, order: Iterable[Named]) -> list[SchedulingUnit]:
    """The waiting pods of these pods and workloads, in their order; a gang stands where its first pod does.

    A gang is the pods of one PodGroup with a gang policy, or pods with the same value of one of GANG_LABELS.
    """
    found: dict[tuple[str, str, str], list[NamespacedName]] = {}
    for kind, namespace, name in order:
        keys = [(namespace, name)] if kind == "Pod" else _pods_of(snapshot, kind, namespace, name)
        for key in keys:
            pod = snapshot.pods.get(key)
            if pod is not None and is_waiting(pod):
                group = _gang_of(snapshot, pod)
                members = found.setdefault(("PodGroup", namespace, group) if group else ("Pod", *key), [])
                if key not in members:
                    members.append(key)
    return [SchedulingUnit(key, tuple(members), _wanted(snapshot, key, members)) for key, members in found.items()]


def _gang_of(snapshot: Snapshot, pod: Pod) -> str:
    group = group_name(pod)
    if group:
        made = snapshot.pod_groups.get((pod.metadata.namespace, group))
        policy = made.spec.scheduling_policy if made is not None else None
        return group if made is None or (policy is not None and policy.gang is not None) else ""
    return next((pod.metadata.labels[label] for label in GANG_LABELS if pod.metadata.labels.get(label)), "")


def _wanted(snapshot: Snapshot, key: tuple[str, str, str], members: Sequence[NamespacedName]) -> int:
    kind, namespace, name = key
    made = snapshot.pod_groups.get((namespace, name)) if kind == "PodGroup" else None
    policy = made.spec.scheduling_policy if made is not None else None
    if policy is None or policy.gang is None:
        return len(members)
    running = [
        member
        for member in keys_of(snapshot.pods_by_group, (namespace, name))
        if snapshot.pods[member].spec.node_name and not is_finished(snapshot.pods[member])
    ]
    return max(policy.gang.min_count - len(running), 1)


# ---- workloads to pods


def expanded(snapshot: Snapshot) -> Snapshot:
    """With the pods that workloads still lack, named NAME-0, NAME-1, ...; workloads owned by others make none."""
    changes: list[Change] = []
    for (kind, namespace, name), workload in sorted(snapshot.workloads.items()):
        if workload.metadata.controller is not None or workload.metadata.deletion_timestamp is not None:
            continue
        if kind == "DaemonSet":
            changes += _daemon_pods(snapshot, workload)
            continue
        have = _pods_of(snapshot, kind, namespace, name)
        missing = _replicas(kind, workload) - len([k for k in have if not is_finished(snapshot.pods[k])])
        index = 0
        while missing > 0:
            if (namespace, f"{name}-{index}") not in snapshot.pods:
                changes.append(Put("Pod", _pod(kind, workload, f"{name}-{index}")))
                missing -= 1
            index += 1
    return apply_all(snapshot, changes)


def _replicas(kind: str, workload: Workload) -> int:
    spec = workload.spec
    if kind == "Job":
        if spec.suspend:
            return 0
        parallel = 1 if spec.parallelism is None else spec.parallelism
        return parallel if spec.completions is None else min(parallel, spec.completions)
    if kind == "CronJob":
        return 0
    return 1 if spec.replicas is None else spec.replicas


def _pods_of(snapshot: Snapshot, kind: str, namespace: str, name: str) -> list[NamespacedName]:
    """Pods that a workload controls, a Deployment through its replica sets too."""
    names = {(kind, name)}
    if kind == "Deployment":
        for (other, space, replica_set), workload in snapshot.workloads.items():
            owner = workload.metadata.controller
            if (other, space) == ("ReplicaSet", namespace) and owner is not None and owner.name == name:
                names.add((other, replica_set))
    found = []
    for key, pod in snapshot.pods.items():
        owner = pod.metadata.controller
        if key[0] == namespace and owner is not None and (owner.kind, owner.name) in names:
            found.append(key)
    return sorted(found, key=lambda key: (len(key[1]), key[1]))


def _pod(kind: str, workload: Workload, name: str) -> Pod:
    template_spec, meta = workload.spec.template, workload.metadata
    owner = OwnerReference(kind=kind, name=meta.name, uid=meta.uid, controller=True)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels=template_spec.metadata.labels,
            annotations=template_spec.metadata.annotations,
            owner_references=(owner,),
        ),
        spec=codec.decode(PodSpec, template_spec.spec or {}),
    )


def _daemon_pods(snapshot: Snapshot, workload: Workload) -> Iterator[Change]:
    meta = workload.metadata
    pods = [snapshot.pods[key] for key in _pods_of(snapshot, "DaemonSet", meta.namespace, meta.name)]
    served = {pod.spec.node_name for pod in pods}
    for index, node in enumerate(sorted(snapshot.nodes)):
        if node in served:
            continue
        pod = _pod("DaemonSet", workload, f"{meta.name}-{index}")
        here = NodeSelectorRequirement("metadata.name", "In", (node,))
        only = NodeSelector((NodeSelectorTerm((), (here,)),))
        affinity = Affinity(node_affinity=NodeAffinity(required=only))
        yield Put("Pod", msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity)))


# ---- the claim controller, settled


def settled(snapshot: Snapshot) -> Snapshot:
    """With claims made from templates, and reservations of pods that are done or replaced taken back."""
    changes: list[Change] = []
    for key in sorted(snapshot.claims):
        changes += _given_back(snapshot, snapshot.claims[key])
    snapshot = apply_all(snapshot, changes)
    changes = []
    for key in sorted(snapshot.pods):
        pod = snapshot.pods[key]
        if not is_finished(pod) and pod.metadata.deletion_timestamp is None:
            changes += _made(snapshot, pod)
    return apply_all(snapshot, changes)


def _given_back(snapshot: Snapshot, claim: ResourceClaim) -> Iterator[Change]:
    meta, status = claim.metadata, claim.status
    kept = tuple(
        entry
        for entry in status.reserved_for
        if entry.api_group or entry.resource != "pods" or not _done(snapshot, meta.namespace, entry.name, entry.uid)
    )
    outlived = meta.controller is not None and meta.controller.kind == "Pod" and not kept
    if outlived and meta.controller is not None:
        owner = snapshot.pods.get((meta.namespace, meta.controller.name))
        if owner is not None and (is_finished(owner) or not same(meta.controller.uid, meta.controller.name, owner)):
            yield Gone("ResourceClaim", meta.namespace, meta.name)
            return
    if meta.deletion_timestamp is not None and not kept:
        yield Gone("ResourceClaim", meta.namespace, meta.name)
    elif len(kept) < len(status.reserved_for):
        allocation = status.allocation if kept else None
        status = msgspec.structs.replace(status, reserved_for=kept, allocation=allocation)
        yield Put("ResourceClaim", msgspec.structs.replace(claim, status=status))


def _done(snapshot: Snapshot, namespace: str, name: str, uid: str) -> bool:
    """Whether a consumer is finished, or another pod has its name now. A pod that is not in the files may exist."""
    pod = snapshot.pods.get((namespace, name))
    return pod is not None and (is_finished(pod) or not same(uid, name, pod))


def _made(snapshot: Snapshot, pod: Pod) -> Iterator[Change]:
    meta = pod.metadata
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    statuses: list[PodResourceClaimStatus] = []
    for entry in pod.spec.resource_claims:
        template = snapshot.templates.get((meta.namespace, entry.resource_claim_template_name or ""))
        if entry.resource_claim_template_name is None:
            continue
        name = recorded.get(entry.name, "")
        if name is None:
            statuses.append(PodResourceClaimStatus(entry.name, None))
            continue
        known = snapshot.claims.get((meta.namespace, name or ""))
        if known is not None and owned_by(known.metadata.controller, pod):
            statuses.append(PodResourceClaimStatus(entry.name, name))
            continue
        if template is None:
            continue
        made = f"{_prefix(meta.name, entry.name)}{_suffix(meta.namespace, meta.name, entry.name)}"
        template_spec = template.spec
        claim_meta = ObjectMeta(
            name=made,
            namespace=meta.namespace,
            labels=template_spec.metadata.labels,
            annotations={**template_spec.metadata.annotations, POD_CLAIM_ANNOTATION: entry.name},
            owner_references=(
                OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True),
            ),
        )
        statuses.append(PodResourceClaimStatus(entry.name, made))
        yield Put("ResourceClaim", ResourceClaim(metadata=claim_meta, spec=template_spec.spec))
    if statuses and tuple(statuses) != pod.status.resource_claim_statuses:
        status = msgspec.structs.replace(pod.status, resource_claim_statuses=tuple(statuses))
        yield Put("Pod", msgspec.structs.replace(pod, status=status))


def _prefix(pod: str, entry: str) -> str:
    whole = f"{pod}-{entry}-"
    if len(whole) <= NAME_MAX:
        return whole
    return f"{pod[: len(pod) * NAME_MAX // len(whole)]}-{entry[: len(entry) * NAME_MAX // len(whole)]}"


def _suffix(namespace: str, pod: str, entry: str) -> str:
    """5 characters that depend on nothing but the three names."""
    digest = hashlib.sha256("\0".join((namespace, pod, entry)).encode()).digest()
    return "".join(SUFFIX_LETTERS[byte % len(SUFFIX_LETTERS)] for byte in digest[:5])
