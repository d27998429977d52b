"""What can go wrong with a simulated machine on purpose, and how does somebody ask for it? ConfigMaps, read as faults.

    metadata: {name: broken, namespace: default, labels: {dragoman.dev/simulate: fault}}
    data: {fault: xid, node: gpu-0, gpu: "3", xid: "79", for: 5m}

A fault lasts as long as its object; deleting that is the recovery. Nothing here breaks anything (`daemon.simulation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import msgspec

from dragoman.errors import Invalid
from dragoman.runtime.config import duration_s

LABEL = "dragoman.dev/simulate"
FAULT, CLOCK = "fault", "clock"
STATE, MESSAGE = "dragoman.dev/state", "dragoman.dev/message"
"""Annotations that tell what came of it: active, done or invalid, and a sentence."""
ACTIVE, DONE, INVALID = "active", "done", "invalid"
XID_MAX = 999
DELAY_MAX_S = 3600.0


class _Fault(msgspec.Struct, frozen=True):
    """Base. for_s: how long it lasts by itself; None until its object is deleted."""

    node: str
    for_s: float | None = None

    once: ClassVar[bool] = False
    """Whether it happens once and is over, instead of lasting."""


class Xid(_Fault, frozen=True, kw_only=True):
    """A critical XID on a GPU (`3`, `gpu-3` or its UUID), or on a GPU instance of it; pod: whose work raised it."""

    gpu: str
    number: int
    instance: int | None = None
    pod: str = ""


class GpuLost(_Fault, frozen=True, kw_only=True):
    """A GPU falls off the bus."""

    gpu: str


class MemoryOverrun(_Fault, frozen=True, kw_only=True):
    """A pod takes all the memory that it gets on a GPU."""

    once: ClassVar[bool] = True
    gpu: str
    pod: str


class NicDown(_Fault, frozen=True, kw_only=True):
    """A network adapter (RDMA device, interface, PCI address or device name) has no link."""

    nic: str


class DriverStopped(_Fault, frozen=True, kw_only=True):
    """The driver's process does not run; empty for all drivers of the node."""

    driver: str = ""


class NodeRebooted(_Fault, frozen=True, kw_only=True):
    """The machine goes down and boots anew after some seconds: containers, MIG instances, CDI files are gone."""

    once: ClassVar[bool] = True
    downtime_s: float = 10.0


class SlowPrepare(_Fault, frozen=True, kw_only=True):
    """Preparing takes so much longer; with an empty driver for all of the node. A kubelet waits for 45 s."""

    delay_s: float
    driver: str = ""


Fault: TypeAlias = Xid | GpuLost | MemoryOverrun | NicDown | DriverStopped | NodeRebooted | SlowPrepare
KINDS: tuple[str, ...] = (
    "xid",
    "gpu-lost",
    "memory-overrun",
    "nic-down",
    "driver-stopped",
    "node-rebooted",
    "slow-prepare",
)


class Advance(msgspec.Struct, frozen=True):
    """Move the cluster's clock on."""

    seconds: float


class Speed(msgspec.Struct, frozen=True):
    """Let the cluster's clock run so many times as fast as the world's."""

    factor: float


class _Data:
    """The entries of one ConfigMap, each taken once."""

    def __init__(self, data: Mapping[str, str]) -> None:
        self._left = dict(data)

    def text(self, key: str, default: str | None = None) -> str:
        found = self._left.pop(key, "").strip() or default
        if found is None:
            raise Invalid(f"data.{key}", "must be set")
        return found

    def number(self, key: str, low: int, high: int) -> int:
        found = self.text(key)
        if not found.isdecimal() or not low <= int(found) <= high:
            raise Invalid(f"data.{key}", f"must be a whole number from {low} to {high}, got {found!r}")
        return int(found)

    def seconds(self, key: str, default: str | None = None, most: float | None = None) -> float:
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
        return bool(self._left.get(key, "").strip())

    def nothing_left(self) -> None:
        if left := [key for key, value in self._left.items() if value.strip()]:
            raise Invalid(f"data.{left[0]}", "is not known here")


def fault_of(data: Mapping[str, str]) -> Fault:
    """The fault that a ConfigMap's data asks for. Raises Invalid with the entry."""
    entries = _Data(data)
    kind, node = entries.text("fault"), entries.text("node")
    for_s = entries.seconds("for") if entries.has("for") else None
    fault = _read(kind, node, for_s, entries)
    entries.nothing_left()
    if fault.once and for_s is not None:
        raise Invalid("data.for", f"{kind} happens once and does not last")
    return fault


def _read(kind: str, node: str, for_s: float | None, entries: _Data) -> Fault:
    match kind:
        case "xid":
            instance = entries.number("instance", 0, 14) if entries.has("instance") else None
            number = entries.number("xid", 1, XID_MAX)
            return Xid(node, for_s, gpu=entries.text("gpu"), number=number, instance=instance, pod=entries.pod(""))
        case "gpu-lost":
            return GpuLost(node, for_s, gpu=entries.text("gpu"))
        case "memory-overrun":
            return MemoryOverrun(node, for_s, gpu=entries.text("gpu"), pod=entries.pod())
        case "nic-down":
            return NicDown(node, for_s, nic=entries.text("nic"))
        case "driver-stopped":
            return DriverStopped(node, for_s, driver=entries.text("driver", ""))
        case "node-rebooted":
            return NodeRebooted(node, for_s, downtime_s=entries.seconds("downtime", "10s", DELAY_MAX_S))
        case "slow-prepare":
            delay_s = entries.seconds("delay", None, DELAY_MAX_S)
            return SlowPrepare(node, for_s, delay_s=delay_s, driver=entries.text("driver", ""))
    raise Invalid("data.fault", f"must be one of {', '.join(KINDS)}, got {kind!r}")


def clock_request_of(data: Mapping[str, str]) -> Advance | Speed:
    """What a ConfigMap's data asks of the clock. Raises Invalid with the entry."""
    entries = _Data(data)
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
