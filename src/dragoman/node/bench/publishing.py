"""Are the driver's slices right at every moment? Limits, generations, repair of what others did to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.api import codec
from dragoman.api.resource import ResourceSlice
from dragoman.node.bench.bed import SLICE, Bed
from dragoman.node.bench.case import case
from dragoman.node.bench.pools import DEVICES_MAX, pools
from dragoman.node.bench.report import Defect, NotApplicable

POOLS = "API field spec.pool of ResourceSlice"
QUIET_S = 1.0
"""No change for so long: the driver has written what it wanted to."""
HELPER = "publishing by drivers, KEP-4381"


class Watched:
    """What a watcher of the driver's slices saw, and what was wrong at any moment."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.events = 0
        self.faults: dict[str, None] = {}
        self._known: dict[str, ResourceSlice] = {}

    def take(self, kind: str, resource_slice: ResourceSlice) -> None:
        """One event of the watch."""
        if not self.bed.is_ours(resource_slice):
            return
        self.events += 1
        if kind == "DELETED":
            self._known.pop(resource_slice.metadata.name, None)
        else:
            self._known[resource_slice.metadata.name] = resource_slice
        by_driver: dict[str, list[ResourceSlice]] = {}
        for known in self._known.values():
            by_driver.setdefault(known.spec.driver, []).append(known)
        for slices in by_driver.values():
            for view in pools(slices).values():
                self.faults.update(dict.fromkeys(view.faults))

    async def rest(self) -> None:
        """Until nothing has changed for a while: a pool can look complete before the last of its slices is written."""
        seen = -1
        while seen != self.events:
            seen = self.events
            await self.bed.clock.sleep(QUIET_S)

    def check(self) -> None:
        """Raises Defect if some moment was wrong."""
        self.bed.note(f"{self.events} changes of slices, each consistent" if not self.faults else "watched the slices")
        if self.faults:
            raise Defect("; ".join(self.faults))


@asynccontextmanager
async def watching(bed: Bed) -> AsyncIterator[Watched]:
    """Watch the node's slices while the body runs."""
    listed = await bed.client.list(SLICE)
    watched = Watched(bed)
    for body in listed.items:
        watched.take("ADDED", codec.decode(ResourceSlice, body))

    async def follow() -> None:
        async for event in bed.client.watch(SLICE, listed.resource_version):
            if event.type != "BOOKMARK":
                watched.take(event.type, codec.decode(ResourceSlice, event.object))

    task = asyncio.create_task(follow(), name="watch slices")
    try:
        yield watched
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@case(
    "publish",
    "slices are right from the first write on",
    "a pool's slices agree on generation and resourceSliceCount, no device is in two of them, and no moment shows more "
    "slices than the count says",
    POOLS,
    alone=True,
)
async def publish(bed: Bed) -> None:
    """Watched from before the start until they are complete."""
    async with watching(bed) as watched:
        await bed.start()
        await bed.published()
        await watched.rest()
        found = pools(await bed.slices())
        for view in found.values():
            bed.note(f"pool {view.name}: {len(view.devices)} devices in {len(view.slices)} slices")
    watched.check()


@case(
    "many-devices",
    "more devices than a slice can hold",
    f"a slice has at most {DEVICES_MAX} devices: more are spread over slices of one generation",
    "API field spec.devices of ResourceSlice",
)
async def many_devices(bed: Bed) -> None:
    """Only a driver that publishes so many can show it."""
    most = max((await bed.published()).values(), key=lambda view: len(view.devices))
    if len(most.devices) <= DEVICES_MAX:
        raise NotApplicable(f"the driver publishes {len(most.devices)} devices: start it with over {DEVICES_MAX}")
    bed.note(f"pool {most.name}: {len(most.devices)} devices in {len(most.slices)} slices")
    if most.faults:
        raise Defect("; ".join(most.faults))
    await bed.pick(1)
    last = [one for one in await bed.usable() if one.pool == most.name][-1]
    ref = await bed.claim(last)
    await bed.prepare(ref, last)
    await bed.unprepare(ref)


