"""The allocator's scenarios through `dragoman simulate`: each becomes a file with one pod that uses the case's claims.

What is held becomes allocated claims, features become --feature-gates. Same expectations as test_allocator_cases.py.
A manifest that an API server would not take is refused as such, before anything is allocated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.main import main

from .allocator_calls import Case, code_of, gate_changes, held_claims, plain
from .allocator_scenarios import SCENARIOS
from .test_allocator_cases import recorded

OWN = sorted((Path(__file__).parent / "upstream_differs").glob("*.json"))


def documents(case: Case) -> list[dict[str, Any]]:
    """The case as objects of a cluster, with a pod named `asks`."""

    def typed(kind: str, version: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "kind": kind, "apiVersion": version}

    claims = []
    for claim in case["claims"]:
        meta = {**claim["metadata"], "namespace": claim["metadata"].get("namespace") or "default"}
        claims.append({**claim, "metadata": meta})
    (namespace,) = {claim["metadata"]["namespace"] for claim in claims} or {"default"}
    entries = [{"name": f"c{i}", "resourceClaimName": c["metadata"]["name"]} for i, c in enumerate(claims)]
    pod = {
        "metadata": {"name": "asks", "namespace": namespace},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": entries},
    }
    api = "resource.k8s.io/v1"
    return [
        typed("Node", "v1", case["node"]),
        *(typed("DeviceClass", api, item) for item in case["classes"]),
        *(typed("ResourceSlice", api, item) for item in case["slices"]),
        *(typed("ResourceClaim", api, item) for item in (*held_claims(case), *claims)),
        typed("Pod", "v1", pod),
    ]


def simulated(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Exit status and what is printed about the pod."""
    path = folder / "case.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": documents(case)}))
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in gate_changes(case).items())
    status = main(["simulate", "-f", str(path), "-o", "json", "--feature-gates", gates])
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    return status, pod


def codes(pod: dict[str, Any]) -> list[str]:
    groups = [*pod["nodes"], *([pod["refusal"]] if pod["refusal"] else [])]
    return [reason["code"] for group in groups for reason in group["reasons"]]


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = SCENARIOS[name]
    (answer,) = recorded("scenarios", case)["nodes"]
    status, pod = simulated(case, tmp_path, capsys)
    if answer["results"] is None:
        assert (status, pod["node"]) == (1, None)
        if answer["error"]:
            assert code_of(answer["error"]) in codes(pod)
        return
    assert (status, pod["node"]) == (0, case["node"]["metadata"]["name"])
    assert [plain(claim["allocation"]) for claim in pod["claims"]] == [plain(result) for result in answer["results"]]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_own_case(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = json.loads(path.read_text())
    status, pod = simulated(case, tmp_path, capsys)
    if case["here"] == "fits":
        results = [claim["allocation"]["devices"]["results"] for claim in pod["claims"]]
        assert [[f"{r['request']}={r['pool']}/{r['device']}" for r in found] for found in results] == case["given"]
    else:
        assert status == 1
        assert case["here"] in codes(pod)
