"""`dragoman devices` of files: tables that fit on a screen, JSON and CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cli import devices
from dragoman.cli.main import main
from dragoman.errors import Invalid
from dragoman.inspect.inventory import TERMS
from dragoman.testing.build import DRIVER, claim, device_class, gpus, manifest, node


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Shows the devices of manifests."""

    def show(manifests: list[dict[str, Any]], *flags: str) -> str:
        file = tmp_path / "world.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        main(["devices", "-f", str(file), *flags])
        return capsys.readouterr().out

    return show


def held(name: str, on: str, device: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": on, "device": device}
    return claim(name, status={"allocation": {"devices": {"results": [result]}}})


WORLD = [device_class(), node("a"), gpus("a", 2), held("c", "a", "gpu-0")]


def test_a_table(shown: Any) -> None:
    assert shown(WORLD) == (
        "CLASS             TOTAL   HELD   FREE\n"
        "gpu.example.com   2       1      1\n"
        "(all)             2       1      1\n"
    )


def test_many_nodes_fit_on_one_screen(shown: Any) -> None:
    nodes = [obj for i in range(60) for obj in (node(f"n{i:02d}"), gpus(f"n{i:02d}", 8))]
    lines = shown([device_class(), *nodes, held("c", "n07", "gpu-0")], "--by", "node").splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("59 with equal counts (n00, n01, n02, 56 more), each")
    assert lines[2].split() == ["n07", "8", "1", "7"]
    assert lines[3].split() == ["(all)", "480", "1", "479"]


def test_json_has_every_row_and_count(shown: Any) -> None:
    reported = json.loads(shown(WORLD, "-o", "json", "--by", "node,claim"))
    assert reported["by"] == ["node", "claim"]
    assert [(row["claim"], row["held"], row["free"]) for row in reported["rows"]] == [
        ("<none>", 0, 1),
        ("default/c", 1, 0),
    ]
    assert reported["total"]["total"] == 2
    assert reported["problems"] == []


def test_csv(shown: Any) -> None:
    assert shown(WORLD, "-o", "csv", "--by", "driver").splitlines() == [
        "driver,total,held,shared,free,tainted,blocked,unusable,heldTainted,fits,unavailable,unpublished",
        f"{DRIVER},2,1,0,1,0,0,0,0,,0,0",
    ]


def test_trouble_stands_below(shown: Any) -> None:
    incomplete = gpus("b", 1)
    incomplete["spec"]["pool"]["resourceSliceCount"] = 2
    out = shown([*WORLD, node("b"), incomplete])
    assert out.splitlines()[-1] == f"incomplete: pool {DRIVER}/b, 1 device (1 of 2 slices)"


def test_an_attribute_that_no_device_has_is_refused(shown: Any) -> None:
    with pytest.raises(Invalid, match=r"'clas' is not an attribute of any device, .*; near: class"):
        shown(WORLD, "--by", "node,clas")


def test_no_devices(shown: Any, tmp_path: Path) -> None:
    assert shown([node("a")]) == "no devices are published (1 node)\n"
    assert main(["devices", "-f", str(tmp_path / "world.yaml")]) == 1


def test_help_names_every_term() -> None:
    assert ", ".join(TERMS) == devices.TERMS


def test_free_devices_of_a_cordoned_node_are_no_pods(shown: Any) -> None:
    off = manifest("Node", "off", spec={"unschedulable": True})
    out = shown([*WORLD, off, gpus("off", 3)]).splitlines()
    assert "UNAVAILABLE" in out[0]
    assert out[-1] == "unavailable: 3 on nodes that are cordoned"
