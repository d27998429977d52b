"""What has the driver done for a claim? Kept in the SDK's checkpoint, so that it can be undone after any crash.

Intentions are written before the hardware is touched, outcomes after. Values only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.drivers.nvidia.config import DeviceType


class MigPartition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A MIG instance made for a claim, or about to be: `before` are the instances that were there already."""

    gpu: str
    profile: int
    start: int
    before: tuple[str, ...] = ()
    gi: int | None = None
    uuid: str = ""


class UsedDevice(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device of the claim: its GPU (uuid or, when passed through, PCI address) and MIG device, how it is shared."""

    name: str
    kind: DeviceType
    gpu: str = ""
    bus_id: str = ""
    gi: int | None = None
    uuid: str = ""
    sharing: str = ""
    watching: bool = False


class Done(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All that was done for one claim. configs: the normalised configuration of each device, as JSON."""

    devices: tuple[UsedDevice, ...] = ()
    partitions: tuple[MigPartition, ...] = ()
    time_sliced: tuple[str, ...] = ()
    exclusive: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    fabric_partition: int = 0
    configs: dict[str, Any] = {}


def decoded(state: Any) -> Done:
    """From the checkpoint; a claim of which nothing was remembered has nothing done. Unknown fields are ignored."""
    return Done() if state is None else msgspec.convert(state, Done)
