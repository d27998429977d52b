"""What does this pod want, parsed once: needs, what it can see of nodes, its claims, and its shape.

Pods of one template have the same shape, so what was found out about nodes for one serves the next. Never looks
at a node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman.api import codec
from dragoman.api.core import NodeSelector, Pod
from dragoman.api.resource import ResourceClaim
from dragoman.schedule.claims import PodClaim
from dragoman.schedule.extended import class_resources
from dragoman.schedule.filter import NodeProjection, projection_of
from dragoman.schedule.inter_pod_affinity import InterPodState, inter_pod_state_of
from dragoman.schedule.needs import ResourceAmounts
from dragoman.schedule.profile import DEFAULT_PROFILE, SchedulerProfile
from dragoman.schedule.volumes import VolumeState, volume_state_of
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import assumed_extra, pod_requests


class PodInfo(msgspec.Struct, frozen=True):
    """A pod, parsed.

    needs and extra: nano-units (snapshot.usage.pod_requests, assumed_extra). mapped: extended
    resources for which a class stands. selectors: (claim, where its allocation is available). pinned: the only
    nodes that can do, None if any. shape: equal for pods that nodes cannot tell apart, claims to allocate and
    inter_pod and volumes aside. inter_pod: what pods already there mean for it. volumes: what its
    PersistentVolumeClaims mean. within: the only nodes that are asked. skipping: claims whose devices need a node that
    may leave out node operations. profile: what the scheduler checks and how it scores.
    """

    pod: Pod
    needs: ResourceAmounts
    extra: ResourceAmounts
    claims: tuple[PodClaim, ...]
    extended_resources: tuple[str, ...]
    selectors: tuple[tuple[str, NodeSelector], ...]
    projection: NodeProjection
    pinned: tuple[str, ...] | None
    shape: bytes
    inter_pod: InterPodState | None = None
    skipping: tuple[str, ...] = ()
    profile: SchedulerProfile = DEFAULT_PROFILE
    volumes: VolumeState | None = None
    within: frozenset[str] | None = None

    @property
    def to_allocate(self) -> tuple[ResourceClaim, ...]:
        """The claims without devices yet."""
        return tuple([used.claim for used in self.claims if not used.allocated])


def pod_info_of(
    snapshot: Snapshot,
    pod: Pod,
    claims: tuple[PodClaim, ...],
    by_resource: Mapping[str, str],
    profile: SchedulerProfile = DEFAULT_PROFILE,
) -> PodInfo:
    """Parses a pod, with what other pods and its volumes mean for it.

    by_resource: extended resource -> class (schedule.extended.classes_by_resource).
    """
    spec = pod.spec
    inter_pod = inter_pod_state_of(snapshot, pod, profile.off)
    volumes = volume_state_of(snapshot, pod, profile.off) if spec.volumes else None
    needs, extra = pod_requests(pod), assumed_extra(pod)
    selectors = _selectors(claims)
    projection = projection_of(spec, profile)
    if selectors:
        projection = _widened(projection, selectors)
    skipping = _skipping(claims)
    if inter_pod is not None:
        labels = {*projection.labels, *inter_pod.labels}
        projection = NodeProjection(tuple(sorted(labels)), projection.name or inter_pod.by_name)
    if volumes is not None:
        labels = {*projection.labels, *volumes.labels}
        projection = NodeProjection(tuple(sorted(labels)), projection.name or volumes.by_name)
    if skipping:
        projection = msgspec.structs.replace(projection, features=True)
    extended_resources = class_resources(needs, by_resource) if by_resource else ()
    shape = codec.to_bytes(
        (
            sorted((name, str(nanos)) for name, nanos in needs.items()),
            extra,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            selectors,
            skipping,
            extended_resources,
            (spec.init_containers, spec.containers) if extended_resources else (),
            profile.key,
        )
    )
    pinned = _pinned(pod, selectors, profile)
    return PodInfo(
        pod,
        needs,
        extra,
        claims,
        extended_resources,
        selectors,
        projection,
        pinned,
        shape,
        inter_pod,
        skipping,
        profile,
        volumes,
    )


def _skipping(claims: tuple[PodClaim, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for used in claims:
        allocation = used.claim.status.allocation
        if allocation is not None and any(result.skip_node_operations for result in allocation.devices.results):
            found.append(used.claim.metadata.name)
    return tuple(found)


def _selectors(claims: tuple[PodClaim, ...]) -> tuple[tuple[str, NodeSelector], ...]:
    found: list[tuple[str, NodeSelector]] = []
    for used in claims:
        allocation = used.claim.status.allocation
        if allocation is not None and allocation.node_selector is not None:
            found.append((used.claim.metadata.name, allocation.node_selector))
    return tuple(found)


def _widened(projection: NodeProjection, selectors: tuple[tuple[str, NodeSelector], ...]) -> NodeProjection:
    keys = set(projection.labels)
    name = projection.name
    for _, selector in selectors:
        for term in selector.node_selector_terms:
            keys |= {requirement.key for requirement in term.match_expressions}
            name = name or bool(term.match_fields)
    return NodeProjection(tuple(sorted(keys)), name)


def _pinned(
    pod: Pod, selectors: tuple[tuple[str, NodeSelector], ...], profile: SchedulerProfile
) -> tuple[str, ...] | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    own = affinity.required if affinity is not None and "NodeAffinity" not in profile.off else None
    names: set[str] | None = None
    for selector in [own, *(selector for _, selector in selectors)]:
        only = _names_of(selector) if selector is not None else None
        if only is not None:
            names = only if names is None else names & only
    return tuple(sorted(names)) if names is not None else None


def _names_of(selector: NodeSelector) -> set[str] | None:
    """The node names a selector is limited to, if each of its terms names some."""
    names: set[str] = set()
    for term in selector.node_selector_terms:
        only = [r.values for r in term.match_fields if r.key == "metadata.name" and r.operator == "In"]
        if not only:
            return None
        names |= set(only[0])
    return names
