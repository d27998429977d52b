"""Whichever write fails, before or after it took effect, the controllers arrive at the same cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.cluster.client import Client
from dragoman.cluster.http import HttpClient
from dragoman.daemon.controllers import Controllers
from dragoman.errors import NotFound, Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.tasks import Tasks
from dragoman.testing.wait import until

WRITES = ("create", "patch", "delete", "delete_collection", "replace")
Object = dict[str, Any]


class Crash(BaseException):
    """The process ends here: nothing of it catches this."""


class Faulty:
    """A client whose writes can fail: `fault(number, verb)` says how the number-th write does."""

    def __init__(self, inner: Client, fault: Callable[[int], str]) -> None:
        self.inner = inner
        self.fault = fault
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        if name not in WRITES:
            return call

        async def write(kind: Any, *args: Any, **more: Any) -> Any:
            if kind.kind == "Event":
                return await call(kind, *args, **more)
            self.writes += 1
            fault = self.fault(self.writes)
            if fault == "conflict":
                raise Stale("somebody was faster")
            if fault == "lost request":
                raise Retry("connection reset")
            if fault == "crash before":
                raise Crash
            answer = await call(kind, *args, **more)
            if fault == "lost answer":
                raise Retry("connection reset after the write")
            if fault == "crash after":
                raise Crash
            return answer

        return write


async def diagnosis(fault: Callable[[int], str], *, http: bool = False) -> tuple[Object, int]:
    """A Deployment rolls, a Job completes, a pod with a claim comes and goes; the end state without chance."""
    clock, entropy = Clock(), Entropy(5)
    if not http:
        registry = in_memory(clock, entropy)
        return await reported(InProcessClient(registry), InProcessClient(registry), clock, entropy, fault)
    async with serving(ServerConfig(), clock, entropy) as server:
        client = HttpClient(server.access, clock, entropy)
        try:
            return await reported(InProcessClient(server.registry), client, clock, entropy, fault)
        finally:
            await client.close()


async def reported(
    user: InProcessClient, inner: Client, clock: Clock, entropy: Entropy, fault: Callable[[int], str]
) -> tuple[Object, int]:
    """The story with the controllers on one client and the user (and kubelet) on another."""
    client = Faulty(inner, fault)
    make = lambda kind, name, spec: user.create(  # noqa: E731
        kind_of(kind),
        {
            "apiVersion": kind_of(kind).api_version,
            "kind": kind,
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        },
    )
    await user.create(kind_of("Node"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await user.patch(kind_of("Node"), "n", ready, subresource="status")

    async def kubelet() -> None:
        for pod in (await user.list(kind_of("Pod"))).items:
            name, status = pod["metadata"]["name"], pod.get("status") or {}
            try:
                if pod["metadata"].get("deletionTimestamp"):
                    await user.delete(kind_of("Pod"), name, "default", grace_period_s=0)
                elif not pod["spec"].get("nodeName"):
                    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
                    await user.create(kind_of("Pod"), body, "default", subresource="binding", name=name)
                elif status.get("phase") == "Pending":
                    done = name.startswith("job-") or name.startswith("once")
                    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                    new = {"phase": "Succeeded"} if done else {"phase": "Running", "conditions": [condition]}
                    await user.patch(kind_of("Pod"), name, {"status": new}, "default", subresource="status")
            except (NotFound, Stale):
                continue

    async def web_pods_gone() -> bool:
        return not any(p["metadata"]["name"].startswith("web-") for p in (await user.list(kind_of("Pod"))).items)

    async def one_second() -> None:
        await kubelet()
        clock.advance(1)  # back-offs pass

    def deployed(image: str) -> Callable[[], Coroutine[Any, Any, bool]]:
        async def check() -> bool:
            found = await user.get(kind_of("Deployment"), "web", "default")
            status = found.get("status") or {}
            counts = [status.get(f, 0) for f in ("replicas", "updatedReplicas", "availableReplicas")]
            return status.get("observedGeneration") == found["metadata"]["generation"] and counts == [2, 2, 2]

        return check

    async def completed() -> bool:
        conditions = ((await user.get(kind_of("Job"), "job", "default")).get("status") or {}).get("conditions") or []
        return any(c["type"] == "Complete" for c in conditions)

    async def claims_gone() -> bool:
        return not (await user.list(kind_of("ResourceClaim"))).items

    async def deployment_gone() -> bool:
        kinds = ("Deployment", "ReplicaSet")
        return not any([(await user.list(kind_of(kind))).items for kind in kinds])

    async def controllers() -> None:
        while not tasks.ending:
            try:
                await Controllers(client, clock, entropy).run()  # type: ignore[arg-type]
            except* Crash:
                pass  # and starts again

    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "one"}]}}
    web = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    once = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    async with Tasks("story", clock, entropy) as tasks:
        tasks.start("controllers", controllers())
        await make("ResourceClaimTemplate", "t", {"spec": {"devices": {"requests": [request]}}})
        await make("Deployment", "web", web)
        await make("Job", "job", {"completions": 2, "parallelism": 2, "template": {"spec": once}})
        await make("Pod", "once", {**once, "resourceClaims": [entry]})
        await until(deployed("one"), every_s=0.001, meanwhile=one_second)
        await until(completed, every_s=0.001, meanwhile=one_second)
        template["spec"] = {"containers": [{"name": "c", "image": "two"}]}
        await user.patch(kind_of("Deployment"), "web", {"spec": {"template": template}}, "default")
        await until(deployed("two"), every_s=0.001, meanwhile=one_second)
        await until(claims_gone, every_s=0.001, meanwhile=one_second)
        job = await user.get(kind_of("Job"), "job", "default")
        await user.delete(kind_of("Deployment"), "web", "default", propagation="Foreground")
        await until(deployment_gone, every_s=0.001, meanwhile=one_second)
        pods = (await user.list(kind_of("Pod"))).items
        await until(web_pods_gone, every_s=0.001, meanwhile=kubelet)
        pods = (await user.list(kind_of("Pod"))).items
        tasks.stop()
    await user.close()
    end = {
        "job": {f: job["status"].get(f) for f in ("succeeded", "failed", "active", "uncountedTerminatedPods")},
        "pods": sorted(pod["metadata"]["name"].rpartition("-")[0] or pod["metadata"]["name"] for pod in pods),
        "held": [pod["metadata"]["finalizers"] for pod in pods if pod["metadata"].get("finalizers")],
    }
    return end, client.writes


EXPECTED = {
    "job": {"succeeded": 2, "failed": None, "active": None, "uncountedTerminatedPods": {}},
    "pods": ["job", "job", "once"],
    "held": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["conflict", "lost request", "lost answer", "crash before", "crash after"])
def test_each_write_in_turn_may_fail(fault: str) -> None:
    end, writes = asyncio.run(diagnosis(lambda number: ""))
    assert end == EXPECTED
    assert writes > 20
    for failing in range(1, writes + 1, 3):
        end, _ = asyncio.run(diagnosis(lambda number, failing=failing: fault if number == failing else ""))
        assert end == EXPECTED, f"write {failing}: {fault}"


@pytest.mark.slow
def test_the_same_over_http_and_tls() -> None:
    end, _ = asyncio.run(diagnosis(lambda number: "lost answer" if number % 10 == 0 else "", http=True))
    assert end == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_writes_may_fail(seed: int) -> None:
    chance = Entropy(seed)
    faults = ["conflict", "lost request", "lost answer", "crash before", "crash after"]
    end, _ = asyncio.run(diagnosis(lambda number: chance.pick(faults) if number < 150 and chance.chance(0.2) else ""))
    assert end == EXPECTED
