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
    width = max(shutil.get_terminal_size().columns, NARROWEST) if terminal() else 0
    for line in lines:
        write(folded(line, width) if width else line)


def folded(line: str, width: int) -> str:
    """The line in pieces of at most width columns, broken at blanks only."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def rows(header: Sequence[str], body: Sequence[Sequence[Any]], *, indent: str = "") -> str:
    """A plain table as kubectl prints it: columns three blanks apart, no lines."""
    table = [[str(cell) for cell in row] for row in (header, *body)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append((indent + "   ".join(cells)).rstrip())
    return "\n".join(lines)


def terminal() -> bool:
    """True where stdout is a terminal that shows tables and colour."""
    return sys.stdout.isatty()
