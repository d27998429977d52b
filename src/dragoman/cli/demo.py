"""`dragoman demo`: what is this good for? A tour on an embedded cluster that ends by itself within half a minute.

The tour itself is in `tour`, so that --help is fast.
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """The tour has no flags."""


def run(args: argparse.Namespace) -> int:
    """Show the tour."""
    from dragoman.cli import tour

    return tour.run()
