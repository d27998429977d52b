"""What goes in and out of the allocator's door, apart from refusals."""

from __future__ import annotations

import msgspec

from dragoman.allocate.refusal import Refusal
from dragoman.api.resource import AllocationResult, ResourceClaim


class Ask(msgspec.Struct, frozen=True):
    """Claims to allocate together on one node, in order. Already allocated claims do not belong here."""

    claims: tuple[ResourceClaim, ...]
    node: str


class ChosenAlternative(msgspec.Struct, frozen=True):
    """Which alternative of a firstAvailable request was chosen: index counts from 0 (for scoring: 8 - index)."""

    claim: str
    request: str
    index: int


class Allocation(msgspec.Struct, frozen=True):
    """A yes. results[i][j] belongs to asks[i].claims[j]; chosen lists the firstAvailable requests.

    warnings: selectors that failed on devices which a policy other than first-fit left out.
    """

    results: tuple[tuple[AllocationResult, ...], ...]
    chosen: tuple[ChosenAlternative, ...] = ()
    warnings: tuple[Refusal, ...] = ()
    steps: int = 0
