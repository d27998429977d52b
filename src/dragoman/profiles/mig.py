"""Which GPU instances can a GPU have, what are they called, and which lie beside each other?

Pure arithmetic on the tables of mig.yaml: names, placements, layouts. It never touches a GPU.
Source of the rules: NVIDIA MIG user guide; the name formula is that of go-nvlib.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from dragoman.profiles.machine import MigGeometry, MigTable

MIB = 2**20
_INSTANCE = re.compile(r"([^@\s]+)@(\d+)")


class InstanceAmounts(msgspec.Struct, frozen=True):
    """What an instance, or a whole GPU, holds; memory in MiB."""

    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int

    def engines(self) -> tuple[int, ...]:
        """All but memory, in a fixed order."""
        return msgspec.structs.astuple(self)[1:]


class InstanceProfile(msgspec.Struct, frozen=True):
    """A GPU instance profile of one model. gpu_compute and gpu_memory are slices of the whole GPU; whole its maxima."""

    name: str
    id: int
    index: int
    compute: int
    size: int
    starts: tuple[int, ...]
    amounts: InstanceAmounts
    gpu_compute: int
    gpu_memory: int
    whole: InstanceAmounts

    def slices(self, start: int) -> range:
        """The memory slices that an instance at start covers."""
        return range(start, start + self.size)


class PlacedInstance(msgspec.Struct, frozen=True):
    """An instance of a shape at a start."""

    shape: InstanceProfile
    start: int

    def __str__(self) -> str:
        return f"{self.shape.name}@{self.start}"


def profile_name(compute: int, instance_mib: int, total_mib: int, suffix: str = "") -> str:
    """`1g.10gb`, `1g.10gb+me`: memory as the instance's share of the GPU in eighths, in whole GiB of the total."""
    total_gb = -(-total_mib // 1024)
    eighths = -(-instance_mib * 8 // total_mib)
    return f"{compute}g.{(eighths * total_gb + 4) // 8}gb{suffix}"


def token(name: str) -> str:
    """The name as part of a device name: lower case, without dots, other signs as dashes."""
    return re.sub(r"[^a-z0-9-]", "-", name.lower().replace(".", "")).strip("-")


def shapes_of(geometry: MigGeometry, table: MigTable, total_mib: int) -> tuple[InstanceProfile, ...]:
    """The shapes of a model with that much memory, in the table's order."""
    rows = {key: InstanceAmounts(*row) for key, row in table.profiles.items()}
    columns = zip(*(msgspec.structs.astuple(row) for row in rows.values()), strict=True)
    whole = InstanceAmounts(*(max(column) for column in columns))
    return tuple(
        InstanceProfile(
            name=profile_name(shape.compute, amounts.memory_mib, total_mib, shape.suffix),
            id=shape.id,
            index=shape.index,
            compute=shape.compute,
            size=shape.size,
            starts=shape.starts,
            amounts=amounts,
            gpu_compute=geometry.compute,
            gpu_memory=geometry.memory,
            whole=whole,
        )
        for key, amounts in rows.items()
        for shape in (geometry.profiles[key],)
    )


def parse_instance(text: str, shapes: Sequence[InstanceProfile]) -> PlacedInstance:
    """`1g.5gb@0`. Raises ValueError with what is possible."""
    match = _INSTANCE.fullmatch(text)
    if not match:
        raise ValueError(f"must be PROFILE@START, as {shapes[0].name}@0, got {text!r}")
    shape = next((shape for shape in shapes if shape.name == match.group(1)), None)
    if shape is None:
        names = ", ".join(shape.name for shape in shapes)
        raise ValueError(f"this GPU has no profile {match.group(1)}; it has: {names}")
    return PlacedInstance(shape, int(match.group(2)))


def misfit(placed: Sequence[PlacedInstance]) -> str:
    """Why these instances cannot be on one GPU together; empty if they can."""
    covered: dict[int, PlacedInstance] = {}
    for instance in placed:
        shape = instance.shape
        if instance.start not in shape.starts:
            starts = ", ".join(map(str, shape.starts))
            return f"{shape.name} can start at {starts}, not at {instance.start}"
        for at in shape.slices(instance.start):
            if at in covered:
                return f"{instance} and {covered[at]} both need memory slice {at}"
            covered[at] = instance
    if placed:
        first = placed[0].shape
        compute = sum(instance.shape.compute for instance in placed)
        if compute > first.gpu_compute:
            return f"{compute} compute slices are wanted, the GPU has {first.gpu_compute}"
        drawn = [sum(column) for column in zip(*(i.shape.amounts.engines() for i in placed), strict=True)]
        for field, wanted, there in zip(
            InstanceAmounts.__struct_fields__[1:], drawn, first.whole.engines(), strict=True
        ):
            if wanted > there:
                return f"{wanted} {field.replace('_', ' ')} are wanted, the GPU has {there}"
    return ""


def placements(shapes: Sequence[InstanceProfile]) -> tuple[PlacedInstance, ...]:
    """Every instance that a GPU could have."""
    return tuple(PlacedInstance(shape, start) for shape in shapes for start in shape.starts)


def layouts(shapes: Sequence[InstanceProfile]) -> Iterator[tuple[PlacedInstance, ...]]:
    """Every set of instances that fit on one GPU, but the empty one."""
    possible = placements(shapes)

    def extend(chosen: tuple[PlacedInstance, ...], first: int) -> Iterator[tuple[PlacedInstance, ...]]:
        for index in range(first, len(possible)):
            more = (*chosen, possible[index])
            if not misfit(more):
                yield more
                yield from extend(more, index + 1)

    return extend((), 0)


def is_maximal(layout: Sequence[PlacedInstance], shapes: Sequence[InstanceProfile]) -> bool:
    """Whether no further instance fits."""
    return all(misfit([*layout, extra]) for extra in placements(shapes))


def freedom(layout: Sequence[PlacedInstance], shapes: Sequence[InstanceProfile]) -> int:
    """What would still fit beside these: further instances, each weighed by its compute slices."""
    return sum(extra.shape.compute for extra in placements(shapes) if not misfit([*layout, extra]))


@lru_cache(maxsize=64)
def by_preference(shapes: tuple[InstanceProfile, ...]) -> tuple[PlacedInstance, ...]:
    """Every instance that a GPU could have; of each profile first those starts that leave most room for others.

    Who takes the first that is free then cuts a GPU up least: 1g begins at 6, and 4g still fits at 0.
    """
    ranked = []
    for number, shape in enumerate(shapes):
        for start in shape.starts:
            placed = PlacedInstance(shape, start)
            ranked.append((number, -freedom([placed], shapes), -start, placed))
    return tuple(row[-1] for row in sorted(ranked, key=lambda row: row[:3]))


def best_order(wanted: Sequence[PlacedInstance]) -> tuple[PlacedInstance, ...]:
    """The order in which to make instances with given placements: large first, then from the low end.

    Any order gives the same layout where placements are given; drivers that fail half-way leave the GPU least cut up
    when the largest were made first.
    """
    return tuple(sorted(wanted, key=lambda placed: (-placed.shape.size, -placed.shape.compute, placed.start)))
