"""Faults of GPUs hit the pods that the way of sharing does not protect, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.shape import Object
from dragoman.drivers.nvidia.factory import MachineSettings
from dragoman.testing.build import claim, request
from tests.daemon.lab import Lab, short_pod
from tests.daemon.test_simulation import fault, played, state

pytestmark = pytest.mark.slow

GPU, MIG = "gpu.nvidia.com", "mig.nvidia.com"
SHARING = {GPU: MachineSettings({"TimeSlicingSettings": True, "MPSSupport": True})}


def sharing(strategy: str, **more: Any) -> list[Object]:
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": strategy, **more},
    }
    return [{"opaque": {"driver": GPU, "parameters": parameters}}]


async def restarts(world: Lab, *names: str) -> dict[str, int]:
    found = {}
    for name in names:
        body = await world.pod(name)
        assert body is not None
        found[name] = sum(status["restartCount"] for status in body["status"].get("containerStatuses", []))
    return found


async def hit(world: Lab, cause: Object, expected: str, pods: str) -> None:
    """The fault says whom it hits, and their containers end with an error, those of the others do not."""
    await running(world, *pods)
    before = await restarts(world, *pods)
    await world.apply(cause)
    _, message = await state(world, cause["metadata"]["name"])
    _, _, reported = message.partition("affected pods: ")
    assert [one.removeprefix("default/") for one in reported.split(", ")] == list(expected)

    async def ended() -> bool:
        now = await restarts(world, *pods)
        return all(now[pod] > before[pod] for pod in expected)

    await world.until(ended)
    now = await restarts(world, *pods)
    assert [pod for pod in pods if now[pod] != before[pod]] == list(expected)
    body = await world.pod(expected[0])
    assert body is not None
    last = body["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 1
    assert last["message"].startswith("CUDA error: ")


async def running(world: Lab, *names: str) -> None:
    """Their containers run, again if need be."""

    async def run() -> bool:
        for name in names:
            body = await world.pod(name)
            states = [c["state"] for c in body["status"].get("containerStatuses", [])] if body else []
            if not states or not all("running" in state for state in states):
                return False
        return True

    await world.until(run)


def test_time_slices_protect_from_errors_of_others_but_not_from_their_memory() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(
            claim("shared", request("g", GPU), config=sharing("TimeSlicing")), claim("own", request("g", GPU))
        )
        await world.apply(short_pod("a", "shared"), short_pod("b", "shared"), short_pod("c", "own"))
        await running(world, *"abc")
        (device,) = [result["device"] for result in await world.results("shared")]
        await hit(world, fault("one", fault="xid", node="n1", gpu=device, xid="31", pod="a"), "a", "abc")
        await hit(world, fault("two", fault="memory-overrun", node="n1", gpu=device, pod="default/b"), "ab", "abc")

    played(scenario, ("n1", "dgx-h100"), drivers=SHARING, speed=20.0)


def test_mps_shares_errors_and_its_limits_protect_memory() -> None:
    async def scenario(world: Lab) -> None:
        limits = {"mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10Gi"}}
        await world.apply(claim("shared", request("g", GPU), config=sharing("MPS", **limits)))
        await world.apply(short_pod("a", "shared"), short_pod("b", "shared"))
        await running(world, *"ab")
        (device,) = [result["device"] for result in await world.results("shared")]
        await hit(world, fault("one", fault="memory-overrun", node="n1", gpu=device, pod="a"), "a", "ab")
        await hit(world, fault("two", fault="xid", node="n1", gpu=device, xid="31", pod="b"), "ab", "ab")

    played(scenario, ("n1", "dgx-h100"), drivers=SHARING, speed=20.0)


def test_mig_protects_from_everything_but_the_loss_of_the_gpu() -> None:
    async def scenario(world: Lab) -> None:
        cel = "device.attributes['gpu.nvidia.com'].profile == '{}'"
        await world.apply(
            claim("small", request("m", MIG, select=cel.format("1g.5gb"))),
            claim("large", request("m", MIG, select=cel.format("3g.20gb"))),
        )
        await world.apply(short_pod("a", "small"), short_pod("b", "large"))
        await hit(world, fault("one", fault="memory-overrun", node="n1", gpu="0", pod="a"), "a", "ab")
        await hit(world, fault("two", fault="xid", node="n1", gpu="0", xid="48", instance="1"), "b", "ab")
        await hit(world, fault("three", fault="gpu-lost", node="n1", gpu="0"), "ab", "ab")

    played(scenario, ("n1", "a100-40-mig"), speed=20.0)
