"""How do thousands of equivalent devices fit into memory? Equal parts of slices are kept once.

Values are frozen, so nobody can tell. What is remembered is bounded; what falls out is only not shared any more.
"""

from __future__ import annotations

from typing import Any, TypeVar

from dragoman.api.resource import ResourceSlice

T = TypeVar("T")

PARTS_MAX = 32_768
SLICES_MAX = 4096
_parts: dict[Any, Any] = {}
_slices: dict[tuple[str, str], ResourceSlice] = {}


def interned(slice_: ResourceSlice) -> ResourceSlice:
    """An equal slice: that of another informer, or this one with parts replaced by equal ones seen before.

    The slice must be freshly decoded and seen by nobody else.
    """
    key = (slice_.metadata.uid, slice_.metadata.resource_version)
    known = _slices.get(key)
    if known is not None and known == slice_:
        return known
    for device in slice_.spec.devices:
        attributes, capacity = device.attributes, device.capacity
        for name, attribute in attributes.items():
            attributes[name] = _once(attribute, attribute)
        for name, amount in capacity.items():
            if amount.request_policy is None:
                # Quantities are equal by value; their texts, 1024 and 1Ki, must stay apart.
                capacity[name] = _once(("capacity", str(amount.value)), amount)
    if slice_.metadata.resource_version:
        if len(_slices) >= SLICES_MAX:
            _slices.clear()
        _slices[key] = slice_
    return slice_


def _once(key: Any, part: T) -> T:
    known: T | None = _parts.get(key)
    if known is not None:
        return known
    if len(_parts) >= PARTS_MAX:
        _parts.clear()
    _parts[key] = part
    return part
