"""Does what is wrong with a manifest look the same, whoever finds it?"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from dragoman.cli import diagnostic
from dragoman.cli import main as commands
from dragoman.cli.diagnostic import Diagnostic

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
    first, line, caret, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{file}:8: error: ")
    assert "default/train" in first
    assert line == "    8 |       exactly: {deviceClassName: c, count: -2}"
    assert caret == "      |       " + "^" * len("exactly: {deviceClassName: c, count: -2}")


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
    first, shown, caret = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{file}:{line}: error: ")
    assert said in first
    assert shown == f"    {line} | {text.splitlines()[line - 1]}"
    assert set(caret.strip(" |")) == {"^"}


def test_a_file_that_is_gone_has_no_line() -> None:
    stream = io.StringIO()
    diagnostic.show([Diagnostic("error", "is wrong", "<stdin>", 7, where="Pod default/p")], stream)
    assert stream.getvalue() == "<stdin>:7: error: is wrong (Pod default/p)\n"
