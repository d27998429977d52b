"""Prepare and unprepare on simulated machines: never half a state, nothing left over, the right files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.drivers.nvidia.consequences import holders
from dragoman.drivers.nvidia.devices import Shares
from dragoman.errors import Invalid, Retry
from dragoman.node.checkpoint import PrepareState
from tests.node.bench_of_lamps import Crash

from .bench_of_gpus import Bench, opaque, ref

H = "gpu-0-mig-"


def test_a_full_gpu_brings_its_nodes_and_the_drivers_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "dgx-h100")
    nodes = asyncio.run(bench.prepare("a", "gpu-3"))
    assert nodes == [["/dev/nvidia3", "/dev/dri/card3", "/dev/dri/renderD131"]]
    spec = bench.spec("a")
    assert spec.kind == "k8s.gpu.nvidia.com/claim"
    assert [device.name for device in spec.devices] == ["uid-a-gpu-3"]
    common = spec.container_edits
    assert "NVIDIA_VISIBLE_DEVICES=void" in common.env
    assert [node.path for node in common.device_nodes] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
    ]
    assert any(mount.container_path.endswith("/libcuda.so.580.95.05") for mount in common.mounts)
    assert {hook.hook_name for hook in common.hooks} == {"createContainer"}
    asyncio.run(bench.unprepare("a"))
    assert not list((tmp_path / "cdi").iterdir())


def test_a_static_mig_device_brings_its_parent_and_two_capabilities(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a100-40-mig")
    nodes = asyncio.run(bench.prepare("a", "gpu-0-mig-3g20gb-9-4"))
    assert nodes == [["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"]]


def test_paths_of_an_operators_driver_root_are_those_of_the_host(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "t4-4", driver_root="/run/nvidia/driver")
    asyncio.run(bench.prepare("a", "gpu-0"))
    mount = bench.spec("a").container_edits.mounts[0]
    assert mount.host_path == f"/run/nvidia/driver{mount.container_path}"


# ---- dynamic MIG


async def make_and_remove(bench: Bench) -> None:
    await bench.prepare("a", f"{H}1g10gb-19-0", f"{H}3g40gb-9-4", f"{H}2g20gb-14-2")
    assert bench.instances() == ["1g.10gb@0", "2g.20gb@2", "3g.40gb@4"]
    names = [partition.profile for partition in bench.driver.claims["uid-a"].partitions]
    assert names == [9, 14, 19], "the largest first"
    await bench.prepare("b", f"{H}1g10gb-19-1")
    await bench.unprepare("a")
    assert bench.instances() == ["1g.10gb@1"]
    assert bench.hardware.gpus()[0].mig_enabled
    await bench.unprepare("b")
    assert not bench.hardware.gpus()[0].mig_enabled


def test_instances_are_made_with_claims_and_mig_mode_with_the_first(tmp_path: Path) -> None:
    asyncio.run(make_and_remove(Bench(tmp_path, "dgx-h100", "DynamicMIG")))


def test_an_ampere_gpu_stays_in_mig_mode(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-a100-40-dynamic", "DynamicMIG")
        await bench.prepare("a", f"{H}1g5gb-19-0")
        await bench.unprepare("a")
        assert bench.hardware.gpus()[0].mig_enabled
        assert bench.instances() == []

    asyncio.run(body())


def test_a_taken_placement_fails_and_leaves_the_others_instance(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "DynamicMIG")
        await bench.prepare("a", f"{H}1g10gb-19-3")
        # Somebody made one by hand where the claim wants one, of the same profile.
        gpu = bench.hardware.gpu_uuid(0)
        shape = bench.hardware.shapes(gpu)[0]
        strange = bench.hardware.create_instance(gpu, shape, 0)
        with pytest.raises(Retry, match=r"insufficient resources for 1g\.10gb@0:"):
            await bench.prepare("b", f"{H}3g40gb-9-4", f"{H}1g10gb-19-0")
        assert bench.hardware.instances(gpu)[0].uuid == strange.uuid
        assert bench.instances() == ["1g.10gb@0", "1g.10gb@3"]
        await bench.restart()
        assert bench.instances() == ["1g.10gb@3"], "what no claim has is removed at the start"

    asyncio.run(body())


WANTED = (f"{H}3g40gb-9-0", f"{H}2g20gb-14-4", f"{H}1g10gb-me-20-6")


async def crash_everywhere(folder: Path, operation: str) -> int:
    """Let prepare or unprepare die at its 1st, 2nd, ... step; the number of steps it has."""
    at = 0
    while True:
        at += 1
        bench = Bench(folder / f"{operation}-{at}", "dgx-h100", "DynamicMIG")
        bench.folder.mkdir()
        await bench.prepare("other", f"{H}1g10gb-19-5".replace("gpu-0", "gpu-1"))
        if operation == "unprepare":
            await bench.prepare("a", *WANTED)
        bench.fuse.arm(at)
        try:
            await (bench.prepare("a", *WANTED) if operation == "prepare" else bench.unprepare("a"))
            burnt = False
        except Crash:
            burnt = True
        bench.fuse.arm(0)
        await bench.restart()
        claims = bench.preparer.checkpoint.claims
        assert {record.state for record in claims.values()} == {PrepareState.READY}
        assert bench.instances() == (["3g.40gb@0", "2g.20gb@4", "1g.10gb+me@6"] if "uid-a" in claims else [])
        assert bench.instances(1) == ["1g.10gb@5"], "nothing else moved"
        assert bench.hardware.gpus()[0].mig_enabled == ("uid-a" in claims)
        if operation == "prepare":
            await bench.prepare("a", *WANTED)
            assert len(bench.instances()) == 3
        await bench.unprepare("a")
        assert bench.instances() == []
        if not burnt:
            return at - 1


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_a_crash_at_any_step_leaves_no_half_made_instance(operation: str, tmp_path: Path) -> None:
    assert asyncio.run(crash_everywhere(tmp_path, operation)) >= 12


def test_after_a_reboot_the_pod_gets_a_new_instance(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "DynamicMIG")
        await bench.prepare("a", f"{H}3g40gb-9-0")
        before = bench.driver.claims["uid-a"].devices[0].uuid
        bench.boot = "boot-2"
        await bench.restart()
        assert bench.instances() == []
        assert not bench.preparer.checkpoint.claims
        await bench.prepare("a", f"{H}3g40gb-9-0")
        (instance,) = bench.hardware.instances(bench.hardware.gpu_uuid(0))
        assert bench.driver.claims["uid-a"].devices[0].uuid == instance.uuid != before

    asyncio.run(body())


def test_a_lost_gpu_does_not_keep_claims_from_being_unprepared(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "DynamicMIG")
        await bench.prepare("a", f"{H}3g40gb-9-0")
        bench.hardware.lose(0)
        with pytest.raises(Retry, match="is lost"):
            await bench.prepare("b", f"{H}1g10gb-19-4")
        await bench.unprepare("a")
        assert not bench.driver.claims

    asyncio.run(body())


# ---- sharing, passthrough, partitions


def test_a_time_slice_is_set_and_reset(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "TimeSlicingSettings")
        gpu = bench.hardware.gpu_uuid(1)
        sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
        await bench.prepare("a", "gpu-1", config=(opaque("GpuConfig", sharing=sharing),))
        assert bench.hardware.sharing_of(gpu) == (False, 3)
        await bench.unprepare("a")
        assert bench.hardware.sharing_of(gpu) == (False, 0)

    asyncio.run(body())


def test_mps_without_a_way_to_run_daemons_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "dgx-h100", "MPSSupport")
    entry = opaque("GpuConfig", sharing={"strategy": "MPS"})
    with pytest.raises(Invalid, match="cannot run control daemons"):
        asyncio.run(bench.prepare("a", "gpu-1", config=(entry,)))


def test_claims_that_share_a_gpu_must_want_the_same_of_it(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "ConsumableShares", "TimeSlicingSettings", shares=Shares.parse("4"))

        def slicing(interval: str) -> dict[str, object]:
            settings = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
            return opaque("GpuConfig", sharing=settings)

        gpu = bench.hardware.gpu_uuid(0)
        await bench.prepare("a", "gpu-0", shareID="s1", config=(slicing("Long"),))
        with pytest.raises(Retry, match="conflicting configuration with the already prepared claim uid-a"):
            await bench.prepare("b", "gpu-0", shareID="s2", config=(slicing("Short"),))
        await bench.prepare("c", "gpu-0", shareID="s3", config=(slicing("Long"),))
        await bench.unprepare("a")
        assert bench.hardware.sharing_of(gpu) == (False, 3), "the other claim still wants it"
        await bench.unprepare("c")
        assert bench.hardware.sharing_of(gpu) == (False, 0)

    asyncio.run(body())


def test_passing_a_gpu_through_hides_its_other_form(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "mixed-h100-a100", "PassthroughSupport")
        calls: list[str] = []
        bench.driver.connect(lambda: calls.append("republish"))
        everything = [f"gpu-{i}" for i in range(4)] + [f"gpu-vfio-{i}" for i in range(4)]
        assert await bench.published() == everything
        settings = {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}
        nodes = await bench.prepare("a", "gpu-vfio-2", config=(opaque("VfioDeviceConfig", iommu=settings),))
        assert nodes == [["/dev/vfio/devices/vfio2"]]
        common = bench.spec("a").container_edits
        assert [node.path for node in common.device_nodes] == ["/dev/iommu"]
        assert not common.mounts
        assert await bench.published() == [name for name in everything if name != "gpu-2"]
        await bench.prepare("b", "gpu-0")
        assert "gpu-vfio-0" not in await bench.published()
        await bench.unprepare("a")
        await bench.unprepare("b")
        assert await bench.published() == everything
        assert len(calls) == 4

    asyncio.run(body())


def test_the_older_vfio_interface_is_the_default(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "mixed-h100-a100", "PassthroughSupport")
    assert asyncio.run(bench.prepare("a", "gpu-vfio-1")) == [["/dev/vfio/11"]]


def test_gpus_that_are_a_partition_are_linked_others_are_refused(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "FabricManagerPartitioning")
        with pytest.raises(
            Invalid, match=r"\(module ids 2, 3\) are not a Fabric Manager partition; use matchAttribute"
        ):
            await bench.prepare("a", "gpu-1", "gpu-2")
        await bench.prepare("a", "gpu-2", "gpu-3")
        assert bench.hardware.active_partitions == (5,)
        await bench.restart()
        await bench.unprepare("a")
        assert bench.hardware.active_partitions == ()

    asyncio.run(body())


def test_who_watches_changes_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "FabricManagerPartitioning")
        await bench.prepare("user", "gpu-2")
        every = [f"gpu-{index}" for index in range(8)]
        await bench.prepare("monitor", *every, adminAccess=True)
        assert bench.hardware.active_partitions == (10,)
        found = holders(bench.driver.claims, {})
        assert [holder.claim for holder in found] == ["uid-user"]

    asyncio.run(body())


def test_a_device_that_went_away_is_a_retry(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "t4-4")
    with pytest.raises(Retry, match="gpu-9 is not on node n1 any more"):
        asyncio.run(bench.prepare("a", "gpu-9"))


def test_unpreparing_what_was_never_prepared_is_no_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "t4-4")
    assert asyncio.run(bench.preparer.unprepare(ref("never"))) is None
