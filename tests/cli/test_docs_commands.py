"""Do the commands that README and docs show exist, with these flags? Each is parsed by the real parser."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from dragoman.cli.main import COMMANDS, Usage

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
START = re.compile(r"(?:^|[|;&(]\s*|\$ |\s&& )(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:dragoman|kubectl dra) (?=[a-z])")
PLACEHOLDERS = re.compile(r"\.\.\.|\bCOMMAND\b|…")


def shown() -> list[tuple[str, str, bool]]:
    """Page, command line and whether it stands in a block of code (indented or fenced), not only between backquotes."""
    found = []
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text())
        fenced = re.findall(r"^```(?:sh|bash|console|shell)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        indented = re.findall(r"^ {4,}(\S.*)$", text, flags=re.MULTILINE)
        inline = re.findall(r"`((?:dragoman|kubectl dra) [^`\n]+)`", text)
        blocks = [*indented, *(line.strip() for block in fenced for line in block.splitlines())]
        for line, is_block in [*((line, True) for line in blocks), *((line, False) for line in inline)]:
            start = START.search(line)
            if start is not None and not PLACEHOLDERS.search(line):
                found.append((str(page.relative_to(ROOT)), line[start.end() :], is_block))
    return list(dict.fromkeys(found))


def words_of(line: str) -> list[str]:
    """Up to a pipe, a redirection or a comment."""
    words = shlex.split(line.replace("|", " | ").replace("<(", " <( ").replace("&&", " && "), comments=True)
    ends = [index for index, word in enumerate(words) if word in ("|", "&&", "&", ">", ">>", "<(", ";")]
    return words[: min(ends, default=len(words))]


@pytest.mark.parametrize(("page", "line", "is_block"), shown())
def test_the_command_parses(page: str, line: str, is_block: bool, capsys: pytest.CaptureFixture[str]) -> None:
    name, *rest = words_of(line)
    assert name in COMMANDS, f"{page}: no command {name!r}"
    parser = Usage(prog=f"dragoman {name}")
    importlib.import_module(f"dragoman.cli.{COMMANDS[name][0]}").arguments(parser)
    if problem := parsed(parser, rest, capsys):
        # In a sentence a command may be named without all that it needs.
        is_named = not is_block and ("are required" in problem or "expected one argument" in problem)
        assert is_named, f"{page}: dragoman {line}: {problem}"


def parsed(parser: Usage, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the parser says against the words; "" if nothing."""
    try:
        parser.parse_args(words)
    except SystemExit as ended:
        return capsys.readouterr().err if ended.code else ""
    return ""
