"""What do the plan commands do? Read, ask `dragoman.plan`, print."""

from __future__ import annotations

import argparse
import asyncio
import difflib
from collections.abc import Callable
from typing import Any

from dragoman.cli import output, plan_input
from dragoman.drivers.entry import DriverPlan
from dragoman.errors import Invalid, NotFound
from dragoman.plan import text
from dragoman.plan.buy import OfferedShape, WantedCopies, labelled, purchase, shape_like
from dragoman.plan.capacity import capacity
from dragoman.plan.catalogue import PriceList, price_list
from dragoman.plan.demand import PlannedDemand, parted


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


# ---- buy


def _buy(args: argparse.Namespace) -> int:
    try:
        prices = price_list(str(args.prices), args.prices.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"--prices {args.prices}", f"cannot be read: {getattr(error, 'strerror', error)}") from None
    found = plan_input.read(args)
    wanted = _copies(args.copies, parted(found.wanted))
    shapes = asyncio.run(_shapes(args, prices, found))
    with plan_input.counting("shapes filled") as progress:
        answer = purchase(
            found.cluster,
            wanted,
            shapes,
            found.context,
            order=found.order,
            limits={pool.name: pool.limits for pool in prices.pools},
            currency=prices.currency,
            solver=not args.no_solver,
            progress=progress,
        )
    plan_input.show(args, "PurchasePlan", answer, list(text.purchase_sections(answer)))
    return 0 if answer.possible and answer.verified else 1


def _copies(texts: list[str], demands: list[PlannedDemand]) -> list[WantedCopies]:
    if not demands:
        raise Invalid("-f", "holds no pod, workload or claim to plan for that is not in the cluster already")
    every, named = 1, {}
    for given in texts:
        name, equals, number = given.rpartition("=")
        if not number.isdigit() or int(number) > 100_000:
            raise Invalid(f"--copies {given}", "must be N or NAME=N, with N up to 100000")
        if equals:
            named[name] = int(number)
        else:
            every = int(number)
    names = {demand.title: {part.rpartition("/")[2] for part in demand.title.split(", ")} for demand in demands}
    known = {name for some in names.values() for name in some}
    for name in named:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(sorted(known))}"
            raise NotFound(f"--copies {name}: no pod, workload or claim of that name is in the manifests{hint}")
    return [
        WantedCopies(demand, next((named[name] for name in sorted(names[demand.title]) if name in named), every))
        for demand in demands
    ]


async def _shapes(args: argparse.Namespace, prices: PriceList, found: plan_input.PlanInput) -> list[OfferedShape]:
    from dragoman.daemon.published import published  # drivers are imported only to buy

    shapes = []
    snapshot = found.cluster.snapshot
    for shape in prices.shapes:
        where = f"{args.prices}, shape {shape.title}"
        if shape.profile:
            try:
                objects = await published(shape.profile, "shape", tuple(args.profile_file))
            except Invalid as error:
                raise Invalid(where, str(error).partition(": ")[2] or str(error)) from None
        elif shape.like_node in snapshot.nodes:
            objects = shape_like(snapshot, shape.like_node)
        else:
            raise NotFound(f"{where}: node {shape.like_node} does not exist in the cluster")
        made: list[tuple[str, Any]] = []
        node = ""
        for kind, value in objects:
            if kind == "Node":
                node = value.metadata.name
                value = labelled(value, shape.labels, shape.taints)
            if kind != "DeviceClass" or value.metadata.name not in snapshot.classes:
                made.append((kind, value))
        shapes.append(OfferedShape(shape.title, node, tuple(made), shape.price, shape.most, shape.pool))
    return shapes


# ---- plans of drivers


def driver_plan(plan: DriverPlan, args: argparse.Namespace) -> int:
    """The plan of a driver; --file-only prints what it makes for others."""
    result, sections, file, good = plan.run(args)
    if args.file_only:
        output.write(file.rstrip())
    else:
        plan_input.show(args, plan.kind, result, sections)
    return 0 if good else 1


RUN: dict[str, Callable[[argparse.Namespace], int]] = {"capacity": _capacity, "buy": _buy}
