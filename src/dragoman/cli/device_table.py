"""How are devices shown? A table that fits on a screen, JSON or CSV of an inventory, once or again and again."""

from __future__ import annotations

import argparse
import csv
import difflib
import io
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dragoman.cli import output, source
from dragoman.errors import Forbidden, Invalid
from dragoman.explain.describe import capacity_json
from dragoman.explain.messages import plural
from dragoman.inspect.inventory import TERMS, Inventory, Row, inventory
from dragoman.runtime.clock import Clock
from dragoman.values.visible import visible

STATES = ("held", "shared", "free", "tainted", "blocked", "unusable")
SHOWN = ("held", "shared", "free", "unavailable", "tainted", "blocked", "unusable", "admin")
LINES_MAX = 40
TROUBLES_MAX = 10
NAMES_SHOWN = 3
WATCH_S = 2.0


def run(args: argparse.Namespace) -> int:
    """Print the counts; 1 if there are no devices."""
    by = tuple(term.strip() for term in args.by.split(",") if term.strip())
    if not by:
        raise Invalid("--by", f"must name a term: {', '.join(TERMS)} or an attribute")
    if args.watch:
        import asyncio  # with files only it is not needed

        return asyncio.run(_watch(args, by))
    found = _inventory(source.tool_input(args), by, Clock().utc())
    _check(found)
    _print(found, args.output)
    return 0 if found.total.counts.total else 1


def _inventory(world: source.ToolInput, by: tuple[str, ...], now: datetime) -> Inventory:
    if "ResourceSlice" in world.hidden:
        raise Forbidden(f"resourceslices not visible to {world.who}: no devices to count; ask for rights to list them")
    return inventory(world.snapshot, by, now, nodes_known="Node" not in world.hidden)


def _check(found: Inventory) -> None:
    """Refuses an attribute that no device has: most often a misspelt word."""
    for i, term in enumerate(found.by):
        if found.rows and term not in TERMS and not any(row.terms[i] for row in found.rows):
            near = difflib.get_close_matches(term, TERMS, 1)
            hint = f"; near: {near[0]}" if near else ""
            raise Invalid("--by", f"{term!r} is not an attribute of any device, nor one of {', '.join(TERMS)}{hint}")


async def _watch(args: argparse.Namespace, by: tuple[str, ...]) -> int:
    clock = Clock()
    before: Inventory | None = None
    while True:
        world = await source.world_now(args)
        found = _inventory(world, by, clock.utc())
        if found != before:
            if before is not None and args.output == "text":
                output.write("")
            _print(found, args.output, one_line=True)
            before = found
        await clock.sleep(WATCH_S)


def _print(found: Inventory, form: str, *, one_line: bool = False) -> None:
    if form == "json":
        output.write_json(output.versioned("DeviceInventory", as_json(found)), indent=None if one_line else 2)
    elif form == "csv":
        output.write(_csv(found))
    else:
        for line in lines(found):
            output.write(line)


# ---- for programs


def as_json(found: Inventory) -> dict[str, Any]:
    """{"by", "nodes", "pools", "total": COUNTS, "rows": [{term: value, COUNTS}], "problems"}."""
    return {
        "by": list(found.by),
        "nodes": found.nodes,
        "pools": found.pools,
        "total": _counts(found.total),
        "rows": [{**dict(zip(found.by, row.terms, strict=True)), **_counts(row)} for row in found.rows],
        "unavailable": found.unavailable,
        "adminAccess": [
            {"namespace": one.namespace, "claim": one.claim, "devices": list(one.devices)} for one in found.admin
        ],
        "problems": [
            {
                "reason": trouble.what,
                "driver": trouble.driver,
                "pool": trouble.pool,
                "devices": trouble.devices,
                "message": trouble.detail,
            }
            for trouble in found.troubles
        ],
    }


def _counts(row: Row) -> dict[str, Any]:
    counts = row.counts
    reported = {"total": counts.total, **{state: getattr(counts, state) for state in STATES}}
    return {
        **reported,
        "heldTainted": counts.held_tainted,
        "unavailable": counts.unavailable,
        "unpublished": counts.unpublished,
        "admin": counts.admin,
        "capacity": capacity_json(row),
        "fits": row.fits,
    }


def _csv(found: Inventory) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        (*found.by, "total", *STATES, "heldTainted", "fits", "unavailable", "unpublished", "admin", "capacity")
    )
    for row in found.rows:
        counts = _counts(row)
        fits = " ".join(f"{kind}={number}" for kind, number in row.fits.items())
        writer.writerow(
            (
                *(visible(term) for term in row.terms),
                *(counts[name] for name in ("total", *STATES, "heldTainted")),
                fits,
                counts["unavailable"],
                counts["unpublished"],
                counts["admin"],
                _capacity_text(row),
            )
        )
    return text.getvalue().rstrip("\n")


