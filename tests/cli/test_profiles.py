"""`dragoman profiles`, and the flags of `dragoman driver nvidia` and `up` that can be wrong."""

from __future__ import annotations

import json
from ctypes.util import find_library
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dragoman.cli.main import main
from dragoman.daemon.machines import machines
from dragoman.errors import Denied, DragomanError, Invalid


def test_all_machines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (rack,) = [line for line in lines if line.startswith("gb200-nvl72 ")]
    assert "18 nodes x 4 GB200" in rack
    assert main(["profiles", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["items"]
    assert len(rows) == len(lines) - 1
    assert all(row["gpus"] and row["summary"] for row in rows)


def test_the_machine_of_the_example_driver_is_one_of_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["profiles", "example"]) == 0
    assert "8 devices of gpu.example.com" in capsys.readouterr().out
    own = tmp_path / "own.yaml"
    own.write_text("name: small\nbase: example\nexampleDevices: 2\nnode: {cpu: 4}\n")
    (small,) = machines((("n", "small"),), (own,))
    assert small.facts.capacity["cpu"] == "4"
    assert list(small.drivers) == ["gpu.example.com"]


def test_a_profile_that_is_nearly_named_is_offered() -> None:
    with pytest.raises(Invalid, match="did you mean dgx-h100"):
        main(["profiles", "dgx-h10"])


def test_one_machine_is_shown_with_its_topology(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["profiles", "dgx-h100"]) == 0
    text = capsys.readouterr().out
    assert "pci0000:d7" in text
    assert "mlx5_11" in text
    assert "1g.10gb+me" in text
    own = tmp_path / "own.yaml"
    own.write_text("name: own\nbase: t4-4\n")
    assert main(["profiles", "own", "--profile", str(own), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpu"] == "Tesla T4"


DRIVER = ["driver", "nvidia", "--node-name", "n"]
WRONG = {
    "no such profile to show": (["profiles", "dgx"], "dgx: no such profile"),
    "no such profile to simulate": ([*DRIVER, "--simulate", "dgx"], "--simulate dgx: no such profile"),
    "gates that exclude each other": (
        [*DRIVER, "--simulate", "t4-4", "--feature-gates", "DynamicMIG=true,MPSSupport=true"],
        "--feature-gates: DynamicMIG and MPSSupport exclude each other",
    ),
    "no number of shares": (
        [*DRIVER, "--simulate", "t4-4", "--consumable-shares", "many"],
        "--consumable-shares: must be",
    ),
    "no XIDs": (
        [*DRIVER, "--simulate", "t4-4", "--additional-xids-to-ignore", "x"],
        "--additional-xids-to-ignore: must",
    ),
    "a node without a profile": (["up", "--node", "n=nothing"], "--node n=nothing: no such profile"),
    "a gate of up": (["up", "--gpu-feature-gates", "X"], "--gpu-feature-gates: 'X' must be NAME=true"),
    "gates of a machine": (
        ["up", "--node", "n=dgx-h100-dynamic", "--gpu-feature-gates", "MPSSupport=true"],
        "driver of profile dgx-h100-dynamic: DynamicMIG and MPSSupport exclude each other",
    ),
}


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has the NVIDIA driver")
def test_a_machine_without_the_kernels_driver_is_reported_at_once() -> None:
    with pytest.raises(
        Denied, match=r"libnvidia-ml\.so\.1 was not found: install the NVIDIA driver, or use --simulate"
    ):
        main(DRIVER)


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_reported_before_anything_runs(case: str) -> None:
    arguments, text = WRONG[case]
    with pytest.raises(DragomanError) as caught:
        main(arguments)
    assert text in str(caught.value)


def test_a_rack_makes_its_trays_with_one_nvlink_domain_each() -> None:
    made = machines((("rack-0", "gb200-nvl72"), ("rack-1", "gb200-nvl72"), ("one", "t4-4")))
    assert [machine.name for machine in made] == [
        *(f"rack-{rack}-{tray}" for rack in range(2) for tray in range(18)),
        "one",
    ]
    cliques = {machine.name: machine.facts.labels.get("nvidia.com/gpu.clique", "") for machine in made}
    assert len({cliques[f"rack-0-{tray}"] for tray in range(18)}) == 1
    assert cliques["rack-0-0"] != cliques["rack-1-0"]
    uuid, _, clique = cliques["rack-0-0"].partition(".")
    assert (len(uuid), clique) == (36, "1")
    assert not cliques["one"]
    with pytest.raises(Invalid, match="node rack-0-0 already exists"):
        machines((("rack-0", "gb200-nvl72"), ("rack-0-0", "t4-4")))


def test_nodes_say_what_they_are_by_labels() -> None:
    (dgx,) = machines((("n", "dgx-a100"),))
    assert {
        key: dgx.facts.labels[f"nvidia.com/{key}"] for key in ("gpu.product", "gpu.count", "gpu.memory", "gpu.family")
    } == {
        "gpu.product": "NVIDIA-A100-SXM4-80GB",
        "gpu.count": "8",
        "gpu.memory": "81920",
        "gpu.family": "ampere",
    }
    assert dgx.facts.labels["nvidia.com/gpu.machine"] == "DGXA100-920-23687-2530-000"
    (cloud,) = machines((("n", "p5"),))
    assert cloud.facts.labels["node.kubernetes.io/instance-type"] == "p5.48xlarge"
    (tray, *_) = machines((("n", "gb200-nvl72"),))
    assert tray.facts.labels["kubernetes.io/arch"] == "arm64"


def test_a_picture_names_every_device_once_below_its_root(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "dgx-h100", "--picture"]) == 0
    tree = capsys.readouterr().out
    assert [line for line in tree.splitlines() if "NUMA node" in line] == ["├── NUMA node 0", "├── NUMA node 1"]
    assert all(tree.count(f"GPU {i}  ") == 1 for i in range(8))
    before, _, after = tree.partition("pci0000:37")
    assert "GPU 0" in before
    assert after.splitlines()[1].endswith("GPU 1  NVIDIA H100 80GB HBM3 0000:43:00.0")
    assert main(["profiles", "gb200-nvl72", "--picture"]) == 0
    assert "one domain over 18 nodes" in capsys.readouterr().out
    assert main(["profiles", "dgx-h100", "--picture", "svg"]) == 0
    drawn = ElementTree.fromstring(capsys.readouterr().out)
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(word is not None and word.startswith("GPU ") for word in words) == 8
    with pytest.raises(Invalid, match="needs the NAME"):
        main(["profiles", "--picture"])
