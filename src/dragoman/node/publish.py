"""How do a driver's devices get into the API, and stay there? Slices written, watched and repaired.

One loop for each driver and node: whatever differs from what the driver publishes is written again. It decides nothing
about slices (`slices`) and writes only those of its own driver and node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.meta import OwnerReference
from dragoman.api.resource import ResourceSlice, ResourceSliceSpec
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer
from dragoman.errors import DragomanError, Invalid, NotFound, Retry, Stale
from dragoman.node.driver import Pool
from dragoman.node.routes import Routes
from dragoman.node.slices import PublisherScope, Writes, difference, dropped, equal
from dragoman.runtime.clock import Clock, Timer
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.retry import Backoff

SLICE = kind_of("ResourceSlice")
NODE = kind_of("Node")
RESYNC_S = 3.0
"""After somebody else changed a slice of ours: long enough not to fight, well under upstream's 30 s."""
BACKOFF = Backoff(initial_s=0.1, max_s=30.0, jitter=0.2)


def slice_routes(informer: Informer) -> Routes:
    """Slices by (driver, node) as publishers subscribe to them; pools bound to no node have the node ""."""
    return Routes(informer, lambda value: route_of(value.spec.driver, value.spec.node_name or ""))


def route_of(driver: str, node_name: str) -> str:
    """The route of one driver's slices for one node."""
    return f"{driver}/{node_name}"


def slice_selector(driver: str, node_name: str) -> str:
    """The field selector of an informer that serves one publisher alone."""
    return f"spec.driver={driver},spec.nodeName={node_name}"


