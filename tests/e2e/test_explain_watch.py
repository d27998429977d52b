"""`dragoman explain --watch` beside a real `dragoman up`: what kubectl shows of a pod that waits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.api.kinds import kind_of
from dragoman.cluster.cache import DECIDED_ON
from tests.e2e.conftest import Cluster
from tests.e2e.test_lab import claim, pod, request

DEPLOY = Path(__file__).parents[2] / "deploy" / "explain-watch.yaml"
WITHIN_S = 10.0


@pytest.fixture
def watching(cluster: Cluster) -> Iterator[Path]:
    """The daemon, for the cluster; its log."""
    log = cluster.folder / "explain.log"
    command = [sys.executable, "-m", "dragoman.cli", "explain", "--watch", "--kubeconfig", str(cluster.kubeconfig)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=cluster.folder, env={**os.environ})
    cluster.until(lambda: "running" in log.read_text(), "the daemon to run", 30)
    yield log
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 0


def events(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get(
        "events", "--field-selector", f"involvedObject.name={name},reason=Explained"
    )["items"]
    return found


@pytest.mark.slow
def test_a_pending_pod_has_the_reason_as_event_within_ten_seconds(cluster: Cluster, watching: Path) -> None:
    cluster.apply(claim("many", f"[{request(count=9)}]") + pod("p", "resourceClaimName: many"))
    began = time.monotonic()
    (event,) = cluster.until(lambda: events(cluster, "p"), "an event", WITHIN_S)
    assert time.monotonic() - began < WITHIN_S
    assert "9 devices of class gpu.example.com requested" in event["message"]
    assert (event["type"], event["source"]["component"]) == ("Warning", "dragoman-explain")
    described = cluster.kubectl("describe", "pod", "p").stdout
    assert re.search(r"Warning +Explained +\S+ +dragoman-explain +0/1 nodes are available", described)
    cluster.apply(claim("one", f"[{request()}]") + pod("q", "resourceClaimName: one"))
    cluster.running("q")
    assert len(events(cluster, "p")) == 1
    assert events(cluster, "q") == []


def test_its_rights_are_to_read_what_decisions_read_and_to_write_events() -> None:
    objects = list(yaml.safe_load_all(DEPLOY.read_text()))
    (role,) = [found for found in objects if found["kind"] == "ClusterRole"]
    rights = {
        (group, resource): tuple(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    read = {(kind_of(name).group, kind_of(name).plural) for name in DECIDED_ON}
    assert rights == dict.fromkeys(read, ("list", "watch")) | {("", "events"): ("create", "patch")}


@pytest.mark.slow
def test_the_manifest_is_taken_by_a_server(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(DEPLOY))
    assert cluster.get("deployment", "dragoman-explain", "-n", "dragoman")["spec"]["replicas"] == 1
