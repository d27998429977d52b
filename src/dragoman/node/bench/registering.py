"""Does the driver find its kubelet, and is it found? Registration, versions of the service, health, sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
from pathlib import Path
from typing import Any

import grpc

from dragoman.node import rpc
from dragoman.node.bench import line
from dragoman.node.bench.bed import Bed
from dragoman.node.bench.case import case
from dragoman.node.bench.line import CallFailed, RegisteredDriver
from dragoman.node.bench.report import Defect, NotApplicable
from dragoman.node.rpc import Service

PLUGIN_API = "kubelet plugin registration API"
DRA_API = "DRA plugin gRPC API"
HEALTH_API = "DRA health gRPC API, KEP-4680"
HEALTHS = 3


@case(
    "registration",
    "the driver registers",
    "a socket appears in plugins_registry and answers GetInfo with type DRAPlugin, the driver's name, the endpoint of "
    "a socket that serves every service listed",
    PLUGIN_API,
)
async def registration(bed: Bed) -> None:
    """What GetInfo promises is there."""
    instance = _instance(bed)
    bed.note(f"{instance.socket.name}: {instance.driver} at {instance.endpoint}, {', '.join(instance.versions)}")
    if not instance.endpoint.is_absolute() or not stat.S_ISSOCK(instance.endpoint.lstat().st_mode):
        raise Defect(f"endpoint {instance.endpoint} is not an absolute path of a socket")
    for service in instance.services:
        try:
            await instance.line(service).prepare()
            await instance.line(service).unprepare()
        except CallFailed as error:
            raise Defect(f"{service.label} is listed, but an empty call of it failed: {error}") from None


@case(
    "kubelet-restart",
    "the kubelet restarts while the driver runs",
    "the driver answers GetInfo and NotifyRegistrationStatus again, publishes again the slices that a starting kubelet "
    "deletes, and answers the repeated prepare as before",
    "kubelet DRA manager, KEP-4381",
)
async def kubelet_restart(bed: Bed) -> None:
    """A new kubelet knows of no preparation, and wipes the node's slices."""
    before = _instance(bed)
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    first = await bed.prepare(ref, device)
    await bed.wipe()
    again = await line.greet(before.socket)
    if again != before:
        raise Defect(f"the second GetInfo differs: {again} after {before}")
    await bed.register(again)
    await bed.published()
    bed.note("registered and published again")
    if await bed.prepare(ref, device) != first:
        raise Defect("the repeated prepare was answered differently")
    await bed.unprepare(ref)


@case(
    "registration-refused",
    "the kubelet refuses the registration, then takes it",
    "after NotifyRegistrationStatus with an error the driver either ends (its pod is restarted) or answers GetInfo "
    "again; it does not hang",
    PLUGIN_API,
    alone=True,
)
async def registration_refused(bed: Bed) -> None:
    """A driver that stays must be registrable afterwards."""
    process = await bed.spawn()
    instance = await bed.appeared(process, {})
    with contextlib.suppress(CallFailed):  # drivers may answer a refusal with an error
        await line.notify(instance.socket, "refused by the bench")

    async def settled() -> RegisteredDriver | str | None:
        if process.exit_code is not None:
            return f"ended with exit status {process.exit_code}"
        with contextlib.suppress(CallFailed):
            return await line.greet(instance.socket)
        return None

    found: RegisteredDriver | str = await bed.until(settled, "the driver neither ended nor answered GetInfo again")
    if isinstance(found, str):
        bed.note(found)
        return
    await bed.register(found)
    await bed.published()
    bed.note("stayed, and registered at the second attempt")


@case(
    "versions",
    "each version of the service gives the same answer",
    "a kubelet takes the first service listed that it knows; what was prepared over one version is prepared for the "
    "others, so that kubelet and driver can be updated in any order",
    DRA_API,
)
async def versions(bed: Bed) -> None:
    """Prepare over each, unprepare over the last."""
    instance = _instance(bed)
    if len(instance.services) < 2:
        raise NotApplicable(f"the driver offers {instance.services[0].label} only")
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    answers = {}
    for service in instance.services:
        answers[service.label] = [
            (d.requests, d.pool, d.device, d.cdi_ids)
            for d in await bed.prepare(ref, device, over=instance.line(service))
        ]
    first, *others = answers
    for label in others:
        if answers[label] != answers[first]:
            raise Defect(f"{label} answers {answers[label]}, {first} {answers[first]}")
    await bed.unprepare(ref, over=instance.line(instance.services[-1]))


