"""From the device plugin to the DRA driver under kill -9, with a scheduler that heeds no taint: no GPU is given to two
containers in two ways, and all of them are free in the end."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.kubeconfig import write
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.errors import NotFound
from dragoman.kubelet import device_checkpoint, state
from dragoman.node.device_plugin import FOLDER
from dragoman.profiles import Catalog
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.kubelet.stage import NODE, POD, Stage
from tests.kubelet.test_kill import Processes

pytestmark = pytest.mark.slow

PROFILE = "dgx-a100-40"
GPUS = 8


class Daemons(Processes):
    """Agent, plugin and driver of one simulated machine."""

    COMMANDS: ClassVar[dict[str, list[str]]] = {
        "agent": ["node-agent"],
        "plugin": ["device-plugin", "--simulate", PROFILE],
        "driver": ["driver", "nvidia", "--simulate", PROFILE],
    }


class Judge:
    """Looks at both records of the node all the time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        catalog = Catalog.packaged()
        machine = SimulatedHardware(catalog, catalog.named(PROFILE, "test"), "n1", root / "none", "boot-1")
        self.names = {f"gpu-{gpu.minor}": gpu.uuid for gpu in machine.gpus()}
        self.most = (0, 0)

    def claimed(self) -> set[str]:
        return {self.names[name] for name in state.devices_of(self.root / state.FILE, GPU) or ()}

    def plugged(self) -> list[str]:
        record = device_checkpoint.read(self.root / FOLDER / device_checkpoint.FILE)
        return [id_ for entry in (record.pod_device_entries if record else ()) for id_ in entry.devices]

    def look(self) -> None:
        # In this order: a GPU goes from the plugin to a claim, never back.
        claimed, plugged = self.claimed(), self.plugged()
        assert len(plugged) == len(set(plugged))
        assert not claimed & set(plugged)
        self.most = (max(self.most[0], len(claimed)), max(self.most[1], len(plugged)))

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.02)


async def play(seed: int, folder: Path) -> None:
    clock, entropy = Clock(), Entropy()
    async with serving(ServerConfig(port=0), clock, entropy) as server:
        write(folder / "kubeconfig", server.access)
        world = Stage(folder, clock)
        world.api = world.client = InProcessClient(server.registry)
        daemons = Daemons(folder)
        judge = Judge(folder / "n1")
        await daemons.start("agent")
        await daemons.start("plugin")
        watching = asyncio.create_task(judge.watch())
        try:
            work = asyncio.create_task(change_over(random.Random(seed), world, daemons, judge))
            await asyncio.wait({watching, work}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                work.cancel()
                await watching
            await work
        finally:
            watching.cancel()
            for name in list(daemons.running):
                await daemons.kill(name)


async def change_over(chance: random.Random, world: Stage, daemons: Daemons, judge: Judge) -> None:
    async def offered() -> bool:
        with suppress(NotFound):
            allocatable = (await world.client.get(NODE, "n1"))["status"].get("allocatable") or {}
            return bool(allocatable.get("nvidia.com/gpu") == str(GPUS))
        return False

    await world.until(offered)
    container = {"name": "main", "image": "app", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    for number in range(GPUS):
        await world.pod(f"old-{number}", containers=[container], terminationGracePeriodSeconds=0)
    await disturb(chance, daemons, "agent", 1)
    # A pod that was about to start when its kubelet died fails, as upstream's do: the plugin has not registered again.
    old = [await world.phase(f"old-{number}", "Running", "Failed") for number in range(GPUS)]
    running = [pod["metadata"]["name"] for pod in old if pod["status"]["phase"] == "Running"]
    assert running
    await daemons.kill("plugin")
    await daemons.start("driver")
    for number in range(GPUS):
        await world.claim(f"new-{number}", f"gpu-{number}", driver=GPU)
        await world.pod(f"new-{number}", claims={"gpu": f"new-{number}"}, terminationGracePeriodSeconds=0)
    trouble = asyncio.create_task(disturb(chance, daemons, "agent driver", 3))
    chance.shuffle(running)
    for name in running:
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        await world.client.delete(POD, name, "default", grace_period_s=0)
    await trouble
    for number in range(GPUS):
        await world.phase(f"new-{number}", "Running", within_s=120)
    assert judge.claimed() == set(judge.names.values())
    assert judge.plugged() == []


async def disturb(chance: random.Random, daemons: Daemons, names: str, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        name = chance.choice(names.split())
        await daemons.kill(name)
        await daemons.start(name)


@pytest.mark.parametrize("seed", range(2))
def test_no_gpu_goes_two_ways(seed: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dk-", dir="/tmp"))
    try:
        asyncio.run(play(seed, folder))
    finally:
        shutil.rmtree(folder)
