"""What do the pods of simulated nodes use? Load that annotations and ConfigMaps set, and that of real processes.

    metadata: {name: rush-hour, namespace: shop, labels: {dragoman.dev/simulate: load}}
    data: {selector: app=web, cpu: "3", memory: 2Gi}

A load is shared evenly by the running pods that the selector finds in the object's namespace, so that more replicas
carry less each. The annotations dragoman.dev/cpu and dragoman.dev/memory (or with .CONTAINER behind) say what one
container uses, whatever the load. What nobody set is next to nothing. It decides nothing about pods.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from dragoman.api.meta import NamespacedName
from dragoman.apiserver.resource_metrics import ContainerUsage, PodResourceUsage
from dragoman.apiserver.selectors import Requirements, accepts, parse_labels
from dragoman.apiserver.status import StatusError
from dragoman.errors import Invalid
from dragoman.kubelet.faults import FaultData
from dragoman.kubelet.pod import KubeletPod
from dragoman.kubelet.processes import LocalCommand
from dragoman.kubelet.runtime import SimulatedRuntime
from dragoman.runtime.clock import Clock
from dragoman.values.quantity import NANO, Quantity

IDLE_CPU, IDLE_MEMORY = NANO // 1000, 8 * 2**20
"""Of a container that nobody gave a load: 1m and 8Mi."""
NODE_CPU, NODE_MEMORY = NANO // 20, 256 * 2**20
"""Of a machine beside its pods: 50m and 256Mi."""
SAMPLE_S: Final = 10.0


class SimulatedLoad(msgspec.Struct, frozen=True):
    """Work for some pods together: billionths of a CPU, bytes; None where it says nothing."""

    namespace: str
    selector: Requirements
    cpu_nanos: int | None
    memory_bytes: int | None


def load_of(namespace: str, data: Mapping[str, str]) -> SimulatedLoad:
    """The load that a ConfigMap's data asks for. Raises Invalid with the entry."""
    entries = FaultData(data)
    text = entries.text("selector")
    try:
        selector = parse_labels(text)
    except StatusError as error:
        raise Invalid("data.selector", str(error)) from None
    cpu = quantity(entries.text("cpu"), "data.cpu") if entries.has("cpu") else None
    memory = quantity(entries.text("memory"), "data.memory") if entries.has("memory") else None
    entries.nothing_left()
    if cpu is None and memory is None:
        raise Invalid("data.cpu", "must be set, or data.memory")
    return SimulatedLoad(
        namespace, selector, None if cpu is None else cpu.nanos, None if memory is None else memory.nanos // NANO
    )


def quantity(text: str, where: str) -> Quantity:
    """An amount that is not negative. Raises Invalid."""
    try:
        found = Quantity.parse(text)
    except ValueError as error:
        raise Invalid(where, f"must be a quantity such as 250m or 1Gi, got {text!r}: {error}") from None
    if found.sign() < 0:
        raise Invalid(where, f"must not be negative, got {text!r}")
    return found


class RunningNode(Protocol):
    """A node agent, as far as its load matters."""

    node_name: str
    runtime: SimulatedRuntime

    def active_pods(self) -> list[KubeletPod]:
        """Pods that have not ended."""
        ...


