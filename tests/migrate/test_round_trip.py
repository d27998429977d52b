"""Do manifests come back as they were, byte for byte, and does a second run change nothing?"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.migrate import podspec
from dragoman.migrate.report import LOSS, NOTE, REFUSED
from dragoman.migrate.resources import is_gpu_resource
from dragoman.migrate.rewrite import DEVICE_PLUGIN, DRA, EXTENDED, Target, rewrite

WORKLOADS = sorted((Path(__file__).parent / "workloads").glob("*"))
BACK = Target(DEVICE_PLUGIN)


def moved(text: str, target: Target, name: str = "w.yaml") -> str:
    return rewrite([(name, text)], target, check_back=False).texts[name]


@pytest.mark.parametrize("strategy", ["claims", EXTENDED])
@pytest.mark.parametrize("file", WORKLOADS, ids=lambda file: file.stem)
def test_a_workload_comes_back_as_it_was(file: Path, strategy: str) -> None:
    text = file.read_bytes().decode()
    made = rewrite([("w.yaml", text)], Target(DRA, strategy))
    there = made.texts["w.yaml"]
    assert there != text
    assert not made.refused
    assert moved(there, Target(DRA, strategy)) == there, "a second run changes something"
    if strategy == EXTENDED and any(entry.labels for entry in made.moved):
        # Nothing in the text says where the labels were.
        assert list(yaml.safe_load_all(moved(there, BACK))) == list(yaml.safe_load_all(text))
        return
    assert moved(there, BACK) == text
    assert not [remark for remark in made.remarks if remark.code in ("WrittenOtherwise", "CommentLost")]


@pytest.mark.parametrize("file", WORKLOADS, ids=lambda file: file.stem)
def test_line_ends_and_a_missing_last_one_stay(file: Path) -> None:
    text = file.read_bytes().decode()
    for written in (text.replace("\n", "\r\n"), text.rstrip("\n"), "\ufeff" + text):
        there = moved(written, Target())
        assert there.count("\r\n") == (there.count("\n") if "\r\n" in written else 0)
        assert moved(there, BACK) == written


@pytest.mark.parametrize("file", WORKLOADS, ids=lambda file: file.stem)
def test_json_comes_back_as_it_was(file: Path) -> None:
    """As kubectl prints it: amounts are text."""
    written = re.sub(r"(nvidia.com/[a-z0-9.-]+|amd.com/gpu|gpu.intel.com/xe): *([0-9]+)", r"\1: '\2'", file.read_text())
    documents = [document for document in yaml.safe_load_all(written) if document]
    for indent in (None, 2, 4):
        text = "\n".join(json.dumps(document, indent=indent, ensure_ascii=False) for document in documents) + "\n"
        there = moved(text, Target())
        assert there != text
        assert moved(there, Target()) == there
        assert moved(there, BACK) == text


@pytest.mark.parametrize("file", WORKLOADS, ids=lambda file: file.stem)
def test_no_resource_of_a_device_plugin_is_left(file: Path) -> None:
    there = moved(file.read_text(), Target())
    for document in yaml.safe_load_all(there):
        for value in (document or {}).get("items") or [document or {}]:
            for path in podspec.specs(value):
                for _, container in podspec.containers(podspec.at(value, path)):
                    limits = podspec.at(container, ("resources", "limits")) or {}
                    assert not [name for name in limits if is_gpu_resource(name)]


# ---- random manifests


def random_pod(random_: random.Random) -> dict[str, Any]:
    def container(name: str, *, sidecar: bool = False) -> dict[str, Any]:
        limits: list[tuple[str, Any]] = [("cpu", "1"), ("memory", "1Gi")][: random_.randint(0, 2)]
        if random_.random() < 0.8:
            resource = random_.choice(["nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"])
            limits.insert(random_.choice([0, len(limits)]), (resource, random_.randint(1, 4)))
        resources: list[tuple[str, Any]] = [("limits", dict(limits))] if limits else []
        if random_.random() < 0.5:
            resources.insert(random_.randint(0, len(resources)), ("requests", {"cpu": "500m"}))
        made: dict[str, Any] = {"name": name, "image": "x", "resources": dict(resources)}
        return made | {"restartPolicy": "Always"} if sidecar else made

    spec: dict[str, Any] = {}
    if random_.random() < 0.3:
        spec["nodeSelector"] = dict(
            random_.sample(
                [
                    ("nvidia.com/gpu.product", "Tesla-T4"),
                    ("nvidia.com/gpu.memory", "15360"),
                    ("nvidia.com/gpu.compute.major", "7"),
                    ("nvidia.com/gpu.family", "turing"),
                ],
                random_.randint(1, 3),
            )
        )
    if random_.random() < 0.5:
        spec["initContainers"] = [
            container(f"i{n}", sidecar=random_.random() < 0.3) for n in range(random_.randint(1, 3))
        ]
    spec["containers"] = [container(f"c{n}") for n in range(random_.randint(1, 3))]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def devices_of(value: dict[str, Any]) -> dict[str, set[tuple[str, int]]]:
    """Container and the devices (resource, number) that it has on the device plugin path."""
    spec, found = value["spec"], {}
    resources = {r for _, c in podspec.containers(spec) for r in c["resources"].get("limits", {}) if is_gpu_resource(r)}
    for resource in resources:
        counts = {path: int(c["resources"].get("limits", {}).get(resource, 0)) for path, c in podspec.containers(spec)}
        for span in podspec.spans(spec, counts):
            found.setdefault(span.name, set()).update((resource, n) for n in range(span.start, span.end))
    return found


@pytest.mark.parametrize("seed", range(300))
def test_random_pods_keep_their_devices_and_come_back(seed: int) -> None:
    """The devices that two containers have in common, and how many each has, are those of before."""
    random_ = random.Random(seed)
    value = random_pod(random_)
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=random_.choice([False, False, None]))
    made = rewrite([("p", text)], Target())
    assert not made.refused, made.remarks
    there = made.texts["p"]
    assert moved(there, Target(), "p") == there
    back = moved(there, BACK, "p")
    if not any(remark.code == "WrittenOtherwise" for remark in made.remarks):
        assert back == text
    assert yaml.safe_load(back) == value
    before = devices_of(value)
    documents = list(yaml.safe_load_all(there))
    templates = {d["metadata"]["name"]: d for d in documents if d["kind"] == "ResourceClaimTemplate"}
    claims = {
        entry["name"]: templates[entry["resourceClaimTemplateName"]]
        for entry in documents[0]["spec"].get("resourceClaims", ())
    }
    after: dict[str, set[tuple[str, str, int]]] = {}
    for _, container in podspec.containers(documents[0]["spec"]):
        for entry in container["resources"].get("claims", ()):
            for request in claims[entry["name"]]["spec"]["spec"]["devices"]["requests"]:
                if entry.get("request") in (None, request["name"]):
                    count = request["exactly"].get("count", 1)
                    own = {(entry["name"], request["name"], n) for n in range(count)}
                    after.setdefault(container["name"], set()).update(own)
    assert {name: len(own) for name, own in before.items()} == {name: len(own) for name, own in after.items()}
    for one in before:
        for other in before:
            assert len(before[one] & before[other]) == len(after[one] & after[other])


def test_what_is_written_otherwise_on_the_way_back_is_said() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    resources:\n"
        "      limits:\n        cpu: 1\n        nvidia.com/gpu: 1\n        memory: 1Gi\n"
    )
    made = rewrite([("p", text)], Target())
    assert [(remark.kind, remark.code) for remark in made.remarks] == [(NOTE, "WrittenOtherwise")]


# ---- what cannot be moved


REFUSALS = {
    "koordinator.sh/gpu: 50": "NoCounterpart",
    "koordinator.sh/gpu-core: 50": "NoCounterpart",
    "gpu.intel.com/tiles: 1": "NoCounterpart",
    "gpu.intel.com/i915_monitoring: 1": "NoCounterpart",
    "nvidia.com/gpumem-percentage: 50": "NoCounterpart",
    "nvidia.com/gpucores: 30": "NoCounterpart",
    "nvidia.com/mig-1g.5gb.shared: 1": "SharedPartition",
    "nvidia.com/mig-nonsense: 1": "UnknownResource",
    "nvidia.com/gpu: 1500m": "NotACount",
    "nvidia.com/gpu: many": "NotACount",
}


def pod_with(limit: str, more: str = "") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n{more}spec:\n  containers:\n  - name: c\n    resources:\n"
        f"      limits:\n        {limit}\n"
    )


@pytest.mark.parametrize(("limit", "code"), REFUSALS.items())
def test_what_has_no_counterpart_is_refused_and_stays(limit: str, code: str) -> None:
    text = pod_with(limit)
    made = rewrite([("p", text)], Target())
    assert made.texts["p"] == text
    (remark,) = made.remarks
    assert (remark.kind, remark.code, remark.line) == (REFUSED, code, 10)


LOSSES = {
    "nvidia.com/gpu.shared: 1": {"SharesAreCounted"},
    "nvidia.com/gpumem: 3000": {"MemoryNotEnforced"},
    "volcano.sh/vgpu-memory: 2048": {"MemoryNotEnforced"},
    "volcano.sh/vgpu-number: 1": {"SharedWhole"},
    "aliyun.com/gpu-mem: 4": {"MemoryNotEnforced"},
    "gpu.intel.com/i915: 1": {"SharedDevNum", "WrittenOtherwise"},
    "amd.com/gpu: 1": {"PartitionsOfAmd"},
}


@pytest.mark.parametrize(("limit", "codes"), LOSSES.items())
def test_losses_have_names(limit: str, codes: set[str]) -> None:
    made = rewrite([("p", pod_with(limit))], Target())
    assert not made.refused
    assert {remark.code for remark in made.remarks} >= codes - {"WrittenOtherwise"}
    assert all(remark.kind == LOSS for remark in made.remarks if remark.code != "WrittenOtherwise")


@pytest.mark.parametrize("annotation", ['gpu-fraction: "0.5"', 'gpu-memory: "2000"', 'nvidia.com/use-gputype: "A100"'])
def test_sharing_by_annotation_is_refused(annotation: str) -> None:
    text = pod_with("nvidia.com/gpu: 1", f"  annotations:\n    {annotation}\n")
    made = rewrite([("p", text)], Target())
    assert made.texts["p"] == text
    assert [remark.code for remark in made.remarks] == ["NoCounterpart"]


def test_anchors_that_places_share_are_refused() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: a\n    resources: &r\n"
        "      limits:\n        nvidia.com/gpu: 1\n  - name: b\n    resources: *r\n"
    )
    made = rewrite([("p", text)], Target())
    assert made.texts["p"] == text
    assert [remark.code for remark in made.remarks] == ["CannotEdit"]


def test_a_priority_is_a_loss() -> None:
    text = pod_with("nvidia.com/gpu: 1").replace("  containers:", "  priorityClassName: high\n  containers:")
    made = rewrite([("p", text)], Target())
    assert [(remark.code, remark.line) for remark in made.remarks] == [("NoPreemption", 6)]


def test_labels_that_no_device_has_stay_and_are_said() -> None:
    text = pod_with("nvidia.com/gpu: 1").replace(
        "  containers:", "  nodeSelector:\n    nvidia.com/gpu.count: '8'\n  containers:"
    )
    made = rewrite([("p", text)], Target())
    assert "nvidia.com/gpu.count: '8'" in made.texts["p"]
    assert [remark.code for remark in made.remarks] == ["LabelStays"]


def test_a_limit_range_loses_its_bounds_on_gpus() -> None:
    text = (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l}\nspec:\n  limits:\n  - type: Container\n    max:\n"
        "      cpu: 4\n      nvidia.com/gpu: 2   # two\n    default:\n      nvidia.com/gpu: 1\n"
    )
    made = rewrite([("l", text)], Target(), check_back=False)
    assert "nvidia.com" not in made.texts["l"]
    assert "cpu: 4" in made.texts["l"]
    assert sorted(remark.code for remark in made.remarks) == ["CommentLost", "LimitRange", "LimitRange"]


def test_a_quota_with_scopes_is_refused() -> None:
    text = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  scopes: [NotTerminating]\n  hard:\n"
        "    requests.nvidia.com/gpu: 4\n"
    )
    made = rewrite([("q", text)], Target())
    assert (made.texts["q"], made.refused) == (text, True)
