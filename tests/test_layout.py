"""Do the tests keep their own house? One place for builders of objects, a test for every module with logic."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parent

BUILDERS = ("pod", "claim")
"""What `dragoman.testing.build` makes for all tests."""

OWN_BUILDERS = {
    "allocate/shortforms.py": "typed claims under one name, with any field of spec.devices",
    "api/test_convert.py": "objects without apiVersion, which says what they are converted from",
    "api/test_defaults.py": "bare objects: every field that is there is one that the test is about",
    "api/test_validate_core.py": "bare objects, wrong on purpose",
    "api/test_validate_dra.py": "bare objects, wrong on purpose",
    "apiserver/test_apply.py": "fragments as managers apply them",
    "apiserver/test_client_apply.py": "a spec of plain values, no pod that could run",
    "apiserver/test_patch.py": "fragments: what a patch holds",
    "apiserver/test_schema.py": "wrong on purpose",
    "apiserver/test_sessions.py": "a fixture: a pod that runs",
    "apiserver/test_table.py": "metadata and status; printers read no more",
    "drivers/nvidia/compute_domain/lab.py": "a workload that looks at its channels",
    "drivers/nvidia/test_device_plugin.py": "a workload that looks at its GPUs",
    "e2e/test_lab.py": "YAML as users write it",
    "e2e/test_nvidia.py": "YAML as users write it",
    "kubelet/test_claims.py": "as the kubelet reads them, under the names of its checkpoint",
    "kubelet/test_containers.py": "as the kubelet reads them: a command, and who owns the pod",
    "lint/test_lint.py": "YAML, for findings name its lines",
    "real/objects.py": "what a real kubelet can run",
    "reconcile/serving.py": "adds a pod that serves to a cluster",
    "reconcile/test_autoscaling.py": "typed, with times and conditions",
    "reconcile/test_quota.py": "adds a pod to a cluster",
    "reconcile/workloads/revisions.py": "typed, of any fields",
    "snapshot/test_change.py": "a change that puts it",
    "vectors/allocator_scenarios.py": "written into the vectors' files, whose text stays as it is",
}
"""Files with a `pod` or `claim` of their own, each with what `dragoman.testing.build` does not make."""


def test_pods_and_claims_have_one_builder() -> None:
    found = set()
    for file in TESTS.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in BUILDERS:
                found.add(file.relative_to(TESTS).as_posix())
    assert found == set(OWN_BUILDERS), "use dragoman.testing.build, or say here what it cannot make"
