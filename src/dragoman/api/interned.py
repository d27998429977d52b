"""How do thousands of alike devices fit into memory? Equal parts of slices are kept once.

Values are frozen, so nobody can tell. The memory of parts is bounded; what falls out is only not shared any more.
"""

from __future__ import annotations

from typing import Any, TypeVar

from dragoman.api.resource import ResourceSlice

T = TypeVar("T")

PARTS_MAX = 32_768
_parts: dict[Any, Any] = {}


def intern(slice_: ResourceSlice) -> None:
    """Replace parts of a slice by equal ones seen before; it must be freshly decoded and seen by nobody else."""
    for device in slice_.spec.devices:
        attributes, capacity = device.attributes, device.capacity
        for key, attribute in attributes.items():
            attributes[key] = _once(attribute, attribute)
        for key, amount in capacity.items():
            if amount.request_policy is None:
                # Quantities are equal by value; their texts, 1024 and 1Ki, must stay apart.
                capacity[key] = _once(("capacity", str(amount.value)), amount)


def _once(key: Any, part: T) -> T:
    known: T | None = _parts.get(key)
    if known is not None:
        return known
    if len(_parts) >= PARTS_MAX:
        _parts.clear()
    _parts[key] = part
    return part
