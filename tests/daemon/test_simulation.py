"""Faults as objects of a running cluster: what breaks, what follows, and how it recovers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.api.meta import parse_time
from dragoman.api.shape import Object
from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.nvidia.factory import MachineSettings
from dragoman.drivers.nvidia.health import HealthOptions
from dragoman.testing.build import claim, request
from tests.daemon.lab import CONFIG, NODE, Lab, lab, short_pod

pytestmark = pytest.mark.slow

WATCHED = {GPU: MachineSettings({"NVMLDeviceHealthCheck": True})}
EVICTING = {
    GPU: MachineSettings({"NVMLDeviceHealthCheck": True}, HealthOptions(xid_effect="NoExecute", clear_on_recovery=True))
}


def fault(name: str, sort: str = "fault", **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"dragoman.dev/simulate": sort}},
        "data": {key.rstrip("_"): value for key, value in data.items()},
    }


async def state(world: Lab, name: str) -> tuple[str, str]:
    """What came of it."""

    async def reported() -> tuple[str, str] | None:
        annotations = (await world.client.get(CONFIG, name, "default"))["metadata"].get("annotations", {})
        found = annotations.get("dragoman.dev/state")
        return (found, annotations["dragoman.dev/message"]) if found else None

    answer: tuple[str, str] = await world.until(reported)
    return answer


async def recover(world: Lab, name: str) -> None:
    await world.client.delete(CONFIG, name, "default")


def played(scenario: Callable[[Lab], Awaitable[None]], *nodes: tuple[str, str], **settings: Any) -> None:
    async def main() -> None:
        async with lab(*nodes, **settings) as world:
            await scenario(world)

    asyncio.run(main())


async def taints(world: Lab, driver: str, node: str) -> dict[str, list[str]]:
    devices = await world.devices(driver, node)
    return {name: [t["key"] for t in d["taints"]] for name, d in devices.items() if d.get("taints")}


def test_an_xid_taints_the_gpu_and_the_next_pod_goes_elsewhere() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(fault("x", fault="xid", node="n1", gpu="0", xid="79"))
        assert await state(world, "x") == ("active", "XID 79 on GPU gpu-0 of node n1")

        async def tainted() -> bool:
            return bool(await taints(world, "gpu.nvidia.com", "n1"))

        await world.until(tainted)
        assert await taints(world, "gpu.nvidia.com", "n1") == {"gpu-0": ["gpu.nvidia.com/xid"]}
        await world.apply(claim("c", request("gpu", "gpu.nvidia.com")), short_pod("p", "c"))
        await world.phase("p", "Running")
        assert [r["device"] for r in await world.results("c")] == ["gpu-1"]
        await recover(world, "x")

        async def clear() -> bool:
            return not await taints(world, "gpu.nvidia.com", "n1")

        await world.until(clear)

    played(scenario, ("n1", "dgx-h100"), drivers=WATCHED)


def test_an_xid_evicts_the_pod_where_that_is_wanted() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(claim("c", request("gpu", "gpu.nvidia.com")), short_pod("p", "c"))
        await world.phase("p", "Running")
        (result,) = await world.results("c")
        await world.apply(fault("x", fault="xid", node="n1", gpu=result["device"], xid="79"))
        await world.gone("p")

    played(scenario, ("n1", "dgx-h100"), drivers=EVICTING)


def test_a_lost_gpu_is_reported_in_the_pods_status_and_comes_back() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(claim("c", request("gpu", "gpu.nvidia.com")), short_pod("p", "c"))
        await world.phase("p", "Running")
        await world.apply(fault("lost", fault="gpu-lost", node="n1", gpu="gpu-0"))
        assert await state(world, "lost") == ("active", "GPU gpu-0 on node n1 is lost; affected pods: default/p")

        def health(wanted: str) -> Callable[[], Awaitable[bool]]:
            async def reported() -> bool:
                found = await world.pod("p")
                assert found
                (status,) = found["status"]["containerStatuses"]
                listed = [r for s in status.get("allocatedResourcesStatus", []) for r in s["resources"]]
                return [r["health"] for r in listed] == [wanted]

            return reported

        await world.until(health("Unhealthy"))
        await recover(world, "lost")
        await world.until(health("Healthy"))

    played(scenario, ("n1", "dgx-h100"), drivers=WATCHED)


def test_a_driver_that_does_not_look_is_said() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(fault("x", fault="xid", node="n1", gpu="0", xid="79"))
        assert await state(world, "x") == (
            "active",
            "XID 79 on GPU gpu-0 of node n1; the driver does not watch for this: start it with its feature gate "
            "NVMLDeviceHealthCheck=true (dragoman up --gpu-feature-gates NVMLDeviceHealthCheck=true)",
        )

    played(scenario, ("n1", "dgx-h100"))


def test_a_link_goes_down_and_comes_up() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(fault("link", fault="nic-down", node="n1", nic="mlx5_0"))
        assert (await state(world, "link"))[0] == "active"

        async def down() -> bool:
            return await taints(world, "dra.net", "n1") == {"pci-0000-18-00-0": ["dra.net/link-down"]}

        await world.until(down)
        await world.apply(fault("boot", fault="node-rebooted", node="n1", downtime="0s"))
        assert (await state(world, "boot"))[0] == "done"
        await world.until(down)
        await recover(world, "link")

        async def up() -> bool:
            devices = await world.devices("dra.net", "n1")
            return bool(devices) and not await taints(world, "dra.net", "n1")

        await world.until(up)

    played(scenario, ("n1", "dgx-h100"))


def test_a_stopped_driver_prepares_nothing_until_it_runs_again() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(fault("stop", fault="driver-stopped", node="n1"))
        assert await state(world, "stop") == ("active", "stopped on n1: gpu.example.com")
        await world.apply(claim("c", request("gpu", "gpu.example.com")), short_pod("p", "c"))
        said = await world.event("FailedPrepareDynamicResources", "p")
        assert "is not registered" in said or "UNAVAILABLE" in said  # the kubelet finds out within a second
        await recover(world, "stop")
        await world.phase("p", "Running")

    played(scenario, ("n1", "example"))


def test_a_slow_prepare_fits_into_the_kubelets_patience_or_not() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(fault("slow", fault="slow-prepare", node="n1", delay="20s"))
        assert await state(world, "slow") == ("active", "prepare takes 20 s longer on n1: gpu.example.com")
        began = world.cluster.clock.monotonic()
        await world.apply(claim("c", request("gpu", "gpu.example.com")), short_pod("p", "c"))
        await world.phase("p", "Running")
        assert world.cluster.clock.monotonic() - began >= 20
        await recover(world, "slow")

        async def fast() -> bool:
            return not world.cluster.nodes["n1"].delays

        await world.until(fast)

    played(scenario, ("n1", "example"), speed=20.0)


def test_a_reboot_loses_what_a_reboot_loses() -> None:
    async def scenario(world: Lab) -> None:
        before = (await world.client.get(NODE, "n1"))["status"]["nodeInfo"]["bootID"]
        await world.apply(claim("c", request("gpu", "gpu.example.com")), short_pod("p", "c"))
        first = (await world.phase("p", "Running"))["status"]["containerStatuses"][0]
        cdi = world.folder / "n" / "n1" / "cdi"
        (file,) = cdi.glob("*.json")
        stamp = file.stat().st_mtime_ns
        await world.apply(fault("boot", fault="node-rebooted", node="n1", downtime="1s"))
        done, message = await state(world, "boot")
        assert done == "done"

        async def again() -> bool:
            found = await world.pod("p")
            assert found
            (status,) = found["status"]["containerStatuses"]
            return bool(status["restartCount"] == 1 and "running" in status["state"])

        await world.until(again)
        after = (await world.client.get(NODE, "n1"))["status"]["nodeInfo"]["bootID"]
        assert after != before
        assert message == f"n1 rebooted: {after}"
        (file,) = cdi.glob("*.json")
        assert file.stat().st_mtime_ns > stamp, "written anew"
        assert first["restartCount"] == 0

    played(scenario, ("n1", "example"))


def test_a_dynamic_partition_is_gone_after_a_reboot_and_its_pod_gets_a_new_one() -> None:
    async def scenario(world: Lab) -> None:
        small = request("gpu", "mig.nvidia.com", select="device.attributes['gpu.nvidia.com'].profile == '1g.10gb'")
        await world.apply(claim("c", small), short_pod("p", "c"), claim("whole", request("gpu", "gpu.nvidia.com")))
        await world.apply(short_pod("q", "whole", node="n2"))
        await world.phase("p", "Running")
        await world.phase("q", "Running")
        node = (await world.pod("p") or {})["spec"]["nodeName"]
        results = await world.results("c")

        def partitions() -> list[str]:
            driver = world.cluster.nodes[node].plugins["gpu.nvidia.com"].driver
            hardware = driver.hardware  # type: ignore[attr-defined]
            return [instance.uuid for gpu in hardware.gpus() for instance in hardware.instances(gpu.uuid)]

        (before,) = partitions()
        caps = [line for line in (await world.logs("p")).splitlines() if "/dev/nvidia-caps/" in line]
        await world.apply(fault("boot", fault="node-rebooted", node=node, downtime="1s"))
        assert (await state(world, "boot"))[0] == "done"

        async def again() -> str | None:
            found = await world.pod("p")
            assert found
            (status,) = found["status"]["containerStatuses"]
            if status["restartCount"] != 1 or "running" not in status["state"]:
                return None
            return await world.logs("p")

        text = str(await world.until(again))
        (after,) = partitions()
        assert len(caps) == 2
        assert all(line in text for line in caps), "the same instance number on the same GPU"
        assert after != before
        assert await world.results("c") == results, "the allocation stays"
        found = await world.pod("q")
        assert found
        assert found["status"]["containerStatuses"][0]["restartCount"] == (0 if node == "n1" else 1)

    played(scenario, ("n1", "dgx-h100-dynamic"), ("n2", "dgx-h100"))


def test_a_fault_ends_in_its_time_and_the_clock_moves_on() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(fault("stop", fault="driver-stopped", node="n1", for_="10m"))
        assert (await state(world, "stop"))[0] == "active"
        before = world.cluster.clock.now()
        await world.apply(fault("later", "clock", advance="11m"))
        done, message = await state(world, "later")
        assert done == "done"
        assert world.cluster.clock.now() - before >= 660
        shown = parse_time(message.removeprefix("it is ").partition(",")[0]).timestamp()
        assert shown - before >= 659

        async def over() -> bool:
            listed = (await world.client.list(CONFIG, "default", label_selector="dragoman.dev/simulate=fault")).items
            return not listed and world.cluster.nodes["n1"].is_running("gpu.example.com")

        await world.until(over)
        ready = (await world.client.get(NODE, "n1"))["status"]["conditions"]
        assert [c["status"] for c in ready if c["type"] == "Ready"] == ["True"], "no node looked silent"
        await world.apply(fault("fast", "clock", speed="50"))
        assert (await state(world, "fast"))[1].endswith("speed 50")
        assert world.cluster.clock.speed == 50

    played(scenario, ("n1", "example"))


def test_a_changed_fault_moves() -> None:
    async def scenario(world: Lab) -> None:
        await world.apply(fault("stop", fault="driver-stopped", node="n1"))
        await state(world, "stop")
        await world.apply(fault("stop", fault="driver-stopped", node="n2"))

        async def moved() -> bool:
            running = [world.cluster.nodes[name].is_running("gpu.example.com") for name in ("n1", "n2")]
            return running == [True, False]

        await world.until(moved)

    played(scenario, ("n1", "example"), ("n2", "example"))


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "no such node": (
        {"fault": "driver-stopped", "node": "n9"},
        "data.node: no simulated node 'n9' here; there are: n1",
    ),
    "no such fault": (
        {"fault": "flood", "node": "n1"},
        "data.fault: must be one of xid, gpu-lost, gpu-hot, row-remap-failure, me",
    ),
    "no node": ({"fault": "xid"}, "data.node: must be set"),
    "no such GPU": ({"fault": "gpu-lost", "node": "n1", "gpu": "8"}, "data.gpu: n1 has gpu-0 to gpu-7, got '8'"),
    "nobody to overrun": (
        {"fault": "memory-overrun", "node": "n1", "gpu": "0", "pod": "p"},
        "data.pod: default/p has no running container on that GPU",
    ),
    "no such adapter": ({"fault": "nic-down", "node": "n1", "nic": "eth7"}, "adapter eth7: is not on n1, which has:"),
    "no such driver": (
        {"fault": "driver-stopped", "node": "n1", "driver": "x"},
        "driver x: is not on node n1, which has: dra.net, gpu.nvidia.com",
    ),
    "no number": ({"fault": "xid", "node": "n1", "gpu": "0", "xid": "x"}, "data.xid: must be a whole number from 1"),
    "an instance that is not there": (
        {"fault": "xid", "node": "n1", "gpu": "0", "xid": "79", "instance": "3"},
        "GPU 0: has no instance 3",
    ),
    "a word too many": ({"fault": "gpu-lost", "node": "n1", "gpu": "0", "gpus": "1"}, "data.gpus: is not known here"),
    "no duration": ({"fault": "slow-prepare", "node": "n1", "delay": "soon"}, "data.delay: must be a duration"),
    "too long": ({"fault": "slow-prepare", "node": "n1", "delay": "2h"}, "data.delay: must be from 0 to 3600 s"),
    "a reboot that lasts": ({"fault": "node-rebooted", "node": "n1", "for": "5m"}, "data.for: node-rebooted happens"),
}


def test_a_fault_that_cannot_be_is_reported_in_its_object() -> None:
    async def scenario(world: Lab) -> None:
        for number, (data, said) in enumerate(WRONG.values()):
            name = f"wrong-{number}"
            await world.apply(fault(name, **data))
            found, message = await state(world, name)
            assert (found, message[: len(said)]) == ("invalid", said)
        await world.apply(fault("odd", "weather", rain="much"))
        assert (await state(world, "odd"))[1].startswith(
            "metadata.labels.dragoman.dev/simulate: must be fault, clock, node or load"
        )
        await world.apply(fault("back", "clock", speed="0"))
        assert (await state(world, "back"))[1] == "data.speed: must be a number from 0.001 to 10000, got '0'"

    played(scenario, ("n1", "dgx-h100"))