class Publisher:
    """Keeps the slices of one driver as `publish` said last.

    only_pool: touch nothing but that pool, whose slices are bound to no node though the node owns them.
    report(error) hears what went wrong; publishing goes on. Metrics count by `wrote(verb)`.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        routes: Routes,
        *,
        driver: str,
        node_name: str,
        only_pool: str = "",
        report: Callable[[DragomanError], None] | None = None,
        wrote: Callable[[str], None] | None = None,
    ) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.routes = routes
        self.node_name = node_name
        self.only_pool = only_pool
        self._scope = PublisherScope(driver, "" if only_pool else node_name)
        self._pools: Mapping[str, Pool] | None = None
        self._stored: dict[str, ResourceSlice] = {}
        self._kept: dict[str, ResourceSliceSpec] = {}
        self._wake = asyncio.Event()
        self._later: Timer | None = None
        self._report = report or (lambda error: None)
        self._wrote = wrote or (lambda verb: None)
        self._log = get("publish", driver=driver, node=node_name)
        self.published = asyncio.Event()
        self.failing = False
        """Whether the last attempt did not end with everything in the API."""
        self.problem = ""
        """Why, as the last attempt said."""

    def publish(self, pools: Mapping[str, Pool]) -> None:
        """These pools from now on. `published` is set once they are in the API."""
        self._pools = dict(pools)
        self.published.clear()
        self._wake.set()

    async def run(self) -> None:
        """Publish for ever."""
        await self.routes.informer.synced()
        # What an earlier run knew may have changed while nobody listened.
        self._stored.clear()
        self._kept.clear()
        leave = self.routes.subscribe(route_of(self._scope.driver, self._scope.node_name), self._receive)
        failures = 0
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._pools is None:
                    continue
                try:
                    await self._reconcile(self._pools)
                    failures = 0
                    self.failing, self.problem = False, ""
                    self.published.set()
                except Invalid as error:
                    # Again the same would fail again: wait for other pools, or for somebody to change the slices.
                    self.failing, self.problem = True, str(error)
                    self._log.error("cannot publish", error=str(error))
                    self._report(error)
                except DragomanError as error:
                    failures += 1
                    self.failing = True
                    self._report(error)
                    wait_s = BACKOFF.wait_s(failures, self.entropy)
                    if isinstance(error, Retry) and error.after_s:
                        wait_s = max(wait_s, error.after_s)
                    if str(error) != self.problem:
                        self._log.warning("not published, trying again", error=str(error), wait_s=round(wait_s, 3))
                    self.problem = str(error)
                    await self.clock.sleep(wait_s)
                    self._wake.set()
        finally:
            leave()
            if self._later:
                self._later.cancel()

    # ---- what is there

    def _receive(self, what: str, value: ResourceSlice) -> None:
        if self.only_pool and value.spec.pool.name != self.only_pool:
            return
        name = value.metadata.name
        known = self._stored.get(name)
        if what == "gone":
            if known is None:
                return
            del self._stored[name]
            self._kept.pop(name, None)
        else:
            if known is not None and known.metadata.resource_version == value.metadata.resource_version:
                return
            self._stored[name] = value
            self._kept.pop(name, None)
        if self._pools is None:
            return
        if self._later is None:
            self._later = self.clock.call_later(RESYNC_S, self._resync)

    def _resync(self) -> None:
        self._later = None
        self._wake.set()

    def _learn(self, answer: Object, sent: ResourceSliceSpec) -> None:
        stored = codec.decode(ResourceSlice, answer)
        if stored.spec == sent:
            stored = msgspec.structs.replace(stored, spec=sent)  # one copy of the devices, shared with the pool
        name = stored.metadata.name
        self._stored[name] = stored
        # Ours came first: the watch will bring the same version, which then is no change.
        self.routes.informer.observe(answer)
        self._kept.pop(name, None)
        if not equal(sent, stored.spec):
            # To send it again would change nothing, and so on for ever.
            self._kept[name] = sent
            gates = dropped(sent, stored.spec) or ["unknown"]
            error = Invalid(
                f"ResourceSlice {name}",
                f"the server dropped fields; feature gates that seem to be off: {', '.join(gates)}",
            )
            self._log.warning("fields were dropped", slice=name, gates=gates)
            self._report(error)

    # ---- what is to be done

    async def _reconcile(self, pools: Mapping[str, Pool]) -> None:
        scope = await self._scoped()
        names = [name for name in pools if not self.only_pool or name == self.only_pool]
        by_pool: dict[str, list[ResourceSlice]] = {}
        for stored in self._stored.values():
            by_pool.setdefault(stored.spec.pool.name, []).append(stored)
        for name, slices in by_pool.items():
            if name not in pools:
                await self._carry_out(Writes(delete=tuple(slices)))
        for name in names:
            await self._carry_out(difference(scope, name, pools[name], by_pool.get(name, []), self._kept))

    async def _carry_out(self, writes: Writes) -> None:
        for old in writes.delete:
            await self._delete(old)
        for new in writes.update:
            body = _body(new)
            try:
                self._learn(await self.client.replace(SLICE, body), new.spec)
            except NotFound:
                self._stored.pop(new.metadata.name, None)
                raise Stale(f"ResourceSlice {new.metadata.name} is gone") from None
            self._wrote("update")
        for new in writes.create:
            self._learn(await self.client.create(SLICE, _body(new)), new.spec)
            self._wrote("create")

    async def _delete(self, old: ResourceSlice) -> None:
        meta = old.metadata
        with suppress(NotFound):
            await self.client.delete(SLICE, meta.name, uid=meta.uid, resource_version=meta.resource_version)
        self._stored.pop(meta.name, None)
        self._kept.pop(meta.name, None)
        self._wrote("delete")

    async def _scoped(self) -> PublisherScope:
        if self._scope.owner is None and self.node_name:
            try:
                node = await self.client.get(NODE, self.node_name)
            except NotFound:
                raise NotFound(
                    f"the cluster has no node {self.node_name}: its devices are published once it has; "
                    "is --node-name the name that `kubectl get nodes` shows?"
                ) from None
            owner = OwnerReference("v1", "Node", self.node_name, node["metadata"]["uid"], controller=True)
            self._scope = msgspec.structs.replace(self._scope, owner=owner)
        return self._scope


def _body(new: ResourceSlice) -> dict[str, Any]:
    body: dict[str, Any] = codec.to_json(new)
    return {"apiVersion": SLICE.api_version, "kind": SLICE.kind, **body}
