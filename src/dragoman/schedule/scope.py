"""Which devices may this scheduler give away? All of them, or those of some drivers or pools: a fence from inside.

What is not in scope is not seen at all, so it cannot be allocated. Never allocates anything.
"""

from __future__ import annotations

import msgspec

from dragoman.snapshot.change import Change, Put


class DeviceScope(msgspec.Struct, frozen=True):
    """drivers and (driver, pool) pairs; without any: everything."""

    drivers: frozenset[str] = frozenset()
    pools: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def parse(cls, text: str) -> DeviceScope:
        """`DRIVER` or `DRIVER/POOL`, with commas between; pools may contain slashes."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        pairs = [part.partition("/") for part in parts]
        return cls(
            frozenset(driver for driver, slash, _ in pairs if not slash),
            frozenset((driver, pool) for driver, slash, pool in pairs if slash),
        )

    def covers(self, driver: str, pool: str) -> bool:
        """Whether devices of the pool are in scope."""
        if not self.drivers and not self.pools:
            return True
        return driver in self.drivers or (driver, pool) in self.pools

    def shows(self, change: Change) -> bool:
        """Whether a change may enter the snapshot: ResourceSlices of other pools may not."""
        if not isinstance(change, Put) or change.kind != "ResourceSlice":
            return True
        spec = change.object.spec
        return self.covers(spec.driver, spec.pool.name)


EVERYTHING = DeviceScope()
