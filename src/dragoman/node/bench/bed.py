"""Where does a driver lie while it is examined? A node of its own: folders, a Node object, processes, claims by hand.

Plays scheduler and kubelet for one case or several. It judges only what holds for every answer; the rest is the cases'.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.resource import Device, ResourceSlice
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.errors import Invalid, NotFound
from dragoman.node import cdi
from dragoman.node.bench import line
from dragoman.node.bench.line import CallFailed, Line, RegisteredDriver
from dragoman.node.bench.pools import PoolView, pools
from dragoman.node.bench.report import Defect, NotApplicable
from dragoman.node.driver import ClaimRef, PreparedDevice
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

T = TypeVar("T")

NODE, CLAIM, SLICE = kind_of("Node"), kind_of("ResourceClaim"), kind_of("ResourceSlice")
NAMESPACE = "default"
STEP_S = 0.02
TERM_S = 30.0
"""A pod's usual grace period, after which a kubelet kills."""
TAIL = 400


class DeviceChoice(msgspec.Struct, frozen=True):
    """A device to give to a claim."""

    pool: str
    device: Device

    def __str__(self) -> str:
        return f"{self.pool}/{self.device.name}"


class Process:
    """A driver's process; its output goes to a file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        """To the whole process group: a command may be a wrapper."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def said(self) -> str:
        """Everything that it printed."""
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        """The end of it, on one line."""
        text = " ".join(self.said().split())
        return f"; it printed: {text[-TAIL:]}" if text else "; it printed nothing"


class BenchSettings(msgspec.Struct, frozen=True):
    """command: words with placeholders, empty for a driver that somebody else runs. devices: patterns of names to use.

    node: the node's name, or what the names of several begin with. patience_s: the longest that anything may take.
    """

    folder: Path
    kubeconfig: Path
    command: tuple[str, ...] = ()
    node: str = "bench"
    patience_s: float = 60.0
    crash_points: int = 6
    devices: tuple[str, ...] = ("*",)

    def takes(self, placeholder: str) -> bool:
        """Whether the command has `{placeholder}`."""
        return any(f"{{{placeholder}}}" in word for word in self.command)


