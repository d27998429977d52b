"""The whole system under one seed: conflicts, lost answers, dropped watches, crashes between any two effects.

After each write no rule of `testing.check` may be broken; once faults stop, all that can run runs, and what pods
leave behind is nothing. A failure prints its seed.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.build import claim, manifest, pod, template
from dragoman.testing.faults import Rates
from dragoman.testing.loop import run
from dragoman.testing.world import SimulatedCluster

pytestmark = pytest.mark.slow


class Life:
    """What users do, drawn from the seed."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.entropy = Entropy(world.seed + 1_000_000)
        self.made = 0

    async def begin(self) -> None:
        await self.world.apply(template("one"), template("two", count=2), claim("shared"))
        await self.world.apply(manifest("DeviceClass", "ext", spec={"extendedResourceName": "example.com/gpu"}))

    async def step(self) -> None:
        await self.entropy.pick(
            [
                self.new_pod,
                self.new_pod,
                self.new_pod,
                self.delete_pod,
                self.delete_pod,
                self.deployment,
                self.job,
                self.trouble,
            ]
        )()
        await self.world.clock.sleep(self.entropy.between(0.0, 4.0))

    def name(self, sort: str) -> str:
        self.made += 1
        return f"{sort}-{self.made}"

    async def new_pod(self) -> None:
        sort = self.entropy.pick(["one", "two", "shared", "plain", "ext", "apart"])
        claims = ["shared"] if sort == "shared" else []
        templates = {"one": ["one"], "two": ["two"], "apart": ["one"]}.get(sort, [])
        more: dict[str, Any] = {}
        if sort == "ext":
            more["extended"] = {"example.com/gpu": "1"}
        if sort == "apart":
            term = {"labelSelector": {"matchLabels": {"sort": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
            more["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        seconds = self.entropy.pick(["5", "30", "infinity"])
        annotations = {"dragoman.dev/run-seconds": seconds}
        meta = {"annotations": annotations, "labels": {"sort": sort}}
        made = pod(self.name(sort), *claims, templates=templates, restartPolicy="Never", metadata=meta, **more)
        made["spec"]["terminationGracePeriodSeconds"] = 2
        await self.world.apply(made)

    async def delete_pod(self) -> None:
        pods = sorted(p["metadata"]["name"] for p in await self.world.objects("Pod"))
        if pods:
            grace = self.entropy.pick([None, None, 0])
            await self.world.delete("Pod", self.entropy.pick(pods), grace_period_s=grace)

    async def deployment(self) -> None:
        known = sorted(d["metadata"]["name"] for d in await self.world.objects("Deployment"))
        if len(known) > 1:
            await self.world.delete("Deployment", self.entropy.pick(known))
            return
        name = self.name("web")
        spec = {**pod("x", templates=["one"])["spec"], "terminationGracePeriodSeconds": 1}
        labels = {"app": name}
        body = {
            "replicas": self.entropy.pick([1, 2]),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        }
        await self.world.apply(manifest("Deployment", name, spec=body))

    async def job(self) -> None:
        spec = {**pod("x", templates=["one"])["spec"], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        template_spec = {"metadata": {"annotations": {"dragoman.dev/run-seconds": "3"}}, "spec": spec}
        await self.world.apply(
            manifest("Job", self.name("job"), spec={"completions": 2, "parallelism": 2, "template": template_spec})
        )

    async def trouble(self) -> None:
        world = self.world
        if self.entropy.chance(0.2):
            world.reboot(self.entropy.pick(world.nodes))
        else:
            world.crash(self.entropy.pick(sorted(world.parts)))


async def lives(clock: Clock, seed: int, steps: int) -> SimulatedCluster:
    async with SimulatedCluster(clock, seed) as world:
        life = Life(world)
        await life.begin()
        for _ in range(steps):
            await life.step()
            world.assert_safe()
        world.faults.on = False
        await world.until(world.unserved)
        await empty(world)
        return world


async def empty(world: SimulatedCluster) -> None:
    """Everything is deleted: what was held is free again."""
    for kind in ("Deployment", "Job"):
        for made in await world.objects(kind):
            await world.delete(kind, made["metadata"]["name"])

    async def sweep() -> None:
        for made in await world.objects("Pod"):
            await world.delete("Pod", made["metadata"]["name"])

    await world.clock.sleep(5)
    await sweep()
    await world.until(world.leftovers)


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_under_faults_stays_safe_and_serves_all_in_the_end(seed: int) -> None:
    world = run(lambda clock: lives(clock, seed, steps=25))
    assert world.checker.writes > 200
    assert sum(world.faults.counts.values()) > 20


@pytest.mark.parametrize("seed", range(100, 104))
def test_longer_lives(seed: int) -> None:
    world = run(lambda clock: lives(clock, seed, steps=80))
    assert {"refuse", "lose", "conflict", "drop"} <= set(world.faults.counts)


def test_without_faults_nothing_is_ever_retried() -> None:
    async def calm(clock: Clock) -> SimulatedCluster:
        rates = Rates(refuse=0, lose=0, conflict=0, drop=0, expire=0, die=0, delay_s=0.01)
        async with SimulatedCluster(clock, 7, rates=rates) as world:
            await world.apply(
                template("one"), *[pod(f"p{i}", templates=["one"]) for i in range(8)], pod("late", templates=["one"])
            )
            await world.until(world.unserved, within_s=30)
            waiting = [p["metadata"]["name"] for p in await world.objects("Pod") if not p["spec"].get("nodeName")]
            assert len(waiting) == 1
            await world.delete("Pod", "p0" if waiting != ["p0"] else "p1", grace_period_s=0)
            await world.until(world.unserved, within_s=10)
            assert all(part.deaths == 0 for part in world.parts.values())
            return world

    run(calm)


def test_one_seed_is_one_history() -> None:
    first, second = (run(lambda clock: lives(clock, 11, steps=10)).checker.trace for _ in range(2))
    assert first == second
