"""MPS control daemons: what they are told, and their life as Deployments."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.drivers.nvidia import driver as drivers
from dragoman.drivers.nvidia.config import MpsConfig
from dragoman.drivers.nvidia.mps import NAMESPACE, Daemons, Folders, daemon_for, deployment, script
from dragoman.errors import Retry
from dragoman.node.driver import NotYet
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

from .bench_of_gpus import NODE, Bench, opaque

DEPLOYMENT = kind_of("Deployment")


def test_a_daemon_is_named_for_claim_and_devices() -> None:
    one = daemon_for("uid", ["GPU-b", "GPU-a"], MpsConfig(), "p")
    assert one.uuids == ("GPU-a", "GPU-b")
    assert one == daemon_for("uid", ["GPU-a", "GPU-b"], MpsConfig(), "p")
    assert one.id.startswith("uid-")
    assert len(one.id) == len("uid-") + 5
    assert one.id != daemon_for("uid", ["GPU-a"], MpsConfig(), "p").id


def test_what_a_daemon_is_started_with() -> None:
    config = MpsConfig(25, "1Gi", {"1": "2Gi"}, multi_user=True)
    text = script(daemon_for("uid", ["GPU-b", "GPU-a"], config, "p"))
    assert "nvidia-cuda-mps-control -d -M" in text
    assert "set_default_active_thread_percentage 25" in text
    assert "set_default_device_pinned_mem_limit GPU-a 1024M" in text
    assert "set_default_device_pinned_mem_limit GPU-b 2048M" in text


def test_its_pod_is_bound_to_the_node_and_sees_only_its_devices() -> None:
    daemon = daemon_for("uid", ["GPU-a"], MpsConfig(), "p")
    pod = deployment(daemon, Folders(Path("/f")), NODE, NAMESPACE, "/run/nvidia/driver")["spec"]["template"]["spec"]
    assert (pod["nodeName"], pod["hostPID"]) == (NODE, True)
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "GPU-a"} in pod["containers"][0]["env"]
    assert {"name": "root", "hostPath": {"path": "/run/nvidia/driver"}} in pod["volumes"]


class Cluster:
    """An API server in memory, where somebody makes Deployments ready, or nobody."""

    def __init__(self, bench: Bench, *, ready: bool) -> None:
        self.clock = Clock(speed=200.0)
        registry = in_memory(self.clock, Entropy(1))
        self.api: InProcessClient = _Ready(registry) if ready else InProcessClient(registry)
        daemons = Daemons(self.api, self.clock, Entropy(2), bench.hardware, node_name=NODE, root=bench.folder / "mps")
        bench.driver.daemons = daemons

    async def deployments(self) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.api.list(DEPLOYMENT, NAMESPACE)).items]


class _Ready(InProcessClient):
    async def create(self, kind: Any, obj: Any, namespace: str = "", **more: Any) -> Any:
        made = await super().create(kind, obj, namespace, **more)
        if kind == DEPLOYMENT:
            status = {"status": {"replicas": 1, "readyReplicas": 1}}
            await self.patch(kind, made["metadata"]["name"], status, namespace, subresource="status")
        return made


def bench_uuids(bench: Bench) -> list[str]:
    return [bench.hardware.gpu_uuid(0), bench.hardware.gpu_uuid(1)]


def are_folders(paths: Iterable[str]) -> bool:
    return all(Path(path).is_dir() for path in paths)


MPS = opaque("GpuConfig", sharing={"strategy": "MPS"})


def test_devices_of_one_entry_share_a_daemon_from_prepare_to_unprepare(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "MPSSupport")
        cluster = Cluster(bench, ready=True)
        await bench.prepare("a", "gpu-0", "gpu-1", config=(MPS,))
        (name,) = await cluster.deployments()
        (daemon,) = bench.driver.claims["uid-a"].daemons
        assert name == f"mps-control-daemon-{daemon}"
        assert [bench.hardware.sharing_of(bench.hardware.gpu_uuid(i))[0] for i in range(3)] == [True, True, False]
        for device in bench.spec("a").devices:
            edits = device.container_edits
            assert edits.env == ("CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",)
            assert [mount.container_path for mount in edits.mounts] == ["/dev/shm", "/tmp/nvidia-mps"]
            assert are_folders(mount.host_path for mount in edits.mounts)
        await bench.unprepare("a")
        assert not bench.hardware.sharing_of(bench.hardware.gpu_uuid(0))[0]
        assert not list((tmp_path / "mps").iterdir())
        # Nobody takes it for a daemon of the claim's next life.
        with pytest.raises(Retry, match="is still ending"):
            await bench.driver.daemons.start(daemon_for("uid-a", bench_uuids(bench), MpsConfig(), "p"))  # type: ignore[union-attr]
        # Deleted in the foreground: the garbage collector removes the pods first.
        assert all(
            item["metadata"].get("deletionTimestamp") for item in (await cluster.api.list(DEPLOYMENT, NAMESPACE)).items
        )

    asyncio.run(body())


def test_a_daemon_that_is_not_ready_yet_stays_and_is_asked_again(tmp_path: Path) -> None:
    """A slow pull of its image comes to an end: nothing is undone meanwhile."""

    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "MPSSupport")
        cluster = Cluster(bench, ready=False)
        for _ in range(5):
            with pytest.raises(NotYet, match=r"dra-driver-nvidia-gpu/mps-control-daemon-\S+ is not ready"):
                await bench.prepare("a", "gpu-0", config=(MPS,))
        (item,) = (await cluster.api.list(DEPLOYMENT, NAMESPACE)).items
        assert not item["metadata"].get("deletionTimestamp")
        assert item["metadata"]["generation"] == 1
        status = {"status": {"replicas": 1, "readyReplicas": 1}}
        await cluster.api.patch(DEPLOYMENT, item["metadata"]["name"], status, NAMESPACE, subresource="status")
        await bench.prepare("a", "gpu-0", config=(MPS,))
        assert bench.driver.claims["uid-a"].daemons

    asyncio.run(body())


def test_a_claim_that_is_given_up_takes_its_daemon_along(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "MPSSupport")
        cluster = Cluster(bench, ready=False)
        with pytest.raises(NotYet):
            await bench.prepare("a", "gpu-0", config=(MPS,))
        await bench.unprepare("a")
        assert not bench.driver.claims
        assert not bench.hardware.sharing_of(bench.hardware.gpu_uuid(0))[0]
        for item in (await cluster.api.list(DEPLOYMENT, NAMESPACE)).items:
            assert item["metadata"].get("deletionTimestamp")

    asyncio.run(body())


@pytest.mark.parametrize("root", ["/", "/run/nvidia/driver"])
def test_what_the_daemon_uses_lies_inside_its_root(root: str) -> None:
    """It runs in a chroot: folders outside of that would not be there."""
    folders = Folders(Path("/var/lib/kubelet/plugins/gpu.nvidia.com/mps/one"))
    made = deployment(daemon_for("uid", ["GPU-a"], MpsConfig(), "p"), folders, NODE, NAMESPACE, root, "lab/mps:1")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "lab/mps:1"
    chroot, inside = container["command"][:2]
    assert chroot == "chroot"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.pop("root") == inside
    assert all(path.startswith(f"{inside}/") for path in mounts.values())
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert inside + env["CUDA_MPS_PIPE_DIRECTORY"] == mounts["pipe"]
    assert inside + env["CUDA_MPS_LOG_DIRECTORY"] == mounts["log"]
    assert container["startupProbe"]["exec"]["command"][1] == f"{mounts['log']}/startup.log"
    assert "/mps/" not in container["command"][-1]


def test_metrics_count_successes_errors_and_devices(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100")
        metrics = drivers.Metrics()
        bench.driver = drivers.made(NODE, bench.hardware, bench.clock, bench.options, metrics=metrics)
        bench.preparer.driver = bench.driver
        await bench.prepare("a", "gpu-0", "gpu-1")
        await bench.prepare("b", "gpu-2")
        await bench.unprepare("b")
        with pytest.raises(Retry):
            await bench.prepare("c", "gpu-77")
        lines = metrics.text().decode().splitlines()
        for line in (
            'nvidia_dra_requests_total{driver="gpu.nvidia.com",operation="prepare"} 2.0',
            'nvidia_dra_requests_total{driver="gpu.nvidia.com",operation="unprepare"} 2.0',
            'nvidia_dra_requests_inflight{driver="gpu.nvidia.com",operation="prepare"} 0.0',
            'nvidia_dra_prepared_devices{device_type="gpu",driver="gpu.nvidia.com",node="n1"} 2.0',
            'nvidia_dra_node_prepare_errors_total{driver="gpu.nvidia.com",error_type="prepare_devices"} 1.0',
        ):
            assert line in lines, line
        buckets = [line for line in lines if line.startswith("nvidia_dra_request_duration_seconds_bucket")]
        assert any('le="12.8"' in line for line in buckets)

    asyncio.run(body())
