"""Every single write may fail: placing pods with their 1st, 2nd, 3rd ... write refused, lost, or deadly."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.errors import Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.testing.build import claim, manifest, pod, template
from dragoman.testing.faults import FaultyClient, Rates
from dragoman.testing.loop import run
from dragoman.testing.world import SimulatedCluster

pytestmark = pytest.mark.slow
CALM = Rates(refuse=0, lose=0, conflict=0, drop=0, expire=0, die=0, delay_s=0.01)
MOST = 60


class NthWrite:
    """Counts the writes of the scheduler that matter and lets one of them fail."""

    def __init__(self, number: int, sort: str) -> None:
        self.number = number
        self.sort = sort
        self.seen = 0

    @property
    def struck(self) -> bool:
        return self.seen >= self.number

    def next_fails(self) -> bool:
        self.seen += 1
        return self.seen == self.number


class SchedulerClient(FaultyClient):
    """The scheduler's client in a sweep: claims and bindings only, events do not count."""

    plan: NthWrite

    async def _swept(self, work: Any, kind: Kind) -> Object:
        fails = kind.kind != "Event" and self.plan.next_fails()
        if fails and self.plan.sort == "refused":
            raise Retry("injected: not reachable")
        if fails and self.plan.sort == "conflict":
            raise Stale("injected: conflict")
        if fails and self.plan.sort == "dead before":
            await self._end()
        answer: Object = await work()
        if fails and self.plan.sort == "lost":
            raise Retry("injected: the answer was lost")
        if fails and self.plan.sort == "dead after":
            await self._end()
        return answer

    async def create(self, kind: Kind, obj: Object, namespace: str = "", **rest: Any) -> Object:
        return await self._swept(lambda: self._inner.create(kind, obj, namespace, **rest), kind)

    async def patch(self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Any) -> Object:
        return await self._swept(lambda: self._inner.patch(kind, name, patch, namespace, **options), kind)


class Swept(SimulatedCluster):
    """A world whose scheduler has one failing write."""

    plan: NthWrite

    async def _scheduler(self, client: FaultyClient) -> None:
        swept = SchedulerClient(self.api, self.faults, self.clock, self.parts["scheduler"].die)
        swept.plan = self.plan
        await super()._scheduler(swept)


def several_pods() -> list[dict[str, Any]]:
    return [
        template("one"),
        claim("shared"),
        pod("a", "shared", templates=["one"]),
        pod("b", "shared"),
        manifest("DeviceClass", "ext", spec={"extendedResourceName": "example.com/gpu"}),
        pod("c", extended={"example.com/gpu": "1"}),
    ]


async def sweep_one(clock: Clock, plan: NthWrite) -> int:
    world = Swept(clock, 5, rates=CALM)
    world.plan = plan
    async with world:
        await world.apply(*several_pods())
        await world.until(lambda: world.pending() or world.unserved(), within_s=300)
        for made in await world.objects("Pod"):
            await world.delete("Pod", made["metadata"]["name"], grace_period_s=0)
        await world.until(world.leftovers, within_s=300)
    return plan.seen


@pytest.mark.parametrize("sort", ["refused", "conflict", "lost", "dead before", "dead after"])
def test_each_write_of_the_scheduler_may_fail(sort: str) -> None:
    """Until none is left to fail."""
    for number in range(1, MOST):
        plan = NthWrite(number, sort)
        run(lambda clock, plan=plan: sweep_one(clock, plan))  # type: ignore[misc]
        if not plan.struck:
            assert number > 8
            return
    pytest.fail(f"more than {MOST} writes")
