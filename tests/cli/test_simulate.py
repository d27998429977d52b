"""`dragoman simulate`: output, exit status, errors, and the flags that change the state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cli.main import main
from dragoman.errors import Invalid, NotFound
from dragoman.testing.build import DRIVER, claim, device_class, gpus, manifest, node, pod


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes manifests to a file and returns its name."""

    def made(*manifests: dict[str, Any], name: str = "world.yaml") -> str:
        file = tmp_path / name
        file.write_text(yaml.safe_dump_all(manifests))
        return str(file)

    return made


BASE = [node("a"), gpus("a", 2), device_class()]
BUSY = [
    claim(
        "held",
        status={
            "allocation": {
                "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}]}
            },
            "reservedFor": [{"resource": "pods", "name": "u", "uid": "uid-u"}],
        },
    ),
    pod("u", "held", nodeName="a", status={"phase": "Running"}),
]


def ran(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    status = main(["simulate", *args, "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_taint_for_no_device_is_told(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    taint = f"{DRIVER}/a/gpu-9=k:NoExecute"
    assert main(["simulate", "-f", write(*BASE, *BUSY), "--taint", taint]) == 0
    assert capsys.readouterr().out == f"no device is tainted by {taint}\n"


def test_places_and_status(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, claim("c"), pod("p", "c"))
    assert main(["simulate", "-f", file]) == 0
    assert capsys.readouterr().out == "POD         NODE   DEVICES\ndefault/p   a      c: gpu-0 (claim c)\n"
    status, reported = ran(capsys, "-f", write(*BASE, claim("c", count=3), pod("p", "c")))
    assert status == 1
    (entry,) = reported["pods"]
    assert entry["node"] is None
    assert entry["refusal"]["conflict"]["requests"][0]["requested"] == 3
    assert [hint["kind"] for hint in entry["refusal"]["hints"]] == ["ChangeCount"]
    assert entry["refusal"]["hints"][0]["verifiedWith"] == {
        "node": "a",
        "devices": [f"{DRIVER}/a/gpu-0", f"{DRIVER}/a/gpu-1"],
    }


def test_what_cannot_be_read_stands_in_errors_and_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: 3}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: 7\n"
    )
    with pytest.raises(Invalid, match="must be a string"):
        main(["simulate", "-f", str(file), "-o", "json"])
    reported = json.loads(capsys.readouterr().out)
    assert reported["pods"] == []
    assert [(e["file"], e["document"], e["field"]) for e in reported["errors"]] == [
        (str(file), 1, "metadata.name"),
        (str(file), 2, "spec"),
    ]


def test_one_more_node_like_another(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, claim("c", count=2), pod("p", "c"))
    assert ran(capsys, "-f", file)[0] == 1
    status, reported = ran(capsys, "-f", file, "--add-node", "shape-of a")
    assert status == 0
    assert reported["pods"][0]["node"] == "a-new"
    assert reported["changes"]["addedNodes"] == ["a-new"]


def test_one_more_node_from_a_file(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    more = write(node("b"), gpus("b", 4), name="more.yaml")
    file = write(*BASE, claim("c", count=3), pod("p", "c"))
    status, reported = ran(capsys, "-f", file, "--add-node", more)
    assert (status, reported["pods"][0]["node"]) == (0, "b")
    with pytest.raises(Invalid, match="exists already"):
        main(["simulate", "-f", file, "--add-node", write(node("a"), name="same.yaml")])


def test_without_a_node_its_pods_are_placed_anew(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, node("b"), gpus("b", 1))
    status, reported = ran(capsys, "-f", file, "--remove-node", "a")
    assert status == 0
    assert [(pod["name"], pod["node"]) for pod in reported["pods"]] == [("u", "b")]


def test_without_a_pod_there_is_room(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, claim("c", count=2), pod("p", "c"))
    status, reported = ran(capsys, "-f", file, "--delete", "u")
    assert status == 0
    assert reported["changes"]["deletedPods"] == ["default/u"]
    with pytest.raises(NotFound, match="near: default/u"):
        main(["simulate", "-f", file, "--delete", "uu"])


RULE = manifest(
    "DeviceTaintRule", "r", spec={"deviceSelector": {"pool": "a"}, "taint": {"key": "k", "effect": "NoExecute"}}
)


@pytest.mark.parametrize("as_file", [True, False])
def test_who_would_be_displaced_by_a_taint(as_file: bool, write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    taint = write(RULE, name="rule.yaml") if as_file else f"{DRIVER}/a/*=k:NoExecute"
    status, reported = ran(capsys, "-f", write(*BASE, *BUSY), "--taint", taint)
    assert status == 1
    assert [(e["name"], e["node"], e["device"]) for e in reported["displaced"]] == [("u", "a", f"{DRIVER}/a/gpu-0")]
    (entry,) = reported["pods"]
    assert (entry["name"], entry["node"]) == ("u", None)
    assert "DeviceTainted" in {reason["code"] for reason in entry["nodes"][0]["reasons"]}


def test_pods_with_a_claim_for_extended_resources_are_displaced_too(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "u", "uid": "uid-u", "controller": True}
    held = {**BUSY[0], "metadata": {**BUSY[0]["metadata"], "ownerReferences": [owner]}}
    busy = [held, pod("u", extended={"e.com/g": "1"}, nodeName="a")]
    busy[1]["status"] = {
        "phase": "Running",
        "extendedResourceClaimStatus": {"resourceClaimName": "held", "requestMappings": []},
    }
    reported = ran(capsys, "-f", write(*BASE, *busy), "--taint", f"{DRIVER}/a/gpu-0=k:NoExecute")[1]
    assert [entry["name"] for entry in reported["displaced"]] == ["u"]


@pytest.mark.parametrize("text", ["nonsense", "a/b=k:NoExecute", "d/p/x=k", "d/p/x=k:Never"])
def test_a_taint_that_means_nothing(text: str, write: Any) -> None:
    with pytest.raises(Invalid, match=r"--taint"):
        main(["simulate", "-f", write(*BASE), "--taint", text])


def test_the_same_question_twice_gives_the_same_answer(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, claim("c", count=2), pod("p", "c"))
    assert ran(capsys, "-f", file) == ran(capsys, "-f", file)
