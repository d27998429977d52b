"""Who breaks simulated machines, mends them, and moves the cluster's clock? One loop over labelled ConfigMaps.

A fault is there while its object is; the outcome is in the object's annotations. Faults of
any machine are acted on here, those of a driver's hardware by the driver (`drivers.registry`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.api.meta import NamespacedName, ObjectMeta, Value, format_time, parse_time
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer
from dragoman.daemon.added_nodes import AddedNodes
from dragoman.daemon.simulated_node import SimulatedNode, node_named
from dragoman.drivers.entry import DriverEntry
from dragoman.drivers.registry import driver_faults, fault_kinds
from dragoman.errors import DragomanError, Invalid, NotFound
from dragoman.kubelet.faults import (
    ACTIVE,
    CLOCK,
    DONE,
    FAULT,
    INVALID,
    LABEL,
    LOAD,
    MESSAGE,
    NODE,
    STATE,
    Advance,
    DriverStopped,
    Fault,
    NodeRebooted,
    SlowPrepare,
    clock_request_of,
    fault_of,
)
from dragoman.kubelet.load import LoadMeter, load_of
from dragoman.node.driver import Driver
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.tasks import KeyQueue, Tasks, work
from dragoman.snapshot.change import Change, Gone

CONFIG_MAP = kind_of("ConfigMap")
WORKERS = 8
ADVANCE_STEP_S = 5.0
"""The clock is moved in such steps, so that heartbeats keep pace and no node looks silent."""
ADVANCE_REST_S = 0.005


class FaultConfigMap(Value, frozen=True):
    """A ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class _Injected(msgspec.Struct, frozen=True):
    """A fault that lasts: from which object, with which data."""

    uid: str
    data: dict[str, str]
    fault: Fault


