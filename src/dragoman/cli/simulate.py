"""`dragoman simulate`: where would the pods of these files run, with which devices, or why not? No cluster needed.

The state can be changed first: --add-node, --remove-node, --taint, --delete, in this order. Flags only; what is done
with them is in `simulation`, so that --help is fast.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dragoman.cli import source
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from dragoman.allocate.allocator import AllocatorOptions

POLICIES = ("first-fit", "pack")
MOST_STEPS = 2_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of simulate."""
    source.arguments(parser, live=False)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    deciding(parser)
    _changes(parser)


def deciding(parser: argparse.ArgumentParser) -> None:
    """The flags of commands that decide."""
    parser.add_argument("--policy", choices=POLICIES, default="first-fit", help="which of the devices that fit")
    parser.add_argument("--steps", type=int, default=MOST_STEPS, help="limit of one search; beyond it: not decided")


def options_of(args: argparse.Namespace) -> AllocatorOptions:
    """What --policy, --steps and --feature-gates say. Raises Invalid."""
    from dragoman.allocate.allocator import AllocatorOptions, SearchLimits

    if args.steps < 1:
        raise Invalid("--steps", f"must be 1 or more, got {args.steps}")
    return AllocatorOptions(gates=source.gates(args), policy=args.policy, limits=SearchLimits(args.steps))


def run(args: argparse.Namespace) -> int:
    """Decide the unscheduled pods in file order; 1 if one of them has no place or would lose it."""
    from dragoman.cli import simulation

    return simulation.run(args)


def _changes(parser: argparse.ArgumentParser) -> None:
    """What if the cluster were different (`changes`)."""
    group = parser.add_argument_group("changes to the state, before deciding")
    group.add_argument(
        "--add-node",
        action="append",
        default=[],
        metavar="FILE|'shape-of NODE'",
        help="a file with a Node and its slices, or one more like NODE",
    )
    group.add_argument("--remove-node", action="append", default=[], metavar="NODE", help="its pods are placed anew")
    group.add_argument(
        "--taint",
        action="append",
        default=[],
        metavar="FILE|DRIVER/POOL/DEVICE=KEY:EFFECT",
        help="a DeviceTaintRule; shows who would be displaced",
    )
    group.add_argument("--delete", action="append", default=[], metavar="POD", help="NAME or NAMESPACE/NAME")
