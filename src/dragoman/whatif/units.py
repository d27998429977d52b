"""Which pods are decided on, in what order, and which of them together?

A gang is the pods of one PodGroup with a gang policy, of one workload with the annotation of `usage.group_of`, or in
files with the same value of one of GANG_LABELS.
Never decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.schedule.claims import group_name
from dragoman.schedule.cycle import SchedulingUnit, is_waiting
from dragoman.snapshot.change import WORKLOADS, Snapshot, keys_of
from dragoman.snapshot.usage import gang_min_count, group_of, is_finished
from dragoman.whatif.cluster import ClusterState

GANG_LABELS = ("scheduling.x-k8s.io/pod-group", "gang")

Named = tuple[str, str, str]
"""(kind, namespace, name) of a pod or workload."""


def units(cluster: ClusterState, order: Iterable[Named]) -> list[SchedulingUnit]:
    """What waits: pods and the pods of workloads as they stand in `order`, then all others by age and name.

    A gang stands where its first pod does.
    """
    named = [key for kind, namespace, name in order for key in pods_of(cluster, kind, namespace, name)]
    pods = cluster.snapshot.pods
    seen = set(named)
    rest = sorted(
        (key for key, pod in pods.items() if key not in seen and is_waiting(pod)),
        key=lambda key: (pods[key].metadata.creation_timestamp or "", len(key[1]), key),
    )
    return units_of(cluster.snapshot, [*named, *rest])


def units_of(snapshot: Snapshot, keys: Iterable[NamespacedName]) -> list[SchedulingUnit]:
    """The waiting pods among these, in their order, gangs together."""
    found: dict[tuple[str, str, str], dict[NamespacedName, None]] = {}
    for key in keys:
        pod = snapshot.pods.get(key)
        if pod is not None and is_waiting(pod):
            group = _gang_of(snapshot, pod)
            found.setdefault(("PodGroup", key[0], group) if group else ("Pod", *key), {})[key] = None
    return [
        SchedulingUnit(key, tuple(members), _wanted(snapshot, key, list(members))) for key, members in found.items()
    ]


def pods_of(cluster: ClusterState, kind: str, namespace: str, name: str) -> Iterator[NamespacedName]:
    """A pod, or the pods that a workload controls, by itself and through others (a Deployment's ReplicaSets)."""
    if kind not in WORKLOADS:
        yield namespace, name
        return
    item = cluster.ownership.find(kind, namespace, name)
    if item is None:
        return
    for child in sorted(WORKLOADS):
        for ref in cluster.ownership.controlled(item.ref.uid, child):
            yield from pods_of(cluster, child, ref.namespace, ref.name)
    pods = cluster.ownership.controlled(item.ref.uid, "Pod")
    yield from sorted(((ref.namespace, ref.name) for ref in pods), key=lambda key: (len(key[1]), key[1]))


def _gang_of(snapshot: Snapshot, pod: Pod) -> str:
    group = group_name(pod)
    if group:
        made = snapshot.pod_groups.get((pod.metadata.namespace, group))
        policy = made.spec.scheduling_policy if made is not None else None
        return group if made is None or (policy is not None and policy.gang is not None) else ""
    if own := group_of(pod):
        return own
    return next((pod.metadata.labels[label] for label in GANG_LABELS if pod.metadata.labels.get(label)), "")


def _wanted(snapshot: Snapshot, key: tuple[str, str, str], members: Sequence[NamespacedName]) -> int:
    kind, namespace, name = key
    made = snapshot.pod_groups.get((namespace, name)) if kind == "PodGroup" else None
    policy = made.spec.scheduling_policy if made is not None else None
    stated = [gang_min_count(snapshot.pods[key]) for key in members if group_of(snapshot.pods[key]) == name]
    least = policy.gang.min_count if policy is not None and policy.gang is not None else max(stated, default=0)
    if not least or (policy is not None and policy.gang is None):
        return len(members)
    running = [
        member
        for member in keys_of(snapshot.pods_by_group, (namespace, name))
        if snapshot.pods[member].spec.node_name and not is_finished(snapshot.pods[member])
    ]
    return max(least - len(running), 1)
