"""How does a plan look? Results are structs of plain values; text and Markdown are the same sections.

    as_json(result)                                     # camelCase fields, for programs
    text(sections), markdown(sections)                  # for people, for tickets and wikis

Never decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dragoman.explain.messages import camel


class Section(msgspec.Struct, frozen=True):
    """A part of a report: sentences, then a table, then more sentences. code: shown as it is, as a manifest."""

    title: str
    lines: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    code: str = ""


def as_json(value: Any) -> Any:
    """A result of this package for programs."""
    if isinstance(value, msgspec.Struct):
        return {camel(name): as_json(getattr(value, name)) for name in type(value).__struct_fields__}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


def markdown(sections: Iterable[Section]) -> str:
    """The report as GitHub's Markdown."""
    parts: list[str] = []
    for section in sections:
        if section.title:
            parts.append(f"## {_escaped(section.title)}")
        if section.lines:
            parts.append("\n".join(f"- {_escaped(line)}" for line in section.lines))
        if section.rows:
            head = [_row(section.header), _row(["---"] * len(section.header))]
            parts.append("\n".join([*head, *(_row([_cell(cell) for cell in row]) for row in section.rows)]))
        if section.code:
            parts.append(f"```yaml\n{section.code.rstrip()}\n```")
    return "\n\n".join(parts)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|") or " "


def _escaped(text: str) -> str:
    for sign in "\\`*_<[":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.splitlines())
