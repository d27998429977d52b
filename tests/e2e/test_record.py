"""One question to a live `dragoman up`, to its record and to what kubectl prints of it: the same answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cluster
from tests.e2e.test_lab import claim, pod, request, warning

pytestmark = pytest.mark.slow


def dragoman(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dragoman.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cluster.folder)


def reported(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def waiting(cluster: Cluster) -> Cluster:
    """Seven of eight devices held, and a pod that wants two."""
    cluster.apply(claim("seven", f"[{request(count=7)}]") + pod("holder", "resourceClaimName: seven"))
    cluster.running("holder")
    cluster.apply(claim("two", f"[{request(count=2)}]") + pod("p", "resourceClaimName: two"))
    warning(cluster, "p")
    return cluster


def test_live_record_and_kubectl_give_the_same_refusal(waiting: Cluster, tmp_path: Path) -> None:
    record, printed = tmp_path / "record.json", tmp_path / "printed.yaml"
    live = ("--kubeconfig", str(waiting.kubeconfig))
    done = dragoman(waiting, "record", "-o", str(record), *live)
    assert done.returncode == 0, done.stderr
    assert record.stat().st_mode & 0o077 == 0
    kinds = "nodes,pods,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates"
    printed.write_text(waiting.kubectl("get", kinds, "-A", "-o", "yaml").stdout)

    answers = [reported(dragoman(waiting, "explain", "pod/p", "-o", "json", *live))["pods"][0]]
    for file in (record, printed):
        answers.append(reported(dragoman(waiting, "explain", "pod/p", "-o", "json", "-f", str(file)))["pods"][0])
        (simulated,) = reported(dragoman(waiting, "simulate", "-o", "json", "-f", str(file)))["pods"]
        answers.append(simulated)
    assert answers[0]["node"] is None
    assert "2 devices" in answers[0]["refusal"]["summary"]
    for answer in answers[1:]:
        for part in ("node", "nodes"):
            assert answer[part] == answers[0][part]
        for part in ("summary", "reasons", "conflict"):
            assert answer["refusal"][part] == answers[0]["refusal"][part]


def test_lint_has_nothing_to_say_of_what_a_server_prints(waiting: Cluster, tmp_path: Path) -> None:
    kinds = "nodes,pods,resourceslices,deviceclasses,resourceclaims,namespaces,events,leases"
    for form in ("yaml", "json"):
        file = tmp_path / f"printed.{form}"
        file.write_text(waiting.kubectl("get", kinds, "-A", "-o", form, "--show-managed-fields").stdout)
        assert reported(dragoman(waiting, "lint", "-f", str(file), "-o", "json"))["findings"] == []


def test_lint_against_the_cluster_and_against_its_record(waiting: Cluster, tmp_path: Path) -> None:
    record, manifest = tmp_path / "record.json", tmp_path / "m.yaml"
    live = ("--kubeconfig", str(waiting.kubeconfig))
    assert dragoman(waiting, "record", "-o", str(record), *live).returncode == 0
    wrong = request(count=9, cel="device.attributes['gpu.example.com'].modle == 'x'")
    manifest.write_text(
        claim("c", f"[{request(count=9)}]")
        + claim("d", f"[{wrong}]")
        + claim("e", f"[{request().replace('gpu.example.com', 'gpu.example.con')}]")
        + pod("q", "resourceClaimName: none")
    )
    found = {}
    for where, flags in {"cluster": live, "record": ("--against", str(record))}.items():
        findings = reported(dragoman(waiting, "lint", "-f", str(manifest), "-o", "json", *flags))["findings"]
        found[where] = [(f["code"], f["object"], f["fix"]) for f in findings]
    assert found["cluster"] == found["record"]
    assert [(code, subject) for code, subject, _ in found["cluster"]] == [
        ("LargerThanAnyNode", "ResourceClaim default/c"),
        ("UnknownAttribute", "ResourceClaim default/d"),
        ("UnknownClass", "ResourceClaim default/e"),
        ("UnknownClaim", "Pod default/q"),
    ]
    assert found["cluster"][1][2] == "write model"
    assert found["cluster"][2][2] == "write gpu.example.com"
