"""What do a Node's labels say to the parts that serve it? Follows them; runs a part while its label lets it.

`nvidia.com/gpu.deploy.<part>` is how the GPU operator and the MIG manager start and stop the parts on a node: absent or
`true` it runs, with any other value (`false`, `paused-for-mig-change`) it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from dragoman.api.core import Node
from dragoman.node.routes import Routes
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.tasks import Tasks

DEPLOY = "nvidia.com/gpu.deploy."
TRUE = "true"


class NodeLabels:
    """The labels of one Node as they are now. Inside `followed`."""

    def __init__(self, routes: Routes, node_name: str) -> None:
        self.current: Mapping[str, str] = {}
        self.uid = ""
        self.known = False
        """Whether the Node was seen."""
        self._routes = routes
        self._node_name = node_name
        self._changes: set[asyncio.Event] = set()

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Follow while the body runs."""
        leave = self._routes.subscribe(self._node_name, self._heard)
        try:
            yield
        finally:
            leave()

    def _heard(self, what: str, node: Node) -> None:
        if what == "gone":
            return
        self.current, self.uid, self.known = dict(node.metadata.labels), node.metadata.uid, True
        for event in self._changes:
            event.set()

    async def until(self, holds: Callable[[Mapping[str, str]], bool]) -> Mapping[str, str]:
        """Wait until the labels are so; returns them."""
        event = asyncio.Event()
        self._changes.add(event)
        try:
            while not (self.known and holds(self.current)):
                event.clear()
                await event.wait()
            return self.current
        finally:
            self._changes.discard(event)

    def runs(self, part: str) -> bool:
        """Whether a part may run on the node."""
        return self.current.get(DEPLOY + part, TRUE) == TRUE

    async def deployed(self, part: str, run: Callable[[], Awaitable[None]], clock: Clock, entropy: Entropy) -> None:
        """Run a part whenever its label lets it, for ever."""
        while True:
            await self.until(lambda labels: self.runs(part))
            async with Tasks(part, clock, entropy) as tasks:
                tasks.supervise(part, run)
                await self.until(lambda labels: not self.runs(part))
                tasks.stop()
