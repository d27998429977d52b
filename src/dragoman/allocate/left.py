"""How much of each device of a node is free, and how much of one does a claim take? In thousandths of devices.

The terms of `allocate.worth`. A device that several claims may share counts by the scarcest of its capacities,
partitions by the scarcest counter of the set they draw on (one entry a set), any other as a whole. The make of a
device is its driver. Never judges whether anything fits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from dragoman.allocate.counters import Use
from dragoman.allocate.offers import Offer
from dragoman.allocate.worth import WHOLE, Kind

Left: TypeAlias = tuple[tuple[str, int], ...]
"""(make, thousandths left) of each device with something left, sorted."""


class Pick(NamedTuple):
    """A device and what a claim takes of its capacities, nano-units in their order."""

    offer: Offer
    amounts: tuple[int, ...] = ()


class Taken(NamedTuple):
    """What claims take on a node: free devices before and after, and as which kind of task (cpu and memory aside)."""

    before: Left
    after: Left
    kind: Kind


class Stock:
    """The devices of a node, free as far as they are."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._entries: dict[Hashable, tuple[str, int]] = {}
        for offer in offers:
            if offer.uses and not offer.multi:
                for use in offer.uses:
                    if use.key not in self._entries:
                        self._entries[use.key] = (offer.driver, _set_left(offer, use.key, ()))
            elif not offer.exclusive:
                self._entries[offer.id] = (offer.driver, _device_left(offer, ()))

    def left(self, picks: Iterable[Pick] = ()) -> Left:
        """What is free once these are taken too."""
        picks = tuple(picks)
        entries = self._entries
        if picks:
            entries = dict(entries)
            for pick in picks:
                offer = pick.offer
                if offer.uses and not offer.multi:
                    for use in offer.uses:
                        entries[use.key] = (offer.driver, _set_left(offer, use.key, picks))
                else:
                    entries[offer.id] = (offer.driver, _device_left(offer, picks))
        return tuple(sorted(entry for entry in entries.values() if entry[1] > 0))


def _device_left(offer: Offer, picks: Sequence[Pick]) -> int:
    mine = [pick for pick in picks if pick.offer is offer]
    if not offer.multi:
        return 0 if mine else WHOLE
    shares = []
    for place, (name, entry) in enumerate(offer.capacity.items()):
        total = entry.value.nanos if entry.value is not None else 0
        if total > 0:
            left = offer.left[name] - sum(pick.amounts[place] for pick in mine if pick.amounts)
            shares.append(WHOLE * left // total)
    return min(shares, default=WHOLE)


def _set_left(offer: Offer, key: Hashable, picks: Sequence[Pick]) -> int:
    book = offer.book
    if book is None:
        return WHOLE
    drawn: dict[str, int] = {}
    for pick in picks:
        for use in pick.offer.uses:
            if use.key == key:
                for counter, amount in use.amounts:
                    drawn[counter] = drawn.get(counter, 0) + amount
    shares = [
        WHOLE * (book.left[known, counter] - drawn.get(counter, 0)) // total
        for (known, counter), total in book.published.items()
        if known == key and total > 0
    ]
    return min(shares, default=WHOLE)


def taken(offers: Sequence[Offer], picks: Sequence[Pick]) -> Taken:
    """What these picks among a node's devices take."""
    stock = Stock(offers)
    makes = frozenset(pick.offer.driver for pick in picks)
    kind = Kind(len(picks), max(map(_share, picks), default=0), makes=makes)
    return Taken(stock.left(), stock.left(picks) if picks else stock.left(), kind)


def _share(pick: Pick) -> int:
    """Thousandths of a device that a pick takes, at least one."""
    offer = pick.offer
    parts = [WHOLE]
    if offer.multi:
        values = (entry.value for entry in offer.capacity.values())
        totals = [value.nanos if value is not None else 0 for value in values]
        parts = [-(-WHOLE * amount // total) for amount, total in zip(pick.amounts, totals, strict=False) if total > 0]
    elif offer.uses and offer.book is not None:
        parts = [_drawn(offer, use) for use in offer.uses]
    return min(WHOLE, max(parts, default=1) or 1)


def _drawn(offer: Offer, use: Use) -> int:
    assert offer.book is not None
    published = offer.book.published
    return max(
        (-(-WHOLE * amount // total) for counter, amount in use.amounts if (total := published[use.key, counter]) > 0),
        default=WHOLE,
    )
