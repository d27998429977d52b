"""How does the device plugin of a node live? One server for each resource, health, CDI specs, and starting again.

Makes the resources from the hardware and the configuration, serves them until either changes, and begins again then.
A layout that cannot be served is reported and looked at again. It never touches GPUs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from dragoman.drivers.nvidia.device_plugin import cdi, preference, resources
from dragoman.drivers.nvidia.device_plugin.config import DEFAULT, PluginConfig
from dragoman.drivers.nvidia.device_plugin.health import HealthChecks
from dragoman.drivers.nvidia.device_plugin.preference import Score
from dragoman.drivers.nvidia.device_plugin.resources import ResourcePlans
from dragoman.drivers.nvidia.device_plugin.source import NvidiaSource
from dragoman.drivers.nvidia.hardware import Hardware, HardwareChanged, HardwareEvent
from dragoman.errors import Denied, DragomanError
from dragoman.node.device_plugin import DevicePluginServer
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.tasks import Tasks

RETRY_S = 30.0
"""As upstream's plugin: so long after a failed start it tries again."""
LOOK_S = 5.0
"""How often it is looked which devices somebody else uses."""
NAME = "nvidia-device-plugin"


class DevicePluginService:
    """The device plugin of one node. `run` it; `configure` and `restart` at any time.

    adapt: what stands in for simulated hardware beside a real runtime. withheld(): UUIDs of devices that are in use by
    another way, asked now and then.
    """

    def __init__(
        self,
        node_name: str,
        hardware: Hardware,
        root_dir: Path,
        cdi_dir: Path,
        clock: Clock,
        entropy: Entropy,
        *,
        config: PluginConfig = DEFAULT,
        checks: HealthChecks = HealthChecks(),  # noqa: B008 - a value
        score: Score = preference.place_score,
        adapt: cdi.Adapt | None = None,
        withheld: Callable[[], Awaitable[frozenset[str]]] | None = None,
    ) -> None:
        self.node_name = node_name
        self.hardware = hardware
        self.root_dir = root_dir
        self.cdi_dir = cdi_dir
        self.clock = clock
        self.entropy = entropy
        self.config = config
        self.checks = checks
        self.servers: dict[str, DevicePluginServer] = {}
        """By resource, those that are served now."""
        self.registered = asyncio.Event()
        """Set while every resource is known to the kubelet, and there is one."""
        self.error: str = ""
        """Why nothing is served; empty otherwise."""
        self._score = score
        self._adapt = adapt
        self._ask_withheld = withheld
        self._withheld: frozenset[str] = frozenset()
        self._again = asyncio.Event()
        self._plan: ResourcePlans | None = None
        self._log = get("device-plugin", node=node_name)

    def configure(self, config: PluginConfig) -> None:
        """Go on with another configuration; nothing happens if it is the same."""
        if config != self.config:
            self.config = config
            self._log.info("configuration changed: starting again")
            self._again.set()

    def restart(self) -> None:
        """Begin again, as after SIGHUP: devices that were ill are looked at again."""
        self._again.set()

    async def run(self) -> None:
        """Serve until cancelled. Raises Denied without a kernel driver, unless failOnInitError is off."""
        while True:
            self._again.clear()
            for warning in self.config.warnings:
                self._log.warning(warning)
            try:
                plan = await self._planned()
            except DragomanError as error:
                if isinstance(error, Denied) and self.config.fail_on_init_error:
                    raise
                self.error = str(error)
                self._log.warning("no resource is served", error=self.error)
                await self._wait(RETRY_S)
                continue
            self.error = ""
            for warning in plan.warnings:
                self._log.warning(warning)
            await self._serve(plan)

    async def _planned(self) -> ResourcePlans:
        def plan() -> ResourcePlans:
            self.hardware.open()
            found = resources.planned(self.hardware, self.config)
            if self.config.uses_cdi:
                devices = [device for resource in found.resources for device in resource.devices]
                cdi.write_specs(self.cdi_dir, self.hardware, devices, self.config, self._adapt)
            return found

        return await asyncio.to_thread(plan) if self.hardware.blocks else plan()

    async def _serve(self, plan: ResourcePlans) -> None:
        if self._ask_withheld is not None:
            self._withheld = await self._ask_withheld()
        sources = [
            NvidiaSource(
                resource,
                self.config,
                self.hardware,
                new_id=self.entropy.uuid4,
                score=self._score,
                withheld=lambda: self._withheld,
            )
            for resource in plan.resources
        ]
        self._plan = plan
        self.servers = {
            source.resource: DevicePluginServer(source, self.root_dir, self.clock, node_name=self.node_name)
            for source in sources
        }
        try:
            async with Tasks("device-plugin", self.clock, self.entropy) as tasks:
                for name, server in self.servers.items():
                    tasks.supervise(name, server.run)
                tasks.supervise("registered", self._follow_registrations)
                tasks.supervise("health", lambda: self._follow_health(sources))
                if self._ask_withheld is not None:
                    tasks.supervise("withheld", self._follow_withheld)
                await self._again.wait()
                tasks.stop()
        finally:
            self.registered.clear()
            self.servers = {}

    async def _follow_registrations(self) -> None:
        for server in self.servers.values():
            await server.registered.wait()
        if self.servers:
            self.registered.set()

    async def _follow_health(self, sources: list[NvidiaSource]) -> None:
        while True:
            event: HardwareEvent = await self.hardware.next_event()
            self._log.warning("hardware event", what=str(event))
            if isinstance(event, HardwareChanged):
                if resources.planned(self.hardware, self.config) != self._plan:
                    self.restart()
                continue
            for source in self.checks.note(event, sources):
                self.servers[source.resource].changed()

    # ---- devices in use by another way

    async def _follow_withheld(self) -> None:
        assert self._ask_withheld is not None
        while True:
            await self.clock.sleep(LOOK_S)
            now = await self._ask_withheld()
            if now != self._withheld:
                self._withheld = now
                for server in self.servers.values():
                    server.changed()

    async def _wait(self, seconds: float) -> None:
        try:
            await self.clock.within(seconds, self._again.wait())
        except TimeoutError:
            return
