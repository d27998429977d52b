"""How does a kubelet talk to a driver? Finds registration sockets, registers, calls, and keeps every answer raw.

A second, much smaller kubelet than `dragoman.kubelet`, which never forgives: what the protocol does not allow is a
Defect. It stores nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import msgspec
from grpc import aio

from dragoman.node import rpc
from dragoman.node.bench.report import Defect
from dragoman.node.driver import ClaimRef, PreparedDevice
from dragoman.node.rpc import Service
from dragoman.values.names import driver_name

CALL_S = 45.0
"""A kubelet's patience with one call (KEP-3063)."""
GREET_S = 10.0

SocketIdentity = tuple[int, int]
Answers: TypeAlias = dict[str, tuple[PreparedDevice, ...] | str]


class CallFailed(Exception):
    """The whole call failed: the kubelet ignores whatever was done and repeats it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code


class RegisteredDriver(msgspec.Struct, frozen=True):
    """A registered instance: its registration socket, and what it said of itself."""

    socket: Path
    driver: str
    endpoint: Path
    versions: tuple[str, ...]

    @property
    def services(self) -> tuple[Service, ...]:
        """The DRA services offered that exist, in the driver's order."""
        return tuple(rpc.DRA_BY_LABEL[label] for label in self.versions if label in rpc.DRA_BY_LABEL)

    @property
    def health(self) -> Service | None:
        """The health service offered first, if any."""
        return next((rpc.HEALTH_BY_LABEL[label] for label in self.versions if label in rpc.HEALTH_BY_LABEL), None)

    def line(self, service: Service | None = None) -> Line:
        """A way to call it, over the service that a kubelet would choose unless one is given."""
        return Line(self.endpoint, service or self.services[0])


def sockets(folder: Path) -> dict[Path, SocketIdentity]:
    """The sockets below the registry folder, as a kubelet finds them: hidden names are passed over."""
    found: dict[Path, SocketIdentity] = {}
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(top) / name
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if not name.startswith(".") and stat.S_ISSOCK(status.st_mode):
                found[path] = (status.st_ino, status.st_ctime_ns)
    return found


async def greet(socket: Path) -> RegisteredDriver:
    """What the plugin says of itself. Raises CallFailed, Defect."""
    messages = rpc.REGISTRATION.messages
    info = await _call(socket, rpc.REGISTRATION, "GetInfo", messages.InfoRequest(), GREET_S)
    where = f"GetInfo at {socket.name}"
    if info.type != "DRAPlugin":
        raise Defect(f"{where}: type is {info.type!r}, not 'DRAPlugin'")
    if fault := driver_name(info.name):
        raise Defect(f"{where}: name {info.name!r} is not a valid driver name: {fault}")
    made = RegisteredDriver(socket, info.name, Path(info.endpoint or socket), tuple(info.supported_versions))
    if not made.services:
        known = ", ".join(rpc.DRA_BY_LABEL)
        raise Defect(f"{where}: supported_versions {list(made.versions)} has none of {known}")
    return made


async def notify(socket: Path, error: str = "") -> None:
    """Tell the plugin that it is registered, or why not. Raises CallFailed."""
    messages = rpc.REGISTRATION.messages
    status = messages.RegistrationStatus(plugin_registered=not error, error=error)
    await _call(socket, rpc.REGISTRATION, "NotifyRegistrationStatus", status, GREET_S)


class Line:
    """A driver's DRA socket, over one version of the service. A new connection for each call."""

    def __init__(self, endpoint: Path, service: Service) -> None:
        self.endpoint = endpoint
        self.service = service

    async def prepare(self, *claims: ClaimRef, timeout_s: float = CALL_S) -> Answers:
        """NodePrepareResources: by uid devices, or the error's text. Raises CallFailed; Defect for a wrong answer."""
        method = "NodePrepareResources"
        answer = await self._claims(method, claims, timeout_s)
        return {uid: entry.error or tuple(map(_device, entry.devices)) for uid, entry in answer.claims.items()}

    async def unprepare(self, *claims: ClaimRef, timeout_s: float = CALL_S) -> dict[str, str]:
        """NodeUnprepareResources: by uid the error's text, empty for success. Raises as prepare does."""
        answer = await self._claims("NodeUnprepareResources", claims, timeout_s)
        return {uid: entry.error for uid, entry in answer.claims.items()}

    async def _claims(self, method: str, claims: Sequence[ClaimRef], timeout_s: float) -> Any:
        messages = self.service.messages
        wire = [messages.Claim(namespace=c.namespace, name=c.name, uid=c.uid) for c in claims]
        request = getattr(messages, f"{method}Request")(claims=wire)
        answer = await _call(self.endpoint, self.service, method, request, timeout_s)
        asked = {claim.uid for claim in claims}
        if missing := asked - answer.claims.keys():
            raise Defect(
                f"{method} answered {len(answer.claims)} of {len(asked)} claims; missing: {', '.join(missing)}"
            )
        if extra := answer.claims.keys() - asked:
            raise Defect(f"{method} answered for claims that were not asked about: {', '.join(sorted(extra))}")
        return answer


async def health(endpoint: Path, service: Service) -> AsyncGenerator[Any, None]:
    """The answers of a health stream. Raises CallFailed."""
    async with rpc.dial(endpoint) as channel:
        try:
            request = service.messages.NodeWatchResourcesRequest()
            async for answer in rpc.stream(channel, service, "NodeWatchResources", request):
                yield answer
        except aio.AioRpcError as error:
            raise CallFailed(error.code(), error.details() or "") from None


async def _call(path: Path, service: Service, method: str, request: Any, timeout_s: float) -> Any:
    async with rpc.dial(path) as channel:
        try:
            return await rpc.call(channel, service, method, request, timeout_s=timeout_s)
        except aio.AioRpcError as error:
            raise CallFailed(error.code(), error.details() or "") from None


def _device(wire: Any) -> PreparedDevice:
    has_share = "share_id" in wire.DESCRIPTOR.fields_by_name and wire.HasField("share_id")
    return PreparedDevice(
        tuple(wire.request_names),
        wire.pool_name,
        wire.device_name,
        tuple(wire.cdi_device_ids),
        wire.share_id if has_share else None,
    )
