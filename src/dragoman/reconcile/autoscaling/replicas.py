"""How many replicas does one metric ask for? Usage against a target, with pods that are missing, unready or going.

Amounts are thousandths of the resource's unit. A metric that says nothing raises NoReplicas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dragoman.api.core import Container, Pod
from dragoman.reconcile.workloads.pods import seconds_of

CPU_INITIALIZATION_S = 300.0
"""--horizontal-pod-autoscaler-cpu-initialization-period."""
INITIAL_READINESS_S = 30.0
"""--horizontal-pod-autoscaler-initial-readiness-delay."""


class NoReplicas(Exception):
    """Why a metric gives no number of replicas, in upstream's words."""


class Tolerances(msgspec.Struct, frozen=True):
    """How far usage may be from its target, as a share of that, before anything changes."""

    down: float = 0.1
    up: float = 0.1

    def is_within(self, ratio: float) -> bool:
        """Whether usage over target is near enough to 1."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class ContainerAmounts(msgspec.Struct, frozen=True):
    """What a container uses: thousandths by resource."""

    name: str
    amounts: Mapping[str, int]


class PodUsage(msgspec.Struct, frozen=True):
    """What a pod uses. at: epoch seconds of the sample; window_s: over which it was taken."""

    pod: str
    at: float
    window_s: float
    containers: tuple[ContainerAmounts, ...]


class ReplicaProposal(msgspec.Struct, frozen=True):
    """What a metric asks for. utilization: percent of requests, None for plain amounts; average: a pod's usage."""

    replicas: int
    average: int
    utilization: int | None = None


def samples_of(usages: Iterable[PodUsage], resource: str, container: str = "") -> dict[str, tuple[PodUsage, int]]:
    """ContainerAmounts by pod, of one container or of all; a pod with a container that says nothing is left out."""
    found: dict[str, tuple[PodUsage, int]] = {}
    for usage in usages:
        wanted = [c for c in usage.containers if container in ("", c.name)]
        amounts = [c.amounts.get(resource) for c in wanted]
        known = [amount for amount in amounts if amount is not None]
        if known and len(known) == len(wanted):
            found[usage.pod] = usage, sum(known)
    return found


class _Groups(msgspec.Struct):
    ready: int = 0
    unready: set[str] = set()
    missing: set[str] = set()
    ignored: set[str] = set()


def _grouped(pods: Sequence[Pod], samples: Mapping[str, tuple[PodUsage, int]], resource: str, now: float) -> _Groups:
    groups = _Groups()
    for pod in pods:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            groups.ignored.add(name)
        elif pod.status.phase == "Pending":
            groups.unready.add(name)
        elif name not in samples:
            groups.missing.add(name)
        elif resource == "cpu" and _is_unready(pod, samples[name][0], now):
            groups.unready.add(name)
        else:
            groups.ready += 1
    return groups


def _is_unready(pod: Pod, usage: PodUsage, now: float) -> bool:
    """Whether the use of CPU says nothing yet: programs that start need more of it."""
    ready = next((c for c in pod.status.conditions if c.type == "Ready"), None)
    if ready is None or not pod.status.start_time:
        return True
    started, since = seconds_of(pod.status.start_time), seconds_of(ready.last_transition_time)
    if started + CPU_INITIALIZATION_S > now:
        return ready.status == "False" or usage.at < since + usage.window_s
    return ready.status == "False" and started + INITIAL_READINESS_S > since


