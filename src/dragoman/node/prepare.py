"""How does a claim become usable on this node, and stop being so, whatever crashes in between?

    absent --Begin--> PrepareStarted --DriverReady--> PrepareCompleted --Undo--> UnprepareStarted --Undone--> absent
                            |                                                      ^
                            `--DriverFailed, or a crash--> RollbackStarted --Undo--+
                                                                 `--Undone--> absent

A driver may also say NotYet: the claim stays in PrepareStarted and is prepared again. Where that lasts, unpreparing it
leaves PrepareAborted for a while, so that a late call cannot begin again what the kubelet has given up.

The state is on disk before and after the driver touches hardware, so every crash is resumed or rolled back. It is the
last line of defence against two claims on one device. It never talks to the API server and knows no sockets.
"""

from __future__ import annotations

import asyncio
import inspect
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from dragoman.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim
from dragoman.errors import DragomanError, Invalid, Retry, Stale
from dragoman.node import cdi
from dragoman.node.checkpoint import Checkpoint, ClaimRecord, PrepareState
from dragoman.node.driver import (
    ClaimRef,
    ClaimToPrepare,
    DeviceMetadata,
    DeviceSetup,
    Driver,
    HeldDevice,
    NotYet,
    PreparedClaim,
    PreparedDevice,
    Setup,
)

ABORTED_S = 90.0
"""So long a call with the claim's status of an aborted preparation is refused."""

T = TypeVar("T")
Results: TypeAlias = tuple[DeviceRequestAllocationResult, ...]


class PrepareStep(StrEnum):
    """What happens to a claim."""

    BEGIN = "Begin"
    READY = "DriverReady"
    FAILED = "DriverFailed"
    UNDO = "Undo"
    UNDONE = "Undone"
    KEPT = "Kept"


STEPS: dict[tuple[PrepareState | None, PrepareStep], PrepareState | None] = {
    (None, PrepareStep.BEGIN): PrepareState.STARTED,
    (PrepareState.STARTED, PrepareStep.READY): PrepareState.READY,
    (PrepareState.STARTED, PrepareStep.FAILED): PrepareState.ROLLBACK,
    (PrepareState.STARTED, PrepareStep.UNDO): PrepareState.UNDOING,
    (PrepareState.ROLLBACK, PrepareStep.FAILED): PrepareState.ROLLBACK,
    (PrepareState.ROLLBACK, PrepareStep.UNDO): PrepareState.UNDOING,
    (PrepareState.ROLLBACK, PrepareStep.UNDONE): None,
    (PrepareState.READY, PrepareStep.UNDO): PrepareState.UNDOING,
    (PrepareState.UNDOING, PrepareStep.UNDO): PrepareState.UNDOING,
    (PrepareState.UNDOING, PrepareStep.UNDONE): None,
    (PrepareState.UNDOING, PrepareStep.KEPT): PrepareState.ABORTED,
    (PrepareState.ABORTED, PrepareStep.UNDONE): None,
}
"""None is a claim without a record. What is not in the table cannot happen; Begin in other states never steps: a
completed claim is answered from its record, an interrupted one is first rolled back to None."""


async def settle(method: Callable[..., T | Awaitable[T]], *arguments: Any, threads: Executor | None = None) -> T:
    """The result of a driver's method: awaited if it is a coroutine, else run in a thread because it may block.

    threads: where, the loop's own by default.
    """
    if inspect.iscoroutinefunction(method):
        result: T = await method(*arguments)
        return result
    answer = await asyncio.get_running_loop().run_in_executor(threads, partial(method, *arguments))
    return await answer if inspect.isawaitable(answer) else answer


