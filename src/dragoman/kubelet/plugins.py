"""Which drivers are there on this node? Registration sockets found, drivers registered, and missed when they go.

Watches the registry folder, speaks the registration protocol, keeps a connection to every instance and removes a
driver's ResourceSlices when it stays away (KEP-4381). It never prepares anything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from grpc import aio

from dragoman.errors import DragomanError, Invalid
from dragoman.kubelet.connections import Connection, GrpcConnection, ObserveCall
from dragoman.node import rpc
from dragoman.runtime.clock import Clock, Timer
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks

DIAL_TIMEOUT_S = 10.0
NOTIFY_TIMEOUT_S = 5.0
ABSENT_S = 30.0
"""A driver without a connected instance for so long loses its slices."""
BACKOFF = Backoff(initial_s=0.5, max_s=120.0, jitter=0.1)
WIPE_BACKOFF = Backoff(initial_s=1.0, max_s=300.0, jitter=0.2)
DEPTH_MAX = 4
FULL_SCAN_EVERY = 10

FileIdentity = tuple[int, int]


class RegisteredPlugin(msgspec.Struct):
    """A registered instance: where it registered, and how it is called."""

    socket: Path | None
    connection: Connection
    tasks: list[Any] = []


class _Seen(msgspec.Struct):
    """A registration socket: as found, and as registered."""

    found: FileIdentity
    registered: FileIdentity | None = None
    instance: RegisteredPlugin | None = None
    registering: bool = False
    failures: int = 0
    not_before: float = 0.0


class Plugins:
    """The drivers of one node.

    wipe(driver) deletes the driver's slices of this node; joined(instance) is called for every new one.
    """

    def __init__(
        self,
        node_name: str,
        registry_dir: Path,
        clock: Clock,
        entropy: Entropy,
        *,
        wipe: Callable[[str], Awaitable[None]],
        observe: ObserveCall,
    ) -> None:
        self.registry_dir = registry_dir
        self.clock = clock
        self.entropy = entropy
        self._wipe = wipe
        self._observe = observe
        self._seen: dict[Path, _Seen] = {}
        self._instances: dict[str, list[RegisteredPlugin]] = {}
        self._absent: dict[str, Timer] = {}
        self._tasks: Tasks | None = None
        self._folder_stamp = 0
        self._polls = 0
        self._log = get("kubelet", node=node_name)
        self.on_join: list[Callable[[RegisteredPlugin], None]] = []
        self.on_leave: list[Callable[[RegisteredPlugin], None]] = []

    # ---- who is there

    def connection(self, driver: str) -> Connection | None:
        """The instance to call: the newest that is connected, else the newest."""
        instances = self._instances.get(driver, [])
        for instance in reversed(instances):
            if instance.connection.connected:
                return instance.connection
        return instances[-1].connection if instances else None

    @property
    def drivers(self) -> list[str]:
        """Registered drivers."""
        return sorted(self._instances)

    def is_connected(self, driver: str) -> bool:
        """Whether some instance would answer now."""
        return any(instance.connection.connected for instance in self._instances.get(driver, []))

    # ---- life

    def start(self, tasks: Tasks) -> None:
        """Work as tasks of that group; call `poll` about every second from now on."""
        self.registry_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._tasks = tasks
        self.poll()

    def start_directly(self, tasks: Tasks) -> None:
        """Work as tasks of that group, without a registry folder."""
        self._tasks = tasks

    async def stop(self) -> None:
        """Hang up on everybody."""
        for timer in self._absent.values():
            timer.cancel()
        self._absent.clear()
        for instances in list(self._instances.values()):
            for instance in instances:
                await instance.connection.close()

    def join_directly(self, connection: Connection) -> RegisteredPlugin:
        """Register a driver without a socket (simulation in virtual time)."""
        instance = RegisteredPlugin(None, connection)
        self._join(instance)
        return instance

    def leave_directly(self, instance: RegisteredPlugin) -> None:
        """Deregister it."""
        self._leave(instance)

    def poll(self) -> None:
        """Look at the registry folder and start what follows from it; cheap when nothing changed."""
        assert self._tasks is not None
        self._polls += 1
        try:
            stamp = os.stat(self.registry_dir).st_mtime_ns  # noqa: PTH116 - a thousand nodes do this every second
        except FileNotFoundError:
            stamp = 0
        # Files in folders below do not change this folder's stamp, so now and then everything is looked at.
        if stamp != self._folder_stamp or self._polls % FULL_SCAN_EVERY == 0:
            self._folder_stamp = stamp
            self._scan()
        now = self.clock.monotonic()
        for path, seen in list(self._seen.items()):
            if not seen.registering and seen.registered != seen.found and now >= seen.not_before:
                seen.registering = True
                self._tasks.start(f"register {path.name}", self._register(path, seen))

    def _scan(self) -> None:
        found = dict(_sockets(self.registry_dir, DEPTH_MAX))
        for path in [path for path in self._seen if path not in found]:
            gone = self._seen.pop(path)
            if gone.instance:
                self._leave(gone.instance)
        for path, identity in found.items():
            known = self._seen.get(path)
            if known is None:
                self._seen[path] = _Seen(identity)
            elif known.found != identity:
                known.found = identity
                known.failures, known.not_before = 0, 0.0

    # ---- registration

    async def _register(self, path: Path, seen: _Seen) -> None:
        identity = seen.found
        try:
            if seen.instance:
                # The socket was recreated: a new instance, whatever it says.
                self._leave(seen.instance)
                seen.instance, seen.registered = None, None
            seen.instance = await self._greet(path)
            seen.registered = identity
            seen.failures = 0
            if self._seen.get(path) is not seen and seen.instance:
                self._leave(seen.instance)
        except (DragomanError, aio.AioRpcError, OSError) as error:
            seen.failures += 1
            wait_s = BACKOFF.wait_s(seen.failures, self.entropy)
            seen.not_before = self.clock.monotonic() + wait_s
            text = error.details() if isinstance(error, aio.AioRpcError) else str(error)
            self._log.info("registration failed", socket=str(path), error=text, wait_s=round(wait_s, 3))
        finally:
            seen.registering = False

    async def _greet(self, path: Path) -> RegisteredPlugin | None:
        messages = rpc.REGISTRATION.messages
        async with rpc.dial(path) as channel:
            request = messages.InfoRequest()
            info = await rpc.call(channel, rpc.REGISTRATION, "GetInfo", request, timeout_s=DIAL_TIMEOUT_S)
            instance, fault = None, ""
            try:
                instance = self._validated(path, info)
            except Invalid as error:
                fault = str(error)
            if instance:
                self._join(instance)
            status = messages.RegistrationStatus(plugin_registered=instance is not None, error=fault)
            try:
                await rpc.call(
                    channel, rpc.REGISTRATION, "NotifyRegistrationStatus", status, timeout_s=NOTIFY_TIMEOUT_S
                )
            except aio.AioRpcError:
                if instance:
                    self._leave(instance)
                raise
            if fault:
                raise Invalid(str(path), fault)
            return instance

    def _validated(self, path: Path, info: Any) -> RegisteredPlugin:
        prefix = "RegisterPlugin error -- plugin validation failed with err"
        endpoint = info.endpoint or str(path)
        if info.type != "DRAPlugin":
            raise Invalid(
                "", f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}"
            )
        about = f"invalid supported gRPC versions of DRA driver plugin {info.name} at endpoint {endpoint}"
        offered = list(info.supported_versions)
        if not offered:
            raise Invalid("", f"{prefix}: {about}: empty list of supported gRPC services (aka supported versions)")
        service = next((rpc.DRA_BY_LABEL[label] for label in offered if label in rpc.DRA_BY_LABEL), None)
        if service is None:
            known = " ".join(f'"{label}"' for label in rpc.DRA_BY_LABEL)
            listed = " ".join(f'"{label}"' for label in offered)
            raise Invalid(
                "",
                f"{prefix}: {about}: none of services supported by the plugin ([{listed}]) "
                f"are supported by the kubelet ([{known}])",
            )
        if any(instance.connection.endpoint == endpoint for instance in self._instances.get(info.name, [])):
            raise Invalid(
                "",
                "RegisterPlugin error -- plugin registration failed with err: "
                f"endpoint {endpoint} already registered for DRA driver plugin {info.name}",
            )
        health = next((rpc.HEALTH_BY_LABEL[label] for label in offered if label in rpc.HEALTH_BY_LABEL), None)
        rpc.checked_socket(Path(endpoint))
        connection = GrpcConnection(info.name, endpoint, service, health, self.clock.monotonic, self._observe)
        return RegisteredPlugin(path, connection)

    def _join(self, instance: RegisteredPlugin) -> None:
        assert self._tasks is not None
        driver = instance.connection.driver
        self._instances.setdefault(driver, []).append(instance)
        watch = self._tasks.start(f"connection of {driver}", instance.connection.watch(lambda: self._changed(driver)))
        instance.tasks = [watch]
        self._log.info("driver registered", driver=driver, endpoint=instance.connection.endpoint)
        self._changed(driver)
        for joined in self.on_join:
            joined(instance)

    def _leave(self, instance: RegisteredPlugin) -> None:
        assert self._tasks is not None
        driver = instance.connection.driver
        if instance not in self._instances.get(driver, []):
            return
        self._instances[driver].remove(instance)
        if not self._instances[driver]:
            del self._instances[driver]
        for task in instance.tasks:
            task.cancel()
        for left in self.on_leave:
            left(instance)
        self._tasks.start(f"hang up on {driver}", instance.connection.close())
        self._log.info("driver deregistered", driver=driver, endpoint=instance.connection.endpoint)
        self._changed(driver)

    # ---- absence

    def _changed(self, driver: str) -> None:
        if self.is_connected(driver):
            if timer := self._absent.pop(driver, None):
                timer.cancel()
            return
        if driver not in self._absent:
            self._absent[driver] = self.clock.call_later(ABSENT_S, lambda: self._gone(driver))

    def _gone(self, driver: str) -> None:
        self._absent.pop(driver, None)
        if self._tasks and not self.is_connected(driver):
            self._tasks.start(f"remove slices of {driver}", self._wipe_until_done(driver))

    async def _wipe_until_done(self, driver: str) -> None:
        failures = 0
        while not self.is_connected(driver):
            try:
                await self._wipe(driver)
                self._log.info("removed the slices of an absent driver", driver=driver)
                return
            except DragomanError as error:
                failures += 1
                self._log.info("slices not removed yet", driver=driver, error=str(error))
                await self.clock.sleep(WIPE_BACKOFF.wait_s(failures, self.entropy))


def _sockets(folder: Path, depth: int) -> list[tuple[Path, FileIdentity]]:
    found: list[tuple[Path, FileIdentity]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISSOCK(status.st_mode):
                    found.append((Path(entry.path), (status.st_ino, status.st_ctime_ns)))
                elif stat.S_ISDIR(status.st_mode) and depth > 1:
                    found += _sockets(Path(entry.path), depth - 1)
    except FileNotFoundError:
        return []
    return found
