"""Does what is wrong with a manifest look the same, whoever finds it?"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from dragoman.cli import diagnostic
from dragoman.cli import main as commands
from dragoman.cli.diagnostic import Diagnostic
from dragoman.errors import Invalid

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: train}
spec:
  devices:
    requests:
    - name: gpu  # two
      exactly: {deviceClassName: c, count: -2}
"""


@pytest.mark.parametrize("command", ["simulate", "explain", "lint"])
def test_what_an_api_server_would_refuse_has_place_line_and_caret(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(CLAIM)
    assert commands.main([command, "-f", str(file)]) == 1
    first, line, caret, help_, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{file}:8: error: ")
    assert "default/train" in first
    assert help_.startswith("  help: ")
    assert line == "    8 |       exactly: {deviceClassName: c, count: -2}"
    assert caret == "      |       " + " " * len("exactly: {deviceClassName: c, count: ") + "^^"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [("kind: Pod\napiVersion: v1\nmetadata: 3\n", 3, "must be an object"), ("a: b\nkind: }\nc: d\n", 2, "broken YAML")],
)
@pytest.mark.parametrize("command", ["simulate", "explain", "devices"])
def test_what_cannot_be_read_looks_the_same(
    command: str,
    text: str,
    line: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    monkeypatch.setattr(sys, "argv", ["dragoman", command, "-f", str(file)])
    with pytest.raises(SystemExit) as ended:
        commands.run()
    assert ended.value.code == 2
    first, shown, caret, help_ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{file}:{line}: error: ")
    assert said in first
    assert shown == f"    {line} | {text.splitlines()[line - 1]}"
    assert set(caret.strip(" |")) == {"^"}
    assert help_.startswith("  help: ")


def test_a_file_that_is_gone_has_no_line() -> None:
    stream = io.StringIO()
    diagnostic.show([Diagnostic("error", "is wrong", "<stdin>", 7, where="Pod default/p")], stream)
    assert stream.getvalue() == "<stdin>:7: error: is wrong (Pod default/p)\n"


# what is written, what of it is marked, the message, the help, what --fix writes ("": nothing)
TYPES: dict[str, tuple[str, str, str, str, str]] = {
    "a number for a text": ("image: 7", "7", "must be a string, got an integer", 'quote it: "7"', 'image: "7"'),
    "a fraction for a text": ("image: 1.25", "1.25", "must be a string, got a number", 'quote it: "1.25"', 'image: "1.25"'),
    "true for a text": ("image: true", "true", "must be a string, got true or false", 'quote it: "true"', 'image: "true"'),
    "a list for a text": ("image: [a]", "[a]", "must be a string, got a list", "write one text", ""),
    "a text for a number": (
        'ports: [{containerPort: "80"}]', '"80"', "must be an integer, got a string", "write 80 without quotes",
        "ports: [{containerPort: 80}]",
    ),
    "a word for a number": (
        "ports: [{containerPort: web}]", "web", "must be an integer, got a string", "write a whole number", "",
    ),
    "a map for a list": (
        "ports: {containerPort: 80}", "{containerPort: 80}", "must be a list, got an object",
        "begin each entry with a hyphen: - ...", "",
    ),
    "a list for a map": (
        "resources: [cpu]", "[cpu]", "must be an object, got a list", "write fields, name: value, or leave it out", "",
    ),
    "a list for a quantity": (
        "resources: {limits: {cpu: [1]}}", "[1]", "must be a quantity, got a list",
        "write a quantity such as 2, 500m or 16Gi", "",
    ),
    "null for an entry": (
        "ports: [null]", "null", "must be an object, got null", "write fields, name: value, or leave it out", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
@pytest.mark.parametrize(("written", "marked", "message", "help_", "fixed"), TYPES.values(), ids=TYPES)
def test_a_wrong_type_is_said_once_with_place_and_way_out(
    kind: str,
    written: str,
    marked: str,
    message: str,
    help_: str,
    fixed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    image = "" if written.startswith("image") else "image: i, "
    line = f"{{name: main, {image}{written}}}"
    inner = f"containers:\n- {line}\n"
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  {inner.replace('- ', '  - ')}"
    if kind == "Deployment":
        text = (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: p}\nspec:\n  selector: {matchLabels: {a: b}}\n"
            f"  template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      {inner.replace('- ', '      - ')}"
        )
    file = tmp_path / "f.yaml"
    file.write_text(text)
    assert commands.main(["lint", "-f", str(file)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert sum(": error: " in one for one in said) == 1
    assert message in said[0]
    start = said[1].index(marked, said[1].index(written.partition(": ")[0]))
    assert said[2] == "      | ".ljust(start) + "^" * len(marked)
    assert said[3] == f"  help: {help_}"
    with pytest.raises(Invalid):
        commands.main(["simulate", "-f", str(file)])
    assert commands.guarded(["explain", "-f", str(file)]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert (shown[1:4], message in shown[0]) == (said[1:4], True), "explain says the same in the same form"
    if fixed:
        assert any(one.strip().startswith("+") and fixed in one for one in said), "the edit is shown"
        commands.main(["lint", "--fix", "-f", str(file)])
        assert fixed in file.read_text()


def test_kinds_that_no_decision_reads_are_typed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {port: 80}\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {pin: 1234}\n---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, labels: {a: 1}}\n"
    )
    assert commands.main(["lint", "-f", str(file), "-o", "json"]) == 1
    fields = [one["field"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert fields == ["data[port]", "stringData[pin]", "metadata.labels[a]"]


def test_wide_characters_before_a_value_count_two_columns() -> None:
    stream = io.StringIO()
    text = "메모: {name: 값, b: x}"
    found = Diagnostic("error", "is wrong", "f.yaml", 1, start=text.index("값"), end=text.index("값") + 1)
    *_, marks = diagnostic.lines(found, {"f.yaml": text}, stream)
    assert marks == "      | " + " " * (len(text[: text.index("값")]) + 2) + "^^"
