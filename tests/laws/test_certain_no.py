"""Every no on clusters of middle size is confirmed by an exact solver, where one is installed."""

from __future__ import annotations

import itertools
import os
from collections import Counter

import pytest

from dragoman.allocate.allocator import Allocation, AllocatorOptions, Ask, allocate
from dragoman.allocate.refusal import (
    AllModeConstraintUnsatisfied,
    PoolIncomplete,
    PoolInvalid,
    Refusals,
    SelectorError,
    Undecided,
)
from dragoman.api.gates import gates_with
from tests.laws.hard import hard
from tests.laws.oracle import Fatal, Oracle
from tests.laws.worlds import MIDDLE, SHARE, snapshot_of, world

pytest.importorskip("ortools", reason="the exact solver ortools is not installed")
from tests.laws.exact import Model

OPTIONS = AllocatorOptions(gates=gates_with({"DRAListTypeAttributes": True})[0])
ERRORS = (SelectorError, AllModeConstraintUnsatisfied, PoolIncomplete, PoolInvalid)
BATCH = 40


def ids():
    numbers = itertools.count(10**10)
    return lambda: SHARE.format(next(numbers))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_no_is_confirmed(first: int) -> None:
    outcomes = Counter(_confirmed(seed) for seed in range(first, first + 100))
    # What cannot be compared leaves enough that is.
    assert outcomes["no"] >= 25, outcomes
    assert outcomes["fits"] >= 3, outcomes
    assert outcomes["solver undecided"] + outcomes["gave up"] <= 3, outcomes


def _confirmed(seed: int) -> str:
    """Both answers, if they can be compared: the solver knows no admin access and no errors."""
    objects, claims = world(seed, size=MIDDLE)
    requests = [r for c in claims for r in c.spec.devices.requests]
    if any(r.exactly is not None and r.exactly.admin_access for r in requests):
        return "admin access"
    snapshot = snapshot_of(objects)
    answer = allocate(snapshot, [Ask(tuple(claims), "node-0")], OPTIONS, share_id=ids())
    if isinstance(answer, Undecided):
        return "gave up"
    if isinstance(answer, Refusals) and any(isinstance(r, ERRORS) for r in answer.reasons):
        return "error"
    try:
        feasible = Model(Oracle(snapshot, snapshot.nodes["node-0"], claims)).feasible()
    except Fatal:
        return "error there"
    if feasible is None:
        return "solver undecided"
    assert feasible is isinstance(answer, Allocation), seed
    return "fits" if feasible else "no"


HARD = int(os.environ.get("DRAGOMAN_HARD_CASES", "240"))
"""Claims made to be hard; more with DRAGOMAN_HARD_CASES=N."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, HARD, 2 * BATCH))
def test_claims_made_to_be_hard(first: int) -> None:
    """Every no is confirmed, every yes is checked by the allocator's checker, and hardly any is not decided."""
    undecided, confirmed, refused = [], 0, 0
    for seed in range(first, min(first + 2 * BATCH, HARD)):
        family, objects, claims = hard(seed)
        snapshot = snapshot_of(objects)
        answer = allocate(snapshot, [Ask(tuple(claims), "node-0")], OPTIONS, share_id=ids())
        if isinstance(answer, Allocation):
            continue
        if isinstance(answer, Undecided):
            undecided.append((family, seed))
            continue
        feasible = Model(Oracle(snapshot, snapshot.nodes["node-0"], claims)).feasible()
        assert feasible is not True, (family, seed)
        confirmed += feasible is False
        refused += 1
    assert len(undecided) <= 1, undecided
    # Hardly any is too hard for the solver, and enough are there to be confirmed.
    assert confirmed >= refused - 1
    assert refused >= (min(first + 2 * BATCH, HARD) - first) // 3
