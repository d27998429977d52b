"""The example driver: what it publishes, what a container gets, and its entries for hosts."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.resource import ResourceClaim
from dragoman.drivers.example import driver as module
from dragoman.drivers.example.entry import ENTRY
from dragoman.node.classes import install_classes
from dragoman.node.driver import ClaimRef, ClaimToPrepare
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run
from tests.kubelet.stage import CLAIM, POD, stage


def test_eight_devices_as_the_lab_has_them() -> None:
    async def main(clock: Clock) -> None:
        async with stage(clock) as world:
            agent = await world.agent(sockets=False)
            await world.attached(agent)
            (slice_,) = await world.slices()
            assert slice_["spec"]["driver"] == "gpu.example.com"
            assert slice_["spec"]["nodeName"] == "n1"
            assert slice_["spec"]["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}
            devices = slice_["spec"]["devices"]
            assert [d["name"] for d in devices] == [f"gpu-{n}" for n in range(8)]
            uuids = [d["attributes"].pop("uuid")["string"] for d in devices]
            assert len(set(uuids)) == 8
            assert all(uuid.startswith("gpu-") and len(uuid) == 40 for uuid in uuids)
            for index, device in enumerate(devices):
                assert device["attributes"] == {
                    "index": {"int": index},
                    "model": {"string": "LATEST-GPU-MODEL"},
                    "driverVersion": {"version": "1.0.0"},
                }
                assert device["capacity"] == {"memory": {"value": "80Gi"}, "compute": {"value": "100"}}

    run(main)


def test_uuids_stay_and_differ_between_nodes() -> None:
    async def uuids(node: str) -> list[Any]:
        pools = await module.ExampleDriver(node, 2).pools()
        return [device.attributes["uuid"].string for device in pools[node].devices]

    first, again, other = (asyncio.run(uuids(node)) for node in ("a", "a", "b"))
    assert first == again
    assert not set(first) & set(other)


def test_the_container_sees_its_devices_by_name() -> None:
    async def main(clock: Clock) -> None:
        async with stage(clock) as world:
            agent = await world.agent(sockets=False)
            await world.attached(agent)
            claim = await world.claim("two", "gpu-3", "gpu-7")
            await world.pod("p", claims={"gpu": "two"})
            await world.phase("p", "Running")
            lines = {line.strip() for line in agent.logs("default", "p").splitlines()}
            assert {
                "GPU_DEVICE_3=gpu-3",
                "GPU_DEVICE_7=gpu-7",
                f"GPU_DEVICE_3_RESOURCE_CLAIM={claim['metadata']['uid']}",
                "GPU_DEVICE_3_SHARING_STRATEGY=TimeSlicing",
                "GPU_DEVICE_3_TIMESLICE_INTERVAL=Default",
                "DRA_RESOURCE_DRIVER_NAME=gpu.example.com",
                "KUBERNETES_NODE_NAME=n1",
            } <= lines
            await world.client.delete(POD, "p", "default")
            await world.gone("p")
            assert (await world.client.get(CLAIM, "two", "default"))["metadata"]["uid"] == claim["metadata"]["uid"]

    run(main)


def config(source: str, strategy: str, *requests: str, interval: str = "") -> dict[str, Any]:
    sharing: dict[str, Any] = {"strategy": strategy}
    if interval:
        sharing["timeSlicingConfig"] = {"interval": interval}
    parameters = {"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig", "sharing": sharing}
    return {
        "source": source,
        "requests": list(requests),
        "opaque": {"driver": "gpu.example.com", "parameters": parameters},
    }


CONFIGS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "none": ([], ["TimeSlicing", "Default"]),
    "of the class": ([config("FromClass", "TimeSlicing", interval="Long")], ["TimeSlicing", "Long"]),
    "the claim wins": (
        [config("FromClass", "TimeSlicing"), config("FromClaim", "SpacePartitioning")],
        ["SpacePartitioning"],
    ),
    "for another request": ([config("FromClaim", "SpacePartitioning", "other")], ["TimeSlicing", "Default"]),
    "for this subrequest": ([config("FromClaim", "SpacePartitioning", "gpu/big")], ["SpacePartitioning"]),
}


@pytest.mark.parametrize(("configs", "expected"), CONFIGS.values(), ids=CONFIGS)
def test_configuration(configs: list[dict[str, Any]], expected: list[str]) -> None:
    result = {"request": "gpu/big", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result], "config": configs}}}
    claim = codec.decode(ResourceClaim, {"status": status})
    assert claim.status.allocation
    allocated = claim.status.allocation.devices
    work = ClaimToPrepare(ClaimRef("d", "c", "u"), allocated.results, allocated.config, claim, lambda state: None)
    setup = asyncio.run(module.ExampleDriver("n1").prepare(work))
    env = dict(pair.split("=", 1) for pair in setup.devices[0].edits.env)
    reported = [env["GPU_DEVICE_0_SHARING_STRATEGY"], env.get("GPU_DEVICE_0_TIMESLICE_INTERVAL")]
    assert [value for value in reported if value] == expected


def test_install_is_repeatable() -> None:
    async def main(clock: Clock) -> None:
        async with stage(clock) as world:
            await install_classes(world.client, ENTRY.classes)
            await install_classes(world.client, ENTRY.classes)
            found = await world.client.get(kind_of("DeviceClass"), "gpu.example.com")
            assert found["spec"]["selectors"] == [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]

    run(main)


def test_a_driver_is_small() -> None:
    assert len(inspect.getsource(module).splitlines()) < 100
