"""How to walk a JSON-shaped object that may have any shape: nothing here ever raises on a wrong one."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def sub(holder: Object, field: str) -> Object | None:
    """The object under the field, None if there is none."""
    inner = holder.get(field)
    return inner if isinstance(inner, dict) else None


def dig(holder: Object, *path: str) -> Object:
    """The object at the path; where there is none, an empty one that belongs to nothing."""
    inner: Any = holder
    for field in path:
        inner = inner.get(field)
        if not isinstance(inner, dict):
            return {}
    return inner if isinstance(inner, dict) else {}


def items(holder: Object, field: str) -> list[Any]:
    """The list under the field, [] if there is none."""
    inner = holder.get(field)
    return inner if isinstance(inner, list) else []


def objects(holder: Object, field: str) -> list[Object]:
    """The objects in the list under the field."""
    return [item for item in items(holder, field) if isinstance(item, dict)]


def text(holder: Object, field: str) -> str:
    """The text under the field, "" if there is none."""
    inner = holder.get(field)
    return inner if isinstance(inner, str) else ""


def fill(holder: Object, field: str, value: Any) -> None:
    """Sets a field that is absent, null, "" or 0."""
    current = holder.get(field)
    if current is None or current == "" or (current == 0 and not isinstance(current, bool)):
        holder[field] = value
