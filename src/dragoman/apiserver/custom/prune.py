"""What of an object does its schema know, and what does it fill in? Pruning and defaulting, on JSON values in place.

Metadata is that of every object: unknown fields of it are dropped whatever the schema says. Source: KEP-575, KEP-692.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.custom.schema import ROOT_FIELDS, SchemaNode
from dragoman.apiserver.shape import MAP, OBJECT, SchemaShape, definition_shape

METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def prune(node: SchemaNode, obj: Object) -> list[str]:
    """Drop what the schema does not know; returns the paths of that, sorted by field as upstream does."""
    return list(_prune(node, obj, "", root=True))


def _prune(node: SchemaNode, value: Any, path: str, *, root: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        resource = root or node.embedded
        for name in sorted(value):
            here = f"{path}.{name}" if path else name
            if resource and name in ROOT_FIELDS:
                if name == "metadata":
                    yield from _prune_metadata(definition_shape(METADATA), value[name], here)
                continue
            member = node.properties.get(name) or node.additional
            if member is not None:
                yield from _prune(member, value[name], here)
            elif not node.open:
                del value[name]
                yield here
    elif isinstance(value, list) and node.items is not None:
        for at, item in enumerate(value):
            yield from _prune(node.items, item, f"{path}[{at}]")


def _prune_metadata(shape: SchemaShape, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and shape.type == OBJECT:
        for name in sorted(value):
            here = f"{path}.{name}"
            member = shape.fields.get(name)
            if member is None:
                del value[name]
                yield here
            elif value[name] is None:
                del value[name]
            else:
                yield from _prune_metadata(member, value[name], here)
    elif isinstance(value, list) and shape.item is not None and shape.type != MAP:
        for at, item in enumerate(value):
            yield from _prune_metadata(shape.item, item, f"{path}[{at}]")


def fill(node: SchemaNode, value: Any) -> None:
    """Fill in defaults; null counts as absent where the schema allows no null and has a default."""
    if not node.has_defaults_below:
        return
    if isinstance(value, dict):
        for name, member in node.properties.items():
            if member.has_default and (name not in value or (value[name] is None and not member.nullable)):
                value[name] = msgspec.json.decode(msgspec.json.encode(member.default))
            if name in value:
                fill(member, value[name])
        if node.additional is not None:
            for name, inner in value.items():
                if name not in node.properties:
                    if inner is None and not node.additional.nullable and node.additional.has_default:
                        value[name] = msgspec.json.decode(msgspec.json.encode(node.additional.default))
                    fill(node.additional, value[name])
    elif isinstance(value, list) and node.items is not None:
        for at, item in enumerate(value):
            if item is None and not node.items.nullable and node.items.has_default:
                value[at] = msgspec.json.decode(msgspec.json.encode(node.items.default))
            fill(node.items, value[at])


def drop_nulls(node: SchemaNode, value: Any) -> None:
    """Drop null where the schema allows none: for a field that may be absent it says the same."""
    if isinstance(value, dict):
        for name in [n for n, inner in value.items() if inner is None]:
            member = node.member(name)
            if member is not None and not member.nullable and member.has_default:
                del value[name]
        for name, inner in value.items():
            member = node.member(name)
            if member is not None:
                drop_nulls(member, inner)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            drop_nulls(node.items, item)
