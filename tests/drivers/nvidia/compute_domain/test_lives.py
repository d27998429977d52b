"""Does a cluster with ComputeDomains hold while parts die, calls fail, machines reboot? Seeded lives in virtual time."""

from __future__ import annotations

import pytest

from dragoman.drivers.nvidia.compute_domain.names import DOMAIN
from dragoman.testing.faults import Rates

from .lab import DomainLab, domain, pod, run

SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_left_behind_whatever_dies(seed: int) -> None:
    async def scenario(lab: DomainLab) -> None:
        draw = lab.entropy.fork()
        nodes = list(lab.machines)
        names: list[str] = []
        for number in range(3):
            name = f"d{number}"
            names.append(name)
            await lab.apply(domain(name, f"c{number}"))
        pods: list[str] = []
        for step in range(25):
            what = draw.pick(["pod", "pod", "gone", "crash", "reboot", "domain", "wait"])
            if what == "pod":
                number = draw.pick(range(3))
                pods.append(f"p{step}")
                await lab.apply(pod(pods[-1], f"c{number}"))
            elif what == "gone" and pods:
                await lab.delete("Pod", pods.pop(draw.pick(range(len(pods)))))
            elif what == "crash":
                lab.crash(draw.pick(list(lab.parts)))
            elif what == "reboot":
                lab.reboot(draw.pick(nodes))
            elif what == "domain":
                number = draw.pick(range(3))
                await lab.delete(DOMAIN, f"d{number}")
            await lab.clock.sleep(draw.between(0.1, 20.0))
            await one_domain_a_node(lab)
        lab.faults.on = False
        for name in names:
            await lab.delete(DOMAIN, name)
        for name in pods:
            await lab.delete("Pod", name)
        await lab.settles(lab.left, within_s=3600)

    async def one_domain_a_node(lab: DomainLab) -> None:
        """A channel that a container has belongs to the one domain whose daemon is there."""
        running: dict[str, set[str]] = {}
        for claim in await lab.all("ResourceClaim", "default"):
            allocation = claim.get("status", {}).get("allocation")
            if not allocation:
                continue
            result = allocation["devices"]["results"][0]
            config = allocation["devices"]["config"][0]["opaque"]["parameters"]
            running.setdefault(result["pool"], set()).add(config["domainID"])
        assert all(len(uids) == 1 for uids in running.values()), running

    run(scenario, ("rack-a", "gb200-nvl72", 2), ("rack-b", "gb200-nvl72", 2), seed=seed, rates=Rates())


@pytest.mark.parametrize("part", ["controller", "controllers", "agent-rack-0", "driver-rack-0"])
def test_each_part_is_killed_again_and_again_and_the_workload_still_starts(part: str) -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c"), pod("w", "c", node="rack-0"))
        for step in range(12):
            await lab.clock.sleep(0.15 + 0.35 * step)
            lab.crash(part)
        await lab.settles(lambda: lab.running("w"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 1))
        lab.crash(part)
        await lab.delete("Pod", "w")
        await lab.clock.sleep(0.3)
        lab.crash(part)
        await lab.delete(DOMAIN, "train")
        await lab.clock.sleep(0.3)
        lab.crash(part)
        await lab.settles(lab.left, within_s=1800)

    run(scenario, ("rack", "gb200-nvl72", 2))


def test_a_reboot_takes_channel_and_daemon_and_both_come_back() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c"), pod("w", "c", node="rack-0"))
        await lab.settles(lambda: lab.running("w"))
        uid = (await lab.get(DOMAIN, "train"))["metadata"]["uid"]
        lab.reboot("rack-0")
        await lab.clock.sleep(10)
        await lab.settles(lambda: lab.running("w"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 1))
        assert await lab.labelled() == {"rack-0": uid}

        async def ready() -> str:
            state = lab.imex_state("rack-0", uid).state
            return "" if state == "READY" else state

        await lab.settles(ready)

    run(scenario)


def test_a_killed_imex_daemon_is_started_again() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c"), pod("w", "c", node="rack-0"))
        await lab.settles(lambda: lab.running("w"))
        uid = (await lab.get(DOMAIN, "train"))["metadata"]["uid"]
        lab.host("rack-0", failure="crash")
        await lab.settles(lambda: lab.domain_is("train", "NotReady", 1))
        lab.host("rack-0", failure="")
        await lab.settles(lambda: lab.domain_is("train", "Ready", 1))
        assert lab.imex_state("rack-0", uid).started > 1
        assert await lab.running("w") == ""

    run(scenario)
