"""kill -9 at any moment: nothing acknowledged is lost, no device is allocated twice, pods go on."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster
from tests.e2e.test_lab import claim, pod, request

pytestmark = pytest.mark.slow

ROUNDS = 4
TEMPLATE = claim("one", f"[{request()}]", "ResourceClaimTemplate")


def held_once(cluster: Cluster) -> None:
    """No device is in two claims."""
    holders: Counter[str] = Counter()
    for item in cluster.get("resourceclaims")["items"]:
        allocation = (item.get("status") or {}).get("allocation") or {}
        holders.update(result["device"] for result in allocation.get("devices", {}).get("results", []))
    assert all(count == 1 for count in holders.values()), holders


def logged_device(cluster: Cluster, name: str) -> str:
    """The device that a pod's container sees; empty while there is no log."""
    text = cluster.kubectl("logs", name, ok=None).stdout
    return next((line.split("=")[1] for line in text.splitlines() if line.strip().startswith("GPU_DEVICE_")), "")


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that keeps its state, in a folder short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="dra-") as data:
        made = Cluster(tmp_path, "--node", "worker=example", "--data", data)
        made.start()
        yield made
        made.stop()


def test_the_whole_cluster_is_killed_again_and_again(durable: Cluster) -> None:
    """Check 9, first part."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    durable.apply(TEMPLATE)
    made: list[str] = []
    names = (f"p{number}" for number in itertools.count())
    for _ in range(ROUNDS):
        for name in itertools.islice(names, 2):
            durable.apply(pod(name, "resourceClaimTemplateName: one"))
            made.append(name)
        time.sleep(moments.uniform(0, 0.6))
        durable.kill()
        durable.start()
        assert {item["metadata"]["name"] for item in durable.get("pods")["items"]} >= set(made)
        held_once(durable)
    durable.running(*made)
    held_once(durable)
    before = {name: logged_device(durable, name) for name in made}
    assert len(set(before.values())) == len(made)
    assert all(before.values())
    durable.kill()
    durable.start()
    durable.running(*made)
    assert {name: logged_device(durable, name) for name in made} == before
    for name in made:
        durable.kubectl("delete", "pod", name, "--wait=false")
    durable.kill()
    durable.start()
    durable.gone("pods")
    durable.gone("resourceclaims")


class Daemon:
    """A daemon of ours as a process of its own."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self.cluster = cluster
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", "dragoman.cli", *self.arguments, "--kubeconfig", str(self.cluster.kubeconfig)]
        with (self.cluster.folder / f"{self.arguments[0]}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def test_the_node_agent_and_the_driver_are_killed_alone(tmp_path: Path) -> None:
    """Check 9, second part: three processes that share nothing but the API and sockets."""
    cluster = Cluster(tmp_path, "--without", "nodes")
    cluster.start()
    with tempfile.TemporaryDirectory(prefix="dra-") as root:
        place = ("--node-name", "lonely", "--root-dir", root)
        agent, driver = Daemon(cluster, "node-agent", *place), Daemon(cluster, "driver", "example", *place)
        try:
            agent.start()
            driver.start()
            cluster.apply(TEMPLATE + pod("a", "resourceClaimTemplateName: one"))
            cluster.running("a")
            for victim in (agent, driver, agent, driver):
                victim.kill()
                name = f"b-{time.monotonic_ns()}"
                cluster.apply(pod(name, "resourceClaimTemplateName: one"))
                victim.start()
                cluster.running("a", name)
                held_once(cluster)
            cluster.kubectl("delete", "pods", "--all", "--wait=false")
            agent.kill()
            driver.kill()
            driver.start()
            agent.start()
            cluster.gone("pods")
            cluster.gone("resourceclaims")
            cluster.apply(claim("all", f"[{request(count=8)}]") + pod("whole", "resourceClaimName: all"))
            cluster.running("whole")
        finally:
            agent.kill()
            driver.kill()
            cluster.stop()
