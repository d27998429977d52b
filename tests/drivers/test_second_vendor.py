"""The guide's driver runs as it is printed, passes the bench, and serves where another vendor's devices are gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.daemon.driver_bench import examine
from dragoman.node.bench import report
from dragoman.node.bench.bed import BenchSettings
from dragoman.node.bench.catalogue import CASES
from dragoman.testing.build import claim, request
from tests.daemon.lab import SLICE, Lab, lab, short_pod
from tests.drivers.second_vendor import code, manifests


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="sv-", dir="/tmp"))  # short: sockets lie below it
    (made / "npu.py").write_text(code())
    try:
        yield made
    finally:
        shutil.rmtree(made)


def test_the_driver_is_under_60_lines() -> None:
    assert len(code().splitlines()) < 60


@pytest.mark.slow
def test_the_claim_falls_from_one_vendors_device_to_the_others(folder: Path) -> None:
    async def main() -> None:
        config = folder / "kubeconfig"
        async with lab(("n1", "example"), kubeconfig=config) as world:
            root = world.folder / "n" / "n1"
            words = [sys.executable, str(folder / "npu.py"), "--node-name", "n1", "--root-dir", str(root)]
            driver = await asyncio.create_subprocess_exec(*words, env={**os.environ, "KUBECONFIG": str(config)})
            try:
                await fall(world)
            finally:
                driver.kill()
                await driver.wait()

    asyncio.run(main())


async def fall(world: Lab) -> None:
    async def published() -> bool:
        return len((await world.client.list(SLICE, field_selector="spec.driver=npu.acme.example.com")).items) == 1

    await world.until(published)
    objects = manifests()
    await world.apply(objects["DeviceClass"], objects["ResourceClaimTemplate"])
    given: list[tuple[str, str]] = []
    for number in range(10):
        name = f"p{number}"
        await world.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {
                    "resourceClaims": [{"name": "any", "resourceClaimTemplateName": "gpu-else-npu"}],
                    "containers": [{"name": "main", "image": "app", "resources": {"claims": [{"name": "any"}]}}],
                },
            }
        )
        found = await world.phase(name, "Running")
        (result,) = await world.results(found["status"]["resourceClaimStatuses"][0]["resourceClaimName"])
        given.append((result["request"], result["device"]))
    assert given[:8] == [("accelerator/gpu", f"gpu-{n}") for n in range(8)]
    assert given[8:] == [("accelerator/npu", "npu-0"), ("accelerator/npu", "npu-1")]
    seen = await world.logs("p9")
    assert "ACME_NPU=npu-1" in seen
    assert "/dev/acme/npu-1" in seen
    assert "GPU_DEVICE" not in seen


LAMP = Path(__file__).parents[2] / "examples" / "drivers" / "lamp.py"
FLAGS = ("--node-name", "{node}", "--root-dir", "{root}", "--boot-id", "{boot_id}", "--pod-uid={pod_uid}")


@pytest.mark.slow
@pytest.mark.parametrize("written", [code(), LAMP.read_text()], ids=["the guide's", "the example"])
def test_the_driver_passes_the_bench(folder: Path, written: str) -> None:
    (folder / "driver.py").write_text(written)
    command = (sys.executable, str(folder / "driver.py"), *FLAGS)
    settings = BenchSettings(folder / "b", folder / "kubeconfig", command, patience_s=30.0, crash_points=3)
    found = asyncio.run(examine(settings, CASES))
    reported = {outcome.case: outcome.verdict for outcome in found.outcomes}
    assert not {case for case, verdict in reported.items() if verdict == "fail"}, report.text(found)
    assert {case for case, verdict in reported.items() if verdict == "skip"} == {"many-devices"}


@pytest.mark.slow
def test_a_pod_of_the_example_runs_beside_a_node_agent_and_its_driver_ends_cleanly(folder: Path) -> None:
    async def main() -> None:
        config = folder / "kubeconfig"
        async with lab(("n1", "example"), kubeconfig=config) as world:
            root = world.folder / "n" / "n1"
            words = [sys.executable, str(LAMP), "--node-name", "n1", "--root-dir", str(root)]
            driver = await asyncio.create_subprocess_exec(
                *words, env={**os.environ, "KUBECONFIG": str(config)}, stderr=asyncio.subprocess.PIPE
            )
            try:
                await world.apply(claim("lit", request("lamp", "lamp.example.com")), short_pod("p", "lit"))
                await world.phase("p", "Running")
                assert "LAMP=lamp-0" in await world.logs("p")
                driver.terminate()
                _, said = await asyncio.wait_for(driver.communicate(), 20)
            finally:
                if driver.returncode is None:
                    driver.kill()
            assert driver.returncode == 0
            assert b"Unclosed" not in said
            assert b"Traceback" not in said
            assert list((root / "cdi").iterdir()), "the device stays prepared"

    asyncio.run(main())


def test_what_cannot_be_used_is_said_in_one_line(folder: Path) -> None:
    config = folder / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:9'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    plugin = folder / "r" / "plugins" / "lamp.example.com"
    plugin.mkdir(parents=True)
    (plugin / "checkpoint.json").write_text("{")
    wrong = {
        str(folder / "r"): "is not a checkpoint",
        str(folder / ("x" * 100)): "a Unix socket's path has at most 107 bytes",
    }
    for root, reason in wrong.items():
        words = [sys.executable, str(LAMP), "--node-name", "n1", "--root-dir", root, "--kubeconfig", str(config)]
        done = subprocess.run([*words, "--log-level", "error"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert reason in line
    assert not (folder / ("x" * 100)).exists()
