"""`dragoman profiles`: which machines can be simulated?"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from dragoman.drivers.nvidia.gates import gates_with
from dragoman.errors import Invalid
from dragoman.profiles import Catalog, Profile


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of profiles."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show all of one profile")
    parser.add_argument("--profile", action="append", type=Path, metavar="FILE", help="profiles of your own, too")
    parser.add_argument("-o", "--output", choices=["json"], help="for programs")


def run(args: argparse.Namespace) -> int:
    """Print the list, or one profile."""
    catalog = Catalog.packaged()
    for file in args.profile or ():
        catalog = catalog.adding(file, gates_with)
    if args.name:
        profile = catalog.profile(args.name)
        if profile is None:
            raise Invalid(args.name, "no such profile; `dragoman profiles` lists them")
        _show(catalog, profile, args.output)
        return 0
    rows = [_row(catalog, profile) for profile in catalog.profiles.values()]
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


def _row(catalog: Catalog, profile: Profile) -> dict[str, Any]:
    counts = Counter(model.name.removeprefix("NVIDIA ") for model in catalog.gpu_models(profile))
    trays = f"{profile.rack.trays} nodes x " if profile.rack else ""
    return {
        "name": profile.name,
        "gpus": trays + ", ".join(f"{count} {name}" for name, count in counts.items()),
        "nics": len(profile.nics),
        "summary": profile.summary,
        "aliases": list(profile.aliases),
        "origin": catalog.origins.get(profile.name, ""),
    }


def _show(catalog: Catalog, profile: Profile, output: str | None) -> None:
    if output == "json":
        print(json.dumps(msgspec.to_builtins(profile), indent=2))
        return
    print(f"{profile.name}: {profile.summary}")
    if profile.source:
        print(f"source: {profile.source}")
    print(f"\n{'GPU':<4} {'MODEL':<28} {'BUS':<13} {'PCIE ROOT':<13} {'NUMA':>4}  {'MODULE':>6}  NICS ON THAT ROOT")
    for index, slot in enumerate(profile.gpus):
        nics = [nic.rdma_device or nic.if_name for nic in profile.nics if nic.pcie_root == slot.pcie_root]
        numa = "-" if slot.numa is None else slot.numa
        model = profile.model_of(slot)
        print(
            f"{index:<4} {model:<28} {slot.bus_id:<13} {slot.pcie_root:<13} {numa:>4}  {slot.module_id or '-':>6}  "
            f"{', '.join(nics) or '-'}"
        )
    for kind in {model.name: model for model in catalog.gpu_models(profile)}.values():
        shapes = catalog.mig_shapes(kind)
        if shapes:
            print(f"\nMIG profiles of {kind.name}: {', '.join(shape.name for shape in shapes)}")
