"""What does one object hold? Devices for an allocated claim, node resources for a pod.

Pure functions of one object; never looks at a snapshot. Sources: ResourceClaim.status.allocation
(KEP-4381, KEP-5075), the pod resource model with sidecars (KEP-753) and pod-level resources (KEP-2837).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dragoman.api.core import NodeAllocatableClaimStatus, Pod, ResourceRequirements
from dragoman.api.resource import ResourceClaim
from dragoman.values.quantity import Quantity

ONE = 1_000_000_000  # one unit in nano-units
FINISHED = frozenset({"Succeeded", "Failed"})
# kube-scheduler's DefaultMilliCPURequest and DefaultMemoryRequest.
ASSUMED = {"cpu": ONE // 10, "memory": 200 * 1024 * 1024 * ONE}
POD_LEVEL = ("cpu", "memory", "hugepages-")


class DeviceId(NamedTuple):
    """Names a device; str() is `driver/pool/device`."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Holder(msgspec.Struct, frozen=True):
    """One result of one allocated claim that holds a device.

    `share_id` None: exclusively. `consumed` is the result's consumedCapacity. `groups` maps counter sets to
    the compatibility groups recorded at allocation (KEP-5963). Admin-access results hold nothing.
    """

    namespace: str
    claim: str
    uid: str
    request: str
    share_id: str | None = None
    consumed: dict[str, Quantity] = {}
    groups: dict[str, tuple[str, ...]] = {}


def holds(claim: ResourceClaim) -> dict[DeviceId, tuple[Holder, ...]]:
    """The devices a claim holds: its allocation's results without admin access; {} while not allocated."""
    allocation = claim.status.allocation
    if allocation is None:
        return {}
    found: dict[DeviceId, tuple[Holder, ...]] = {}
    meta = claim.metadata
    for result in allocation.devices.results:
        if result.admin_access:
            continue
        device = DeviceId(result.driver, result.pool, result.device)
        holder = Holder(
            meta.namespace,
            meta.name,
            meta.uid,
            result.request,
            result.share_id,
            result.consumed_capacity or {},
            result.compatibility_groups or {},
        )
        found[device] = (*found.get(device, ()), holder)
    return found


def claim_names(pod: Pod) -> tuple[str, ...]:
    """Names of the claims a pod uses, as far as they are known (templates: once status names the claim)."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [entry.resource_claim_name or made.get(entry.name) for entry in pod.spec.resource_claims]
    special = pod.status.extended_resource_claim_status
    if special is not None:
        names.append(special.resource_claim_name)
    return tuple(dict.fromkeys(name for name in names if name))


GANG_MIN_COUNT = "dragoman.dev/gang-min-count"
"""Annotation of pods: their workload is a gang of at least so many pods, where no PodGroup says so."""
_WORKLOAD_LABELS = (
    ("leaderworkerset", ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index")),
    ("jobset", ("jobset.sigs.k8s.io/jobset-name",)),
    ("trainer", ("training.kubeflow.org/job-name",)),
    ("ray", ("ray.io/cluster",)),
    ("job", ("batch.kubernetes.io/job-name",)),
    ("pod-group", ("scheduling.x-k8s.io/pod-group",)),
)
"""By which labels pods of one workload are known: LeaderWorkerSet (a group of it), JobSet, Kubeflow, KubeRay, Job; and
of the coscheduling plugin."""


def group_of(pod: Pod) -> str:
    """The gang that a pod may belong to: its PodGroup, or where it has none and says GANG_MIN_COUNT its workload, as
    `kind/name`; "" for none."""
    named = pod.spec.scheduling_group
    if named is not None and named.pod_group_name:
        return named.pod_group_name
    return workload_gang_of(pod) if GANG_MIN_COUNT in pod.metadata.annotations else ""


def workload_gang_of(pod: Pod) -> str:
    """The workload that a pod is of by its labels, as `kind/name`; "" for none."""
    labels = pod.metadata.labels
    for kind, keys in _WORKLOAD_LABELS:
        if all(key in labels for key in keys):
            return "/".join((kind, *(labels[key] for key in keys)))
    return ""


def gang_min_count(pod: Pod) -> int:
    """What GANG_MIN_COUNT says; 1 for what is no number above it."""
    text = pod.metadata.annotations.get(GANG_MIN_COUNT, "")
    return max(1, int(text)) if text.isdecimal() else 1


def volume_claim_names(pod: Pod) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims behind a pod's volumes, those made for ephemeral ones too."""
    found: dict[str, None] = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found[volume.persistent_volume_claim.claim_name] = None
        elif volume.ephemeral is not None:
            found[f"{pod.metadata.name}-{volume.name}"] = None
    return tuple(found)


def is_finished(pod: Pod) -> bool:
    """Succeeded or Failed: the pod's containers will never run again and it holds no resources."""
    return pod.status.phase in FINISHED


def stated(resources: ResourceRequirements) -> dict[str, int]:
    """Requests in nano-units; a limit without a request is the request, as the API server defaults it."""
    found = {name: amount.nanos for name, amount in resources.limits.items()}
    found.update({name: amount.nanos for name, amount in resources.requests.items()})
    return found


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _node_allocatable(claim: NodeAllocatableClaimStatus) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in claim.mapping:
        _add(found, {one.name: one.quantity.nanos})
    for extra in claim.overhead:
        for amount, times in ((extra.per_pod, 1), (extra.per_container, len(claim.containers))):
            _add(found, {extra.name: amount.nanos * times if amount is not None else 0})
    return found


def pod_requests(pod: Pod) -> dict[str, int]:
    """What a pod asks of its node: resource name -> nano-units, "pods" being one whole.

    Regular containers and sidecars add up; an init container needs its own and the sidecars' started before
    it; what devices need of the node adds to them (KEP-5517); pod-level resources replace the sum where given;
    overhead comes on top. A limit without request counts as request, as the API server defaults it.
    """
    total: dict[str, int] = {}
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in pod.spec.init_containers:
        asked = stated(container.resources)
        if container.restart_policy == "Always":
            _add(sidecars, asked)
            asked = dict(sidecars)
        else:
            _add(asked, sidecars)
        for name, nanos in asked.items():
            peak[name] = max(peak.get(name, 0), nanos)
    for container in pod.spec.containers:
        _add(total, stated(container.resources))
    _add(total, sidecars)
    for name, nanos in peak.items():
        total[name] = max(total.get(name, 0), nanos)
    for claim in pod.status.node_allocatable_resource_claim_statuses:
        _add(total, _node_allocatable(claim))
    if pod.spec.resources is not None:
        level = stated(pod.spec.resources)
        total.update({name: nanos for name, nanos in level.items() if name.startswith(POD_LEVEL)})
    _add(total, {name: amount.nanos for name, amount in pod.spec.overhead.items()})
    total["pods"] = ONE
    return total


def assumed_extra(pod: Pod) -> dict[str, int]:
    """What scores count beyond a pod's requests, in nano-units: cpu and memory of containers that state none."""
    spec = pod.spec
    if spec.resources is not None and (spec.resources.requests or spec.resources.limits):
        return {}
    extra: dict[str, int] = {}
    for name, amount in ASSUMED.items():
        silent = 0
        for container in spec.containers:
            if name not in container.resources.requests and name not in container.resources.limits:
                silent += 1
        if silent:
            extra[name] = amount * silent
    return extra
