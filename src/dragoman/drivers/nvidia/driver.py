"""How are GPUs published, prepared and given back? The one class of `gpu.nvidia.com` on the SDK.

Hardware is reached through the `Hardware` protocol alone, so that simulated machines run the same code as real ones.
Sockets, checkpoints, CDI files and slices are the SDK's. Preparing is written down step by step, undoing reads that.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from dragoman.api.meta import format_time
from dragoman.api.resource import DeviceTaint
from dragoman.drivers.nvidia import devices, edits
from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.nvidia.config import (
    INTERVALS,
    MPS,
    TIME_SLICING,
    Config,
    ConfigGroup,
    GpuConfig,
    MigDeviceConfig,
    MpsConfig,
    Result,
    VfioDeviceConfig,
    resolved,
)
from dragoman.drivers.nvidia.device_plugin.other_path import PluginHolds, served_by_plugin
from dragoman.drivers.nvidia.devices import GpuInventory, Known, Shares
from dragoman.drivers.nvidia.gates import DEFAULTS, DriverGates
from dragoman.drivers.nvidia.hardware import Gpu, GpuInstance, GpuUnreachable, Hardware, HardwareEvent
from dragoman.drivers.nvidia.health import HealthOptions, HealthRecord
from dragoman.drivers.nvidia.images import MPS_IMAGE, MPS_NAMESPACE
from dragoman.drivers.nvidia.metrics import Measures
from dragoman.drivers.nvidia.mps import Daemons, daemon_for
from dragoman.drivers.nvidia.state import Done, MigPartition, UsedDevice, decoded
from dragoman.errors import Invalid, Retry
from dragoman.node.cdi import NO_EDITS, Edits, merged
from dragoman.node.driver import ClaimToPrepare, DeviceHealth, DeviceSetup, Pool, PreparedClaim, Setup
from dragoman.profiles.mig import PlacedInstance, best_order
from dragoman.runtime.clock import Clock, Timer
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics

T = TypeVar("T")

PLUGIN_LOOK_S = 10.0
"""How often it is looked whether a device plugin gives GPUs of this node to containers."""
PLUGIN_TAINT = f"{GPU}/device-plugin"
"""On devices that a container has from a device plugin, or that one offers: nobody gets them by a claim."""

BEAT_S = 10.0
"""Health is repeated so often, well within its timeout."""


class DriverOptions(msgspec.Struct, frozen=True):
    """How the driver behaves. driver_root: where the driver's files are on the host."""

    gates: DriverGates = DEFAULTS
    shares: Shares = Shares()
    health: HealthOptions = HealthOptions()
    driver_root: str = "/"
    mps_image: str = MPS_IMAGE
    mps_namespace: str = MPS_NAMESPACE


OPTIONS = DriverOptions()
"""As upstream's driver comes."""


