"""Drivers for made-up hardware that fails, blocks and counts as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from dragoman.errors import Retry
from dragoman.node.cdi import DeviceNode, Edits
from dragoman.node.driver import (
    ClaimToPrepare,
    DeviceHealth,
    DeviceSetup,
    Pool,
    PreparedClaim,
    Setup,
    device,
)


class Lamps:
    """`count` lamps; `failures` prepares (`stuck` unprepares) fail first, `gate` holds prepare back."""

    name = "lamp.example.com"

    def __init__(self, node: str = "n1", count: int = 4) -> None:
        self.node = node
        self.count = count
        self.failures = 0
        self.stuck = 0
        self.gate: asyncio.Event | None = None
        self.lit: dict[str, set[str]] = {}
        self.calls: list[tuple[str, str]] = []

    async def pools(self) -> Mapping[str, Pool]:
        return {self.node: Pool(tuple(device(f"lamp-{n}", {"index": n}) for n in range(self.count)))}

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        self.calls.append(("prepare", claim.ref.name))
        if self.gate:
            await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise Retry("the lamp is hot")
        for result in claim.results:
            assert not any(result.device in lit for uid, lit in self.lit.items() if uid != claim.ref.uid), "lit twice"
        self.lit[claim.ref.uid] = {r.device for r in claim.results}
        return Setup(
            [
                DeviceSetup(
                    r.pool,
                    r.device,
                    Edits(env=(f"LAMP_{r.device[5:]}=on",), device_nodes=(DeviceNode(f"/dev/{r.device}"),)),
                )
                for r in claim.results
            ]
        )

    async def unprepare(self, claim: PreparedClaim) -> None:
        self.calls.append(("unprepare", claim.ref.name))
        if self.stuck:
            self.stuck -= 1
            raise Retry("the switch is stuck")
        self.lit.pop(claim.ref.uid, None)


class WatchedLamps(Lamps):
    """Lamps whose health is what `say` said last."""

    def __init__(self, node: str = "n1", count: int = 4) -> None:
        super().__init__(node, count)
        self._said: asyncio.Queue[Sequence[DeviceHealth]] = asyncio.Queue()

    def say(self, *devices: DeviceHealth) -> None:
        self._said.put_nowait(devices)

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        while True:
            yield await self._said.get()
