"""What does an object look like with a mutating policy's configuration laid over it? A merge by the schema, unowned.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating/patch/smd.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dragoman.api.shape import Object
from dragoman.apiserver.fieldwalk import merge
from dragoman.apiserver.shape import LIST, MAP, OBJECT, SchemaShape, shape_of, unstructured
from dragoman.cel.faults import EvalError
from dragoman.errors import Invalid

GVK = tuple[str, str, str]


def merged(gvk: GVK, live: Object, config: Object) -> Object:
    """The live object with the configuration. Raises EvalError for one that replaces an atomic part by accident."""
    shape = shape_of(gvk) or unstructured()
    found = list(_atomics(shape, config, ""))
    if found:
        listed = ", ".join(found)
        raise EvalError(f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {listed}")
    try:
        out: Object = merge(shape, live, config)
    except Invalid as wrong:
        raise EvalError(f"failed to convert patch object to typed object: {wrong}") from wrong
    return out


def _atomics(shape: SchemaShape, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and shape.type in (OBJECT, MAP):
        if shape.atomic and path:
            yield path
        for name, inner in value.items():
            below = shape.field(name)
            if below is not None:
                yield from _atomics(below, inner, f"{path}.{name}")
    elif isinstance(value, list) and shape.type == LIST:
        if shape.atomic:
            yield path
        if shape.item is not None:
            for index, inner in enumerate(value):
                yield from _atomics(shape.item, inner, f"{path}[{index}]")
