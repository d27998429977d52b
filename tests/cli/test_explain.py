"""`dragoman explain` of files: what is asked for, what is told, exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cli import output
from dragoman.cli.main import main
from dragoman.errors import Invalid, NotFound
from dragoman.testing.build import DRIVER, claim, device_class, gpus, manifest, node, pod, template
from dragoman.whatif import budget

BASE = [node("a"), gpus("a", 2), device_class()]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Asks about manifests; gives status, text lines and JSON."""

    def asked(manifests: list[dict[str, Any]], *words: str) -> tuple[int, list[str], Any]:
        file = tmp_path / "world.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        status = main(["explain", *words, "-f", str(file)])
        lines = capsys.readouterr().out.splitlines()
        main(["explain", *words, "-f", str(file), "-o", "json"])
        return status, lines, json.loads(capsys.readouterr().out)

    return asked


def test_a_pod_that_has_no_place(ask: Any) -> None:
    status, lines, reported = ask([*BASE, template("t", count=3), pod("p", templates=["t"])], "pod/p")
    assert status == 1
    assert lines[0] == "pod default/p cannot be scheduled:"
    assert "  help: request gpu of template t: ask for 2 instead of 3 devices: fits on a with gpu-0, gpu-1" in lines
    (entry,) = reported["pods"]
    assert set(entry) == {"namespace", "name", "node", "claims", "nodes", "refusal"}
    assert reported["errors"] == []


def test_a_pending_pod_that_fits_says_why_there(ask: Any) -> None:
    status, lines, reported = ask([*BASE, node("b"), claim("c"), pod("p", "c")], "pod/p")
    assert status == 0
    assert lines[0] == "pod default/p is pending; would fit on a"
    assert "  other nodes cannot take it:" in lines
    assert reported["pods"][0]["choices"][0]["device"] == f"{DRIVER}/a/gpu-0"


def test_pods_before_it_in_the_file_are_placed_first(ask: Any) -> None:
    objects = [*BASE, claim("c", count=2), claim("d"), pod("p", "c"), pod("q", "d")]
    assert ask(objects, "pod/q")[0] == 1
    assert ask([*objects[:-2], *reversed(objects[-2:])], "pod/q")[0] == 0


def test_all_pending_pods_with_equivalent_ones_together(ask: Any) -> None:
    pods = [pod(f"p{i}", templates=["t"]) for i in range(4)]
    status, lines, reported = ask([*BASE, template("t", count=2), *pods])
    assert status == 1
    assert lines[0] == "pod default/p1, pod default/p2, pod default/p3:"
    assert lines[1].startswith("  a: claim of template t, request gpu: 2 devices")
    assert lines[2].startswith("  help: for pod default/p1: would fit if default/p0")
    assert lines[3] == "pod default/p0 is pending; would fit on a"
    assert len(reported["pods"]) == 4
    assert ask([*BASE])[1] == ["no pending pods"]


