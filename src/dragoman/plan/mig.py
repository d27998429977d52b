"""Which MIG layouts serve a mix of instances on the fewest GPUs? Valid placements only, as mig-parted files.

    found = mig_plan(shapes, {"1g.10gb": 12, "3g.40gb": 3}, model, per_node=8)
    found.gpus, found.layouts, found.config

A layout counts only if its instances can be placed beside each other (`profiles.mig.misfit`). mig-parted chooses the
placement itself and tries orders until one works; each multiset here has at least one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from dragoman.errors import Invalid
from dragoman.plan.cover import Cover, Pattern, cover, undominated
from dragoman.profiles.mig import InstanceProfile, PlacedInstance, best_order, layouts


class MigLayout(msgspec.Struct, frozen=True):
    """A layout that `gpus` GPUs get. instances: `profile@start` in order of creation; counts: by profile."""

    gpus: int
    instances: tuple[str, ...]
    counts: dict[str, int]


class MigNodeConfig(msgspec.Struct, frozen=True):
    """An entry of mig-configs, and how many nodes get it by the label nvidia.com/mig.config."""

    name: str
    nodes: int


class MigPlan(msgspec.Struct, frozen=True):
    """The whole answer. gpus: needed; least: no layouts need fewer; spare: instances beyond the demand.

    available: GPUs that there are, None if nobody said. config: the file for mig-parted. method: cp-sat or greedy.
    """

    model: str
    demand: dict[str, int]
    gpus: int
    least: int
    exact: bool
    method: str
    available: int | None
    layouts: tuple[MigLayout, ...]
    spare: dict[str, int]
    nodes: tuple[MigNodeConfig, ...]
    config: str


def mig_plan(
    shapes: Sequence[InstanceProfile],
    demand: Mapping[str, int],
    model: str,
    *,
    per_node: int = 8,
    available: int | None = None,
    solver: bool = True,
) -> MigPlan:
    """The fewest GPUs of a model, with these instance profiles, that hold the demand. Raises Invalid."""
    by_name = {shape.name: shape for shape in shapes}
    if not by_name:
        raise Invalid("--model", f"{model} cannot be partitioned with MIG")
    for name in demand:
        if name not in by_name:
            raise Invalid("--mix", f"{model} has no profile {name}; it has: {', '.join(by_name)}")
    names = [shape.name for shape in shapes if demand.get(shape.name)]
    if not names:
        raise Invalid("--mix", "asks for no instance")
    placed = placeable(tuple(by_name[name] for name in names))
    patterns = undominated([Pattern(counts, 1) for counts in placed])
    found = cover(patterns, [demand[name] for name in names], solver=solver)
    assert isinstance(found, Cover), "every profile of a model fits on an empty GPU"
    rows = [
        MigLayout(number, tuple(map(str, best_order(placed[p.gives]))), _counts(names, p.gives))
        for p, number in zip(patterns, found.counts, strict=True)
        if number
    ]
    rows.sort(key=lambda row: (-row.gpus, row.instances))
    given: Counter[str] = Counter()
    for row in rows:
        for name, number in row.counts.items():
            given[name] += number * row.gpus
    spare = {name: given[name] - demand[name] for name in names if given[name] > demand[name]}
    nodes, config = _files(rows, per_node)
    return MigPlan(
        model,
        {name: demand[name] for name in names},
        found.cost,
        found.bound,
        found.exact,
        found.method,
        available,
        tuple(rows),
        spare,
        nodes,
        config,
    )


def placeable(shapes: tuple[InstanceProfile, ...]) -> dict[tuple[int, ...], tuple[PlacedInstance, ...]]:
    """How many of each profile fit on one GPU together: every possible multiset, with a placement."""
    found: dict[tuple[int, ...], tuple[PlacedInstance, ...]] = {}
    order = {shape.name: index for index, shape in enumerate(shapes)}
    for layout in layouts(shapes):
        counts = [0] * len(shapes)
        for instance in layout:
            counts[order[instance.shape.name]] += 1
        found.setdefault(tuple(counts), layout)
    return found


def _counts(names: Sequence[str], gives: Sequence[int]) -> dict[str, int]:
    return {name: number for name, number in zip(names, gives, strict=True) if number}


def _files(rows: Sequence[MigLayout], per_node: int) -> tuple[tuple[MigNodeConfig, ...], str]:
    """GPUs dealt out to nodes, equal layouts together, and the file of mig-parted."""
    gpus = [row for row in rows for _ in range(row.gpus)]
    nodes = Counter(tuple(row.instances for row in gpus[at : at + per_node]) for at in range(0, len(gpus), per_node))
    counts = {row.instances: row.counts for row in rows}
    named, lines = [], ["version: v1", "mig-configs:"]
    for number, (node, times) in enumerate(nodes.items(), 1):
        name = f"plan-{number}"
        named.append(MigNodeConfig(name, times))
        lines.append(f"  {name}:")
        for instances in dict.fromkeys(node):
            indices = [index for index, one in enumerate(node) if one == instances]
            listed = ", ".join(f'"{profile}": {count}' for profile, count in counts[instances].items())
            lines += [
                f"  - devices: [{', '.join(map(str, indices))}]",
                "    mig-enabled: true",
                f"    mig-devices: {{{listed}}}",
            ]
    return tuple(named), "\n".join(lines) + "\n"
