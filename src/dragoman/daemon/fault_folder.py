"""How does somebody break the simulated hardware of a driver that runs by itself? Files in a folder, read as faults.

`dragoman driver DRIVER --simulate PROFILE --faults DIR` reads each NAME.json there, the data of a fault as a
ConfigMap of an embedded cluster has it; NAME.state says what came of it. A fault lasts as long as its file. Only root
and the user of the driver may write there: anything else is refused, since whoever can write breaks the machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from dragoman.drivers.entry import DriverEntry
from dragoman.drivers.registry import fault_kinds
from dragoman.errors import Denied, DragomanError, Invalid
from dragoman.kubelet.faults import ACTIVE, DONE, INVALID, Fault, SlowPrepare, fault_of
from dragoman.node.driver import Driver
from dragoman.node.files import write_atomically
from dragoman.runtime.clock import Clock
from dragoman.runtime.log import get

POLL_S = 0.5
SIZE_MAX = 65_536
DATA, ANSWER = ".json", ".state"


class FaultState(msgspec.Struct, frozen=True):
    """What came of a fault: active, done or invalid, and a sentence."""

    state: str
    message: str


class NoWorkloads:
    """What runs beside a standalone driver is the kubelet's and not ours to end."""

    def users(self, claim_uid: str) -> Mapping[str, list[str]]:
        """None that we know of."""
        return {}

    def pod_named(self, uid: str) -> str:
        """Unknown here."""
        return uid

    def fail(self, uid: str, containers: Sequence[str], message: str) -> None:
        """Not ours to end."""


class _Known(msgspec.Struct):
    content: bytes
    fault: Fault | None
    ends_s: float | None


class FaultFolder:
    """The faults of one standalone driver. delay(seconds) sets by how much longer it prepares."""

    def __init__(
        self, folder: Path, entry: DriverEntry, driver: Driver, node: str, clock: Clock, delay: Callable[[float], None]
    ) -> None:
        self._folder = checked_folder(folder)
        self._offered = {fault.kind.name: fault for fault in entry.faults}
        self._driver = driver
        self._node = node
        self._clock = clock
        self._delay = delay
        self._known: dict[str, _Known] = {}
        self._log = get("faults", node=node)

    async def run(self) -> None:
        """Follow the folder for ever."""
        while True:
            self.look()
            await self._clock.sleep(POLL_S)

    def look(self) -> None:
        """Inject what is new, recover what is gone or over."""
        found = {path.stem: path for path in self._folder.glob(f"*{DATA}")}
        for name in [name for name in self._known if name not in found]:
            self._recover(name)
            (self._folder / f"{name}{ANSWER}").unlink(missing_ok=True)
        for name, path in sorted(found.items()):
            try:
                content = _read(path)
            except FileNotFoundError:
                continue
            except Denied as error:
                self._answer(name, INVALID, str(error))
                continue
            known = self._known.get(name)
            if known is not None and known.content == content:
                if known.ends_s is not None and self._clock.monotonic() >= known.ends_s:
                    path.unlink(missing_ok=True)
                continue
            if known is not None:
                self._recover(name)
            self._inject(name, content)

    def _inject(self, name: str, content: bytes) -> None:
        fault: Fault | None = None
        try:
            try:
                data = msgspec.json.decode(content, type=dict[str, str])
            except msgspec.MsgspecError as error:
                raise Invalid(f"{name}{DATA}", f"is not the data of a fault: {error}") from None
            fault = fault_of(data, fault_kinds())
            if fault.node != self._node:
                raise Invalid("data.node", f"this driver is the one of node {self._node}, got {fault.node!r}")
            message = self._break(fault)
            state = DONE if fault.once else ACTIVE
        except Invalid as error:
            fault, state, message = None, INVALID, str(error)
        for_s = fault.for_s if fault is not None else None
        self._known[name] = _Known(content, fault, None if for_s is None else self._clock.monotonic() + for_s)
        self._answer(name, state, message)

    def _break(self, fault: Fault) -> str:
        if isinstance(fault, SlowPrepare):
            self._delay(fault.delay_s)
            return f"prepare takes {fault.delay_s:g} s longer on {self._node}"
        if fault.kind not in self._offered:
            here = ", ".join(["slow-prepare", *self._offered])
            raise Invalid("data.fault", f"a driver that runs by itself has {here}, got {fault.kind!r}")
        return self._offered[fault.kind].inject(self._driver, NoWorkloads(), fault)

    def _recover(self, name: str) -> None:
        fault = self._known.pop(name).fault
        if fault is None or fault.once:
            return
        try:
            if isinstance(fault, SlowPrepare):
                self._delay(0.0)
            else:
                self._offered[fault.kind].recover(self._driver, fault)
        except DragomanError as error:
            self._log.warning("not recovered", fault=name, error=str(error))
        else:
            self._log.info("recovered", fault=name)

    def _answer(self, name: str, state: str, message: str) -> None:
        answer = msgspec.json.encode(FaultState(state, message))
        path = self._folder / f"{name}{ANSWER}"
        if not path.exists() or path.read_bytes() != answer:
            write_atomically(path, answer, durable=False)
            self._log.info("fault", name=name, state=state, message=message)


def checked_folder(folder: Path) -> Path:
    """The folder, made if it is missing, if root or this user alone can write there. Raises Denied, Invalid."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise Invalid(str(folder), f"cannot hold faults: {error.strerror or error}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise Invalid(str(folder), "must be a folder, and no link to one")
    _check_owner(folder, found)
    return folder


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise Denied(f"{path}: others than root and this user can write there: chown it, and chmod go-w")


def _read(path: Path) -> bytes:
    """Raises Denied for what somebody else may have put there, FileNotFoundError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Denied(f"{path}: cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > SIZE_MAX:
            raise Denied(f"{path}: must be a plain file of at most {SIZE_MAX} bytes")
        _check_owner(path, found)
        return os.read(descriptor, SIZE_MAX)
    finally:
        os.close(descriptor)
