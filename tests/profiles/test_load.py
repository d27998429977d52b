"""Profiles: the packaged ones are sound, users' own get errors with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.drivers.nvidia.gates import gates_with
from dragoman.errors import Invalid
from dragoman.profiles import Catalog

CATALOG = Catalog.packaged()

NAMED = [
    "dgx-a100-40",
    "dgx-a100-80",
    "dgx-h100",
    "hgx-h200",
    "dgx-b200",
    "gb200-nvl72",
    "gb300-nvl72",
    "l40s-8",
    "a30-4",
    "a10g",
    "t4-4",
    "rtx-pro-6000",
    "p4d",
    "p5",
    "a2-highgpu",
    "a3-highgpu",
    "a3-ultragpu",
    "nc-a100-v4",
    "nd-h100-v5",
    "mixed",
    "dgx-a100",
    "dgx-a100-mock",
    "hgx-b200",
    "p5.48xlarge",
]


@pytest.mark.parametrize("name", NAMED)
def test_the_machine_is_there(name: str) -> None:
    profile = CATALOG.profile(name)
    assert profile is not None
    assert profile.gpus
    assert profile.summary


def roots(name: str) -> dict[str, tuple[int, int]]:
    """PCIe root -> (GPUs, adapters)."""
    profile = CATALOG.profile(name)
    assert profile is not None
    found: dict[str, tuple[int, int]] = {}
    for gpu in profile.gpus:
        gpus, nics = found.get(gpu.pcie_root, (0, 0))
        found[gpu.pcie_root] = (gpus + 1, nics)
    for nic in profile.nics:
        if nic.pcie_root in found:
            gpus, nics = found[nic.pcie_root]
            found[nic.pcie_root] = (gpus, nics + 1)
    return found


SHARED_ROOTS = {
    "dgx-a100": [(2, 2)] * 4,
    "dgx-h100": [(1, 1)] * 8,
    "p5": [(1, 4)] * 8,
    "p5en": [(1, 2)] * 8,
    "p4d": [(2, 1)] * 4,
    "hgx-b200": [(2, 2)] * 4,
    "gb200-nvl72": [(1, 0)] * 4,
    "gb300-nvl72": [(1, 0)] * 4,
}


@pytest.mark.parametrize("name", SHARED_ROOTS)
def test_gpus_and_adapters_share_the_roots_that_the_machine_has(name: str) -> None:
    assert sorted(roots(name).values()) == SHARED_ROOTS[name]


NUMA = {"dgx-a100": 2, "dgx-h100": 4, "p5": 4, "gb200-nvl72": 2}


@pytest.mark.parametrize("name", NUMA)
def test_as_many_gpus_share_a_numa_node_as_the_machine_has(name: str) -> None:
    profile = CATALOG.profile(name)
    assert profile is not None
    numbers = [gpu.numa for gpu in profile.gpus]
    assert {numbers.count(number) for number in numbers} == {NUMA[name]}
    assert {nic.numa for nic in profile.nics} >= set(numbers)


def test_an_eight_gpu_board_has_fifteen_partitions() -> None:
    profile = CATALOG.profile("dgx-h100")
    assert profile is not None
    sizes = [len(partition.modules) for partition in profile.fabric.partitions]
    assert {size: sizes.count(size) for size in sizes} == {8: 1, 4: 2, 2: 4, 1: 8}


GPU = 'gpus:\n- {busId: "0000:1b:00.0"}\n'
WRONG = {
    "an unknown base": ("name: x\nbase: dgx-h101\n", "line 2, field base: no profile 'dgx-h101'", "did you mean dgx-h100"),
    "a wrong type": (
        "name: x\ngpu: NVIDIA H200\ngpus:\n- {busId: '0000:1b:00.0', numa: a}\n",
        "line 4, field gpus[0].numa: expected `int | null`, got `str`",
    ),
    "an unknown field": ("name: x\n\ngpuz: NVIDIA H200\n", "line 3, field gpuz: unknown field; did you mean gpu?"),
    "an unknown field of a GPU": (
        "name: x\ngpu: NVIDIA H200\ngpus:\n- {busId: '0000:1b:00.0'}\n- {bus: '0000:1c:00.0'}\n",
        "line 5, field gpus[1].bus: unknown field; did you mean busId?",
    ),
    "a bus id in upper case": (
        "name: x\ngpu: NVIDIA H200\ngpus:\n- {busId: '0000:1B:00.0'}\n",
        "line 4, field gpus[0].busId: must look like",
    ),
    "a bus id twice": (
        "name: x\ngpu: NVIDIA H200\ngpus:\n- {busId: '0000:1b:00.0'}\n- {busId: '0000:1b:00.0'}\n",
        "line 5, field gpus[1].busId: 0000:1b:00.0 is defined twice",
    ),
    "no name": ("gpu: NVIDIA H200\n", "line 1: field name is missing"),
    "an unknown model": (f"name: x\ngpu: H200\n{GPU}", "line 2, field gpu: no GPU model 'H200'", "NVIDIA H200"),
    "a layout that does not fit": (
        f"name: x\ngpu: NVIDIA H200\n{GPU}mig:\n  enabled: true\n  layout: [1g.18gb@0, 4g.71gb@0]\n",
        "line 7, field mig.layout[1]: 4g.71gb@0 and 1g.18gb@0 both need memory slice 0",
    ),
    "a profile of another model": (
        f"name: x\ngpu: NVIDIA H200\n{GPU}mig: {{enabled: true, layout: [1g.10gb@0]}}\n",
        "this GPU has no profile 1g.10gb; it has: 1g.18gb",
    ),
    "MIG on a GPU without it": (
        "name: x\ngpu: NVIDIA L40S\ngpus:\n- {busId: '0000:1b:00.0', mig: {enabled: true}}\n",
        "line 4, field gpus[0].mig: NVIDIA L40S has no MIG",
    ),
    "a partition with a stray module": (
        "name: x\nbase: dgx-h100\nfabric:\n  partitions:\n  - {id: 1, modules: [9]}\n",
        "line 5, field fabric.partitions[0].modules: no GPU has the module id 9",
    ),
    "an unknown adapter": (
        f"name: x\ngpu: NVIDIA H200\n{GPU}nic: wifi\nnics:\n- {{busId: '0000:2b:00.0', ifName: w0}}\n",
        "line 5, field nic: no kind of adapter 'wifi'",
    ),
    "a key twice": ("name: x\nname: y\n", "line 2, field name: is defined twice"),
    "no YAML": ("name: [\n", "line 2: is not YAML"),
    "a list": ("- a\n", "line 1: a profile is a mapping"),
    "nothing": ("", "holds no profile"),
    "a name that is taken": (f"name: dgx-h100\ngpu: NVIDIA H200\n{GPU}", "profile dgx-h100 already exists"),
    "a node without processors": ("name: x\nbase: dgx-h100\nnode:\n  cpu: 0\n", "line 4, field node.cpu: must be at least 1"),
    "a node without memory": ("name: x\nbase: dgx-h100\nnode: {memory: -5Gi}\n", "field node.memory: must be more than"),
    "a label with a space": ("name: x\nbase: dgx-h100\nlabels:\n  a b: c\n", "line 4, field labels: 'a b': "),
    "a value that is no label's": ("name: x\nbase: dgx-h100\nlabels:\n  a: b c\n", "line 4, field labels.a: 'b c': "),
    "an own model without memory": (
        "name: x\ngpuModels:\n- {name: M, architecture: H, computeCapability: '9.0', memoryMiB: 0}\n",
        "line 3, field gpuModels[0].memoryMiB: must be at least 1, got 0",
    ),
    "an unknown feature gate": (
        "name: x\nbase: dgx-h100\nfeatureGates:\n  DynamicMIGG: true\n",
        "line 4, field featureGates: unknown feature gate 'DynamicMIGG'",
    ),
    "feature gates that exclude each other": (
        "name: x\nbase: dgx-h100\nfeatureGates: {DynamicMIG: true, MPSSupport: true}\n",
        "line 3, field featureGates: DynamicMIG and MPSSupport exclude each other",
    ),
    "memory that is no quantity": (f"name: x\ngpu: NVIDIA H200\n{GPU}node: {{memory: lots}}\n", "field node.memory"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_bad_profile_gets_one_error_with_file_line_and_field(case: str, tmp_path: Path) -> None:
    text, *parts = WRONG[case]
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(Invalid) as caught:
        CATALOG.adding(file, gates_with)
    assert str(caught.value).startswith(str(file))
    for part in parts:
        assert part in str(caught.value)


def test_a_profile_of_ones_own_may_bring_a_model_and_start_from_another(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ngpuModels:\n- {name: My GPU, architecture: Hopper, computeCapability: '9.0', memoryMiB: 4096}\n"
        f"gpu: My GPU\n{GPU}---\nname: two\nbase: mine\nnode: {{cpu: 4, memory: 8Gi}}\n"
    )
    catalog = CATALOG.adding(file)
    two = catalog.profile("two")
    assert two is not None
    assert catalog.gpu_models(two)[0].memory_mib == 4096
    assert two.node.cpu == 4
    assert CATALOG.profile("two") is None


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read: No such file"):
        CATALOG.adding(tmp_path / "no.yaml")


def test_the_documented_profile_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/reference/nvidia.md").read_text()
    file = tmp_path / "lab.yaml"
    file.write_text(text.split("```yaml\n")[1].split("```")[0])
    assert CATALOG.adding(file).profile("lab") is not None
