"""`dragoman plan`: what fits, what to buy, in which order to change? Over a dump or a live cluster, read only.

Flags only; what is done with them is in `plan_run`, so that --help is fast.
"""

from __future__ import annotations

import argparse

from dragoman.cli import plan_input

EXAMPLES = """\
examples:
  dragoman plan capacity -f dump.yaml -f train.yaml    how many more of it fit, and what blocks the next one
  dragoman plan capacity --live -f train.yaml          the same on the cluster of the kubeconfig
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which plan."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_subparsers(dest="what", required=True, metavar="PLAN", parser_class=type(parser))
    _capacity(what.add_parser("capacity", help="how many more fit, now and if fragmentation were undone"))


def _capacity(parser: argparse.ArgumentParser) -> None:
    plan_input.arguments(parser)
    parser.add_argument("--limit", type=int, default=100_000, help="stop counting there; default: %(default)s")
    parser.add_argument(
        "--repack-limit",
        type=int,
        default=2_000,
        help="running pods that are packed again in the simulation, at most; default: %(default)s",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 if the answer is that it cannot be."""
    from dragoman.cli import plan_run

    return plan_run.RUN[args.what](args)
