"""Which patterns, how often, cover a demand at the least cost? One integer program, for node shapes and MIG layouts.

    found = cover(patterns, wanted=(12, 3), limits=[Limit((0, 1), 10)])
    found.counts, found.cost, found.bound, found.exact, found.method

With ortools (extra `plan`) the answer is exact where the search ends, else a cover and a lower bound. Without it, the
method is `greedy`: a cover, and the bound that follows from the cheapest way to serve each item.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec

EFFORT = 20.0
"""Deterministic time of CP-SAT: about seconds on a slow core, the same answer on any."""


class Pattern(msgspec.Struct, frozen=True):
    """What one more of it gives of each item, and costs, in whole units."""

    gives: tuple[int, ...]
    cost: int


class Limit(msgspec.Struct, frozen=True):
    """The sum of weight times count over (pattern, weight) is at most `most`."""

    weights: tuple[tuple[int, int], ...]
    most: int


class Cover(msgspec.Struct, frozen=True):
    """How often each pattern. bound: no cover costs less; exact: this one costs that. method: cp-sat or greedy."""

    counts: tuple[int, ...]
    cost: int
    bound: int
    exact: bool
    method: str


class NoCover(msgspec.Struct, frozen=True):
    """No cover was found. certain: there is none, since limits or missing patterns forbid it. short: items missing."""

    certain: bool
    method: str
    short: tuple[int, ...]


def cover(
    patterns: Sequence[Pattern], wanted: Sequence[int], limits: Sequence[Limit] = (), *, solver: bool = True
) -> Cover | NoCover:
    """The cheapest cover of `wanted`. solver: False does without ortools."""
    never = tuple(i for i, n in enumerate(wanted) if n and not any(p.gives[i] for p in patterns))
    if never:
        return NoCover(True, "", never)
    model = _cp_model() if solver else None
    return _greedy(patterns, wanted, limits) if model is None else _exact(model, patterns, wanted, limits)


def _cp_model() -> Any:
    """ortools' module, None where it is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return None
    return cp_model


def _exact(
    cp_model: Any, patterns: Sequence[Pattern], wanted: Sequence[int], limits: Sequence[Limit]
) -> Cover | NoCover:
    model = cp_model.CpModel()
    most = [
        max((ceil(Fraction(n, p.gives[i])) for i, n in enumerate(wanted) if n and p.gives[i]), default=0)
        for p in patterns
    ]
    counts = [model.NewIntVar(0, top, f"p{index}") for index, top in enumerate(most)]
    for item, number in enumerate(wanted):
        if number:
            model.Add(sum(c * p.gives[item] for c, p in zip(counts, patterns, strict=True) if p.gives[item]) >= number)
    for limit in limits:
        model.Add(sum(counts[index] * weight for index, weight in limit.weights) <= limit.most)
    model.Minimize(sum(c * p.cost for c, p in zip(counts, patterns, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = EFFORT
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.Solve(model)
    if status == cp_model.INFEASIBLE:
        return NoCover(True, "cp-sat", ())
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return _greedy(patterns, wanted, limits)
    chosen = tuple(int(solver.Value(count)) for count in counts)
    cost = sum(n * p.cost for n, p in zip(chosen, patterns, strict=True))
    exact = status == cp_model.OPTIMAL
    bound = cost if exact else max(_bound(patterns, wanted), ceil(solver.BestObjectiveBound() - 1e-6))
    return Cover(chosen, cost, bound, exact, "cp-sat")


def _bound(patterns: Sequence[Pattern], wanted: Sequence[int]) -> int:
    """No cover costs less than the cheapest way to serve one item alone."""
    least = [min((Fraction(p.cost, p.gives[i]) for p in patterns if p.gives[i]), default=0) for i in range(len(wanted))]
    return max((ceil(n * least[i]) for i, n in enumerate(wanted)), default=0)


def _greedy(patterns: Sequence[Pattern], wanted: Sequence[int], limits: Sequence[Limit]) -> Cover | NoCover:
    """Again and again the pattern that serves most for its cost, items weighed by what they cost at least."""
    left = list(wanted)
    fair = [
        min((Fraction(max(p.cost, 1), p.gives[i]) for p in patterns if p.gives[i]), default=Fraction(0))
        for i in range(len(wanted))
    ]
    left_of = [limit.most for limit in limits]
    counts = [0] * len(patterns)
    while any(n > 0 for n in left):
        best, gain = -1, Fraction(0)
        for index, pattern in enumerate(patterns):
            if any(w > left_of[n] for n, limit in enumerate(limits) for at, w in limit.weights if at == index):
                continue
            served = sum((fair[i] * min(pattern.gives[i], n) for i, n in enumerate(left) if n > 0), Fraction(0))
            value = served / max(pattern.cost, 1)
            if value > gain:
                best, gain = index, value
        if best < 0:
            return NoCover(False, "greedy", tuple(i for i, n in enumerate(left) if n > 0))
        counts[best] += 1
        left = [n - g for n, g in zip(left, patterns[best].gives, strict=True)]
        for n, limit in enumerate(limits):
            left_of[n] -= sum(w for at, w in limit.weights if at == best)
    # What later ones made superfluous is given back, the dearest first.
    for index in sorted(range(len(patterns)), key=lambda at: -patterns[at].cost):
        gives = patterns[index].gives
        while counts[index] and all(n + g <= 0 for n, g in zip(left, gives, strict=True)):
            counts[index] -= 1
            left = [n + g for n, g in zip(left, gives, strict=True)]
    cost = sum(n * p.cost for n, p in zip(counts, patterns, strict=True))
    bound = _bound(patterns, wanted)
    return Cover(tuple(counts), cost, bound, cost == bound, "greedy")


def undominated(patterns: Sequence[Pattern]) -> list[Pattern]:
    """Without patterns that give no more of anything than another that costs no more."""
    kept: list[Pattern] = []
    for pattern in sorted(set(patterns), key=lambda p: (p.cost, tuple(-g for g in p.gives))):
        if not any(_is_less(pattern, other) for other in kept):
            kept.append(pattern)
    return kept


def _is_less(one: Pattern, other: Pattern) -> bool:
    return other.cost <= one.cost and all(a <= b for a, b in zip(one.gives, other.gives, strict=True))