class Bed:
    """One node. `start` the driver, then use it; `close` at the end."""

    def __init__(
        self, settings: BenchSettings, client: Client, clock: Clock, entropy: Entropy, *, name: str, root: Path
    ) -> None:
        self.settings = settings
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.node = name
        self.root = root
        self.registry = root / "plugins_registry"
        self.cdi = root / "cdi"
        self.boot_id = entropy.uuid4()
        self.notes: list[str] = []
        self.instance: RegisteredDriver | None = None
        self.processes: list[Process] = []
        self.start_s = 0.0
        self._claims: dict[str, ClaimRef] = {}
        self._prepared: dict[str, ClaimRef] = {}
        self._made = 0

    # ---- the machine

    async def make(self) -> None:
        """Folders and the Node object."""
        for folder in (self.registry, self.root / "plugins", self.cdi):
            folder.mkdir(parents=True, exist_ok=True)
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        await self.client.create(NODE, body)

    async def close(self) -> None:
        """Kill what runs, remove the node's objects."""
        for process in self.processes:
            await self.kill(process)
        for ref in list(self._claims.values()):
            await self.delete(ref)
        await self.client.delete_collection(SLICE, field_selector=f"spec.nodeName={self.node}")
        with contextlib.suppress(NotFound):
            await self.client.delete(NODE, self.node)

    def note(self, text: str) -> None:
        """What was seen, for the report."""
        self.notes.append(text)

    def reboot(self) -> None:
        """The machine has another boot id, and what lies in memory is gone."""
        self.boot_id = self.entropy.uuid4()
        for path in self.cdi.iterdir():
            path.unlink()

    # ---- the driver's process

    async def start(self, pod_uid: str = "") -> RegisteredDriver:
        """Start the driver, register it, wait for its slices. Raises Defect."""
        began = self.clock.monotonic()
        known = line.sockets(self.registry)
        process = await self.spawn(pod_uid) if self.settings.command else None
        instance = await self.appeared(process, known)
        await self.register(instance)
        self.start_s = self.clock.monotonic() - began
        return instance

    async def register(self, instance: RegisteredDriver) -> None:
        """Tell it so, and use it from now on."""
        try:
            await line.notify(instance.socket)
        except CallFailed as error:
            raise Defect(f"NotifyRegistrationStatus(plugin_registered) failed: {error}") from None
        self.instance = instance

    async def spawn(self, pod_uid: str = "") -> Process:
        """Start the command. Raises Invalid if it cannot be run at all."""
        boot_file = self.root / "boot_id"
        boot_file.write_text(self.boot_id + "\n")
        values = {
            "kubeconfig": str(self.settings.kubeconfig),
            "node": self.node,
            "root": str(self.root),
            "cdi": str(self.cdi),
            "boot_id": self.boot_id,
            "boot_id_file": str(boot_file),
            "pod_uid": pod_uid,
        }
        words = [_filled(word, values) for word in self.settings.command]
        log = self.root / f"driver-{len(self.processes)}.log"
        with log.open("wb") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **_environment(values, self.root)},
                    start_new_session=True,
                )
            except OSError as error:
                raise Invalid(words[0], f"cannot be run: {error.strerror}") from None
        made = Process(process, log)
        self.processes.append(made)
        return made

    async def appeared(self, process: Process | None, known: Mapping[Path, line.SocketIdentity]) -> RegisteredDriver:
        """The instance whose registration socket is new and answers. Raises Defect."""

        async def found() -> RegisteredDriver | None:
            for path, identity in line.sockets(self.registry).items():
                if known.get(path) != identity:
                    with contextlib.suppress(CallFailed):
                        return await line.greet(path)
            if process and process.exit_code is not None:
                raise Defect(f"the driver ended with exit status {process.exit_code}{process.tail()}")
            return None

        tail = process.tail if process else lambda: ""
        return await self.until(found, lambda: f"no plugin answered at a socket in {self.registry}{tail()}")

    @property
    def process(self) -> Process:
        """The one started last."""
        if not self.processes:
            raise NotApplicable("needs to start and kill the driver: give a COMMAND")
        return self.processes[-1]

    async def kill(self, process: Process | None = None) -> None:
        """kill -9, and wait for its end."""
        process = process or self.process
        process.signal(signal.SIGKILL)
        await process.process.wait()

    async def terminate(self, process: Process | None = None) -> int:
        """SIGTERM; the exit status. Raises Defect if it does not end within a pod's grace period."""
        process = process or self.process
        process.signal(signal.SIGTERM)
        try:
            return await self.clock.within(TERM_S, process.process.wait())
        except TimeoutError:
            raise Defect(f"the driver did not end within {TERM_S:g} s of SIGTERM{process.tail()}") from None

    # ---- waiting

    async def until(self, holds: Callable[[], Awaitable[T | None]], otherwise: str | Callable[[], str]) -> T:
        """What `holds` answers once that is true. Raises Defect after the patience."""
        deadline = self.clock.monotonic() + self.settings.patience_s
        while True:
            answer = await holds()
            if answer:
                return answer
            if self.clock.monotonic() > deadline:
                reason = otherwise if isinstance(otherwise, str) else otherwise()
                raise Defect(f"within {self.settings.patience_s:g} s {reason}")
            await self.clock.sleep(STEP_S)

    # ---- slices

    @property
    def driver(self) -> str:
        """The driver's name."""
        assert self.instance is not None
        return self.instance.driver

    async def slices(self) -> list[ResourceSlice]:
        """The driver's slices for this node: bound to it, or owned by its Node object."""
        listed = await self.client.list(SLICE, field_selector=f"spec.driver={self.driver}")
        return [
            resource_slice for body in listed.items if self.is_ours(resource_slice := codec.decode(ResourceSlice, body))
        ]

    async def wipe(self) -> None:
        """Delete the driver's slices of this node, as a starting kubelet does."""
        await self.client.delete_collection(
            SLICE, field_selector=f"spec.nodeName={self.node},spec.driver={self.driver}"
        )

    def is_ours(self, resource_slice: ResourceSlice) -> bool:
        """Whether the slice is this node's."""
        owners = {(owner.kind, owner.name) for owner in resource_slice.metadata.owner_references}
        return resource_slice.spec.node_name == self.node or ("Node", self.node) in owners

    async def published(self) -> dict[str, PoolView]:
        """The pools once all are complete and there is a device. Raises Defect."""

        faults: list[str] = []

        async def complete() -> dict[str, PoolView] | None:
            found = pools(await self.slices())
            faults[:] = [fault for view in found.values() for fault in view.faults]
            whole = all(view.is_complete for view in found.values())
            return found if whole and any(view.devices for view in found.values()) else None

        missing = "the driver did not publish a complete pool with devices for its node"
        return await self.until(complete, lambda: "; ".join([missing, *faults]))

    async def usable(self) -> list[DeviceChoice]:
        """Devices that claims may be given, in the order of their publication."""
        return [
            DeviceChoice(name, device)
            for name, view in (await self.published()).items()
            for device in view.devices
            if any(fnmatchcase(device.name, pattern) for pattern in self.settings.devices)
            and not any(taint.effect in ("NoSchedule", "NoExecute") for taint in device.taints)
        ]

    async def pick(self, count: int) -> list[DeviceChoice]:
        """Devices that can be held at a time by different claims. Raises NotApplicable when there are fewer."""
        chosen: list[DeviceChoice] = []
        drawn: set[tuple[str, str]] = set()
        for one in await self.usable():
            sets = {(one.pool, consumed.counter_set) for consumed in one.device.consumes_counters}
            if not sets & drawn:
                drawn |= sets
                chosen.append(one)
            if len(chosen) == count:
                return chosen
        raise NotApplicable(f"needs {count} devices that can be held at a time; the driver publishes {len(chosen)}")

    # ---- claims

    async def claim(self, *devices: DeviceChoice, name: str = "", others: tuple[Object, ...] = ()) -> ClaimRef:
        """A claim with these devices allocated, a request for each, reserved for a pod; `others` are more results."""
        ref = await self.empty_claim(len(devices) + len(others), name)
        await self.allocate(ref, *devices, others=others)
        return ref

    async def empty_claim(self, requests: int = 1, name: str = "") -> ClaimRef:
        """A claim that nobody has allocated."""
        self._made += 1
        wanted = [{"name": f"r{i}", "exactly": {"deviceClassName": "bench"}} for i in range(requests)]
        body = {
            "apiVersion": CLAIM.api_version,
            "kind": CLAIM.kind,
            "metadata": {"name": name or f"{self.node}-claim-{self._made}"},
            "spec": {"devices": {"requests": wanted}},
        }
        made = (await self.client.create(CLAIM, body, NAMESPACE))["metadata"]
        ref = ClaimRef(NAMESPACE, made["name"], made["uid"])
        self._claims[ref.uid] = ref
        return ref

    async def allocate(self, ref: ClaimRef, *devices: DeviceChoice, others: tuple[Object, ...] = ()) -> None:
        """Allocate the devices to it, for a new pod."""
        results = [self._result(index, chosen) for index, chosen in enumerate(devices)]
        results += [{"request": f"r{len(devices) + i}", **other} for i, other in enumerate(others)]
        pod = self.entropy.uuid4()
        status = {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{pod[:8]}", "uid": pod}],
        }
        await self._status(ref, status)

    def _result(self, index: int, chosen: DeviceChoice) -> Object:
        made = {"request": f"r{index}", "driver": self.driver, "pool": chosen.pool, "device": chosen.device.name}
        if chosen.device.allow_multiple_allocations:
            made["shareID"] = self.entropy.uuid4()
        return made

    async def release(self, ref: ClaimRef) -> None:
        """The pod is gone: nobody's any more, and deallocated."""
        await self._status(ref, {"allocation": None, "reservedFor": None})

    async def _status(self, ref: ClaimRef, status: Object) -> None:
        await self.client.patch(CLAIM, ref.name, {"status": status}, ref.namespace, subresource="status")

    async def delete(self, ref: ClaimRef) -> None:
        """Remove the object, whatever is prepared."""
        self._claims.pop(ref.uid, None)
        with contextlib.suppress(NotFound):
            await self.client.delete(CLAIM, ref.name, ref.namespace, uid=ref.uid)

    # ---- the kubelet's calls

    def line(self) -> Line:
        """A way to call the driver."""
        assert self.instance is not None
        return self.instance.line()

    async def prepare(
        self, ref: ClaimRef, *devices: DeviceChoice, over: Line | None = None
    ) -> tuple[PreparedDevice, ...]:
        """Prepare what must succeed, and check the answer against what was allocated. Raises Defect."""
        self._prepared[ref.uid] = ref
        answer = await self._answer(ref, over)
        if isinstance(answer, str):
            raise Defect(f"NodePrepareResources of {ref.name} failed: {answer}")
        self.note(f"prepared {ref.name}: {', '.join(_shown(device) for device in answer) or 'no devices'}")
        self.check(ref, devices, answer)
        return answer

    async def refused(self, ref: ClaimRef, because: str) -> str:
        """Prepare what must fail; the driver's text. Raises Defect if it succeeds, or fails without a word."""
        self._prepared[ref.uid] = ref
        answer = await self._answer(ref, None)
        if not isinstance(answer, str):
            given = ", ".join(_shown(device) for device in answer) or "no devices"
            raise Defect(f"NodePrepareResources of {ref.name} succeeded ({given}) although {because}")
        self.note(f"refused {ref.name}: {answer}")
        del self._prepared[ref.uid]
        if left := self.resolving(ref):
            raise Defect(f"the refused claim {ref.name} left CDI devices behind: {', '.join(left)}")
        return answer

    async def _answer(self, ref: ClaimRef, over: Line | None) -> tuple[PreparedDevice, ...] | str:
        try:
            return (await (over or self.line()).prepare(ref))[ref.uid]
        except CallFailed as error:
            return f"the whole call failed with {error}"

    async def unprepare(self, ref: ClaimRef, over: Line | None = None) -> None:
        """Unprepare, which must succeed. Raises Defect."""
        try:
            fault = (await (over or self.line()).unprepare(ref))[ref.uid]
        except CallFailed as error:
            fault = f"the whole call failed with {error}"
        if fault:
            raise Defect(f"NodeUnprepareResources of {ref.name} failed: {fault}")
        self._prepared.pop(ref.uid, None)
        self.note(f"unprepared {ref.name}")
        if left := self.resolving(ref):
            raise Defect(f"the unprepared claim {ref.name} left CDI devices behind: {', '.join(left)}")

    async def tidy(self) -> None:
        """Give back what a case left. Raises Defect."""
        for ref in list(self._prepared.values()):
            await self.unprepare(ref)
        for ref in list(self._claims.values()):
            await self.delete(ref)

    # ---- what an answer must be

    def check(self, ref: ClaimRef, devices: tuple[DeviceChoice, ...], answer: tuple[PreparedDevice, ...]) -> None:
        """Raises Defect for devices that were not allocated, unknown requests, CDI ids that do not resolve."""
        given = {(chosen.pool, chosen.device.name): f"r{index}" for index, chosen in enumerate(devices)}
        known = self.devices_of_cdi()
        for device in answer:
            request = given.get((device.pool, device.device))
            if request is None:
                raise Defect(f"{ref.name} got {device.pool}/{device.device}, which was not allocated to it")
            if device.requests and request not in device.requests:
                raise Defect(f"{device.device} was allocated to {request}, the driver says {list(device.requests)}")
            for identity in device.cdi_ids:
                try:
                    cdi.split_name(identity)
                except Invalid as error:
                    raise Defect(str(error)) from None
                if identity not in known:
                    raise Defect(f"CDI device {identity} is in no file of {self.cdi}")

    def devices_of_cdi(self) -> dict[str, cdi.Edits]:
        """Every CDI device of the node's folder with its edits. Raises Defect for a file that is no spec."""
        found: dict[str, cdi.Edits] = {}
        for path in sorted(self.cdi.iterdir()):
            if path.suffix not in (".json", ".yaml") or path.name.startswith("."):
                continue
            try:
                spec = cdi.read(path)
            except Invalid as error:
                raise Defect(str(error)) from None
            for device in spec.devices:
                edits = cdi.merged([spec.container_edits, device.container_edits])
                found[cdi.qualified(spec.kind, device.name)] = edits
        return found

    def resolving(self, ref: ClaimRef) -> list[str]:
        """CDI devices that carry the claim's uid."""
        return [name for name in self.devices_of_cdi() if ref.uid in name]

    def checkpoints(self) -> list[Path]:
        """Files with content in the driver's folder, but sockets and locks: what it keeps over a restart."""
        folder = self.root / "plugins" / self.driver
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
        return [path for path in files if not path.name.endswith(".lock")]


def _shown(device: PreparedDevice) -> str:
    ids = f" ({', '.join(device.cdi_ids)})" if device.cdi_ids else ""
    return f"{device.pool}/{device.device}{ids}"


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _environment(values: Mapping[str, str], root: Path) -> dict[str, Any]:
    """What drivers read from the environment, by the names that published drivers use."""
    return {
        "KUBECONFIG": values["kubeconfig"],
        "NODE_NAME": values["node"],
        "CDI_ROOT": values["cdi"],
        "POD_UID": values["pod_uid"],
        "KUBELET_REGISTRAR_DIRECTORY_PATH": str(root / "plugins_registry"),
        "KUBELET_PLUGINS_DIRECTORY_PATH": str(root / "plugins"),
        "ALT_PROC_BOOT_ID_PATH": values["boot_id_file"],
    }
