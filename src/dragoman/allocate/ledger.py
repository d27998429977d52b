"""What has this search taken so far? Mark and rewind: a failed branch leaves no trace.

Keeps, across all claims and nodes of one search: devices taken, shares and amounts used, counters left,
compatibility groups present, constraint states, results a claim. Never looks at a snapshot.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from dragoman.allocate import constraint, counters
from dragoman.allocate.constraint import ValueSet
from dragoman.allocate.counters import SetKey
from dragoman.allocate.device_state import DeviceState
from dragoman.snapshot.usage import DeviceId

Mark: TypeAlias = int
ConstraintKey: TypeAlias = tuple[int, int]
"""(claim, constraint)."""

_ABSENT: Any = object()


class Ledger:
    """All state of one search. `usage(id)` is what distinguishes a touched device from an untouched one (None)."""

    __slots__ = ("left", "lists", "present", "states", "trail", "used", "whole")

    def __init__(self, *, lists: bool) -> None:
        self.lists = lists
        self.trail: list[tuple[dict[Any, Any], Any, Any]] = []
        self.whole: dict[DeviceId, tuple[tuple[int, bool], ...]] = {}  # claims that took it whole, by admin access?
        self.used: dict[DeviceId, tuple[int, tuple[int, ...]]] = {}  # shares taken and amounts, by capacity
        self.left: dict[tuple[SetKey, str], int] = {}
        self.present: dict[SetKey, frozenset[str] | None] = {}
        self.states: dict[ConstraintKey, ValueSet] = {}

    def mark(self) -> Mark:
        """A point to rewind to."""
        return len(self.trail)

    def rewind(self, mark: Mark) -> None:
        """Back to how it was at the mark."""
        trail = self.trail
        while len(trail) > mark:
            book, key, old = trail.pop()
            if old is _ABSENT:
                del book[key]
            else:
                book[key] = old

    def _set(self, book: dict[Any, Any], key: Any, value: Any) -> None:
        self.trail.append((book, key, book.get(key, _ABSENT)))
        book[key] = value

    def usage(self, device: DeviceId) -> Any:
        """How a device was touched in this search; equal usages of equivalent devices are interchangeable."""
        return self.whole.get(device) or self.used.get(device)

    def in_use(self, device_state: DeviceState, claim: int, *, admin: bool) -> bool:
        """Whether a take of this search stands in the way of another one of the same device.

        An admin take bars the requests of its claim and normal ones of later claims, whichever is made first.
        """
        for other, by_admin in self.whole.get(device_state.id, ()):
            if other == claim or not (admin or by_admin):
                return True
            if (by_admin and not admin and other < claim) or (admin and not by_admin and claim < other):
                return True
        return False

    def available(self, device_state: DeviceState, claim: int, amounts: tuple[int, ...], *, admin: bool) -> bool:
        """Whether the device itself can be taken now: not in use, enough capacity and counters left."""
        if admin:
            return not self.in_use(device_state, claim, admin=True)
        if device_state.multi:
            used = self.used.get(device_state.id)
            if used is not None:  # counters are charged once a device
                return all(
                    have - gone >= more
                    for have, gone, more in zip(device_state.left.values(), used[1], amounts, strict=True)
                )
            return device_state.shares > 0 or self.counters_allow(device_state)
        if device_state.id in self.whole and self.in_use(device_state, claim, admin=False):
            return False
        return self.counters_allow(device_state)

    def counters_allow(self, device_state: DeviceState) -> bool:
        """Whether the counters and compatibility groups allow one more device like this."""
        for use in device_state.uses:
            for counter, amount in use.amounts:
                if self.counter_left(device_state, use.key, counter) < amount:
                    return False
            if not counters.admits(self.groups_present(device_state, use.key), use.groups):
                return False
        return True

    def counter_left(self, device_state: DeviceState, key: SetKey, counter: str) -> int:
        """What is left of a counter now, in nano-units."""
        found = self.left.get((key, counter))
        if found is not None:
            return found
        assert device_state.book is not None
        return device_state.book.left[key, counter]

    def groups_present(self, device_state: DeviceState, key: SetKey) -> frozenset[str] | None:
        """The groups present in a counter set now."""
        if key in self.present:
            return self.present[key]
        assert device_state.book is not None
        return device_state.book.present.get(key)

    def take(self, device_state: DeviceState, claim: int, amounts: tuple[int, ...], *, admin: bool) -> None:
        """Takes an available device. An admin take is remembered, but draws on nothing."""
        if device_state.multi:
            if admin:
                return
            used = self.used.get(device_state.id)
            if used is None:
                self._set(self.used, device_state.id, (1, amounts))
                if not device_state.shares:
                    self._charge(device_state)
            else:
                total = tuple(gone + more for gone, more in zip(used[1], amounts, strict=True))
                self._set(self.used, device_state.id, (used[0] + 1, total))
            return
        self._set(self.whole, device_state.id, (*self.whole.get(device_state.id, ()), (claim, admin)))
        if not admin:
            self._charge(device_state)

    def _charge(self, device_state: DeviceState) -> None:
        for use in device_state.uses:
            for counter, amount in use.amounts:
                self._set(self.left, (use.key, counter), self.counter_left(device_state, use.key, counter) - amount)
            self._set(self.present, use.key, counters.joined(self.groups_present(device_state, use.key), use.groups))

    def join(self, key: ConstraintKey, kind: str, token: ValueSet) -> bool:
        """Adds a device's value to a constraint; False (and nothing changed) if the constraint forbids it."""
        state = constraint.joined(kind, self.states.get(key), token, lists=self.lists)
        if state is None:
            return False
        self._set(self.states, key, state)
        return True
