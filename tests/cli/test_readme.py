"""Do the commands of the README that need no cluster work as they stand there?"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dragoman.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
LINES = [
    shlex.split(line, comments=True)[1:]
    for line in re.findall(r"^    (dragoman .+)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
]
ON_FILES = [words for words in LINES if "-f" in words and words[0] in {"simulate", "explain", "devices", "lint"}]


def test_every_command_that_the_readme_shows_exists() -> None:
    assert LINES
    assert not [words for words in LINES if words[0] not in COMMANDS]


@pytest.mark.parametrize("words", ON_FILES, ids=[words[0] for words in ON_FILES])
def test_what_the_readme_shows_on_files_answers_yes(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(words) == 0
    said = capsys.readouterr()
    # Lint finds no problems in what is right.
    assert ("no problems found" in said.err) if words[0] == "lint" else ("node-a" in said.out)
