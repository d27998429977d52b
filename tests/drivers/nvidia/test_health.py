"""Events become taints and health, for the right devices, with the right effect, as long as they should."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.drivers.nvidia.driver import HealthReportingDriver
from dragoman.drivers.nvidia.hardware import Lost
from dragoman.drivers.nvidia.health import IGNORED, HealthOptions, parse_xids
from dragoman.errors import Invalid
from dragoman.node.driver import DeviceHealth, ReportsHealth

from .bench_of_gpus import NODE, Bench

GATE = "NVMLDeviceHealthCheck"


async def taints(bench: Bench) -> dict[str, list[tuple[str, str, str]]]:
    pool = (await bench.driver.pools())[NODE]
    found = {d.name: [(t.key.partition("/")[2], t.value, t.effect) for t in d.taints] for d in pool.devices}
    return {name: list_ for name, list_ in found.items() if list_}


class Watch:
    """The driver's health stream, item by item."""

    def __init__(self, bench: Bench) -> None:
        assert isinstance(bench.driver, HealthReportingDriver)
        self.republished = 0
        bench.driver.connect(self._count)
        self.stream = bench.driver.health()

    def _count(self) -> None:
        self.republished += 1

    async def next(self) -> dict[str, DeviceHealth]:
        found: Sequence[DeviceHealth] = await asyncio.wait_for(anext(self.stream), 10)
        return {health.device: health for health in found}


def test_without_the_gate_nothing_is_said(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100")
        assert not isinstance(bench.driver, ReportsHealth)
        bench.hardware.inject_xid(0, 79)
        assert await taints(bench) == {}

    asyncio.run(body())


EFFECTS: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "an XID that counts": ({}, 79, "NoSchedule", "Unhealthy"),
    "an XID of an application": ({}, 31, "None", "Healthy"),
    "an XID that is ignored here": ({"ignored": IGNORED | {48}}, 48, "None", "Healthy"),
    "with eviction": ({"xid_effect": "NoExecute"}, 79, "NoExecute", "Unhealthy"),
    "for information only": ({"xid_effect": "None"}, 79, "None", "Unhealthy"),
}


@pytest.mark.parametrize("case", EFFECTS)
def test_an_xid_taints_its_gpu(case: str, tmp_path: Path) -> None:
    options, number, effect, state = EFFECTS[case]

    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", GATE, health=HealthOptions(**options))
        watch = Watch(bench)
        assert {health.health for health in (await watch.next()).values()} == {"Healthy"}
        bench.hardware.inject_xid(2, number)
        health = await watch.next()
        assert watch.republished == 1
        assert await taints(bench) == {"gpu-2": [("xid", str(number), effect)]}
        assert (health["gpu-2"].health, health["gpu-1"].health) == (state, "Healthy")
        assert f"XID {number}" in health["gpu-2"].message
        await watch.stream.aclose()

    asyncio.run(body())


def test_an_xid_of_an_instance_taints_only_its_device(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "a100-40-mig", GATE)
        watch = Watch(bench)
        await watch.next()
        instances = bench.hardware.instances(bench.hardware.gpu_uuid(0))
        bench.hardware.inject_xid(0, 48, gi=instances[-1].gi)
        await watch.next()
        assert list(await taints(bench)) == ["gpu-0-mig-3g20gb-9-4"]
        bench.hardware.inject_xid(0, 79)
        await watch.next()
        found = await taints(bench)
        assert len(found) == 4
        assert found["gpu-0-mig-3g20gb-9-4"] == [("xid", "48", "NoSchedule")]
        await watch.stream.aclose()

    asyncio.run(body())


def test_a_lesser_error_does_not_cover_a_taint_that_counts(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "t4-4", GATE)
        watch = Watch(bench)
        await watch.next()
        for number, shown in ((31, "31"), (79, "79"), (13, "79"), (48, "48")):
            bench.hardware.inject_xid(0, number)
            await watch.next()
            assert (await taints(bench))["gpu-0"][0][1] == shown
        await watch.stream.aclose()

    asyncio.run(body())


@pytest.mark.parametrize("clear", [False, True])
def test_taints_stay_until_recovery_clears_them_or_the_driver_starts_again(clear: bool, tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "t4-4", GATE, health=HealthOptions(clear_on_recovery=clear))
        watch = Watch(bench)
        await watch.next()
        bench.hardware.lose(1)
        health = await watch.next()
        assert await taints(bench) == {"gpu-1": [("gpu-lost", "", "NoSchedule")]}
        assert health["gpu-1"].health == "Unhealthy"
        bench.hardware.recover(1)
        health = await watch.next()
        assert (await taints(bench) == {}) is clear
        assert health["gpu-1"].health == ("Healthy" if clear else "Unhealthy")
        await watch.stream.aclose()
        await bench.restart()
        assert await taints(bench) == {}

    asyncio.run(body())


def test_if_nobody_knows_which_gpu_is_lost_all_are_suspect(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "t4-4", GATE)
        await bench.driver.pools()
        assert bench.driver.record.note(Lost())
        assert len(await taints(bench)) == 4

    asyncio.run(body())


def test_a_gpu_that_is_lost_when_the_driver_starts_is_tainted(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "t4-4", GATE)
        bench.hardware.lose(2)
        bench.start()
        watch = Watch(bench)
        await watch.next()
        assert (await watch.next())["gpu-2"].health == "Unhealthy"
        assert list(await taints(bench)) == ["gpu-2"]
        await watch.stream.aclose()

    asyncio.run(body())


def test_mig_devices_of_a_lost_gpu_stay_published(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "a100-40-mig", GATE)
        before = await bench.published()
        bench.hardware.lose(0)
        assert await bench.published() == before

    asyncio.run(body())


def test_xids_to_ignore_are_numbers() -> None:
    assert parse_xids("48, 63", "--additional-xids-to-ignore") == {48, 63}
    with pytest.raises(Invalid, match="--additional-xids-to-ignore: must be XID numbers"):
        parse_xids("48,x", "--additional-xids-to-ignore")
