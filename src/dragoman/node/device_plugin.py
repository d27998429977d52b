"""How does a device plugin serve a kubelet? Its values, and the life of one resource's server (API v1beta1).

Serves a socket beside the kubelet's, registers, and does so again whenever the kubelet has recreated its socket. What
devices there are and what a container gets of them is said by a `DeviceSource`. Works with any kubelet, ours or not.
Source: k8s.io/kubelet deviceplugin/v1beta1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc
import msgspec
from grpc import aio

from dragoman.errors import DragomanError, Retry
from dragoman.node import rpc
from dragoman.runtime.clock import Clock
from dragoman.runtime.log import get

FOLDER = "device-plugins"
"""Below the kubelet's folder: its socket, those of plugins, and its checkpoint."""
KUBELET_SOCKET = "kubelet.sock"
VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
ID_MAX = 63
"""Characters of a device's id."""
REGISTER_TIMEOUT_S = 10.0
LOOK_S, FIRST_LOOK_S = 1.0, 0.1
"""How often it is looked whether the kubelet's socket is another one."""


class PluginDevice(msgspec.Struct, frozen=True):
    """A device of a resource. numa: the NUMA nodes that it is close to; none: no preference."""

    id: str
    healthy: bool = True
    numa: tuple[int, ...] = ()


class HostMount(msgspec.Struct, frozen=True):
    """A mount from the host."""

    container_path: str
    host_path: str
    read_only: bool = False


class HostDevice(msgspec.Struct, frozen=True):
    """A device node of the host; permissions are a subset of rwm."""

    container_path: str
    host_path: str
    permissions: str = "rw"


