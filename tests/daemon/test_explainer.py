"""The daemon that tells why pods wait, against the embedded API in process, in virtual time; no scheduler runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.daemon.explainer import COMPONENT, Explainer
from dragoman.errors import Denied
from dragoman.runtime.clock import Clock
from dragoman.runtime.tasks import Tasks
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod
from dragoman.testing.loop import run
from tests.daemon.test_scheduler import Stage

POD, CLAIM, EVENT, CLASS = (kind_of(name) for name in ("Pod", "ResourceClaim", "Event", "DeviceClass"))
ANSWERED_S = 10.0


class ReadOnly:
    """A client that may list, watch and write Events; it counts writes."""

    def __init__(self, inner: Client, *, events: bool = True) -> None:
        self._inner = inner
        self._events = events
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        if name == "reach":  # no call: what the client knows of its connection
            raise AttributeError(name)
        if name in ("list", "watch", "close"):
            return getattr(self._inner, name)
        if name not in ("create", "patch"):
            raise AssertionError(f"{name} is not among its rights")

        async def write(kind: Any, *args: Any, **more: Any) -> Object:
            assert kind is EVENT, f"{name} of a {kind.kind}"
            if not self._events:
                raise Denied("events are forbidden")
            self.writes += 1
            answer: Object = await getattr(self._inner, name)(kind, *args, **more)
            return answer

        return write


class Reported:
    """What the stage's events say."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def of(self, name: str, namespace: str = "default") -> list[tuple[str, int]]:
        """Message and count of each event about the pod, oldest first."""
        events = (await self.stage.api.list(EVENT, namespace)).items
        mine = [e for e in events if e["involvedObject"]["name"] == name]
        assert all((e["reason"], e["source"]["component"]) == ("Explained", COMPONENT) for e in mine)
        mine.sort(key=lambda e: (e["firstTimestamp"], e["metadata"]["resourceVersion"]))
        return [(e["message"], e["count"]) for e in mine]

    async def count(self, name: str, wanted: int, within_s: float = ANSWERED_S) -> list[tuple[str, int]]:
        """Wait until so many events are there."""

        async def holds() -> bool:
            return len(await self.of(name)) >= wanted

        await self.stage.until(holds, within_s)
        return await self.of(name)


def staged(scenario: Callable[[Stage, Reported, ReadOnly], Awaitable[None]], *, events: bool = True) -> None:
    async def main(clock: Clock) -> None:
        stage = Stage(clock)
        client = ReadOnly(stage.api, events=events)
        async with Tasks("test", clock, stage.entropy) as tasks:
            tasks.supervise("explainer", Explainer(client, clock, stage.entropy).run)
            await scenario(stage, Reported(stage), client)
            tasks.stop()

    run(main)


async def held(stage: Stage, name: str, namespace: str, device: str) -> None:
    """Another scheduler gave the claim a device."""
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    await stage.api.patch(CLAIM, name, {"status": status}, namespace, subresource="status")


def test_a_waiting_pod_hears_why_within_ten_seconds_once() -> None:
    async def scenario(stage: Stage, reported: Reported, client: ReadOnly) -> None:
        await stage.apply(manifest("Namespace", "secret"), node("a"), gpus("a", 1), device_class())
        await stage.apply(claim("theirs", namespace="secret"), claim("c"))
        await held(stage, "theirs", "secret", "gpu-0")
        await stage.apply(pod("p", "c"))
        ((message, count),) = await reported.count("p", 1)
        assert message.startswith("0/1 nodes are available: 1 cannot allocate all claims.")
        assert "1 device matches, 0 of them free" in message
        assert "secret" not in message
        assert "theirs" not in message
        await stage.clock.sleep(600)
        assert (len(await reported.of("p")), count, client.writes) == (1, 1, 1)

    staged(scenario)


def test_another_reason_is_reported_and_the_first_one_counted_when_it_is_back() -> None:
    async def scenario(stage: Stage, reported: Reported, client: ReadOnly) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c", count=2), pod("p", "c"))
        ((few, _),) = await reported.count("p", 1)
        await stage.api.delete(CLASS, "gpu.example.com")
        _, (missing, _) = await reported.count("p", 2)
        assert "gpu.example.com" in missing
        assert missing != few
        await stage.apply(device_class())

        async def counted() -> bool:
            return [count for _, count in await reported.of("p")] == [2, 1]

        await stage.until(counted, ANSWERED_S)
        assert client.writes == 4, "two creations, one of them in vain, and the patch after it"

    staged(scenario)


def test_numbers_alone_are_no_other_reason() -> None:
    async def scenario(stage: Stage, reported: Reported, client: ReadOnly) -> None:
        await stage.apply(node("a"), gpus("a", 3), device_class(), claim("c", count=4), claim("d"), pod("p", "c"))
        await reported.count("p", 1)
        await held(stage, "d", "default", "gpu-0")
        await stage.clock.sleep(30)
        assert (len(await reported.of("p")), client.writes) == (1, 1)

    staged(scenario)


def test_pods_that_fit_are_gated_or_bound_are_let_be() -> None:
    async def scenario(stage: Stage, reported: Reported, client: ReadOnly) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c"), claim("d", count=5))
        gate = {**pod("gated", "d")}
        gate["spec"] = {**gate["spec"], "schedulingGates": [{"name": "wait"}]}
        await stage.apply(pod("fits", "c"), gate)
        await stage.clock.sleep(60)
        assert client.writes == 0

    staged(scenario)


def test_a_restart_tells_nothing_twice() -> None:
    async def main(clock: Clock) -> None:
        stage = Stage(clock)
        client, reported = ReadOnly(stage.api), Reported(stage)
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c", count=2), pod("p", "c"))
        for _ in range(2):
            async with Tasks("test", clock, stage.entropy) as tasks:
                tasks.supervise("explainer", Explainer(client, clock, stage.entropy).run)
                await reported.count("p", 1)
                await clock.sleep(30)
                tasks.stop()
        assert [count for _, count in await reported.of("p")] == [1]

    run(main)


def test_without_the_right_to_write_events_it_goes_on() -> None:
    async def scenario(stage: Stage, reported: Reported, client: ReadOnly) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c", count=2), pod("p", "c"))
        await stage.clock.sleep(30)
        client._events = True
        await reported.count("p", 1)

    staged(scenario, events=False)
