"""What survives the end of the driver? Crashes between any two steps, reboots, damaged checkpoints, updates."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from dragoman.node.bench import line
from dragoman.node.bench.bed import Bed, DeviceChoice, Process
from dragoman.node.bench.case import case
from dragoman.node.bench.line import CallFailed, RegisteredDriver
from dragoman.node.bench.report import Defect, NotApplicable
from dragoman.node.bench.steps import FileSteps
from dragoman.node.driver import ClaimRef

MANAGER = "kubelet DRA manager, KEP-4381"
HELPER = "driver's part of the protocol, KEP-3063"
CALLS = (CallFailed, Defect)


@case(
    "sigterm",
    "the driver is stopped and started",
    "on SIGTERM the driver ends within a pod's grace period and removes its sockets; devices stay prepared, CDI files "
    "stay, and the slices are not deleted; started again it answers as before",
    MANAGER,
    alone=True,
)
async def sigterm(bed: Bed) -> None:
    """As for an update of the DaemonSet."""
    instance = await bed.start()
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    first = await bed.prepare(ref, device)
    names = {resource_slice.metadata.name for resource_slice in await bed.slices()}
    code = await bed.terminate()
    bed.note(f"ended with exit status {code}")
    left = [path.name for path in (instance.socket, instance.endpoint) if path.exists()]
    if left:
        raise Defect(f"sockets are left after SIGTERM: {', '.join(left)}")
    bed.check(ref, (device,), first)
    if missing := names - {resource_slice.metadata.name for resource_slice in await bed.slices()}:
        raise Defect(f"slices were deleted: {', '.join(sorted(missing))}")
    await bed.start()
    await bed.published()
    if (again := await bed.prepare(ref, device)) != first:
        raise Defect(f"after the restart prepare is answered {again} instead of {first}")
    await bed.unprepare(ref)


@case(
    "kill",
    "the driver is killed while claims are prepared",
    "after kill -9 and a new start the driver knows what is prepared: it repeats its answer, refuses the device to "
    "another claim, and can unprepare",
    HELPER,
    alone=True,
)
async def kill(bed: Bed) -> None:
    """One claim is repeated, one is unprepared without that."""
    await bed.start()
    devices = await _one_or_two(bed)
    refs = [await bed.claim(device) for device in devices]
    answers = [await bed.prepare(ref, device) for ref, device in zip(refs, devices, strict=True)]
    await bed.kill()
    bed.note("killed")
    await bed.start()
    if not devices[0].device.allow_multiple_allocations:
        thief = await bed.claim(devices[0])
        await bed.refused(thief, f"{devices[0]} is prepared for {refs[0].name} since before the crash")
    if (again := await bed.prepare(refs[0], devices[0])) != answers[0]:
        raise Defect(f"after the crash prepare is answered {again} instead of {answers[0]}")
    for ref in refs:
        await bed.unprepare(ref)
    following = await bed.claim(devices[-1])
    await bed.prepare(following, devices[-1])
    await bed.unprepare(following)


async def _one_or_two(bed: Bed) -> list[DeviceChoice]:
    try:
        return await bed.pick(2)
    except NotApplicable:
        return await bed.pick(1)


# ---- between two steps


@case(
    "crash-preparing",
    "kill -9 between any two steps of prepare",
    "whatever was half done is completed or rolled back: the repeated prepare succeeds, or the unprepare of a pod "
    "that is gone; no device is given to two claims, and nothing is left",
    HELPER,
    alone=True,
)
async def crash_preparing(bed: Bed) -> None:
    """Killed at chosen changes of files; then repeated, given up, or claimed by another."""
    await bed.start()
    (device,) = await bed.pick(1)
    for number, point in enumerate(await _points(bed, device, _call_prepare)):
        ref = await bed.claim(device)
        await _crash(bed, point, _call_prepare(bed, ref))
        afterwards = (_repeated, _given_up, _claimed_by_another)[number % 3]
        await afterwards(bed, ref, device, point)
        await bed.delete(ref)


async def _repeated(bed: Bed, ref: ClaimRef, device: DeviceChoice, point: int) -> None:
    await _after(point, bed.prepare(ref, device))
    await _after(point, bed.unprepare(ref))


async def _given_up(bed: Bed, ref: ClaimRef, device: DeviceChoice, point: int) -> None:
    await _after(point, bed.unprepare(ref))
    following = await bed.claim(device)
    await _after(point, bed.prepare(following, device))
    await _after(point, bed.unprepare(following))


async def _claimed_by_another(bed: Bed, ref: ClaimRef, device: DeviceChoice, point: int) -> None:
    other = await bed.claim(device)
    granted = []
    for claim in (other, ref):
        with contextlib.suppress(Defect):
            await bed.prepare(claim, device)
            granted.append(claim.name)
    if len(granted) == 2 and not device.device.allow_multiple_allocations:
        raise Defect(f"after a crash at step {point} {device} is prepared for both {' and '.join(granted)}")
    if not granted:
        raise Defect(f"after a crash at step {point} {device} can no longer be prepared for any claim")
    for claim in (other, ref):
        await _after(point, bed.unprepare(claim))


@case(
    "crash-unpreparing",
    "kill -9 between any two steps of unprepare",
    "the repeated unprepare succeeds, nothing is left, and the device is available to the next claim",
    HELPER,
    alone=True,
)
async def crash_unpreparing(bed: Bed) -> None:
    """Killed at chosen changes of files."""
    await bed.start()
    (device,) = await bed.pick(1)
    for point in await _points(bed, device, _call_unprepare):
        ref = await bed.claim(device)
        await bed.prepare(ref, device)
        await _crash(bed, point, _call_unprepare(bed, ref))
        await _after(point, bed.unprepare(ref))
        await bed.delete(ref)
        following = await bed.claim(device)
        await _after(point, bed.prepare(following, device))
        await _after(point, bed.unprepare(following))


async def _call_prepare(bed: Bed, ref: ClaimRef) -> None:
    await bed.line().prepare(ref)


async def _call_unprepare(bed: Bed, ref: ClaimRef) -> None:
    await bed.line().unprepare(ref)


def _folders(bed: Bed) -> list[Path]:
    return [bed.root / "plugins", bed.cdi]


async def _points(bed: Bed, device: DeviceChoice, call: Callable[[Bed, ClaimRef], Awaitable[None]]) -> list[int]:
    """Steps to be killed at: 0 is as soon as the call is sent."""
    ref = await bed.claim(device)
    if call is _call_unprepare:
        await bed.prepare(ref, device)
    with FileSteps(_folders(bed)) as steps:
        await call(bed, ref)
    await bed.unprepare(ref)
    await bed.delete(ref)
    wanted = max(2, bed.settings.crash_points)
    points = sorted({round(steps.count * index / (wanted - 1)) for index in range(wanted)})
    bed.note(f"the call changes files {steps.count} times; killed at {', '.join(map(str, points))}")
    return points


async def _crash(bed: Bed, point: int, call: Awaitable[None]) -> None:
    process = bed.process
    steps = FileSteps(_folders(bed), point, lambda: process.signal(signal.SIGKILL))
    with steps:
        calling = asyncio.ensure_future(call)
        if point == 0:
            await asyncio.sleep(0)
            process.signal(signal.SIGKILL)
        with contextlib.suppress(*CALLS):
            await calling
    await bed.kill(process)
    bed.note(f"killed at step {point}")
    await bed.start()


async def _after(point: int, work: Awaitable[object]) -> None:
    try:
        await work
    except Defect as error:
        raise Defect(f"after a crash at step {point}: {error}") from None


# ---- reboot, damage


@case(
    "reboot",
    "the node reboots while claims are prepared",
    "what lay in memory is gone, the checkpoint and the kubelet's own are not: the same claim is prepared again with "
    "CDI files that are there, a claim whose pod is gone is unprepared, and devices of neither stay held",
    HELPER,
    alone=True,
)
async def reboot(bed: Bed) -> None:
    """Another boot id, an empty CDI folder."""
    if not (bed.settings.takes("boot_id") or bed.settings.takes("boot_id_file")):
        raise NotApplicable("the command takes neither {boot_id} nor {boot_id_file}")
    await bed.start()
    devices = await _one_or_two(bed)
    refs = [await bed.claim(device) for device in devices]
    for ref, device in zip(refs, devices, strict=True):
        await bed.prepare(ref, device)
    await bed.kill()
    bed.reboot()
    bed.note("rebooted")
    await bed.start()
    await bed.prepare(refs[0], devices[0])
    if len(refs) > 1:
        following = await bed.claim(devices[1])
        await bed.prepare(following, devices[1])
        await bed.unprepare(refs[1])
        await bed.prepare(following, devices[1])
        await bed.unprepare(following)
    await bed.unprepare(refs[0])


@case(
    "corrupt-checkpoint",
    "the checkpoint is damaged",
    "a checkpoint that cannot be trusted is refused with a clear message: the driver does not serve, or at least gives "
    "no prepared device to another claim",
    HELPER,
    alone=True,
)
async def corrupt_checkpoint(bed: Bed) -> None:
    """A flipped byte, a file cut short, an empty one."""
    await bed.start()
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    await bed.prepare(ref, device)
    await bed.kill()
    files = {path: path.read_bytes() for path in bed.checkpoints()}
    if not files:
        raise NotApplicable(f"the driver keeps no file in {bed.root / 'plugins' / bed.driver}")
    for name, damage in DAMAGES.items():
        for path, content in files.items():
            path.write_bytes(damage(content))
        bed.note(f"{name}: {await _damaged(bed, ref, device, [path.name for path in files])}")
        await bed.kill()
    for path, content in files.items():
        path.write_bytes(content)
    await bed.start()
    await bed.prepare(ref, device)
    await bed.unprepare(ref)


def _flipped(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 0x15]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a byte flipped": _flipped,
    "cut in half": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
}


async def _damaged(bed: Bed, ref: ClaimRef, device: DeviceChoice, files: list[str]) -> str:
    """What the driver makes of it. Raises Defect if it forgets what is prepared, or hangs without a word."""
    known = line.sockets(bed.registry)
    process = await bed.spawn()
    waited = _Patience(bed)

    async def settled() -> RegisteredDriver | str | None:
        if process.exit_code is not None:
            return f"refused to start{process.tail()}"
        for path, identity in line.sockets(bed.registry).items():
            if known.get(path) != identity:
                with contextlib.suppress(CallFailed):
                    return await line.greet(path)
        # Complaining is not yet refusing: a driver may say so and start empty.
        return f"refused to serve{process.tail()}" if waited.long_enough(_names(process, files)) else None

    found: RegisteredDriver | str = await bed.until(
        settled, lambda: f"the driver neither served, nor ended, nor named the file{process.tail()}"
    )
    if isinstance(found, str):
        if process.exit_code == 0:
            raise Defect("it ended with exit status 0, as if all were well")
        return found
    await bed.register(found)
    if device.device.allow_multiple_allocations:
        return "started"
    thief = await bed.claim(device)
    said = await bed.refused(thief, f"{device} is prepared for {ref.name}, which the damaged checkpoint hid")
    return f"started, and refused the prepared device: {said}"


def _names(process: Process, files: list[str]) -> bool:
    said = process.said()
    return "checkpoint" in said.lower() or any(name in said for name in files)


class _Patience:
    """Twice the time of a start has passed since the driver complained."""

    def __init__(self, bed: Bed) -> None:
        self._clock = bed.clock
        self._wait_s = 2 * bed.start_s
        self._since: float | None = None

    def long_enough(self, complained: bool) -> bool:
        if complained and self._since is None:
            self._since = self._clock.monotonic()
        return self._since is not None and self._clock.monotonic() - self._since > self._wait_s


# ---- update


@case(
    "rolling-update",
    "a new instance starts before the old one ends",
    "two instances with sockets of their own serve at a time and share what is prepared; the old one removes its own "
    "sockets only, and no slice is deleted",
    "rolling updates of DRA drivers, KEP-4381",
    alone=True,
)
async def rolling_update(bed: Bed) -> None:
    """Prepared by the old one, repeated and unprepared by the new one."""
    if not bed.settings.takes("pod_uid"):
        raise NotApplicable("the command does not take {pod_uid}")
    old = await bed.start(bed.entropy.uuid4())
    old_process = bed.process
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    first = await bed.prepare(ref, device)
    names = {resource_slice.metadata.name for resource_slice in await bed.slices()}
    new = await bed.start(bed.entropy.uuid4())
    if new.endpoint == old.endpoint:
        raise Defect(f"both instances serve at {old.endpoint}")
    bed.note(f"{old.endpoint.name} and {new.endpoint.name} serve")
    if await bed.prepare(ref, device, over=old.line()) != first:
        raise Defect("the old instance answers differently now")
    if (again := await bed.prepare(ref, device)) != first:
        raise Defect(f"the new instance answers {again}, the old one {first}")
    if not device.device.allow_multiple_allocations:
        await bed.refused(await bed.claim(device), f"the old instance prepared {device} for {ref.name}")
    await bed.terminate(old_process)
    left = [path.name for path in (old.socket, old.endpoint) if path.exists()]
    if left:
        raise Defect(f"the old instance left sockets: {', '.join(left)}")
    if gone := [path.name for path in (new.socket, new.endpoint) if not path.exists()]:
        raise Defect(f"the old instance removed sockets of the new one: {', '.join(gone)}")
    bed.note("the old one ended")
    await bed.unprepare(ref)
    if missing := names - {resource_slice.metadata.name for resource_slice in await bed.slices()}:
        raise Defect(f"slices were deleted: {', '.join(sorted(missing))}")
