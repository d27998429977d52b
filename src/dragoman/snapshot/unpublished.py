"""Which held devices does no slice publish, and what else may they use? Which device came back as another card?

A claim holds a device by its name. After a driver restart, an update or a new MIG layout its pool may not show that
name any longer: the device is in use all the same, and what it draws on is known only if an older slice is there still.
Never decides whether something else may be allocated: upstream's allocator does not know of such devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.snapshot.usage import DeviceId, Holder
from dragoman.values.names import split_qualified

if TYPE_CHECKING:
    from dragoman.api.resource import Device, ResourceClaim
    from dragoman.snapshot.change import Snapshot

IDENTITIES = frozenset({"uuid", "guid", "serial", "serialnumber", "serial_number", "chipid", "uniqueid"})
"""Names of attributes (any domain, any case) that identify a piece of hardware."""
PARENT = "parent"


class UnpublishedDevice(NamedTuple):
    """A held device that its pool does not publish.

    sets: the counter sets that it may draw on; None: not known, so any of its pool. parents: identities of the card
    that it is a part of, as far as an older slice says.
    """

    id: DeviceId
    holders: tuple[Holder, ...]
    sets: frozenset[str] | None
    identities: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()


class Replaced(NamedTuple):
    """A device whose identity is not that of the device of this name when it was allocated."""

    id: DeviceId
    attribute: str
    before: str
    now: str


def unpublished_names(held: Iterable[DeviceId], published: Iterable[str]) -> tuple[str, ...]:
    """Names of held devices of a pool that are not among those published, sorted."""
    return tuple(sorted({device.device for device in held} - set(published)))


def unpublished_of(snapshot: Snapshot, driver: str, pool: str) -> tuple[UnpublishedDevice, ...]:
    """The held devices of a pool that its newest generation does not publish, by name."""
    held = snapshot.held_by_pool.get((driver, pool))
    if not held:
        return ()
    slices = [snapshot.slices[name] for name in sorted(snapshot.slices_by_pool.get((driver, pool), ()))]
    newest = max((s.spec.pool.generation for s in slices), default=0)
    now = {device.name: device for s in slices if s.spec.pool.generation == newest for device in s.spec.devices}
    names = unpublished_names(held, now)
    if not names:
        return ()
    old = {device.name: device for s in slices if s.spec.pool.generation < newest for device in s.spec.devices}
    return tuple(
        UnpublishedDevice(
            DeviceId(driver, pool, name),
            snapshot.holders[DeviceId(driver, pool, name)],
            _sets(name, old.get(name), now.values()),
            *_identified(old.get(name), driver),
        )
        for name in names
    )


def overlaps(held: UnpublishedDevice, device: Device) -> bool:
    """Whether a published device may use what an unpublished one of its pool does: a counter set, or one's the other's
    parent."""
    if related(held.id.device, device.name):
        return True
    if any(held.sets is None or use.counter_set in held.sets for use in device.consumes_counters):
        return True
    if not held.identities and not held.parents:
        return False
    identities, parents = _identified(device, held.id.driver)
    return bool(held.identities & parents or held.parents & identities)


def related(one: str, other: str) -> bool:
    """Whether one name extends the other, as `gpu-0-mig-9-4` does `gpu-0`."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and len(long) > len(short) and not long[len(short)].isalnum()


def _sets(name: str, old: Device | None, published: Iterable[Device]) -> frozenset[str] | None:
    """What the old slice says, or the sets of the device that the name extends or that extends it."""
    if old is not None:
        return frozenset(use.counter_set for use in old.consumes_counters)
    near = [device for device in published if related(name, device.name)]
    found = frozenset(use.counter_set for device in near for use in device.consumes_counters)
    return found or None


def _identified(device: Device | None, driver: str) -> tuple[frozenset[str], frozenset[str]]:
    """A device's own identities, and those of its parent."""
    own: set[str] = set()
    parents: set[str] = set()
    for key, attribute in device.attributes.items() if device is not None else ():
        name = split_qualified(key, driver)[1].lower()
        if attribute.string and name in IDENTITIES:
            own.add(attribute.string)
        elif attribute.string and name.startswith(PARENT):
            parents.add(attribute.string)
    return frozenset(own), frozenset(parents)


# ---- another card under the same name


def replaced_of(snapshot: Snapshot, claim: ResourceClaim) -> Iterator[Replaced]:
    """Devices of a claim that are other hardware now than what it was allocated.

    What it was is read from the claim's status.devices[].data, and from slices of older generations.
    """
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        device = DeviceId(result.driver, result.pool, result.device)
        slices = [
            snapshot.slices[name] for name in sorted(snapshot.slices_by_pool.get((device.driver, device.pool), ()))
        ]
        newest = max((s.spec.pool.generation for s in slices), default=0)
        now: dict[str, str] = {}
        before: dict[str, str] = {}
        for s in sorted(slices, key=lambda s: s.spec.pool.generation):
            for entry in s.spec.devices:
                if entry.name == device.device:
                    (now if s.spec.pool.generation == newest else before).update(_named(entry, device.driver))
        for status in claim.status.devices:
            if (status.driver, status.pool, status.device) == tuple(device):
                before |= dict(_in_data(status.data))
        for name, value in sorted(before.items()):
            if name in now and now[name] != value:
                yield Replaced(device, name, value, now[name])
                break


def _named(device: Device, driver: str) -> Iterator[tuple[str, str]]:
    for key, attribute in device.attributes.items():
        name = split_qualified(key, driver)[1].lower()
        if attribute.string and name in IDENTITIES:
            yield name, attribute.string


def _in_data(data: Any) -> Iterator[tuple[str, str]]:
    """Identities that a driver wrote into a device's status, on the first or second level."""
    for key, value in data.items() if isinstance(data, dict) else ():
        if isinstance(value, str) and key.lower() in IDENTITIES:
            yield key.lower(), value
        elif isinstance(value, dict):
            for inner, text in value.items():
                if isinstance(text, str) and inner.lower() in IDENTITIES:
                    yield inner.lower(), text
