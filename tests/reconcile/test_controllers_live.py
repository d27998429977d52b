"""The controllers together against the API in process: what a user sees of Deployments, Jobs, claims, namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dragoman.api.kinds import custom_name, kind_of
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.daemon.controllers import Controllers, ControllerSettings, chosen
from dragoman.errors import Invalid, NotFound, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.testing.wait import until

Object = dict[str, Any]


class Live:
    """A registry with controllers, and a kubelet as simple as can be (`run_pods`)."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.entropy = Entropy(3)
        self.metrics = Metrics()
        self.registry = in_memory(self.clock, self.entropy)
        self.client = InProcessClient(self.registry)
        self.controllers = Controllers(
            self.client, self.clock, self.entropy, ControllerSettings(root_ca="PEM"), metrics=self.metrics
        )

    async def create(self, kind: str, name: str, namespace: str = "default", **fields: Any) -> Object:
        meta: Object = {"name": name, **fields.pop("metadata", {})}
        if kind_of(kind).namespaced:
            meta["namespace"] = namespace
        body = {"apiVersion": kind_of(kind).api_version, "kind": kind, "metadata": meta, **fields}
        return await self.client.create(kind_of(kind), body)

    async def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        return await self.client.get(kind_of(kind), name, namespace if kind_of(kind).namespaced else "")

    async def all(self, kind: str, namespace: str = "default") -> list[Object]:
        return (await self.client.list(kind_of(kind), namespace if kind_of(kind).namespaced else "")).items

    async def gone(self, kind: str, name: str, namespace: str = "default") -> bool:
        try:
            await self.get(kind, name, namespace)
        except NotFound:
            return True
        return False

    async def patch(self, kind: str, name: str, patch: Object, namespace: str = "default", sub: str = "") -> None:
        namespace = namespace if kind_of(kind).namespaced else ""
        await self.client.patch(kind_of(kind), name, patch, namespace, subresource=sub)

    async def run_pods(self, phase: str = "Running") -> None:
        """Play kubelet once: bound and ready, or ended; what is deleted goes."""
        for pod in await self.all("Pod"):
            name = pod["metadata"]["name"]
            try:
                if pod["metadata"].get("deletionTimestamp"):
                    await self.patch("Pod", name, {"status": {"phase": "Failed"}}, sub="status")
                    await self.client.delete(kind_of("Pod"), name, "default", grace_period_s=0)
                    continue
                if not pod["spec"].get("nodeName"):
                    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
                    await self.client.create(kind_of("Pod"), body, "default", subresource="binding", name=name)
                if pod["status"].get("phase") == "Pending":
                    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
                    await self.patch("Pod", name, {"status": {"phase": phase, "conditions": ready}}, sub="status")
            except (NotFound, Stale):
                continue

    async def until(self, holds: Callable[[], Coroutine[Any, Any, bool]], play: str = "Running") -> None:
        async def kubelet() -> None:
            if play:
                await self.run_pods(play)

        await until(holds, meanwhile=kubelet)


def live(body: Callable[[Live], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        t = Live()
        await t.create("Node", "n")
        await t.patch("Node", "n", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, sub="status")
        async with Tasks("test", t.clock, t.entropy) as tasks:
            tasks.supervise("controllers", t.controllers.run)
            try:
                await body(t)
            finally:
                tasks.stop()
        await t.client.close()

    asyncio.run(main())


TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}}
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}


def web(replicas: int = 3, image: str = "one") -> Object:
    spec = {"containers": [{"name": "c", "image": image}]}
    return {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": spec},
    }