class LoadMeter:
    """What the pods of some agents use; a `UsageHost` of the API server."""

    def __init__(self, agents: Mapping[str, RunningNode], clock: Clock) -> None:
        self.loads: dict[NamespacedName, SimulatedLoad] = {}
        self._agents = agents
        self._processes = ProcessMeter(clock)

    def pods(self) -> Iterator[PodResourceUsage]:
        """The pods that run."""
        running = [
            (node, agent, pod, [c for c in agent.runtime.running(pod.uid) if c in _lasting(pod)])
            for node, agent in self._agents.items()
            for pod in agent.active_pods()
        ]
        running = [found for found in running if found[3]]
        shares = {key: _Share(load, [pod for _, _, pod, _ in running]) for key, load in sorted(self.loads.items())}
        for node, agent, pod, names in running:
            own = [share for share in shares.values() if share.concerns(pod)]
            yield PodResourceUsage(
                pod.metadata.namespace,
                pod.metadata.name,
                node,
                tuple(self._container(agent, pod, name, own, len(names)) for name in names),
            )

    def nodes(self) -> Iterator[ContainerUsage]:
        """The nodes: their pods and a little more."""
        totals = {node: [NODE_CPU, NODE_MEMORY] for node in self._agents}
        for pod in self.pods():
            for container in pod.containers:
                totals[pod.node][0] += container.cpu_nanos
                totals[pod.node][1] += container.memory_bytes
        for node, (cpu, memory) in totals.items():
            yield ContainerUsage(node, cpu, memory)

    def sample(self) -> None:
        """Look at the processes of containers, now and then: their use of CPU is what two looks differ by."""
        pids = [pid for agent in self._agents.values() for pid in _processes(agent.runtime)]
        if pids:
            self._processes.sample()

    def _container(
        self, agent: RunningNode, pod: KubeletPod, name: str, shares: list[_Share], containers: int
    ) -> ContainerUsage:
        command = agent.runtime.command(pod.uid, name)
        if isinstance(command, LocalCommand):
            cpu, memory = self._processes.usage(command.pid)
        else:
            cpus = [share.cpu // containers for share in shares if share.load.cpu_nanos is not None]
            memories = [share.memory // containers for share in shares if share.load.memory_bytes is not None]
            cpu, memory = sum(cpus) if cpus else IDLE_CPU, sum(memories) if memories else IDLE_MEMORY
        cpu = _annotated(pod, "cpu", name, 1, cpu)
        memory = _annotated(pod, "memory", name, NANO, memory)
        return ContainerUsage(name, cpu, memory)


class _Share:
    """A load, divided by the pods that carry it."""

    def __init__(self, load: SimulatedLoad, running: Iterable[KubeletPod]) -> None:
        self.load = load
        self.carriers = {pod.uid for pod in running if self._fits(pod)}
        count = max(1, len(self.carriers))
        self.cpu = (load.cpu_nanos or 0) // count
        self.memory = (load.memory_bytes or 0) // count

    def _fits(self, pod: KubeletPod) -> bool:
        mine = pod.metadata.namespace == self.load.namespace and not pod.is_deleted
        return mine and accepts(self.load.selector, pod.metadata.labels)

    def concerns(self, pod: KubeletPod) -> bool:
        return pod.uid in self.carriers


def _lasting(pod: KubeletPod) -> frozenset[str]:
    """Containers that load is measured of: not those of the pod's start."""
    sidecars = [c.name for c in pod.spec.init_containers if c.is_sidecar]
    return frozenset([*(c.name for c in pod.spec.containers), *sidecars])


def _annotated(pod: KubeletPod, what: str, container: str, unit: int, otherwise: int) -> int:
    key, text = pod.annotation(what, container)
    if not key:
        return otherwise
    try:
        return quantity(text, key).nanos // unit
    except Invalid:
        return otherwise  # `check_annotations` refuses such a pod when it starts


def _processes(runtime: SimulatedRuntime) -> Iterator[int]:
    for uid, box in runtime.sandboxes.items():
        for name, run in box.current.items():
            command = runtime.command(uid, name) if run.local else None
            if isinstance(command, LocalCommand):
                yield command.pid


class ProcessMeter:
    """CPU and memory of process sessions of this machine, from /proc."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tick = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._last: tuple[float, dict[int, tuple[int, int]]] | None = None
        self._rates: dict[int, int] = {}

    def usage(self, session: int) -> tuple[int, int]:
        """(billionths of a CPU since the look before, bytes) of the session that a process leads."""
        if self._last is None or session not in self._last[1]:
            self.sample()
        assert self._last is not None
        return self._rates.get(session, 0), self._last[1].get(session, (0, 0))[1]

    def sample(self) -> None:
        """Look now."""
        now, found = self._clock.monotonic(), self._read()
        if self._last is not None:
            before_at, before = self._last
            # Processes run in the world's time, whatever the speed of the cluster's clock.
            passed_s = (now - before_at) / self._clock.speed
            if passed_s < SAMPLE_S / 10:
                self._last = before_at, {**found, **before}
                return
            for session, (ticks, _) in found.items():
                spent_s = max(0, ticks - before.get(session, (ticks, 0))[0]) / self._tick
                self._rates[session] = int(spent_s / passed_s * NANO)
        self._rates = {session: rate for session, rate in self._rates.items() if session in found}
        self._last = now, found

    def _read(self) -> dict[int, tuple[int, int]]:
        """By session: ticks of CPU so far, bytes now."""
        found: dict[int, tuple[int, int]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue  # it has just ended
            fields = text.rpartition(")")[2].split()
            session = int(fields[3])
            ticks = sum(int(field) for field in fields[11:15])  # of itself, and of children that it waited for
            pages = int(fields[21])
            known = found.get(session, (0, 0))
            found[session] = known[0] + ticks, known[1] + pages * self._page
        return found
