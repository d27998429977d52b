"""How many more of this fit, now and if fragmentation were undone, and what blocks the next one?

    found = capacity(cluster, demand, context)
    found.fits, found.defragmented.at_least, found.defragmented.at_most, found.blocks

`fits` is what the scheduler reaches from this state on. With fragmentation undone the number lies between what was
seen to fit once all movable pods were packed again, and what free devices and resources add up to; equal numbers are
exact. Free devices on nodes that cannot feed them are stranded; a change is listed only if it was seen to help.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from immutables import Map

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.ops.tally import ClusterTally
from dragoman.plan.blocked import Block, blocks_of, refused_by_resources
from dragoman.plan.bounds import UNBOUNDED, bound
from dragoman.plan.demand import PlannedDemand
from dragoman.plan.fill import COPIES_MAX, CountProgress, Filled, filled, silent
from dragoman.plan.moves import (
    Rearranged,
    decided_again,
    is_movable,
    movable,
    size_of,
    undone,
    with_pods,
    without_pods,
)
from dragoman.schedule.cycle import SchedulingContext, is_waiting
from dragoman.schedule.placement import ScheduleResult
from dragoman.schedule.single import place_on
from dragoman.snapshot.change import Gone, Put, Snapshot, apply, apply_all, keys_of
from dragoman.snapshot.usage import claim_names, pod_requests
from dragoman.values.quantity import Quantity
from dragoman.whatif.cluster import ClusterState, objects
from dragoman.whatif.compare import before, placement_seen
from dragoman.whatif.decide import run, steps
from dragoman.whatif.units import Named, units_of

REPACK_MAX = 2_000
"""Running pods that are packed again to see what fragmentation costs; with more only the bound is given."""
STRANDED_MAX = 20
"""Nodes with stranded devices for which a change is looked for."""


class Defragmented(msgspec.Struct, frozen=True):
    """How many copies fit if all movable pods could be placed again.

    bound_by: what runs out at at_most; "" if there is no bound. moves: pods that such a packing restarts or moves.
    tried: False if there are too many pods for it, so that at_least is what fits now.
    """

    at_least: int
    at_most: int | None
    bound_by: str
    moves: int
    tried: bool


class ClassCapacity(msgspec.Struct, frozen=True):
    """Devices of a class. largest_on_node, largest_on_root: free ones together on one node, under one PCIe root."""

    device_class: str
    devices: int
    free: int
    largest_on_node: int
    largest_on_root: int
    stranded: int


class PartitionCapacity(msgspec.Struct, frozen=True):
    """How many of a partition type fit beside what is held."""

    device_class: str
    partition: str
    fits: int


class Stranded(msgspec.Struct, frozen=True):
    """Free devices on a node that cannot feed the demand. missing: resource to amount.

    change: the smallest that frees them, as a sentence, "" if no single pod helps; moves_to: where that pod fits then.
    """

    node: str
    devices: int
    missing: dict[str, str]
    change: str
    pod: str
    moves_to: str


class Capacity(msgspec.Struct, frozen=True):
    """The whole answer. pods: of one copy; largest_gang: pods of the copies that fit, at once.

    pending_first: pods of the cluster that were pending and are placed before; still_pending: those that were not.
    partly: pods of the next copy that would run all the same. limited: the count stopped at the limit.
    """

    demand: str
    pods: int
    fits: int
    limited: bool
    largest_gang: int
    partly: int
    pending_first: int
    still_pending: int
    defragmented: Defragmented
    blocks: tuple[Block, ...]
    classes: tuple[ClassCapacity, ...]
    partitions: tuple[PartitionCapacity, ...]
    stranded: tuple[Stranded, ...]


def capacity(
    cluster: ClusterState,
    demand: PlannedDemand,
    context: SchedulingContext,
    *,
    order: Sequence[Named] = (),
    limit: int = COPIES_MAX,
    repack_max: int = REPACK_MAX,
    progress: CountProgress = silent,
) -> Capacity:
    """The capacity for copies of `demand` in a settled cluster, whose own pending pods come first, in `order`."""
    context = msgspec.structs.replace(context, preemption="off")
    placed = 0
    for step in run(cluster, order, context):
        assert step.cluster is not None
        cluster = step.cluster
        placed += sum(1 for verdict in step.verdicts if verdict.node)
    waiting = [key for key, pod in cluster.snapshot.pods.items() if is_waiting(pod)]
    # They were decided, and nothing that follows makes room for them.
    cluster, pending = without_pods(cluster, waiting), len(waiting)
    now = filled(cluster, demand, context, limit=limit, progress=progress)
    undone_ = _defragmented(cluster, demand, context, now, limit=limit, repack_max=repack_max, progress=progress)
    stranded = tuple(_stranded(now, demand, context))
    classes, partitions = _classes(cluster.snapshot)
    return Capacity(
        demand.title,
        demand.pods,
        now.count,
        now.limited,
        now.count * demand.pods,
        now.partly,
        placed,
        pending,
        undone_,
        blocks_of(now.refused, now.rejected),
        classes,
        partitions,
        stranded,
    )


def _defragmented(
    cluster: ClusterState,
    demand: PlannedDemand,
    context: SchedulingContext,
    now: Filled,
    *,
    limit: int,
    repack_max: int,
    progress: CountProgress,
) -> Defragmented:
    most = bound(cluster.snapshot, demand)
    at_most = most.copies if most.copies < UNBOUNDED else None
    if now.limited or any(r.quota is not None for r in now.rejected):
        # A quota counts objects, wherever they are: moving pods changes nothing.
        return Defragmented(now.count, now.count if now.rejected else at_most, "quota" if now.rejected else "", 0, True)
    if at_most == now.count:
        return Defragmented(now.count, at_most, most.by, 0, True)
    placements = movable(cluster.snapshot)
    if len(placements) > repack_max:
        return Defragmented(now.count, at_most, most.by, 0, False)
    best, moves = now.count, 0
    most_copies = limit if at_most is None else min(limit, at_most)
    snapshot = cluster.snapshot
    large_first = sorted(placements, key=lambda seen: (*(-n for n in size_of(snapshot, seen)), seen.pod))
    emptied = undone(cluster, placements)
    waiting = [emptied.snapshot.pods[seen.pod] for seen in placements]
    bare = without_pods(emptied, [seen.pod for seen in placements])
    packing = msgspec.structs.replace(context, options=msgspec.structs.replace(context.options, policy="pack"))

    def packed(copies: int) -> Rearranged | None:
        """So many copies first, then all pods that ran, large ones first."""
        for chosen in (packing, context):
            with_copies = filled(bare, demand, chosen, limit=copies)
            if with_copies.count == copies:
                back = with_pods(with_copies.cluster, waiting)
                for keep in (True, False):
                    found = decided_again(back, snapshot, large_first, chosen, keep=keep)
                    if not found.pending:
                        return found
        return None

    low, high = now.count, most_copies + 1
    step = 1
    while low + 1 < high:
        tried = min(low + step, high - 1)
        found = packed(tried)
        if found is None:
            high, step = tried, max(1, (tried - low) // 2)
        else:
            low, step = tried, step * 2
            best, moves = tried, len(found.moves)
            progress(best)
    return Defragmented(best, at_most, most.by, moves, True)


# ---- stranded


def _stranded(now: Filled, demand: PlannedDemand, context: SchedulingContext) -> Iterator[Stranded]:
    """Nodes that have devices for the next copy and too little of a resource for it."""
    refused = next((prediction for prediction in now.refused if prediction.refused is not None), None)
    if refused is None or now.beside is None:
        return
    snapshot = now.beside.snapshot
    pod = snapshot.pods[refused.pod]
    if not pod.spec.resource_claims:
        return
    found = 0
    for name in refused_by_resources(refused.nodes):
        roomy = _without_limits(snapshot, name)
        given = place_on(roomy, pod, name, context)
        if not isinstance(given, ScheduleResult) or found == STRANDED_MAX:
            continue
        found += 1
        yield _freed(now.beside, pod, name, context, free_on(snapshot, name))


def _without_limits(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot with room for any pod on one node: what then fits has its devices there."""
    node = snapshot.nodes[name]
    status = msgspec.structs.replace(node.status, allocatable=None)
    return apply(snapshot, Put("Node", msgspec.structs.replace(node, status=status)))