@pytest.mark.slow
def test_a_deployment_comes_up_rolls_and_goes_with_all_it_owns() -> None:
    async def body(t: Live) -> None:
        await t.create("Deployment", "web", spec=web())

        def rolled(generation: int, replicas: int) -> Callable[[], Coroutine[Any, Any, bool]]:
            async def check() -> bool:
                status = (await t.get("Deployment", "web")).get("status") or {}
                counts = {status.get(f, 0) for f in ("replicas", "updatedReplicas", "availableReplicas")}
                return status.get("observedGeneration", 0) >= generation and counts == {replicas}

            return check

        await t.until(rolled(1, 3))
        await t.patch("Deployment", "web", {"spec": web(3, "two")})
        await t.until(rolled(2, 3))
        images = {
            p["spec"]["containers"][0]["image"] for p in await t.all("Pod") if "deletionTimestamp" not in p["metadata"]
        }
        assert images == {"two"}
        await t.patch("Deployment", "web", {"spec": {"replicas": 1}})
        await t.until(rolled(3, 1))
        events = {e["reason"] for e in await t.all("Event")}
        assert {"ScalingReplicaSet", "SuccessfulCreate", "SuccessfulDelete"} <= events
        await t.client.delete(kind_of("Deployment"), "web", "default", propagation="Foreground")

        async def nothing() -> bool:
            return not (await t.all("Deployment") or await t.all("ReplicaSet") or await t.all("Pod"))

        await t.until(nothing)

    live(body)


@pytest.mark.slow
def test_a_job_completes() -> None:
    async def body(t: Live) -> None:
        pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        await t.create("Job", "j", spec={"completions": 3, "parallelism": 2, "template": pod})

        async def complete() -> bool:
            conditions = ((await t.get("Job", "j")).get("status") or {}).get("conditions") or []
            return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

        await t.until(complete, "Succeeded")
        job = await t.get("Job", "j")
        assert job["status"]["succeeded"] == 3
        assert all(not p["metadata"].get("finalizers") for p in await t.all("Pod"))
        await t.client.delete(kind_of("Job"), "j", "default", propagation="Background")

        async def nothing() -> bool:
            return not await t.all("Pod")

        await t.until(nothing, "Succeeded")

    live(body)


@pytest.mark.slow
def test_a_claim_is_made_for_a_pod_and_goes_with_it() -> None:
    async def body(t: Live) -> None:
        await t.create("ResourceClaimTemplate", "t", spec={"spec": REQUESTS})
        spec = {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        }
        await t.create("Pod", "p", spec=spec)

        async def recorded() -> bool:
            return bool(((await t.get("Pod", "p")).get("status") or {}).get("resourceClaimStatuses"))

        await t.until(recorded, "")
        [claim] = await t.all("ResourceClaim")
        name = claim["metadata"]["name"]
        assert name.startswith("p-gpu-")
        assert (await t.get("Pod", "p"))["status"]["resourceClaimStatuses"] == [
            {"name": "gpu", "resourceClaimName": name}
        ]
        assert (
            'resourceclaim_creates_total{admin_access="false",owner_api_group="",owner_api_kind="Pod",status="success"} 1.0'
            in t.metrics.text().decode()
        )
        assert (
            'claims{admin_access="false",allocated="false",source="resource_claim_template"} 1.0'
            in t.metrics.text().decode()
        )
        # as the scheduler would: finalizer, allocation, reservation
        uid = (await t.get("Pod", "p"))["metadata"]["uid"]
        await t.patch("ResourceClaim", name, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}})
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
        }
        await t.patch("ResourceClaim", name, {"status": status}, sub="status")
        await t.client.delete(kind_of("Pod"), "p", "default", grace_period_s=0)

        async def gone() -> bool:
            return await t.gone("ResourceClaim", name)

        await t.until(gone)

    live(body)


@pytest.mark.slow
def test_a_namespace_gets_its_default_objects_and_is_emptied() -> None:
    async def body(t: Live) -> None:
        await t.create("Namespace", "team")

        async def default_objects() -> bool:
            return not await t.gone("ServiceAccount", "default", "team") and not await t.gone(
                "ConfigMap", "kube-root-ca.crt", "team"
            )

        await t.until(default_objects)
        await t.create("Deployment", "web", "team", spec=web())
        await t.create("ConfigMap", "mine", "team", data={"a": "b"})
        await t.client.delete(kind_of("Namespace"), "team")

        async def gone() -> bool:
            return await t.gone("Namespace", "team")

        await t.until(gone)
        for kind in ("Deployment", "ReplicaSet", "Pod", "ConfigMap", "ServiceAccount", "Event"):
            assert await t.all(kind, "team") == [], kind

    live(body)


