"""Which edits bring a document of resource.k8s.io into its v1 shape?

The same rules as `api.convert`, said as edits of the text, so that comments and order survive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dragoman.api.convert import EXACT_FIELDS
from dragoman.api.files import Document
from dragoman.api.shape import dig, items
from dragoman.lint.finding import Edit, ItemPath, Lift, Nest, Remove, SetValue


def requests_at(document: Document) -> Iterator[tuple[ItemPath, dict[str, Any]]]:
    """Path and value of each request of a claim or template, as written."""
    inner: ItemPath = ("spec", "spec") if document.kind_name == "ResourceClaimTemplate" else ("spec",)
    holder = dig(document.raw, *(str(step) for step in inner), "devices")
    for index, request in enumerate(items(holder, "requests")):
        if isinstance(request, dict):
            yield (*inner, "devices", "requests", index), request


def devices_at(document: Document) -> Iterator[tuple[ItemPath, dict[str, Any]]]:
    """Path and value of each device of a slice, as written."""
    if document.kind_name != "ResourceSlice":
        return
    for index, device in enumerate(items(dig(document.raw, "spec"), "devices")):
        if isinstance(device, dict):
            yield ("spec", "devices", index), device


def flat_fields(request: dict[str, Any]) -> tuple[str, ...]:
    """The fields of a request that v1 wants under `exactly`, in the order written."""
    return tuple(field for field in request if field in EXACT_FIELDS)


def to_v1(document: Document) -> tuple[Edit, ...]:
    """The edits, apiVersion first."""
    edits: list[Edit] = [SetValue(("apiVersion",), "resource.k8s.io/v1")]
    for path, request in requests_at(document):
        if flat := flat_fields(request):
            edits.append(Nest(path, flat, "exactly"))
    edits += [Lift(path, "basic") for path, device in devices_at(document) if isinstance(device.get("basic"), dict)]
    if document.kind_name == "ResourceSlice":
        spec = dig(document.raw, "spec")
        edits += [Remove(("spec", "nodeName"))] if spec.get("nodeName") == "" else []
        edits += [Remove(("spec", "allNodes"))] if spec.get("allNodes") is False else []
    return tuple(edits)
