"""What only real sockets show: registration, versions, rolling updates, restarts of drivers, health, podresources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from dragoman.api.kinds import kind_of
from dragoman.kubelet.podresources import SOCKET
from dragoman.node import rpc
from dragoman.node.driver import DeviceHealth
from tests.kubelet.fakes import Lamps, WatchedLamps
from tests.kubelet.stage import POD, Stage, stage

Scenario = Callable[[Stage], Awaitable[None]]


def lamp_claim(world: Stage, name: str, *devices: str) -> Any:
    return world.claim(name, *devices, driver="lamp.example.com")


async def each_container_sees_its_requests(world: Stage) -> None:
    agent = await world.agent()
    await world.driver(driver=Lamps())
    await lamp_claim(world, "two", "left/lamp-0", "right/lamp-1")

    def container(name: str, *claims: dict[str, str], **more: Any) -> dict[str, Any]:
        return {"name": name, "image": "app", "resources": {"claims": list(claims)}, **more}

    left, right = {"name": "lamps", "request": "left"}, {"name": "lamps", "request": "right"}
    await world.pod(
        "mixed",
        claims={"lamps": "two"},
        containers=[
            container("l", left),
            container("r", right),
            container("all", {"name": "lamps"}),
            container("none"),
        ],
        initContainers=[container("early", right), container("side", left, restartPolicy="Always")],
    )
    await world.phase("mixed", "Running")
    expected = {"l": {0}, "r": {1}, "all": {0, 1}, "none": set(), "early": {1}, "side": {0}}
    for name, lamps in expected.items():
        log = agent.logs("default", "mixed", name)
        for lamp in range(4):
            assert (f"LAMP_{lamp}=on" in log) == (lamp in lamps), (name, lamp, log)
            assert (f"/dev/lamp-{lamp}" in log) == (lamp in lamps), (name, lamp, log)


async def v1beta1_alone_is_enough(world: Stage) -> None:
    agent = await world.agent()
    plugin = await world.driver(driver=Lamps(), versions=(rpc.DRA_V1BETA1,))
    await lamp_claim(world, "one", "lamp-2")
    await world.pod("p", claims={"lamp": "one"})
    await world.phase("p", "Running")
    assert "LAMP_2=on" in agent.logs("default", "p")
    await world.client.delete(POD, "p", "default")
    await world.gone("p")
    assert plugin.checkpoint.claims == {}


async def driver_restart_registers_again(world: Stage) -> None:
    agent = await world.agent()
    plugin = await world.driver(driver=Lamps())
    await lamp_claim(world, "one", "lamp-2")
    await world.pod("p", claims={"lamp": "one"})
    await world.phase("p", "Running")
    await world.stop(plugin)
    lamps = Lamps()
    again = await world.driver(driver=lamps)

    async def connected() -> bool:
        return agent.plugins.is_connected("lamp.example.com")

    await world.until(connected)
    assert [record.name for record in again.checkpoint.claims.values()] == ["one"]
    await world.client.delete(POD, "p", "default")
    await world.gone("p")
    assert lamps.calls == [("unprepare", "one")]


async def agent_restart_finds_the_driver(world: Stage) -> None:
    agent = await world.agent()
    lamps = Lamps()
    plugin = await world.driver(driver=lamps)
    before = [s["metadata"]["uid"] for s in await world.slices()]
    await world.stop(agent)
    again = await world.agent()

    async def connected() -> bool:
        return again.plugins.is_connected("lamp.example.com")

    await world.until(connected)

    async def published() -> bool:
        # The new agent wiped the slices, the driver puts them back.
        slices = await world.slices()
        return bool(slices) and slices[0]["metadata"]["uid"] not in before

    await world.until(published)
    assert plugin.registered.is_set()


async def rolling_update_has_two_instances(world: Stage) -> None:
    agent = await world.agent()
    old_lamps, new_lamps = Lamps(), Lamps()
    old = await world.driver(driver=old_lamps, pod_uid="11111111-aaaa")
    await lamp_claim(world, "one", "lamp-1")
    await world.pod("p", claims={"lamp": "one"})
    await world.phase("p", "Running")
    new = await world.driver(driver=new_lamps, pod_uid="22222222-bbbb")
    assert old.dra_socket != new.dra_socket

    async def both() -> bool:
        connection = agent.plugins.connection("lamp.example.com")
        return connection is not None and connection.endpoint == str(new.dra_socket) and connection.connected

    await world.until(both)
    # The newer one answers, and knows what the older one prepared.
    await lamp_claim(world, "two", "lamp-1")
    await world.pod("q", claims={"lamp": "two"})
    message = (await world.event("FailedPrepareDynamicResources", "q"))["message"]
    assert "device n1/lamp-1 is still prepared for claim default/one" in message
    assert new_lamps.calls == []
    await world.stop(old)
    await world.client.delete(POD, "p", "default")
    await world.gone("p")
    assert new_lamps.calls[0] == ("unprepare", "one")
    await world.phase("q", "Running")
    assert new_lamps.lit


async def health_reaches_the_pod(world: Stage) -> None:
    agent = await world.agent()
    lamps = WatchedLamps()
    await world.driver(driver=lamps)
    await lamp_claim(world, "one", "lamp-1")
    await world.pod("p", claims={"lamp": "one"})
    await world.phase("p", "Running")

    async def shown(health: str) -> Any:
        async def there() -> Any:
            pod = await world.get("p")
            assert pod
            entries = pod["status"]["containerStatuses"][0].get("allocatedResourcesStatus") or []
            return entries if entries and entries[0]["resources"][0]["health"] == health else None

        return await world.until(there)

    await shown("Unknown")
    lamps.say(DeviceHealth("n1", "lamp-0", "Unhealthy"), DeviceHealth("n1", "lamp-1", "Healthy", timeout_s=60))
    entries = await shown("Healthy")
    assert entries[0]["name"] == "claim:lamp"
    assert entries[0]["resources"][0]["resourceID"].startswith("k8s.lamp.example.com/claim=")
    lamps.say(DeviceHealth("n1", "lamp-1", "Unhealthy", "x" * 2000))
    entries = await shown("Unhealthy")
    message = entries[0]["resources"][0]["message"]
    assert len(message) == 1024
    assert (world.folder / "n1" / "dra_health_state").exists()
    assert agent.health.health("lamp.example.com", "n1", "lamp-0") == ("Unhealthy", "")


async def podresources_lists_devices(world: Stage) -> None:
    await world.agent()
    await world.driver(driver=Lamps())
    await lamp_claim(world, "two", "left/lamp-0", "right/lamp-1")
    containers = [
        {"name": "one", "image": "a", "resources": {"claims": [{"name": "lamp", "request": "left"}]}},
        {"name": "other", "image": "a"},
    ]
    await world.pod("p", claims={"lamp": "two"}, containers=containers)
    await world.phase("p", "Running")
    messages = rpc.POD_RESOURCES.messages
    async with rpc.dial(world.folder / "n1" / SOCKET) as channel:

        async def ask(method: str, request: Any) -> Any:
            return await rpc.call(channel, rpc.POD_RESOURCES, method, request, timeout_s=5)

        answer = await ask("List", messages.ListPodResourcesRequest())
        assert [pod.name for pod in answer.pod_resources] == ["p"]
        first, other = answer.pod_resources[0].containers
        assert len(other.dynamic_resources) == 0
        (dynamic,) = first.dynamic_resources
        assert (dynamic.claim_namespace, dynamic.claim_name) == ("default", "two")
        # All devices of the claim, each with its own CDI ids only.
        assert [(r.driver_name, r.pool_name, r.device_name) for r in dynamic.claim_resources] == [
            ("lamp.example.com", "n1", "lamp-0"),
            ("lamp.example.com", "n1", "lamp-1"),
        ]
        assert [len(r.cdi_devices) for r in dynamic.claim_resources] == [1, 1]
        one = await ask("Get", messages.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))
        assert one.pod_resources == answer.pod_resources[0]
        with pytest.raises(aio.AioRpcError, match="pod q in namespace default not found"):
            await ask("Get", messages.GetPodResourcesRequest(pod_name="q", pod_namespace="default"))
        allocatable = await ask("GetAllocatableResources", messages.AllocatableResourcesRequest())
        assert allocatable == messages.AllocatableResourcesResponse()
        floods = [ask("List", messages.ListPodResourcesRequest()) for _ in range(100)]
        refused = [r for r in await asyncio.gather(*floods, return_exceptions=True) if isinstance(r, aio.AioRpcError)]
        assert refused
        assert "rejected by rate limit" in (refused[0].details() or "")


async def stalled_registration_is_refused_with_reason(world: Stage) -> None:
    """Plugins that say something wrong get the kubelet's words for it."""
    agent = await world.agent()
    messages = rpc.REGISTRATION.messages
    heard: dict[str, str] = {}

    async def odd(name: str, **fields: Any) -> aio.Server:
        async def info(request: Any, context: Any) -> Any:
            return messages.PluginInfo(name=name, **fields)

        async def notify(request: Any, context: Any) -> Any:
            heard[name] = "registered" if request.plugin_registered else request.error
            return messages.RegistrationStatusResponse()

        handler = rpc.handlers(rpc.REGISTRATION, {"GetInfo": info, "NotifyRegistrationStatus": notify})
        return await rpc.serve(agent.plugins.registry_dir / f"{name}-reg.sock", [handler])

    endpoint = str(world.folder / "x.sock")
    servers = [
        await odd("csi", type="CSIPlugin", endpoint=endpoint, supported_versions=["1.0.0"]),
        await odd("empty", type="DRAPlugin", endpoint=endpoint),
        await odd("future", type="DRAPlugin", endpoint=endpoint, supported_versions=["v9.DRAPlugin"]),
        await odd("good", type="DRAPlugin", endpoint=endpoint, supported_versions=["v9.DRAPlugin", "v1.DRAPlugin"]),
    ]
    agent.host.beat()

    async def all_heard() -> bool:
        return len(heard) == 4

    await world.until(all_heard)
    socket = agent.plugins.registry_dir / "csi-reg.sock"
    assert (
        heard["csi"] == f"RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket {socket}"
    )
    about = f"invalid supported gRPC versions of DRA driver plugin %s at endpoint {endpoint}"
    prefix = f"RegisterPlugin error -- plugin validation failed with err: {about}: "
    assert heard["empty"] == prefix % "empty" + "empty list of supported gRPC services (aka supported versions)"
    assert heard["future"] == prefix % "future" + (
        'none of services supported by the plugin (["v9.DRAPlugin"]) are supported by the kubelet '
        '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
    )
    assert heard["good"] == "registered"
    assert agent.plugins.drivers == ["good"]
    for server in servers:
        await server.stop(0)


