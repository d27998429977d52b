"""In which order is a cluster changed, which pods move, and what stays pending? Drain, upgrade, replace, other classes.

    drained(cluster, ["a", "b"], context)             # all are cordoned first, then emptied one by one
    upgraded(cluster, ["a", "b"], context)            # one is emptied, upgraded and back before the next
    replaced(cluster, device, context)                # the pods that hold one device give it up
    reclassed(cluster, device_class, context)         # devices that a class gains and loses

Each step is decided by the scheduler on what the steps before it left. Nothing is written; pods of DaemonSets stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dragoman.api.meta import ObjectMeta
from dragoman.api.resource import (
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from dragoman.api.selectors import Selector, compile_selector, device_view
from dragoman.plan.moves import Move, cordoned, decided_again, is_movable, movable, size_of, undone
from dragoman.schedule.cycle import SchedulingContext
from dragoman.snapshot.change import Put, Snapshot, apply_all, keys_of
from dragoman.snapshot.usage import DeviceId, is_finished
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.compare import ObservedPlacement

TAINT = "dragoman.dev/replace"


class ChangeStep(msgspec.Struct, frozen=True):
    """One step: what is done, which pods it moves, which of them have no node afterwards.

    unmanaged: pods that nobody makes again, which are lost unless their users do; staying: those that stay.
    """

    action: str
    moves: tuple[Move, ...]
    pending: tuple[str, ...]
    unmanaged: tuple[str, ...]
    staying: int


class ChangePlan(msgspec.Struct, frozen=True):
    """The steps in their order. pending: pods without a node at the end; gained, lost: devices of a changed class.

    affected: `namespace/claim` that hold devices which the class loses; they keep them until they are released.
    """

    title: str
    steps: tuple[ChangeStep, ...]
    pending: tuple[str, ...]
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    affected: tuple[str, ...] = ()


def drained(cluster: ClusterState, nodes: Iterable[str], context: SchedulingContext, title: str) -> ChangePlan:
    """The nodes are cordoned together, then emptied, those with the fewest pods first."""
    order = _emptiest_first(cluster.snapshot, nodes)
    was = cluster
    for name in order:
        cluster = msgspec.structs.replace(cluster, snapshot=cordoned(cluster.snapshot, name))
    steps = [ChangeStep(f"cordon {', '.join(order)}", (), (), (), 0)] if order else []
    for name in order:
        cluster, step = _emptied(cluster, name, f"drain {name}", context)
        steps.append(step)
    return ChangePlan(title, tuple(steps), _pending(was.snapshot, cluster.snapshot))


def upgraded(cluster: ClusterState, nodes: Iterable[str], context: SchedulingContext, title: str) -> ChangePlan:
    """One node after the other is emptied and comes back; what could not move waits for the next chance."""
    order = _emptiest_first(cluster.snapshot, nodes)
    was, steps = cluster, []
    for name in order:
        node = cluster.snapshot.nodes[name]
        cluster = msgspec.structs.replace(cluster, snapshot=cordoned(cluster.snapshot, name))
        cluster, step = _emptied(cluster, name, f"cordon, drain and upgrade {name}, then uncordon it", context)
        back = apply_all(cluster.snapshot, [Put("Node", node)])
        waiting = _unplaced(was.snapshot, back)
        found = decided_again(
            msgspec.structs.replace(cluster, snapshot=back),
            was.snapshot,
            [ObservedPlacement(key, back.pods[key].metadata.uid, "") for key in waiting],
            context,
        )
        cluster = found.cluster
        steps.append(step)
    return ChangePlan(title, tuple(steps), _pending(was.snapshot, cluster.snapshot))


def replaced(cluster: ClusterState, device: DeviceId, context: SchedulingContext, title: str) -> ChangePlan:
    """The device is tainted, then the pods that hold it are moved, so that the card can be taken out."""
    selector = DeviceTaintSelector(device.driver, device.pool, device.device)
    spec = DeviceTaintRuleSpec(selector, DeviceTaint(key=TAINT, effect="NoSchedule"))
    rule = DeviceTaintRule(metadata=ObjectMeta(name="replace", uid="replace"), spec=spec)
    was = cluster
    snapshot = cluster.snapshot
    holders = {(holder.namespace, holder.claim) for holder in snapshot.holders.get(device, ())}
    users = {key for claim in holders for key in keys_of(snapshot.pods_by_claim, claim)}
    tainted = msgspec.structs.replace(cluster, snapshot=apply_all(snapshot, [Put("DeviceTaintRule", rule)]))
    first = ChangeStep(f"taint {device} with {TAINT}:NoSchedule", (), (), (), 0)
    some = [seen for seen in movable(snapshot) if seen.pod in users]
    cluster, step = _moved(tainted, some, f"restart the pods that hold {device}, then replace it", context)
    staying = len([key for key in users if not is_finished(snapshot.pods[key])]) - len(some)
    step = msgspec.structs.replace(step, staying=staying)
    return ChangePlan(title, (first, step), _pending(was.snapshot, cluster.snapshot))


def reclassed(cluster: ClusterState, device_class: DeviceClass, title: str) -> ChangePlan:
    """What a class selects with this definition in place of the one that the cluster has, or as a new class."""
    snapshot = cluster.snapshot
    name = device_class.metadata.name
    before = set(selected(snapshot, snapshot.classes[name])) if name in snapshot.classes else set()
    after = set(selected(snapshot, device_class))
    lost = sorted(before - after)
    affected = {
        f"{holder.namespace}/{holder.claim}"
        for device in lost
        for holder in snapshot.holders.get(device, ())
        if _requests(snapshot, (holder.namespace, holder.claim), name)
    }
    step = ChangeStep(f"apply DeviceClass {name}", (), (), (), 0)
    gained = tuple(map(str, sorted(after - before)))
    return ChangePlan(title, (step,), (), gained, tuple(map(str, lost)), tuple(sorted(affected)))


def joined(one: ChangePlan, other: ChangePlan) -> ChangePlan:
    """Two plans, one after the other."""
    return ChangePlan(
        f"{one.title}, {other.title}",
        one.steps + other.steps,
        one.pending + other.pending,
        one.gained + other.gained,
        one.lost + other.lost,
        one.affected + other.affected,
    )


def selected(snapshot: Snapshot, device_class: DeviceClass) -> Iterator[DeviceId]:
    """The published devices that a class selects; a selector that cannot be compiled selects none."""
    texts = [s.cel.expression for s in device_class.spec.selectors if s.cel is not None]
    compiled = [compile_selector(text) for text in texts]
    for name, resource_slice in snapshot.slices.items():
        ids = snapshot.shapes[name].ids
        for device, published in zip(ids, resource_slice.spec.devices, strict=True):
            view = device_view(published, resource_slice.spec.driver)
            if all(isinstance(s, Selector) and s.match(view) is True for s in compiled):
                yield device


def _requests(snapshot: Snapshot, key: tuple[str, str], name: str) -> bool:
    claim = snapshot.claims.get(key)
    requests = claim.spec.devices.requests if claim is not None else ()
    return any(
        (r.exactly is not None and r.exactly.device_class_name == name)
        or any(sub.device_class_name == name for sub in r.first_available)
        for r in requests
    )


# ---- steps


def _emptiest_first(snapshot: Snapshot, nodes: Iterable[str]) -> list[str]:
    return sorted(nodes, key=lambda name: (len(_there(snapshot, name)), name))


def _there(snapshot: Snapshot, node: str) -> list[tuple[str, str]]:
    return [key for key in keys_of(snapshot.pods_by_node, node) if not is_finished(snapshot.pods[key])]


def _emptied(
    cluster: ClusterState, node: str, action: str, context: SchedulingContext
) -> tuple[ClusterState, ChangeStep]:
    some = movable(cluster.snapshot, [node])
    staying = len(_there(cluster.snapshot, node)) - len(some)
    cluster, step = _moved(cluster, some, action, context)
    return cluster, msgspec.structs.replace(step, staying=staying)


def _moved(
    cluster: ClusterState, placements: Sequence[ObservedPlacement], action: str, context: SchedulingContext
) -> tuple[ClusterState, ChangeStep]:
    snapshot = cluster.snapshot
    large_first = sorted(placements, key=lambda seen: (*(-n for n in size_of(snapshot, seen)), seen.pod))
    found = decided_again(undone(cluster, placements), snapshot, large_first, context)
    unmanaged = tuple("/".join(s.pod) for s in placements if snapshot.pods[s.pod].metadata.controller is None)
    pending = tuple("/".join(key) for key in found.pending)
    return found.cluster, ChangeStep(action, found.moves, pending, unmanaged, 0)


def _unplaced(was: Snapshot, snapshot: Snapshot) -> list[tuple[str, str]]:
    """Pods that had a node and have none now."""
    return sorted(
        key
        for key, pod in snapshot.pods.items()
        if not pod.spec.node_name and is_movable(pod) and key in was.pods and was.pods[key].spec.node_name
    )


def _pending(was: Snapshot, snapshot: Snapshot) -> tuple[str, ...]:
    return tuple("/".join(key) for key in _unplaced(was, snapshot))