class ContainerDevices(msgspec.Struct, frozen=True):
    """What a container gets of one resource (ContainerAllocateResponse)."""

    envs: dict[str, str] = {}
    mounts: tuple[HostMount, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    annotations: dict[str, str] = {}
    cdi_devices: tuple[str, ...] = ()


class DeviceSource(Protocol):
    """One resource's devices. preferred and allocate raise Retry with the text that the pod shows."""

    resource: str
    socket_name: str
    pre_start: bool
    """Whether PreStartContainer must be called."""

    def devices(self) -> Sequence[PluginDevice]:
        """All of them, as they are now."""
        ...

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        """Which of the available ids to take, those that must be among them included."""
        ...

    async def allocate(self, ids: Sequence[str]) -> ContainerDevices:
        """What a container gets that was given these."""
        ...

    async def start(self, ids: Sequence[str]) -> None:
        """A container with these is about to start."""
        ...


def on_wire(given: ContainerDevices) -> Any:
    """As the message ContainerAllocateResponse."""
    m = rpc.DEVICE_PLUGIN.messages
    return m.ContainerAllocateResponse(
        envs=given.envs,
        mounts=[
            m.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in given.mounts
        ],
        devices=[
            m.DeviceSpec(container_path=one.container_path, host_path=one.host_path, permissions=one.permissions)
            for one in given.devices
        ],
        annotations=given.annotations,
        cdi_devices=[m.CDIDevice(name=name) for name in given.cdi_devices],
    )


def from_wire(message: Any) -> ContainerDevices:
    """Of the message ContainerAllocateResponse."""
    return ContainerDevices(
        dict(message.envs),
        tuple(HostMount(mount.container_path, mount.host_path, mount.read_only) for mount in message.mounts),
        tuple(HostDevice(one.container_path, one.host_path, one.permissions) for one in message.devices),
        dict(message.annotations),
        tuple(one.name for one in message.cdi_devices),
    )


class DevicePluginServer:
    """The server of one resource. `run` it; call `changed` when devices came, went, fell ill or recovered."""

    def __init__(self, source: DeviceSource, root_dir: Path, clock: Clock, *, node_name: str = "") -> None:
        self.source = source
        self.folder = root_dir / FOLDER
        self.socket = self.folder / source.socket_name
        self.clock = clock
        self.registered = asyncio.Event()
        """Set while the kubelet knows this server."""
        self._changes: set[asyncio.Event] = set()
        self._log = get("device-plugin", node=node_name, resource=source.resource)

    async def run(self) -> None:
        """Serve and stay registered until cancelled. Raises Retry and Invalid when the socket cannot be served."""
        while True:
            await self._kubelet_there()
            server = await self._serve()
            try:
                known = _identity(self.folder / KUBELET_SOCKET)
                await self._register()
                self._log.info("registered", socket=str(self.socket))
                self.registered.set()
                # A kubelet that starts removes the sockets of plugins, and makes its own again.
                while _identity(self.folder / KUBELET_SOCKET) == known and self.socket.exists():
                    await self.clock.sleep(LOOK_S * max(1.0, self.clock.speed))
                self._log.info("the kubelet has started again: registering again")
            except Retry as error:
                self._log.info("not registered yet", error=str(error))
                await self.clock.sleep(LOOK_S)
            finally:
                self.registered.clear()
                await server.stop(0)
                self.socket.unlink(missing_ok=True)

    def changed(self) -> None:
        """Send the list again."""
        for event in self._changes:
            event.set()

    async def _kubelet_there(self) -> None:
        while _identity(self.folder / KUBELET_SOCKET) is None:
            await self.clock.sleep(FIRST_LOOK_S * max(1.0, self.clock.speed))

    async def _serve(self) -> aio.Server:
        served = {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list,
            "GetPreferredAllocation": self._preferred,
            "Allocate": self._allocate,
            "PreStartContainer": self._start,
        }
        return await rpc.serve(self.socket, [rpc.handlers(rpc.DEVICE_PLUGIN, served)])

    async def _register(self) -> None:
        messages = rpc.DEVICE_REGISTRATION.messages
        request = messages.RegisterRequest(
            version=VERSION,
            endpoint=self.socket.name,
            resource_name=self.source.resource,
            options=self._offered(messages),
        )
        async with rpc.dial(self.folder / KUBELET_SOCKET) as channel:
            try:
                await rpc.call(channel, rpc.DEVICE_REGISTRATION, "Register", request, timeout_s=REGISTER_TIMEOUT_S)
            except aio.AioRpcError as error:
                raise Retry(f"the kubelet refuses {self.source.resource}: {error.details()}") from None

    def _offered(self, messages: Any) -> Any:
        return messages.DevicePluginOptions(
            pre_start_required=self.source.pre_start, get_preferred_allocation_available=True
        )

    # ---- calls

    async def _options(self, request: Any, context: Any) -> Any:
        return self._offered(rpc.DEVICE_PLUGIN.messages)

    async def _list(self, request: Any, context: Any) -> AsyncIterator[Any]:
        event = asyncio.Event()
        self._changes.add(event)
        try:
            while True:
                event.clear()
                yield self._listed()
                await event.wait()
        finally:
            self._changes.discard(event)

    def _listed(self) -> Any:
        m = rpc.DEVICE_PLUGIN.messages
        listed = m.ListAndWatchResponse()
        for device in self.source.devices():
            one = listed.devices.add(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
            for number in device.numa:
                one.topology.nodes.add(ID=number)
        return listed

    async def _preferred(self, request: Any, context: Any) -> Any:
        answer = rpc.DEVICE_PLUGIN.messages.PreferredAllocationResponse()
        try:
            for one in request.container_requests:
                ids = self.source.preferred(
                    list(one.available_deviceIDs), list(one.must_include_deviceIDs), one.allocation_size
                )
                answer.container_responses.add(deviceIDs=ids)
        except DragomanError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return answer

    async def _allocate(self, request: Any, context: Any) -> Any:
        answer = rpc.DEVICE_PLUGIN.messages.AllocateResponse()
        try:
            for one in request.container_requests:
                answer.container_responses.append(on_wire(await self.source.allocate(list(one.devices_ids))))
        except DragomanError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return answer

    async def _start(self, request: Any, context: Any) -> Any:
        try:
            await self.source.start(list(request.devices_ids))
        except DragomanError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return rpc.DEVICE_PLUGIN.messages.PreStartContainerResponse()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns
