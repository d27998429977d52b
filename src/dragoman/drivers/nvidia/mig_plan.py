"""`dragoman plan mig`: MIG layouts for a mix of instances, as a file for mig-parted (`dragoman.plan.mig`)."""

from __future__ import annotations

import argparse
from typing import Any

from dragoman.errors import Invalid
from dragoman.plan.mig import mig_plan
from dragoman.plan.report import Section
from dragoman.plan.text import mig_sections
from dragoman.profiles import Catalog, GpuModel


def run(args: argparse.Namespace) -> tuple[Any, list[Section], str, bool]:
    """The plan. Raises Invalid."""
    if args.per_node < 1:
        raise Invalid("--per-node", f"must be 1 or more, got {args.per_node}")
    if args.gpus is not None and args.gpus < 0:
        raise Invalid("--gpus", f"must be 0 or more, got {args.gpus}")
    catalog = Catalog.packaged()
    for file in args.profile_file:
        catalog = catalog.adding(file)
    model = _model(args.model, catalog)
    answer = mig_plan(
        catalog.mig_shapes(model),
        _mix(args.mix),
        model.name,
        per_node=args.per_node,
        available=args.gpus,
        solver=not args.no_solver,
    )
    return answer, list(mig_sections(answer)), answer.config, args.gpus is None or answer.gpus <= args.gpus


def _model(wanted: str, catalog: Catalog) -> GpuModel:
    """By its full name, by a machine profile, or by a part of the name that only one model has."""
    if wanted in catalog.gpus:
        return catalog.gpus[wanted]
    profile = catalog.profile(wanted)
    if profile is not None and profile.gpus:
        return catalog.gpu_models(profile)[0]
    matching = [model for name, model in sorted(catalog.gpus.items()) if wanted.lower() in name.lower() and model.mig]
    tables = {model.mig for model in matching}
    if len(tables) == 1:
        return matching[0]
    names = [model.name for model in matching] or [name for name, model in sorted(catalog.gpus.items()) if model.mig]
    what = "several models have that in their names" if matching else "no GPU model or machine profile of that name"
    raise Invalid(f"--model {wanted}", f"{what}: {', '.join(names)}")


def _mix(given: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in given.split(","):
        name, _, number = part.strip().partition("=")
        if not name or not number.isdigit() or int(number) > 100_000:
            raise Invalid(f"--mix {given}", f"must be PROFILE=N[,...], with N up to 100000, got {part.strip()!r}")
        found[name] = found.get(name, 0) + int(number)
    return found
