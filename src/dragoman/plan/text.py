"""How are plans said? Sections for people of every kind of result. Never decides anything."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.explain.messages import plural
from dragoman.plan.blocked import Block
from dragoman.plan.capacity import Capacity
from dragoman.plan.report import Section


def capacity_sections(found: Capacity) -> Iterator[Section]:
    """How many fit, what blocks the next one, what there is by class, what is stranded."""
    yield Section(f"Capacity for {found.demand}", tuple(_capacity_lines(found)))
    if found.blocks:
        yield block_section(found.blocks, "What blocks the next one")
    if found.classes:
        rows = tuple(
            (c.device_class, *map(str, (c.devices, c.free, c.largest_on_node, c.largest_on_root, c.stranded)))
            for c in found.classes
        )
        header = ("CLASS", "DEVICES", "FREE", "LARGEST ON A NODE", "LARGEST ON A PCIE ROOT", "STRANDED")
        yield Section("Devices", header=header, rows=rows)
    if found.partitions:
        rows = tuple((p.device_class, p.partition, str(p.fits)) for p in found.partitions)
        yield Section("Partitions that still fit", header=("CLASS", "PARTITION", "FIT"), rows=rows)
    if found.stranded:
        rows = tuple(
            (
                s.node,
                str(s.devices),
                ", ".join(f"{k} {v}" for k, v in s.missing.items()),
                s.change or "no single pod helps",
            )
            for s in found.stranded
        )
        yield Section("Stranded devices", header=("NODE", "FREE", "MISSING", "SMALLEST CHANGE"), rows=rows)


def _capacity_lines(found: Capacity) -> Iterator[str]:
    copies = "copy" if found.fits == 1 else "copies"
    more = "at least " if found.limited else ""
    pods = f" ({plural(found.largest_gang, 'pod')})" if found.pods > 1 else ""
    yield f"fit now: {more}{found.fits} {copies}{pods}"
    if found.pending_first or found.still_pending:
        still = f", {found.still_pending} stay pending" if found.still_pending else ""
        yield f"pods of the cluster that were pending come first: {found.pending_first} get a node{still}"
    if found.partly:
        yield f"of the next one {found.partly} of {plural(found.pods, 'pod')} would run"
    undone = found.defragmented
    by = f" (bound: {undone.bound_by})" if undone.bound_by and undone.at_most is not None else ""
    if undone.at_most == undone.at_least:
        moved = f", with {plural(undone.moves, 'pod')} moved or restarted" if undone.moves else ""
        yield f"fit if fragmentation were undone: {undone.at_least}{moved}{by}"
    else:
        most = "without a bound" if undone.at_most is None else f"at most {undone.at_most}"
        yield f"fit if fragmentation were undone: at least {undone.at_least}, {most}{by}"
    if not undone.tried:
        yield "packing again was not tried: too many running pods (--repack-limit)"


def block_section(blocks: tuple[Block, ...], title: str) -> Section:
    """A row for each cause."""
    rows = tuple((block.cause, block.device_class, str(block.nodes or ""), block.message) for block in blocks)
    return Section(title, header=("CAUSE", "CLASS", "NODES", "EXAMPLE"), rows=rows)
