"""How long may a decision take? Core code reads no clock: it calls `check` while it works, and whoever owns the clock
ends the work by raising OutOfTime there.

Called with the worst-case cost (CEL units) of what comes next, before selectors are evaluated and between the steps of
a search. What was found out until then stays in the memory, so the same question goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias


class OutOfTime(Exception):
    """The time for this decision is over; neither a yes nor a no. node: where the allocator was; "" if nowhere."""

    def __init__(self, node: str = "") -> None:
        super().__init__(node)
        self.node = node


Check: TypeAlias = Callable[[int], None]


def unlimited(_cost: int) -> None:
    """For callers that have all the time there is."""