class NvidiaDriver:
    """The GPUs of one node, in a pool named like the node.

    daemons: how MPS control daemons are run; None refuses MPS. kubelet_dir: of the kubelet that knows what a device
    plugin has given away. Use `made`, which adds health when its gate is on.
    """

    name = GPU

    def __init__(
        self,
        node_name: str,
        hardware: Hardware,
        clock: Clock,
        options: DriverOptions = OPTIONS,
        *,
        daemons: Daemons | None = None,
        metrics: Metrics | None = None,
        kubelet_dir: Path | None = None,
    ) -> None:
        if options.gates.on("PassthroughSupport") and not hardware.has_iommu():
            raise Invalid("PassthroughSupport", f"needs an IOMMU, and {node_name} has none switched on")
        self.node_name = node_name
        self.hardware = hardware
        self.clock = clock
        self.options = options
        self.gates = options.gates
        self.daemons = daemons
        self.record = HealthRecord(options.health, clock)
        self.claims: dict[str, Done] = {}
        """What is prepared, by claim uid."""
        self._inventory: GpuInventory | None = None
        self._plugin_holds = PluginHolds(kubelet_dir, clock) if kubelet_dir is not None else None
        self._with_plugin: frozenset[str] = frozenset()
        self._since: dict[str, str] = {}
        self._plugin_look: Timer | None = None
        self._republish: Callable[[], None] = lambda: None
        self._measures = Measures(metrics or Metrics(), clock, GPU, node_name)
        self._log = get("nvidia", node=node_name)
        self._reported_empty: tuple[str, ...] = ()

    def connect(self, republish: Callable[[], None]) -> None:
        """Called by the plugin."""
        self._republish = republish

    async def _do(self, work: Callable[..., T], *arguments: object) -> T:
        """A call of the hardware, in a thread if it may take long."""
        return await asyncio.to_thread(work, *arguments) if self.hardware.blocks else work(*arguments)

    # ---- publishing

    async def pools(self) -> Mapping[str, Pool]:
        """One pool, of what the hardware has now."""
        await self._look_for_plugin()
        inventory = await self._take()
        if inventory.empty_mig != self._reported_empty:
            self._reported_empty = inventory.empty_mig
            for gpu in inventory.empty_mig:
                self._log.warning("in MIG mode without MIG devices: nothing is published for it", gpu=gpu)
        return {self.node_name: inventory.pool}

    async def _take(self) -> GpuInventory:
        def take() -> GpuInventory:
            self.hardware.open()
            hidden = self._siblings()
            return devices.take(
                self.hardware,
                self.gates,
                self.options.shares,
                hidden=hidden,
                before=self._inventory,
                taints=self._taints,
            )

        self._inventory = await self._do(take)
        return self._inventory

    def _taints(self, known: Iterable[Known]) -> Mapping[str, Sequence[DeviceTaint]]:
        found = self.record.taints(known)
        for device in known:
            if uuid := self.plugin_has(device):
                taint = DeviceTaint(PLUGIN_TAINT, "", "NoSchedule", self._held_since(uuid))
                found[device.name] = (*found.get(device.name, ()), taint)
        return found

    # ---- beside a device plugin

    async def _look_for_plugin(self) -> None:
        """Learn what a device plugin has given away or offers, now and again after a while."""
        if self._plugin_holds is None:
            return
        held = await self._held_by_plugin()
        if held != self._with_plugin:
            names = ", ".join(sorted(held)) or "none"
            self._log.warning("GPUs that a device plugin offers or has given to containers", gpus=names)
        self._with_plugin = held
        if self._plugin_look is not None:
            self._plugin_look.cancel()
        self._look_later()

    def _look_later(self) -> None:
        again = weakref.WeakMethod(self._look_again)  # a driver that was stopped looks no more

        def look() -> None:
            if (method := again()) is not None:
                method()

        self._plugin_look = self.clock.call_later(PLUGIN_LOOK_S, look)

    def _look_again(self) -> None:
        assert self._plugin_holds is not None
        if self._with_plugin or self._plugin_holds.may_hold:
            self._republish()
        else:
            self._look_later()

    async def _held_by_plugin(self) -> frozenset[str]:
        if self._plugin_holds is None:
            return frozenset()
        return await self._plugin_holds.held() | await served_by_plugin(self._plugin_holds.root)

    def plugin_has(self, device: Known) -> str:
        """The UUID by which a device plugin offers a device, or has given it or a part of it away; "" if none does."""
        if not self._with_plugin:
            return ""
        gpu = device.gpu or next((g for g in self.hardware.gpus() if g.pci_bus_id == _bus_id(device)), None)
        if gpu is None:
            return ""
        if gpu.uuid in self._with_plugin:
            return gpu.uuid
        if device.instance is not None:
            return device.instance.uuid if device.instance.uuid in self._with_plugin else ""
        # The whole GPU, or an instance yet to be made: none while a part of the GPU is in use.
        try:
            parts = self.hardware.instances(gpu.uuid) if gpu.mig_enabled else ()
        except Retry:
            return ""  # it is lost, and tainted for that
        return next((part.uuid for part in parts if part.uuid in self._with_plugin), "")

    def _held_since(self, uuid: str) -> str:
        if uuid not in self._since:
            self._since[uuid] = format_time(self.clock.utc())
        return self._since[uuid]

    async def refuse_with_plugin(self, names: Iterable[str]) -> None:
        """Raises Retry for devices that a container has from a device plugin."""
        if self._plugin_holds is None:
            return
        self._with_plugin |= await self._held_by_plugin()
        known = await self._known()
        for name in names:
            if name in known and (uuid := self.plugin_has(known[name])):
                raise Retry(f"device {name}: {uuid} is in use by a container that has it from a device plugin")

    def _siblings(self) -> frozenset[str]:
        """With passthrough every GPU appears twice; who prepares one form takes the other away."""
        if not self.gates.on("PassthroughSupport") or self._inventory is None:
            return frozenset()
        used = {(device.bus_id, device.kind) for done in self.claims.values() for device in done.devices}
        hidden = set()
        for known in self._inventory.devices.values():
            bus_id = _bus_id(known)
            others = ("gpu", "mig") if known.kind == "vfio" else ("vfio",)
            if any((bus_id, other) in used for other in others):
                hidden.add(known.name)
        return frozenset(hidden)

    async def _known(self) -> Mapping[str, Known]:
        return (self._inventory or await self._take()).devices

    # ---- restoring

    async def restore(self, claims: Sequence[PreparedClaim]) -> None:
        """Know what is prepared, and remove MIG instances that no claim has."""
        await self._do(self.hardware.open)
        self.claims = {claim.ref.uid: decoded(claim.state) for claim in claims if claim.complete}
        if self.gates.on("DynamicMIG"):
            wanted = {made.uuid for claim in claims for made in decoded(claim.state).partitions}
            await self._do(self._remove_orphans, wanted)
        self._count_prepared()

    def _remove_orphans(self, wanted: set[str]) -> None:
        for gpu in self.hardware.gpus():
            try:
                if not gpu.mig_enabled:
                    continue
                for instance in self.hardware.instances(gpu.uuid):
                    if instance.uuid not in wanted:
                        self._log.info("removes a MIG device that no claim has", gpu=gpu.uuid, mig=instance.uuid)
                        self.hardware.destroy_instance(gpu.uuid, instance.gi)
                self._leave_mig_mode(gpu)
            except Retry as error:
                self._log.warning("a MIG device without a claim stays for now", gpu=gpu.uuid, error=str(error))

    def _leave_mig_mode(self, gpu: Gpu) -> None:
        if gpu.toggles_mig and not self.hardware.instances(gpu.uuid):
            self.hardware.set_mig_mode(gpu.uuid, False)

    def follow(self, claims: Sequence[PreparedClaim]) -> None:
        """What another instance prepared or gave back counts here too: GPUs that it shares stay as it set them."""
        self.claims = {claim.ref.uid: decoded(claim.state) for claim in claims if claim.complete}
        self._count_prepared()

    # ---- preparing

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        """Make the claim's devices as its configuration wants them."""
        with self._measures.operation("prepare"):
            setup = await _Preparation(self, claim).run()
        self._count_prepared()
        if self.gates.on("PassthroughSupport"):
            self._republish()
        return setup

    async def unprepare(self, claim: PreparedClaim) -> None:
        """Give everything back, also what was made only half."""
        with self._measures.operation("unprepare"):
            await self._undo(claim.ref.uid, decoded(claim.state))
        self._count_prepared()
        if self.gates.on("PassthroughSupport"):
            self._republish()

    async def _undo(self, uid: str, done: Done) -> None:
        for bus_id in done.bound:
            await self._do(self.hardware.bind, bus_id, "nvidia")
        for made in reversed(done.partitions):
            await self._tolerantly(self._destroy, made)
        for daemon in done.daemons:
            if self.daemons is not None:
                await self.daemons.stop(daemon)
        others = [other for key, other in self.claims.items() if key != uid]
        for gpu in done.exclusive:
            if not any(gpu in other.exclusive for other in others):
                await self._tolerantly(self.hardware.set_exclusive, gpu, False)
        for gpu in done.time_sliced:
            if not any(gpu in other.time_sliced for other in others):
                await self._tolerantly(self.hardware.set_time_slice, gpu, 0)
        if done.fabric_partition:
            await self._do(self.hardware.deactivate_partition, done.fabric_partition)
        self.claims.pop(uid, None)

    async def _tolerantly(self, work: Callable[..., None], *arguments: object) -> None:
        """What is set on a GPU goes with it when it is lost."""
        try:
            await self._do(work, *arguments)
        except GpuUnreachable as error:
            self._log.warning("nothing to undo on a lost GPU", error=str(error))

    def _destroy(self, made: MigPartition) -> None:
        for instance in self.hardware.instances(made.gpu):
            same = (instance.shape.id, instance.start) == (made.profile, made.start)
            if instance.uuid == made.uuid or (not made.uuid and same and instance.uuid not in made.before):
                self.hardware.destroy_instance(made.gpu, instance.gi)
        gpu = next((gpu for gpu in self.hardware.gpus() if gpu.uuid == made.gpu), None)
        if gpu is not None and gpu.mig_enabled:
            self._leave_mig_mode(gpu)

    def _count_prepared(self) -> None:
        kinds = [device.kind for done in self.claims.values() for device in done.devices]
        self._measures.prepared({kind: kinds.count(kind) for kind in ("gpu", "mig", "vfio")})


