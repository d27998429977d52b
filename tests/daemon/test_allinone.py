"""The parts of a whole cluster in one process, as `dragoman up` wires them."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.allocate.allocator import AllocatorOptions
from dragoman.api.gates import strict_gates
from dragoman.api.kinds import kind_of
from dragoman.daemon import allinone
from dragoman.errors import Invalid
from dragoman.testing.build import claim, device, device_class, manifest, pod, pool, request
from tests.daemon.lab import lab

CONFIG_MAP = kind_of("ConfigMap")
ROOT_CA = "kube-root-ca.crt"


@pytest.mark.slow
def test_the_root_certificate_is_made_again_and_every_kind_is_listed_once() -> None:
    async def body() -> None:
        async with lab() as here:
            before = await here.client.get(CONFIG_MAP, ROOT_CA, "default")
            await here.client.delete(CONFIG_MAP, ROOT_CA, "default")

            async def again() -> bool:
                maps = (await here.client.list(CONFIG_MAP, "default")).items
                return any(m["metadata"]["name"] == ROOT_CA and m["data"] == before["data"] for m in maps)

            await here.until(again)
            assert "BEGIN CERTIFICATE" in before["data"]["ca.crt"]
            text = here.cluster.metrics.text().decode()
            lists = [line for line in text.splitlines() if line.startswith("dragoman_informer_lists_total{")]
            assert lists
            assert not [line for line in lists if not line.endswith(" 1.0")], "scheduler and controllers share"

    asyncio.run(body())


@pytest.mark.slow
def test_gates_hold_for_api_scheduler_and_node() -> None:
    """A device that needs memory of its node (KEP-5517): stored, counted, told, though no driver prepares it."""
    gate = "DRANodeAllocatableResources"

    async def body() -> None:
        async with lab(("n", "example"), options=AllocatorOptions(gates=strict_gates(f"{gate}=true"))) as here:
            needs = {"memory": {"mapping": {"deviceMultiplier": "1Gi"}}}
            mapped = device("d", size=1) | {"nodeAllocatableResources": needs}
            made = (
                pool("n", [mapped], node="n", driver="mapped.example.com"),
                device_class("mapped.example.com", driver="mapped.example.com"),
                claim("c", request(device_class="mapped.example.com")),
                pod("p", "c"),
            )
            await here.apply(*({**obj, "metadata": {**obj["metadata"], "uid": None}} for obj in made))

            async def bound() -> bool:
                found = await here.pod("p")
                return bool(found and found["spec"].get("nodeName"))

            await here.until(bound)
            found = await here.pod("p")
            assert found is not None
            [reported] = found["status"]["nodeAllocatableResourceClaimStatuses"]
            mapping = [{"name": "memory", "quantity": "1Gi"}]
            assert reported == {"resourceClaimName": "c", "containers": ["main"], "mapping": mapping}

    asyncio.run(body())


@pytest.mark.slow
def test_volumes_of_the_default_class_are_made_and_a_pod_without_its_claim_never_runs() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    async def body() -> None:
        async with lab(("n", "example")) as here:
            pods, claims = kind_of("Pod"), kind_of("PersistentVolumeClaim")
            await here.client.create(pods, pod("p", volumes=volumes), "default")
            # Past the scheduler, straight on a node: its kubelet does not start it either.
            nodes = (await here.client.list(kind_of("Node"))).items
            direct = pod("direct", volumes=volumes, nodeName=nodes[0]["metadata"]["name"])
            await here.client.create(pods, direct, "default")

            async def refused() -> bool:
                found = await here.client.get(pods, "p", "default")
                return any('claim "data" not found' in c.get("message", "") for c in found["status"]["conditions"])

            await here.until(refused)
            events = (await here.client.list(kind_of("Event"), "default")).items
            assert (await here.client.get(pods, "direct", "default"))["status"]["phase"] == "Pending"
            claim_body = manifest("PersistentVolumeClaim", "data", spec=wanted)
            await here.client.create(claims, claim_body, "default")

            async def running() -> bool:
                found = [await here.client.get(pods, name, "default") for name in ("p", "direct")]
                return all(one["status"]["phase"] == "Running" for one in found)

            await here.until(running)
            made = await here.client.get(claims, "data", "default")
            assert (made["spec"]["storageClassName"], made["status"]["phase"]) == ("standard", "Bound"), events

    asyncio.run(body())


def test_more_nodes_than_open_files_run_without_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allinone, "raise_open_files", lambda nodes: allinone.OpenFiles(nodes * 40 + 1024, 1000))

    async def body() -> None:
        async with lab(("n", "example"), ("m", "example")) as here:
            assert not list(here.cluster.nodes["n"].site.root.rglob("*.sock"))
            made = (claim("c"), pod("p", "c"))
            await here.apply(*({**obj, "metadata": {**obj["metadata"], "uid": None}} for obj in made))

            async def running() -> bool:
                found = await here.pod("p")
                return bool(found and found["status"].get("phase") == "Running")

            await here.until(running)

    asyncio.run(body())


def test_device_plugins_beyond_the_open_files_are_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allinone, "raise_open_files", lambda nodes: allinone.OpenFiles(41_024, 4_096))
    settings = allinone.ClusterSettings(nodes=(("n", "dgx-a100"),), gpu_path="device-plugin")

    async def body() -> None:
        async with allinone.Cluster(settings):
            raise AssertionError

    with pytest.raises(Invalid, match=r"1 nodes with sockets need 41,024 open files, and this process may have 4,096"):
        asyncio.run(body())
