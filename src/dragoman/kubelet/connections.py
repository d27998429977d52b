"""How does the kubelet call a driver? One connection for each registered instance: gRPC, or a direct call.

Both transports behave the same, so one suite runs over both. Never decides when to call (`claims`, `plugins`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import grpc
from grpc import aio

from dragoman.errors import Retry
from dragoman.node import rpc
from dragoman.node.driver import ClaimRef, DeviceHealth, PreparedDevice
from dragoman.node.plugin import Plugin
from dragoman.node.rpc import Service

CALL_TIMEOUT_S = 45.0
"""KEP-3063: the kubelet gives a driver so long for one prepare or unprepare."""

Prepared: TypeAlias = dict[str, tuple[PreparedDevice, ...] | str]
Unprepared: TypeAlias = dict[str, str]

# (driver, method, status code) of every finished call, with its seconds.
ObserveCall: TypeAlias = Callable[[str, str, str, float], None]


class Connection(Protocol):
    """One instance of a driver. Calls raise Retry when the driver does not answer."""

    driver: str
    endpoint: str

    @property
    def connected(self) -> bool:
        """Whether it would answer now."""
        ...

    @property
    def offers_health(self) -> bool:
        """Whether it has a health stream."""
        ...

    async def prepare(self, claims: Sequence[ClaimRef]) -> Prepared:
        """NodePrepareResources: by uid devices, or the error's text."""
        ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Unprepared:
        """NodeUnprepareResources: by uid the error's text, empty for success."""
        ...

    def health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """NodeWatchResources; ends or raises Retry when the driver offers none or goes away."""
        ...

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `connected` changes, for ever."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


class GrpcConnection:
    """A driver's DRA socket."""

    def __init__(
        self,
        driver: str,
        endpoint: str,
        service: Service,
        health: Service | None,
        now: Callable[[], float],
        observe: ObserveCall,
    ) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self._service = service
        self._health = health
        self._now = now
        self._observe = observe
        self._channel = rpc.dial(Path(endpoint))
        self._connected = False

    @property
    def connected(self) -> bool:
        """Whether the channel is ready."""
        return self._connected

    @property
    def offers_health(self) -> bool:
        """Whether the plugin listed a health service that we know."""
        return self._health is not None

    async def watch(self, changed: Callable[[], None]) -> None:
        """Keep the channel connecting and tell of its changes."""
        while True:
            state = self._channel.get_state(try_to_connect=True)
            ready = state is grpc.ChannelConnectivity.READY
            if ready != self._connected:
                self._connected = ready
                changed()
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            await self._channel.wait_for_state_change(state)

    async def prepare(self, claims: Sequence[ClaimRef]) -> Prepared:
        """See Connection."""
        messages = self._service.messages
        request = messages.NodePrepareResourcesRequest(claims=[_wire(messages, claim) for claim in claims])
        answer = await self._call("NodePrepareResources", request)
        return {
            uid: entry.error or tuple(_device(device) for device in entry.devices)
            for uid, entry in answer.claims.items()
        }

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Unprepared:
        """See Connection."""
        messages = self._service.messages
        request = messages.NodeUnprepareResourcesRequest(claims=[_wire(messages, claim) for claim in claims])
        answer = await self._call("NodeUnprepareResources", request)
        return {uid: entry.error for uid, entry in answer.claims.items()}

    async def health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """See Connection."""
        service = self._health
        if service is None:
            return
        names = {value: name.capitalize() for name, value in service.messages.HealthStatus.items()}
        request = service.messages.NodeWatchResourcesRequest()
        try:
            async for answer in rpc.stream(self._channel, service, "NodeWatchResources", request):
                yield tuple(
                    DeviceHealth(
                        device.device.pool_name,
                        device.device.device_name,
                        names.get(device.health, "Unknown"),
                        device.message,
                        device.health_check_timeout_seconds,
                    )
                    for device in answer.devices
                )
        except aio.AioRpcError as error:
            raise Retry(f"health of driver {self.driver}: {_text(error)}") from None

    async def close(self) -> None:
        """See Connection."""
        await self._channel.close()

    async def _call(self, method: str, request: Any) -> Any:
        began = self._now()
        code = "OK"
        try:
            return await rpc.call(self._channel, self._service, method, request, timeout_s=CALL_TIMEOUT_S)
        except aio.AioRpcError as error:
            code = "".join(word.capitalize() for word in error.code().name.split("_"))
            raise Retry(f"{method}: {_text(error)}") from None
        finally:
            self._observe(self.driver, f"/{self._service.name}/{method}", code, self._now() - began)


class DirectConnection:
    """A plugin in the same process, without sockets: for simulation in virtual time."""

    def __init__(self, plugin: Plugin) -> None:
        self.driver = plugin.driver.name
        self.endpoint = str(plugin.dra_socket)
        self._plugin = plugin

    @property
    def connected(self) -> bool:
        """The plugin's own word for it."""
        return self._plugin.is_running

    @property
    def offers_health(self) -> bool:
        """Whether the driver reports health."""
        return self._plugin.health is not None

    async def watch(self, changed: Callable[[], None]) -> None:
        """Follow the plugin's starts and stops."""
        while True:
            turned = self._plugin.running_changed()
            changed()
            await turned

    async def prepare(self, claims: Sequence[ClaimRef]) -> Prepared:
        """See Connection."""
        self._reach()
        answers = await self._plugin.prepare_claims(claims)
        return {uid: answer if isinstance(answer, tuple) else str(answer) for uid, answer in answers.items()}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Unprepared:
        """See Connection."""
        self._reach()
        answers = await self._plugin.unprepare_claims(claims)
        return {uid: "" if error is None else str(error) for uid, error in answers.items()}

    async def health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """See Connection."""
        async for devices in self._plugin.health_lists():
            yield devices

    async def close(self) -> None:
        """Nothing to hang up."""

    def _reach(self) -> None:
        if not self._plugin.is_running:
            raise Retry(f"driver {self.driver} does not run")


def _wire(messages: Any, claim: ClaimRef) -> Any:
    return messages.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _device(wire: Any) -> PreparedDevice:
    share = wire.share_id if "share_id" in wire.DESCRIPTOR.fields_by_name and wire.HasField("share_id") else None
    requests = tuple(request.partition("/")[0] for request in wire.request_names)
    return PreparedDevice(requests, wire.pool_name, wire.device_name, tuple(wire.cdi_device_ids), share)


def _text(error: aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
