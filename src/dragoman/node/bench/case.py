"""What is one case of the bench? A name, what the protocol demands, and the steps that show what a driver does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from dragoman.node.bench.bed import Bed

CaseSteps = Callable[[Bed], Awaitable[None]]


class Case(msgspec.Struct, frozen=True):
    """One case. alone: it gets a bed of its own, on which nothing was started yet, and starts and kills as it likes."""

    name: str
    title: str
    demand: str
    source: str
    run: CaseSteps
    alone: bool = False


def case(name: str, title: str, demand: str, source: str, *, alone: bool = False) -> Callable[[CaseSteps], Case]:
    """Make a Case of a coroutine function that raises Defect or NotApplicable."""
    return lambda steps: Case(name, title, demand, source, steps, alone)