async def driver_that_answers_nonsense_fails_the_prepare(world: Stage) -> None:
    agent = await world.agent()
    messages = rpc.DRA_V1.messages
    answers: list[Any] = [
        messages.NodePrepareResourcesResponse(),
        messages.NodePrepareResourcesResponse(claims={"other": messages.NodePrepareResourceResponse()}),
    ]

    async def prepare(request: Any, context: Any) -> Any:
        return answers[0]

    async def info(request: Any, context: Any) -> Any:
        return rpc.REGISTRATION.messages.PluginInfo(
            type="DRAPlugin", name="odd.example.com", endpoint=str(endpoint), supported_versions=["v1.DRAPlugin"]
        )

    async def notify(request: Any, context: Any) -> Any:
        return rpc.REGISTRATION.messages.RegistrationStatusResponse()

    endpoint: Path = world.folder / "odd.sock"
    served = rpc.handlers(rpc.DRA_V1, {"NodePrepareResources": prepare, "NodeUnprepareResources": prepare})
    dra = await rpc.serve(endpoint, [served])
    registration = rpc.handlers(rpc.REGISTRATION, {"GetInfo": info, "NotifyRegistrationStatus": notify})
    reg = await rpc.serve(agent.plugins.registry_dir / "odd-reg.sock", [registration])
    agent.host.beat()

    async def known() -> bool:
        return agent.plugins.is_connected("odd.example.com")

    await world.until(known)
    await world.claim("one", "d", driver="odd.example.com")
    await world.pod("p", claims={"c": "one"})

    async def said(text: str) -> bool:
        events = (await world.client.list(kind_of("Event"), "default")).items
        return any(e["message"].endswith(text) for e in events)

    await world.until(lambda: said("NodePrepareResources skipped 1 ResourceClaims"))
    answers.pop(0)
    await world.until(lambda: said("NodePrepareResources returned result for unknown claim UID other"))
    await dra.stop(0)
    await reg.stop(0)