class Preparer:
    """Steps claims through the table. Its methods must not overlap, or with `exclusive` not for one claim.

    `plugin` sees to that.
    """

    def __init__(
        self,
        driver: Driver,
        checkpoint: Checkpoint,
        cdi_dir: Path,
        published: Callable[[str, str], Device | None] = lambda pool, device: None,
        adapt: Callable[[Setup], Setup] = lambda setup: setup,
        now: Callable[[], float] = lambda: 0.0,
        exclusive: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        in_turn: Callable[[Callable[[], None]], None] = lambda write: write(),
        threads: Executor | None = None,
    ) -> None:
        """`published(pool, device)` is what the driver publishes of a device, for metadata files.

        adapt: what becomes of a setup before it is written down. now: epoch seconds. exclusive: held while the
        checkpoint is read and written, and not while the driver works. in_turn: calls what a thread wants to write
        under it. threads: where the driver's plain functions run.
        """
        self.in_turn = in_turn
        self.threads = threads
        self.exclusive = exclusive
        self.adapt = adapt
        self.now = now
        self.going_on: set[str] = set()
        """Claims by uid whose preparation goes on by itself (NotYet)."""
        self.published = published
        self.driver = driver
        self.checkpoint = checkpoint
        self.cdi_dir = cdi_dir

    async def prepare(self, ref: ClaimRef, claim: ResourceClaim) -> tuple[PreparedDevice, ...]:
        """The claim's devices, usable now. `claim` is as the API server has it, allocated.

        Raises Retry (a device is still prepared for another claim, or the claim is just being unprepared), Stale (a
        late call for a claim that was unprepared), or what the driver raised. After NotYet, call again.
        """
        results, wanted = self._of_this_driver(claim)
        async with self.exclusive():
            record = self._not_aborted(ref, claim)
            if record and record.state is PrepareState.READY:
                if set(record.held) != set(wanted):
                    raise Retry(f"claim {ref} ({ref.uid}) was allocated again and must be unprepared first")
                self._write_cdi(record)
                return record.devices
        goes_on = record is not None and (record.waiting or ref.uid in self.going_on)
        if record and not (goes_on and set(record.held) == set(wanted)):
            await self.finish(record)
            record = None
        consumers = tuple(sorted(consumer.uid for consumer in claim.status.reserved_for))
        async with self.exclusive():
            self._refuse_late(ref, claim, consumers)
            self._refuse_conflict(ref, wanted)
            if record is None:
                self._start(ref, wanted, consumers)
        try:
            setup = self.adapt(await settle(self.driver.prepare, self._work(ref, claim, results), threads=self.threads))
            async with self.exclusive():
                ready = self._ready(self.checkpoint.claims[ref.uid], setup, results)
                self._write_cdi(ready)
                self.checkpoint.put(ready)
        except NotYet as wait:
            self.going_on.add(ref.uid)
            async with self.exclusive():
                begun = self.checkpoint.claims[ref.uid]
                if wait.lasting and not begun.waiting:
                    self.checkpoint.put(msgspec.structs.replace(begun, waiting=True, aborted=_checksum(claim)))
            raise
        except Exception:
            await self._undo(self.checkpoint.claims[ref.uid], PrepareStep.FAILED)
            raise
        self.going_on.discard(ref.uid)
        return ready.devices

    def _start(self, ref: ClaimRef, wanted: tuple[HeldDevice, ...], consumers: tuple[str, ...]) -> None:
        started = ClaimRecord(ref.namespace, ref.name, ref.uid, _next(None, PrepareStep.BEGIN), wanted, consumers)
        self.checkpoint.put(started)

    async def unprepare(self, ref: ClaimRef) -> PreparedClaim | None:
        """Undo whatever was done for the claim; None when nothing is known of it. Raises what the driver raised."""
        async with self.exclusive():
            record = self.checkpoint.claims.get(ref.uid)
            if record is None or record.state is PrepareState.ABORTED:
                cdi.claim_path(self.cdi_dir, self.driver.name, ref.uid).unlink(missing_ok=True)
                return None
        return await self._undo(record, PrepareStep.UNDO)

    def unfinished(self) -> list[ClaimRecord]:
        """Claims that a crash, or a failed roll back, left between two states; not those that go on by themselves."""
        between = (r for r in self.checkpoint.held if r.state is not PrepareState.READY and not r.waiting)
        return [record for record in between if record.uid not in self.going_on]

    def waiting(self) -> list[ClaimRecord]:
        """Claims whose driver waits for something."""
        return [record for record in self.checkpoint.held if record.waiting]

    def forget_aborted(self) -> None:
        """Drop what was kept of aborted preparations for long enough."""
        for record in list(self.checkpoint.claims.values()):
            if record.state is PrepareState.ABORTED and record.until <= self.now():
                self.checkpoint.drop(record.uid, remember=True)

    async def finish(self, record: ClaimRecord) -> None:
        """Roll an interrupted preparation back, complete an interrupted unpreparation. Raises as the driver."""
        await self._undo(record, PrepareStep.UNDO if record.state is PrepareState.UNDOING else PrepareStep.FAILED)

    def sweep_cdi(self) -> None:
        """Write missing CDI files of prepared claims, remove those of claims unknown here."""
        known = set()
        for record in self.checkpoint.claims.values():
            known.add(cdi.claim_path(self.cdi_dir, self.driver.name, record.uid))
            if record.state is PrepareState.READY:
                self._write_cdi(record)
        for path in self.cdi_dir.glob(cdi.claim_path(Path(), self.driver.name, "*").name):
            if path not in known:
                path.unlink(missing_ok=True)

    # ---- steps

    async def _undo(self, record: ClaimRecord, step: PrepareStep) -> PreparedClaim:
        # One that fails leaves its state: the devices stay held, and the next call or the sweep tries again. Only what
        # the kubelet unprepared is remembered as gone, not what was rolled back.
        self.going_on.discard(record.uid)
        undoing = msgspec.structs.replace(record, state=_next(record.state, step))
        if undoing != record:
            async with self.exclusive():
                self.checkpoint.put(undoing)
        prepared = record.as_prepared()
        await settle(self.driver.unprepare, prepared, threads=self.threads)
        async with self.exclusive():
            return self._undone(record, undoing, prepared)

    def _undone(self, record: ClaimRecord, undoing: ClaimRecord, prepared: PreparedClaim) -> PreparedClaim:
        cdi.claim_path(self.cdi_dir, self.driver.name, record.uid).unlink(missing_ok=True)
        if record.waiting and undoing.state is PrepareState.UNDOING:
            fields: dict[str, Any] = {"held": (), "driver_state": None, "waiting": False}
            until = self.now() + ABORTED_S
            state = _next(undoing.state, PrepareStep.KEPT)
            aborted = msgspec.structs.replace(undoing, state=state, until=until, **fields)
            self.checkpoint.put(aborted)
            return prepared
        assert STEPS[undoing.state, PrepareStep.UNDONE] is None
        self.checkpoint.drop(record.uid, remember=undoing.state is PrepareState.UNDOING)
        return prepared

    def _not_aborted(self, ref: ClaimRef, claim: ResourceClaim) -> ClaimRecord | None:
        record = self.checkpoint.claims.get(ref.uid)
        if record is None or record.state is not PrepareState.ABORTED:
            return record
        if record.aborted == _checksum(claim) and self.now() < record.until:
            raise Stale(f"stale prepare for claim {ref} ({ref.uid}): claim prepare was already aborted")
        self.checkpoint.drop(ref.uid, remember=True)
        return None

    def _of_this_driver(self, claim: ResourceClaim) -> tuple[Results, tuple[HeldDevice, ...]]:
        allocation = claim.status.allocation
        results = tuple(r for r in allocation.devices.results if r.driver == self.driver.name) if allocation else ()
        wanted = {
            HeldDevice(result.pool, result.device, result.share_id, bool(result.admin_access)): None
            for result in results
        }
        return results, tuple(wanted)

    def _refuse_late(self, ref: ClaimRef, claim: ResourceClaim, consumers: tuple[str, ...]) -> None:
        # A claim may be prepared again for a new consumer. The same pods as before never come back after an unprepare,
        # since the kubelet unprepares when a pod has ended; groups and other consumers stay while their pods change.
        before = self.checkpoint.gone.get(ref.uid)
        only_pods = all(c.resource == "pods" and not c.api_group for c in claim.status.reserved_for)
        if before is not None and only_pods and (not consumers or before == consumers):
            raise Stale(
                f"claim {ref} ({ref.uid}) was unprepared and has not been reserved again: "
                "this call comes too late, or must be repeated once the reservation has changed"
            )

    def _refuse_conflict(self, ref: ClaimRef, wanted: tuple[HeldDevice, ...]) -> None:
        for other in self.checkpoint.claims.values():
            if other.uid == ref.uid:
                continue
            for held in other.held:
                if any(held.collides(device) for device in wanted):
                    raise Retry(
                        f"device {held.pool}/{held.device} is still prepared for claim {other.ref} ({other.uid}): "
                        f"claim {ref} ({ref.uid}) has to wait until that is unprepared"
                    )

    def _work(self, ref: ClaimRef, claim: ResourceClaim, results: Results) -> ClaimToPrepare:
        allocation = claim.status.allocation
        config = tuple(
            entry
            for entry in (allocation.devices.config if allocation else ())
            if entry.opaque and entry.opaque.driver == self.driver.name
        )

        def remember(state: Any) -> None:
            def write() -> None:
                record = self.checkpoint.claims[ref.uid]
                self.checkpoint.put(msgspec.structs.replace(record, driver_state=state))

            self.in_turn(write)

        return ClaimToPrepare(ref, results, config, claim, remember)

    def _ready(self, record: ClaimRecord, setup: Setup, results: Results) -> ClaimRecord:
        kind = cdi.claim_kind(self.driver.name)
        devices: list[PreparedDevice] = []
        specs: list[cdi.CdiDevice] = []
        facts: list[DeviceMetadata] = []
        for made in setup.devices:
            given = [r for r in results if (r.pool, r.device) == (made.pool, made.device)]
            given = [r for r in given if made.share_id in (None, r.share_id)]
            if not given:
                raise Invalid(
                    f"driver {self.driver.name}",
                    f"prepared {made.pool}/{made.device}, which claim {record.ref} was not given",
                )
            requests = made.requests or tuple(r.request for r in given)
            ids = made.cdi_ids
            if made.edits != cdi.NO_EDITS or not ids:
                name = f"{record.uid}-{made.device}"
                # Two pools may have a device of one name.
                if any(spec.name == name for spec in specs):
                    name = f"{record.uid}-{len(specs)}-{made.device}"
                # CDI wants every device to edit something; a variable that says nothing new is the least.
                edits = made.edits if made.edits != cdi.NO_EDITS else cdi.Edits(env=(f"DRA_DRIVER={self.driver.name}",))
                specs.append(cdi.CdiDevice(name, container_edits=edits))
                ids = (cdi.qualified(kind, name), *ids)
            tops = tuple(dict.fromkeys(request.partition("/")[0] for request in requests))
            share = next((r.share_id for r in given if r.share_id), None)
            facts += [self._facts(request, made) for request in requests]
            devices.append(PreparedDevice(tops, made.pool, made.device, ids, share))
        return msgspec.structs.replace(
            record,
            state=_next(record.state, PrepareStep.READY),
            waiting=False,
            devices=tuple(devices),
            cdi=tuple(specs),
            common=setup.edits,
            facts=tuple(facts),
        )

    def _facts(self, request: str, made: DeviceSetup) -> DeviceMetadata:
        published = self.published(made.pool, made.device)
        attributes = made.attributes if made.attributes is not None else published.attributes if published else {}
        return DeviceMetadata(request, made.pool, made.device, attributes, made.network_data)

    def _write_cdi(self, record: ClaimRecord) -> None:
        if record.cdi:
            spec = cdi.made(cdi.claim_kind(self.driver.name), record.cdi, record.common)
            path = cdi.claim_path(self.cdi_dir, self.driver.name, record.uid)
            cdi.write(path, spec, durable=self.checkpoint.durable)


def _checksum(claim: ResourceClaim) -> int:
    return zlib.crc32(msgspec.json.encode(claim.status, order="deterministic"))


def _next(state: PrepareState | None, step: PrepareStep) -> PrepareState:
    following = STEPS.get((state, step))
    assert following is not None, f"no step {step} from {state}"
    return following


def describe(error: BaseException) -> str:
    """An error as the kubelet shall show it."""
    return str(error) if isinstance(error, DragomanError) else f"{type(error).__name__}: {error}"
