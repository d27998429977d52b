"""How does a node take part? The agent that does what a kubelet does, for simulated machines; many fit in a process.

Registers the node, finds drivers, runs a worker for each pod, and keeps everything on disk that it needs to go on
after kill -9. It decides nothing about where pods run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path

import msgspec
from grpc import aio

from dragoman.apiserver.logs import LogSource
from dragoman.apiserver.sessions import PodSessions
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer
from dragoman.errors import DragomanError, NotFound, Retry
from dragoman.kubelet.admit import Rejected, rejection, unexpected
from dragoman.kubelet.cdi import CdiFolders
from dragoman.kubelet.claims import Claims
from dragoman.kubelet.connections import DirectConnection
from dragoman.kubelet.containers import Starter, Tool
from dragoman.kubelet.events import Events
from dragoman.kubelet.health import FILE as HEALTH_FILE
from dragoman.kubelet.health import Health
from dragoman.kubelet.injection import Injector
from dragoman.kubelet.ips import IpPool
from dragoman.kubelet.lifecycle import POD, NodeServices, PodWorker
from dragoman.kubelet.load import SAMPLE_S, LoadMeter
from dragoman.kubelet.logs import log_source
from dragoman.kubelet.node_object import NODE, NodeObject, NodeProperties, checked_name
from dragoman.kubelet.plugin_devices import PluginDevices
from dragoman.kubelet.plugins import Plugins, RegisteredPlugin
from dragoman.kubelet.pod import KubeletContainer, KubeletPod, NotResolved, requests_of
from dragoman.kubelet.podresources import SOCKET, PodResources
from dragoman.kubelet.processes import ImageMap
from dragoman.kubelet.runtime import EXIT_FAILED, SimulatedRuntime
from dragoman.kubelet.sessions import NodeSessions
from dragoman.kubelet.state import FILE as CLAIMS_FILE
from dragoman.kubelet.state import ClaimStates
from dragoman.node.checkpoint import kernel_boot_id
from dragoman.node.plugin import Plugin
from dragoman.node.publish import SLICE
from dragoman.node.routes import Routes
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks, supervised

POLL_S = 1.0
FIRST_POLL_S, FIRST_POLLS = 0.1, 30
HOUSEKEEPING_S = 60.0
VOLUMES_S = 2.0
NETWORKS = 64 * 256
START_BACKOFF = Backoff(initial_s=0.2, max_s=10.0, jitter=0.2)
BUCKETS = tuple(0.1 * (40 / 0.1) ** (step / 14) for step in range(15))
"""Upstream's buckets of DRA durations: 15, exponential from 0.1 to 40 s."""


