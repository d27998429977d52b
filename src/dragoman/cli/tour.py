"""What does `dragoman demo` show? Devices, claims, and why a pod is pending, on an embedded cluster of its own.

Everything shown is read from the cluster's API over HTTPS, as kubectl would; the tour decides nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dragoman.api.kinds import Kind, kind_of
from dragoman.api.shape import Object
from dragoman.cluster import kubeconfig
from dragoman.cluster.http import HttpClient
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.errors import NotFound, Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.values.visible import visible

WAIT_S = 20.0
CLAIM, POD, SLICE, EVENT = kind_of("ResourceClaim"), kind_of("Pod"), kind_of("ResourceSlice"), kind_of("Event")
TEMPLATE = kind_of("ResourceClaimTemplate")


def run() -> int:
    """Start a cluster in a temporary folder, show the tour, stop it."""
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        return asyncio.run(_demo(Path(folder)))


async def _demo(folder: Path) -> int:
    screen = Console(highlight=False)
    clock = Clock()
    started = clock.monotonic()
    config = folder / "kubeconfig"
    async with Cluster(ClusterSettings(nodes=(("worker", "example"),), kubeconfig=config, root_dir=folder)):
        client = HttpClient(kubeconfig.load([config]), clock, Entropy())
        try:
            await Tour(screen, client, clock).walk(clock.monotonic() - started)
        finally:
            await client.close()
    screen.print(Rule("Next steps"))
    for line in _how_to_go_on():
        screen.print(f"  {line}", soft_wrap=True)
    return 0


def _how_to_go_on() -> list[str]:
    """Commands to copy: where `dragoman` is not on the PATH, the first puts it there."""
    found = [] if shutil.which("dragoman") else [f"export PATH={Path(sys.executable).parent}:$PATH"]
    return [
        *found,
        "dragoman up --node worker=example*2         run a cluster; writes ./dragoman.kubeconfig",
        "export KUBECONFIG=$PWD/dragoman.kubeconfig  in another terminal",
        "kubectl get resourceslices                  (or: dragoman get resourceslices)",
        "kubectl apply -f your-pod.yaml              (or: dragoman apply -f your-pod.yaml)",
        "dragoman simulate -f your-pod.yaml -f nodes.yaml    without a cluster",
    ]


def request(name: str = "gpu", *, count: int = 1, cel: str = "") -> Object:
    """A request for devices of the example class."""
    exactly: Object = {"deviceClassName": "gpu.example.com"}
    if count != 1:
        exactly["count"] = count
    if cel:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": name, "exactly": exactly}


def template(name: str, *requests: Object) -> Object:
    """A claim template."""
    return {
        "apiVersion": TEMPLATE.api_version,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": list(requests)}}},
    }


def claim(name: str, *requests: Object) -> Object:
    """A claim of its own, which pods can share."""
    return {
        "apiVersion": CLAIM.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests)}},
    }


def pod(name: str, **source: str) -> Object:
    """A pod with one claim: resourceClaimName=... or resourceClaimTemplateName=..."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "gpu", **source}],
            "containers": [
                {"name": "main", "image": "ubuntu:24.04", "resources": {"claims": [{"name": "gpu"}]}},
            ],
        },
    }


