"""`dragoman profiles`: which machines can be simulated?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec

from dragoman.drivers.registry import catalog_with
from dragoman.profiles import text


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of profiles."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show all of one profile")
    parser.add_argument("--profile", action="append", type=Path, metavar="FILE", help="profiles of your own, too")
    parser.add_argument("-o", "--output", choices=["json"], help="for programs")


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile."""
    catalog = catalog_with(tuple(args.profile or ()))
    if args.name:
        profile = catalog.named(args.name, args.name)
        if args.output == "json":
            print(json.dumps(msgspec.to_builtins(profile), indent=2))
        else:
            print("\n".join(text.lines(catalog, profile)))
        return 0
    rows = [text.row(catalog, profile) for profile in catalog.profiles.values()]
    if args.output == "json":
        print(json.dumps(rows, indent=2))
        return 0
    width = max(len(row["name"]) for row in rows)
    gpus = max(len(row["gpus"]) for row in rows)
    print(f"{'NAME':<{width}}  {'GPUS':<{gpus}}  NICS  SUMMARY")
    for row in rows:
        also = f" (also {', '.join(row['aliases'])})" if row["aliases"] else ""
        print(f"{row['name']:<{width}}  {row['gpus']:<{gpus}}  {row['nics']:>4}  {row['summary']}{also}")
    return 0
