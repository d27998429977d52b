"""How many copies fit? One after the other is created and decided by the scheduler, until one does not fit.

    found = filled(cluster, demand, context)
    found.count, found.cluster                # the copies that run, and the cluster with them
    found.refused                             # what became of the pods of the next one

The count is what this scheduler would reach in this order. It is a lower bound of what any order could reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dragoman.plan.demand import PlannedDemand, copied, order_of, pods_in
from dragoman.schedule.cycle import SchedulingContext
from dragoman.whatif.changes import PutObject, apply
from dragoman.whatif.cluster import ClusterState, Rejection
from dragoman.whatif.decide import PodPrediction, run
from dragoman.whatif.writes import limits_refused

BATCH_MAX = 256
COPIES_MAX = 100_000

CountProgress = Callable[[int], None]
"""Called with how many copies fit so far."""


def silent(done: int) -> None:
    """No progress is shown."""


class Filled(msgspec.Struct, frozen=True, eq=False):
    """How many copies fit. cluster: with them; refused, rejected: of the pods of the next copy, none if `limited`.

    partly: how many pods of the next copy would run all the same. beside: the cluster with the next copy, pending.
    """

    count: int
    cluster: ClusterState
    refused: tuple[PodPrediction, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    partly: int = 0
    limited: bool = False
    beside: ClusterState | None = None


class _Tried(msgspec.Struct, frozen=True, eq=False):
    cluster: ClusterState
    fitting: int
    refused: tuple[PodPrediction, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    partly: int = 0


def filled(
    cluster: ClusterState,
    demand: PlannedDemand,
    context: SchedulingContext,
    *,
    limit: int = COPIES_MAX,
    first: int = 1,
    progress: CountProgress = silent,
) -> Filled:
    """Copies number `first`, first + 1, ... until one does not fit or `limit` of them do. The cluster is settled."""
    count, batch = 0, 1
    # What a quota leaves depends on each object before, and gangs are to be decided one after the other.
    alone = bool(cluster.snapshot.quotas) or demand.pods > 1
    while count < limit:
        numbers = range(first + count, first + min(count + batch, limit))
        tried = _try(cluster, demand, numbers, context)
        if tried.fitting == len(numbers):
            cluster, count = tried.cluster, count + len(numbers)
            batch = 1 if alone else min(batch * 2, BATCH_MAX)
            progress(count)
        elif tried.fitting:
            batch = tried.fitting
        elif batch > 1:
            batch = 1
        else:
            return Filled(count, cluster, tried.refused, tried.rejected, tried.partly, beside=tried.cluster)
    return Filled(count, cluster, limited=True)


def _try(cluster: ClusterState, demand: PlannedDemand, numbers: Sequence[int], context: SchedulingContext) -> _Tried:
    """What becomes of these copies together; stops at the first pod that does not fit."""
    known = len(cluster.rejected)
    for fitting, number in enumerate(numbers):
        for change in copied(demand, number):
            assert isinstance(change, PutObject)
            rejection = limits_refused(cluster.snapshot, change.kind, change.object)
            if rejection is not None:
                return _Tried(cluster, fitting, rejected=(rejection,))
            cluster = apply(cluster, [change]).cluster
    refused: list[PodPrediction] = []
    mine = _owners(cluster, demand, numbers)
    for step in run(cluster, order_of(demand, numbers), context):
        assert step.cluster is not None
        cluster = step.cluster
        mine |= {} if all(v.pod in mine for v in step.verdicts) else _owners(cluster, demand, numbers)
        refused += [v for v in step.verdicts if v.node is None and v.pod in mine]
        if refused and (len(numbers) > 1 or demand.pods == len(step.verdicts)):
            break
    if refused:
        number = mine[refused[0].pod]
        return _tried(cluster, demand, numbers, number, tuple(refused), known)
    for number in numbers:
        pods = pods_in(cluster, demand, number)
        if len(pods) < demand.pods:
            return _tried(cluster, demand, numbers, number, (), known)
    return _Tried(cluster, len(numbers))


def _tried(
    cluster: ClusterState,
    demand: PlannedDemand,
    numbers: Sequence[int],
    number: int,
    refused: tuple[PodPrediction, ...],
    known: int,
) -> _Tried:
    pods = cluster.snapshot.pods
    partly = sum(1 for key in pods_in(cluster, demand, number) if pods[key].spec.node_name)
    return _Tried(cluster, number - numbers[0], refused, cluster.rejected[known:], partly)


def _owners(cluster: ClusterState, demand: PlannedDemand, numbers: Sequence[int]) -> dict[tuple[str, str], int]:
    return {key: number for number in numbers for key in pods_in(cluster, demand, number)}
