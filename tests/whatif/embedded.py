"""The embedded cluster as the measure for what-if: API, controllers and scheduler in virtual time, kubelets played.

A kubelet here starts what is bound and ends what is deleted, on nodes that are there, as what-if takes for granted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from dragoman.allocate.allocator import AllocatorOptions
from dragoman.api import codec
from dragoman.api.gates import gates_with
from dragoman.api.kinds import kind_of
from dragoman.api.meta import format_micro_time
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.daemon.controllers import Controllers
from dragoman.daemon.scheduler import Scheduler, SchedulerSettings
from dragoman.errors import DragomanError, NotFound, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.snapshot.change import HELD, Snapshot

Object = dict[str, Any]
KINDS = sorted(kind for kind in HELD - {"PriorityClass"} if kind in codec.TYPES)
POD, NODE, LEASE = kind_of("Pod"), kind_of("Node"), kind_of("Lease")
GATES = gates_with({"GenericWorkload": True, "DRAWorkloadResourceClaims": True})[0]
SCHEDULER = SchedulerSettings(options=AllocatorOptions(gates=GATES))
LOOK_S = 5.0
CALM_LOOKS = 10
"""Nothing changes for so many looks: longer than a node that is gone is waited for."""
LOOKS_MAX = 80


class Embedded:
    """One cluster. `running` names the daemons that are up."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.entropy = Entropy(seed)
        self.client = InProcessClient(in_memory(clock, self.entropy.fork(), GATES))
        self._daemons: dict[str, asyncio.Task[None]] = {}

    # ---- daemons

    async def start(self, *names: str) -> None:
        for name in names:
            work: Callable[[], Awaitable[None]] = {
                "controllers": lambda: Controllers(self.client, self.clock, self.entropy.fork()).run(),
                "scheduler": lambda: Scheduler(self.client, self.clock, self.entropy.fork(), SCHEDULER).run(),
                "kubelets": self._kubelets,
                "leases": self._leases,
            }[name]
            self._daemons[name] = asyncio.get_running_loop().create_task(work())  # type: ignore[arg-type]

    async def stop(self) -> None:
        for task in self._daemons.values():
            task.cancel()
        await asyncio.gather(*self._daemons.values(), return_exceptions=True)
        self._daemons.clear()

    async def _leases(self) -> None:
        while True:
            for node in (await self.client.list(NODE)).items:
                name = node["metadata"]["name"]
                spec = {"holderIdentity": name, "renewTime": format_micro_time(self.clock.utc())}
                try:
                    await self.client.patch(LEASE, name, {"spec": spec}, "kube-node-lease")
                except NotFound:
                    body = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
                    await self.client.create(LEASE, {**body, **_typed("Lease")}, "kube-node-lease")
            await self.clock.sleep(10.0)

    async def _kubelets(self) -> None:
        while True:
            nodes = {node["metadata"]["name"] for node in (await self.client.list(NODE)).items}
            for pod in (await self.client.list(POD)).items:
                if pod["spec"].get("nodeName") in nodes:
                    await self._sync(pod)
            await self.clock.sleep(1.0)

    async def _sync(self, pod: Object) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase")
        try:
            if meta.get("deletionTimestamp"):
                if phase not in ("Succeeded", "Failed"):
                    failed = {"status": {"phase": "Failed"}}
                    await self.client.patch(POD, meta["name"], failed, meta["namespace"], subresource="status")
                await self.client.delete(POD, meta["name"], meta["namespace"], grace_period_s=0)
            elif phase == "Pending":
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                status = {"status": {"phase": "Running", "conditions": [ready]}}
                await self.client.patch(POD, meta["name"], status, meta["namespace"], subresource="status")
        except (NotFound, Stale):
            return

    # ---- what users do

    async def create(self, manifests: Iterable[Object]) -> dict[tuple[str, str], str]:
        """Creates objects in order; kind and name of those refused, with the server's words."""
        refused: dict[tuple[str, str], str] = {}
        for made in manifests:
            kind, meta = kind_of(made["kind"]), made["metadata"]
            body = {**made, "metadata": {key: value for key, value in meta.items() if key != "uid"}}
            try:
                await self.client.create(kind, body, meta.get("namespace", ""))
                if kind.kind == "Node" and "status" in made:
                    await self.client.patch(kind, meta["name"], {"status": made["status"]}, subresource="status")
            except DragomanError as error:
                refused[kind.kind, meta["name"]] = str(error).partition(" is invalid")[2] or str(error)
        return refused

    async def apply(self, manifests: Iterable[Object]) -> dict[tuple[str, str], str]:
        """Changes objects in order, creates those that are not there; what is refused, as `create`."""
        refused: dict[tuple[str, str], str] = {}
        for made in manifests:
            kind, meta = kind_of(made["kind"]), made["metadata"]
            body = {key: value for key, value in made.items() if key != "status"}
            body["metadata"] = {key: value for key, value in meta.items() if key != "uid"}
            try:
                await self.client.patch(kind, meta["name"], body, meta.get("namespace", ""), type="strategic")
            except NotFound:
                refused |= await self.create([made])
            except DragomanError as error:
                refused[kind.kind, meta["name"]] = str(error).partition(" is invalid")[2] or str(error)
        return refused

    async def delete(self, kind: str, name: str, namespace: str = "", **options: Any) -> None:
        try:
            await self.client.delete(kind_of(kind), name, namespace, **options)
        except NotFound:
            return

    async def patch(self, kind: str, name: str, namespace: str, patch: Object, subresource: str = "") -> None:
        try:
            await self.client.patch(kind_of(kind), name, patch, namespace, subresource=subresource)
        except NotFound:
            return

    # ---- what is there

    async def objects(self) -> list[Object]:
        """Every object of the kinds that snapshots hold, as `record` writes them."""
        found: list[Object] = []
        for kind in KINDS:
            listed = await self.client.list(kind_of(kind))
            found += [{**_typed(kind), **item} for item in listed.items]
        return json.loads(json.dumps(found))

    async def snapshot(self) -> Snapshot:
        return Snapshot.from_objects((o["kind"], codec.decode(codec.TYPES[o["kind"]], o)) for o in await self.objects())

    async def calm(self) -> None:
        """Waits until nothing has changed for a while."""
        last, same = "", 0
        for _ in range(LOOKS_MAX):
            await self.clock.sleep(LOOK_S)
            now = json.dumps(await self.objects(), sort_keys=True)
            same = same + 1 if now == last else 0
            if same >= CALM_LOOKS:
                return
            last = now
        raise AssertionError("the embedded cluster does not come to rest")


def _typed(kind: str) -> Object:
    return {"apiVersion": kind_of(kind).api_version, "kind": kind}