class Simulation:
    """Faults and clock of one embedded cluster."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        nodes: Mapping[str, SimulatedNode],
        added: AddedNodes | None = None,
        meter: LoadMeter | None = None,
    ) -> None:
        self.added = added
        self.meter = meter
        self._came: dict[NamespacedName, str] = {}
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.nodes = nodes
        self._queue: KeyQueue[NamespacedName] = KeyQueue("faults", clock)
        self._injected: dict[NamespacedName, _Injected] = {}
        self._faults = {fault.kind.name: (entry, fault) for entry, fault in driver_faults()}
        self._reported: dict[NamespacedName, tuple[str, dict[str, str]]] = {}
        self._informer = Informer(client, CONFIG_MAP, clock, entropy, label_selector=LABEL, type_=FaultConfigMap)
        self._log = get("simulation")

    async def run(self) -> None:
        """Follow the objects for ever."""
        leave = self._informer.subscribe(self._receive)
        try:
            async with Tasks("simulation", self.clock, self.entropy) as tasks:
                tasks.supervise("watch", self._informer.run)
                for number in range(WORKERS):
                    tasks.supervise(f"worker {number}", lambda: work(self._queue, self._step, self._log))
        finally:
            leave()
            self._queue.close()

    def _receive(self, changes: Sequence[Change]) -> None:
        for change in changes:
            meta = change if isinstance(change, Gone) else change.object.metadata
            self._queue.add((meta.namespace, meta.name))

    async def _step(self, key: NamespacedName) -> None:
        config_map: FaultConfigMap | None = self._informer.objects.get(key)
        before = self._injected.get(key)
        if before and (config_map is None or (config_map.metadata.uid, config_map.data) != (before.uid, before.data)):
            await self._recover(before.fault)
            del self._injected[key]
            before = None
        if config_map is None:
            self._reported.pop(key, None)
            if self.meter is not None:
                self.meter.loads.pop(key, None)
            if self.added is not None and key in self._came:
                await self.added.remove(self._came.pop(key), self.client)
        elif before:
            await self._end_in_time(key, config_map, before.fault)
        elif self._reported.get(key) != (config_map.metadata.uid, config_map.data):
            await self._grant(key, config_map)

    async def _grant(self, key: NamespacedName, config_map: FaultConfigMap) -> None:
        label = config_map.metadata.labels.get(LABEL, "")
        if self.meter is not None:
            self.meter.loads.pop(key, None)
        try:
            if label == CLOCK:
                state, message = await self._turn_clock(config_map)
            elif label == FAULT:
                state, message = await self._break(key, config_map)
            elif label == NODE and self.added is not None:
                state, message = DONE, await self._add_node(key, config_map)
            elif label == LOAD and self.meter is not None:
                self.meter.loads[key] = load_of(config_map.metadata.namespace, config_map.data)
                state, message = ACTIVE, "shared by the running pods that the selector finds"
            else:
                raise Invalid(f"metadata.labels.{LABEL}", f"must be {FAULT}, {CLOCK}, {NODE} or {LOAD}, got {label!r}")
        except Invalid as error:
            state, message = INVALID, str(error)
        self._reported[key] = (config_map.metadata.uid, config_map.data)
        self._log.info("fault", object="/".join(key), state=state, message=message)
        try:
            change = {"metadata": {"uid": config_map.metadata.uid, "annotations": {STATE: state, MESSAGE: message}}}
            await self.client.patch(CONFIG_MAP, config_map.metadata.name, change, config_map.metadata.namespace)
        except DragomanError as error:
            self._log.info("state not reported", object="/".join(key), error=str(error))

    async def _add_node(self, key: NamespacedName, config_map: FaultConfigMap) -> str:
        assert self.added is not None
        name = config_map.data.get("node", "")
        if self._came.get(key, name) != name:
            raise Invalid("data.node", f"cannot change; node {self._came[key]} goes with this object")
        message = await self.added.add(config_map.data)
        self._came[key] = name
        return message

    # ---- faults

    async def _break(self, key: NamespacedName, config_map: FaultConfigMap) -> tuple[str, str]:
        fault = fault_of(config_map.data, fault_kinds())
        node = node_named(self.nodes, fault.node)
        if fault.once and config_map.metadata.annotations.get(STATE) == DONE:
            return DONE, config_map.metadata.annotations.get(MESSAGE, "")  # before this process began
        message = await self._inject(node, fault)
        if fault.once:
            return DONE, message
        self._injected[key] = made = _Injected(config_map.metadata.uid, config_map.data, fault)
        await self._end_in_time(key, config_map, made.fault)
        return ACTIVE, message

    async def _end_in_time(self, key: NamespacedName, config_map: FaultConfigMap, fault: Fault) -> None:
        if fault.for_s is None or config_map.metadata.creation_timestamp is None:
            return
        age_s = self.clock.now() - parse_time(config_map.metadata.creation_timestamp).timestamp()
        if age_s < fault.for_s:
            self._queue.add_after(key, fault.for_s - age_s)
            return
        with contextlib.suppress(NotFound):
            await self.client.delete(
                CONFIG_MAP, config_map.metadata.name, config_map.metadata.namespace, uid=config_map.metadata.uid
            )

    async def _inject(self, node: SimulatedNode, fault: Fault) -> str:
        match fault:
            case DriverStopped():
                drivers = node.drivers(fault.driver)
                for name in drivers:
                    await node.stop_driver(name)
                return f"stopped on {node.name}: {', '.join(drivers)}"
            case SlowPrepare():
                drivers = node.drivers(fault.driver)
                node.delays.update(dict.fromkeys(drivers, fault.delay_s))
                return f"prepare takes {fault.delay_s:g} s longer on {node.name}: {', '.join(drivers)}"
            case NodeRebooted():
                await node.reboot(fault.downtime_s, lambda driver: self._is_stopped(node.name, driver))
                await self._inject_again(node, lambda other: other.again_after_boot)
                return f"{node.name} rebooted: {node.site.boot_id}"
        entry, offered = self._faults[fault.kind]
        return offered.inject(_driver(node, entry), node.agent, fault)

    async def _inject_again(self, node: SimulatedNode, lasts: Callable[[Fault], bool]) -> None:
        """What is broken for good stays so when a fresh process looks."""
        for other in list(self._injected.values()):
            if other.fault.node == node.name and lasts(other.fault):
                await self._inject(node, other.fault)

    def _is_stopped(self, node: str, driver: str) -> bool:
        stops = (f.fault for f in self._injected.values() if isinstance(f.fault, DriverStopped))
        return any(fault.node == node and fault.driver in ("", driver) for fault in stops)

    async def _recover(self, fault: Fault) -> None:
        node = self.nodes.get(fault.node)
        if node is None:
            return
        match fault:
            case DriverStopped():
                for name in node.drivers(fault.driver):
                    await node.start_driver(name)
                await self._inject_again(node, lambda other: other.again_after_restart)
            case SlowPrepare():
                for name in node.drivers(fault.driver):
                    node.delays.pop(name, None)
            case NodeRebooted():
                pass
            case _:
                entry, offered = self._faults[fault.kind]
                offered.recover(_driver(node, entry), fault)

    # ---- clock

    async def _turn_clock(self, config_map: FaultConfigMap) -> tuple[str, str]:
        asked = clock_request_of(config_map.data)
        if config_map.metadata.annotations.get(STATE) == DONE:
            return DONE, config_map.metadata.annotations.get(MESSAGE, "")
        if isinstance(asked, Advance):
            await self.advance(asked.seconds)
        else:
            self.clock.set_speed(asked.factor)
        return DONE, f"it is {format_time(self.clock.utc())}, speed {self.clock.speed:g}"

    async def advance(self, seconds: float) -> None:
        """Move the cluster's clock on, in steps."""
        while seconds > 0:
            step_s = min(seconds, ADVANCE_STEP_S)
            self.clock.advance(step_s)
            seconds -= step_s
            await self.clock.sleep(ADVANCE_REST_S * self.clock.speed)
            await asyncio.sleep(0)


def _driver(node: SimulatedNode, entry: DriverEntry) -> Driver:
    """The node's driver whose hardware breaks. Raises Invalid."""
    plugin = node.plugins.get(entry.name)
    if plugin is None:
        raise Invalid("data.fault", f"node {node.name} has no devices of {entry.name}")
    return plugin.driver