async def plugin_knows_whether_it_lives(world: Stage) -> None:
    plugin = await world.run_plugin(world.plugin(driver=Lamps())) if await world.agent() else None
    assert plugin
    assert await plugin.is_live()
    await world.stop(plugin)
    assert not await plugin.is_live()
    assert not plugin.dra_socket.exists()
    assert not plugin.registration_socket.exists()


SCENARIOS: dict[str, Scenario] = {
    "each container sees exactly the requests it names": each_container_sees_its_requests,
    "a driver with v1beta1 alone serves": v1beta1_alone_is_enough,
    "a restarted driver registers again and knows its claims": driver_restart_registers_again,
    "a restarted agent finds the driver, whose slices come back": agent_restart_finds_the_driver,
    "during a rolling update two instances share their state": rolling_update_has_two_instances,
    "health reaches the pod's status": health_reaches_the_pod,
    "podresources lists the devices of containers": podresources_lists_devices,
    "wrong registrations are refused in the kubelet's words": stalled_registration_is_refused_with_reason,
    "a driver that answers nonsense fails the prepare": driver_that_answers_nonsense_fails_the_prepare,
    "a plugin knows whether it lives": plugin_knows_whether_it_lives,
}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_over_sockets(scenario: Scenario) -> None:
    async def main() -> None:
        async with stage() as world:
            await scenario(world)

    asyncio.run(main())
