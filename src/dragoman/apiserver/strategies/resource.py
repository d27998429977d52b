"""What do the kinds of resource.k8s.io need beyond validation? Isolation of status, generations, pruning."""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import Write
from dragoman.apiserver.strategies.base import STATUS_KEEPS, Generational, Strategy, dig


class DeviceClassStrategy(Generational):
    """DeviceClass keeps a generation."""

    returns_deleted = True


class ClaimStrategy(Strategy):
    """ResourceClaim: spec is immutable, devices that are no longer allocated leave status.devices."""

    status_keeps = STATUS_KEEPS
    returns_deleted = True

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Prune what belongs to devices of a former allocation."""
        status = new.get("status")
        if subresource == "status" and isinstance(status, dict) and isinstance(status.get("devices"), list):
            results = dig(status, "allocation", "devices", "results") or []
            held = {_device(result) for result in results}
            kept = [device for device in status["devices"] if _device(device) in held or _is_new(device, old)]
            if kept:
                status["devices"] = kept
            else:
                del status["devices"]
        return []


def _device(entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, dict):
        return ()
    return tuple(entry.get(field) for field in ("driver", "pool", "device", "shareID"))


def _is_new(device: Any, old: Object) -> bool:
    # Only entries stored before are pruned; a new one for a device that is not allocated is an error to report.
    stored = dig(old, "status", "devices") or []
    return all(_device(device) != _device(before) for before in stored)


class SliceStrategy(Generational):
    """ResourceSlice keeps a generation; upper case in driver names is warned of."""

    returns_deleted = True

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Warn of upper case."""
        return _upper_case(obj)

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Warn of upper case."""
        return _upper_case(new)


def _upper_case(obj: Object) -> list[str]:
    driver = dig(obj, "spec", "driver")
    if isinstance(driver, str) and driver != driver.lower():
        return [f"spec.driver: driver names should be all lowercase, got {driver!r}"]
    return []


class TaintRuleStrategy(Generational):
    """DeviceTaintRule: a new effect starts a new time."""

    status_keeps = STATUS_KEEPS
    returns_deleted = True

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Stamp a taint whose effect changes while its time was sent back unchanged."""
        after, before = dig(new, "spec", "taint"), dig(old, "spec", "taint")
        if isinstance(after, dict) and isinstance(before, dict):
            same_time = after.get("timeAdded") == before.get("timeAdded")
            if same_time and after.get("effect") != before.get("effect"):
                after["timeAdded"] = lookup.now_text()
        return []
