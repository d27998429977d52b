"""What can go wrong with a simulated machine on purpose, and how does somebody ask for it? ConfigMaps, read as faults.

    metadata: {name: broken, namespace: default, labels: {dragoman.dev/simulate: fault}}
    data: {fault: slow-prepare, node: gpu-0, delay: 20s, for: 5m}

A fault lasts as long as its object; deleting that is the recovery. Here are the faults of any machine; those of a
driver's hardware are in the driver's package. Nothing here breaks anything (`daemon.simulation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

import msgspec

from dragoman.errors import Invalid
from dragoman.runtime.config import duration_s

LABEL = "dragoman.dev/simulate"
FAULT, CLOCK, NODE, LOAD = "fault", "clock", "node", "load"
STATE, MESSAGE = "dragoman.dev/state", "dragoman.dev/message"
"""Annotations that tell what came of it: active, done or invalid, and a sentence."""
ACTIVE, DONE, INVALID = "active", "done", "invalid"
DELAY_MAX_S = 3600.0


class Fault(msgspec.Struct, frozen=True):
    """Base. for_s: how long it lasts by itself; None until its object is deleted."""

    node: str
    for_s: float | None = None

    kind: ClassVar[str]
    """Its name in data.fault."""
    once: ClassVar[bool] = False
    """Whether it happens once and is over, instead of lasting."""
    again_after_boot: ClassVar[bool] = False
    """Whether a machine that reboots is still broken in this way."""
    again_after_restart: ClassVar[bool] = False
    """Whether it must be injected again when the driver's process starts again."""


class DriverStopped(Fault, frozen=True, kw_only=True):
    """The driver's process does not run; empty for all drivers of the node."""

    kind: ClassVar[str] = "driver-stopped"
    driver: str = ""


class NodeRebooted(Fault, frozen=True, kw_only=True):
    """The machine reboots after some seconds: containers and CDI files are gone."""

    kind: ClassVar[str] = "node-rebooted"
    once: ClassVar[bool] = True
    downtime_s: float = 10.0


class SlowPrepare(Fault, frozen=True, kw_only=True):
    """Preparing takes so much longer; with an empty driver for all of the node. A kubelet waits for 45 s."""

    kind: ClassVar[str] = "slow-prepare"
    delay_s: float
    driver: str = ""


class FaultData:
    """The entries of one ConfigMap, each taken once. All raise Invalid with the entry."""

    def __init__(self, data: Mapping[str, str]) -> None:
        self._left = dict(data)

    def text(self, key: str, default: str | None = None) -> str:
        """A text that must be set, unless there is a default."""
        found = self._left.pop(key, "").strip() or default
        if found is None:
            raise Invalid(f"data.{key}", "must be set")
        return found

    def number(self, key: str, low: int, high: int) -> int:
        """A whole number between bounds, these included."""
        found = self.text(key)
        if not found.isdecimal() or not low <= int(found) <= high:
            raise Invalid(f"data.{key}", f"must be a whole number from {low} to {high}, got {found!r}")
        return int(found)

    def seconds(self, key: str, default: str | None = None, most: float | None = None) -> float:
        """A duration such as `5m`, in seconds."""
        found = self.text(key, default)
        seconds = duration_s(found, f"data.{key}")
        if seconds < 0 or (most is not None and seconds > most):
            bounds = "must not be negative" if most is None else f"must be from 0 to {most:g} s"
            raise Invalid(f"data.{key}", f"{bounds}, got {found!r}")
        return seconds

    def pod(self, default: str | None = None) -> str:
        """`namespace/name`; a name alone is one of the namespace default."""
        found = self.text("pod", default)
        return found if not found or "/" in found else f"default/{found}"

    def has(self, key: str) -> bool:
        """Whether the entry is there and not empty."""
        return bool(self._left.get(key, "").strip())

    def nothing_left(self) -> None:
        """Refuse entries that nobody took."""
        if left := [key for key, value in self._left.items() if value.strip()]:
            raise Invalid(f"data.{left[0]}", "is not known here")


