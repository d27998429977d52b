"""Does the proof say that the same pods fit on the same devices, and where they do not?"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.api.resource import Device, DeviceAttribute, DeviceCapacity
from dragoman.api.selectors import Selector, compile_selector, device_view
from dragoman.cli.main import main
from dragoman.migrate import labels, proof
from dragoman.migrate.labels import ARCHITECTURES, LabelRequirement
from dragoman.migrate.resources import GPU_CLASS
from dragoman.values.quantity import Quantity

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/device-plugin/train.yaml"


def gpu_node(name: str, product: str, count: int, memory: int = 81559, **resources: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **({"nvidia.com/gpu": str(count)} if count else {})}
    amounts |= {key: str(value) for key, value in resources.items()}
    written = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": str(memory)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": written},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def gpu_slice(node: str, products: list[str]) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{n}",
            "attributes": {"type": {"string": "gpu"}, "productName": {"string": product}},
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for n, product in enumerate(products)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU_CLASS, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]], file: Path, *words: str
) -> tuple[int, dict[str, Any]]:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all(objects))
    status = main(["migrate", "-f", str(file), "--against", str(cluster), "-o", "json", *words])
    return status, json.loads(capsys.readouterr().out)["proof"]


@pytest.mark.parametrize("strategy", ["claims", "extended-resource"])
def test_the_same_pods_fit_on_the_same_devices(
    strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = [gpu_node("a", "NVIDIA-H100-80GB-HBM3", 8), gpu_node("b", "Tesla-T4", 8, 15360)]
    status, found = proved(tmp_path, capsys, cluster, EXAMPLE, "--strategy", strategy)
    assert (status, found["same"]) == (0, True)
    assert found["workloads"][0]["after"] == {"2 x NVIDIA-H100-80GB-HBM3": 2}


def test_a_cluster_of_slices_shows_the_other_side_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "9", "memory": "99Gi", "pods": "9"}}}  # fmt: skip
    cluster = [bare, gpu_slice("a", ["NVIDIA H100 80GB HBM3"] * 3)]
    status, found = proved(tmp_path, capsys, cluster, EXAMPLE)
    outcome = {"2 x NVIDIA-H100-80GB-HBM3": 1, "no node": 1}
    assert (status, found["workloads"][0]["before"], found["workloads"][0]["after"]) == (0, outcome, outcome)


def test_a_node_whose_label_describes_one_of_two_models_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = [
        gpu_node("mixed", "NVIDIA-H100-80GB-HBM3", 4),
        gpu_slice("mixed", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "NVIDIA A30", "NVIDIA A30"]),
    ]
    status, found = proved(tmp_path, capsys, cluster, EXAMPLE)
    assert (status, found["same"]) == (1, False)
    assert [(entry["node"], entry["devices"]) for entry in found["labels"]] == [("mixed", ["gpu-2", "gpu-3"])]
    assert found["workloads"][0]["before"] == {"2 x NVIDIA-H100-80GB-HBM3": 2}
    assert found["workloads"][0]["after"] == {"2 x NVIDIA-H100-80GB-HBM3": 1, "no node": 1}


def test_partitions_are_compared_by_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: x\n"
        "    resources:\n      limits:\n        nvidia.com/mig-1g.10gb: 2\n"
    )
    cluster = [gpu_node("a", "NVIDIA-A100-SXM4-80GB", 0, **{"nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-2g.20gb": 1})]
    status, found = proved(tmp_path, capsys, cluster, pod)
    assert (status, found["workloads"][0]["after"]) == (0, {"2 x 1g.10gb of NVIDIA-A100-SXM4-80GB": 1})


@pytest.mark.parametrize("seed", range(200))
def test_a_selector_is_true_of_the_devices_whose_node_has_the_label(seed: int) -> None:
    """GFD's labels of a random device, and random requirements on them."""
    random_ = random.Random(seed)
    attributes = {
        "type": DeviceAttribute(string="gpu"),
        "productName": DeviceAttribute(string=random_.choice(["Tesla T4", "NVIDIA A30", "NVIDIA H100 80GB HBM3"])),
        "architecture": DeviceAttribute(string=random_.choice(list(ARCHITECTURES.values()))),
        "cudaComputeCapability": DeviceAttribute(version=random_.choice(["7.5.0", "8.0.0", "9.0.0"])),
        "driverVersion": DeviceAttribute(version=random_.choice(["570.1.2", "580.65.6"])),
    }
    mib = random_.choice([15360, 24576, 81559])
    device = Device("d", attributes, {"memory": DeviceCapacity(value=Quantity.parse(f"{mib}Mi"))})
    raw = {
        "attributes": {k: {"version": v.version} if v.version else {"string": v.string} for k, v in attributes.items()},
        "capacity": {"memory": {"value": f"{mib}Mi"}},
    }
    written = proof.gfd_labels(raw, 1)
    choices = {
        "gpu.product": ["Tesla-T4", "NVIDIA-A30", "NVIDIA-H100-80GB-HBM3"],
        "gpu.family": list(ARCHITECTURES),
        "gpu.memory": ["15360", "24576", "81559", "81558"],
        "gpu.compute.major": ["7", "8", "9"],
        "gpu.compute.minor": ["0", "5"],
        "cuda.driver-version.major": ["570", "580"],
    }
    for name, values in choices.items():
        numeric = values[0].isdigit()
        operator = random_.choice(["=", "In", "NotIn", *(["Gt", "Lt"] if numeric else [])])
        amount = random_.randint(1, 2) if operator in ("In", "NotIn") else 1
        wanted = LabelRequirement(labels.PREFIX + name, operator, tuple(random_.sample(values, amount)))
        text = labels.selector(wanted)
        selector = compile_selector(text)
        assert isinstance(selector, Selector), text
        assert selector.match(device_view(device, GPU_CLASS)) is proof.satisfied(wanted, written), (text, written)
        assert labels.requirement(text) == wanted
