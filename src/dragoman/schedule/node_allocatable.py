"""How much cpu, memory and the like does a pod need of its node because of its devices? (KEP-5517, alpha)

Devices say it in `nodeAllocatableResources`; the pod's status keeps it, so that the node is charged from then on.
The sum itself is made where a pod's requests are added up (`snapshot.usage`). Never chooses devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dragoman.api.core import NodeAllocatableAmount, NodeAllocatableClaimStatus, NodeAllocatableExtra, Pod
from dragoman.api.resource import (
    AllocationResult,
    Device,
    DeviceRequestAllocationResult,
    NodeAllocatableMapping,
    ResourceClaim,
)
from dragoman.schedule.extended import Special
from dragoman.schedule.filter import amount, insufficient_resources
from dragoman.schedule.needs import NANOS
from dragoman.schedule.pod_info import PodInfo
from dragoman.schedule.refusal import (
    InsufficientPodLevelResource,
    NodeAllocatableAmountUnknown,
    NodeAllocatableClaimShared,
    NodeReason,
)
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.usage import DeviceId, is_finished, pod_requests, stated
from dragoman.values.quantity import Quantity

NodeAllocatableDemand = tuple[NodeAllocatableClaimStatus, ...]
"""What a pod's claims bring along, sorted by claim; the special claim, which has no name yet, is called ""."""


def node_allocatable_demand(
    snapshot: Snapshot, pod_info: PodInfo, results: Sequence[AllocationResult], special: Special | None
) -> NodeAllocatableDemand | NodeReason:
    """What the claims of a pod bring along with these results for those without devices (the special one last)."""
    new = iter(results)
    found: list[NodeAllocatableClaimStatus] = []
    for used in pod_info.claims:
        allocation = used.claim.status.allocation or next(new)
        status = _of_claim(snapshot, used.claim.metadata.name, _references(pod_info.pod, used.entry), allocation)
        if not isinstance(status, NodeAllocatableClaimStatus):
            return status
        if status.mapping and _is_shared(snapshot, used.claim, pod_info.pod):
            return NodeAllocatableClaimShared(used.claim.metadata.name)
        found.append(status)
    if special is not None:
        containers = tuple(dict.fromkeys(entry.container_name for entry in special.mappings))
        status = _of_claim(snapshot, "", containers, next(new))
        if not isinstance(status, NodeAllocatableClaimStatus):
            return status
        found.append(status)
    some = [status for status in found if status.mapping or status.overhead]
    return tuple(sorted(some, key=lambda status: status.resource_claim_name))


def shown_with(pod: Pod, node_allocatable: NodeAllocatableDemand) -> Pod:
    """The pod with that in its status."""
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=node_allocatable)
    return msgspec.structs.replace(pod, status=status)


def why_not(
    pod_info: PodInfo,
    node_allocatable: NodeAllocatableDemand,
    allocatable: Mapping[str, Quantity] | None,
    used: Mapping[str, int],
) -> list[NodeReason]:
    """Why a node with that much allocatable and used cannot take the pod and what it brings; [] if it can."""
    before, after = pod_requests(pod_info.pod), pod_requests(shown_with(pod_info.pod, node_allocatable))
    needs = {name: pod_info.needs.get(name, 0) + nanos - before.get(name, 0) for name, nanos in after.items()}
    changed = {name: nanos for name, nanos in needs.items() if nanos != pod_info.needs.get(name, 0)}
    return [*_over_pod_level(pod_info.pod, node_allocatable), *insufficient_resources(changed, allocatable, used)]


def _over_pod_level(pod: Pod, node_allocatable: NodeAllocatableDemand) -> list[NodeReason]:
    """Pod-level requests take precedence, and must cover containers and devices together (KEP-2837)."""
    if pod.spec.resources is None:
        return []
    level = stated(pod.spec.resources)
    spec = msgspec.structs.replace(pod.spec, resources=None, overhead={})
    sums = pod_requests(shown_with(msgspec.structs.replace(pod, spec=spec), node_allocatable))
    names = {entry.name for status in node_allocatable for entry in status.mapping}
    names |= {entry.name for status in node_allocatable for entry in status.overhead}
    return [
        InsufficientPodLevelResource(name, amount(name, sums[name]), amount(name, level[name]))
        for name in sorted(names & level.keys())
        if sums.get(name, 0) > level[name]
    ]


def _references(pod: Pod, entry: str) -> tuple[str, ...]:
    """Names of the containers that use an entry of spec.resourceClaims."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return tuple(c.name for c in containers if any(used.name == entry for used in c.resources.claims))


def _is_shared(snapshot: Snapshot, claim: ResourceClaim, pod: Pod) -> bool:
    """Whether another pod that has its node uses the claim."""
    others = [snapshot.pods[key] for key in snapshot.consumers(claim)]
    return any(
        other.metadata.uid != pod.metadata.uid and other.spec.node_name and not is_finished(other) for other in others
    )


def _of_claim(
    snapshot: Snapshot, name: str, containers: tuple[str, ...], allocation: AllocationResult
) -> NodeAllocatableClaimStatus | NodeReason:
    mapping: dict[str, int] = {}
    per_pod: dict[str, int] = {}
    per_container: dict[str, int] = {}
    for result in allocation.devices.results:
        device = _device(snapshot, result)
        for resource, says in device.node_allocatable_resources.items() if device is not None else ():
            if says.mapping is not None:
                nanos = _nanos_of(says.mapping, result)
                if nanos is None:
                    id_ = DeviceId(result.driver, result.pool, result.device)
                    return NodeAllocatableAmountUnknown(name, str(id_), says.mapping.capacity_key or "")
                mapping[resource] = mapping.get(resource, 0) + nanos
            if says.overhead is not None:
                for sums, value in ((per_pod, says.overhead.per_pod), (per_container, says.overhead.per_container)):
                    if value is not None:
                        sums[resource] = sums.get(resource, 0) + value.nanos
    return NodeAllocatableClaimStatus(
        name,
        containers,
        tuple(NodeAllocatableAmount(r, amount(r, nanos)) for r, nanos in sorted(mapping.items())),
        tuple(
            NodeAllocatableExtra(r, _stated(r, per_pod), _stated(r, per_container))
            for r in sorted(per_pod.keys() | per_container.keys())
        ),
    )


def _stated(resource: str, sums: Mapping[str, int]) -> Quantity | None:
    """The sum as a quantity, None where no device states one."""
    return amount(resource, sums[resource]) if resource in sums else None


def _nanos_of(says: NodeAllocatableMapping, result: DeviceRequestAllocationResult) -> int | None:
    """Nano-units that a result brings along; None if they follow from an amount that the result does not tell."""
    if says.capacity_key is None:
        return says.device_multiplier.nanos if says.device_multiplier is not None else 0
    if result.consumed_capacity is None:
        return None
    consumed = result.consumed_capacity.get(says.capacity_key)
    if consumed is None or says.capacity_multiplier is None:
        return 0
    return consumed.nanos * says.capacity_multiplier.nanos // NANOS


def _device(snapshot: Snapshot, result: DeviceRequestAllocationResult) -> Device | None:
    """The device of a result as the newest generation of its pool publishes it."""
    resource_slices = [snapshot.slices[name] for name in keys_of(snapshot.slices_by_pool, (result.driver, result.pool))]
    newest = max((resource_slice.spec.pool.generation for resource_slice in resource_slices), default=0)
    for resource_slice in resource_slices:
        if resource_slice.spec.pool.generation == newest:
            for device in resource_slice.spec.devices:
                if device.name == result.device:
                    return device
    return None