def free_on(snapshot: Snapshot, node: str) -> int:
    """Devices in the node's own pools that nobody holds."""
    return sum(
        1
        for name in keys_of(snapshot.slices_by_node, node)
        for device in snapshot.shapes[name].ids
        if not snapshot.holders.get(device)
    )


def missing_on(snapshot: Snapshot, pod: Pod, node: str) -> dict[str, int]:
    """What the node lacks for the pod, in nano-units."""
    limits = snapshot.nodes[node].status.allocatable or {}
    used = snapshot.requested.get(node, Map())
    lacking = {
        resource: amount - (limits[resource].nanos - used.get(resource, 0))
        for resource, amount in pod_requests(pod).items()
        if resource in limits
    }
    return {resource: amount for resource, amount in lacking.items() if amount > 0}


def _freed(cluster: ClusterState, pod: Pod, node: str, context: SchedulingContext, devices: int) -> Stranded:
    snapshot = cluster.snapshot
    missing = missing_on(snapshot, pod, node)
    texts = {resource: str(Quantity(amount)) for resource, amount in sorted(missing.items())}
    candidates = sorted(_movers(snapshot, node, missing), key=lambda key: _weight(snapshot, key))
    for key in candidates:
        seen = placement_seen(snapshot, snapshot.pods[key])
        if seen is None:
            continue
        cordoned = _cordoned(before(snapshot, [seen]), node)
        step = next(iter(steps(cordoned, units_of(cordoned, [key]), cluster.now, context)), None)
        target = (step.verdicts[0].node or "") if step is not None else ""
        gone = apply_all(snapshot, [Gone("Pod", *key)])
        if not isinstance(place_on(gone, pod, node, context), ScheduleResult):
            continue
        who = "/".join(key)
        where = f"move pod {who} to {target}" if target else f"remove pod {who}, which fits nowhere else"
        return Stranded(node, devices, texts, where, who, target)
    return Stranded(node, devices, texts, "", "", "")


