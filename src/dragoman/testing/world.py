"""Does the whole system hold under faults? API, controllers, scheduler, node agents and drivers in virtual time.

    async with World(clock, seed) as world:      # inside dragoman.testing.loop.run
        await world.apply(...)
        world.crash("scheduler")
        world.faults.on = False
        await world.until(world.is_calm)

Every part has a client of its own with faults of its own, and is restarted when it dies; node agents and drivers
find their files again. One seed decides everything. Sockets and threads are left out: what they carry is called
directly.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.apiserver import fields
from dragoman.apiserver.bootstrap import bootstrap
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.store import Store
from dragoman.daemon.controllers import Controllers
from dragoman.daemon.scheduler import Scheduler
from dragoman.drivers.example.classes import DEVICE_CLASS
from dragoman.drivers.example.driver import ExampleDriver
from dragoman.errors import NotFound, Retry, Stale
from dragoman.kubelet.agent import NodeAgent
from dragoman.kubelet.node_object import NodeProperties
from dragoman.node.driver import ClaimToPrepare, PreparedClaim, Setup
from dragoman.node.plugin import Places, Plugin, PluginOptions
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.cycle import SchedulingContext, decide, gated, is_waiting, unit_of
from dragoman.snapshot.usage import is_finished
from dragoman.testing.check import Checker, RecordedHardware
from dragoman.testing.faults import Faults, FaultyClient, Rates

POD = kind_of("Pod")
STEP_S = 0.25


class RecordedDriver(ExampleDriver):
    """The example driver, with devices that remember for whom they are prepared."""

    def __init__(self, node_name: str, count: int, hardware: RecordedHardware) -> None:
        super().__init__(node_name, count)
        self.hardware = hardware

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        """As the example driver."""
        for result in claim.results:
            self.hardware.prepare(result.device, claim.ref.uid)
        return await super().prepare(claim)

    async def unprepare(self, claim: PreparedClaim) -> None:
        """As the example driver."""
        await super().unprepare(claim)
        for device in [name for name, uid in self.hardware.prepared.items() if uid == claim.ref.uid]:
            self.hardware.unprepare(device, claim.ref.uid)


class ClusterPart:
    """A part of the system that dies and is restarted."""

    def __init__(self, world: SimulatedCluster, name: str, run: Callable[[FaultyClient], Awaitable[None]]) -> None:
        self.world = world
        self.name = name
        self.deaths = 0
        self._run = run
        self._dying = asyncio.Event()

    def die(self) -> None:
        """End it wherever it is; it comes back after a while."""
        self._dying.set()

    async def live(self) -> None:
        """Die and come back for ever."""
        world = self.world
        while True:
            self._dying = asyncio.Event()
            client = FaultyClient(world.api, world.faults, world.clock, self.die)
            work = asyncio.ensure_future(self._run(client))
            dying = asyncio.ensure_future(self._dying.wait())
            try:
                await asyncio.wait({work, dying}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended_itself = work.done() and not work.cancelled()
                dying.cancel()
                work.cancel()
                results = await asyncio.gather(work, dying, return_exceptions=True)
            if ended_itself:
                self._ended(results[0])
            self.deaths += 1
            await world.clock.sleep(world.entropy.between(0.1, 5.0))

    def _ended(self, how: object) -> None:
        """A part may end because the API did not answer; anything else is a bug."""
        errors = how.exceptions if isinstance(how, BaseExceptionGroup) else [how]
        for error in errors:
            if not isinstance(error, Retry | Stale):
                self.world.checker.say(f"{self.name} ended by itself: {how!r}")


class SimulatedCluster:
    """A cluster of `nodes` with `devices` each. `parts` by name: controllers, scheduler, agent-N, driver-N."""

    def __init__(
        self, clock: Clock, seed: int, *, nodes: int = 2, devices: int = 4, rates: Rates | None = None
    ) -> None:
        self.clock = clock
        self.seed = seed
        self.entropy = Entropy(seed)
        self.faults = Faults(self.entropy.fork(), rates)
        self.checker = Checker()
        store = Store(fields.fields_of, journal=self.checker)
        registry = Registry(store, clock, self.entropy.fork())
        bootstrap(registry)
        self.api = InProcessClient(registry)
        self.nodes = [f"node-{index}" for index in range(nodes)]
        self.devices = devices
        self.hardware = {node: RecordedHardware(node, self.checker) for node in self.nodes}
        self.boots = dict.fromkeys(self.nodes, 1)
        self.agents: dict[str, NodeAgent] = {}
        self.plugins: dict[str, Plugin] = {}
        self._leave: dict[str, Callable[[], None]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="dra-")
        self._tasks = Tasks("world", clock, self.entropy)
        self._log = get("world", seed=seed)
        self.parts: dict[str, ClusterPart] = {}

    async def __aenter__(self) -> Self:
        await self.api.create(kind_of("DeviceClass"), DEVICE_CLASS)
        self._part("controllers", self._controllers)
        self._part("scheduler", self._scheduler)
        for node in self.nodes:
            self._part(f"agent-{node}", partial(self._agent, node))
            self._part(f"driver-{node}", partial(self._driver, node))
        await self._tasks.__aenter__()
        for part in self.parts.values():
            self._tasks.start(part.name, part.live())
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            self._tasks.stop()
            await self._tasks.__aexit__(*error)
        finally:
            self._folder.cleanup()

    def _part(self, name: str, run: Callable[[FaultyClient], Awaitable[None]]) -> None:
        self.parts[name] = ClusterPart(self, name, run)

    # ---- parts

    async def _controllers(self, client: FaultyClient) -> None:
        await Controllers(client, self.clock, self.entropy.fork()).run()

    async def _scheduler(self, client: FaultyClient) -> None:
        await Scheduler(client, self.clock, self.entropy.fork()).run()

    async def _agent(self, node: str, client: FaultyClient) -> None:
        boot = f"boot-{self.boots[node]}"
        agent = NodeAgent(
            node,
            client,
            self.clock,
            Path(self._folder.name) / node,
            entropy=self.entropy.fork(),
            facts=NodeProperties(boot_id=boot),
            wipe_slices=False,
            sockets=False,
            durable=False,
        )
        self.agents[node] = agent
        self._leave.pop(node, None)
        try:
            async with Tasks(f"agent-{node}", self.clock, self.entropy) as tasks:
                tasks.start("run", agent.run())
                await agent.started.wait()
                self._join(node)
        finally:
            del self.agents[node]

    async def _driver(self, node: str, client: FaultyClient) -> None:
        root = Path(self._folder.name) / node
        driver = RecordedDriver(node, self.devices, self.hardware[node])
        plugin = Plugin(
            driver,
            client,
            self.clock,
            self.entropy.fork(),
            node_name=node,
            places=Places.under(root, driver.name, root / "cdi"),
            options=PluginOptions(boot_id=f"boot-{self.boots[node]}", durable=False, sockets=False),
        )
        self.plugins[node] = plugin
        async with Tasks(f"driver-{node}", self.clock, self.entropy) as tasks:
            tasks.start("run", plugin.run())
            await plugin.publisher.published.wait()
            self._join(node)

    def _join(self, node: str) -> None:
        """The node's agent finds its driver, whichever of them came last."""
        agent, plugin = self.agents.get(node), self.plugins.get(node)
        if agent is None or plugin is None or not agent.started.is_set() or not plugin.is_running:
            return
        leave = self._leave.pop(node, None)
        if leave is not None:
            leave()
        self._leave[node] = agent.attach(plugin)

    # ---- what tests do

    async def apply(self, *manifests: dict[str, Any]) -> None:
        """Create objects, past all faults."""
        for made in manifests:
            metadata = {key: value for key, value in made["metadata"].items() if key != "uid"}
            body = {**made, "metadata": metadata}
            await self.api.create(kind_of(made["kind"]), body, metadata.get("namespace", ""))

    async def delete(self, kind: str, name: str, *, grace_period_s: int | None = None) -> None:
        """Delete an object of the default namespace; gone is fine."""
        try:
            await self.api.delete(kind_of(kind), name, "default", grace_period_s=grace_period_s)
        except NotFound:
            return

    async def objects(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return (await self.api.list(kind_of(kind))).items

    def crash(self, name: str) -> None:
        """A part dies now."""
        self.parts[name].die()

    def reboot(self, node: str) -> None:
        """The machine starts again: nothing is prepared any more, agent and driver come back."""
        self.boots[node] += 1
        self.hardware[node].prepared.clear()
        self.crash(f"agent-{node}")
        self.crash(f"driver-{node}")

    def assert_safe(self) -> None:
        """Nothing broke a rule so far."""
        assert not self.checker.broken, f"seed {self.seed}: " + "; ".join(self.checker.broken[:3])

    async def until(self, holds: Callable[[], str], within_s: float = 1800.0) -> None:
        """Wait until `holds` says "", which is that nothing is missing."""
        deadline = self.clock.monotonic() + within_s
        missing = holds()
        while missing:
            self.assert_safe()
            assert self.clock.monotonic() < deadline, f"seed {self.seed}: {missing}"
            await self.clock.sleep(STEP_S)
            missing = holds()
        self.assert_safe()

    # ---- liveness

    def unserved(self) -> str:
        """A pod that could run and does not; "" if there is none."""
        snapshot = self.checker.snapshot
        context = SchedulingContext(new_id=lambda: "00000000-0000-4000-8000-000000000000")
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        for key in sorted(snapshot.pods):
            pod = snapshot.pods[key]
            if is_finished(pod):
                continue
            if pod.metadata.deletion_timestamp is not None:
                return f"pod {key[1]} is still being deleted"
            if not is_waiting(pod):
                if pod.status.phase != "Running":
                    return f"pod {key[1]} is bound and {pod.status.phase or 'not started'}"
            elif not gated(pod):
                unit = unit_of(snapshot, pod, context.gates)
                decision = decide(snapshot, unit, now, context)
                if decision.placements:
                    return f"pod {key[1]} could run on {decision.placements[0].node}"
                if any("NotCreated" in type(r).__name__ for one in decision.refused for r in one.reasons):
                    return f"pod {key[1]} has no claim yet"
        return ""

    def pending(self) -> str:
        """A pod without a node; "" if there is none."""
        pods = self.checker.snapshot.pods
        return next((f"pod {key[1]} is pending" for key in sorted(pods) if is_waiting(pods[key])), "")

    def leftovers(self) -> str:
        """Anything that pods which are gone should have left; "" if there is nothing."""
        snapshot = self.checker.snapshot
        if snapshot.pods:
            return f"pods are left: {sorted(name for _, name in snapshot.pods)}"
        for key in sorted(snapshot.claims):
            claim = snapshot.claims[key]
            if claim.metadata.owner_references:
                return f"claim {key[1]} outlived its pod"
            if claim.status.allocation is not None or claim.status.reserved_for:
                return f"claim {key[1]} still has devices or consumers"
        for node, hardware in self.hardware.items():
            if hardware.prepared:
                return f"{node}: still prepared: {hardware.prepared}"
        return ""