def by_utilization(
    current: int,
    target: int,
    resource: str,
    container: str,
    pods: Sequence[Pod],
    usages: Sequence[PodUsage],
    tolerances: Tolerances,
    now: float,
) -> ReplicaProposal:
    """Replicas so that pods use `target` percent of what they request. Raises NoReplicas."""
    samples, groups = _measured(pods, usages, resource, container, now)
    amounts = {name: amount for name, (_, amount) in samples.items()}
    requests = {pod.metadata.name: _request(pod, container, resource) for pod in pods}
    ratio, utilization, average = _utilization(amounts, requests, target)
    if (groups.unready and ratio > 1.0) or groups.missing:
        fallback = max(100, target)
        if ratio < 1.0:
            amounts |= {name: requests[name] * fallback // 100 for name in groups.missing}
        elif ratio > 1.0:
            amounts |= dict.fromkeys(groups.missing | groups.unready, 0)
        again, _, _ = _utilization(amounts, requests, target)
        return ReplicaProposal(_steadied(current, ratio, again, len(amounts), tolerances), average, utilization)
    replicas = current if tolerances.is_within(ratio) else math.ceil(ratio * groups.ready)
    return ReplicaProposal(replicas, average, utilization)


def by_amount(
    current: int,
    target: int,
    resource: str,
    container: str,
    pods: Sequence[Pod],
    usages: Sequence[PodUsage],
    tolerances: Tolerances,
    now: float,
) -> ReplicaProposal:
    """Replicas so that pods use `target` thousandths each. Raises NoReplicas."""
    samples, groups = _measured(pods, usages, resource, container, now)
    amounts = {name: amount for name, (_, amount) in samples.items()}
    average = sum(amounts.values()) // len(amounts)
    ratio = average / target
    if (groups.unready and ratio > 1.0) or groups.missing:
        if ratio < 1.0:
            amounts |= dict.fromkeys(groups.missing, target)
        elif ratio > 1.0:
            amounts |= dict.fromkeys(groups.missing | groups.unready, 0)
        again = sum(amounts.values()) // len(amounts) / target
        return ReplicaProposal(_steadied(current, ratio, again, len(amounts), tolerances), average)
    replicas = current if tolerances.is_within(ratio) else math.ceil(ratio * groups.ready)
    return ReplicaProposal(replicas, average)


def _measured(
    pods: Sequence[Pod], usages: Sequence[PodUsage], resource: str, container: str, now: float
) -> tuple[dict[str, tuple[PodUsage, int]], _Groups]:
    """The samples that count, and what the pods are."""
    if not usages:
        raise NoReplicas(
            f"unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        )
    if not pods:
        raise NoReplicas("no pods returned by selector while calculating replica count")
    samples = samples_of(usages, resource, container)
    groups = _grouped(pods, samples, resource, now)
    samples = {name: found for name, found in samples.items() if name not in groups.ignored | groups.unready}
    if not samples:
        raise NoReplicas("did not receive metrics for targeted pods (pods might be unready)")
    return samples, groups


def _steadied(current: int, ratio: float, again: float, counted: int, tolerances: Tolerances) -> int:
    """The replicas once pods without usage are guessed at; what only the guess would turn around stays."""
    if tolerances.is_within(again) or (ratio < 1.0 < again) or (again < 1.0 < ratio):
        return current
    replicas = math.ceil(again * counted)
    if (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current):
        return current
    return replicas


def _utilization(amounts: Mapping[str, int], requests: Mapping[str, int], target: int) -> tuple[float, int, int]:
    """(ratio to the target, percent of requests, average amount)."""
    known = [name for name in amounts if name in requests]
    asked = sum(requests[name] for name in known)
    if not asked:
        raise NoReplicas("no metrics returned matched known pods")
    used = sum(amounts[name] for name in known)
    percent = used * 100 // asked
    return percent / target, percent, used // len(known)


def _request(pod: Pod, container: str, resource: str) -> int:
    """What a pod requests, or one of its containers. Raises NoReplicas."""
    name = pod.metadata.name
    own = pod.spec.resources
    if own is not None and own.requests and not container:
        if resource not in own.requests:
            raise NoReplicas(f"missing pod-level request for {resource} in Pod {name}")
        return own.requests[resource].milli()
    total = 0
    sidecars: list[Container] = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    for found in (*pod.spec.containers, *sidecars):
        if container not in ("", found.name):
            continue
        if resource not in found.resources.requests:
            raise NoReplicas(f"missing request for {resource} in container {found.name} of Pod {name}")
        total += found.resources.requests[resource].milli()
        if container:
            return total
    if container:
        raise NoReplicas(f"container {container} not found in Pod {name}")
    return total
