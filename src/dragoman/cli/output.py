"""How do commands speak? Data to stdout, talk to stderr; tables and colour only on a terminal, plain text in a pipe.

Colour never carries meaning alone. Decides nothing.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

NARROWEST = 40
"""Columns: a narrower terminal breaks the lines itself."""


def say(text: str) -> None:
    """Talk: to stderr."""
    print(text, file=sys.stderr)


def hint(text: str) -> None:
    """Advice: a separate line on stderr."""
    print(f"hint: {text}", file=sys.stderr)


def write(text: str) -> None:
    """Data: to stdout."""
    print(text)


def prose(lines: Iterable[str]) -> None:
    """Sentences: on a terminal folded at its width, deeper than they began; in a pipe a line each."""
    width = columns()
    for line in lines:
        write(folded(line, width) if width else line)


def columns() -> int:
    """The width of the terminal on stdout; 0 in a pipe."""
    return max(shutil.get_terminal_size().columns, NARROWEST) if terminal() else 0


def folded(line: str, width: int) -> str:
    """The line in pieces of at most width columns, broken at blanks only."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def rows(header: Sequence[str], body: Sequence[Sequence[Any]], *, indent: str = "", width: int | None = None) -> str:
    """A plain table as kubectl prints it: columns three blanks apart, no lines.

    A table that is wider than width (the terminal's; in a pipe nothing is) goes on with its last column below.
    """
    width = columns() if width is None else width
    table = [[str(cell) for cell in row] for row in (header, *body)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    before = len(indent) + sum(widths[:-1]) + 3 * (len(widths) - 1)
    last = max(width - before, NARROWEST) if width else 0
    lines = []
    for row in table:
        pieces = _pieces(row[-1], last) if last else row[-1:]
        cells = [cell.ljust(wide) for cell, wide in zip(row[:-1], widths, strict=False)]
        lines.append((indent + "   ".join([*cells, *pieces[:1]])).rstrip())
        lines += [" " * before + piece for piece in pieces[1:]]
    return "\n".join(lines)


def _pieces(cell: str, width: int) -> list[str]:
    """A list in a cell, broken after its commas."""
    bound = cell.replace(" ", "\N{NO-BREAK SPACE}").replace(",\N{NO-BREAK SPACE}", ", ")
    pieces = textwrap.wrap(bound, width, break_long_words=False, break_on_hyphens=False)
    return [piece.replace("\N{NO-BREAK SPACE}", " ") for piece in pieces]


def terminal() -> bool:
    """True where stdout is a terminal that shows tables and colour."""
    return sys.stdout.isatty()
