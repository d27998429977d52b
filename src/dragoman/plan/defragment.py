"""Which fewest restarts make room for one more? Sets of running pods are undone, smallest first, until it fits.

A set counts if the demand then fits and all pods of the set get a node again, by the scheduler's own decisions (with
first-fit and with pack). `fewest` says that every smaller set was tried; in large clusters, where there are too many,
only pods of one node are tried together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

import msgspec

from dragoman.plan.blocked import Block, blocks_of
from dragoman.plan.demand import PlannedDemand, pods_in
from dragoman.plan.fill import CountProgress, filled, silent
from dragoman.plan.moves import Move, decided_again, movable, size_of, undone, with_pods, without_pods
from dragoman.schedule.cycle import SchedulingContext, is_waiting
from dragoman.snapshot.change import Snapshot
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.compare import ObservedPlacement

RESTARTS_MAX = 4
TRIES_MAX = 2_000
"""Sets of one size that are tried."""


class Placed(msgspec.Struct, frozen=True):
    """Where a pod of the demand runs then."""

    pod: str
    node: str


class Defragmentation(msgspec.Struct, frozen=True):
    """The answer. found: whether restarts make room; restarts: how many pods; fewest: all smaller sets were tried.

    tries: sets that were decided. blocks: what is in the way as it is.
    """

    demand: str
    found: bool
    restarts: int
    fewest: bool
    moves: tuple[Move, ...]
    placed: tuple[Placed, ...]
    tries: int
    blocks: tuple[Block, ...]


def defragmentation(
    cluster: ClusterState,
    demand: PlannedDemand,
    context: SchedulingContext,
    *,
    restarts_max: int = RESTARTS_MAX,
    tries_max: int = TRIES_MAX,
    progress: CountProgress = silent,
) -> Defragmentation:
    """The fewest restarts for one copy of the demand in a settled cluster."""
    context = msgspec.structs.replace(context, preemption="off")
    waiting = [key for key, pod in cluster.snapshot.pods.items() if is_waiting(pod)]
    cluster = without_pods(cluster, waiting)
    now = filled(cluster, demand, context, limit=1)
    if now.count:
        return Defragmentation(demand.title, True, 0, True, (), _where(now.cluster, demand), 1, ())
    blocks = blocks_of(now.refused, now.rejected)
    snapshot = cluster.snapshot
    some = sorted(movable(snapshot), key=lambda seen: (size_of(snapshot, seen), seen.pod))
    tries, complete = 1, True
    for size in range(1, min(restarts_max, len(some)) + 1):
        whole = comb(len(some), size) <= tries_max
        for chosen in _sets(some, size, tries_max, whole=whole):
            tries += 1
            progress(tries)
            found = _with(cluster, demand, chosen, snapshot, context)
            if found is not None:
                after, moves = found
                return Defragmentation(
                    demand.title, True, len(moves), complete, moves, _where(after, demand), tries, blocks
                )
        complete = complete and whole
    complete = complete and len(some) <= restarts_max
    return Defragmentation(demand.title, False, 0, complete, (), (), tries, blocks)


def _sets(
    some: Sequence[ObservedPlacement], size: int, most: int, *, whole: bool
) -> Iterator[tuple[ObservedPlacement, ...]]:
    if whole:
        yield from combinations(some, size)
        return
    left = most
    for node in sorted({seen.node for seen in some}):
        for chosen in combinations([seen for seen in some if seen.node == node], size):
            if not left:
                return
            left -= 1
            yield chosen


def _with(
    cluster: ClusterState,
    demand: PlannedDemand,
    chosen: Sequence[ObservedPlacement],
    was: Snapshot,
    context: SchedulingContext,
) -> tuple[ClusterState, tuple[Move, ...]] | None:
    """The cluster with the copy and all of the chosen pods placed, or None."""
    emptied = undone(cluster, chosen)
    waiting = [emptied.snapshot.pods[seen.pod] for seen in chosen]
    bare = without_pods(emptied, [seen.pod for seen in chosen])
    large_first = sorted(chosen, key=lambda seen: (*(-n for n in size_of(was, seen)), seen.pod))
    for policy in ("first-fit", "pack"):
        options = msgspec.structs.replace(context.options, policy=policy)
        trying = msgspec.structs.replace(context, options=options)
        then = filled(bare, demand, trying, limit=1)
        if then.count:
            found = decided_again(with_pods(then.cluster, waiting), was, large_first, trying, keep=True)
            if not found.pending:
                return found.cluster, found.moves
    return None


def _where(cluster: ClusterState, demand: PlannedDemand) -> tuple[Placed, ...]:
    pods = cluster.snapshot.pods
    return tuple(Placed("/".join(key), pods[key].spec.node_name) for key in pods_in(cluster, demand, 1))
