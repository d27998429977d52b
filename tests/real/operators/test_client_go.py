"""client-go: an informer follows ConfigMaps, led by a Lease; when the leader is killed, the other leads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster, kubectls
from tests.real.operators.conftest import binary
from tests.real.process import Process


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if not kubectls():
        pytest.skip("no kubectl: pip install -r requirements-dev.txt")
    made = Cluster(tmp_path, "--without", "nodes")
    made.start()
    yield made
    made.stop()


def test_informers_and_leader_election(cluster: Cluster, tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}

    def candidate(name: str) -> Process:
        command = [str(binary("informer")), "default", name]
        return Process(name, command, tmp_path, environment=environment).start()

    def says(process: Process, line: str) -> None:
        cluster.until(lambda: line in process.log().splitlines(), f"{process.name} to say {line!r}")

    first = candidate("first")
    says(first, "synced true")
    second = candidate("second")
    try:
        cluster.kubectl("create", "configmap", "one", "--from-literal=value=a")
        says(first, "added one a")
        cluster.kubectl("patch", "configmap", "one", "--type=merge", "-p", '{"data":{"value":"b"}}')
        says(first, "updated one b")
        assert "leads" not in second.log()
        first.kill()
        says(second, "leads")
        says(second, "added one b")
        cluster.kubectl("delete", "configmap", "one")
        says(second, "deleted one b")
        assert second.stop() == 0
        says(second, "led")
        assert not cluster.get("lease", "informer")["spec"].get("holderIdentity")
    finally:
        first.kill()
        second.kill()
