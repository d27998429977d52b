"""Laws of allocation on small random clusters, against a plain search written from the rules."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.allocate.allocator import Allocation, AllocatorOptions, Ask, allocate
from dragoman.allocate.refusal import (
    AllModeConstraintUnsatisfied,
    PoolIncomplete,
    PoolInvalid,
    Refusals,
    SelectorError,
    TooManyDevices,
)
from dragoman.allocate.verify import verify
from dragoman.api.gates import gates_with
from tests.laws.oracle import Fatal, Oracle, TooLong
from tests.laws.worlds import SHARE, snapshot_of, world

GATES = gates_with({"DRAListTypeAttributes": True})[0]
OPTIONS = AllocatorOptions(gates=GATES)
SEEDS = st.integers(0, 2**40)


def ids():
    numbers = itertools.count(10**10)
    return lambda: SHARE.format(next(numbers))


def picks(answer: Allocation) -> list[list[tuple[str, tuple[str, str, str]]]]:
    return [[(r.request, (r.driver, r.pool, r.device)) for r in result.devices.results] for result in answer.results[0]]


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_same_devices_as_the_plain_search(seed: int) -> None:
    objects, claims = world(seed)
    snapshot = snapshot_of(objects)
    answer = allocate(snapshot, [Ask(tuple(claims), "node-0")], OPTIONS, share_id=ids())
    oracle = Oracle(snapshot, snapshot.nodes["node-0"], claims)
    try:
        expected = oracle.allocate()
    except TooLong:
        return
    except Fatal:
        # Upstream's error. Ours may know a no without reaching it, or skip a branch that cannot succeed.
        fatal = (SelectorError, AllModeConstraintUnsatisfied, PoolIncomplete, PoolInvalid, TooManyDevices)
        if isinstance(answer, Refusals) and not any(isinstance(reason, fatal) for reason in answer.reasons):
            assert not answer.undecided
        return
    if expected is None:
        assert isinstance(answer, Refusals), picks(answer)
        assert not answer.undecided
    else:
        assert isinstance(answer, Allocation), answer
        assert picks(answer) == expected


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_the_checker_accepts_every_allocation(seed: int) -> None:
    objects, claims = world(seed)
    snapshot = snapshot_of(objects)
    asks = [Ask(tuple(claims), "node-0")]
    answer = allocate(snapshot, asks, OPTIONS, share_id=ids())
    if isinstance(answer, Allocation):
        assert verify(snapshot, asks, answer, GATES) == ()


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_the_order_in_which_objects_arrive_is_irrelevant(seed: int) -> None:
    objects, claims = world(seed)
    shuffled = list(objects)
    Random(seed + 1).shuffle(shuffled)
    asks = [Ask(tuple(claims), "node-0")]
    first = allocate(snapshot_of(objects), asks, OPTIONS, share_id=ids())
    second = allocate(snapshot_of(shuffled), asks, OPTIONS, share_id=ids())
    assert first == second
