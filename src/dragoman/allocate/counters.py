"""What is left in a pool's counter sets, and which compatibility groups are present? (KEP-4815, KEP-5963)

Every held device of the pool draws what it consumes, once, also devices that target other nodes. Never knows what
a search takes; that is the ledger's.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from immutables import Map

from dragoman.api.resource import Device
from dragoman.snapshot.pools import VisiblePool
from dragoman.snapshot.usage import DeviceId, Holder

SetKey: TypeAlias = tuple[str, str, str]
"""(driver, pool, counter set)."""

Present: TypeAlias = "frozenset[str] | None"
"""Groups that all consumers of a set share; BARE: all have none; empty: nobody may join; None: no consumers."""

BARE: frozenset[str] = frozenset({""})


class Use(NamedTuple):
    """What a device draws from one counter set: (counter, nano-units) each, and its compatibility groups."""

    key: SetKey
    amounts: tuple[tuple[str, int], ...]
    groups: tuple[str, ...]


class Book(NamedTuple):
    """A pool's counters. published amounts, what is left of them (may be negative); overdrawn names the first
    counter that is.

    present: per set, see Present. recorded: sets on which a held device has recorded groups.
    """

    published: dict[tuple[SetKey, str], int]
    left: dict[tuple[SetKey, str], int]
    overdrawn: tuple[str, str] | None
    present: dict[SetKey, frozenset[str]]
    recorded: frozenset[SetKey]


def uses_of(device: Device, driver: str, pool: str) -> tuple[Use, ...]:
    """What a device draws on."""
    return tuple(
        Use(
            (driver, pool, use.counter_set),
            tuple((name, c.value.nanos if c.value is not None else 0) for name, c in use.counters.items()),
            use.compatibility_groups,
        )
        for use in device.consumes_counters
    )


def book_of(pool: VisiblePool, holders: Map[DeviceId, tuple[Holder, ...]]) -> Book:
    """The counters of a pool with what held devices draw taken off."""
    driver, name = pool.driver, pool.name
    published = {
        ((driver, name, group), counter): amount
        for group, counters in pool.counters.items()
        for counter, amount in counters.items()
    }
    left = dict(published)
    present: dict[SetKey, frozenset[str]] = {}
    recorded: set[SetKey] = set()
    for resource_slice in pool.resource_slices:
        for device in resource_slice.spec.devices:
            if not device.consumes_counters:
                continue
            held = holders.get(DeviceId(driver, name, device.name))
            if held is None:
                continue
            for use in uses_of(device, driver, name):
                for counter, amount in use.amounts:
                    left[use.key, counter] = left.get((use.key, counter), 0) - amount
                groups = _recorded(held, use.key[2])
                if groups:
                    recorded.add(use.key)
                present[use.key] = joined(present.get(use.key), groups)
    overdrawn = next(((key[2], counter) for (key, counter), amount in sorted(left.items()) if amount < 0), None)
    return Book(published, left, overdrawn, present, frozenset(recorded))


def admits(present: frozenset[str] | None, groups: tuple[str, ...]) -> bool:
    """Whether a device of these groups may join the present consumers of a set."""
    return present is None or bool(present & (frozenset(groups) or BARE))


def joined(present: frozenset[str] | None, groups: tuple[str, ...]) -> frozenset[str]:
    """The groups that all consumers share once another joins."""
    mine = frozenset(groups) or BARE
    return mine if present is None else present & mine


def _recorded(held: tuple[Holder, ...], group: str) -> tuple[str, ...]:
    for holder in held:
        found = holder.groups.get(group)
        if found:
            return found
    return ()
