"""How are plans said? Sections for people of every kind of result. Never decides anything."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.explain.messages import plural
from dragoman.plan.blocked import Block
from dragoman.plan.buy import Purchase
from dragoman.plan.capacity import Capacity
from dragoman.plan.catalogue import money
from dragoman.plan.mig import MigPlan
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


# ---- buy


def purchase_sections(found: Purchase) -> Iterator[Section]:
    """What never fits, what to buy, and whether the scheduler places it all."""
    rows: tuple[tuple[str, ...], ...]
    if found.unfit:
        rows = tuple((u.shape, u.demand, u.blocks[0].message if u.blocks else "") for u in found.unfit)
        yield Section("Shapes that will never fit", header=("SHAPE", "DEMAND", "WHY"), rows=rows)
    rows = tuple((d.demand, str(d.pods), str(d.fit_now), str(d.to_buy_for)) for d in found.demands)
    yield Section("Demand", header=("DEMAND", "PODS", "FIT NOW", "TO BUY FOR"), rows=rows)
    if not found.possible:
        yield Section("Purchase", (f"not possible: {found.reason}",))
        return
    yield Section(
        "Purchase",
        tuple(_purchase_lines(found)),
        ("SHAPE", "NODES", "AN HOUR", "FOR"),
        tuple(
            (b.shape, str(b.nodes), money(b.price, found.currency), ", ".join(f"{n} {d}" for d, n in b.pods.items()))
            for b in found.bought
        ),
    )


def _purchase_lines(found: Purchase) -> Iterator[str]:
    if not found.bought:
        yield "nothing: all of it fits on the cluster as it is"
    elif found.exact:
        yield f"{money(found.price, found.currency)} an hour; no purchase from this price file costs less"
    else:
        least = f"at least {money(found.bound, found.currency)} is needed" if found.bound else "no lower bound is known"
        yield f"{money(found.price, found.currency)} an hour; {least} (method {found.method}, not exact)"
    if found.method == "greedy":
        yield "with the extra `plan` (pip install 'dragoman[plan]') the search is exact"
    if found.verified:
        yield f"verified: with these nodes the scheduler places every pod ({found.verified_by})"
    else:
        more = f" and {len(found.pending) - 3} more" if len(found.pending) > 3 else ""
        yield f"not verified: the scheduler leaves pending {', '.join(found.pending[:3])}{more}"


# ---- mig


def mig_sections(found: MigPlan) -> Iterator[Section]:
    """How many GPUs, with which layouts, and the file."""
    demand = ", ".join(f"{number} {name}" for name, number in found.demand.items())
    lines = [f"{plural(found.gpus, 'GPU')} of model {found.model} for {demand}"]
    if found.exact:
        lines.append("fewer GPUs cannot hold it")
    else:
        lines.append(f"at least {found.least} are needed (method {found.method}, not exact)")
    if found.available is not None and found.available < found.gpus:
        lines.append(f"there are {found.available}: {found.gpus - found.available} too few")
    if found.spare:
        lines.append(f"spare: {', '.join(f'{number} {name}' for name, number in found.spare.items())}")
    rows = tuple((str(layout.gpus), " ".join(layout.instances)) for layout in found.layouts)
    yield Section("MIG layouts", tuple(lines), ("GPUS", "INSTANCES (PROFILE@START)"), rows)
    labels = tuple(
        f"{plural(node.nodes, 'node')}: label nvidia.com/mig.config={node.name}, once no pod uses their GPUs"
        for node in found.nodes
    )
    yield Section("File for mig-parted", labels, code=found.config)


# ---- all


def block_section(blocks: tuple[Block, ...], title: str) -> Section:
    """A row for each cause."""
    rows = tuple((block.cause, block.device_class, str(block.nodes or ""), block.message) for block in blocks)
    return Section(title, header=("CAUSE", "CLASS", "NODES", "EXAMPLE"), rows=rows)
