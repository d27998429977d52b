"""What does `kubectl get` show of these objects? meta.k8s.io/v1 Table, and metadata-only objects.

Columns of a kind come from `printers` (fall-back: Name and Age); rows carry the object, its metadata or nothing, as
includeObject asks. Never reads a store or a clock: `now` is epoch seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.printers import cluster, devices, extensions, pods, workloads
from dragoman.apiserver.printers.column import Cell, Printer, age, columns, name_of

META_V1 = "meta.k8s.io/v1"

_FALLBACK = Printer(columns("Name", "Age"), lambda obj, now: [name_of(obj), age(obj, now)])
PRINTERS: dict[tuple[str, str], Printer] = {
    **pods.PRINTERS,
    **devices.PRINTERS,
    **workloads.PRINTERS,
    **cluster.PRINTERS,
    **extensions.PRINTERS,
}


def table(
    kind: Kind,
    objects: Iterable[Object],
    now: float,
    include_object: str = "Metadata",
    *,
    metadata: Mapping[str, Any] | None = None,
    definitions: bool = True,
    version: str = "",
) -> dict[str, Any]:
    """A Table with a row an object.

    include_object: Metadata (default), Object or None, as in the query parameter. metadata: the list's
    resourceVersion, continue, remainingItemCount. definitions: False in every watch event but the first. version: that
    of the objects.
    """
    if isinstance(kind, CustomKind):
        printer = kind.definition.version(version).printer
    else:
        printer = PRINTERS.get((kind.group, kind.kind), _FALLBACK)
    made = printed(printer, objects, now, include_object, metadata=metadata)
    return made if definitions else {**made, "columnDefinitions": None}


def printed(
    printer: Printer,
    objects: Iterable[Object],
    now: float,
    include_object: str = "Metadata",
    *,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A Table by a printer."""
    return {
        "kind": "Table",
        "apiVersion": META_V1,
        "metadata": dict(metadata or {}),
        "columnDefinitions": [column.to_json() for column in printer.columns],
        "rows": [_row(printer, obj, now, include_object) for obj in objects],
    }


def bookmark_table(obj: Object) -> dict[str, Any]:
    """The object of a BOOKMARK event on a watch of tables: no columns, no rows, the metadata of `obj`."""
    return {
        "kind": "Table",
        "apiVersion": META_V1,
        "metadata": obj.get("metadata", {}),
        "columnDefinitions": None,
        "rows": [],
    }


def partial_metadata(obj: Object) -> dict[str, Any]:
    """The PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_V1, "metadata": obj.get("metadata", {})}


def partial_metadata_list(objects: Iterable[Object], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A PartialObjectMetadataList; its items carry no apiVersion and kind of their own on real servers, but may."""
    items = [partial_metadata(obj) for obj in objects]
    return {"kind": "PartialObjectMetadataList", "apiVersion": META_V1, "metadata": dict(metadata), "items": items}


def _row(printer: Printer, obj: Object, now: float, include_object: str) -> dict[str, Any]:
    cells: list[Cell] = printer.cells(obj, now)
    assert len(cells) == len(printer.columns), "one cell a column"
    row: dict[str, Any] = {"cells": cells}
    conditions = printer.conditions(obj)
    if conditions:
        row["conditions"] = conditions
    if include_object == "Object":
        row["object"] = obj
    elif include_object == "None":
        row["object"] = None
    else:
        row["object"] = partial_metadata(obj)
    return row
