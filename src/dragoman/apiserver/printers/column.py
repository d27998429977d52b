"""What is a column, a cell, a printer? The words that all printers share.

Never knows a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.selectors import of_object, to_text

Cell: TypeAlias = str | int | bool | None
# object and now (epoch seconds) -> one cell a column
CellsOf: TypeAlias = Callable[[Object, float], list[Cell]]

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"


class Column(msgspec.Struct, frozen=True):
    """One entry of columnDefinitions; priority 0 is shown always, 1 with -o wide."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def to_json(self) -> dict[str, Any]:
        """The definition as the API has it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format or ("name" if self.name == "Name" else ""),
            "description": self.description,
            "priority": self.priority,
        }


class Printer(msgspec.Struct, frozen=True):
    """Columns of a kind and the function that fills them. `conditions` says whether a row is completed."""

    columns: tuple[Column, ...]
    cells: CellsOf
    conditions: Callable[[Object], list[dict[str, str]]] = lambda obj: []


def columns(
    *names: str, integers: tuple[str, ...] = (), booleans: tuple[str, ...] = (), wide: tuple[str, ...] = ()
) -> tuple[Column, ...]:
    """Columns in order; those named in `wide` have priority 1."""
    kinds = {**dict.fromkeys(integers, "integer"), **dict.fromkeys(booleans, "boolean")}
    return tuple(Column(name, kinds.get(name, "string"), int(name in wide)) for name in names)


# ---- reading


def at(obj: Any, *path: str) -> Any:
    """The value at a path of member names, None where anything is missing."""
    for name in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(name)
    return obj


def entries(obj: Any, *path: str) -> list[Any]:
    """The list at a path, empty where there is none."""
    value = at(obj, *path)
    return value if isinstance(value, list) else []


def text(obj: Any, *path: str) -> str:
    """The text at a path, empty where there is none."""
    value = at(obj, *path)
    return "" if value is None else str(value)


def number(obj: Any, *path: str) -> int:
    """The integer at a path, 0 where there is none."""
    value = at(obj, *path)
    return value if isinstance(value, int) else 0


def name_of(obj: Object) -> str:
    """metadata.name."""
    return text(obj, "metadata", "name")


# ---- times


def seconds_of(stamp: Any) -> float | None:
    """RFC 3339 text as epoch seconds, None for none or nonsense."""
    if not isinstance(stamp, str) or not stamp:
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def since(stamp: Any, now: float) -> str:
    """How long ago, `<unknown>` without a time."""
    moment = seconds_of(stamp)
    return UNKNOWN if moment is None else human_duration(now - moment)


def age(obj: Object, now: float) -> str:
    """The Age column."""
    return since(at(obj, "metadata", "creationTimestamp"), now)


def human_duration(seconds: float) -> str:
    """A duration with two or three significant figures, as kubectl users know it: 119s, 2m3s, 3h, 5d4h, 2y3d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2920:
        return _pair(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


# ---- selectors


def labels_text(labels: Any) -> str:
    """A map as a=1,b=2, `<none>` if empty."""
    if not isinstance(labels, dict) or not labels:
        return NONE
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def selector_text(selector: Any) -> str:
    """A metav1.LabelSelector as the text of a selector; null selects nothing, {} everything."""
    return to_text(of_object(selector) or ()) or NONE


def containers_text(template: Any) -> list[Cell]:
    """The cells Containers and Images of a pod template."""
    containers = entries(template, "spec", "containers")
    return [",".join(text(c, "name") for c in containers), ",".join(text(c, "image") for c in containers)]
