"""What do the plan commands do? Read, ask `dragoman.plan`, print."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from dragoman.cli import plan_input
from dragoman.errors import Invalid
from dragoman.plan import text
from dragoman.plan.capacity import capacity


def _capacity(args: argparse.Namespace) -> int:
    for flag, value, least in (("--limit", args.limit, 1), ("--repack-limit", args.repack_limit, 0)):
        if value < least:
            raise Invalid(flag, f"must be {least} or more, got {value}")
    found = plan_input.read(args)
    demand = found.demand()
    with plan_input.counting("fit so far") as progress:
        answer = capacity(
            found.cluster,
            demand,
            found.context,
            order=found.order,
            limit=args.limit,
            repack_max=args.repack_limit,
            progress=progress,
        )
    plan_input.show(args, "CapacityPlan", answer, list(text.capacity_sections(answer)))
    return 0 if answer.fits else 1


RUN: dict[str, Callable[[argparse.Namespace], int]] = {"capacity": _capacity}