def test_a_misspelt_attribute_is_named_even_where_all_devices_are_held(ask: Any) -> None:
    typo = claim("d")
    expression = f"device.attributes['{DRIVER}'].indx == 1"
    typo["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    lines = ask([*BASE, claim("c", count=2), typo, pod("p", "c"), pod("q", "d")])[1]
    assert any("did you mean index?" in line for line in lines), lines


def test_nodes_whose_devices_are_held_and_tainted_stand_apart(ask: Any) -> None:
    rule = {"deviceSelector": {"pool": "b"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    objects = [
        *BASE,
        node("b"),
        gpus("b", 2),
        claim("c", count=2),
        claim("d"),
        manifest("DeviceTaintRule", "r", spec=rule),
    ]
    lines = ask([*objects, pod("p", "c"), pod("q", "d")], "pod/q")[1]
    heads = [line.partition(":")[0] for line in lines if line.startswith(("  a:", "  b:"))]
    assert sorted(heads) == ["  a", "  b"]


def test_pods_with_a_place_leave_room_for_facts_of_those_without(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "EXPLAINED_MAX", 2)
    pods = [pod(f"p{i}", templates=["t"]) for i in range(6)]
    reported = ask([node("a"), gpus("a", 4), device_class(), template("t"), *pods])[2]["pods"]
    assert [bool(entry["refusal"]["hints"]) for entry in reported if entry["refusal"]] == [True, True]


def test_many_pods_that_fit_are_counted(ask: Any) -> None:
    pods = [pod(f"p{i:02}", templates=["t"]) for i in range(23)]
    status, lines, reported = ask([node("a"), gpus("a", 30), device_class(), template("t"), *pods])
    assert status == 0
    assert lines[19:] == [
        "pod default/p19 is pending; would fit on a",
        "3 more pods that are pending and would fit, on 1 node",
    ]
    assert len(reported["pods"]) == 23


def test_on_a_terminal_long_lines_are_folded_deeper_than_they_began() -> None:
    assert (
        output.folded("  help: ask for 2 instead of 3 devices", 20)
        == "  help: ask for 2\n      instead of 3\n      devices"
    )
    assert output.folded("  node-with-a-name-longer-than-the-terminal", 20).split() == [
        "node-with-a-name-longer-than-the-terminal"
    ]


def test_the_last_column_of_a_wide_table_goes_on_below() -> None:
    fits = ", ".join(f"{i} x {i}g.{i}gb" for i in range(10, 20))
    lines = output.rows(("NODE", "FITS"), [("a", fits), ("b", "-")], width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line[:7].strip() for line in lines if line[:7].strip()] == ["NODE", "a", "b"]
    assert " ".join(line[7:] for line in lines[1:-1]) == fits
    assert all(line.endswith((",", "gb")) for line in lines[1:-1])
    assert output.rows(("NODE", "FITS"), [("a", fits)], width=0).splitlines()[1] == f"a      {fits}"


def test_what_is_the_matter_with_devices_stands_below_their_node(ask: Any) -> None:
    objects = [node("a"), gpus("a", 1), node("b"), device_class(), claim("c"), claim("d"), pod("q", "c"), pod("p", "d")]
    lines = ask(objects, "pod/p")[1]
    assert [line.split(":")[0] for line in lines[1:4]] == ["  a", "    claim d, request gpu", "  b"]


def test_devices_that_were_allocated_for_the_same_reason_stand_together(ask: Any) -> None:
    objects = [node("a"), gpus("a", 4), device_class(), claim("c", count=3), pod("p", "c")]
    reported = "gpu-0, gpu-1, gpu-2 for request gpu: 3 of 4 matching of 4 devices on a"
    assert any(reported in line for line in ask(objects, "pod/p")[1])


def test_of_one_namespace_when_it_is_named(ask: Any) -> None:
    held = claim("c", count=9)
    objects = [*BASE, held, pod("p", "c"), pod("q", "gone")]
    objects[-1]["metadata"]["namespace"] = "team"
    assert len(ask(objects)[2]["pods"]) == 2
    assert [entry["name"] for entry in ask(objects, "-n", "team")[2]["pods"]] == ["q"]
    assert ask(objects, "-n", "other")[1] == ["no pending pods"]


def test_a_claim_that_no_pod_uses(ask: Any) -> None:
    status, lines, reported = ask([*BASE, claim("c", count=3)], "claim/c")
    assert status == 1
    assert lines[:2] == ["claim default/c is pending", "  no pod uses it; devices are allocated when one does"]
    assert reported["claims"][0]["state"] == "pending"
    assert reported["pods"][0]["refusal"]["hints"]
    assert ask([*BASE, claim("c")], "claim/c")[0] == 0


def test_a_node_and_a_device(ask: Any) -> None:
    status, lines, reported = ask(BASE, "node/a")
    assert (status, lines[1]) == (0, f"  pool {DRIVER}/a: 2 devices, 0 held")
    assert reported["nodes"][0]["classes"][0]["free"] == 2
    status, lines, reported = ask(BASE, f"device/{DRIVER}/a/gpu-1")
    assert (status, lines[0]) == (0, f"device {DRIVER}/a/gpu-1 is free on a")
    assert reported["devices"][0]["state"] == "free"


MISTAKES: dict[str, tuple[str, type[Exception], str]] = {
    "a pod that is not there": ("pod/pp", NotFound, "pod default/pp does not exist; near: default/p"),
    "a claim that is not there": ("claim/x", NotFound, "claim default/x does not exist"),
    "a node that is not there": ("node/aa", NotFound, "node aa does not exist; near: a"),
    "a device that is not there": (f"device/{DRIVER}/a/gpu-9", NotFound, "is neither published nor allocated; near:"),
    "no kind": ("train", Invalid, "must be pod/NAME"),
    "a kind that is not explained": ("service/x", Invalid, "must be pod/NAME"),
    "half a device": ("device/gpu-0", Invalid, "must be device/DRIVER/POOL/DEVICE"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_clear_error(name: str, ask: Any) -> None:
    word, kind, reported = MISTAKES[name]
    with pytest.raises(kind, match=reported):
        ask([*BASE, pod("p")], word)
