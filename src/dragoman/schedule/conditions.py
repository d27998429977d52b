"""May a placed pod be bound yet? Binding conditions of the devices of an allocated claim (KEP-5007).

Failure counts before success, and the clock starts at allocation, so a restart changes nothing. Never looks at
anything but the claim.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from dragoman.api.meta import Condition, parse_time
from dragoman.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from dragoman.schedule.refusal import BindingFailed

TIMEOUT_S = 600.0


class Ready(msgspec.Struct, frozen=True):
    """Every condition holds, or there is none."""


class Pending(msgspec.Struct, frozen=True):
    """Not yet; at the deadline it counts as failed. None: the claim does not say when it was allocated."""

    deadline: datetime | None


Binding: TypeAlias = Ready | Pending | BindingFailed


def binding_of(claim: ResourceClaim, now: datetime, timeout_s: float = TIMEOUT_S) -> Binding:
    """Whether the claim's devices let its pods be bound."""
    allocation = claim.status.allocation
    conditional = [r for r in allocation.devices.results if r.binding_conditions] if allocation is not None else []
    if allocation is None or not conditional:
        return Ready()
    reported = {_device(status): status.conditions for status in claim.status.devices}
    missing: list[tuple[DeviceRequestAllocationResult, str]] = []
    for result in conditional:
        conditions = reported.get(_device(result), ())
        failed = _first(conditions, result.binding_failure_conditions)
        if failed is not None:
            return BindingFailed(
                claim.metadata.name, _text(result), failed.type, failed.message or failed.reason, False
            )
        true = {condition.type for condition in conditions if condition.status == "True"}
        missing += [(result, name) for name in result.binding_conditions if name not in true]
    if not missing:
        return Ready()
    if allocation.allocation_timestamp is None:
        return Pending(None)
    deadline = parse_time(allocation.allocation_timestamp) + timedelta(seconds=timeout_s)
    if deadline <= now:
        result, name = missing[0]
        return BindingFailed(claim.metadata.name, _text(result), name, "", True)
    return Pending(deadline)


def _first(conditions: tuple[Condition, ...], types: tuple[str, ...]) -> Condition | None:
    return next((c for c in conditions if c.type in types and c.status == "True"), None)


def _device(of: AllocatedDeviceStatus | DeviceRequestAllocationResult) -> tuple[str, str, str, str]:
    return of.driver, of.pool, of.device, of.share_id or ""


def _text(result: DeviceRequestAllocationResult) -> str:
    return f"{result.driver}/{result.pool}/{result.device}"
