"""What does `kubectl get` show of a custom resource? additionalPrinterColumns, else name and age."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.custom import paths
from dragoman.apiserver.printers.column import Cell, Column, Printer, age, columns, name_of, since

_PLAIN = Printer(columns("Name", "Age"), lambda obj, now: [name_of(obj), age(obj, now)])


def printer(listed: list[Object]) -> Printer:
    """The printer of a version's additionalPrinterColumns."""
    if not listed:
        return _PLAIN
    shown = tuple(
        Column(
            entry["name"],
            entry.get("type", "string"),
            int(entry.get("priority") or 0),
            entry.get("format") or "",
            entry.get("description") or "",
        )
        for entry in listed
    )
    sources = [(entry.get("type", "string"), entry.get("jsonPath", "")) for entry in listed]

    def cells(obj: Object, now: float) -> list[Cell]:
        return [name_of(obj), *(_cell(obj, type_, path, now) for type_, path in sources)]

    return Printer((Column("Name"), *shown), cells)


def _cell(obj: Object, type_: str, path: str, now: float) -> Cell:
    found = paths.values(obj, path)
    if not found:
        return None
    value: Any = found[0]
    match type_:
        case "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            return value if isinstance(value, int) else msgspec.json.encode(value).decode()
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return since(value, now)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if value is None:
        return None
    return _go_text(value)


def _go_text(value: Any) -> str:
    """A structure as upstream's JSONPath prints it: JSON."""
    return msgspec.json.encode(value).decode()
