"""Slices against a real API in process, in virtual time: written once, repaired, never fought over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.api.resource import DeviceTaint
from dragoman.api.shape import Object
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.registry import Registry
from dragoman.cluster.watch import Informer
from dragoman.errors import DragomanError, Retry
from dragoman.node.driver import Pool, device
from dragoman.node.publish import RESYNC_S, SLICE, Publisher, slice_routes
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.loop import run

NODE = kind_of("Node")
DRIVER = "d.example.com"


class Api(InProcessClient):
    """The API, counting writes of slices; `down` writes fail first; `drops` are device fields an old server forgets."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.writes: list[str] = []
        self.down = 0
        self.drops: tuple[str, ...] = ()

    def _count(self, kind: Any, verb: str) -> None:
        if kind is SLICE:
            if self.down:
                self.down -= 1
                raise Retry("the server is starting")
            self.writes.append(verb)

    def _forget(self, kind: Any, obj: Object) -> Object:
        if kind is SLICE and self.drops:
            devices = [{k: v for k, v in d.items() if k not in self.drops} for d in obj["spec"].get("devices", [])]
            return {**obj, "spec": {**obj["spec"], "devices": devices}}
        return obj

    async def create(self, kind: Any, obj: Object, *more: Any, **named: Any) -> Object:
        self._count(kind, "create")
        return await super().create(kind, self._forget(kind, obj), *more, **named)

    async def replace(self, kind: Any, obj: Object, **named: Any) -> Object:
        self._count(kind, "update")
        return await super().replace(kind, self._forget(kind, obj), **named)

    async def delete(self, kind: Any, *more: Any, **named: Any) -> None:
        self._count(kind, "delete")
        await super().delete(kind, *more, **named)


class Scene:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.registry = in_memory(clock, Entropy(1))
        self.api = Api(self.registry)
        self.human = InProcessClient(self.registry)
        self.errors: list[DragomanError] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.informer = Informer(self.api, SLICE, clock, Entropy(2))
        self.routes = slice_routes(self.informer)
        self.go(self.informer.run())

    def go(self, work: Any) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def publisher(self, node: str = "n1", **options: Any) -> Publisher:
        made = Publisher(
            self.api,
            self.clock,
            Entropy(3),
            self.routes,
            driver=DRIVER,
            node_name=node,
            report=self.errors.append,
            **options,
        )
        self.go(made.run())
        return made

    async def node(self, name: str = "n1") -> Object:
        return await self.human.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    async def slices(self) -> list[Object]:
        return sorted((await self.human.list(SLICE)).items, key=lambda s: str(s["metadata"]["name"]))

    async def published(self, publisher: Publisher, pools: Mapping[str, Pool]) -> list[Object]:
        publisher.publish(pools)
        await publisher.published.wait()
        return await self.slices()


def pool(count: int, **fields: Any) -> Pool:
    return Pool(tuple(device(f"d{n}", {"index": n}, **fields) for n in range(count)))


async def first_write_is_right(scene: Scene) -> None:
    node = await scene.node()
    slices = await scene.published(scene.publisher(), {"n1": pool(200)})
    assert scene.api.writes == ["create", "create"]
    assert [s["spec"]["pool"] for s in slices] == [{"name": "n1", "generation": 1, "resourceSliceCount": 2}] * 2
    assert {s["spec"]["nodeName"] for s in slices} == {"n1"}
    owner = slices[0]["metadata"]["ownerReferences"]
    assert owner == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": True}
    ]
    assert slices[1]["metadata"]["name"].startswith("00001-d.example.com-n1-")
    await scene.clock.sleep(600)
    assert len(scene.api.writes) == 2, "nothing changed, nothing is written"


async def waits_for_its_node(scene: Scene) -> None:
    publisher = scene.publisher()
    publisher.publish({"n1": pool(1)})
    await scene.clock.sleep(5)
    assert await scene.slices() == []
    await scene.node()
    await scene.clock.sleep(40)
    assert len(await scene.slices()) == 1
    assert scene.errors


async def deleted_slice_comes_back(scene: Scene) -> None:
    await scene.node()
    slices = await scene.published(scene.publisher(), {"n1": pool(200)})
    await scene.human.delete(SLICE, slices[0]["metadata"]["name"])
    await scene.clock.sleep(RESYNC_S + 1)
    again = await scene.slices()
    assert [len(s["spec"]["devices"]) for s in again] == [128, 72]
    assert {s["spec"]["pool"]["generation"] for s in again} == {2}


async def changed_slice_is_put_right(scene: Scene) -> None:
    await scene.node()
    (before,) = await scene.published(scene.publisher(), {"n1": pool(2)})
    name = before["metadata"]["name"]
    await scene.human.patch(SLICE, name, {"spec": {"devices": [{"name": "forged"}]}})
    await scene.clock.sleep(RESYNC_S + 1)
    (after,) = await scene.slices()
    assert [d["name"] for d in after["spec"]["devices"]] == ["d0", "d1"]
    assert scene.api.writes == ["create", "update"]


