"""How do commands speak? Data to stdout, talk to stderr; tables and colour only on a terminal, plain text in a pipe.

Whatever is printed goes through here: control characters from objects are made visible, wide characters count two
columns. Colour never carries meaning alone, and there is none with NO_COLOR. Decides nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from dragoman.values.visible import columns_of, json_safe, padded, visible, visible_lines, wrapped

NARROWEST = 40
"""Columns: a narrower terminal breaks the lines itself."""
API_VERSION = "cli.dragoman.dev/v1"
"""Of all JSON that commands print for programs; docs/reference/outputs.md. Fields are only ever added."""

RED, YELLOW, CYAN, BOLD = "31", "33", "36", "1"


def say(text: str) -> None:
    """Talk: to stderr."""
    print(visible_lines(text), file=sys.stderr)


def error(text: str, hint_text: str = "") -> None:
    """What went wrong, to stderr: `error:` and, on a line of its own, what to do."""
    first, *rest = visible_lines(text).split("\n")
    print(f"{coloured('error:', RED, sys.stderr)} {first}", *(f"  {line}" for line in rest), sep="\n", file=sys.stderr)
    if hint_text:
        hint(hint_text)


def hint(text: str) -> None:
    """Advice: a separate line on stderr."""
    print(f"{coloured('help:', CYAN, sys.stderr)} {visible(text)}", file=sys.stderr)


def write(text: str) -> None:
    """Data: to stdout."""
    print(visible_lines(text))


def write_json(value: Any, *, indent: int | None = 2) -> None:
    """Data for programs as it is: JSON, names in their own script."""
    print(json_safe(json.dumps(value, indent=indent, ensure_ascii=False)))


def versioned(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with apiVersion and kind in front; the schema is docs/reference/schemas/KIND.json."""
    return {"apiVersion": API_VERSION, "kind": kind, **body}


def prose(lines: Iterable[str]) -> None:
    """Sentences: on a terminal folded at its width, deeper than they began; in a pipe a line each."""
    width = columns()
    for line in lines:
        shown = visible(line)
        print(folded(shown, width) if width else shown)


def columns() -> int:
    """The width of the terminal on stdout; 0 in a pipe."""
    return max(shutil.get_terminal_size().columns, NARROWEST) if terminal() else 0


def folded(line: str, width: int) -> str:
    """The line in parts of at most width columns, broken at blanks only."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return "\n".join(wrapped(line, width, indent))


def rows(header: Sequence[str], body: Sequence[Sequence[Any]], *, indent: str = "", width: int | None = None) -> str:
    """A plain table as kubectl prints it: columns three blanks apart, no lines.

    A table that is wider than width (the terminal's; in a pipe nothing is) goes on with its last column below.
    """
    width = columns() if width is None else width
    table = [[visible(str(cell)) for cell in row] for row in (header, *body)]
    widths = [max(columns_of(row[i]) for row in table) for i in range(len(header))]
    before = len(indent) + sum(widths[:-1]) + 3 * (len(widths) - 1)
    last = max(width - before, NARROWEST) if width else 0
    lines = []
    for row in table:
        parts = _parts(row[-1], last) if last else row[-1:]
        cells = [padded(cell, wide) for cell, wide in zip(row[:-1], widths, strict=False)]
        lines.append((indent + "   ".join([*cells, *parts[:1]])).rstrip())
        lines += [" " * before + part for part in parts[1:]]
    return "\n".join(lines)


def _parts(cell: str, width: int) -> list[str]:
    """A list in a cell, broken after its commas."""
    bound = cell.replace(" ", "\N{NO-BREAK SPACE}").replace(",\N{NO-BREAK SPACE}", ", ")
    return [part.replace("\N{NO-BREAK SPACE}", " ") for part in wrapped(bound, width)]


def terminal() -> bool:
    """True where stdout is a terminal that shows tables and colour."""
    return sys.stdout.isatty()


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour, where the stream is a terminal that shows colours and NO_COLOR (no-color.org) is unset."""
    shows = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{colour}m{text}\x1b[0m" if shows else text
