"""A node's GPUs change from the device plugin to the DRA driver, and back, while pods run: no GPU is given twice."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.shape import Object
from dragoman.cluster.http import HttpClient
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.nvidia.driver import PLUGIN_TAINT
from dragoman.errors import Denied
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.build import claim, request
from tests.daemon.lab import POD, Lab, short_pod
from tests.drivers.nvidia.test_device_plugin import allocatable, listed, pod

pytestmark = pytest.mark.slow

PROFILE = "dgx-a100-40"


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="dc-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@asynccontextmanager
async def kept(folder: Path, *nodes: tuple[str, str], **settings: Any) -> AsyncIterator[Lab]:
    """A cluster on the state of an earlier one, as `up --data` makes it."""
    async with Cluster(ClusterSettings(nodes=nodes, data=folder / "d", **settings)) as cluster:
        client = HttpClient(cluster.access, Clock(), Entropy())
        try:
            yield Lab(cluster, client, folder)
        finally:
            await client.close()


async def held(world: Lab) -> set[str]:
    """UUIDs of devices that nobody gets by a claim."""
    return {
        device["attributes"]["uuid"]["string"]
        for device in (await world.devices(GPU, "a")).values()
        if PLUGIN_TAINT in [taint["key"] for taint in device.get("taints", ())]
    }


def claimed(name: str, count: int) -> tuple[Object, Object]:
    made = short_pod(name, name, node="a")
    made["spec"]["containers"][0]["command"] = ["sh", "-c", "nvidia-smi -L; sleep infinity"]
    return claim(name, request("gpu", GPU, count=count)), made


def test_from_the_plugin_to_the_driver(folder: Path) -> None:
    async def before() -> set[str]:
        async with kept(folder, ("a", f"{PROFILE}@device-plugin")) as world:
            await allocatable(world, "a", "nvidia.com/gpu", "8")
            await world.apply(pod("old", count=3))
            await world.phase("old", "Running")
            return set(await listed(world, "old"))

    async def after(old: set[str]) -> None:
        async with kept(folder, ("a", PROFILE)) as world:
            await allocatable(world, "a", "nvidia.com/gpu", "0")
            await world.until(lambda: world.devices(GPU, "a"))
            assert await held(world) == old
            assert (await world.pod("old") or {})["status"]["phase"] == "Running"
            await world.apply(*claimed("many", 6), *claimed("new", 5))
            await world.phase("new", "Running")
            new = set(await listed(world, "new"))
            assert len(new) == 5
            assert not new & old
            assert "8 of them free (3 tainted)" in await world.event("FailedScheduling", "many")
            await world.client.delete(POD, "old", "default")
            await world.gone("old")
            world.cluster.clock.advance(30)

            async def free() -> bool:
                return not await held(world)

            await world.until(free)
            await world.client.delete(POD, "new", "default")
            await world.phase("many", "Running")

    old = asyncio.run(before())
    assert len(old) == 3
    asyncio.run(after(old))


def test_from_the_driver_to_the_plugin(folder: Path) -> None:
    async def before() -> set[str]:
        async with kept(folder, ("a", PROFILE)) as world:
            await world.apply(*claimed("old", 3))
            await world.phase("old", "Running")
            return set(await listed(world, "old"))

    async def after(old: set[str]) -> None:
        async with kept(folder, ("a", f"{PROFILE}@device-plugin")) as world:
            await allocatable(world, "a", "nvidia.com/gpu", "5")
            await world.apply(pod("new", count=5), pod("late"))
            await world.phase("new", "Running")
            assert not set(await listed(world, "new")) & old
            assert (await world.pod("late") or {})["status"].get("phase") == "Pending"

    old = asyncio.run(before())
    assert len(old) == 3
    asyncio.run(after(old))


def test_computedomains_do_not_depend_on_the_way_of_gpus() -> None:
    """The shape of most GB200 clusters: GPUs counted, IMEX channels by DRA."""
    from tests.daemon.lab import NODE, lab

    async def main() -> None:
        async with lab(("r", "gb200-nvl72@device-plugin")) as world:
            nodes = (await world.client.list(NODE)).items
            for node in nodes:
                name = node["metadata"]["name"]
                await allocatable(world, name, "nvidia.com/gpu", "4")
                assert "nvidia.com/gpu.clique" in node["metadata"]["labels"]
                assert not await world.devices(GPU, name)
                channels = await world.until(lambda name=name: world.devices("compute-domain.nvidia.com", name))
                assert "channel-0" in channels

    asyncio.run(main())


def test_a_driver_does_not_start_beside_a_plugin_that_serves(folder: Path) -> None:
    from dragoman.drivers.nvidia.device_plugin import other_path

    async def main() -> None:
        async with kept(folder, ("a", f"{PROFILE}@device-plugin"), ("h", "dgx-h100")) as world:
            await allocatable(world, "a", "nvidia.com/gpu", "8")
            root = folder / "d" / "n"
            with pytest.raises(Denied, match=r"a device plugin offers GPUs of this node .*--allow-device-plugin"):
                await other_path.refuse_plugin(root / "a")
            await other_path.refuse_driver(root / "a")
            await other_path.refuse_plugin(root / "h")
            with pytest.raises(Denied, match=r"the DRA driver gpu\.nvidia\.com runs on this node"):
                await other_path.refuse_driver(root / "h")

    asyncio.run(main())
