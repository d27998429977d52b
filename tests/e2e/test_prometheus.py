"""A real Prometheus scrapes `dragoman up` with the rules as they are but for the speed of the cluster's clock."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from dragoman.ops.rules import rule_file
from dragoman.testing.wait import until_true
from tests.e2e.conftest import Cluster
from tests.ops.prometheus import executable

pytestmark = pytest.mark.slow
SPEED = 20
WITHIN_S = 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Prometheus:
    """One that scrapes a cluster every second."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.url = f"127.0.0.1:{free_port()}"
        access = yaml.safe_load(cluster.kubeconfig.read_text())
        server = access["clusters"][0]["cluster"]["server"]
        (folder / "token").write_text(access["users"][0]["user"]["token"])
        (folder / "rules.yaml").write_text(yaml.safe_dump(rule_file(speed=SPEED, interval="1s")))
        scrape = {
            "job_name": "up",
            "scheme": "https",
            "authorization": {"credentials_file": str(folder / "token")},
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [server.removeprefix("https://")]}],
        }
        body = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(body))
        log = (folder / "prometheus.log").open("wb")
        command = [
            str(executable("prometheus")),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url}",
        ]
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, path: str) -> Any:
        try:
            with urlopen(f"http://{self.url}/api/v1/{path}", timeout=10) as answer:
                return json.load(answer)["data"]
        except (URLError, ConnectionError):
            return None

    def alerts(self, state: str = "firing") -> set[str]:
        found = self.ask("alerts") or {"alerts": []}
        return {alert["labels"]["alertname"] for alert in found["alerts"] if alert["state"] == state}

    def healthy(self) -> bool:
        found = self.ask("targets?state=active") or {"activeTargets": []}
        return [target["health"] for target in found["activeTargets"]] == ["up"]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Cluster]:
    executable("prometheus")
    made = Cluster(tmp_path, "--node", "gpu-0=dgx-h100", "--speed", str(SPEED))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def prometheus(tmp_path: Path, up: Cluster) -> Iterator[Prometheus]:
    found = Prometheus(tmp_path, up)
    try:
        yield found
    finally:
        found.end()


def dragoman(up: Cluster, *words: str) -> None:
    command = [sys.executable, "-m", "dragoman.cli", *words, "--kubeconfig", str(up.kubeconfig)]
    subprocess.run(command, check=True, timeout=60)


def test_an_alert_fires_and_resolves(up: Cluster, prometheus: Prometheus) -> None:
    until_true(prometheus.healthy, "Prometheus to scrape", within_s=WITHIN_S)
    assert not prometheus.alerts()
    dragoman(up, "fault", "driver-stopped", "--node", "gpu-0", "--driver", "gpu.nvidia.com", "--name", "stopped")
    alert = "GPUNodeWithoutSlices"
    until_true(lambda: alert in prometheus.alerts("pending"), "it to be pending", within_s=WITHIN_S)
    until_true(lambda: alert in prometheus.alerts(), "it to fire", within_s=WITHIN_S)
    dragoman(up, "fault", "recover", "stopped")
    until_true(lambda: not prometheus.alerts(), "all to resolve", within_s=WITHIN_S)
