"""Do both transports show the same API? One suite over HTTP and over the in-process client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.cluster.client import Client, WatchEvent
from dragoman.cluster.http import HttpClient
from dragoman.errors import Denied, Invalid, NotFound, Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.build import pod

pytestmark = pytest.mark.slow

POD, CONFIG_MAP, NODE = BY_NAME["Pod"], BY_NAME["ConfigMap"], BY_NAME["Node"]
Scenario = Callable[[Client, Registry], Awaitable[None]]


@asynccontextmanager
async def in_process() -> AsyncIterator[tuple[Client, Registry]]:
    registry = in_memory(Clock(), Entropy(1))
    client = InProcessClient(registry)
    yield client, registry
    await client.close()


@asynccontextmanager
async def over_http() -> AsyncIterator[tuple[Client, Registry]]:
    async with serving(ServerConfig(), Clock(), Entropy()) as server:
        client = HttpClient(server.access, Clock(), Entropy(2))
        try:
            yield client, server.registry
        finally:
            await client.close()


@pytest.fixture(params=[in_process, over_http])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Run a scenario against a fresh cluster."""

    def run(scenario: Scenario) -> None:
        async def go() -> None:
            async with asyncio.timeout(30), request.param() as (client, registry):
                await scenario(client, registry)

        asyncio.run(go())

    return run


def test_objects_come_back_whole(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        made = await client.create(POD, pod("a", metadata={"labels": {"app": "x"}}), "default")
        assert made["kind"] == "Pod"
        assert made["apiVersion"] == "v1"
        assert await client.get(POD, "a", "default") == made
        listed = await client.list(POD, "default", label_selector="app=x")
        assert listed.items == [made]
        assert (await client.list(POD, "default", label_selector="app=y")).items == []
        assert (await client.list(POD, field_selector="spec.nodeName=n")).items == []

    play(scenario)


def test_errors_are_those_of_the_protocol(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        with pytest.raises(NotFound):
            await client.get(POD, "a", "default")
        with pytest.raises(NotFound):
            await client.create(POD, pod("a", namespace="nowhere"), "nowhere")
        await client.create(POD, pod("a"), "default")
        with pytest.raises(Stale):
            await client.create(POD, pod("a"), "default")
        with pytest.raises(Stale):
            await client.patch(POD, "a", {"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}}, "default")
        with pytest.raises(Stale):
            await client.patch(POD, "a", {"metadata": {"uid": "other", "labels": {"x": "y"}}}, "default")
        with pytest.raises(Stale):
            await client.delete(POD, "a", "default", uid="other")
        with pytest.raises(Invalid):
            await client.create(POD, {"metadata": {"name": "b"}, "spec": {"containers": []}}, "default")
        with pytest.raises(Denied):
            await client.create(
                POD,
                pod("c", priorityClassName="none"),
                "default",
            )
        with pytest.raises(Invalid):
            await client.list(POD, field_selector="spec.nothing=1")

    play(scenario)


def test_binding_and_eviction(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        made = await client.create(POD, pod("a", metadata={"labels": {"app": "x"}}), "default")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "a", "uid": made["metadata"]["uid"]},
            "target": {"kind": "Node", "name": "n1"},
        }
        await client.create(POD, binding, "default", subresource="binding", name="a")
        bound = await client.get(POD, "a", "default")
        assert bound["spec"]["nodeName"] == "n1"
        (condition,) = bound["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        with pytest.raises(Stale):
            await client.create(POD, binding, "default", subresource="binding", name="a")
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await client.patch(POD, "a", ready, "default", subresource="status")
        budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}}}
        await client.create(BY_NAME["PodDisruptionBudget"], budget, "default")
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
        with pytest.raises(Retry):
            await client.create(POD, eviction, "default", subresource="eviction", name="a")
        await client.delete(BY_NAME["PodDisruptionBudget"], "b", "default")
        await client.create(POD, eviction, "default", subresource="eviction", name="a")
        assert "deletionTimestamp" in (await client.get(POD, "a", "default"))["metadata"]

    play(scenario)


def test_a_watch_goes_on_where_the_list_ended(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        await client.create(CONFIG_MAP, {"metadata": {"name": "a", "labels": {"x": "1"}}}, "default")
        listed = await client.list(CONFIG_MAP, "default", label_selector="x")
        seen: list[WatchEvent] = []

        async def read() -> None:
            async for event in client.watch(CONFIG_MAP, listed.resource_version, "default", label_selector="x"):
                seen.append(event)
                if len(seen) == 4:
                    return

        reading = asyncio.create_task(read())
        await client.create(CONFIG_MAP, {"metadata": {"name": "b"}}, "default")
        await client.create(CONFIG_MAP, {"metadata": {"name": "c", "labels": {"x": "1"}}}, "default")
        await client.patch(CONFIG_MAP, "b", {"metadata": {"labels": {"x": "2"}}}, "default")
        await client.patch(CONFIG_MAP, "a", {"metadata": {"labels": None}}, "default")
        await client.delete(CONFIG_MAP, "c", "default")
        await reading
        got = [(event.type, event.object["metadata"]["name"]) for event in seen]
        assert got == [("ADDED", "c"), ("ADDED", "b"), ("DELETED", "a"), ("DELETED", "c")]
        versions = [int(event.object["metadata"]["resourceVersion"]) for event in seen]
        assert versions == sorted(versions)
        assert all(event.object["kind"] == "ConfigMap" for event in seen)

    play(scenario)


def test_a_watch_without_version_begins_with_what_exists(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        await client.create(NODE, {"metadata": {"name": "n"}})
        registry.store.compact()
        for version in ("", "0"):
            events = client.watch(NODE, version)
            first = await anext(events)
            assert (first.type, first.object["metadata"]["name"]) == ("ADDED", "n")
            await events.aclose()  # type: ignore[attr-defined]

    play(scenario)


def test_a_watch_of_forgotten_history_is_stale(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        listed = await client.list(NODE)
        await client.create(NODE, {"metadata": {"name": "n"}})
        registry.store.compact()
        with pytest.raises(Stale):
            await anext(client.watch(NODE, listed.resource_version))

    play(scenario)


def test_status_is_isolated_and_apply_owns(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        config = {"metadata": {"labels": {"a": "1"}}, "data": {"k": "1"}}
        await client.patch(
            CONFIG_MAP, "m", {"apiVersion": "v1", "kind": "ConfigMap", **config}, "default", type="apply", manager="one"
        )
        config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "2"}}
        with pytest.raises(Stale):
            await client.patch(CONFIG_MAP, "m", config, "default", type="apply", manager="two")
        await client.patch(CONFIG_MAP, "m", config, "default", type="apply", manager="two", force=True)
        assert (await client.get(CONFIG_MAP, "m", "default"))["data"] == {"k": "2"}
        await client.create(POD, pod("a"), "default")
        changed = await client.patch(
            POD, "a", {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}}, "default", subresource="status"
        )
        assert changed["status"]["phase"] == "Running"
        assert "nodeName" not in changed["spec"]

    play(scenario)


def test_old_versions_are_stored_as_the_new_one(play: Callable[[Scenario], None]) -> None:
    async def scenario(client: Client, registry: Registry) -> None:
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}},
        }
        made = await client.create(BY_NAME["ResourceClaim"], claim, "default")
        assert made["spec"]["devices"]["requests"][0]["exactly"] == {
            "deviceClassName": "d",
            "allocationMode": "ExactCount",
            "count": 1,
        }

    play(scenario)
