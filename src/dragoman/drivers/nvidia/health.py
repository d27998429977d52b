"""What do hardware events mean for devices? Taints, and health as pods show it.

A record of what happened by GPU and instance, and what follows for each device. It watches nothing and publishes
nothing itself. The XIDs of IGNORED are errors of applications; they are shown and hold nobody off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from dragoman.api.meta import format_time
from dragoman.api.resource import DeviceTaint
from dragoman.drivers.nvidia.devices import Known
from dragoman.drivers.nvidia.hardware import HardwareChanged, HardwareEvent, Lost, Recovered, Unmonitored, XidError
from dragoman.errors import Invalid
from dragoman.node.driver import DeviceHealth
from dragoman.runtime.clock import Clock

XID, GPU_LOST, UNMONITORED = (f"gpu.nvidia.com/{name}" for name in ("xid", "gpu-lost", "unmonitored"))
IGNORED = frozenset({13, 31, 43, 45, 68, 109})
HEALTH_TIMEOUT_S = 30

TaintEffect = Literal["NoSchedule", "NoExecute", "None"]


class HealthOptions(msgspec.Struct, frozen=True):
    """xid_effect: of XIDs that count, and of lost GPUs unless None. ignored: XIDs that do not count."""

    xid_effect: TaintEffect = "NoSchedule"
    ignored: frozenset[int] = IGNORED
    clear_on_recovery: bool = False


class _Seen(msgspec.Struct, frozen=True):
    """One kind of trouble with a GPU or an instance of it (gi None: the whole GPU)."""

    gpu: str
    gi: int | None
    taint: DeviceTaint


class HealthRecord:
    """Trouble by (GPU, instance, key); the same again replaces what was known."""

    def __init__(self, options: HealthOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self._seen: dict[tuple[str, int | None, str], _Seen] = {}

    def note(self, event: HardwareEvent) -> bool:
        """Take an event in; True if what follows for devices has changed."""
        match event:
            case XidError(gpu, number, gi):
                effect = "None" if number in self.options.ignored else self.options.xid_effect
                known = self._seen.get((gpu, gi, XID))
                if known and known.taint.effect != "None" and effect == "None":
                    return False  # what holds others off is not covered by a lesser error
                self._set(gpu, gi, XID, str(number), effect)
            case Lost(gpu):
                effect = self.options.xid_effect if self.options.xid_effect == "NoExecute" else "NoSchedule"
                self._set(gpu, None, GPU_LOST, "", effect)
            case Unmonitored(gpu):
                self._set(gpu, None, UNMONITORED, "", "None")
            case Recovered(gpu):
                return self._recovered(gpu)
            case HardwareChanged():
                return True
        return True

    def _set(self, gpu: str, gi: int | None, key: str, value: str, effect: str) -> None:
        now = format_time(self.clock.utc())
        self._seen[gpu, gi, key] = _Seen(gpu, gi, DeviceTaint(key, value, effect, now))

    def _recovered(self, gpu: str) -> bool:
        if not self.options.clear_on_recovery:
            return False
        gone = [where for where in self._seen if where[0] in (gpu, "") and where[2] != UNMONITORED]
        for where in gone:
            del self._seen[where]
        return bool(gone)

    def taints(self, devices: Iterable[Known]) -> dict[str, tuple[DeviceTaint, ...]]:
        """By device name, one a key."""
        if not self._seen:
            return {}
        made = {device.name: tuple(self._of(device)) for device in devices}
        return {name: found for name, found in made.items() if found}

    def _of(self, device: Known) -> Iterator[DeviceTaint]:
        keys: set[str] = set()
        # An instance's own trouble says more than its GPU's.
        for seen in sorted(self._seen.values(), key=lambda seen: seen.gi is None):
            if seen.taint.key not in keys and _concerns(seen, device):
                keys.add(seen.taint.key)
                yield seen.taint

    def health(self, pools: Mapping[str, Iterable[Known]]) -> list[DeviceHealth]:
        """Of all devices, by pool."""
        made = []
        for pool, devices in pools.items():
            for device in devices:
                taints = list(self._of(device))
                bad = [taint for taint in taints if taint.effect != "None" or self._counts(taint)]
                state: Literal["Healthy", "Unhealthy", "Unknown"] = "Unhealthy" if bad else "Healthy"
                if not bad and any(taint.key == UNMONITORED for taint in taints):
                    state = "Unknown"
                message = "; ".join(_sentence(taint) for taint in taints)
                made.append(DeviceHealth(pool, device.name, state, message, HEALTH_TIMEOUT_S))
        return made

    def _counts(self, taint: DeviceTaint) -> bool:
        return taint.key == XID and int(taint.value) not in self.options.ignored


def _concerns(seen: _Seen, device: Known) -> bool:
    if seen.gpu == "":
        return True
    if device.gpu is None or device.gpu.uuid != seen.gpu:
        return False
    return seen.gi is None or (device.instance is not None and device.instance.gi == seen.gi)


def _sentence(taint: DeviceTaint) -> str:
    match taint.key:
        case "gpu.nvidia.com/xid":
            return f"XID {taint.value} at {taint.time_added}"
        case "gpu.nvidia.com/gpu-lost":
            return f"GPU lost since {taint.time_added}"
    return "events of this GPU cannot be watched"


def parse_xids(text: str, where: str) -> frozenset[int]:
    """`13,31` as numbers. Raises Invalid."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not part.isdecimal():
            raise Invalid(where, f"must be XID numbers with commas between them, got {part!r}")
    return frozenset(int(part) for part in parts)
