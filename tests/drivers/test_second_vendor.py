"""The guide's driver runs as it is printed, passes the bench, and serves where another vendor's devices are gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.daemon.driver_bench import examine
from dragoman.node.bench import report
from dragoman.node.bench.bed import BenchSettings
from dragoman.node.bench.catalogue import CASES
from tests.daemon.lab import SLICE, Lab, lab
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
            words = [sys.executable, str(folder / "npu.py"), "n1", str(root), str(root / "cdi")]
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


@pytest.mark.slow
def test_the_driver_passes_the_bench_but_for_what_it_has_no_flags_for(folder: Path) -> None:
    settings = BenchSettings(
        folder / "b",
        folder / "kubeconfig",
        (sys.executable, str(folder / "npu.py"), "{node}", "{root}", "{cdi}"),
        patience_s=30.0,
        crash_points=3,
    )
    skipped = {"reboot", "rolling-update", "many-devices"}
    found = asyncio.run(examine(settings, CASES))
    reported = {outcome.case: outcome.verdict for outcome in found.outcomes}
    assert {case for case, verdict in reported.items() if verdict == "skip"} == skipped
    assert not {case for case, verdict in reported.items() if verdict == "fail"}, report.text(found)
