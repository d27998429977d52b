"""The DCGM exporter's counters on a simulated node: labels of pods and claims, load, and what faults show."""

from __future__ import annotations

import re

import pytest

from dragoman.drivers.nvidia.dcgm import FIELDS
from dragoman.drivers.nvidia.factory import MachineSettings
from dragoman.testing import build
from tests.daemon.lab import Lab
from tests.drivers.nvidia.test_device_plugin import played

LINE = re.compile(r"^(DCGM_\w+)\{(.*)\} (\S+)$", re.MULTILINE)


def series(world: Lab, name: str) -> list[tuple[dict[str, str], float]]:
    page = world.cluster.metrics.text().decode()
    return [
        (dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value))
        for found, labels, value in LINE.findall(page)
        if found == name
    ]


@pytest.mark.slow
def test_series_name_pods_and_claims_and_show_faults() -> None:
    async def scenario(world: Lab) -> None:
        claim = build.claim("gpus", build.request(device_class="gpu.nvidia.com", count=2), namespace="default")
        busy, idle = build.pod("busy", "gpus"), build.pod("idle", "one")
        for made in (busy, idle):
            del made["metadata"]["uid"]  # the server gives it
        idle["metadata"]["annotations"] = {"dragoman.dev/gpu-load": "0.01", "dragoman.dev/gpu-memory": "10Gi"}
        await world.apply(claim, build.claim("one", build.request(device_class="gpu.nvidia.com")), busy, idle)
        for name in ("busy", "idle"):
            await world.phase(name, "Running")

        def by_pod(name: str, pod: str) -> list[tuple[dict[str, str], float]]:
            return [found for found in series(world, name) if found[0].get("pod") == pod]

        async def collected() -> bool:
            await world.cluster.simulation.advance(30)
            return len(by_pod("DCGM_FI_DEV_GPU_UTIL", "busy")) == 2 and bool(by_pod("DCGM_FI_DEV_GPU_UTIL", "idle"))

        await world.until(collected, every_s=0.1)
        labels, value = by_pod("DCGM_FI_DEV_GPU_UTIL", "busy")[0]
        assert value == 85
        assert labels["dra_claim_name"] == "gpus"
        assert labels["dra_claim_namespace"] == labels["namespace"] == "default"
        assert labels["dra_driver_name"] == "gpu.nvidia.com"
        assert labels["dra_pool_name"] == labels["Hostname"] == "a"
        assert labels["dra_device_name"] == f"gpu-{labels['gpu']}"
        assert labels["UUID"].startswith("GPU-")
        assert {"pci_bus_id", "device", "modelName", "container", "DCGM_FI_DRIVER_VERSION"} <= set(labels)

        assert by_pod("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "idle")[0][1] == 0.01
        assert by_pod("DCGM_FI_DEV_FB_USED", "idle")[0][1] == 10 * 1024
        watts = {pod: by_pod("DCGM_FI_DEV_POWER_USAGE", pod)[0][1] for pod in ("busy", "idle")}
        assert watts["busy"] > 4 * watts["idle"]
        energy = by_pod("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "busy")[0][1]
        assert energy > 0
        free = [labels for labels, _ in series(world, "DCGM_FI_DEV_GPU_UTIL") if "pod" not in labels]
        assert len(free) == 5, "GPUs that nobody has"
        shown = {name for name, _, _ in LINE.findall(world.cluster.metrics.text().decode())}
        assert shown == {field.name for field in FIELDS}

        hardware = world.cluster.nodes["a"].plugins["gpu.nvidia.com"].driver.hardware  # type: ignore[attr-defined]
        hardware.inject_xid(3, 79)
        hardware.inject_xid(3, 31)
        hardware.heat(4, 95)
        hardware.fail_row_remap(5, True)

        def of_gpu(name: str) -> dict[str, float]:
            return {labels["gpu"]: value for labels, value in series(world, name)}

        assert of_gpu("DCGM_FI_DEV_XID_ERRORS")["3"] == 31, "the last number, not a count"
        assert of_gpu("DCGM_FI_DEV_GPU_TEMP")["4"] == 95
        assert of_gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE") == {str(i): float(i == 5) for i in range(8)}

    played(scenario, ("a", "dgx-h100"), drivers={"gpu.nvidia.com": MachineSettings(dcgm=True)})


@pytest.mark.slow
def test_without_the_flag_there_are_none() -> None:
    async def scenario(world: Lab) -> None:
        assert "DCGM_" not in world.cluster.metrics.text().decode()

    played(scenario, ("a", "dgx-h100"))
