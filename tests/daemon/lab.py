"""A whole embedded cluster in the test's process, reached over HTTPS as kubectl reaches it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cluster.http import HttpClient
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.errors import NotFound
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing import build
from dragoman.testing.wait import until

POD, CLAIM, EVENT, SLICE, NODE, CONFIG = (
    kind_of(name) for name in ("Pod", "ResourceClaim", "Event", "ResourceSlice", "Node", "ConfigMap")
)


class Lab:
    """The cluster and a client of it."""

    def __init__(self, cluster: Cluster, client: HttpClient, folder: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.folder = folder

    async def apply(self, *objects: Object) -> None:
        """Create, or change what is there."""
        for body in objects:
            kind = kind_of(body["kind"])
            namespace = "" if not kind.namespaced else body["metadata"].get("namespace", "default")
            name = body["metadata"]["name"]
            await self.client.patch(kind, name, body, namespace, type="apply", manager="test", force=True)

    until = staticmethod(until)

    async def pod(self, name: str) -> Object | None:
        """The pod, if it is there."""
        try:
            return await self.client.get(POD, name, "default")
        except NotFound:
            return None

    async def phase(self, name: str, *phases: str) -> Object:
        """The pod once it is in one of these phases."""

        async def there() -> Object | None:
            found = await self.pod(name)
            return found if found and found["status"].get("phase") in phases else None

        found: Object = await self.until(there)
        return found

    async def gone(self, name: str) -> None:
        """Wait until the pod is gone."""

        async def absent() -> bool:
            return await self.pod(name) is None

        await self.until(absent)

    async def event(self, reason: str, name: str, holds: Callable[[str], bool] = bool) -> str:
        """The message of an event of that reason about that object, once there is one for which `holds`."""

        async def there() -> str | None:
            events = (await self.client.list(EVENT, "default")).items
            messages = [e["message"] for e in events if e["reason"] == reason and e["involvedObject"]["name"] == name]
            return next((message for message in messages if holds(message)), None)

        return str(await self.until(there))

    async def logs(self, pod: str, container: str = "") -> str:
        """What the container sees."""
        return await self.client.logs(pod, "default", container=container)

    async def results(self, claim: str) -> list[Object]:
        """What the claim was given."""
        found = await self.client.get(CLAIM, claim, "default")
        results: list[Object] = found["status"]["allocation"]["devices"]["results"]
        return results

    async def devices(self, driver: str, node: str) -> dict[str, Object]:
        """What the driver publishes for the node, by name."""
        listed = await self.client.list(SLICE, field_selector=f"spec.driver={driver},spec.nodeName={node}")
        return {d["name"]: d for resource_slice in listed.items for d in resource_slice["spec"].get("devices", [])}


@asynccontextmanager
async def lab(*nodes: tuple[str, str], **settings: Any) -> AsyncIterator[Lab]:
    """A running cluster with these (name, profile) nodes."""
    folder = Path(tempfile.mkdtemp(prefix="dl-", dir="/tmp"))  # short: sockets lie below it
    try:
        async with Cluster(ClusterSettings(nodes=nodes, root_dir=folder, **settings)) as cluster:
            client = HttpClient(cluster.access, Clock(), Entropy())
            try:
                yield Lab(cluster, client, folder)
            finally:
                await client.close()
    finally:
        shutil.rmtree(folder)


def short_pod(name: str, claim: str, *, node: str = "", **spec: Any) -> Object:
    """A pod whose one container uses the claim, that ends at once when it is deleted. node: the only one allowed."""
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    made = build.pod(name, claim, terminationGracePeriodSeconds=0, **spec)
    del made["metadata"]["uid"]  # the server's to give
    return made
