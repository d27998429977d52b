"""`dragoman profiles`: which machines can be simulated?"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from dragoman.cli import output
from dragoman.drivers.registry import catalog_with
from dragoman.profiles import text


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of profiles."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one profile in full")
    parser.add_argument("--profile", action="append", type=Path, metavar="FILE", help="file with more profiles")
    parser.add_argument("-o", "--output", choices=["json"], help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile."""
    catalog = catalog_with(tuple(args.profile or ()))
    if args.name:
        profile = catalog.named(args.name, args.name)
        if args.output == "json":
            output.write_json(output.versioned("MachineProfile", msgspec.to_builtins(profile)))
        else:
            output.write("\n".join(text.lines(catalog, profile)))
        return 0
    rows = [text.row(catalog, profile) for profile in catalog.profiles.values()]
    if args.output == "json":
        output.write_json(output.versioned("MachineProfileList", {"items": rows}))
        return 0
    body = [
        (
            row["name"],
            row["gpus"],
            row["nics"],
            row["summary"] + (f" (also {', '.join(row['aliases'])})" if row["aliases"] else ""),
        )
        for row in rows
    ]
    output.write(output.rows(("NAME", "GPUS", "NICS", "SUMMARY"), body))
    return 0
