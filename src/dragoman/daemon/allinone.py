"""How does a whole cluster run in one process? API server, controllers, scheduler, node agents and drivers wired up.

    async with Cluster(Settings(nodes=(("worker", "example"),))) as cluster:
        cluster.access          # where kubectl finds it

Decides nothing. All parts reach the API through the in-process client, the drivers and agents each other over real
Unix sockets. With `data` the objects, checkpoints and simulated machines are kept over restarts.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from dragoman.allocate.allocator import OPTIONS, AllocatorOptions
from dragoman.api.kinds import kind_of
from dragoman.apiserver import kubeconfig
from dragoman.apiserver.access import parts
from dragoman.apiserver.access.authorizer import AuthorizationMode
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.request import ADMIN, User
from dragoman.apiserver.server import Server, ServerConfig, serving
from dragoman.cluster.kubeconfig import Access
from dragoman.cluster.watch import Informers
from dragoman.daemon.added_nodes import AddedNodes
from dragoman.daemon.autoscaler import Autoscaler
from dragoman.daemon.controllers import Controllers
from dragoman.daemon.controllers import ControllerSettings as ControllerSettings
from dragoman.daemon.exporter import Exporter, ExporterSettings
from dragoman.daemon.machines import Machine, machines
from dragoman.daemon.scheduler import Scheduler
from dragoman.daemon.scheduler import SchedulerSettings as SchedulerSettings
from dragoman.daemon.simulated_node import SimulatedNode
from dragoman.daemon.simulation import Simulation
from dragoman.drivers.entry import ClusterSite, DriverEntry, Site
from dragoman.errors import Invalid, Stale
from dragoman.kubelet.agent import NodeHost
from dragoman.kubelet.processes import ImageMap
from dragoman.node.plugin import Plugin, registration_socket
from dragoman.node.publish import SLICE, slice_routes
from dragoman.node.routes import Routes
from dragoman.node.rpc import checked_socket
from dragoman.reconcile.volumes import PROVISIONER
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.units import PreemptionMode
from dragoman.snapshot.volumes import DEFAULT_CLASS, WAITS

DEVICE_CLASS = kind_of("DeviceClass")
BASE_FILES = 1024
FILES_A_NODE = 40
"""Open files a node needs: sockets of agent and drivers, their connections, checkpoints being written."""


class OpenFiles(msgspec.Struct, frozen=True):
    """How many the nodes need with sockets, and how many the process may have."""

    needed: int
    allowed: int

    @property
    def suffice(self) -> bool:
        """Whether every node can have its sockets."""
        return self.needed <= self.allowed


DRIVERS_S = 15.0
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it


PARTS = ("scheduler", "controllers", "nodes")
STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": WAITS,
}
"""Volumes are folders in the memory of simulated nodes, as local volumes of small clusters are."""


class ClusterSettings(msgspec.Struct, frozen=True):
    """nodes: (name, profile). without: the PARTS that somebody else runs.

    data: keep state there; root_dir: sockets and node files of a memory-only cluster.

    kubeconfig is written once the cluster is ready. speed: the cluster's clock against the world's. options: of the
    scheduler; its gates are the API's, too. preemption: which room pods of higher priority get.
    profiles: files of machine profiles beside the packaged ones; drivers: how they behave on simulated machines, by
    name (`DriverEntry.up_settings`). authorization: by roles, or everything allowed to every user. images: whose
    containers run as processes of this machine.

    gpu_path: how containers get GPUs on nodes whose profile does not say it, dra or device-plugin.

    users: (name, groups) that get a kubeconfig beside `kubeconfig`. repair_data: give up what stands behind damage in
    the log of `data`.
    """

    nodes: tuple[tuple[str, str], ...] = (("node-0", "example"),)
    port: int = 0
    data: Path | None = None
    repair_data: bool = False
    kubeconfig: Path | None = None
    root_dir: Path | None = None
    minor: int = 37
    runtime_config: dict[str, bool] = {}
    without: frozenset[str] = frozenset()
    speed: float = 1.0
    options: AllocatorOptions = OPTIONS
    preemption: PreemptionMode = "nodes"
    profiles: tuple[Path, ...] = ()
    drivers: dict[str, Any] = {}
    authorization: AuthorizationMode = "rbac"
    gpu_path: str = "dra"
    images: ImageMap = ImageMap()
    users: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Cluster:
    """A running cluster while the body of `async with` runs. Raises Invalid and Denied at the start."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.machines = machines(settings.nodes, settings.profiles, settings.drivers, settings.gpu_path)
        self.clock = Clock(speed=settings.speed)
        self.entropy = Entropy()
        self.metrics = Metrics()
        self.nodes: dict[str, SimulatedNode] = {}
        self._controlled: set[str] = set()
        """Drivers whose controller runs."""
        self._stack = AsyncExitStack()
        self._server: Server | None = None
        self._log = get("up")
        self._sockets = True

    @property
    def access(self) -> Access:
        """Where the API is."""
        assert self._server is not None
        return self._server.access

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        self._check_open_files(self.machines, len(self.machines))
        # Millions of long-lived objects: the collector's default thresholds would walk them again and again.
        gc.set_threshold(100_000, 50, 1000)
        config = ServerConfig(
            port=settings.port,
            data=settings.data,
            repair_data=settings.repair_data,
            minor=settings.minor,
            gates=settings.options.gates,
            runtime_config=settings.runtime_config,
            authorization=settings.authorization,
        )
        self._server = await stack.enter_async_context(serving(config, self.clock, self.entropy, self.metrics))
        root = self._root(stack)
        await self._install(self.machines)
        host = NodeHost(
            self._client(parts.NODE_HOST),
            self.clock,
            self.entropy,
            metrics=self.metrics,
            images=settings.images,
            api_port=int(self.access.server.rpartition(":")[2]),
        )
        self._server.registry.logs.add_host(host.log_source)
        self._server.registry.sessions.add_host(host.sessions)
        if "nodes" not in settings.without:
            self._server.registry.add_usage_host(host.meter)
        informers = Informers(self._client(parts.READER), self.clock, self.entropy, self.metrics)
        tasks = await stack.enter_async_context(Tasks("dragoman", self.clock, self.entropy))
        stack.callback(tasks.stop)
        informers.start(tasks)
        if "controllers" not in settings.without:
            controlling = ControllerSettings(root_ca=self._server.registry.ca_text)
            client = self._client(parts.CONTROLLERS)
            controllers = Controllers(client, self.clock, self.entropy, controlling, self.metrics, informers)
            tasks.supervise("controllers", controllers.run)
            scaling = self._client(parts.AUTOSCALER)
            usage = self._server.registry.metrics
            autoscaler = Autoscaler(scaling, self.clock, self.entropy, usage, informers, self.metrics)
            tasks.supervise("autoscaler", autoscaler.run)
            self._control(self.machines, tasks)
        if "scheduler" not in settings.without:
            scheduling = SchedulerSettings(options=settings.options, preemption=settings.preemption)
            client = self._client(parts.SCHEDULER)
            scheduler = Scheduler(client, self.clock, self.entropy, scheduling, self.metrics, informers)
            tasks.supervise("scheduler", scheduler.run)
        # Who may read /metrics may read every namespace's name (system:monitoring).
        exporting = ExporterSettings(by_namespace=True)
        exporter = Exporter(self._client(parts.READER), self.clock, self.entropy, exporting, self.metrics, informers)
        tasks.supervise("exporter", exporter.run)
        tasks.supervise("node host", host.run)
        routes = slice_routes(informers.of(SLICE.kind))
        for machine in self.machines:
            self._boot(machine, root, host, routes, tasks)
        await asyncio.gather(*(node.agent.started.wait() for node in self.nodes.values()))
        await self._drivers_registered()
        simulating = self._client(parts.SIMULATION)
        added = AddedNodes(
            self.nodes,
            partial(self._machines_of, tasks),
            lambda machine: self._boot(machine, root, host, routes, tasks),
        )
        simulation = Simulation(simulating, self.clock, self.entropy, self.nodes, added, host.meter)
        self.simulation = simulation
        tasks.supervise("simulation", simulation.run)
        if settings.kubeconfig is not None:
            self._write_kubeconfigs(settings.kubeconfig)

    def _check_open_files(self, of: Sequence[Machine], nodes: int) -> None:
        """Decide whether drivers are called over sockets. Raises Invalid for device plugins, which need them."""
        files = raise_open_files(nodes)
        if files.suffice:
            return
        text = (
            f"{nodes} nodes with sockets need {files.needed:,} open files, and this process may have {files.allowed:,}"
        )
        if plugins := sorted({name for machine in of for name in machine.device_plugins}):
            raise Invalid(
                "--node",
                f"{text}; device plugins ({', '.join(plugins)}) need sockets: start fewer nodes, or raise the limit "
                "(ulimit -Hn, LimitNOFILE)",
            )
        if self._sockets:
            self._log.warning(f"{text}: drivers are called without sockets, and there is no podresources service")
        self._sockets = False

    def _boot(self, machine: Machine, root: Path, host: NodeHost, routes: Routes, tasks: Tasks) -> SimulatedNode:
        client = self._client(parts.driver(machine.name))
        durable = self.settings.data is not None
        accounts = partial(self._account, machine.name)
        site = Site(root / machine.name, "", client, self.clock, self.entropy, self.metrics, durable, accounts=accounts)
        agent = self._client(parts.node_agent(machine.name))
        self.nodes[machine.name] = node = SimulatedNode(
            machine, site, host, routes, tasks, agent, sockets=self._sockets
        )
        node.start()
        return node

    async def _machines_of(self, tasks: Tasks, name: str, profile: str) -> list[Machine]:
        """The machines of a node that is added while the cluster runs, with their classes made. Raises Invalid."""
        settings = self.settings
        found = machines(((name, profile),), settings.profiles, settings.drivers, settings.gpu_path)
        self._check_open_files(found, len(self.nodes) + len(found))
        await self._install(found)
        if "controllers" not in self.settings.without:
            self._control(found, tasks)
        return found

    def _client(self, user: User) -> InProcessClient:
        """The API for one part, with its rights."""
        assert self._server is not None
        return InProcessClient(self._server.registry, user=user)

    def _account(self, node: str, namespace: str, name: str) -> InProcessClient:
        """The API for a service account of a pod on a node, "" for one that may be on any."""
        return self._client(parts.account(namespace, name, node))

    async def _install(self, of: Sequence[Machine]) -> None:
        """What drivers must find in the cluster; what is there already, perhaps changed by its user, stays."""
        client = self._client(ADMIN)
        plugins = {entry.name: entry for machine in of for entry in machine.plugin_entries}
        wanted = [body for entry in _entries(of) for body in entry.installed()]
        wanted += [body for plugin in plugins.values() for body in plugin.installed()]
        for body in wanted:
            with suppress(Stale):
                await client.create(kind_of(body["kind"]), body, body["metadata"].get("namespace", ""))
        await self._create_classes(self._client(parts.driver("")), of)
        if "controllers" not in self.settings.without:
            with suppress(Stale):
                await client.create(kind_of("StorageClass"), STORAGE_CLASS)

    def _control(self, of: Sequence[Machine], tasks: Tasks) -> None:
        """Start what drivers run once for a cluster, unless it runs."""
        client = self._client(parts.driver(""))
        site = ClusterSite(client, self.clock, self.entropy, self.metrics, partial(self._account, ""))
        for entry in _entries(of):
            if entry.control is not None and entry.name not in self._controlled:
                self._controlled.add(entry.name)
                settings = self.settings.drivers.get(entry.name)
                tasks.supervise(f"controller of {entry.name}", partial(entry.control, site, settings))

    def _write_kubeconfigs(self, file: Path) -> None:
        assert self._server is not None
        for name, groups in self.settings.users:
            token = self._server.registry.tokens.for_user(name, groups)
            access = Access(self.access.server, self.access.ca_pem, token=token)
            kubeconfig.write(kubeconfig.of_user(file, name), access, name)
        kubeconfig.write(file, self.access)

    def _plugins(self) -> Iterator[Plugin]:
        for node in self.nodes.values():
            yield from node.plugins.values()

    async def _drivers_registered(self) -> None:
        """Wait for the drivers, but not for ever: one that cannot start must not keep the cluster from its user."""
        registered = [plugin.registered for plugin in self._plugins()]
        registered += [one.registered for node in self.nodes.values() for one in node.device_plugins.values()]
        waits = [asyncio.ensure_future(event.wait()) for event in registered]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=DRIVERS_S)
        for wait in late:
            wait.cancel()
        if late:
            self._log.warning("some drivers have not registered yet", drivers=len(late))

    def _root(self, stack: AsyncExitStack) -> Path:
        base = self.settings.data or self.settings.root_dir
        if base is None:
            # Checkpoints are rewritten for every claim, which costs a hundred times more on a disk than in memory.
            memory = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
            base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dra-", dir=memory)))
        root = base / "n"
        self._fits_sockets(root)
        return root

    def _fits_sockets(self, root: Path) -> None:
        """Refuse at the start what no driver could ever listen below. Raises Invalid."""
        for machine in {len(machine.name): machine for machine in self.machines}.values():
            for driver in machine.drivers:
                checked_socket(registration_socket(root.absolute() / machine.name / "plugins_registry", driver, ""))

    async def _create_classes(self, client: InProcessClient, of: Sequence[Machine]) -> None:
        wanted = {body["metadata"]["name"]: body for machine in of for body in machine.classes}
        for body in wanted.values():
            try:
                await client.create(DEVICE_CLASS, body)
            except Stale:
                continue  # there already, perhaps changed by its user


def _entries(of: Sequence[Machine]) -> tuple[DriverEntry, ...]:
    return tuple({entry.name: entry for machine in of for entry in machine.entries}.values())


def raise_open_files(nodes: int) -> OpenFiles:
    """Let the process open the files its nodes need, or all that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = BASE_FILES + nodes * FILES_A_NODE
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return OpenFiles(needed, soft)
