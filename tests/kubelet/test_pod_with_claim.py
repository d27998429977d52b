"""A pod with a claim on a simulated node, over real sockets: slices, registration, prepare, run, give back."""

from __future__ import annotations

import asyncio

from tests.kubelet.stage import CLAIM, POD, stage


def test_a_pod_with_a_claim_runs_sees_its_device_and_gives_it_back() -> None:
    async def scenario() -> None:
        async with stage() as world:
            agent = await world.agent()
            plugin = await world.driver()
            slices = await world.slices()
            assert len(slices) == 1
            assert [d["name"] for d in slices[0]["spec"]["devices"]] == [f"gpu-{n}" for n in range(8)]
            await world.claim("one", "gpu-3")
            await world.pod("train", claims={"gpu": "one"})
            pod = await world.phase("train", "Running")
            log = agent.logs("default", "train")
            assert "GPU_DEVICE_3=gpu-3" in log
            assert (world.folder / "n1" / "dra_manager_state").exists()
            assert len(plugin.checkpoint.claims) == 1
            state = pod["status"]["containerStatuses"][0]["state"]
            assert "startedAt" in state["running"]
            await world.client.delete(POD, "train", "default")
            await world.gone("train")
            assert plugin.checkpoint.claims == {}
            assert list((world.folder / "n1" / "cdi").iterdir()) == []
            assert (await world.client.get(CLAIM, "one", "default"))["status"]["allocation"]

    asyncio.run(scenario())
