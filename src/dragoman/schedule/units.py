"""What is placed together, and what does a decision depend on? Units, their priority, and the context.

Never decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias

import msgspec

from dragoman.allocate.allocator import OPTIONS, AllocatorOptions, TaskHistory
from dragoman.api.core import Pod
from dragoman.api.gates import Gates
from dragoman.api.meta import NamespacedName
from dragoman.schedule.claims import group_name
from dragoman.schedule.conditions import TIMEOUT_S
from dragoman.schedule.decision import NewId, Placement
from dragoman.schedule.placement import PlacementCache
from dragoman.schedule.profile import DEFAULT_PROFILE, SchedulerProfile
from dragoman.schedule.queue import UnitKey
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.usage import gang_min_count, group_of, is_finished

GANGS = "GenericWorkload"
PreemptionMode: TypeAlias = Literal["off", "nodes", "devices"]


class SchedulingUnit(msgspec.Struct, frozen=True):
    """What is placed together. pods: those without a node, in order. wanted: how many of them must fit.

    placed: (pod, node) when the unit has its place already and only waits for conditions.
    """

    key: UnitKey
    pods: tuple[NamespacedName, ...]
    wanted: int = 1
    placed: tuple[tuple[NamespacedName, str], ...] = ()


class SchedulingContext(msgspec.Struct):
    """What a decision depends on besides the snapshot.

    in_flight: claims that another decision is being written for. new_id: gives a new UUID at each call. preemption:
    whether pods of lower priority make room, and whether their devices count (`schedule.preempt`). profile: what nodes
    are checked for, and how they are scored. within: the only nodes that count; None: all.
    """

    new_id: NewId
    options: AllocatorOptions = OPTIONS
    in_flight: Collection[NamespacedName] = ()
    binding_timeout_s: float = TIMEOUT_S
    preemption: PreemptionMode = "off"
    profile: SchedulerProfile = DEFAULT_PROFILE
    within: frozenset[str] | None = None
    memory: PlacementCache = msgspec.field(default_factory=PlacementCache)

    @property
    def gates(self) -> Gates:
        """The feature gates."""
        return self.options.gates

    def learn(self, placements: Iterable[Placement], recent: TaskHistory) -> None:
        """Counts what was placed; from time to time the policy's demand is updated."""
        for placement in placements:
            if placement.kind is not None and recent.add(placement.kind):
                self.options = msgspec.structs.replace(self.options, demand=recent.demand)


def unit_of(snapshot: Snapshot, pod: Pod, gates: Gates) -> SchedulingUnit:
    """The unit a pod belongs to: its gang, or itself."""
    meta = pod.metadata
    key = (meta.namespace, meta.name)
    if not group_name(pod):
        return _workload_gang(snapshot, pod) or SchedulingUnit(("Pod", *key), (key,))
    group = group_name(pod)
    if not gates.on(GANGS):
        return SchedulingUnit(("Pod", *key), (key,))
    pod_group = snapshot.pod_groups.get((meta.namespace, group))
    policy = pod_group.spec.scheduling_policy if pod_group is not None else None
    if pod_group is not None and (policy is None or policy.gang is None):
        return SchedulingUnit(("Pod", *key), (key,))
    return _gang(snapshot, (meta.namespace, group), policy.gang.min_count if policy and policy.gang else None)


def _workload_gang(snapshot: Snapshot, pod: Pod) -> SchedulingUnit | None:
    """The pods of a workload that says of itself that it is a gang (usage.GANG_MIN_COUNT)."""
    group = group_of(pod)
    return _gang(snapshot, (pod.metadata.namespace, group), gang_min_count(pod)) if group else None


def _gang(snapshot: Snapshot, group: NamespacedName, min_count: int | None) -> SchedulingUnit:
    members = keys_of(snapshot.pods_by_group, group)
    waiting = tuple(member for member in members if is_waiting(snapshot.pods[member]))
    running = sum(1 for m in members if snapshot.pods[m].spec.node_name and not is_finished(snapshot.pods[m]))
    minimum = min_count if min_count is not None else len(waiting)
    return SchedulingUnit(("PodGroup", *group), waiting, max(minimum - running, 1 if waiting else 0))


def is_waiting(pod: Pod) -> bool:
    """Whether the pod still needs a node."""
    return not pod.spec.node_name and not is_finished(pod) and pod.metadata.deletion_timestamp is None


def gated(pod: Pod) -> bool:
    """Whether scheduling gates hold the pod back."""
    return bool(pod.spec.scheduling_gates)


def priority_of(snapshot: Snapshot, pod: Pod) -> int:
    """The pod's priority; bare objects may only name the class."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    named_class = snapshot.priority_classes.get(pod.spec.priority_class_name)
    return named_class.value if named_class is not None else 0
