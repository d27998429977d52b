"""Is what programs read as its schema says? Real outputs of every command against docs/reference/schemas."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema_rs
import make_output_schemas
import pytest
import yaml

from dragoman.cli import main as commands
from dragoman.cli import output
from dragoman.cli.main import Usage, main
from dragoman.drivers.registry import driver_plans
from dragoman.explain import messages
from dragoman.testing.build import claim, device_class, gpus, node, pod, template
from dragoman.values.visible import columns_of, json_safe, visible, wrapped
from tests.explain import codes

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs/reference/schemas"
EVIL = "x\x1b[2J\nerror: forged"


def checked(kind: str, text: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(text)
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text())
    jsonschema_rs.validator_for(schema).validate(body)
    assert (body["apiVersion"], body["kind"]) == (output.API_VERSION, kind)
    return body


@pytest.fixture
def world(tmp_path: Path) -> str:
    """A cluster with a pod that fits, one that does not, and one whose claim is unknown."""
    file = tmp_path / "world.yaml"
    objects = [
        device_class(),
        node("a"),
        node("b", taints=["team=ml:NoSchedule"]),
        gpus("a", 2),
        template("one"),
        template("many", count=5),
        claim("idle"),
        pod("fits", templates=["one"]),
        pod("waits", templates=["many"]),
        pod("lost", "nowhere"),
    ]
    file.write_text(yaml.safe_dump_all(objects))
    return str(file)


COMMANDS = {
    "simulate": ("Simulation", ["simulate", "-f", "WORLD"]),
    "simulate with changes": (
        "Simulation",
        ["simulate", "-f", "WORLD", "--add-node", "shape-of a", "--taint", "gpu.example.com/a/gpu-0=k:NoExecute"],
    ),
    "explain everything": ("Explanation", ["explain", "-f", "WORLD"]),
    "explain a pod": ("Explanation", ["explain", "pod/waits", "-f", "WORLD"]),
    "explain a claim": ("Explanation", ["explain", "claim/idle", "-f", "WORLD"]),
    "explain a node": ("Explanation", ["explain", "node/b", "-f", "WORLD"]),
    "explain a device": ("Explanation", ["explain", "device/gpu.example.com/a/gpu-0", "-f", "WORLD"]),
    "simulate a replay": ("Replay", ["simulate", "-f", "WORLD", "--replay"]),
    "plan capacity": ("CapacityPlan", ["plan", "capacity", "-f", "WORLD", "-f", "examples/one-device.yaml"]),
    "plan buy": (
        "PurchasePlan",
        [
            *("plan", "buy", "-f", "examples/cluster.yaml", "-f", "examples/one-device.yaml"),
            *("--prices", "examples/plan/prices.yaml", "--copies", "30"),
        ],
    ),
    "plan mig": ("MigPlan", ["plan", "mig", "--model", "dgx-h100", "--mix", "1g.10gb=5"]),
    "devices": ("DeviceInventory", ["devices", "-f", "WORLD", "--by", "node,class"]),
    "lint": ("LintReport", ["lint", "-f", "WORLD"]),
    "migrate with a proof": ("Migration", ["migrate", "-f", "WORLD", "--against", "WORLD"]),
    "an inventory": ("MigrationInventory", ["migrate", "--assess", "-f", str(ROOT / "examples/device-plugin")]),
    "migrate": ("Migration", ["migrate", "-f", "WORLD"]),
    "doctor": ("DoctorReport", ["doctor", "-f", "WORLD"]),
    "profiles": ("MachineProfileList", ["profiles"]),
    "a profile": ("MachineProfile", ["profiles", "dgx-h100"]),
}


@pytest.mark.parametrize(("kind", "words"), COMMANDS.values(), ids=COMMANDS)
def test_json_is_as_its_schema_says(
    kind: str, words: list[str], world: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([word.replace("WORLD", world) for word in words] + ["-o", "json"])
    checked(kind, capsys.readouterr().out)


def test_a_document_that_cannot_be_understood_is_an_error_of_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: 3\n")
    with pytest.raises(Exception, match="metadata"):
        main(["simulate", "-f", str(file), "-o", "json"])
    assert checked("Simulation", capsys.readouterr().out)["errors"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_report_of_the_bench_is_as_its_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    """A driver that never registers: every case ends, one fails, the others are left out."""
    words = ["driver", "bench", "--patience", "1s", "--case", "registration", "--case", "prepare", "-o", "json"]
    main([*words, "--", "bash", "-c", "exit 3"])
    body = checked("DriverBenchReport", capsys.readouterr().out)
    assert (body["failed"], body["skipped"]) == (1, 1)


def test_the_schemas_follow_from_the_types() -> None:
    assert {
        name: (SCHEMAS / name).read_text() for name in make_output_schemas.written()
    } == make_output_schemas.written()


@pytest.mark.parametrize("code", codes.CODES)
def test_every_reason_is_as_its_schema_says(code: str) -> None:
    schema = json.loads((SCHEMAS / "Explanation.json").read_text())
    reasons = jsonschema_rs.validator_for({"$ref": "#/$defs/reason", "$defs": schema["$defs"]})
    body = messages.as_json(codes.situation(code))
    reasons.validate(body)
    assert not reasons.is_valid({**body, "more": 1}), "closed"


def sarif(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


TEXT = {"type": "string", "minLength": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = sarif({"text": TEXT}, "text")
RULE = sarif(
    {"id": TEXT, "name": TEXT, "shortDescription": MESSAGE, "defaultConfiguration": sarif({"level": LEVEL}, "level")},
    "id",
)
LOCATION = sarif(
    {
        "physicalLocation": sarif(
            {
                "artifactLocation": sarif({"uri": {**TEXT, "format": "uri-reference"}}, "uri"),
                "region": sarif({"startLine": {"type": "integer", "minimum": 1}}, "startLine"),
            },
            "artifactLocation",
        ),
        "logicalLocations": {"type": "array", "items": sarif({"fullyQualifiedName": TEXT}, "fullyQualifiedName")},
    },
    "physicalLocation",
)
RESULT = sarif(
    {
        "ruleId": TEXT,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": {"type": "array", "minItems": 1, "items": LOCATION},
    },
    "ruleId",
    "ruleIndex",
    "level",
    "message",
    "locations",
)
DRIVER = sarif({"name": TEXT, "version": TEXT, "rules": {"type": "array", "items": RULE}}, "name", "rules")
RUN = sarif({"tool": sarif({"driver": DRIVER}, "driver"), "results": {"type": "array", "items": RESULT}}, "tool")
SARIF = sarif(
    {"$schema": TEXT, "version": {"const": "2.1.0"}, "runs": {"type": "array", "minItems": 1, "items": RUN}},
    "version",
    "runs",
)
"""The part of SARIF 2.1.0 (OASIS, sections 3.13 to 3.52) that lint writes."""


def test_sarif_is_as_its_standard_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "with blank ü.yaml"
    flat = {"name": "r", "deviceClassName": "c"}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    broken = "kind: [\n"
    file.write_text(yaml.safe_dump({**body, "spec": {"devices": {"requests": [flat]}}}) + "---\n" + broken)
    main(["lint", "-f", str(file), "-o", "sarif"])
    log = json.loads(capsys.readouterr().out)
    jsonschema_rs.validator_for(SARIF).validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(run["results"]) >= 2
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [result["ruleId"] for result in run["results"]]
    assert len(rules) == len(set(rules))


def test_every_kind_has_a_schema_and_a_line_in_the_docs() -> None:
    source = "".join(file.read_text() for file in (ROOT / "src/dragoman/cli").glob("*.py"))
    kinds = set(re.findall(r'(?:versioned\(|show\(args,)\s*"(\w+)"', source))
    kinds |= {plan.kind for plan in driver_plans()}
    assert kinds == {file.stem for file in SCHEMAS.glob("*.json")}
    page = (ROOT / "docs/reference/outputs.md").read_text()
    assert not [kind for kind in kinds if f"schemas/{kind}.json" not in page]


METRIC = re.compile(r'\.(?:counter|gauge|histogram)\(\s*"([a-z_]+)"')


def test_every_metric_is_documented() -> None:
    source = "".join(file.read_text() for file in (ROOT / "src/dragoman").rglob("*.py"))
    page = (ROOT / "docs/reference/metrics.md").read_text()
    names = set(METRIC.findall(source))
    assert names
    assert not [name for name in names if f"`{name}`" not in page]


# ---- what reaches a terminal


def test_control_characters_are_made_visible_and_letters_stay() -> None:
    assert visible("a\x1b[2Jb\nc\u202ed\x9b") == "a\\x1b[2Jb\\nc\\u202ed\\x9b"
    assert visible("노드 é 👩\u200d🔬") == "노드 é 👩\u200d🔬"
    assert json.loads(json_safe(json.dumps({"노드": "\x9b\u202e\U000e0001"}, ensure_ascii=False))) == {
        "노드": "\x9b\u202e\U000e0001"
    }


def test_wide_characters_take_two_columns() -> None:
    assert columns_of("노드-0") == 6
    assert columns_of("e\u0301") == 1
    table = output.rows(("NAME", "NODE"), [("노드", "a"), ("plain", "b")]).splitlines()
    assert [columns_of(line) for line in table] == [len("plain   NODE"), len("plain   a"), len("plain   a")]
    assert wrapped("  가나 다라 마바", 8, "    ") == ["  가나", "    다라", "    마바"]


@pytest.mark.parametrize(
    "words", [["simulate"], ["explain"], ["devices", "--by", "node,class"], ["devices", "-o", "csv"]]
)
def test_escape_sequences_of_objects_reach_no_terminal(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "world.yaml"
    slices = gpus("a", 1)
    slices["spec"]["devices"][0]["attributes"]["type"] = {"string": EVIL}
    waiting = pod("p", templates=["t"], schedulingGates=[{"name": EVIL}])
    file.write_text(yaml.safe_dump_all([device_class(), node("a"), slices, template("t"), waiting]))
    try:
        main([*words, "-f", str(file)])
    except Exception as error:
        output.error(str(error))
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert not [line for line in shown.out.splitlines() if line.startswith("error: forged")]


def test_there_is_no_colour_in_a_pipe_or_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen:
        def isatty(self) -> bool:
            return True

    screen: Any = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.coloured("x", output.RED, screen) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.coloured("x", output.RED, screen) == "x"


# ---- flags


FLAGS = {
    "of a command": ["simulate", "--file", "f.yaml"],
    "one that no other begins with": ["simulate", "--polic", "pack", "-f", "f.yaml"],
    "of lint": ["lint", "--again", "d.yaml", "-f", "f.yaml"],
    "of a command below a command": ["node", "add", "--prof", "dgx-h100"],
    "of a driver": ["driver", "gpu", "--simul", "dgx-h100"],
    "of the bench": ["driver", "bench", "--pat", "1s"],
    "of a fault": ["fault", "list", "--kubeconf", "k"],
}


@pytest.mark.parametrize("words", FLAGS.values(), ids=FLAGS)
def test_a_flag_is_taken_whole_or_not_at_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "--help" in capsys.readouterr().err


def test_a_parser_of_a_command_takes_no_abbreviation_anywhere() -> None:
    """Every parser, those of sub-commands too."""

    def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
        below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        return [parser, *(p for action in below for one in action.choices.values() for p in parsers(one))]

    for name, (module, _) in commands.COMMANDS.items():
        parser = Usage(prog=name)
        importlib.import_module(f"dragoman.cli.{module}").arguments(parser)
        assert not any(one.allow_abbrev for one in parsers(parser)), name
