"""How does a simulated node start, stop and reboot? Its agent and its drivers as tasks that can be ended one by one.

A stop ends them as SIGTERM does; a boot makes them again with another boot id, so that a machine's memory is lost and
its disk is not. It decides nothing about pods or devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from dragoman.cluster.client import Client
from dragoman.daemon.machines import Machine
from dragoman.drivers.entry import RunningDevicePlugin, Site
from dragoman.errors import Invalid
from dragoman.kubelet.agent import NodeAgent, NodeHost
from dragoman.kubelet.containers import Tool
from dragoman.kubelet.injection import Injector
from dragoman.node.plugin import Places, Plugin, PluginOptions
from dragoman.node.routes import Routes
from dragoman.runtime.log import get
from dragoman.runtime.tasks import LOOP_BACKOFF, Tasks, supervised

BOOT_FILE = "boot-id"
AGENT = "agent"


class SimulatedNode:
    """One node of the embedded cluster. `start` it inside the task group."""

    def __init__(
        self,
        machine: Machine,
        site: Site,
        host: NodeHost,
        routes: Routes,
        tasks: Tasks,
        client: Client | None = None,
        *,
        sockets: bool = True,
    ) -> None:
        """client: the agent's, with the rights of its node; the drivers use that of the site.

        sockets False: agent and drivers call each other without.
        """
        self._sockets = sockets
        self.machine = machine
        self.name = machine.name
        self.site = msgspec.structs.replace(site, boot_id=_boot_id(machine, site.root))
        self.agent: NodeAgent
        self.plugins: dict[str, Plugin] = {}
        """By driver; the last instance of each, running or not."""
        self.device_plugins: dict[str, RunningDevicePlugin] = {}
        """By the driver that they stand in for; the last instance of each, running or not."""
        self._injectors: list[Injector] = []
        """What is installed beside the node's container runtime."""
        self.delays: dict[str, float] = {}
        """Seconds that each prepare takes longer, by driver."""
        self._host = host
        self._client = client or site.client
        self._routes = routes
        self._tasks = tasks
        self._running: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, Callable[[], None]] = {}
        """Ends what `attach` began, by driver called without sockets."""
        self._tools: dict[str, Tool] = {}
        """Programs that the node's drivers bring into containers."""
        self._turn = asyncio.Lock()

    def start(self) -> None:
        """Boot: agent and drivers."""
        self._start_agent()
        for driver in self.machine.drivers:
            self._start_plugin(driver)
        for driver in self.machine.device_plugins:
            self._start_device_plugin(driver)

    def is_running(self, driver: str) -> bool:
        """Whether that driver runs."""
        return driver in self._running

    def drivers(self, wanted: str = "") -> list[str]:
        """Names of the node's drivers, or the one wanted. Raises Invalid."""
        there = sorted([*self.machine.drivers, *self._device_plugin_names()])
        if not wanted:
            return there
        if wanted not in there:
            raise Invalid(f"driver {wanted}", f"is not on node {self.name}, which has: {', '.join(there) or 'none'}")
        return [wanted]

    def _device_plugin_names(self) -> dict[str, str]:
        """Device plugins by name: the driver that each stands in for."""
        return {factory.name: driver for driver, factory in self.machine.device_plugins.items()}

    async def stop_driver(self, driver: str) -> None:
        """As its pod were deleted; nothing to do when it does not run."""
        async with self._turn:
            await self._stop(driver)
            if leave := self._leave.pop(driver, None):
                leave()

    async def start_driver(self, driver: str) -> None:
        """A new process of it; nothing to do when it runs."""
        async with self._turn:
            if driver not in self._running and AGENT in self._running:
                self._start_any(driver)

    async def stop(self) -> None:
        """Agent and drivers end, as when the machine is taken away."""
        async with self._turn:
            for what in list(self._running):
                await self._stop(what)
            self._leave.clear()

    async def reboot(self, downtime_s: float, stay_stopped: Callable[[str], bool] = lambda driver: False) -> None:
        """Everything ends; after the downtime the machine boots with a new boot id."""
        async with self._turn:
            for what in list(self._running):
                await self._stop(what)
            self._leave.clear()
            await self.site.clock.sleep(downtime_s)
            self._lose_memory()
            self._start_agent()
            for driver in (*self.machine.drivers, *self._device_plugin_names()):
                if not stay_stopped(driver):
                    self._start_any(driver)

    def _lose_memory(self) -> None:
        boot_id = self.site.entropy.uuid4()
        root = self.site.root
        root.mkdir(parents=True, exist_ok=True)
        (root / BOOT_FILE).write_text(boot_id)
        self.site = msgspec.structs.replace(self.site, boot_id=boot_id)
        for path in (root / "cdi").glob("*"):
            path.unlink()

    # ---- tasks

    def _start_agent(self) -> None:
        site = self.site
        self.agent = NodeAgent(
            self.name,
            self._client,
            site.clock,
            site.root,
            entropy=site.entropy,
            host=self._host,
            facts=self.machine.facts,
            boot_id=site.boot_id,
            wipe_slices=False,
            durable=site.durable,
            tools=self._tools,
            injectors=self._injectors,
            sockets=self._sockets,
        )
        self._start(AGENT, f"node {self.name}", self.agent.run)

    def _start_plugin(self, name: str) -> None:
        site, factory = self.site, self.machine.drivers[name]
        driver = factory.make(self.name, site)
        direct = factory.direct or not self._sockets
        self._tools.update(factory.tools(driver))
        self._tools.update(factory.site_tools(driver, site))
        plugin = Plugin(
            driver,
            site.client,
            site.clock,
            site.entropy,
            node_name=self.name,
            places=Places.under(site.root, name, site.root / "cdi"),
            options=PluginOptions(
                boot_id=site.boot_id,
                durable=site.durable,
                metadata=factory.metadata,
                sockets=not direct,
                routes=self._routes,
                delay_s=lambda: self.delays.get(name, 0.0),
            ),
            metrics=site.metrics,
        )
        self.plugins[name] = plugin
        run: Callable[[], Awaitable[None]] = self._attached(plugin) if direct else plugin.run
        if factory.beside is not None:
            run = self._both(name, run, factory.beside(driver, site))
        self._start(name, f"driver {name} on {self.name}", run)

    def _start_any(self, name: str) -> None:
        plugins = self._device_plugin_names()
        if name in plugins:
            self._start_device_plugin(plugins[name])
        else:
            self._start_plugin(name)

    def _start_device_plugin(self, driver: str) -> None:
        factory = self.machine.device_plugins[driver]
        site = msgspec.structs.replace(self.site, nodes=self._host.nodes)
        plugin = factory.make(self.name, site, site.root / "cdi", adapted=False)
        self.device_plugins[driver] = plugin
        if factory.injector is not None:
            self._injectors[:] = [factory.injector(plugin)]
        self._start(factory.name, f"device plugin {factory.name} on {self.name}", plugin.run)

    def _both(
        self, name: str, run: Callable[[], Awaitable[None]], beside: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        async def both() -> None:
            async with Tasks(name, self.site.clock, self.site.entropy) as tasks:
                tasks.supervise("driver", run)
                tasks.supervise("beside", beside)

        return both

    def _attached(self, plugin: Plugin) -> Callable[[], Awaitable[None]]:
        agent = self.agent

        async def run() -> None:
            await agent.started.wait()
            if plugin.driver.name not in self._leave:
                self._leave[plugin.driver.name] = agent.attach(plugin)
            plugin.registered.set()
            await plugin.run()

        return run

    def _start(self, what: str, title: str, run: Callable[[], Awaitable[None]]) -> None:
        site = self.site
        log = get("dragoman", task=title)

        def ending() -> bool:
            # A group that breaks while it is cancelled loses the cancellation: the loop must know that it is over.
            return self._tasks.ending or what not in self._running

        work = supervised(run, clock=site.clock, entropy=site.entropy, backoff=LOOP_BACKOFF, log=log, ending=ending)
        self._running[what] = self._tasks.start(title, work)

    async def _stop(self, what: str) -> None:
        task = self._running.pop(what, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


def node_named(nodes: Mapping[str, SimulatedNode], name: str) -> SimulatedNode:
    """That node. Raises Invalid with the nodes that there are."""
    if name not in nodes:
        shown = ", ".join(list(nodes)[:8]) + (", ..." if len(nodes) > 8 else "")
        raise Invalid("data.node", f"no simulated node {name!r} here; there are: {shown or 'none'}")
    return nodes[name]


def _boot_id(machine: Machine, root: Path) -> str:
    """The boot that the disk remembers, else the first one."""
    try:
        return (root / BOOT_FILE).read_text().strip()
    except FileNotFoundError:
        return machine.facts.boot_id or f"boot-{machine.name}"
