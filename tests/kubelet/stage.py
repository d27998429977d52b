"""A cluster's API in process, node agents and drivers over real sockets, and claims allocated by hand."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.cluster.client import Client
from dragoman.drivers.example.driver import ExampleDriver
from dragoman.errors import NotFound
from dragoman.kubelet.agent import NodeAgent
from dragoman.kubelet.node_object import NodeProperties
from dragoman.node.driver import Driver
from dragoman.node.plugin import Places, Plugin, PluginOptions
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.wait import until

POD, CLAIM, EVENT, NODE, SLICE = (kind_of(name) for name in ("Pod", "ResourceClaim", "Event", "Node", "ResourceSlice"))
DEADLINE_S = 60.0
S = TypeVar("S", bound="Stage")


class Stage:
    """Everything of one test; `folder` is short, since sockets lie in it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.clock = clock
        self.entropy = Entropy(7)
        registry = in_memory(clock, self.entropy)
        self.api = InProcessClient(registry)
        self.client: Client = self.api
        self.agents: dict[str, NodeAgent] = {}
        self._running: dict[Any, asyncio.Task[None]] = {}

    # ---- actors

    async def agent(self, node: str = "n1", **options: Any) -> NodeAgent:
        """A started agent."""
        facts = options.pop("facts", NodeProperties(boot_id="boot-1"))
        agent = NodeAgent(
            node,
            self.client,
            self.clock,
            self.folder / node,
            entropy=self.entropy,
            facts=facts,
            durable=False,
            **options,
        )
        self._start(agent, agent.run())
        await self._or_broken(agent, agent.started.wait())
        self.agents[node] = agent
        return agent

    def plugin(self, node: str = "n1", driver: Driver | None = None, **options: Any) -> Plugin:
        """A plugin, not started."""
        driver = driver or ExampleDriver(node)
        places = Places.under(self.folder / node, driver.name, self.folder / node / "cdi")
        options = {"boot_id": "boot-1", "durable": False, **options}
        metrics = options.pop("metrics", None)
        return Plugin(
            driver,
            self.client,
            self.clock,
            self.entropy,
            node_name=node,
            places=places,
            options=PluginOptions(**options),
            metrics=metrics,
        )

    async def run_plugin(self, plugin: Plugin) -> Plugin:
        """Started, and its slices published."""
        self._start(plugin, plugin.run())
        await self._or_broken(plugin, plugin.publisher.published.wait())
        for agent in self.agents.values():
            agent.host.beat()
        return plugin

    async def driver(self, node: str = "n1", driver: Driver | None = None, **options: Any) -> Plugin:
        """A plugin that is registered with the node's agent."""
        plugin = await self.run_plugin(self.plugin(node, driver, **options))
        await self._or_broken(plugin, plugin.registered.wait())
        return plugin

    async def attached(self, agent: NodeAgent, driver: Driver | None = None, **options: Any) -> Plugin:
        """A running plugin that the agent calls without sockets."""
        plugin = await self.run_plugin(self.plugin(agent.node_name, driver, sockets=False, **options))
        agent.attach(plugin)
        return plugin

    async def stop(self, actor: Any) -> None:
        """As if killed: the task is cancelled wherever it is."""
        task = self._running.pop(actor)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def close(self) -> None:
        """Stop all, last started first."""
        for actor in reversed(list(self._running)):
            await self.stop(actor)

    def _start(self, actor: Any, work: Any) -> None:
        self._running[actor] = asyncio.get_running_loop().create_task(work)

    async def _or_broken(self, actor: Any, wait: Any) -> None:
        """Wait, but not longer than the actor lives."""
        waiting = asyncio.ensure_future(wait)
        task = self._running[actor]
        done, _ = await asyncio.wait({waiting, task}, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            waiting.cancel()
            await task
        assert waiting in done, "it never came true"

    # ---- the cluster

    until = staticmethod(until)

    async def pod(self, name: str, *, node: str = "n1", claims: dict[str, str] | None = None, **spec: Any) -> Object:
        """A bound pod. claims: entry -> claim name; its one container names all of them unless `containers` is given."""
        annotations = spec.pop("annotations", {})
        owner = spec.pop("owner", None)
        container = {"name": "main", "image": "app:1"}
        if claims:
            container["resources"] = {"claims": [{"name": entry} for entry in claims]}  # type: ignore[assignment]
            spec["resourceClaims"] = [{"name": e, "resourceClaimName": c} for e, c in claims.items()]
        spec.setdefault("containers", [container])
        metadata: Object = {"name": name, "annotations": annotations}
        if owner:
            metadata["ownerReferences"] = [owner]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        made = await self.client.create(POD, body, "default")
        for claim in (claims or {}).values():
            await self.reserve(claim, made)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        }
        await self.client.create(POD, binding, "default", subresource="binding", name=name)
        return await self.client.get(POD, name, "default")

    async def claim(
        self,
        name: str,
        *devices: str,
        driver: str = "gpu.example.com",
        node: str = "n1",
        request: str = "gpu",
        **more: Any,
    ) -> Object:
        """A claim with these devices allocated; `request/device` names the request, else all are of one."""
        named = [d.split("/") if "/" in d else [request, d] for d in devices]
        requests = list(dict.fromkeys(r for r, _ in named)) or [request]
        made = await self.new_claim(name, *requests, device_class=driver)
        results = [{"request": r, "driver": driver, "pool": node, "device": d, **more} for r, d in named]
        return await self.allocate(made, results)

    async def new_claim(self, name: str, *requests: str, device_class: str = "c") -> Object:
        """A claim that nobody has allocated."""
        spec = {"devices": {"requests": [{"name": r, "exactly": {"deviceClassName": device_class}} for r in requests]}}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
        return await self.client.create(CLAIM, body, "default")

    async def allocate(self, claim: Object, results: list[Object]) -> Object:
        """Write an allocation."""
        change = {"status": {"allocation": {"devices": {"results": results}}}}
        name = claim["metadata"]["name"]
        return await self.client.patch(CLAIM, name, change, "default", subresource="status")

    async def reserve(self, claim: str, *pods: Object) -> None:
        """Add pods to reservedFor."""
        known = await self.client.get(CLAIM, claim, "default")
        refs = known["status"].get("reservedFor") or []
        refs = refs + [{"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in pods]
        await self.client.patch(CLAIM, claim, {"status": {"reservedFor": refs}}, "default", subresource="status")

    async def release(self, claim: str) -> None:
        """Nobody's any more, and deallocated."""
        change = {"status": {"reservedFor": None, "allocation": None}}
        await self.client.patch(CLAIM, claim, change, "default", subresource="status")

    async def get(self, name: str) -> Object | None:
        """The pod, if it is there."""
        try:
            return await self.client.get(POD, name, "default")
        except NotFound:
            return None

    async def phase(self, name: str, *phases: str, within_s: float = DEADLINE_S) -> Object:
        """The pod once it is in one of these phases."""

        async def there() -> Object | None:
            pod = await self.get(name)
            return pod if pod and pod["status"].get("phase") in phases else None

        return await self.until(there, within_s)

    async def gone(self, name: str) -> None:
        """Wait until the pod is gone."""

        async def absent() -> bool:
            return await self.get(name) is None

        await self.until(absent)

    async def event(self, reason: str, name: str) -> Object:
        """The first event of that reason about that pod."""

        async def there() -> Object | None:
            events = (await self.client.list(EVENT, "default")).items
            return next((e for e in events if e["reason"] == reason and e["involvedObject"]["name"] == name), None)

        return await self.until(there)

    async def slices(self) -> list[Object]:
        """All ResourceSlices by name."""
        return sorted((await self.client.list(SLICE)).items, key=lambda s: str(s["metadata"]["name"]))


@asynccontextmanager
async def stage(clock: Clock | None = None, kind: type[S] = Stage) -> AsyncIterator[S]:  # type: ignore[assignment]
    """A stage, of that kind, that is cleared away afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="dr-", dir="/tmp"))
    made = kind(folder, clock or Clock())
    try:
        yield made
    finally:
        await made.close()
        await made.api.close()
        shutil.rmtree(folder)
