"""Which nodes are to be bought so that a demand fits, at the least price? Verified by adding them in simulation.

    found = purchase(cluster, demands, shapes, context)

What fits on the cluster as it is needs no new node. For the rest, every way to fill one empty node of each shape is
asked of the scheduler; an integer program (`plan.cover`) chooses among them; then the nodes are added and the scheduler
decides the whole demand once more. Gangs count pod by pod in the program and whole in the verification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.core import Node
from dragoman.api.meta import NamespacedName
from dragoman.plan.blocked import Block, blocks_of
from dragoman.plan.cover import Cover, Limit, NoCover, Pattern, cover, undominated
from dragoman.plan.demand import PlannedDemand, copied, order_of, pod_needs, pods_in, single_pods
from dragoman.plan.fill import CountProgress, filled, silent
from dragoman.schedule.cycle import SchedulingContext
from dragoman.snapshot.change import Put, Snapshot, apply_all, keys_of
from dragoman.values.quantity import Quantity
from dragoman.whatif.changes import HOSTNAME, PutObject, apply, free_name, node_like
from dragoman.whatif.cluster import ClusterState, bring, objects
from dragoman.whatif.decide import run
from dragoman.whatif.settle import settled
from dragoman.whatif.units import Named

PATTERNS_MAX = 3_000
"""Ways to fill one node that are looked at for each shape; beyond that the answer is not called exact."""
PER_NODE_MAX = 300
_SHARED = frozenset(
    {"ResourceClaimTemplate", "DeviceClass", "DeviceTaintRule", "Namespace", "PriorityClass", "DaemonSet"}
)
"""What an empty node meets beside the pods that are planned for."""


class OfferedShape(msgspec.Struct, frozen=True, eq=False):
    """A node shape for sale: the objects of one node named `node`, price in millionths an hour, limits.

    most: of this shape; pool: the node pool whose limits count, "" for none.
    """

    name: str
    node: str
    objects: tuple[tuple[str, Any], ...]
    price: int
    most: int | None = None
    pool: str = ""


class WantedCopies(msgspec.Struct, frozen=True):
    """A demand and how many copies of it are to run."""

    demand: PlannedDemand
    copies: int


class Bought(msgspec.Struct, frozen=True):
    """So many nodes of a shape. price: millionths an hour for all of them. pods: by demand, for which they are."""

    shape: str
    nodes: int
    price: int
    pods: dict[str, int]


class UnfitShape(msgspec.Struct, frozen=True):
    """A shape on which not one pod of a demand fits, and why."""

    shape: str
    demand: str
    blocks: tuple[Block, ...]


class ServedDemand(msgspec.Struct, frozen=True):
    """A demand: pods wanted, pods that fit on the cluster as it is, pods that new nodes are bought for."""

    demand: str
    pods: int
    fit_now: int
    to_buy_for: int


class Purchase(msgspec.Struct, frozen=True):
    """The whole answer. bound: no purchase costs less; exact: nor than this one. Prices in millionths an hour.

    possible: False if no purchase serves the demand: `never` lists demands that fit on no shape, `reason` says more.
    verified: the scheduler placed all with the nodes added; verified_by: how; pending: pods that it did not place.
    """

    currency: str
    demands: tuple[ServedDemand, ...]
    unfit: tuple[UnfitShape, ...]
    never: tuple[str, ...]
    possible: bool
    reason: str
    bought: tuple[Bought, ...]
    price: int
    bound: int
    exact: bool
    method: str
    verified: bool
    verified_by: str
    pending: tuple[str, ...]


class _Filling(msgspec.Struct, frozen=True, eq=False):
    patterns: tuple[Pattern, ...]
    complete: bool
    unfit: tuple[UnfitShape, ...]


def purchase(
    cluster: ClusterState,
    wanted: Sequence[WantedCopies],
    shapes: Sequence[OfferedShape],
    context: SchedulingContext,
    *,
    order: Sequence[Named] = (),
    limits: Mapping[str, Mapping[str, str | int]] | None = None,
    currency: str = "",
    solver: bool = True,
    progress: CountProgress = silent,
) -> Purchase:
    """The cheapest purchase for a settled cluster, whose own pending pods come first, in `order`."""
    context = msgspec.structs.replace(context, preemption="off")
    for step in run(cluster, order, context):
        assert step.cluster is not None
        cluster = step.cluster
    singles = [(single, one.copies * number) for one in wanted for single, number in single_pods(one.demand)]
    demands, left = [], []
    now = cluster
    for single, number in singles:
        found = filled(now, single, context, limit=number) if number and now.snapshot.nodes else None
        fit = found.count if found is not None else 0
        now = found.cluster if found is not None else now
        demands.append(ServedDemand(single.title, number, fit, number - fit))
        left.append(number - fit)
    fillings = []
    for done, shape in enumerate(shapes):
        progress(done)
        fillings.append(_filling(cluster, [single for single, _ in singles], left, shape, context))
    unfit = tuple(one for filling in fillings for one in filling.unfit)
    titles = [single.title for single, _ in singles]
    if not any(left):
        plan = Cover((), 0, 0, True, "none needed")
        chosen: list[tuple[OfferedShape, Pattern, int]] = []
    else:
        named = [(shape, p) for shape, filling in zip(shapes, fillings, strict=True) for p in filling.patterns]
        rules = list(_limits([shape for shape, _ in named], limits or {}))
        result = cover([p for _, p in named], left, rules, solver=solver)
        if isinstance(result, NoCover):
            never = tuple(titles[i] for i in result.short) if result.certain else ()
            reason = _why_not(result, titles)
            return Purchase(
                currency, tuple(demands), unfit, never, False, reason, (), 0, 0, False, result.method, False, "", ()
            )
        plan = result
        chosen = [(shape, p, n) for (shape, p), n in zip(named, plan.counts, strict=True) if n]
    complete = all(filling.complete for filling in fillings)
    bought = tuple(_bought(chosen, titles))
    nodes = {shape.name: 0 for shape in shapes}
    for shape, _, number in chosen:
        nodes[shape.name] += number
    by, pending = _verified(cluster, wanted, [(shape, nodes[shape.name]) for shape in shapes], context)
    return Purchase(
        currency,
        tuple(demands),
        unfit,
        (),
        True,
        "",
        bought,
        plan.cost,
        plan.bound if complete else 0,
        plan.exact and complete,
        plan.method,
        not pending,
        by,
        pending,
    )


def _why_not(result: NoCover, titles: Sequence[str]) -> str:
    if result.short and result.certain:
        return f"{', '.join(titles[i] for i in result.short)} fits on no shape"
    if result.certain:
        return "the limits of shapes and pools leave too few nodes"
    return "no purchase within the limits was found; with the extra `plan` (ortools) the search is complete"


def _bought(chosen: Sequence[tuple[OfferedShape, Pattern, int]], titles: Sequence[str]) -> Iterator[Bought]:
    for name in dict.fromkeys(shape.name for shape, _, _ in chosen):
        mine = [(shape, pattern, n) for shape, pattern, n in chosen if shape.name == name]
        pods = {t: sum(p.gives[i] * n for _, p, n in mine) for i, t in enumerate(titles)}
        number = sum(n for _, _, n in mine)
        yield Bought(name, number, mine[0][0].price * number, {t: n for t, n in pods.items() if n})


def _limits(shapes: Sequence[OfferedShape], pools: Mapping[str, Mapping[str, str | int]]) -> Iterator[Limit]:
    for name in dict.fromkeys(shape.name for shape in shapes):
        mine = [index for index, shape in enumerate(shapes) if shape.name == name]
        most = shapes[mine[0]].most
        if most is not None:
            yield Limit(tuple((index, 1) for index in mine), most)
    for pool, amounts in pools.items():
        inside = [(index, amounts_of(shape)) for index, shape in enumerate(shapes) if shape.pool == pool]
        for resource, amount in amounts.items():
            weights = tuple((index, has[resource]) for index, has in inside if has.get(resource))
            if weights:
                yield Limit(weights, Quantity.parse(str(amount)).nanos)


def amounts_of(shape: OfferedShape) -> dict[str, int]:
    """What limits of a pool count of one node, in nano-units: its capacity, `nodes`, `devices`."""
    found: dict[str, int] = {"nodes": 10**9, "devices": 0}
    for kind, value in shape.objects:
        if kind == "Node":
            amounts = value.status.capacity or value.status.allocatable or {}
            found |= {name: amount.nanos for name, amount in amounts.items()}
        elif kind == "ResourceSlice":
            found["devices"] += len(value.spec.devices) * 10**9
    return found


# ---- how one node can be filled


def _filling(
    cluster: ClusterState,
    singles: Sequence[PlannedDemand],
    left: Sequence[int],
    shape: OfferedShape,
    context: SchedulingContext,
) -> _Filling:
    """Every maximal way to fill an empty node of the shape, as the scheduler fills it: large pods first."""
    alone = _empty(cluster, shape, context)
    unfit = []
    for single, number in zip(singles, left, strict=True):
        if number:
            found = filled(alone, single, context, limit=1)
            if not found.count:
                unfit.append(UnfitShape(shape.name, single.title, blocks_of(found.refused, found.rejected)))
    impossible = {one.demand for one in unfit}
    order = [i for i, single in enumerate(singles) if left[i] and single.title not in impossible]
    order.sort(key=lambda i: _weight(alone.snapshot, singles[i]), reverse=True)
    patterns: dict[tuple[int, ...], None] = {}
    is_cut = False

    def extend(state: ClusterState, at: int, counts: tuple[int, ...]) -> None:
        nonlocal is_cut
        if len(patterns) >= PATTERNS_MAX:
            is_cut = True
            return
        if at == len(order):
            if any(counts):
                gives = [0] * len(singles)
                for index, number in zip(order, counts, strict=True):
                    gives[index] = number
                patterns[tuple(gives)] = None
            return
        states = [state]
        is_last = at == len(order) - 1
        single, most = singles[order[at]], min(left[order[at]], PER_NODE_MAX)
        if is_last:
            found = filled(state, single, context, limit=most)
            extend(found.cluster, at + 1, (*counts, found.count))
            return
        while len(states) <= most:
            found = filled(states[-1], single, context, limit=1, first=len(states))
            if not found.count:
                break
            states.append(found.cluster)
        for number in range(len(states) - 1, -1, -1):
            extend(states[number], at + 1, (*counts, number))

    if order:
        extend(alone, 0, ())
    made = undominated([Pattern(gives, shape.price) for gives in patterns])
    return _Filling(tuple(made), not is_cut, tuple(unfit))


def _weight(snapshot: Snapshot, single: PlannedDemand) -> tuple[int, int, int]:
    needs = next(pod for pod, _ in pod_needs(single))
    devices = 0
    for namespace, template, number in single.templates:
        made = snapshot.templates.get((namespace, template))
        for request in made.spec.spec.devices.requests if made is not None else ():
            devices += number * ((request.exactly.count or 1) if request.exactly is not None else 1)
    return devices, needs.get("cpu", 0), needs.get("memory", 0)


def _empty(cluster: ClusterState, shape: OfferedShape, context: SchedulingContext) -> ClusterState:
    """A cluster of one empty node of the shape, with the pods that DaemonSets put there."""
    shared = [(kind, value) for kind, value in objects(cluster.snapshot) if kind in _SHARED]
    snapshot = Snapshot.from_objects([*shared, *shape.objects])
    alone = settled(bring(snapshot, cluster.now))
    for step in run(alone, (), context):
        assert step.cluster is not None
        alone = step.cluster
    return alone


# ---- verification


def with_nodes(cluster: ClusterState, shape: OfferedShape, number: int) -> ClusterState:
    """The cluster with so many nodes of a shape more."""
    if not number:
        return cluster
    scratch = apply_all(Snapshot.empty(), [Put(kind, value) for kind, value in shape.objects])
    changes: list[PutObject] = [PutObject(k, v) for k, v in shape.objects if k == "DeviceClass"]
    taken = cluster.snapshot
    for index in range(number):
        name = free_name(taken, f"new-{shape.name}-{index + 1}")
        changes += node_like(scratch, shape.node, name)
    return apply(cluster, changes).cluster


def _verified(
    cluster: ClusterState,
    wanted: Sequence[WantedCopies],
    bought: Sequence[tuple[OfferedShape, int]],
    context: SchedulingContext,
) -> tuple[str, tuple[str, ...]]:
    """How the scheduler places all of it with the nodes added; else the pods that it leaves pending."""
    for shape, number in bought:
        cluster = with_nodes(cluster, shape, number)
    weight = {id(one): _demand_weight(cluster.snapshot, one.demand) for one in wanted}
    large_first = sorted(wanted, key=lambda one: weight[id(one)], reverse=True)
    best: tuple[str, ...] | None = None
    for policy in dict.fromkeys((context.options.policy, "pack")):
        for how, ordered in (("in the order given", wanted), ("large pods first", large_first)):
            options = msgspec.structs.replace(context.options, policy=policy)
            pending = _pending(cluster, ordered, msgspec.structs.replace(context, options=options))
            if not pending:
                return f"policy {policy}, {how}", ()
            best = pending if best is None or len(pending) < len(best) else best
    return "", best or ()


def _demand_weight(snapshot: Snapshot, demand: PlannedDemand) -> tuple[int, int, int]:
    return max((_weight(snapshot, single) for single, _ in single_pods(demand)), default=(0, 0, 0))


def _pending(cluster: ClusterState, wanted: Sequence[WantedCopies], context: SchedulingContext) -> tuple[str, ...]:
    mine: list[tuple[PlannedDemand, range]] = []
    first = 1
    for one in wanted:
        numbers = range(first, first + one.copies)
        first += one.copies
        mine.append((one.demand, numbers))
        for number in numbers:
            cluster = apply(cluster, list(copied(one.demand, number))).cluster
    order = [named for demand, numbers in mine for named in order_of(demand, numbers)]
    for step in run(cluster, order, context):
        assert step.cluster is not None
        cluster = step.cluster
    pending: list[NamespacedName] = []
    for demand, numbers in mine:
        for number in numbers:
            keys = pods_in(cluster, demand, number)
            pending += [key for key in keys if not cluster.snapshot.pods[key].spec.node_name]
            pending += [("", f"{demand.title} copy {number}: pod not created")] * max(0, demand.pods - len(keys))
    return tuple("/".join(filter(None, key)) for key in pending)


def shape_like(snapshot: Snapshot, node: str) -> tuple[tuple[str, Any], ...]:
    """The objects of an existing node, empty, as a shape."""
    slices = [("ResourceSlice", snapshot.slices[name]) for name in keys_of(snapshot.slices_by_node, node)]
    return (("Node", snapshot.nodes[node]), *slices)


def labelled(value: Node, labels: Mapping[str, str], taints: Sequence[str]) -> Node:
    """The node with more labels and taints (`key=value:Effect`)."""
    body = codec.to_json(value)
    meta = body.setdefault("metadata", {})
    meta["labels"] = {**meta.get("labels", {}), HOSTNAME: meta["name"], **labels}
    more = []
    for text in taints:
        pair, _, effect = text.rpartition(":")
        key, _, given = pair.partition("=")
        more.append({"key": key, "effect": effect, **({"value": given} if given else {})})
    if more:
        spec = body.setdefault("spec", {})
        spec["taints"] = [*(spec.get("taints") or ()), *more]
    made: Node = codec.decode(Node, body)
    return made