def _movers(snapshot: Snapshot, node: str, missing: dict[str, int]) -> Iterator[NamespacedName]:
    """Pods of the node without devices whose requests cover what is missing."""
    for key in keys_of(snapshot.pods_by_node, node):
        pod = snapshot.pods[key]
        if is_movable(pod) and not claim_names(pod):
            needs = pod_requests(pod)
            if all(needs.get(resource, 0) >= amount for resource, amount in missing.items()):
                yield key


def _weight(snapshot: Snapshot, key: NamespacedName) -> tuple[int, int, NamespacedName]:
    needs = pod_requests(snapshot.pods[key])
    return needs.get("cpu", 0), needs.get("memory", 0), key


def _cordoned(snapshot: Snapshot, name: str) -> Snapshot:
    node = snapshot.nodes[name]
    spec = msgspec.structs.replace(node.spec, unschedulable=True)
    return apply(snapshot, Put("Node", msgspec.structs.replace(node, spec=spec)))


# ---- what there is, by class


def _classes(snapshot: Snapshot) -> tuple[tuple[ClassCapacity, ...], tuple[PartitionCapacity, ...]]:
    tally = ClusterTally()
    tally.advance(Snapshot.empty(), snapshot, [Put(kind, value) for kind, value in objects(snapshot)])
    numbers = {(family, labels): int(n) for family, labels, n in tally.values(0.0, max_nodes=0, by_namespace=False)}

    def of(family: str, *labels: str) -> int:
        return numbers.get((family, labels), 0)

    classes = tuple(
        ClassCapacity(
            name,
            of("dragoman_class_devices", name),
            of("dragoman_devices", name, "free"),
            of("dragoman_class_largest_group", name, "node"),
            of("dragoman_class_largest_group", name, "pcie_root"),
            of("dragoman_stranded_devices", name),
        )
        for name in sorted(snapshot.classes)
    )
    partitions = tuple(
        PartitionCapacity(labels[0], labels[1], number)
        for (family, labels), number in sorted(numbers.items())
        if family == "dragoman_partitions_available"
    )
    return classes, partitions