@case(
    "slice-deleted",
    "a slice is deleted by another client",
    "the driver publishes it again, and the pool is consistent at every moment",
    HELPER,
)
async def slice_deleted(bed: Bed) -> None:
    """The first slice, by hand."""
    expected = await _wanted(bed)
    victim = (await bed.slices())[0].metadata.name
    async with watching(bed) as watched:
        await bed.client.delete(SLICE, victim)
        bed.note(f"deleted {victim}")
        await _restored(bed, expected)
    watched.check()


@case(
    "slice-changed",
    "a slice is changed by another client",
    "the driver restores it",
    HELPER,
)
async def slice_changed(bed: Bed) -> None:
    """A device is taken out by hand."""
    expected = await _wanted(bed)
    victim = next(resource_slice for resource_slice in await bed.slices() if resource_slice.spec.devices)
    devices = codec.to_json(victim.spec)["devices"][1:]
    await bed.client.patch(SLICE, victim.metadata.name, {"spec": {"devices": devices}})
    bed.note(f"took {victim.spec.devices[0].name} out of {victim.metadata.name}")
    await _restored(bed, expected)


@case(
    "slice-left-over",
    "slices of a pool that the driver no longer has",
    "what an earlier version of the driver left for this node is deleted",
    HELPER,
)
async def slice_left_over(bed: Bed) -> None:
    """As if the pool had been renamed by an update."""
    expected = await _wanted(bed)
    await _leave(bed, "bench-left-over", generation=1, count=1)
    await _restored(bed, expected)


@case(
    "half-published",
    "the driver died while it published",
    "a newer generation that is incomplete hides the whole pool: the driver replaces it by a complete one",
    POOLS,
    alone=True,
)
async def half_published(bed: Bed) -> None:
    """One slice of three, of a generation to come."""
    await bed.start()
    expected = await _wanted(bed)
    name = next(iter(expected))
    generation = (await bed.published())[name].generation
    await bed.kill()
    await _leave(bed, name, generation=generation + 5, count=3)
    async with watching(bed) as watched:
        await bed.start()
        await _restored(bed, expected)
    watched.check()


WantedDevices = dict[str, tuple[str, ...]]


async def _wanted(bed: Bed) -> WantedDevices:
    """Device names by pool."""
    return {name: tuple(d.name for d in view.devices) for name, view in (await bed.published()).items()}


async def _restored(bed: Bed, expected: WantedDevices) -> None:
    last: list[str] = []

    async def whole() -> bool:
        found = pools(await bed.slices())
        last[:] = [f"{v.name}: {len(v.devices)} devices, complete {v.is_complete}" for v in found.values()]
        names = {name: tuple(d.name for d in view.devices) for name, view in found.items()}
        return names == expected and all(view.is_complete for view in found.values())

    began = bed.clock.monotonic()
    await bed.until(whole, lambda: f"the pools did not become whole again; now: {'; '.join(last) or 'none'}")
    bed.note(f"whole again after {bed.clock.monotonic() - began:.1f} s")


async def _leave(bed: Bed, pool: str, *, generation: int, count: int) -> None:
    template = (await bed.slices())[0]
    spec = codec.to_json(template.spec)
    spec["pool"] = {"name": pool, "generation": generation, "resourceSliceCount": count}
    spec["devices"] = [{"name": "left-over"}]
    spec.pop("sharedCounters", None)
    body = {
        "apiVersion": SLICE.api_version,
        "kind": SLICE.kind,
        "metadata": {
            "generateName": f"{bed.node}-left-",
            "ownerReferences": codec.to_json(template.metadata)["ownerReferences"],
        },
        "spec": spec,
    }
    made = await bed.client.create(SLICE, body)
    bed.note(f"left {made['metadata']['name']}: pool {pool}, generation {generation}, 1 of {count} slices")
