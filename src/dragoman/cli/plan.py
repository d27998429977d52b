"""`dragoman plan`: what fits, what to buy, in which order to change? Over a dump or a live cluster, read only.

Flags only; what is done with them is in `plan_run`, so that --help is fast.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dragoman.cli import plan_input
from dragoman.drivers.registry import driver_plans

EXAMPLES = """\
examples:
  dragoman plan capacity -f dump.yaml -f train.yaml    how many more of it fit, and what blocks the next one
  dragoman plan capacity --live -f train.yaml          the same on the cluster of the kubeconfig
  dragoman plan buy -f dump.yaml -f train.yaml --copies 20 --prices hourly.yaml
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which plan."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_subparsers(dest="what", required=True, metavar="PLAN", parser_class=type(parser))
    _capacity(what.add_parser("capacity", help="how many more fit, now and if fragmentation were undone"))
    _buy(what.add_parser("buy", help="the cheapest nodes for a demand, from a price file"))
    for plan in driver_plans():
        parser_of = what.add_parser(plan.name, help=plan.summary)
        plan.flags(parser_of)
        parser_of.add_argument("--file-only", action="store_true", help="print the file that the plan makes, alone")
        plan_input.formats(parser_of)
        _profile_files(parser_of)
        _without_solver(parser_of)


def _capacity(parser: argparse.ArgumentParser) -> None:
    plan_input.arguments(parser)
    parser.add_argument("--limit", type=int, default=100_000, help="stop counting there; default: %(default)s")
    parser.add_argument(
        "--repack-limit",
        type=int,
        default=2_000,
        help="running pods that are packed again in the simulation, at most; default: %(default)s",
    )


def _buy(parser: argparse.ArgumentParser) -> None:
    plan_input.arguments(parser)
    parser.add_argument("--prices", type=Path, required=True, metavar="FILE", help="node shapes with prices")
    parser.add_argument(
        "--copies",
        action="append",
        default=[],
        metavar="[NAME=]N",
        help="how many of each pod, workload or gang of the manifests, or of the one of that name; default: 1",
    )
    _profile_files(parser)
    _without_solver(parser)


def _profile_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile-file", action="append", type=Path, default=[], metavar="FILE", help="more machine profiles"
    )


def _without_solver(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-solver", action="store_true", help="greedy with a bound, even if ortools is installed")


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 if the answer is that it cannot be."""
    from dragoman.cli import plan_run

    for plan in driver_plans():
        if plan.name == args.what:
            return plan_run.driver_plan(plan, args)
    return plan_run.RUN[args.what](args)
