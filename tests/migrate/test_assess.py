"""Does the inventory list everything that touches GPUs, where, for which pools, and how hard it is?"""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.migrate.assess import BY_HAND, NO_POOL, assess

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: a, labels: {pool: big, nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
spec: {taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]}
status: {allocatable: {nvidia.com/gpu: "8"}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {team: ml, nvidia.com/gpu.present: "true"}}
spec: {taints: [{key: team, value: ml, effect: NoSchedule}]}
status: {allocatable: {nvidia.com/mig-1g.10gb: "7"}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {gpu-fraction: "0.5"}}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
  tolerations:
  - {key: nvidia.com/gpu, operator: Exists}
  priorityClassName: high
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 1
        preference: {matchExpressions: [{key: nvidia.com/gpu.memory, operator: Gt, values: ["1"]}]}
  initContainers:
  - {name: i, resources: {limits: {nvidia.com/gpu: 1}}}
  containers:
  - {name: c, resources: {limits: {nvidia.com/gpu: 2}}}
"""


def test_every_place_of_a_pod_is_listed_once() -> None:
    found = assess([("nodes", NODES), ("pod.yaml", POD)])
    assert [(use.category, use.line, use.pools) for use in found.uses] == [
        ("init-container", 15, ("big",)),
        ("container", 17, ("big",)),
        ("annotation", 3, ("big",)),
        ("node-selector", 5, ("big",)),
        ("affinity", 10, ("big",)),
        ("toleration", 7, ("big",)),
        ("priority", 8, ("big",)),
    ]
    assert {(use.difficulty, use.reasons) for use in found.uses} == {(BY_HAND, ("NoCounterpart",))}
    assert [use.category for use in found.uses if not use.missed] == ["container"]
    assert [(pool.name, pool.resources, pool.requested, pool.unlabelled) for pool in found.pools] == [
        (NO_POOL, {"nvidia.com/mig-1g.10gb": 7}, {}, ()),
        ("big", {"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 2}, ("a",)),
    ]


def test_pods_of_a_listed_controller_count_once() -> None:
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n      containers:\n"
        "      - {name: c, resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}\n"
    )
    pod = POD.replace("annotations: {gpu", "ownerReferences: [{kind: Job, name: j}], annotations: {gpu")
    assert {use.object for use in assess([("dump", f"{job}---\n{pod}")]).uses} == {"Job default/j"}


def test_a_taint_that_is_not_tolerated_keeps_a_pool_off() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: c, resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}\n"  # fmt: skip
    tolerating = pod.replace("  containers:", "  tolerations: [{key: team, value: ml}]\n  containers:")
    assert [use.pools for use in assess([("n", NODES), ("p", pod)], pool_label="team").uses] == [(NO_POOL,)]
    found = assess([("n", NODES), ("p", tolerating)], pool_label="team").uses
    assert [use.pools for use in found] == [("ml",)]


def test_charts_and_overlays_are_read(tmp_path: Path) -> None:
    files = [
        ("chart/values.yaml", "image: x\nresources:\n  limits:\n    nvidia.com/gpu: 1\n"),
        ("chart/templates/d.yaml", "kind: Deployment\nspec: {{ .Values.x }}\n  nvidia.com/gpu: {{ .Values.gpus }}\n"),
        ("over/kustomization.yaml", "resources: [../base]\npatches:\n- path: patch.yaml\n- path: ops.yaml\n"),
        ("over/patch.yaml", POD.replace(", annotations: {gpu-fraction: \"0.5\"}", "")),
        ("over/ops.yaml", "- op: add\n  path: /spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu\n  value: 1\n"),
    ]  # fmt: skip
    found = assess(files)
    assert not found.unread
    by_file = {use.file: use.category for use in found.uses}
    assert by_file == {
        "chart/values.yaml": "helm-value",
        "chart/templates/d.yaml": "helm-template",
        "over/patch.yaml": "kustomize-patch",
        "over/ops.yaml": "kustomize-patch",
    }


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("a: [\n")
    (tmp_path / "b.yaml").write_text(POD)
    assert main(["migrate", "--assess", "-f", str(tmp_path)]) == 1
    out, said = capsys.readouterr()
    assert "Pod default/p" in out
    assert f"{tmp_path}/a.yaml is left out" in said
