"""`dragoman devices`: what exists, what is held, what is free, and what still fits? Of files or of a live cluster.

Flags only; what is done with them is in `device_table`, so that --help is fast.
"""

from __future__ import annotations

import argparse

from dragoman.cli import source

TERMS = "class, driver, node, pool, namespace, claim, age, type"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of devices."""
    source.arguments(parser)
    parser.add_argument(
        "--by",
        default="class",
        metavar="TERM[,TERM]",
        help=f"group by {TERMS} or an attribute such as model; default: class",
    )
    parser.add_argument("-o", "--output", choices=["text", "json", "csv"], default="text")
    parser.add_argument("--watch", action="store_true", help="print again after every change, until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    """Print the counts; 1 if there are no devices."""
    from dragoman.cli import device_table

    return device_table.run(args)