async def taints_keep_their_time(scene: Scene) -> None:
    await scene.node()
    publisher = scene.publisher()
    taint = DeviceTaint("broken", "", "NoSchedule")
    (before,) = await scene.published(publisher, {"n1": pool(1, taints=(taint,))})
    added = before["spec"]["devices"][0]["taints"][0]["timeAdded"]
    await scene.clock.sleep(100)
    more = DeviceTaint("more", "", "None")
    (after,) = await scene.published(publisher, {"n1": pool(1, taints=(taint, more))})
    assert after["spec"]["devices"][0]["taints"][0]["timeAdded"] == added
    assert scene.api.writes == ["create", "update"]


async def pool_no_longer_wanted_goes(scene: Scene) -> None:
    await scene.node()
    publisher = scene.publisher()
    await scene.published(publisher, {"a": pool(1), "b": pool(1)})
    slices = await scene.published(publisher, {"b": pool(1)})
    assert [s["spec"]["pool"]["name"] for s in slices] == ["b"]
    assert scene.api.writes == ["create", "create", "delete"]


async def others_are_left_alone(scene: Scene) -> None:
    await scene.node()
    await scene.node("n2")
    await scene.published(scene.publisher(), {"n1": pool(1)})
    other = scene.publisher("n2")
    await scene.published(other, {"n2": pool(1)})
    slices = await scene.published(other, {})
    assert [s["spec"]["nodeName"] for s in slices] == ["n1"]


async def restart_finds_its_slices(scene: Scene) -> None:
    await scene.node()
    await scene.published(scene.publisher(), {"n1": pool(200)})
    scene.tasks.pop().cancel()
    await scene.published(scene.publisher(), {"n1": pool(200)})
    assert scene.api.writes == ["create", "create"]


async def failing_server_is_waited_for(scene: Scene) -> None:
    await scene.node()
    scene.api.down = 4
    await scene.published(scene.publisher(), {"n1": pool(1)})
    assert len(scene.errors) == 4
    assert scene.api.writes == ["create"]


async def dropped_fields_end_no_loop(scene: Scene) -> None:
    await scene.node()
    scene.api.drops = ("allowMultipleAllocations",)
    publisher = scene.publisher()
    pools = {"n1": pool(1, allow_multiple_allocations=True)}
    (stored,) = await scene.published(publisher, pools)
    assert "feature gates that seem to be off: DRAConsumableCapacity" in str(scene.errors[0])
    await scene.clock.sleep(300)
    await scene.published(publisher, pools)
    assert scene.api.writes == ["create"]
    # It is no licence for others to change what was kept.
    await scene.human.patch(SLICE, stored["metadata"]["name"], {"spec": {"devices": [{"name": "forged"}]}})
    await scene.clock.sleep(RESYNC_S + 1)
    (after,) = await scene.slices()
    assert [d["name"] for d in after["spec"]["devices"]] == ["d0"]


async def invalid_pool_is_reported_once(scene: Scene) -> None:
    await scene.node()
    publisher = scene.publisher()
    publisher.publish({"n1": Pool((device("a"), device("a")))})
    await scene.clock.sleep(100)
    assert [str(error) for error in scene.errors] == ["pool n1: device 'a' is defined twice"]
    assert scene.api.writes == []
    await scene.published(publisher, {"n1": pool(1)})


async def one_pool_for_the_cluster(scene: Scene) -> None:
    await scene.node()
    publisher = scene.publisher(only_pool="fabric")
    slices = await scene.published(publisher, {"fabric": Pool((device("a"),), all_nodes=True), "other": pool(1)})
    assert [(s["spec"]["pool"]["name"], s["spec"].get("nodeName")) for s in slices] == [("fabric", None)]
    assert slices[0]["metadata"]["ownerReferences"][0]["name"] == "n1"


Scenario = Callable[[Scene], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {
    "the first write is right and the last": first_write_is_right,
    "a driver that is earlier than its node waits": waits_for_its_node,
    "a deleted slice comes back": deleted_slice_comes_back,
    "a changed slice is put right": changed_slice_is_put_right,
    "taints keep the time they were added": taints_keep_their_time,
    "a pool no longer wanted goes": pool_no_longer_wanted_goes,
    "slices of other nodes are left alone": others_are_left_alone,
    "a restarted driver finds its slices": restart_finds_its_slices,
    "a failing server is waited for": failing_server_is_waited_for,
    "fields that the server drops end in no loop": dropped_fields_end_no_loop,
    "an invalid pool is reported once": invalid_pool_is_reported_once,
    "one pool for the whole cluster": one_pool_for_the_cluster,
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_publishing(scenario: Scenario) -> None:
    async def main(clock: Clock) -> None:
        scene = Scene(clock)
        try:
            await scenario(scene)
        finally:
            for task in scene.tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    run(main)
