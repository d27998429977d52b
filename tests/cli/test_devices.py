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
from dragoman.testing.build import DRIVER, claim, device_class, gpus, manifest, node, pod, request


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
        "driver,total,held,shared,free,tainted,blocked,unusable,heldTainted,fits,unavailable,unpublished,admin,capacity",
        f"{DRIVER},2,1,0,1,0,0,0,0,,0,0,0,",
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


def shared(name: str, device: str, amount: str, **rest: Any) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": device, **rest}
    if amount:
        result |= {"shareID": "7d9f0f5e-1111-4222-8333-444455556666", "consumedCapacity": {"memory": amount}}
    return claim(name, status={"allocation": {"devices": {"results": [result]}}})


def cards(*sizes: str) -> dict[str, Any]:
    made = gpus("a", len(sizes))
    for entry, size in zip(made["spec"]["devices"], sizes, strict=True):
        entry |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": size}}}
    return made


def test_shared_devices_show_amounts(shown: Any) -> None:
    world = [device_class(), node("a"), cards("24Gi", "40Gi"), shared("c", "gpu-1", "6Gi"), shared("d", "gpu-1", "1Gi")]
    assert shown(world) == (
        "CLASS             TOTAL   HELD   SHARED   FREE   CAPACITY USED\n"
        "gpu.example.com   2       0      1        1      7Gi of 64Gi memory\n"
        "(all)             2       0      1        1      7Gi of 64Gi memory\n"
    )
    reported = json.loads(shown(world, "-o", "json", "--by", "claim"))
    rows = {row["claim"]: row["capacity"] for row in reported["rows"]}
    assert rows["<none>"] == {"memory": {"used": "0", "total": "24Gi"}}
    assert rows["default/c"] == {"memory": {"used": "7Gi", "total": "40Gi"}}


def test_admin_access_stands_apart_and_holds_nothing(shown: Any) -> None:
    watching = claim("watch", status=shared("x", "gpu-0", "", adminAccess=True)["status"])
    lines = shown([*WORLD[:3], watching, held("c", "a", "gpu-1")]).splitlines()
    assert lines[0].split() == ["CLASS", "TOTAL", "HELD", "FREE", "ADMIN"]
    assert lines[1].split() == [DRIVER, "2", "1", "1", "1"]
    assert lines[-1] == f"admin access, which holds nothing: default/watch to {DRIVER}/a/gpu-0"
    reported = json.loads(shown([*WORLD[:3], watching], "-o", "json"))
    assert (reported["total"]["held"], reported["total"]["admin"]) == (0, 1)
    assert reported["adminAccess"] == [{"namespace": "default", "claim": "watch", "devices": [f"{DRIVER}/a/gpu-0"]}]


def test_one_pool_has_the_same_numbers_in_every_view(shown: Any, tmp_path: Path, capsys: Any) -> None:
    world = [
        device_class(),
        node("a"),
        cards("24Gi", "40Gi", "8Gi"),
        shared("c", "gpu-1", "6Gi"),
        held("d", "a", "gpu-0"),
    ]
    row = json.loads(shown(world, "-o", "json", "--by", "pool"))["rows"][0]
    main(["explain", "node/a", "-f", str(tmp_path / "world.yaml"), "-o", "json"])
    about = json.loads(capsys.readouterr().out)["nodes"][0]
    (pool,), (of_class,) = about["pools"], about["classes"]
    assert [(view["held"], view["shared"]) for view in (row, pool, of_class)] == [(1, 1)] * 3
    assert of_class["capacity"] == row["capacity"] == {"memory": {"used": "30Gi", "total": "72Gi"}}


def test_the_table_of_simulate_shows_shares_and_admin_access(tmp_path: Path, capsys: Any) -> None:
    space = manifest("Namespace", "ops", metadata={"labels": {"resource.kubernetes.io/admin-access": "true"}})
    world = [
        space,
        device_class(),
        node("a"),
        cards("24Gi"),
        claim("part", request(capacity={"requests": {"memory": "5Gi"}})),
        pod("p", "part"),
        claim("see", request(adminAccess=True), namespace="ops"),
        pod("q", "see", namespace="ops"),
    ]
    (tmp_path / "w.yaml").write_text(yaml.safe_dump_all(world))
    main(["simulate", "-f", str(tmp_path / "w.yaml")])
    out = capsys.readouterr().out
    assert "gpu-0 [share: 5Gi memory]" in out
    assert "gpu-0 [admin access]" in out
