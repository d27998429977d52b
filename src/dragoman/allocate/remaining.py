"""How much of each device of a node is free, and how much of one does a claim take? In thousandths of devices.

The terms of `allocate.worth`. A device that several claims may share counts by the scarcest of its capacities,
partitions by the scarcest counter of the set they draw on (one entry a set), any other as a whole. The make of a
device is its driver. Never judges whether anything fits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from dragoman.allocate.counters import Use
from dragoman.allocate.device_state import DeviceState
from dragoman.allocate.fragmentation import WHOLE, TaskType

RemainingDevices: TypeAlias = tuple[tuple[str, int], ...]
"""(make, thousandths left) of each device with something left, sorted."""


class ConsumedDevice(NamedTuple):
    """A device and what a claim takes of its capacities, nano-units in their order."""

    device_state: DeviceState
    amounts: tuple[int, ...] = ()


class ConsumedOnNode(NamedTuple):
    """What claims take on a node: free devices before and after, and as which kind of task (cpu and memory aside)."""

    before: RemainingDevices
    after: RemainingDevices
    kind: TaskType


class Stock:
    """The devices of a node, free as far as they are."""

    def __init__(self, device_states: Sequence[DeviceState]) -> None:
        self._entries: dict[Hashable, tuple[str, int]] = {}
        for device_state in device_states:
            if device_state.uses and not device_state.multi:
                for use in device_state.uses:
                    if use.key not in self._entries:
                        self._entries[use.key] = (device_state.driver, _set_left(device_state, use.key, ()))
            elif not device_state.exclusive:
                self._entries[device_state.id] = (device_state.driver, _device_left(device_state, ()))

    def left(self, picks: Iterable[ConsumedDevice] = ()) -> RemainingDevices:
        """What is free once these are taken too."""
        picks = tuple(picks)
        entries = self._entries
        if picks:
            entries = dict(entries)
            for pick in picks:
                device_state = pick.device_state
                if device_state.uses and not device_state.multi:
                    for use in device_state.uses:
                        entries[use.key] = (device_state.driver, _set_left(device_state, use.key, picks))
                else:
                    entries[device_state.id] = (device_state.driver, _device_left(device_state, picks))
        return tuple(sorted(entry for entry in entries.values() if entry[1] > 0))


def _device_left(device_state: DeviceState, picks: Sequence[ConsumedDevice]) -> int:
    mine = [pick for pick in picks if pick.device_state is device_state]
    if not device_state.multi:
        return 0 if mine else WHOLE
    shares = []
    for place, (name, entry) in enumerate(device_state.capacity.items()):
        total = entry.value.nanos if entry.value is not None else 0
        if total > 0:
            left = device_state.left[name] - sum(pick.amounts[place] for pick in mine if pick.amounts)
            shares.append(WHOLE * left // total)
    return min(shares, default=WHOLE)


def _set_left(device_state: DeviceState, key: Hashable, picks: Sequence[ConsumedDevice]) -> int:
    book = device_state.book
    if book is None:
        return WHOLE
    drawn: dict[str, int] = {}
    for pick in picks:
        for use in pick.device_state.uses:
            if use.key == key:
                for counter, amount in use.amounts:
                    drawn[counter] = drawn.get(counter, 0) + amount
    shares = [
        WHOLE * (book.left[known, counter] - drawn.get(counter, 0)) // total
        for (known, counter), total in book.published.items()
        if known == key and total > 0
    ]
    return min(shares, default=WHOLE)


def consumed_by(device_states: Sequence[DeviceState], picks: Sequence[ConsumedDevice]) -> ConsumedOnNode:
    """What these picks among a node's devices take."""
    stock = Stock(device_states)
    makes = frozenset(pick.device_state.driver for pick in picks)
    kind = TaskType(len(picks), max(map(_share, picks), default=0), makes=makes)
    return ConsumedOnNode(stock.left(), stock.left(picks) if picks else stock.left(), kind)


def _share(pick: ConsumedDevice) -> int:
    """Thousandths of a device that a pick takes, at least one."""
    device_state = pick.device_state
    parts = [WHOLE]
    if device_state.multi:
        values = (entry.value for entry in device_state.capacity.values())
        totals = [value.nanos if value is not None else 0 for value in values]
        parts = [-(-WHOLE * amount // total) for amount, total in zip(pick.amounts, totals, strict=False) if total > 0]
    elif device_state.uses and device_state.book is not None:
        parts = [_drawn(device_state, use) for use in device_state.uses]
    return min(WHOLE, max(parts, default=1) or 1)


def _drawn(device_state: DeviceState, use: Use) -> int:
    assert device_state.book is not None
    published = device_state.book.published
    return max(
        (-(-WHOLE * amount // total) for counter, amount in use.amounts if (total := published[use.key, counter]) > 0),
        default=WHOLE,
    )
