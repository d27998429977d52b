"""Network adapters of machine profiles, and claims for a GPU with an adapter near it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.resource import ResourceClaim
from dragoman.drivers.nic.driver import NicDriver
from dragoman.errors import DragomanError, Invalid
from dragoman.node.driver import ClaimRef, ClaimToPrepare, Setup
from dragoman.profiles import Catalog
from dragoman.runtime.clock import Clock
from dragoman.testing.build import claim, request
from tests.daemon.lab import CLAIM, Lab, lab, short_pod

CATALOG = Catalog.packaged()
ROOT, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"


def driver(profile: str, node: str = "n1") -> NicDriver:
    found = CATALOG.profile(profile)
    assert found
    return NicDriver(node, found, CATALOG.nics, Clock())


def published(made: NicDriver) -> dict[str, Any]:
    pools = asyncio.run(made.pools())
    return {device.name: codec.to_json(device) for device in pools[made.node_name].devices}


def value(device: dict[str, Any], name: str) -> Any:
    return next(iter(device["attributes"][name].values()))


def test_an_infiniband_adapter_of_dgx_h100() -> None:
    devices = published(driver("dgx-h100"))
    assert len(devices) == 12
    first = devices["pci-0000-18-00-0"]
    attributes = {name: next(iter(value.values())) for name, value in first["attributes"].items()}
    assert attributes.pop("mac").startswith("02:")
    assert attributes == {
        "rdma": True,
        "virtual": False,
        "rdmaDevice": "mlx5_0",
        "ifName": "ibp24s0",
        "pciAddress": "0000:18:00.0",
        "pciVendor": "Mellanox Technologies",
        "pciDevice": "MT2910 Family [ConnectX-7]",
        "mtu": 4092,
        "encapsulation": "infiniband",
        "state": "up",
        "type": "device",
        "numaNode": 0,
        "resource.kubernetes.io/pciBusID": "0000:18:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:15",
        "resource.kubernetes.io/numaNode": 0,
    }
    assert first["capacity"] == {"bandwidth": {"value": "400G"}}


def test_addresses_stay_and_differ() -> None:
    def macs(node: str) -> list[str]:
        return [value(d, "mac") for d in published(driver("dgx-h100", node)).values()]

    assert macs("a") == macs("a")
    assert len(set(macs("a") + macs("b"))) == 24


def prepared(made: NicDriver, device: str, parameters: dict[str, Any] | None = None, pool: str = "n1") -> Setup:
    results = [{"request": "nic", "driver": "dra.net", "pool": pool, "device": device}]
    config = [{"source": "FromClaim", "opaque": {"driver": "dra.net", "parameters": parameters}}] if parameters else []
    whole = codec.decode(ResourceClaim, {"status": {"allocation": {"devices": {"results": results, "config": config}}}})
    assert whole.status.allocation
    given = whole.status.allocation.devices
    work = ClaimToPrepare(ClaimRef("d", "c", "u"), given.results, given.config, whole, lambda state: None)
    return asyncio.run(made.prepare(work))


def test_an_interface_is_moved_and_renamed() -> None:
    made = driver("a3-highgpu-8g")
    name = next(iter(made.adapters))
    parameters = {"interface": {"name": "fast0", "addresses": ["192.168.7.5/24"]}}
    (setup,) = prepared(made, name, parameters).devices
    assert [(net.host_interface_name, net.name) for net in setup.edits.net_devices] == [("eth1", "fast0")]
    assert setup.edits.env == ("NIC_0000_01_00_0=eth1",)
    assert not setup.edits.device_nodes
    assert setup.network_data
    assert (setup.network_data.interface_name, setup.network_data.ips) == ("fast0", ("192.168.7.5/24",))
    assert setup.network_data.hardware_address == made.adapters[name].mac


def test_rdma_devices_bring_their_files() -> None:
    (setup,) = prepared(driver("gb200-nvl72"), "pci-0002-03-00-1").devices
    assert [node.path for node in setup.edits.device_nodes] == [
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs3",
    ]
    assert setup.edits.env == ("NIC_0002_03_00_1=rdma3",)
    assert not setup.edits.net_devices


BAD: dict[str, tuple[str, dict[str, Any] | None, str, str]] = {
    "no such adapter": ("pci-0000-00-00-0", None, "n1", "n1 has no such network adapter"),
    "another node's": ("pci-0002-03-00-1", None, "n2", "device n2/pci-0002-03-00-1: n1 has no such network adapter"),
    "an unknown field": ("pci-0002-03-00-1", {"interfaces": {}}, "n1", "unknown field `interfaces`"),
    "a name for what has no interface": (
        "pci-0002-03-00-1",
        {"interface": {"name": "eth9"}},
        "n1",
        "rdma3 is an RDMA device without a network interface",
    ),
    "a name too long": ("pci-0002-03-00-1", {"interface": {"name": "x" * 16}}, "n1", "at most 15 characters"),
}


@pytest.mark.parametrize(("device", "parameters", "pool", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_prepared(device: str, parameters: dict[str, Any] | None, pool: str, said: str) -> None:
    with pytest.raises(Invalid, match=said.replace("(", r"\(")):
        prepared(driver("gb200-nvl72"), device, parameters, pool)


def test_a_link_that_is_down() -> None:
    made = driver("dgx-h100")
    asked: list[bool] = []
    made.connect(lambda: asked.append(True))
    made.set_down("mlx5_0", down=True)
    made.set_down("mlx5_0", down=True)
    device = published(made)["pci-0000-18-00-0"]
    assert value(device, "state") == "down"
    assert [(t["key"], t["effect"]) for t in device["taints"]] == [("dra.net/link-down", "NoSchedule")]
    with pytest.raises(DragomanError, match="the link of mlx5_0"):
        prepared(made, "pci-0000-18-00-0")

    async def first_health() -> Any:
        return await anext(made.health())

    sick = [d for d in asyncio.run(first_health()) if d.health != "Healthy"]
    assert [(d.device, d.health, d.message) for d in sick] == [
        ("pci-0000-18-00-0", "Unhealthy", "the link of mlx5_0 is down")
    ]
    made.set_down("0000:18:00.0", down=False)
    assert "taints" not in published(made)["pci-0000-18-00-0"]
    assert asked == [True, True], "only changes are published"
    with pytest.raises(Invalid, match="adapter mlx5_99: is not on n1, which has: mlx5_0, "):
        made.set_down("mlx5_99", down=True)


# ---- together with GPUs

NODES = (("a100", "dgx-a100-80"), ("h100", "dgx-h100"), ("p5", "p5.48xlarge"), ("rack", "gb200-nvl72"))
MACHINES = ("a100", "h100", "p5", "rack-0")
REQUESTS: dict[str, tuple[list[tuple[str, str, int]], str, set[str]]] = {
    "1 GPU and 1 adapter on one PCIe root": ([("gpu", "", 1), ("nic", "", 1)], ROOT, {"a100", "h100", "p5"}),
    "1 GPU and 4 adapters on one PCIe root": ([("gpu", "", 1), ("nic", "", 4)], ROOT, {"p5"}),
    "2 GPUs and 2 adapters on one PCIe root": ([("gpu", "", 2), ("nic", "", 2)], ROOT, {"a100"}),
    "1 GPU and 1 adapter on one NUMA node": ([("gpu", "", 1), ("nic", "", 1)], NUMA, set(MACHINES)),
    "4 GPUs on one NUMA node": ([("gpu", "", 4)], NUMA, {"h100", "p5"}),
}
CLASSES = {"gpu": "gpu.nvidia.com", "nic": "dranet.net"}


async def fits(world: Lab, number: int, node: str, wanted: list[tuple[str, str, int]], match: str) -> bool:
    name = f"w{number}-{node}"
    requests = [request(what, CLASSES[what], count=count, select=cel) for what, cel, count in wanted]
    await world.apply(claim(name, *requests, match=match), short_pod(name, name, node=node))

    async def decided() -> str | None:
        found = await world.pod(name)
        assert found
        conditions = {c["type"]: c for c in found["status"].get("conditions", [])}
        if found["status"].get("phase") == "Running":
            return "yes"
        return "no" if conditions.get("PodScheduled", {}).get("reason") == "Unschedulable" else None

    answer = await world.until(decided)
    if answer == "yes":
        results = await world.results(name)
        devices = {
            d: v for driver in ("gpu.nvidia.com", "dra.net") for d, v in (await world.devices(driver, node)).items()
        }
        assert len({value(devices[r["device"]], match) for r in results}) == 1, "they share the attribute"
    await world.client.delete(kind_of("Pod"), name, "default", grace_period_s=0)
    await world.gone(name)
    await world.client.delete(CLAIM, name, "default")
    return bool(answer == "yes")


@pytest.mark.slow
def test_which_machine_has_gpus_and_adapters_near_each_other() -> None:
    async def main() -> None:
        async with lab(*NODES) as world:
            found = {
                title: {node for node in MACHINES if await fits(world, number, node, wanted, match)}
                for number, (title, (wanted, match, _)) in enumerate(REQUESTS.items())
            }
            assert found == {title: expected for title, (_, _, expected) in REQUESTS.items()}

    asyncio.run(main())


@pytest.mark.slow
def test_the_claims_status_tells_the_network() -> None:
    async def main() -> None:
        async with lab(("n1", "a3-highgpu-8g")) as world:
            parameters = {"interface": {"name": "fast0", "addresses": ["192.168.7.5/24"]}}
            config = [{"requests": ["nic"], "opaque": {"driver": "dra.net", "parameters": parameters}}]
            await world.apply(claim("c", request("nic", "dranet.net"), config=config), short_pod("p", "c"))
            await world.phase("p", "Running")

            async def reported() -> Any:
                return (await world.client.get(CLAIM, "c", "default"))["status"].get("devices")

            (status,) = await world.until(reported)
            assert status["driver"] == "dra.net"
            assert status["networkData"]["interfaceName"] == "fast0"
            assert status["networkData"]["ips"] == ["192.168.7.5/24"]
            assert "fast0 (host eth1)" in await world.logs("p")

    asyncio.run(main())
