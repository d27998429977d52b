"""A whole cluster in which an important pod comes: who ends, and what people read about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.testing.build import claim, pod, request
from tests.daemon.lab import Lab, lab

CLASS = kind_of("PriorityClass")
DEVICE_CLASS = kind_of("DeviceClass")


def bare(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "uid": None}}


async def important(here: Lab) -> None:
    body = {"apiVersion": CLASS.api_version, "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    await here.client.create(CLASS, body)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nodes", "devices"])
def test_devices_of_a_lower_pod_come_free_where_that_is_on(mode: str) -> None:
    async def body() -> None:
        async with lab(("n", "example"), preemption=mode) as here:
            await important(here)
            name = (await here.client.list(DEVICE_CLASS)).items[0]["metadata"]["name"]
            every = {"name": "r", "exactly": {"deviceClassName": name, "allocationMode": "All"}}
            await here.apply(bare(claim("all", every)), bare(pod("low", "all", terminationGracePeriodSeconds=0)))
            await here.phase("low", "Running")
            one = request("r", device_class=name)
            await here.apply(bare(claim("one", one)), bare(pod("urgent", "one", priorityClassName="high")))
            if mode == "nodes":
                assert "preempted" not in (await here.event("FailedScheduling", "urgent")).lower()
                found = await here.pod("low")
                assert found is not None
                assert "deletionTimestamp" not in found["metadata"]
                return
            assert " on node n" in await here.event("Preempted", "low")
            await here.gone("low")
            found = await here.phase("urgent", "Running")
            assert found["spec"]["nodeName"] == "n"
            assert await here.results("one")

    asyncio.run(body())


@pytest.mark.slow
def test_room_on_the_node_is_made_as_kube_scheduler_does() -> None:
    async def body() -> None:
        async with lab(("n", "example")) as here:
            await important(here)
            node = (await here.client.list(kind_of("Node"))).items[0]
            cpu = node["status"]["allocatable"]["cpu"]
            most = f"{int(float(cpu) * 600)}m" if not cpu.endswith("m") else f"{int(cpu[:-1]) * 6 // 10}m"
            await here.apply(bare(pod("low", cpu=most, terminationGracePeriodSeconds=0)))
            await here.phase("low", "Running")
            await here.apply(bare(pod("urgent", cpu=most, priorityClassName="high")))
            await here.event("Preempted", "low")
            found = await here.phase("urgent", "Running")
            assert found["status"].get("nominatedNodeName") in (None, "n")
            await here.gone("low")

    asyncio.run(body())
