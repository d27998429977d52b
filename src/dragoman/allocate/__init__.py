"""Devices for claims, as a library: `from dragoman.allocate import Ask, Snapshot, allocate`; docs/guides/library.md.

The names are those of `dragoman.allocate.allocator`, the one door; they are imported when they are first asked for, so
that importing a part of this package does not import the search.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.allocate.allocator import (
        Allocation,
        AllocationCache,
        AllocatorOptions,
        Ask,
        NodeClass,
        Policy,
        SearchLimits,
        Survey,
        allocate,
        diagnose,
        inspect_claims,
        survey,
    )
    from dragoman.allocate.refusal import Refusal, Refusals, Undecided
    from dragoman.snapshot.change import Snapshot

__all__ = [
    "Allocation",
    "AllocationCache",
    "AllocatorOptions",
    "Ask",
    "NodeClass",
    "Policy",
    "Refusal",
    "Refusals",
    "SearchLimits",
    "Snapshot",
    "Survey",
    "Undecided",
    "allocate",
    "diagnose",
    "inspect_claims",
    "survey",
]

_ELSEWHERE = {
    "Refusal": "dragoman.allocate.refusal",
    "Refusals": "dragoman.allocate.refusal",
    "Undecided": "dragoman.allocate.refusal",
    "Snapshot": "dragoman.snapshot.change",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "dragoman.allocate.allocator")), name)
