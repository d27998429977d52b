"""How do nodes come and go while an embedded cluster runs? One labelled ConfigMap each, as faults have.

A node is there while its ConfigMap is, also over restarts with kept state; with it go its Node, its lease and its
slices. Nodes that `up` was started with are not touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from dragoman.api.kinds import kind_of
from dragoman.cluster.client import Client
from dragoman.daemon.machines import Machine
from dragoman.daemon.simulated_node import SimulatedNode
from dragoman.errors import Invalid, NotFound
from dragoman.values.names import dns_label

NODE, LEASE, SLICE = kind_of("Node"), kind_of("Lease"), kind_of("ResourceSlice")
START_S = 20.0
PROFILE = "profile"


class AddedNodes:
    """The nodes that came at run time. machines_of(name, profile) raises Invalid; boot(machine) starts one."""

    def __init__(
        self,
        nodes: dict[str, SimulatedNode],
        machines_of: Callable[[str, str], Awaitable[list[Machine]]],
        boot: Callable[[Machine], SimulatedNode],
    ) -> None:
        self._nodes = nodes
        self._machines_of = machines_of
        self._boot = boot
        self._added: dict[str, list[str]] = {}

    async def add(self, data: Mapping[str, str]) -> str:
        """Start the node of a ConfigMap's data; what came of it. Raises Invalid."""
        name, profile = data.get("node", ""), data.get(PROFILE, "")
        if (wrong := dns_label(name)) is not None:
            raise Invalid("data.node", f"{name!r} is not a valid node name: {wrong}")
        if not profile:
            raise Invalid(f"data.{PROFILE}", "must name a machine profile; `dragoman profiles` lists them")
        if unknown := sorted(data.keys() - {"node", PROFILE}):
            raise Invalid(f"data.{unknown[0]}", f"is unknown; there are node and {PROFILE}")
        if name in self._added:
            return f"added: {', '.join(self._added[name])}"
        found = await self._machines_of(name, profile)
        for machine in found:
            if machine.name in self._nodes:
                raise Invalid("data.node", f"node {machine.name} is there already")
        booted = [self._boot(machine) for machine in found]
        self._added[name] = [machine.name for machine in found]
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await asyncio.gather(*(node.agent.started.wait() for node in booted))
        return f"added: {', '.join(self._added[name])}"

    async def remove(self, name: str, client: Client) -> None:
        """Take the node away, with what only it wrote."""
        for machine in self._added.pop(name, []):
            await self._nodes.pop(machine).stop()
            for kind, namespace in ((NODE, ""), (LEASE, "kube-node-lease")):
                with suppress(NotFound):
                    await client.delete(kind, machine, namespace)
            await client.delete_collection(SLICE, field_selector=f"spec.nodeName={machine}")
