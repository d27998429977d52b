"""Does the full form run: our driver under a real kubelet, with containers that see their devices?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.real.conftest import StartCluster
from tests.real.objects import pod_with_device

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheduler", ["kube", "dragoman"])
def test_a_container_starts_with_its_device_and_nothing_is_left(start: StartCluster, scheduler: str) -> None:
    cluster = start(scheduler=scheduler, controllers="kube", kubelet="kube")
    cluster.driver("example")
    cluster.apply(*pod_with_device("train", count=2))
    cluster.until(lambda: cluster.get("Pod", "train")["status"].get("phase") == "Running", "train to run", 60)
    seen = cluster.kubectl("exec", "train", "--", "env").stdout
    devices = [device for _, _, device in cluster.held()]
    given = [line.partition("=")[2] for line in seen.splitlines() if re.match(r"GPU_DEVICE_\d+=", line)]
    assert given == devices == ["gpu-0", "gpu-1"]
    cluster.kubectl("delete", "pod", "train", "--wait=true")
    cluster.until(lambda: not cluster.held(), "the devices to be free")
    cluster.stop()
    assert cluster.folder.name not in Path("/proc/self/mounts").read_text()
    assert not cluster.folder.exists()
    assert not list(Path("/sys/fs/cgroup").rglob(f"*{cluster.folder.name}"))
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if cluster.folder.name in _text(one)]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
