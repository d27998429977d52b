"""How is what is wrong with a manifest shown? One form for lint, refusals of the API server and unreadable documents.

    pod.yaml:12: error: asks for 3 devices, no node has more than 2 [LargerThanAnyNode] (ResourceClaim default/c)
       12 |         count: 3
          |                ^
      help: ask for 2
          -        count: 3
          +        count: 2

The first line is what editors and grep understand. Decides nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from dragoman.cli.output import BOLD, CYAN, RED, YELLOW, coloured
from dragoman.values.visible import columns_of, visible

_COLOURS = {"error": RED, "warning": YELLOW, "note": CYAN}
_DIFF_LINES = 12


class Diagnostic(msgspec.Struct, frozen=True):
    """What is wrong, where. line 0: unknown. start, end: what of the line, from 0; 0, 0 for all that it says.

    where: object and field. after: the text of the file with the help
    applied, where it is an edit that was verified to remove the finding; "" otherwise."""

    severity: str
    message: str
    file: str
    line: int = 0
    code: str = ""
    where: str = ""
    help: str = ""
    after: str = ""
    start: int = 0
    end: int = 0


def show(diagnostics: Iterable[Diagnostic], stream: TextIO) -> None:
    """Print them with the lines of the files that they name, where those can be read once more."""
    for found in diagnostics:
        path = Path(found.file)
        try:
            text = path.read_text(errors="replace") if path.is_file() else ""
        except OSError:
            text = ""
        for line in lines(found, {found.file: text}, stream):
            print(line, file=stream)


def lines(diagnostic: Diagnostic, texts: Mapping[str, str], stream: TextIO) -> Iterator[str]:
    """The lines to print on the stream. texts: of the files, by the names that diagnostics use."""
    found = diagnostic
    place = visible(f"{found.file}:{found.line}" if found.line else found.file)
    severity = coloured(f"{found.severity}:", _COLOURS.get(found.severity, BOLD), stream)
    code = f" [{found.code}]" if found.code else ""
    where = f" ({found.where})" if found.where else ""
    yield f"{place}: {severity} {visible(found.message + code + where)}"
    text = texts.get(found.file, "")
    source = text.splitlines()
    if 0 < found.line <= len(source):
        yield from _caret(source[found.line - 1], found, stream)
    if found.help:
        yield f"  {coloured('help:', CYAN, stream)} {visible(found.help)}"
    if found.after and text:
        yield from _diff(text, found.after, stream)


def _caret(line: str, found: Diagnostic, stream: TextIO) -> Iterator[str]:
    """The line of the manifest, and marks below the part that is meant, or what it says (its comment aside)."""
    shown, number = _shown(line.rstrip()), found.line
    if found.start < found.end <= len(line):
        start = columns_of(_shown(line[: found.start]))
        marks = "^" * max(columns_of(_shown(line[found.start : found.end])), 1)
    else:
        body = shown.partition(" #")[0].rstrip()
        start = len(body) - len(body.lstrip(" -"))
        marks = "^" * max(columns_of(body[start:]), 1)
    yield f"{number:>5} | {shown}"
    yield f"      | {' ' * start}{coloured(marks, RED, stream)}"


def _shown(text: str) -> str:
    return visible(text.replace("\t", "    "))


def _diff(before: str, after: str, stream: TextIO) -> Iterator[str]:
    changes = [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    for line in changes[:_DIFF_LINES]:
        yield "      " + coloured(visible(line), RED if line[0] == "-" else "32", stream)
    if len(changes) > _DIFF_LINES:
        yield f"      ... and {len(changes) - _DIFF_LINES} more lines"