def _capacity_text(row: Row) -> str:
    return ", ".join(f"{use.used} of {use.total} {name}" for name, use in row.capacity.items())


# ---- for people


class _Extra(NamedTuple):
    """Columns that stand only where a device needs them."""

    fits: bool
    capacity: bool


def lines(found: Inventory) -> list[str]:
    """A table on one screen: rows with equal counts are merged if there are many; then what is wrong."""
    if not found.total.counts.total:
        return [f"no devices are published ({plural(found.nodes, 'node')})"]
    shown = [state for state in SHOWN if state in ("held", "free") or getattr(found.total.counts, state)]
    extra = _Extra(bool(found.total.fits), bool(found.total.capacity))
    header = [term.upper() for term in found.by] + ["TOTAL", *(state.upper() for state in shown)]
    body = [_cells(terms, row, shown, extra) for terms, row in _grouped(found.rows)]
    rest = body[LINES_MAX:]
    body = body[:LINES_MAX]
    total = _cells(("(all)", *("" for _ in found.by[1:])), found.total, shown, extra)
    header += (["STILL FITS"] if extra.fits else []) + (["CAPACITY USED"] if extra.capacity else [])
    table = output.rows(header, [*body, total])
    reported = [table]
    if rest:
        reported.append(f"and {len(rest)} more rows; -o csv shows all")
    if found.unavailable:
        reasons = ", ".join(f"{number:,} on {why}" for why, number in _by_node_state(found.unavailable))
        reported.append(f"unavailable: {reasons}")
    for access in found.admin[:TROUBLES_MAX]:
        names = ", ".join(access.devices[:NAMES_SHOWN])
        rest_of = len(access.devices) - NAMES_SHOWN
        more = f" and {rest_of} more" if rest_of > 0 else ""
        reported.append(f"admin access, which holds nothing: {access.namespace}/{access.claim} to {names}{more}")
    reported += _troubles(found)
    return reported


def _by_node_state(reasons: dict[str, int]) -> list[tuple[str, int]]:
    """(what nodes are like, devices there), most first: `cordoned nodes`."""
    named = [(f"nodes that are {why.removeprefix('node ')}", number) for why, number in reasons.items()]
    return sorted(named, key=lambda entry: (-entry[1], entry[0]))


def _cells(terms: Sequence[str], row: Row, shown: Sequence[str], extra: _Extra) -> list[str]:
    cells = [*terms, f"{row.counts.total:,}", *(f"{getattr(row.counts, state):,}" for state in shown)]
    if extra.fits:
        cells.append(", ".join(f"{number} x {kind or 'device'}" for kind, number in sorted(row.fits.items())) or "-")
    if extra.capacity:
        cells.append(_capacity_text(row) or "-")
    return cells


def _grouped(rows: Sequence[Row]) -> list[tuple[tuple[str, ...], Row]]:
    """Each row; where they are too many for a screen, those with equal counts as one."""
    if len(rows) <= LINES_MAX:
        return [(row.terms, row) for row in rows]
    equivalent: dict[Any, list[Row]] = {}
    for row in rows:
        equivalent.setdefault(
            (msgspec.structs.astuple(row.counts), tuple(sorted(row.fits.items())), _capacity_text(row)), []
        ).append(row)
    groups = sorted(equivalent.values(), key=lambda same: (-len(same), same[0].terms))
    return [(_named(same), same[0]) for same in groups]


def _named(same: Sequence[Row]) -> tuple[str, ...]:
    first = same[0].terms
    if len(same) == 1:
        return first
    names = ", ".join(" ".join(row.terms) for row in same[:NAMES_SHOWN])
    more = f", {len(same) - NAMES_SHOWN:,} more" if len(same) > NAMES_SHOWN else ""
    return (f"{len(same):,} with equal counts ({names}{more}), each", *("" for _ in first[1:]))


def _troubles(found: Inventory) -> list[str]:
    reported = [
        f"{trouble.what}: pool {trouble.driver}/{trouble.pool}, {trouble.devices} "
        f"device{'' if trouble.devices == 1 else 's'} ({trouble.detail})"
        for trouble in found.troubles[:TROUBLES_MAX]
    ]
    more = len(found.troubles) - TROUBLES_MAX
    return [*reported, f"and {more} more pools with trouble; -o json shows all"] if more > 0 else reported
