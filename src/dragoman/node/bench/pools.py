"""What would an allocator see in these slices? Pools by name, at their newest generation, and what is wrong with them.

Pure. Source: API field spec.pool of ResourceSlice; limits of spec.devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.api.resource import Device, ResourceSlice

DEVICES_MAX = 128
DEVICES_MAX_DETAILED = 64


class PoolView(msgspec.Struct, frozen=True):
    """A pool at its newest generation. faults: what no moment may show."""

    name: str
    generation: int
    slices: tuple[ResourceSlice, ...]
    faults: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all slices of the generation are there."""
        return len(self.slices) == self.slices[0].spec.pool.resource_slice_count

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those of all slices."""
        return tuple(device for resource_slice in self.slices for device in resource_slice.spec.devices)


def pools(slices: Iterable[ResourceSlice]) -> dict[str, PoolView]:
    """The pools of one driver's slices."""
    by_name: dict[str, list[ResourceSlice]] = {}
    for resource_slice in slices:
        by_name.setdefault(resource_slice.spec.pool.name, []).append(resource_slice)
    views = {}
    for name, found in sorted(by_name.items()):
        newest = max(resource_slice.spec.pool.generation for resource_slice in found)
        at = sorted(
            (p for p in found if p.spec.pool.generation == newest),
            key=lambda resource_slice: resource_slice.metadata.name,
        )
        views[name] = PoolView(name, newest, tuple(at), tuple(_faults(name, newest, at)))
    return views


def _faults(name: str, generation: int, slices: Sequence[ResourceSlice]) -> Iterable[str]:
    where = f"pool {name}, generation {generation}"
    counts = {resource_slice.spec.pool.resource_slice_count for resource_slice in slices}
    if len(counts) > 1:
        yield f"{where}: slices disagree about how many there are: {', '.join(map(str, sorted(counts)))}"
    elif len(slices) > max(counts):
        yield f"{where}: {len(slices)} slices where resourceSliceCount says {max(counts)}"
    names: set[str] = set()
    for resource_slice in slices:
        for device in resource_slice.spec.devices:
            if device.name in names:
                yield f"{where}: device {device.name} is defined twice"
            names.add(device.name)
