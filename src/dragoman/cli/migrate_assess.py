"""`dragoman migrate --assess`: who touches GPUs, on which node pools, and how hard is each to move?"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from dragoman.cli import manifests, output
from dragoman.migrate.assess import DIFFICULTIES, USUAL_LABEL, USUAL_LIST, UseInventory, assess

_SUFFIXES = (*manifests.SUFFIXES, ".tpl")


def run(args: argparse.Namespace) -> int:
    """Print the inventory; 1 if a file could not be read."""
    files = list(gathered(args.filename)) + list(manifests.texts(args.against))
    if args.live or args.kubeconfig or args.context:
        import asyncio

        from dragoman.cli import migrate_proof

        items = asyncio.run(migrate_proof.objects_of_cluster(args))
        files.append(("the cluster", json.dumps({"apiVersion": "v1", "kind": "List", "items": items})))
    found = assess(files, pool_label=args.pool_label)
    if args.output == "json":
        output.write_json(output.versioned("MigrationInventory", found.as_json()))
    elif args.output == "markdown":
        output.write("\n".join(markdown(found)))
    else:
        output.write("\n".join(text(found)))
    for file, message in found.unread:
        output.say(f"warning: {file} is left out: {message}")
    return 1 if found.unread else 0


def gathered(names: list[str]) -> Iterator[tuple[str, str]]:
    """The files with their texts; folders with all that lies below them, charts and overlays too."""
    for name in names:
        if name == "-" or not Path(name).is_dir():
            yield from manifests.texts([name])
            continue
        for file in sorted(Path(name).rglob("*")):
            hidden = any(part.startswith(".") for part in file.relative_to(name).parts)
            if file.is_file() and file.suffix in _SUFFIXES and not hidden:
                yield from manifests.texts([str(file)])


_HEADER = ("OBJECT", "CATEGORY", "WHAT", "AMOUNT", "POOLS", "DIFFICULTY", "REASONS")
_POOLS = ("POOL", "NODES", "PRODUCTS", "ALLOCATABLE", "REQUESTED", "DRA DEVICES")


def _rows(found: UseInventory) -> list[tuple[str, ...]]:
    return [
        (
            use.object if use.object not in ("values", "template", "patch") else f"{use.file}:{use.line}",
            use.category,
            use.what,
            use.amount,
            ", ".join(use.pools) or "-",
            use.difficulty,
            ", ".join(use.reasons) or "-",
        )
        for use in found.uses
    ]


def _pool_rows(found: UseInventory) -> list[tuple[str, ...]]:
    return [
        (
            pool.name,
            str(len(pool.nodes)),
            ", ".join(pool.products) or "-",
            ", ".join(f"{name}={count}" for name, count in pool.resources.items()) or "-",
            ", ".join(f"{name}={count}" for name, count in pool.requested.items()) or "-",
            str(pool.devices),
        )
        for pool in found.pools
    ]


def _summary(found: UseInventory) -> list[str]:
    counts = found.by_difficulty
    lines = ["objects: " + ", ".join(f"{counts[name]} {name}" for name in DIFFICULTIES)]
    missed: dict[str, int] = {}
    for use in found.uses:
        if use.missed:
            missed[use.missed] = missed.get(use.missed, 0) + 1
    listed = sum(not use.missed for use in found.uses)
    lines.append(f"listed by {USUAL_LIST}: {listed} of {len(found.uses)}")
    lines += [f"  {count} not: {why}" for why, count in missed.items()]
    for pool in found.pools:
        if pool.unlabelled:
            lines.append(f"  nodes without {USUAL_LABEL}, which `-l` leaves out: {', '.join(pool.unlabelled)}")
    return lines


def text(found: UseInventory) -> list[str]:
    """For people."""
    lines = []
    if found.pools:
        lines += [output.rows(_POOLS, _pool_rows(found)), ""]
    if not found.uses:
        return [*lines, "nothing here touches GPUs"]
    return [*lines, output.rows(_HEADER, _rows(found)), "", *_summary(found)]


def markdown(found: UseInventory) -> list[str]:
    """For tickets and wikis."""
    lines = ["# GPU inventory", ""]
    for title, header, body in (("Node pools", _POOLS, _pool_rows(found)), ("Uses", _HEADER, _rows(found))):
        lines += [f"## {title}", "", "| " + " | ".join(header).lower() + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in body]
        lines.append("")
    return [*lines, "## What the usual commands show", "", *("- " + line.strip() for line in _summary(found))]
