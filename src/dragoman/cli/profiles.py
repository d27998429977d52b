"""`dragoman profiles`: which machines can be simulated?"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from dragoman.cli import output
from dragoman.drivers.registry import catalog_with
from dragoman.errors import Invalid
from dragoman.profiles import picture, text


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of profiles."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one profile in full")
    parser.add_argument("--profile", action="append", type=Path, metavar="FILE", help="file with more profiles")
    parser.add_argument("-o", "--output", choices=["json"], help="print JSON")
    parser.add_argument(
        "--picture",
        nargs="?",
        choices=["text", "svg"],
        const="text",
        help="draw where the devices of NAME sit: NUMA nodes, PCIe roots, GPUs and network adapters; default: text",
    )


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile."""
    catalog = catalog_with(tuple(args.profile or ()))
    if args.picture and (not args.name or args.output):
        raise Invalid("--picture", "needs the NAME of a profile, and cannot be combined with -o")
    if args.name:
        profile = catalog.named(args.name, args.name)
        if args.picture:
            output.write(picture.svg(profile) if args.picture == "svg" else "\n".join(picture.lines(profile)))
            return 0
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
