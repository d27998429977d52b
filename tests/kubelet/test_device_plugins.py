"""A device plugin's real socket and our node agent: lists, health, allocation, restarts, podresources."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from grpc import aio

from dragoman.errors import Retry
from dragoman.kubelet import device_checkpoint, state
from dragoman.kubelet.agent import NodeAgent
from dragoman.kubelet.plugin_devices import STOP_GRACE_S
from dragoman.kubelet.podresources import SOCKET
from dragoman.node import rpc
from dragoman.node.device_plugin import (
    FOLDER,
    KUBELET_SOCKET,
    ContainerDevices,
    DevicePluginServer,
    HostDevice,
    HostMount,
    PluginDevice,
)
from tests.kubelet.stage import NODE, POD, Stage, stage

RESOURCE = "lamp.example.com/bulb"


class Bulbs:
    """A device source with so many bulbs."""

    resource = RESOURCE
    socket_name = "bulbs.sock"

    def __init__(self, count: int, *, pre_start: bool = False) -> None:
        self.ill: set[str] = set()
        self.names = [f"bulb-{number}" for number in range(count)]
        self.pre_start = pre_start
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.refusal = ""

    def devices(self) -> Sequence[PluginDevice]:
        return [PluginDevice(name, name not in self.ill, (int(name[-1]) % 2,)) for name in self.names]

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        self.calls.append(("preferred", tuple(must_include)))
        rest = [name for name in reversed(available) if name not in must_include]
        return [*must_include, *rest][:size]

    async def allocate(self, ids: Sequence[str]) -> ContainerDevices:
        self.calls.append(("allocate", tuple(ids)))
        if self.refusal:
            raise Retry(self.refusal)
        return ContainerDevices(
            {"BULBS": ",".join(ids)},
            (HostMount("/bulbs", "/host/bulbs", read_only=True),),
            tuple(HostDevice(f"/dev/{name}", f"/dev/{name}") for name in ids),
        )

    async def start(self, ids: Sequence[str]) -> None:
        self.calls.append(("start", tuple(ids)))
        if self.refusal:
            raise Retry(self.refusal)


def played(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        async with stage() as world:
            await scenario(world)

    asyncio.run(main())


@asynccontextmanager
async def serving(world: Stage, source: Bulbs, node: str = "n1") -> AsyncIterator[DevicePluginServer]:
    server = DevicePluginServer(source, world.folder / node, world.clock)
    task = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        task.cancel()
        await asyncio.wait({task})


async def amounts(world: Stage, capacity: str | None, allocatable: str | None) -> None:
    async def so() -> bool:
        status = (await world.client.get(NODE, "n1"))["status"]
        return (status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)) == (capacity, allocatable)

    await world.until(so)


def asking(count: int, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "app", "resources": {"limits": {RESOURCE: str(count)}}, **more}


def test_capacity_and_allocatable_follow_the_list() -> None:
    async def scenario(world: Stage) -> None:
        await world.agent()
        source = Bulbs(3)
        async with serving(world, source) as server:
            await amounts(world, "3", "3")
            source.ill = {"bulb-1"}
            server.changed()
            await amounts(world, "3", "2")
        # Without its plugin nothing can be allocated; the devices stay part of the machine for a while.
        await amounts(world, "3", "0")
        world.clock.advance(STOP_GRACE_S + 1)
        await amounts(world, "0", "0")

    played(scenario)


def test_containers_get_what_the_plugin_answers() -> None:
    async def scenario(world: Stage) -> None:
        agent = await world.agent()
        source = Bulbs(4, pre_start=True)
        async with serving(world, source):
            await amounts(world, "4", "4")
            await world.pod("p", containers=[asking(2), {"name": "other", "image": "app"}])
            pod = await world.phase("p", "Running")
            log = agent.logs("default", "p", "main")
            assert "BULBS=bulb-3,bulb-2" in log  # as the plugin prefers
            assert "/dev/bulb-3" in log
            assert "/bulbs from /host/bulbs" in log
            assert "BULBS" not in agent.logs("default", "p", "other")
            assert ("start", ("bulb-2", "bulb-3")) in source.calls
            (status,) = [c for c in pod["status"]["containerStatuses"] if c["name"] == "main"]
            assert status["allocatedResourcesStatus"] == [
                {
                    "name": RESOURCE,
                    "resources": [
                        {"resourceID": "bulb-2", "health": "Healthy"},
                        {"resourceID": "bulb-3", "health": "Healthy"},
                    ],
                }
            ]

    played(scenario)


def test_a_sick_device_is_seen_on_its_pod() -> None:
    async def scenario(world: Stage) -> None:
        await world.agent()
        source = Bulbs(1)
        async with serving(world, source) as server:
            await amounts(world, "1", "1")
            await world.pod("p", containers=[asking(1)])
            await world.phase("p", "Running")
            source.ill = {"bulb-0"}
            server.changed()

            async def seen() -> bool:
                pod = await world.get("p")
                assert pod is not None
                lists = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
                return bool(lists[0]["resources"] == [{"resourceID": "bulb-0", "health": "Unhealthy"}])

            await world.until(seen)
            pod = await world.get("p")
            assert pod is not None
            assert pod["status"]["phase"] == "Running"  # nobody is evicted

    played(scenario)


@pytest.mark.parametrize(
    ("count", "refusal", "message"),
    [
        (
            5,
            "",
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
            f"{RESOURCE}. Requested: 5, Available: 4, which is unexpected",
        ),
        (
            2,
            "too bright",
            "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = too bright, which is unexpected",
        ),
    ],
)
def test_a_pod_that_cannot_get_its_devices_fails(count: int, refusal: str, message: str) -> None:
    async def scenario(world: Stage) -> None:
        agent = await world.agent()
        source = Bulbs(4)
        async with serving(world, source):
            await amounts(world, "4", "4")
            source.refusal = refusal
            await world.pod("p", containers=[asking(count)])
            pod = await world.phase("p", "Failed")
            assert (pod["status"]["reason"], pod["status"]["message"]) == ("UnexpectedAdmissionError", message)
            assert agent.devices.used() == {}

    played(scenario)


def test_devices_of_init_containers_are_used_again() -> None:
    async def scenario(world: Stage) -> None:
        agent = await world.agent()
        source = Bulbs(4)
        async with serving(world, source):
            await amounts(world, "4", "4")
            init = [asking(1, "early"), asking(1, "side", restartPolicy="Always")]
            await world.pod("p", initContainers=init, containers=[asking(2)])
            await world.phase("p", "Running")
            uid = (await world.get("p") or {})["metadata"]["uid"]
            given = {e.container_name: e.devices for e in agent.devices.entries(uid)}
            assert given["early"] == given["side"] == {"bulb-3"}
            assert not given["main"] & given["side"]
            assert agent.devices.used() == {RESOURCE: 3}

    played(scenario)


def test_a_restart_of_the_agent_gives_nothing_twice() -> None:
    async def scenario(world: Stage) -> None:
        agent = await world.agent()
        source = Bulbs(2)
        async with serving(world, source) as server:
            await amounts(world, "2", "2")
            await world.pod("p", containers=[asking(1)])
            await world.phase("p", "Running")
            await world.stop(agent)
            agent = await world.agent()
            assert agent.devices.used() == {RESOURCE: 1}
            await amounts(world, "2", "2")  # the plugin has registered again
            assert server.registered.is_set()
            await world.pod("q", containers=[asking(1)])
            await world.pod("r", containers=[asking(1)])
            ended = [await world.phase(name, "Running", "Failed") for name in ("q", "r")]
            assert sorted(pod["status"]["phase"] for pod in ended) == ["Failed", "Running"]
            held = [e.devices for e in agent.devices._entries.values()]
            assert sorted(map(sorted, held)) == [["bulb-0"], ["bulb-1"]]
            await world.client.delete(POD, "p", "default", grace_period_s=0)
            await world.gone("p")
            await world.until(lambda: agent.devices.used() == {RESOURCE: 1})

    played(scenario)


def test_a_checkpoint_that_is_damaged_is_reported_and_left(tmp_path: Path) -> None:
    path = tmp_path / device_checkpoint.FILE
    entry = device_checkpoint.DeviceEntry("u", "c", RESOURCE, {-1: ["bulb-0"]}, b"")
    device_checkpoint.write(path, device_checkpoint.DeviceRecord([entry], {RESOURCE: ["bulb-0"]}), durable=False)
    record = device_checkpoint.read(path)
    assert record is not None
    assert record.pod_device_entries[0].devices == {"bulb-0"}
    path.write_bytes(path.read_bytes().replace(b"bulb-0", b"bulb-9"))
    with pytest.raises(Exception, match="checksum"):
        device_checkpoint.read(path)


async def podresources(agent: NodeAgent, method: str, request: Any) -> Any:
    async with rpc.dial(agent.root_dir / SOCKET) as channel:
        return await rpc.call(channel, rpc.POD_RESOURCES, method, request, timeout_s=5)


def test_podresources_lists_both_paths() -> None:
    async def scenario(world: Stage) -> None:
        agent = await world.agent()
        await world.driver()
        await world.claim("c", "gpu-0")
        async with serving(world, Bulbs(3)):
            await amounts(world, "3", "3")
            container = asking(1)
            container["resources"]["claims"] = [{"name": "gpu"}]
            await world.pod("p", claims={"gpu": "c"}, containers=[container])
            await world.phase("p", "Running")
            messages = rpc.POD_RESOURCES.messages
            listed = await podresources(agent, "List", messages.ListPodResourcesRequest())
            request = messages.GetPodResourcesRequest(pod_name="p", pod_namespace="default")
            got = await podresources(agent, "Get", request)
            assert [got.pod_resources] == list(listed.pod_resources)
            (found,) = got.pod_resources.containers
            (device,) = found.devices
            assert (device.resource_name, list(device.device_ids)) == (RESOURCE, ["bulb-2"])
            assert [node.ID for node in device.topology.nodes] == [0]
            assert [c.claim_name for c in found.dynamic_resources] == ["c"]
            allocatable = await podresources(agent, "GetAllocatableResources", messages.AllocatableResourcesRequest())
            assert sorted(id_ for d in allocatable.devices for id_ in d.device_ids) == ["bulb-0", "bulb-1", "bulb-2"]

    played(scenario)


@pytest.mark.parametrize(
    ("version", "resource", "text"),
    [
        ("v1alpha", RESOURCE, 'requested API version "v1alpha" is not supported'),
        ("v1beta1", "cpu", 'the ResourceName "cpu" is invalid'),
        ("v1beta1", "kubernetes.io/x", 'the ResourceName "kubernetes.io/x" is invalid'),
        ("v1beta1", RESOURCE, "failed to dial device plugin"),
    ],
)
def test_registrations_that_are_refused(version: str, resource: str, text: str) -> None:
    async def scenario(world: Stage) -> None:
        await world.agent()
        messages = rpc.DEVICE_REGISTRATION.messages
        request = messages.RegisterRequest(version=version, endpoint="none.sock", resource_name=resource)
        async with rpc.dial(world.folder / "n1" / FOLDER / KUBELET_SOCKET) as channel:
            with pytest.raises(aio.AioRpcError) as refused:
                await rpc.call(channel, rpc.DEVICE_REGISTRATION, "Register", request, timeout_s=15)
        assert text in str(refused.value.details())

    played(scenario)


def test_a_node_that_was_made_again_has_no_devices_of_its_earlier_life() -> None:
    async def scenario(world: Stage) -> None:
        agent = await world.agent()
        async with serving(world, Bulbs(2)):
            await amounts(world, "2", "2")
        await amounts(world, "2", "0")
        await world.stop(agent)
        agent.devices.path.unlink()
        await world.agent()
        await amounts(world, "0", "0")

    played(scenario)


def test_a_kubelets_record_of_no_claims(tmp_path: Path) -> None:
    """Go writes an empty list as null."""
    data = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}'
    path = tmp_path / state.FILE
    path.write_bytes(msgspec.json.encode({"Data": data, "Checksum": zlib.crc32(data.encode())}))
    assert state.devices_of(path, "gpu.example.com") == frozenset()