FaultReader: TypeAlias = Callable[[str, float | None, FaultData], Fault]


class FaultField(msgspec.Struct, frozen=True):
    """An entry of a fault's data, which is a flag of `dragoman fault` too: name, placeholder, help.

    in_name: whether the fault's object is named after it, too.
    """

    name: str
    placeholder: str
    help: str
    in_name: bool = False


class FaultKind(msgspec.Struct, frozen=True):
    """A kind of fault. example: flags of `dragoman fault NAME --node NODE`. read(node, for_s, entries): the fault."""

    name: str
    summary: str
    fields: tuple[FaultField, ...]
    read: FaultReader
    example: str = ""


FOR = FaultField("for", "TIME", "recover by itself after that; default: until `fault recover`")
_DRIVER = FaultField("driver", "NAME", "default: all drivers of the node", in_name=True)
_DOWNTIME = FaultField("downtime", "TIME", "default: 10s")
_DELAY = FaultField("delay", "TIME", "how much longer a prepare takes")


def _driver_stopped(node: str, for_s: float | None, entries: FaultData) -> Fault:
    return DriverStopped(node, for_s, driver=entries.text("driver", ""))


def _node_rebooted(node: str, for_s: float | None, entries: FaultData) -> Fault:
    return NodeRebooted(node, for_s, downtime_s=entries.seconds("downtime", "10s", DELAY_MAX_S))


def _slow_prepare(node: str, for_s: float | None, entries: FaultData) -> Fault:
    delay_s = entries.seconds("delay", None, DELAY_MAX_S)
    return SlowPrepare(node, for_s, delay_s=delay_s, driver=entries.text("driver", ""))


KINDS: tuple[FaultKind, ...] = (
    FaultKind(
        "driver-stopped", "a driver's process does not run", (_DRIVER, FOR), _driver_stopped, "--driver gpu.example.com"
    ),
    FaultKind("node-rebooted", "a machine reboots", (_DOWNTIME,), _node_rebooted, "--downtime 30s"),
    FaultKind("slow-prepare", "preparing claims takes longer", (_DELAY, _DRIVER, FOR), _slow_prepare, "--delay 20s"),
)
"""Of any machine, whatever its drivers."""


class Advance(msgspec.Struct, frozen=True):
    """Move the cluster's clock on."""

    seconds: float


class Speed(msgspec.Struct, frozen=True):
    """Let the cluster's clock run so many times as fast as the world's."""

    factor: float


def fault_of(data: Mapping[str, str], kinds: Mapping[str, FaultKind]) -> Fault:
    """The fault that a ConfigMap's data asks for; kinds: those that there are. Raises Invalid with the entry."""
    entries = FaultData(data)
    kind, node = entries.text("fault"), entries.text("node")
    for_s = entries.seconds("for") if entries.has("for") else None
    if kind not in kinds:
        raise Invalid("data.fault", f"must be one of {', '.join(kinds)}, got {kind!r}")
    fault = kinds[kind].read(node, for_s, entries)
    entries.nothing_left()
    if fault.once and for_s is not None:
        raise Invalid("data.for", f"{kind} happens once and does not last")
    return fault


def clock_request_of(data: Mapping[str, str]) -> Advance | Speed:
    """What a ConfigMap's data asks of the clock. Raises Invalid with the entry."""
    entries = FaultData(data)
    config_map: Advance | Speed
    if entries.has("speed"):
        text = entries.text("speed")
        try:
            factor = float(text)
        except ValueError:
            factor = 0.0
        if not 0.001 <= factor <= 10_000:
            raise Invalid("data.speed", f"must be a number from 0.001 to 10000, got {text!r}")
        config_map = Speed(factor)
    else:
        config_map = Advance(entries.seconds("advance"))
    entries.nothing_left()
    return config_map
