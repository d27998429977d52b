"""`dragoman explain`: why is it where it is, or pending, and what would help? Of files or a live cluster, read only.

    explain pod/NAME | claim/NAME | node/NAME | device/DRIVER/POOL/DEVICE     without: everything that waits

Flags only; what is done with them is in `explaining`, so that --help is fast.
"""

from __future__ import annotations

import argparse

from dragoman.cli import explain_watch, simulate, source


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of explain."""
    parser.add_argument(
        "object", nargs="?", default="", help="pod/NAME, claim/NAME, node/NAME, device/DRIVER/POOL/DEVICE"
    )
    source.arguments(parser)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    simulate.deciding(parser)
    explain_watch.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print why; 1 if the object waits or is stuck."""
    if args.watch:
        return explain_watch.run(args)
    from dragoman.cli import explaining

    return explaining.run(args)
