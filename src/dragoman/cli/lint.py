"""`dragoman lint`: what is wrong with these manifests, for the API, the drivers and each other? No cluster needed.

With a cluster (--live, --kubeconfig, --context) or its dump (--against) the manifests are judged against its slices,
classes and claims too; the cluster's own objects are not judged.

Flags only; what is done with them is in `linting`, so that --help is fast.
"""

from __future__ import annotations

import argparse

from dragoman.cli import source
from dragoman.cli.versions import NEWEST


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of lint."""
    source.arguments(parser)
    parser.add_argument(
        "--against", action="append", default=[], metavar="FILE", help="a dump of the cluster that the files are for"
    )
    parser.add_argument("--live", action="store_true", help="the same of a live cluster: the usual kubeconfig's")
    parser.add_argument("-o", "--output", choices=["text", "json", "sarif"], default="text")
    parser.add_argument(
        "--kubernetes", metavar="1.NN", help=f"the version to judge for; default: the live cluster's, else 1.{NEWEST}"
    )
    parser.add_argument(
        "--fix", action="store_true", help="write what can be fixed, comments kept; stdin goes to stdout"
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings (with --fix those that are left); 1 if there are errors."""
    from dragoman.cli import linting

    return linting.run(args)