class HealthReportingDriver(NvidiaDriver):
    """The driver with the gate NVMLDeviceHealthCheck: taints and health follow the hardware's events."""

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """The list at the start, after each event, and again within its timeout."""
        await self._take()
        yield self._health()
        waiting: asyncio.Task[HardwareEvent] | None = None
        try:
            while True:
                # The wait for an event is never cancelled by a beat: a blocking one would lose its event.
                waiting = waiting or asyncio.ensure_future(self.hardware.next_event())
                beat = asyncio.ensure_future(self.clock.sleep(BEAT_S))
                await asyncio.wait({waiting, beat}, return_when=asyncio.FIRST_COMPLETED)
                beat.cancel()
                if waiting.done():
                    event, waiting = waiting.result(), None
                    self._log.warning("hardware event", what=str(event))
                    if self.record.note(event):
                        self._republish()
                yield self._health()
        finally:
            if waiting is not None:
                waiting.cancel()

    def _health(self) -> list[DeviceHealth]:
        known = self._inventory.devices.values() if self._inventory else ()
        return self.record.health({self.node_name: known})


def made(
    node_name: str,
    hardware: Hardware,
    clock: Clock,
    options: DriverOptions = OPTIONS,
    *,
    daemons: Daemons | None = None,
    metrics: Metrics | None = None,
    kubelet_dir: Path | None = None,
) -> NvidiaDriver:
    """The driver for those gates. Raises Invalid when the machine cannot do what a gate wants."""
    kind = HealthReportingDriver if options.gates.on("NVMLDeviceHealthCheck") else NvidiaDriver
    return kind(node_name, hardware, clock, options, daemons=daemons, metrics=metrics, kubelet_dir=kubelet_dir)