@case(
    "health",
    "the health stream, broken and opened again",
    "each message lists published devices with a health; a stream that breaks can be opened again and starts with the "
    "whole list; two streams do not disturb each other. A driver without the service answers UNIMPLEMENTED and goes on",
    HEALTH_API,
)
async def health(bed: Bed) -> None:
    """Kubelets of 1.36 try the stream whether it is listed or not."""
    instance = _instance(bed)
    service = instance.health
    if service is None:
        await _absent(bed, instance)
        return
    published = {(name, d.name) for name, view in (await bed.published()).items() for d in view.devices}
    for attempt in range(HEALTHS):
        devices = await _first(bed, instance.endpoint, service)
        for device in devices:
            key = (device.device.pool_name, device.device.device_name)
            if key not in published:
                raise Defect(f"the stream names {'/'.join(key)}, which is not published")
        bed.note(f"stream {attempt + 1}: {len(devices)} devices, then broken by the bench")
    both = await asyncio.gather(*(_first(bed, instance.endpoint, service) for _ in range(2)))
    if len(both[0]) != len(both[1]):
        raise Defect(f"two streams at a time list {len(both[0])} and {len(both[1])} devices")
    await _still_serves(bed)


async def _absent(bed: Bed, instance: RegisteredDriver) -> None:
    try:
        await bed.clock.within(line.GREET_S, anext(line.health(instance.endpoint, rpc.HEALTH_V1ALPHA1)))
    except CallFailed as error:
        if error.code is not grpc.StatusCode.UNIMPLEMENTED:
            raise Defect(f"the service is not offered, but calling it gives {error}") from None
        bed.note("not offered; a call is answered UNIMPLEMENTED")
    except TimeoutError:
        raise Defect(f"the service is not offered, but a call of it hangs for {line.GREET_S:g} s") from None
    await _still_serves(bed)


async def _first(bed: Bed, endpoint: Path, service: Service) -> list[Any]:
    stream = line.health(endpoint, service)
    try:
        answer = await bed.clock.within(bed.settings.patience_s, anext(stream))
    except (CallFailed, StopAsyncIteration) as error:
        raise Defect(f"the health stream ended before its first message: {error}") from None
    except TimeoutError:
        raise Defect(f"no first message of the health stream within {bed.settings.patience_s:g} s") from None
    finally:
        await stream.aclose()
    return list(answer.devices)


async def _still_serves(bed: Bed) -> None:
    try:
        await bed.line().prepare()
    except CallFailed as error:
        raise Defect(f"after that the DRA service does not answer: {error}") from None


@case(
    "stale-sockets",
    "socket files of a killed instance are in the way",
    "a driver that is started again after kill -9 replaces the socket files that no process serves any more",
    "kubelet plugin directories, KEP-4381",
    alone=True,
)
async def stale_sockets(bed: Bed) -> None:
    """Leave real dead sockets where the driver listened."""
    await bed.start()
    instance = _instance(bed)
    await bed.kill()
    for path in (instance.socket, instance.endpoint):
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    bed.note(f"dead sockets at {instance.socket.name} and {instance.endpoint.name}")
    await bed.start()
    await _still_serves(bed)
    bed.note("started over them")


@case(
    "long-path",
    "the folder is too deep for a Unix socket",
    "a path of more than 107 bytes cannot be listened on: the driver says so and ends, or takes a shorter name; it "
    "does not look healthy without being reachable",
    "unix(7); kubelet plugin directories",
    alone=True,
)
async def long_path(bed: Bed) -> None:
    """The bed's own folder is too deep."""
    deep = bed.root / ("deep" * 25)
    bed.root, bed.registry, bed.cdi = deep, deep / "plugins_registry", deep / "cdi"
    for folder in (bed.registry, deep / "plugins", bed.cdi):
        folder.mkdir(parents=True)
    process = await bed.spawn()

    async def settled() -> str | None:
        if process.exit_code is not None:
            return f"ended with exit status {process.exit_code}{process.tail()}"
        for path in line.sockets(bed.registry):
            if len(str(path).encode()) <= rpc.SOCKET_PATH_MAX:
                with contextlib.suppress(CallFailed):
                    return f"serves at {(await line.greet(path)).socket.name}"
        if _complains(process.said()):
            return f"says so, and does not serve{process.tail()}"
        return None

    bed.note(await bed.until(settled, lambda: f"it neither ended nor complained{process.tail()}"))
    if process.exit_code == 0:
        raise Defect("it ended with exit status 0, as if all were well")


def _complains(text: str) -> bool:
    lowered = text.lower()
    return any(word in lowered for word in ("too long", "107", "108", "invalid argument", "shorter"))


def _instance(bed: Bed) -> RegisteredDriver:
    assert bed.instance is not None
    return bed.instance
