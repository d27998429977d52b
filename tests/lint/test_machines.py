"""Lint on the slices of whole machines: what known topologies and cards cannot give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.api import files
from dragoman.drivers.registry import known_drivers
from dragoman.lint.finding import Finding
from dragoman.lint.linter import LintTarget, lint
from dragoman.profiles.load import Catalog
from dragoman.testing.build import claim, request

CATALOG = Catalog.packaged()
PCIE, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"


def machine(name: str) -> list[dict[str, Any]]:
    """The slices of a machine's GPUs and adapters, and the classes of both."""
    profile = CATALOG.profile(name)
    assert profile is not None
    drivers: dict[str, list[dict[str, Any]]] = {"gpu.nvidia.com": [], "dra.net": []}
    for index, slot in enumerate(profile.gpus):
        model = CATALOG.gpus[slot.model or profile.gpu]
        own = {"type": {"string": "gpu"}, "productName": {"string": model.name}}
        drivers["gpu.nvidia.com"].append(
            {
                "name": f"gpu-{index}",
                "attributes": {**own, PCIE: {"string": slot.pcie_root}, NUMA: {"int": slot.numa}},
                "capacity": {"memory": {"value": f"{model.memory_mib}Mi"}},
            }
        )
    for index, nic in enumerate(profile.nics):
        place = {PCIE: {"string": nic.pcie_root}, NUMA: {"int": nic.numa}}
        drivers["dra.net"].append({"name": f"nic-{index}", "attributes": place})
    made = []
    for driver, devices in drivers.items():
        spec = {
            "driver": driver,
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        made.append(of("ResourceSlice", driver, spec))
        made.append(of("DeviceClass", driver, {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}))
    return made


def of(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def together(gpus: int, nics: int, attribute: str) -> dict[str, Any]:
    wanted = {"gpu": ("gpu.nvidia.com", gpus), "nic": ("dra.net", nics)}
    requests = [request(name, owner, count=count) for name, (owner, count) in wanted.items() if count]
    return claim("c", *requests, match=attribute)


def run(*objects: dict[str, Any]) -> list[Finding]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return lint(files.scan([("f.json", text)]), LintTarget(known=known_drivers()))


# What can be had together, by machine: (GPUs, adapters, attribute) and whether it can.
TOGETHER: dict[str, tuple[str, int, int, str, bool]] = {
    "a GPU and an adapter of one root on a DGX H100": ("dgx-h100", 1, 1, PCIE, True),
    "a GPU and an adapter of one root on a tray of GB200": ("gb200-nvl72", 1, 1, PCIE, False),
    "a GPU and an adapter of one NUMA node there": ("gb200-nvl72", 1, 1, NUMA, True),
    "two GPUs and two adapters of one root on a DGX A100": ("dgx-a100", 2, 2, PCIE, True),
    "two GPUs and two adapters of one root on a DGX H100": ("dgx-h100", 2, 2, PCIE, False),
    "four GPUs of one NUMA node on a DGX H100": ("dgx-h100", 4, 0, NUMA, True),
    "four GPUs of one NUMA node on a tray of GB200": ("gb200-nvl72", 4, 0, NUMA, False),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_what_a_topology_cannot_give_is_reported(name: str) -> None:
    kind, gpus, nics, attribute, can = TOGETHER[name]
    assert [f.code for f in run(*machine(kind), together(gpus, nics, attribute))] == (
        [] if can else ["ConstraintUnmeetable"]
    )


def test_on_gb200_the_numa_node_is_named() -> None:
    (finding,) = run(*machine("gb200-nvl72"), together(1, 1, PCIE))
    assert finding.fix == f"use {NUMA}, which can be met here"
    assert "gpu has pci0008:00, pci0009:00, pci0018:00, pci0019:00; nic has pci0000:00" in finding.message


@pytest.mark.parametrize(("least", "said"), [("80Gi", True), ("75Gi", False)])
def test_a_threshold_of_80_gb_on_h100(least: str, said: bool) -> None:
    expression = (
        "device.driver == 'gpu.nvidia.com' && "
        f"device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{least}')) >= 0"
    )
    owner = of("DeviceClass", "large", {"selectors": [{"cel": {"expression": expression}}]})
    found = [(f.code, f.message.partition(";")[0], f.fix) for f in run(*machine("dgx-h100"), owner)]
    fix = "gpu.nvidia.com/memory of 8 is up to 79.64Gi, just under 80Gi: write 75Gi"
    assert found == ([("NeverTrue", "matches 0 of 8 devices", fix)] if said else [])


def test_a_product_of_nearly_that_name_is_suggested() -> None:
    expression = (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H100 80GB'"
    )
    (finding,) = run(*machine("dgx-h100"), of("DeviceClass", "h", {"selectors": [{"cel": {"expression": expression}}]}))
    assert (finding.code, finding.fix) == ("NeverTrue", "write 'NVIDIA H100 80GB HBM3'")


def test_a_mixed_cluster_misses_some_by_a_hair() -> None:
    a100 = [
        {**d, "metadata": {"name": "other"}}
        for d in machine("dgx-a100-80")
        if d["metadata"]["name"] == "gpu.nvidia.com"
    ][:1]
    a100[0]["spec"] = {**a100[0]["spec"], "nodeName": "m", "pool": {**a100[0]["spec"]["pool"], "name": "m"}}
    expression = (
        "device.driver == 'gpu.nvidia.com' && device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0"
    )
    owner = of("DeviceClass", "large", {"selectors": [{"cel": {"expression": expression}}]})
    (finding,) = run(*machine("dgx-h100"), *a100, owner)
    assert finding.code == "JustMissed"
    assert finding.message.startswith("leaves out 8 of 16 devices by little")
    assert finding.fix == "write 75Gi to take them too"