@pytest.mark.slow
def test_a_refused_pod_is_a_condition_of_its_replica_set() -> None:
    async def body(t: Live) -> None:
        spec = web(1)
        spec["template"]["spec"]["priorityClassName"] = "missing"
        await t.create("ReplicaSet", "rs", spec=spec)

        async def reported() -> bool:
            return any(e["reason"] == "FailedCreate" for e in await t.all("Event"))

        await t.until(reported)
        conditions = (await t.get("ReplicaSet", "rs"))["status"]["conditions"]
        assert [c["type"] for c in conditions] == ["ReplicaFailure"]

    live(body)


@pytest.mark.slow
def test_a_silent_node_loses_its_pods_and_a_vanished_one_too() -> None:
    async def body(t: Live) -> None:
        await t.create("Pod", "p", spec={"containers": [{"name": "c", "image": "i"}]})
        await t.run_pods()

        async def tainted() -> bool:
            return len(((await t.get("Node", "n")).get("spec") or {}).get("taints") or []) == 2

        # Time goes on in steps that somebody watches: a jump would not count as silence.
        async with asyncio.timeout(20):
            while not await tainted():
                t.clock.advance(5)
                await asyncio.sleep(0.01)
        t.clock.advance(301)

        async def deleted() -> bool:
            return bool((await t.get("Pod", "p"))["metadata"].get("deletionTimestamp"))

        await t.until(deleted, "")
        await t.client.delete(kind_of("Node"), "n")

        async def gone() -> bool:
            t.clock.advance(5)
            return await t.gone("Pod", "p")

        await t.until(gone, "")

    live(body)


@pytest.mark.slow
def test_a_jump_of_the_clock_costs_no_node() -> None:
    async def body(t: Live) -> None:
        async with asyncio.timeout(20):
            while not t.controllers.is_idle or not t.controllers.world.snapshot.nodes:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        t.clock.advance(3600)
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not ((await t.get("Node", "n")).get("spec") or {}).get("taints")

    live(body)


def test_controllers_are_chosen_by_name() -> None:
    assert [c.name for c in chosen(ControllerSettings(("claims",)))] == ["claims"]
    left = {c.name for c in chosen(ControllerSettings(("*", "-garbage")))}
    assert "claims" in left
    assert "garbage" not in left
    with pytest.raises(Invalid, match=r"there is no nonsense, only .*claims"):
        chosen(ControllerSettings(("nonsense",)))


# ---- custom resources


def test_custom_resources_are_collected_and_leave_with_their_namespace() -> None:
    gear = custom_name("Gear", "parts.example.org", "v1", "gears", namespaced=True)

    async def scenario(cluster: Live) -> None:
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
        names = {"plural": "gears", "kind": "Gear"}
        spec = {"group": "parts.example.org", "scope": "Namespaced", "names": names, "versions": versions}
        await cluster.create("CustomResourceDefinition", "gears.parts.example.org", spec=spec)
        client, kind = cluster.client, kind_of(gear)
        await cluster.create("Namespace", "team")

        async def make(name: str, *owners: Any) -> Any:
            refs = [
                {"apiVersion": "parts.example.org/v1", "kind": "Gear", "name": o["metadata"]["name"]}
                | {"uid": o["metadata"]["uid"]}
                for o in owners
            ]
            body = {"apiVersion": "parts.example.org/v1", "kind": "Gear"}
            meta = {"name": name, "namespace": "team", "ownerReferences": refs}
            return await client.create(kind, {**body, "metadata": meta}, "team")

        async def left() -> list[str]:
            return [item["metadata"]["name"] for item in (await client.list(kind, "team")).items]

        owner = await make("owner")
        await make("owned", owner)
        await client.delete(kind, "owner", "team", uid=owner["metadata"]["uid"])
        await cluster.until(lambda: left_is(left, []))
        await make("last")
        await client.delete(kind_of("Namespace"), "team")
        await cluster.until(lambda: gone(client, "team"))
        assert await left() == []

    live(scenario)


async def left_is(left: Any, names: list[str]) -> bool:
    return bool(await left() == names)


async def gone(client: Any, namespace: str) -> bool:
    return namespace not in {n["metadata"]["name"] for n in (await client.list(kind_of("Namespace"))).items}
