r"""What stands at a JSONPath of a custom resource? The subset that columns, scale and selectable fields use.

`.spec.replicas`, `.metadata.labels.a\.b`, `.status.conditions[?(@.type=="Ready")].status`, `['a.b']`, `[0]`, `[*]`.
Never raises for a path that leads nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

_STEP = re.compile(
    r"""\.?(?:
        (?P<name>[A-Za-z_0-9$@](?:[\w$\-/]|\\.)*)
      | \[\s*(?P<quote>['"])(?P<key>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*\]
      | \[\s*(?P<index>-?\d+)\s*\]
      | (?P<every>\[\s*\*\s*\]|\*)
      | \[\?\(\s*@\.?(?P<field>[\w.\-]*)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.\-]+)\s*\)\]
    )""",
    re.X,
)


class Step(msgspec.Struct, frozen=True):
    """One step: key, index, every, or where (field, equal, value)."""

    kind: str
    key: str = ""
    index: int = 0
    equal: bool = True
    value: Any = None


@lru_cache(1024)
def parse(path: str) -> tuple[Step, ...]:
    """The steps of a path. Raises ValueError."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"unexpected {text[at:]!r}")
        at = found.end()
        if found["name"] is not None:
            steps.append(Step("key", found["name"].replace("\\", "")))
        elif found["key"] is not None:
            steps.append(Step("key", re.sub(r"\\(.)", r"\1", found["key"])))
        elif found["index"] is not None:
            steps.append(Step("index", index=int(found["index"])))
        elif found["every"] is not None:
            steps.append(Step("every"))
        else:
            steps.append(Step("where", found["field"], equal=found["op"] == "==", value=_literal(found["value"])))
    return tuple(steps)


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    return {"true": True, "false": False}.get(text, int(text) if re.fullmatch(r"-?\d+", text) else text)


def values(obj: Any, path: str) -> list[Any]:
    """Everything that a path leads to; none for a path that cannot be read."""
    try:
        steps = parse(path)
    except ValueError:
        return []
    return list(_walk(obj, steps))


def first(obj: Any, path: str) -> Any:
    """The first value at a path, None where there is none."""
    return next(iter(values(obj, path)), None)


def _walk(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    match step.kind:
        case "key":
            if isinstance(value, dict) and step.key in value:
                yield from _walk(value[step.key], rest)
        case "index":
            if isinstance(value, list) and -len(value) <= step.index < len(value):
                yield from _walk(value[step.index], rest)
        case "every":
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            for entry in inner:
                yield from _walk(entry, rest)
        case "where":
            for entry in value if isinstance(value, list) else ():
                held = entry
                for part in filter(None, step.key.split(".")):
                    held = held.get(part) if isinstance(held, dict) else None
                if (held == step.value) is step.equal:
                    yield from _walk(entry, rest)


def put(obj: dict[str, Any], path: str, value: Any) -> None:
    """Set what stands at a path of keys, making the objects on the way."""
    keys = [step.key for step in parse(path)]
    for key in keys[:-1]:
        inner = obj.get(key)
        if not isinstance(inner, dict):
            inner = obj[key] = {}
        obj = inner
    obj[keys[-1]] = value
