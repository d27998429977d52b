"""How does a pod that asks for extended resources get devices? KEP-5004: one special claim, made by the scheduler.

Which class stands for which resource, which resources of a pod devices serve on a node, and the requests and
mappings of the special claim. Never allocates.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import Map

from dragoman.api.core import Container, ContainerExtendedResourceRequest, Pod, PodSpec
from dragoman.api.meta import ObjectMeta, OwnerReference
from dragoman.api.resource import (
    EXACT_COUNT,
    EXTENDED_CLAIM_ANNOTATION,
    IMPLICIT_EXTENDED_PREFIX,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dragoman.schedule.needs import NANOS, ResourceAmounts, container_requests, is_extended, is_sidecar
from dragoman.values.quantity import Quantity

SPECIAL_NAME = "<extended-resources>"
"""Name of the claim while it exists only in a decision."""


def classes_by_resource(classes: Map[str, DeviceClass]) -> dict[str, str]:
    """Extended resource name -> class. A newer class wins, then the smaller name; implicit names always work."""
    found: dict[str, str] = {}
    for name in sorted(classes):
        explicit = classes[name].spec.extended_resource_name
        if explicit and (explicit not in found or _made(classes, name) > _made(classes, found[explicit])):
            found[explicit] = name
    return found | {f"{IMPLICIT_EXTENDED_PREFIX}{name}": name for name in classes}


def _made(classes: Map[str, DeviceClass], name: str) -> str:
    # RFC 3339 texts in UTC sort by time.
    return classes[name].metadata.creation_timestamp or ""


def class_resources(requests: ResourceAmounts, by_resource: Mapping[str, str]) -> tuple[str, ...]:
    """Extended resources of the pod for which a class stands, sorted."""
    return tuple(sorted(n for n, nanos in requests.items() if nanos > 0 and is_extended(n) and n in by_resource))


def served_by_devices(
    extended_resources: tuple[str, ...], allocatable: Mapping[str, Quantity] | None
) -> tuple[str, ...]:
    """Those that devices serve on a node: its allocatable has none, so that no device plugin does."""
    if allocatable is None:
        return extended_resources
    return tuple(name for name in extended_resources if not allocatable.get(name))


class Special(msgspec.Struct, frozen=True):
    """What the special claim asks for, and which request serves which container's resource."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def special_requests(spec: PodSpec, resources: tuple[str, ...], by_resource: Mapping[str, str]) -> Special:
    """Requests and mappings for these resources of a pod (KEP-5004 sections on init containers)."""
    containers = (*spec.init_containers, *spec.containers)
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in resources:
        counts, links = _one_resource(containers, len(spec.init_containers), resource)
        requests += [
            DeviceRequest(
                name=_request_name(containers, number, resource),
                exactly=ExactDeviceRequest(
                    device_class_name=by_resource[resource], allocation_mode=EXACT_COUNT, count=count
                ),
            )
            for number, count in counts.items()
        ]
        mappings += [
            ContainerExtendedResourceRequest(
                container_name=containers[user].name,
                resource_name=resource,
                request_name=_request_name(containers, server, resource),
            )
            for user, server in links
        ]
    return Special(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


def _one_resource(
    containers: tuple[Container, ...], inits: int, resource: str
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """(container number -> devices of its request, [(user, server)]) for one resource."""
    wanted = {
        number: -(-nanos // NANOS)
        for number, container in enumerate(containers)
        if (nanos := container_requests(container).get(resource, 0)) > 0
    }
    lasting = {n: count for n, count in wanted.items() if n >= inits or is_sidecar(containers[n])}
    links = [(number, number) for number in lasting]
    rest: dict[int, int] = {}
    passing: list[tuple[int, int]] = []
    for number, count in wanted.items():
        if number in lasting:
            continue
        short = count
        for server, held in lasting.items():
            if server < number or short <= 0:
                continue
            passing.append((number, server))
            short -= held
        if short > 0:
            rest[number] = short
            passing.append((number, -1))
    counts = dict(lasting)
    if rest:
        largest = max(rest, key=lambda number: (rest[number], -number))
        counts[largest] = rest[largest]
        passing = [(user, largest if server < 0 else server) for user, server in passing]
    return counts, links + passing


def _request_name(containers: tuple[Container, ...], number: int, resource: str) -> str:
    place = sorted(container_requests(containers[number])).index(resource)
    return f"container-{number}-request-{place}"


def special_claim(pod: Pod, requests: tuple[DeviceRequest, ...], name: str = SPECIAL_NAME) -> ResourceClaim:
    """The claim as it will be created. While nodes are compared it has a provisional name."""
    meta = pod.metadata
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            uid=f"{SPECIAL_NAME}{meta.uid}",
            generate_name=f"{meta.name}-extended-resources-",
            annotations={EXTENDED_CLAIM_ANNOTATION: "true"},
            owner_references=(
                OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True),
            ),
        ),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )


def is_special(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim is the pod's special one."""
    controller = claim.metadata.controller
    return (
        claim.metadata.annotations.get(EXTENDED_CLAIM_ANNOTATION) == "true"
        and controller is not None
        and controller.uid == pod.metadata.uid
    )