def _bus_id(known: Known) -> str:
    if known.function is not None:
        return known.function.pci_bus_id
    return known.gpu.pci_bus_id if known.gpu is not None else ""


class _Preparation:
    """One call of prepare: each step first says what it is about to do, then does it."""

    def __init__(self, driver: NvidiaDriver, claim: ClaimToPrepare) -> None:
        self.driver = driver
        self.hardware = driver.hardware
        self.claim = claim
        self.done = Done()
        self.known: Mapping[str, Known] = {}
        self.instances: dict[str, GpuInstance] = {}
        self.extra: dict[str, list[Edits]] = {}

    def _remember(self, **changes: object) -> None:
        self.done = msgspec.structs.replace(self.done, **changes)
        self.claim.remember(msgspec.to_builtins(self.done))

    async def run(self) -> Setup:
        driver, claim = self.driver, self.claim
        self.known = await driver._known()
        for result in claim.results:
            if result.device not in self.known:
                raise Retry(f"device {result.pool}/{result.device} is not on node {driver.node_name} any more")
        await driver.refuse_with_plugin(result.device for result in claim.results if not result.admin_access)
        types = {result.device: self.known[result.device].kind for result in claim.results}
        groups = resolved(claim, types, driver.gates)
        configs = {r.device: _plain(group.config) for group in groups for r in group.results}
        self._refuse_conflicts(configs)
        self.done = Done(configs=configs)
        await self._activate_fabric()
        await self._make_partitions()
        for group in groups:
            await self._apply(group)
        self._remember(devices=tuple(self._used(result, group) for group in groups for result in group.results))
        setup = await driver._do(self._setup, groups)
        driver.claims[claim.ref.uid] = self.done
        return setup

    def _refuse_conflicts(self, configs: Mapping[str, object]) -> None:
        """Claims that share a device must want the same of it."""
        for result in self.claim.results:
            for uid, other in self.driver.claims.items():
                theirs = other.configs.get(result.device)
                watching = result.admin_access or any(d.watching for d in other.devices if d.name == result.device)
                if uid == self.claim.ref.uid or theirs is None or watching:
                    continue
                if theirs != configs[result.device]:
                    raise Retry(
                        f"device {result.pool}/{result.device}: conflicting configuration with the already prepared "
                        f"claim {uid}"
                    )

    async def _activate_fabric(self) -> None:
        if not self.driver.gates.on("FabricManagerPartitioning"):
            return
        modules = set()
        for result in self.claim.results:
            known = self.known[result.device]
            module = known.function.module_id if known.function else known.gpu.module_id if known.gpu else 0
            if not result.admin_access and module:
                modules.add(module)
        if not modules:
            return
        for partition in await self.driver._do(self.hardware.partitions):
            if set(partition.modules) == modules:
                self._remember(fabric_partition=partition.id)
                await self.driver._do(self.hardware.activate_partition, partition.id)
                return
        raise Invalid(
            f"claim {self.claim.ref}",
            f"its GPUs (module ids {', '.join(map(str, sorted(modules)))}) are not a Fabric Manager partition; "
            f"use matchAttribute {GPU}/partition{len(modules)}",
        )

    async def _make_partitions(self) -> None:
        wanted: dict[PlacedInstance, list[str]] = {}
        for result in self.claim.results:
            known = self.known[result.device]
            if known.placed is None:
                continue
            if result.admin_access:
                raise Invalid(f"claim {self.claim.ref}", f"{result.device} does not exist before it is prepared")
            wanted.setdefault(known.placed, []).append(result.device)
        for placed in best_order(list(wanted)):
            for device in wanted[placed]:
                gpu = self.known[device].gpu
                assert gpu is not None
                await self.driver._do(self._make_partition, gpu, placed, device)

    def _make_partition(self, gpu: Gpu, placed: PlacedInstance, device: str) -> None:
        now = next((other for other in self.hardware.gpus() if other.uuid == gpu.uuid), gpu)
        before = tuple(i.uuid for i in self.hardware.instances(gpu.uuid)) if now.mig_enabled else ()
        intent = MigPartition(gpu.uuid, placed.shape.id, placed.start, before)
        self._remember(partitions=(*self.done.partitions, intent))
        if not now.mig_enabled:
            self.hardware.set_mig_mode(gpu.uuid, True)
        instance = self.hardware.create_instance(gpu.uuid, placed.shape, placed.start)
        self.instances[device] = instance
        made = msgspec.structs.replace(intent, gi=instance.gi, uuid=instance.uuid)
        self._remember(partitions=(*self.done.partitions[:-1], made))

    # ---- configuration

    async def _apply(self, group: ConfigGroup) -> None:
        results = [result for result in group.results if not result.admin_access]
        if not results:
            return
        match group.config:
            case GpuConfig(sharing=sharing) if sharing is not None:
                if sharing.strategy == MPS:
                    await self._start_mps(group, results, sharing.mps_config or MpsConfig())
                elif sharing.strategy == TIME_SLICING:
                    interval = sharing.time_slicing_config.interval if sharing.time_slicing_config else None
                    await self._slice_time(results, INTERVALS[interval or "Default"])
            case MigDeviceConfig(sharing=sharing) if sharing is not None and sharing.strategy == MPS:
                await self._start_mps(group, results, sharing.mps_config or MpsConfig())
            case VfioDeviceConfig():
                for result in results:
                    function = self.known[result.device].function
                    assert function is not None
                    self._remember(bound=(*self.done.bound, function.pci_bus_id))
                    await self.driver._do(self.hardware.bind, function.pci_bus_id, "vfio-pci")

    def _gpus(self, results: Sequence[Result]) -> list[Gpu]:
        found = {gpu.uuid: gpu for result in results if (gpu := self.known[result.device].gpu) is not None}
        return list(found.values())

    async def _slice_time(self, results: Sequence[Result], level: int) -> None:
        gpus = self._gpus(results)
        self._remember(time_sliced=(*self.done.time_sliced, *(gpu.uuid for gpu in gpus)))
        for gpu in gpus:
            await self.driver._do(self.hardware.set_exclusive, gpu.uuid, False)
            await self.driver._do(self.hardware.set_time_slice, gpu.uuid, level)

    async def _start_mps(self, group: ConfigGroup, results: Sequence[Result], config: MpsConfig) -> None:
        daemons = self.driver.daemons
        if daemons is None:
            raise Invalid(group.where, "MPS is not possible here: the driver cannot run control daemons")
        gpus = self._gpus(results)
        for gpu in gpus:
            if config.multi_user and int(gpu.compute_capability.partition(".")[0]) < 7:
                raise Invalid(f"{group.where}.sharing.mpsConfig.multiUser", f"{gpu.name} is older than Volta")
        uuids = sorted({self.known[result.device].uuid for result in results})
        daemon = daemon_for(self.claim.ref.uid, uuids, config, group.where)
        self._remember(
            daemons=(*self.done.daemons, daemon.id), exclusive=(*self.done.exclusive, *(gpu.uuid for gpu in gpus))
        )
        for gpu in gpus:
            await self.driver._do(self.hardware.set_exclusive, gpu.uuid, True)
        await daemons.start(daemon)
        folders = daemons.folders(daemon.id)
        for result in results:
            self.extra.setdefault(result.device, []).append(edits.mps(folders.pipe, folders.shm))

    # ---- outcome

    def _used(self, result: Result, group: ConfigGroup) -> UsedDevice:
        known = self.known[result.device]
        instance = self.instances.get(result.device) or known.instance
        sharing = group.config.sharing if isinstance(group.config, GpuConfig | MigDeviceConfig) else None
        return UsedDevice(
            name=known.name,
            kind=known.kind,
            gpu=known.gpu.uuid if known.gpu else "",
            bus_id=_bus_id(known),
            gi=instance.gi if instance else None,
            uuid=instance.uuid if instance else known.uuid,
            sharing=sharing.strategy if sharing else "",
            watching=bool(result.admin_access),
        )

    def _setup(self, groups: Sequence[ConfigGroup]) -> Setup:
        root = self.driver.options.driver_root
        setups: dict[tuple[str, str], DeviceSetup] = {}
        common: Edits | None = None
        for group in groups:
            for result in group.results:
                known = self.known[result.device]
                own, shared = self._edits(known, group.config, root)
                common = shared or common
                parts = [own, *self.extra.get(result.device, ())]
                setups[result.pool, result.device] = DeviceSetup(result.pool, result.device, merged(parts))
        if common is None:
            files = self.hardware.driver_files()
            common = edits.common(files, self.hardware.versions().driver, root)
        return Setup(tuple(setups.values()), common)

    def _edits(self, known: Known, config: Config, root: str) -> tuple[Edits, Edits | None]:
        if known.function is not None and isinstance(config, VfioDeviceConfig):
            return edits.passthrough(known.function, config, self.hardware.has_iommufd())
        assert known.gpu is not None
        instance = self.instances.get(known.name) or known.instance
        if instance is not None:
            return edits.mig_device(self.hardware, known.gpu.minor, known.gpu.pci_bus_id, instance, root), None
        if known.kind == "gpu":
            return edits.full_gpu(self.hardware, known.gpu.minor, known.gpu.pci_bus_id, root), None
        return NO_EDITS, None


def _plain(config: Config) -> object:
    return {"kind": type(config).__name__, **msgspec.to_builtins(config)}
