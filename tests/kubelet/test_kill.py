"""kill -9 of the node agent and the driver, real processes against the real API, at moments drawn from a seed."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from dragoman.api.kinds import kind_of
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.kubeconfig import write
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.kubelet.stage import POD, Stage

PODS = 8


class Processes:
    """The daemons of one node; killed and started again at will."""

    COMMANDS: ClassVar[dict[str, list[str]]] = {"agent": ["node-agent"], "driver": ["driver", "example"]}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        command = self.COMMANDS[name]
        flags = ["--node-name", "n1", "--root-dir", str(self.folder / "n1"), "--boot-id", "boot-1"]
        flags += ["--kubeconfig", str(self.folder / "kubeconfig"), "--log-level", "error"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dragoman.cli", *command, *flags, stderr=log
            )

    async def kill(self, name: str) -> None:
        process = self.running.pop(name)
        assert process.returncode is None, (self.folder / f"{name}.log").read_text()
        process.kill()
        await process.wait()


async def play(seed: int, folder: Path) -> None:
    chance = random.Random(seed)
    clock, entropy = Clock(), Entropy()
    async with serving(ServerConfig(port=0), clock, entropy) as server:
        write(folder / "kubeconfig", server.access)
        world = Stage(folder, clock)
        world.api = world.client = InProcessClient(server.registry)
        processes = Processes(folder)
        await processes.start("agent")
        await processes.start("driver")
        try:
            await survive(chance, world, processes)
        finally:
            for name in list(processes.running):
                await processes.kill(name)


async def survive(chance: random.Random, world: Stage, processes: Processes) -> None:
    async def disturb() -> None:
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0.0, 0.8))
            name = chance.choice(["agent", "driver"])
            await processes.kill(name)
            await processes.start(name)

    async def node_there() -> bool:
        return bool((await world.client.list(kind_of("Node"))).items)

    await world.until(node_there, within_s=30)
    trouble = asyncio.create_task(disturb())
    for number in range(PODS):
        await world.claim(f"c{number}", f"gpu-{number}")
        await world.pod(f"p{number}", claims={"gpu": f"c{number}"})
        await asyncio.sleep(chance.uniform(0.0, 0.3))
    await trouble
    for number in range(PODS):
        await world.phase(f"p{number}", "Running", within_s=60)
    ids = {}
    for number in range(PODS):
        pod = await world.get(f"p{number}")
        assert pod
        ids[number] = pod["status"]["containerStatuses"][0]["containerID"]
    await processes.kill("agent")
    await processes.start("agent")
    for number in range(PODS):
        status = (await world.phase(f"p{number}", "Running"))["status"]["containerStatuses"][0]
        assert (status["containerID"], status["restartCount"]) == (ids[number], 0), "containers run on"
    trouble = asyncio.create_task(disturb())
    for number in range(PODS):
        await world.client.delete(POD, f"p{number}", "default")
        await asyncio.sleep(chance.uniform(0.0, 0.3))
    await trouble
    for number in range(PODS):
        await world.until(lambda number=number: gone(world, number), within_s=60)

    async def all_given_back() -> bool:
        return left(world.folder / "n1") == {}

    await world.until(all_given_back, within_s=60)


async def gone(world: Stage, number: int) -> bool:
    return await world.get(f"p{number}") is None


def left(node: Path) -> dict[str, Any]:
    """What is still held on the node's disk."""
    driver = msgspec.json.decode((node / "plugins" / "gpu.example.com" / "checkpoint.json").read_bytes())
    kubelet = msgspec.json.decode(msgspec.json.decode((node / "dra_manager_state").read_bytes())["Data"])
    found = {
        "driver": driver["data"]["claims"],
        "kubelet": kubelet["ClaimInfoStateList"],
        "cdi": [path.name for path in (node / "cdi").glob("*.json")],
        "containers": [path.name for path in (node / "simulated").glob("*.json")],
    }
    return {name: value for name, value in found.items() if value}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_agent_and_driver_survive_kills(seed: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dr-", dir="/tmp"))
    try:
        asyncio.run(play(seed, folder))
    finally:
        shutil.rmtree(folder)