class NodeHost:
    """What the agents of one process share: one watch of pods and one of nodes, one sink of events, one beat.

    node_name: only that node's pods are watched; empty for all. images: whose containers are processes of this
    machine, which find the API at api_port of loopback.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        *,
        metrics: Metrics | None = None,
        node_name: str = "",
        images: ImageMap = ImageMap(),  # noqa: B008 - a value
        api_port: int = 0,
    ) -> None:
        self.images = images
        self.api_port = api_port
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.metrics = metrics or Metrics()
        selector = f"spec.nodeName={node_name}" if node_name else "spec.nodeName!="
        self.informer = Informer(client, POD, clock, entropy, type_=KubeletPod, field_selector=selector)
        self.pods = Routes(self.informer, lambda pod: pod.spec.node_name)
        named = f"metadata.name={node_name}" if node_name else ""
        self.node_informer = Informer(client, NODE, clock, entropy, field_selector=named)
        self.nodes = Routes(self.node_informer, lambda node: node.metadata.name)
        self.events = Events(client, clock)
        self.agents: dict[str, NodeAgent] = {}
        self.meter = LoadMeter(self.agents, clock)
        self._beats: list[Callable[[], None]] = []
        self._cidrs: dict[str, str] | None = None
        self._tried = 0

    async def run(self) -> None:
        """Serve the agents for ever."""
        async with Tasks("kubelet", self.clock, self.entropy) as tasks:
            tasks.supervise("watch pods", self.informer.run)
            tasks.supervise("watch nodes", self.node_informer.run)
            tasks.supervise("events", self.events.run)
            tasks.supervise("beat", self._beat)
            tasks.supervise("load", self._measure)

    async def _measure(self) -> None:
        while True:
            await self.clock.sleep(SAMPLE_S * max(1.0, self.clock.speed))
            self.meter.sample()

    def beat(self) -> None:
        """Beat now, for who has just put a driver's sockets in place and does not want to wait."""
        for callback in tuple(self._beats):
            callback()

    def every_beat(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back about every second of the world (not of a faster clock); the result ends that."""
        self._beats.append(callback)
        return lambda: self._beats.remove(callback)

    async def _beat(self) -> None:
        # Drivers of this process mostly come right after their nodes.
        for wait_s in chain(repeat(FIRST_POLL_S, FIRST_POLLS), repeat(POLL_S)):
            await self.clock.sleep(wait_s * max(1.0, self.clock.speed))
            self.beat()

    def log_source(self, namespace: str, pod: str) -> LogSource | None:
        """The logs of a pod, for `apiserver.logs.Logs.offer`; None for a pod that is on none of the nodes here."""
        for agent in self.agents.values():
            if (source := agent.log_source(namespace, pod)) is not None:
                return source
        return None

    def sessions(self, namespace: str, pod: str) -> PodSessions | None:
        """exec and attach for a pod, for `apiserver.sessions.Sessions.offer`; None for a pod on none of the nodes
        here."""
        for agent in self.agents.values():
            if (found := agent.sessions(namespace, pod)) is not None:
                return found
        return None

    async def take_cidr(self, node_name: str) -> str:
        """A pod network for a node: that of its Node object, else one that no Node has. Raises as Client does."""
        if self._cidrs is None:
            nodes = (await self.client.list(NODE)).items
            self._cidrs = {n["metadata"]["name"]: n["spec"].get("podCIDR", "") for n in nodes if n.get("spec")}
        if not self._cidrs.get(node_name):
            used = set(self._cidrs.values())
            self._cidrs[node_name] = next(cidr for cidr in _networks(self._tried) if cidr not in used)
            self._tried += 1
        return self._cidrs[node_name]


def _networks(first: int) -> Iterator[str]:
    """10.64.0.0/24 and so on, 2^14 of them, then from the start again."""
    for number in range(first, first + 2 * NETWORKS):
        number %= NETWORKS
        yield f"10.{64 + number // 256}.{number % 256}.0/24"


class NodeAgent:
    """The agent of one node. `run()` it; the NodeHost is its own unless one is given (which then must run, too).

    root_dir: the kubelet's folder (really /var/lib/kubelet); short, since sockets lie below it. cdi_dirs: in rising
    priority, `<root_dir>/cdi` by default. boot_id: of the simulated machine, else the kernel's. wipe_slices: delete
    the node's ResourceSlices at the start, as kubelets do. sockets False: drivers join by `attach` only, and there is
    no podresources service (virtual time). durable: whether files survive a power loss.
    metrics: for a host of its own. tools: programs that drivers bring into containers, by name. injectors: what the
    container runtime is configured to put into containers by their environment.
    """

    def __init__(
        self,
        node_name: str,
        client: Client,
        clock: Clock,
        root_dir: Path,
        *,
        entropy: Entropy | None = None,
        host: NodeHost | None = None,
        facts: NodeProperties | None = None,
        cdi_dirs: tuple[Path, ...] = (),
        boot_id: str = "",
        wipe_slices: bool = True,
        sockets: bool = True,
        durable: bool = True,
        metrics: Metrics | None = None,
        tools: Mapping[str, Tool] | None = None,
        injectors: list[Injector] | None = None,
    ) -> None:
        self.node_name = checked_name(node_name)
        self.injectors: list[Injector] = [] if injectors is None else injectors
        self.tools: Mapping[str, Tool] = {} if tools is None else tools  # filled as drivers start
        self.client = client
        self.clock = clock
        self.root_dir = root_dir
        self.entropy = entropy or Entropy()
        self.facts = facts or NodeProperties()
        self._own_host = host is None
        self.host = host or NodeHost(client, clock, self.entropy, metrics=metrics, node_name=node_name)
        self.boot_id = boot_id or self.facts.boot_id or kernel_boot_id()
        self.started = asyncio.Event()
        """Set when the node is registered, its old slices are gone and drivers and pods are served."""
        self._wipe_slices = wipe_slices
        self._sockets = sockets
        self._measure(self.host.metrics)
        self.states = ClaimStates(root_dir / CLAIMS_FILE, durable=durable)
        self.plugins = Plugins(
            node_name,
            root_dir / "plugins_registry",
            clock,
            self.entropy,
            wipe=self._wipe,
            observe=self._observe_call,
        )
        self.devices = PluginDevices(
            root_dir,
            clock,
            node_name=node_name,
            durable=durable,
            changed=self._devices_changed,
            unwell=self._wake_pods,
            active=lambda: [uid for uid, worker in self._workers.items() if not worker.ended],
        )
        self._admitting = asyncio.Lock()
        self.claims = Claims(client, self.states, self.plugins.connection, self._count_claims)
        self.health = Health(root_dir / HEALTH_FILE, clock, self.claims, self._wake_pods, node_name=node_name)
        self.runtime = SimulatedRuntime(root_dir / "simulated", clock, boot_id=self.boot_id)
        self.folders = CdiFolders(*(cdi_dirs or (root_dir / "cdi",)))
        self.node_object = NodeObject(client, clock, self.entropy, node_name, self.facts)
        self.node_object.devices = self.devices
        self.ips: IpPool | None = None
        self._workers: dict[str, PodWorker] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._tidy = asyncio.Event()
        self._tasks: Tasks | None = None
        self._node: NodeServices | None = None
        self._log = get("kubelet", node=node_name)
        self.plugins.on_join.append(self._driver_joined)

    def _measure(self, metrics: Metrics) -> None:
        self._operations = metrics.histogram(
            "dra_operations_duration_seconds",
            "Time to prepare or unprepare a pod's claims.",
            ["operation_name", "is_error"],
            BUCKETS,
        )
        self._calls = metrics.histogram(
            "dra_grpc_operations_duration_seconds",
            "Time of calls to DRA drivers.",
            ["driver_name", "method_name", "grpc_status_code"],
            BUCKETS,
        )
        self._in_use = metrics.gauge("dra_resource_claims_in_use", "Prepared claims by driver.", ["driver_name"])
        self._counted: dict[str, int] = {}

    # ---- life

    async def run(self) -> None:
        """Be the node until cancelled; containers run on. Raises Invalid for a checkpoint that cannot be trusted."""
        self.root_dir.mkdir(parents=True, exist_ok=True)
        self.states.load()
        self.devices.load()
        self.runtime.load()
        self.health.load()
        server: aio.Server | None = None
        stop_beat: Callable[[], None] = lambda: None  # noqa: E731
        leave_pods: Callable[[], None] = lambda: None  # noqa: E731
        leave_nodes: Callable[[], None] = lambda: None  # noqa: E731
        try:
            async with Tasks(f"kubelet: {self.node_name}", self.clock, self.entropy) as tasks:
                self._tasks = tasks
                if self._own_host:
                    tasks.supervise("host", self.host.run)
                await self._begin()
                self._node = self._shared(tasks)
                self._adopt()
                self.host.agents[self.node_name] = self
                tasks.supervise("lease", self.node_object.keep_lease)
                tasks.supervise("node status", self.node_object.keep_reporting)
                if self._sockets:
                    service = PodResources(self.claims, self.devices, self.clock, self.active_pods)
                    self.devices.start(tasks)
                    server = await service.serve(self.root_dir)
                    self.plugins.start(tasks)
                    stop_beat = self.host.every_beat(self.plugins.poll)
                else:
                    self.plugins.start_directly(tasks)
                await self.host.informer.synced()
                leave_nodes = self.host.nodes.subscribe(self.node_name, self.node_object.seen)
                leave_pods = self.host.pods.subscribe(self.node_name, self._receive)
                self._drop_orphans()
                tasks.supervise("housekeeping", self._keep_house)
                if self.host.images.entries:
                    tasks.supervise("volumes of processes", self._keep_volumes)
                self.started.set()
        finally:
            self.started.clear()
            stop_beat()
            leave_pods()
            leave_nodes()
            self.host.agents.pop(self.node_name, None)
            for worker in self._workers.values():
                worker.stop()
            self.runtime.close()
            await self.plugins.stop()
            await self.devices.stop()
            if server:
                await server.stop(0)
                (self.root_dir / SOCKET).unlink(missing_ok=True)
                self.devices.socket.unlink(missing_ok=True)
            self._tasks = None

    def _shared(self, tasks: Tasks) -> NodeServices:
        assert self.ips is not None
        starter = Starter(
            self.client,
            self.claims,
            self.folders,
            node_name=self.node_name,
            host_ip=self.facts.host_ip,
            tools=self.tools,
            images=self.host.images,
            api_port=self.host.api_port,
            allocatable=self.facts.capacity,
            plugin_devices=self.devices,
            injectors=self.injectors,
        )
        self.runtime.wake = lambda uid: self._wake_pods({uid})
        return NodeServices(
            name=self.node_name,
            host_ip=self.facts.host_ip,
            client=self.client,
            clock=self.clock,
            tasks=tasks,
            claims=self.claims,
            runtime=self.runtime,
            starter=starter,
            health=self.health,
            devices=self.devices,
            events=self.host.events,
            ips=self.ips,
            forget=self._forget,
            admit=self._admit,
            observe=self._observe_operation,
        )

    def _adopt(self) -> None:
        """Pods that ran before this process run on."""
        assert self.ips is not None
        for box in self.runtime.sandboxes.values():
            if box.alive:
                self.ips.adopt(box.uid, box.ip)
                self.claims.adopt(box.uid)

    async def _begin(self) -> None:
        """Register the node and remove its old slices, however long that takes."""

        async def begin() -> None:
            cidr = self.facts.pod_cidr or await self.host.take_cidr(self.node_name)
            self.ips = IpPool(cidr)
            host_ip = self.facts.host_ip or self.ips.first
            self.facts = msgspec.structs.replace(self.facts, pod_cidr=cidr, host_ip=host_ip, boot_id=self.boot_id)
            self.node_object.facts = self.facts
            await self.node_object.register()
            if self._wipe_slices:
                await self.client.delete_collection(SLICE, field_selector=f"spec.nodeName={self.node_name}")

        await supervised(begin, clock=self.clock, entropy=self.entropy, backoff=START_BACKOFF, log=self._log)

    # ---- pods

    def _receive(self, what: str, pod: KubeletPod) -> None:
        worker = self._workers.get(pod.uid)
        key = (pod.metadata.namespace, pod.metadata.name)
        if what == "gone":
            if worker:
                worker.lost()
            return
        replaced = self._uids.get(key)
        if replaced is not None and replaced != pod.uid and replaced in self._workers:
            # The watch showed only the successor of a pod that was force-deleted.
            self._workers[replaced].lost()
        self._uids[key] = pod.uid
        if worker:
            worker.update(pod)
            return
        assert self._node is not None
        self._workers[pod.uid] = worker = PodWorker(self._node, pod)
        worker.wake()

    def _forget(self, uid: str) -> None:
        worker = self._workers.pop(uid, None)
        if worker:
            key = (worker.pod.metadata.namespace, worker.pod.metadata.name)
            if self._uids.get(key) == uid:
                del self._uids[key]

    async def _admit(self, pod: KubeletPod) -> Rejected | None:
        """One pod at a time, so that two never count on the same room or device."""
        async with self._admitting:
            if self.devices.needs(pod):
                try:
                    await self.devices.allocate(pod)
                except Retry as error:
                    return unexpected(error)
            others = (worker.pod for worker in self._workers.values() if worker.admitted and not worker.ended)
            return rejection(pod, others, self.facts.capacity, self.devices)

    def _devices_changed(self) -> None:
        self.node_object.changed()

    def _wake_pods(self, uids: set[str]) -> None:
        for uid in sorted(uids & self._workers.keys()):
            self._workers[uid].wake()

    def active_pods(self) -> list[KubeletPod]:
        """Pods that have not ended."""
        return [worker.pod for worker in self._workers.values() if not worker.ended and not worker.pod.is_finished]

    def _drop_orphans(self) -> None:
        """Stop what no pod of the API stands for (deleted while we were away)."""
        for box in list(self.runtime.sandboxes.values()):
            if box.uid not in self._workers:
                for name in self.runtime.running(box.uid):
                    self.runtime.stop(box.uid, name, after_s=0.0)
                if self.ips:
                    self.ips.release(box.uid)
                self.runtime.remove(box.uid)
        # After their containers: what they had of device plugins is free.
        self.devices.tidy(set())

    async def _keep_house(self) -> None:
        while True:
            self._tidy.clear()
            for uid in sorted(self.states.pods() - self._workers.keys()):
                await self._unprepare_orphan(uid)
            timer = self.clock.call_later(self.entropy.jitter(HOUSEKEEPING_S, 0.05), self._tidy.set)
            try:
                await self._tidy.wait()
            finally:
                timer.cancel()

    async def _keep_volumes(self) -> None:
        """Processes see what becomes of their ConfigMaps, Secrets and tokens."""
        assert self._node is not None
        while True:
            await self.clock.sleep(VOLUMES_S)
            for worker in list(self._workers.values()):
                box = self.runtime.sandbox(worker.pod.uid)
                if box is not None and any(run.local for run in box.current.values()):
                    await self._node.starter.volumes.refresh(worker.pod, self.clock.now())
                    self.runtime.update_volumes(worker.pod.uid)

    async def _unprepare_orphan(self, uid: str) -> None:
        try:
            await self.claims.unprepare(uid)
            self._log.info("unprepared the claims of a pod that is gone", uid=uid)
        except DragomanError as error:
            self._log.info("cannot unprepare yet", uid=uid, error=str(error))

    def users(self, claim_uid: str) -> dict[str, list[str]]:
        """Running containers that use a claim, by the uid of their pod."""
        state = next((state for state in self.states.claims.values() if state.claim_uid == claim_uid), None)
        found: dict[str, list[str]] = {}
        for uid in sorted(state.pod_uids if state else ()):
            worker = self._workers.get(uid)
            if worker is not None and state is not None:
                running = self.runtime.running(uid)
                using = [c.name for c in _containers(worker.pod) if _uses(worker.pod, c, state.claim_name)]
                found[uid] = [name for name in using if name in running]
        return {uid: names for uid, names in found.items() if names}

    def pod_named(self, uid: str) -> str:
        """`namespace/name` of a pod on this node; the uid of others."""
        worker = self._workers.get(uid)
        return f"{worker.pod.metadata.namespace}/{worker.pod.metadata.name}" if worker else uid

    def fail(self, uid: str, containers: Sequence[str], message: str) -> None:
        """Let running containers of a pod end now with an error, as programs do whose device failed."""
        for name in containers:
            self.runtime.stop(uid, name, after_s=0.0, exit_code=EXIT_FAILED, message=message)
        self._wake_pods({uid})

    # ---- drivers

    def attach(self, plugin: Plugin) -> Callable[[], None]:
        """Register a plugin of this process without sockets; the result deregisters it."""
        instance = self.plugins.join_directly(DirectConnection(plugin))
        return lambda: self.plugins.leave_directly(instance)

    def _driver_joined(self, instance: RegisteredPlugin) -> None:
        assert self._tasks is not None
        connection = instance.connection
        if connection.offers_health:
            instance.tasks.append(self._tasks.start(f"health of {connection.driver}", self.health.follow(connection)))
        for worker in self._workers.values():
            if not worker.ended:
                worker.wake()
        self._tidy.set()

    async def _wipe(self, driver: str) -> None:
        selector = f"spec.nodeName={self.node_name},spec.driver={driver}"
        await self.client.delete_collection(SLICE, field_selector=selector)

    def _observe_call(self, driver: str, method: str, code: str, seconds: float) -> None:
        self._calls.labels(driver, method, code).observe(seconds)

    def _observe_operation(self, operation: str, seconds: float, *, is_error: bool) -> None:
        self._operations.labels(operation, str(is_error).lower()).observe(seconds)

    def _count_claims(self) -> None:
        """Bring the gauge, which all nodes of the process share, up to date by what changed here."""
        counts: dict[str, int] = {}
        for key in self.states.prepared:
            if state := self.states.claims.get(key):
                for driver in ("<any>", *state.driver_state):
                    counts[driver] = counts.get(driver, 0) + 1
        for driver in counts.keys() | self._counted.keys():
            step = counts.get(driver, 0) - self._counted.get(driver, 0)
            if step:
                self._in_use.labels(driver).inc(step)
        self._counted = counts

    # ---- logs

    def log_source(self, namespace: str, pod: str) -> LogSource | None:
        """The logs of a pod; None if it is not here."""
        worker = self._workers.get(self._uids.get((namespace, pod), ""))
        return log_source(self.runtime, self.clock, worker.pod) if worker else None

    def sessions(self, namespace: str, pod: str) -> PodSessions | None:
        """exec and attach for a pod; None if it is not here."""
        worker = self._workers.get(self._uids.get((namespace, pod), ""))
        return NodeSessions(self.runtime, worker.pod) if worker else None

    def logs(self, namespace: str, pod: str, container: str = "", *, previous: bool = False) -> str:
        """The log of a container (the first one by default). Raises NotFound."""
        uid = self._uids.get((namespace, pod), "")
        worker, box = self._workers.get(uid), self.runtime.sandbox(uid)
        if worker is None:
            raise NotFound(f'pod "{pod}" not found on node {self.node_name}')
        name = container or worker.pod.spec.containers[0].name
        runs = (box.previous if previous else box.current) if box else {}
        if name not in runs:
            what = "previous terminated container" if previous else "container"
            raise NotFound(f'{what} "{name}" in pod "{pod}" not found')
        return runs[name].text


def _containers(pod: KubeletPod) -> tuple[KubeletContainer, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _uses(pod: KubeletPod, container: KubeletContainer, claim: str) -> bool:
    try:
        return any(name == claim for name, _ in requests_of(pod, container))
    except NotResolved:
        return False
