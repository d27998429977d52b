"""What has this search taken so far? Mark and rewind: a failed branch leaves no trace.

Keeps, across all claims and nodes of one search: devices taken, shares and amounts used, counters left,
compatibility groups present, constraint states, results a claim. Never looks at a snapshot.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from dragoman.allocate import constraint, counters
from dragoman.allocate.constraint import ValueSet
from dragoman.allocate.counters import SetKey
from dragoman.allocate.offers import Offer
from dragoman.snapshot.usage import DeviceId

Mark: TypeAlias = int
ConstraintKey: TypeAlias = tuple[int, int]
"""(claim, constraint)."""

_ABSENT: Any = object()


class Ledger:
    """All state of one search. `usage(id)` is what distinguishes a touched device from an untouched one (None)."""

    __slots__ = ("left", "lists", "present", "states", "taken", "trail", "used")

    def __init__(self, *, lists: bool) -> None:
        self.lists = lists
        self.trail: list[tuple[dict[Any, Any], Any, Any]] = []
        self.taken: dict[DeviceId, tuple[tuple[int, bool], ...]] = {}  # claims that took it whole, by admin access?
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
        """How a device was touched in this search; equal usages of alike devices are interchangeable."""
        return self.taken.get(device) or self.used.get(device)

    def in_use(self, offer: Offer, claim: int, *, admin: bool) -> bool:
        """Whether a take of this search stands in the way of another one of the same device.

        An admin take bars the requests of its claim and normal ones of later claims, whichever is made first.
        """
        for other, by_admin in self.taken.get(offer.id, ()):
            if other == claim or not (admin or by_admin):
                return True
            if (by_admin and not admin and other < claim) or (admin and not by_admin and claim < other):
                return True
        return False

    def available(self, offer: Offer, claim: int, amounts: tuple[int, ...], *, admin: bool) -> bool:
        """Whether the device itself can be taken now: not in use, enough capacity and counters left."""
        if admin:
            return not self.in_use(offer, claim, admin=True)
        if offer.multi:
            used = self.used.get(offer.id)
            if used is not None:  # counters are charged once a device
                return all(
                    have - gone >= more for have, gone, more in zip(offer.left.values(), used[1], amounts, strict=True)
                )
            return offer.shares > 0 or self.counters_allow(offer)
        if offer.id in self.taken and self.in_use(offer, claim, admin=False):
            return False
        return self.counters_allow(offer)

    def counters_allow(self, offer: Offer) -> bool:
        """Whether the counters and compatibility groups allow one more device like this."""
        for use in offer.uses:
            for counter, amount in use.amounts:
                if self.counter_left(offer, use.key, counter) < amount:
                    return False
            if not counters.admits(self.groups_present(offer, use.key), use.groups):
                return False
        return True

    def counter_left(self, offer: Offer, key: SetKey, counter: str) -> int:
        """What is left of a counter now, in nano-units."""
        found = self.left.get((key, counter))
        if found is not None:
            return found
        assert offer.book is not None
        return offer.book.left[key, counter]

    def groups_present(self, offer: Offer, key: SetKey) -> frozenset[str] | None:
        """The groups present in a counter set now."""
        if key in self.present:
            return self.present[key]
        assert offer.book is not None
        return offer.book.present.get(key)

    def take(self, offer: Offer, claim: int, amounts: tuple[int, ...], *, admin: bool) -> None:
        """Takes an available device. An admin take is remembered, but draws on nothing."""
        if offer.multi:
            if admin:
                return
            used = self.used.get(offer.id)
            if used is None:
                self._set(self.used, offer.id, (1, amounts))
                if not offer.shares:
                    self._charge(offer)
            else:
                total = tuple(gone + more for gone, more in zip(used[1], amounts, strict=True))
                self._set(self.used, offer.id, (used[0] + 1, total))
            return
        self._set(self.taken, offer.id, (*self.taken.get(offer.id, ()), (claim, admin)))
        if not admin:
            self._charge(offer)

    def _charge(self, offer: Offer) -> None:
        for use in offer.uses:
            for counter, amount in use.amounts:
                self._set(self.left, (use.key, counter), self.counter_left(offer, use.key, counter) - amount)
            self._set(self.present, use.key, counters.joined(self.groups_present(offer, use.key), use.groups))

    def join(self, key: ConstraintKey, kind: str, token: ValueSet) -> bool:
        """Adds a device's value to a constraint; False (and nothing changed) if the constraint forbids it."""
        state = constraint.joined(kind, self.states.get(key), token, lists=self.lists)
        if state is None:
            return False
        self._set(self.states, key, state)
        return True