class Tour:
    """The stops of the tour, one after the other, on one cluster."""

    def __init__(self, screen: Console, client: HttpClient, clock: Clock) -> None:
        self.screen = screen
        self.client = client
        self.clock = clock

    async def walk(self, start_s: float) -> None:
        """All stops."""
        self.screen.print(Rule("Dragoman: dynamic resource allocation in five steps"))
        self._say(f"An embedded cluster with one simulated node was ready in {start_s:.1f} s.")
        await self.devices()
        await self.one_device()
        await self.the_very_device()
        await self.shared()
        await self.too_many()

    # ---- stops

    async def devices(self) -> None:
        """What the driver publishes."""
        self._head("1", "A driver publishes devices", "kubectl get resourceslices -o yaml")
        resource_slice = await self._until(SLICE, self._any_slice)
        attributes = [name for name in resource_slice["spec"]["devices"][0]["attributes"] if name != "uuid"]
        capacity = list(resource_slice["spec"]["devices"][0]["capacity"])
        table = Table("device", *attributes, *capacity, box=None, pad_edge=False, header_style="bold")
        for device in resource_slice["spec"]["devices"]:
            cells = [str(next(iter(device["attributes"][name].values()))) for name in attributes]
            table.add_row(device["name"], *cells, *(device["capacity"][name]["value"] for name in capacity))
        self._print(table)

    async def one_device(self) -> None:
        """A template, a pod, a generated claim, a prepared device."""
        self._head("2", "A pod requests a device and gets its own claim", "kubectl apply -f pod.yaml")
        await self._apply(template("one-gpu", request()), show=True)
        await self._apply(pod("train", resourceClaimTemplateName="one-gpu"))
        await self._running("train")
        await self._holders()
        text = await self._logs("train")
        self._say("What the container sees (kubectl logs train):")
        for line in text.splitlines():
            if "GPU_DEVICE" in line or "DRA_" in line:
                self.screen.print(Text(f"    {visible(line.strip())}"), style="cyan", soft_wrap=True)

    async def the_very_device(self) -> None:
        """A CEL selector."""
        self._head(
            "3", "A selector picks a certain device", "selectors are CEL expressions over the attributes of devices"
        )
        expression = "device.attributes['gpu.example.com'].index == 7"
        self._say(f"  {expression}")
        await self._apply(claim("number-seven", request(cel=expression)))
        await self._apply(pod("picky", resourceClaimName="number-seven"))
        await self._running("picky")
        await self._holders()

    async def shared(self) -> None:
        """One claim, two pods; and two devices in one claim."""
        self._head("4", "Two pods share one claim; another claim takes two devices", "kubectl get resourceclaims")
        await self._apply(claim("team", request()))
        await self._apply(pod("alice", resourceClaimName="team"))
        await self._apply(pod("bob", resourceClaimName="team"))
        await self._apply(claim("pair", request(count=2)))
        await self._apply(pod("both", resourceClaimName="pair"))
        for name in ("alice", "bob", "both"):
            await self._running(name)
        await self._holders()

    async def too_many(self) -> None:
        """A pending pod, why, and how it runs once devices are free."""
        self._head(
            "5",
            "A claim for more devices than are free: the pod is pending, with the reason",
            "kubectl describe pod greedy",
        )
        await self._apply(claim("four", request(count=4)))
        await self._apply(pod("greedy", resourceClaimName="four"))
        event = await self._until(EVENT, lambda: self._event("greedy", "FailedScheduling"))
        self.screen.print(Text(f"    {visible(event['message'])}"), style="yellow", soft_wrap=True)
        self._say("Once pod both is deleted, its two devices are free and greedy starts.")
        begin = self.clock.monotonic()
        await self.client.delete(POD, "both", "default", grace_period_s=0)
        await self._running("greedy")
        self._say(f"greedy runs {self.clock.monotonic() - begin:.2f} s after the deletion.")
        await self._holders()

    # ---- saying

    def _head(self, number: str, title: str, command: str) -> None:
        self.screen.print()
        self.screen.print(Rule(f"{number}  {title}", align="left"))
        self.screen.print(f"  # {command}", style="dim")

    def _say(self, text: str) -> None:
        self.screen.print(Text(f"  {visible(text)}"), soft_wrap=True)

    def _print(self, table: Table) -> None:
        grid = Table.grid(padding=(0, 0, 0, 4))
        grid.add_row("", table)
        self.screen.print(grid)

    async def _holders(self) -> None:
        table = Table("claim", "devices", "held for", "state", box=None, pad_edge=False, header_style="bold")
        for obj in sorted(
            (await self.client.list(CLAIM, "default")).items, key=lambda found: str(found["metadata"]["name"])
        ):
            status = obj.get("status") or {}
            results = ((status.get("allocation") or {}).get("devices") or {}).get("results", [])
            pods = [str(consumer["name"]) for consumer in status.get("reservedFor", [])]
            state = "allocated, reserved" if pods else "allocated" if results else "pending"
            table.add_row(
                obj["metadata"]["name"], " ".join(result["device"] for result in results), " ".join(pods), state
            )
        self._print(table)

    # ---- doing

    async def _apply(self, obj: Object, *, show: bool = False) -> None:
        if show:
            for line in yaml.safe_dump(obj, sort_keys=False, allow_unicode=True).rstrip().splitlines():
                self.screen.print(Text(f"    {visible(line)}"), style="dim", soft_wrap=True)
        kind = kind_of(obj["kind"])
        name = obj["metadata"]["name"]
        await self.client.patch(kind, name, obj, "default", type="apply", manager="dragoman-demo", force=True)
        self._say(f"{kind.kind.lower()}/{name} created")

    async def _running(self, name: str) -> None:
        async def phase() -> Object | None:
            obj = await self.client.get(POD, name, "default")
            return obj if obj.get("status", {}).get("phase") == "Running" else None

        obj = await self._until(POD, phase)
        self._say(f"pod/{name} is Running on {obj['spec']['nodeName']}")

    async def _logs(self, name: str) -> str:
        async def text() -> str | None:
            return (await self.client.logs(name, "default")) or None

        return str(await self._until(POD, text))

    async def _any_slice(self) -> Object | None:
        listed = (await self.client.list(SLICE)).items
        return next((resource_slice for resource_slice in listed if resource_slice["spec"].get("devices")), None)

    async def _event(self, name: str, reason: str) -> Object | None:
        listed = await self.client.list(EVENT, "default", field_selector=f"involvedObject.name={name},reason={reason}")
        return listed.items[-1] if listed.items else None

    async def _until(self, kind: Kind, look: Callable[[], Any]) -> Any:
        deadline = self.clock.monotonic() + WAIT_S
        while self.clock.monotonic() < deadline:
            try:
                found = await look()
            except NotFound:
                found = None
            if found is not None:
                return found
            await self.clock.sleep(0.02)
        raise Retry(f"the tour waited {WAIT_S:.0f} s for a {kind.kind}; the machine may be overloaded: try again")
