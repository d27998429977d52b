"""Which fields of a body are unknown or stand twice, in the order in which kube-apiserver names them?

Upstream's decoder reports each as it meets it: in the order of the text, an unknown field once, with nothing below it,
and a field that stands again where it does. Works on the text, since decoded objects have lost both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from dragoman.apiserver.shape import ANY, LIST, MAP, OBJECT, SchemaShape

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_ERRORS = 100
"""Where upstream's decoder stops counting (sigs.k8s.io/json)."""


class _Members(list[tuple[str, Any]]):
    """An object of JSON as its members, in order, repeated ones too."""


def members_of(body: bytes) -> Any:
    """JSON with objects as lists of members; None for what is no JSON."""
    try:
        return json.loads(body, object_pairs_hook=_Members)
    except (ValueError, RecursionError):
        return None


def errors(body: bytes, shape: SchemaShape | None) -> list[str]:
    """`unknown field "spec.foo"` and `duplicate field "spec.bar"`. Without shape only repeated fields count."""
    found: dict[str, None] = {}
    for text in _walk(members_of(body), shape, ""):
        found[text] = None
        if len(found) == MAX_ERRORS:
            break
    return list(found)


def repeated_in_yaml(body: bytes) -> list[str]:
    """`line 9: key "foo" already set in map` for each key that stands twice in a mapping; YAML or JSON."""
    try:
        root = yaml.compose(body, Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        return []
    found: list[str] = []
    pending = [root] if root is not None else []
    while pending and len(found) < MAX_ERRORS:
        node = pending.pop()
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    found.append(f'line {key.start_mark.line + 1}: key "{key.value}" already set in map')
                seen.add(key.value)
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
    return found


def _walk(value: Any, shape: SchemaShape | None, path: str) -> Iterator[str]:
    if isinstance(value, _Members):
        if shape is not None and shape.type == ANY:
            return  # kept as it was sent
        seen: set[str] = set()
        for name, inner in value:
            here = f"{path}.{name}" if path else name
            below = None
            if shape is not None:
                below = shape.fields.get(name) if shape.type == OBJECT else shape.item if shape.type == MAP else None
                if below is None:
                    yield f'unknown field "{here}"'
                    continue
            if name in seen:
                yield f'duplicate field "{here}"'
            seen.add(name)
            yield from _walk(inner, below, here)
    elif isinstance(value, list):
        item = shape.item if shape is not None and shape.type == LIST else None
        if shape is not None and item is None:
            return
        for at, inner in enumerate(value):
            yield from _walk(inner, item, f"{path}[{at}]")
