"""A cluster with ComputeDomains in virtual time: API, controllers, scheduler, node agents, kubelet plugins, the domains'
controller. Each part reaches the others through the API, files and calls of the kubelet alone, and dies alone.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.apiserver import fields
from dragoman.apiserver.bootstrap import bootstrap
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.store import Store
from dragoman.daemon.controllers import Controllers
from dragoman.daemon.scheduler import Scheduler
from dragoman.drivers.entry import ClusterSite, MachineProfile, Site
from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN
from dragoman.drivers.nvidia.compute_domain import factory, imex
from dragoman.drivers.nvidia.compute_domain.entry import ENTRY
from dragoman.drivers.nvidia.compute_domain.names import CLIQUE, DOMAIN, LABEL, NAMESPACE
from dragoman.errors import NotFound
from dragoman.kubelet.agent import NodeAgent
from dragoman.kubelet.node_object import NodeProperties
from dragoman.node.plugin import Places, Plugin, PluginOptions
from dragoman.profiles import Catalog
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.testing import loop
from dragoman.testing.faults import Faults, FaultyClient, Rates
from dragoman.testing.world import ClusterPart

DOMAIN_V = "resource.nvidia.com/v1beta1"


def domain(name: str, template: str, *, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    mode = spec.pop("mode", None)
    channel = {"resourceClaimTemplate": {"name": template}} | ({"allocationMode": mode} if mode else {})
    return {
        "apiVersion": DOMAIN_V,
        "kind": "ComputeDomain",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"channel": channel, **spec},
    }


def pod(name: str, template: str, *, node: str = "", namespace: str = "default", claim: str = "") -> dict[str, Any]:
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    spec = {
        "containers": [
            {
                "name": "work",
                "image": "work",
                "command": ["sh", "-c", "ls /dev/nvidia-caps-imex-channels; sleep infinity"],
                "resources": {"claims": [{"name": "channel"}]},
            }
        ],
        "resourceClaims": [{"name": "channel", **source}],
        "terminationGracePeriodSeconds": 1,
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


class _Says:
    def __init__(self) -> None:
        self.broken: list[str] = []

    def say(self, text: str) -> None:
        self.broken.append(text)


class DomainLab:
    """racks: (name, profile, trays that are there). parts by name: controller, controllers, scheduler, agent-N,
    driver-N."""

    def __init__(
        self,
        clock: Any,
        racks: tuple[tuple[str, str, int], ...] = (("rack", "gb200-nvl72", 3),),
        *,
        seed: int = 1,
        gates: dict[str, bool] | None = None,
        rates: Rates | None = None,
        max_nodes: int = 18,
    ) -> None:
        self.clock = clock
        self.entropy = Entropy(seed)
        self.faults = Faults(self.entropy.fork(), rates)
        self.faults.on = rates is not None
        self.checker = _Says()
        registry = Registry(Store(fields.fields_of), clock, self.entropy.fork())
        bootstrap(registry)
        self.api = InProcessClient(registry)
        self.settings = factory.DomainSettings("all", gates or {}, max_nodes)
        self.folder = tempfile.TemporaryDirectory(prefix="dra-")
        catalog = Catalog.packaged()
        self.machines: dict[str, tuple[MachineProfile, str]] = {}
        for rack, profile, count in racks:
            machine = MachineProfile(catalog, catalog.named(profile, profile))
            for tray in range(count):
                name = f"{rack}-{tray}" if machine.profile.rack else (f"{rack}-{tray}" if count > 1 else rack)
                self.machines[name] = machine, rack if machine.profile.rack else ""
        self.boots = dict.fromkeys(self.machines, 1)
        self.agents: dict[str, NodeAgent] = {}
        self.plugins: dict[str, Plugin] = {}
        self.tools: dict[str, dict[str, Any]] = {node: {} for node in self.machines}
        self._leave: dict[str, Callable[[], None]] = {}
        self._tasks = Tasks("lab", clock, self.entropy)
        self.parts: dict[str, ClusterPart] = {}

    async def __aenter__(self) -> DomainLab:
        for body in (*ENTRY.installed(), *ENTRY.classes):
            await self.api.create(kind_of(body["kind"]), body, body["metadata"].get("namespace", ""))
        self._part("controllers", lambda c: Controllers(c, self.clock, self.entropy.fork()).run())
        self._part("scheduler", lambda c: Scheduler(c, self.clock, self.entropy.fork()).run())
        self._part("controller", self._controller)
        for node in self.machines:
            self._part(f"agent-{node}", partial(self._agent, node))
            self._part(f"driver-{node}", partial(self._driver, node))
        await self._tasks.__aenter__()
        for part in self.parts.values():
            self._tasks.start(part.name, part.live())
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            self._tasks.stop()
            await self._tasks.__aexit__(*error)
        finally:
            self.folder.cleanup()

    def _part(self, name: str, run: Any) -> None:
        self.parts[name] = ClusterPart(self, name, run)

    async def _controller(self, client: FaultyClient) -> None:
        site = ClusterSite(client, self.clock, self.entropy.fork(), Metrics())
        await factory.control(site, self.settings)

    def root(self, node: str) -> Path:
        return Path(self.folder.name) / node

    async def _agent(self, node: str, client: FaultyClient) -> None:
        machine, rack = self.machines[node]
        made = factory.on_machine(machine, self.settings)
        labels = {"kubernetes.io/hostname": node, **made.labels(rack)}
        agent = NodeAgent(
            node,
            client,
            self.clock,
            self.root(node),
            entropy=self.entropy.fork(),
            facts=NodeProperties(labels=labels, boot_id=f"boot-{self.boots[node]}"),
            wipe_slices=False,
            sockets=False,
            durable=False,
            tools=self.tools[node],
        )
        self.agents[node] = agent
        self._leave.pop(node, None)
        try:
            async with Tasks(f"agent-{node}", self.clock, self.entropy) as tasks:
                tasks.start("run", agent.run())
                await agent.started.wait()
                self._join(node)
        finally:
            del self.agents[node]

    async def _driver(self, node: str, client: FaultyClient) -> None:
        root, boot = self.root(node), f"boot-{self.boots[node]}"
        made = factory.on_machine(self.machines[node][0], self.settings)
        site = Site(root, boot, client, self.clock, self.entropy.fork(), Metrics())
        driver = made.make(node, site)
        self.tools[node].update(made.site_tools(driver, site))
        plugin = Plugin(
            driver,
            client,
            self.clock,
            self.entropy.fork(),
            node_name=node,
            places=Places.under(root, COMPUTE_DOMAIN, root / "cdi"),
            options=PluginOptions(boot_id=boot, durable=False, sockets=False),
        )
        self.plugins[node] = plugin
        async with Tasks(f"driver-{node}", self.clock, self.entropy) as tasks:
            tasks.start("run", plugin.run())
            await plugin.publisher.published.wait()
            self._join(node)

    def _join(self, node: str) -> None:
        agent, plugin = self.agents.get(node), self.plugins.get(node)
        if agent is None or plugin is None or not agent.started.is_set() or not plugin.is_running:
            return
        if leave := self._leave.pop(node, None):
            leave()
        self._leave[node] = agent.attach(plugin)

    # ---- what tests do

    async def apply(self, *bodies: dict[str, Any]) -> None:
        for body in bodies:
            kind = DOMAIN if body["kind"] == "ComputeDomain" else kind_of(body["kind"])
            await self.api.create(kind, body, body["metadata"].get("namespace", ""))

    async def delete(self, kind: Any, name: str, namespace: str = "default", **options: Any) -> None:
        try:
            await self.api.delete(kind_of(kind) if isinstance(kind, str) else kind, name, namespace, **options)
        except NotFound:
            return

    async def all(self, kind: Any, namespace: str = "") -> list[dict[str, Any]]:
        return (await self.api.list(kind_of(kind) if isinstance(kind, str) else kind, namespace)).items

    async def get(self, kind: Any, name: str, namespace: str = "default") -> dict[str, Any]:
        return await self.api.get(kind_of(kind) if isinstance(kind, str) else kind, name, namespace)

    def crash(self, name: str) -> None:
        self.parts[name].die()

    def reboot(self, node: str) -> None:
        self.boots[node] += 1
        for path in (self.root(node) / "cdi").glob("*"):
            path.unlink()
        self.crash(f"agent-{node}")
        self.crash(f"driver-{node}")

    def host(self, node: str, **changes: Any) -> None:
        file = self.root(node) / factory.HOST_FILE
        imex.set_host_state(file, msgspec.structs.replace(imex.host_state(file), **changes))

    def imex_state(self, node: str, uid: str) -> imex.ImexState:
        return imex.query(self.root(node) / "plugins" / COMPUTE_DOMAIN / "domains" / uid)

    async def settles(self, holds: Callable[[], Any], within_s: float = 600.0) -> None:
        """Until the coroutine function answers "" (nothing is missing)."""
        deadline = self.clock.monotonic() + within_s
        while missing := await holds():
            assert self.clock.monotonic() < deadline, missing
            await self.clock.sleep(0.5)

    async def running(self, *names: str, namespace: str = "default") -> str:
        for name in names:
            found = await self.get("Pod", name, namespace)
            if found["status"].get("phase") != "Running":
                return f"pod {name} is {found['status'].get('phase')}"
        return ""

    async def domain_is(self, name: str, status: str, nodes: int | None = None) -> str:
        found = (await self.get(DOMAIN, name)).get("status") or {}
        listed = found.get("nodes") or []
        if found.get("status") == status and nodes in (None, len(listed)):
            return ""
        return f"domain {name}: {found}"

    async def labelled(self) -> dict[str, str]:
        """Nodes with the label of a domain."""
        nodes = await self.all("Node")
        labels = {n["metadata"]["name"]: n["metadata"].get("labels", {}).get(LABEL) for n in nodes}
        return {name: uid for name, uid in labels.items() if uid}

    async def left(self) -> str:
        """What is there although no domain and no pod is."""
        found = [
            f"{kind_.partition('/')[0]} {one['metadata']['name']}"
            for kind_ in ("Pod", "DaemonSet", "ResourceClaimTemplate", "ResourceClaim", DOMAIN.kind, CLIQUE.kind)
            for one in await self.all(kind_)
        ]
        found += [f"label of {node}" for node in await self.labelled()]
        for node in self.machines:
            found += [f"{node}: {path.name}" for path in (self.root(node) / "cdi").glob("*.json")]
        return ", ".join(found)

    def edits(self, node: str, claim_uid: str) -> dict[str, Any]:
        """The CDI edits of a claim's device."""
        file = self.root(node) / "cdi" / f"k8s.{COMPUTE_DOMAIN}-claim_{claim_uid}.json"
        return json.loads(file.read_text())["devices"][0].get("containerEdits", {})

    async def claim_of(self, pod_name: str, namespace: str = "default") -> dict[str, Any]:
        found = await self.get("Pod", pod_name, namespace)
        name = found["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        return await self.get("ResourceClaim", name, namespace)


def run(scenario: Callable[[DomainLab], Any], *racks: tuple[str, str, int], **options: Any) -> None:
    """A scenario on a lab, in virtual time."""

    async def main(clock: Any) -> None:
        async with DomainLab(clock, racks or (("rack", "gb200-nvl72", 3),), **options) as lab:
            await asyncio.sleep(0)
            await scenario(lab)
            assert not lab.checker.broken, lab.checker.broken

    loop.run(main)


__all__ = ["NAMESPACE", "DomainLab", "domain", "pod", "run"]
