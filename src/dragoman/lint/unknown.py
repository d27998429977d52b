"""Which fields of this document does the API not have? Walks the structs of `api` beside what was written.

Complete for resource.k8s.io, whose structs hold all fields of 1.37; of pods and workloads only the claim entries are
judged, and of other kinds nothing: our structs of those hold what decisions read.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from dragoman.api.codec import TYPES
from dragoman.api.core import ContainerClaim, PodResourceClaim
from dragoman.api.files import Document
from dragoman.api.meta import ObjectMeta
from dragoman.api.shape import dig, items, objects
from dragoman.lint.finding import ItemPath
from dragoman.lint.pods import pod_specs

_TOP = frozenset({"apiVersion", "kind"})
# metav1.ObjectMeta beyond what decisions read.
_METADATA = frozenset({"managedFields", "selfLink"})


def unknown_fields(document: Document) -> Iterator[tuple[ItemPath, str]]:
    """Path as written and, if there is one, the known name that was probably meant."""
    struct = TYPES.get(document.kind_name)
    if document.kind is None or document.kind.group != "resource.k8s.io" or struct is None:
        for path, spec in pod_specs(document):
            for steps, near in _of_pod(spec):
                yield (*path, *steps), near
        return
    for steps, near in _of(struct, document.object, ()):
        yield as_written(document, steps), near


def as_written(document: Document, steps: ItemPath) -> ItemPath:
    """A path of the stored version in the document's own."""
    if steps[:2] == ("spec", "devices") and not str(document.raw.get("apiVersion")).endswith("v1beta1"):
        return steps
    raw: Any = document.raw
    path: list[str | int] = []
    for step in steps:
        if isinstance(raw, dict) and step not in raw and isinstance(raw.get("basic"), dict):
            path.append("basic")
            raw = raw["basic"]
        if step == "exactly" and isinstance(raw, dict) and step not in raw:
            continue
        path.append(step)
        raw = _below(raw, step)
    return tuple(path)


def _below(raw: Any, step: str | int) -> Any:
    if isinstance(raw, dict):
        return raw.get(str(step))
    return raw[step] if isinstance(raw, list) and isinstance(step, int) else None


def _of(kind: Any, value: Any, path: ItemPath) -> Iterator[tuple[ItemPath, str]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _of_struct(kind, value, path)
        return
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin is dict and isinstance(value, dict):
        for key, inner in value.items():
            yield from _of(arguments[1], inner, (*path, key))
    elif origin is tuple and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _of(arguments[0], inner, (*path, index))
    elif arguments:
        # Optional: the one member that is not None.
        for argument in arguments:
            if argument is not type(None) and value is not None:
                yield from _of(argument, value, path)


_fields: dict[type, dict[str, Any]] = {}


def _fields_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON name and type of each field."""
    if struct not in _fields:
        hints = get_type_hints(struct)
        names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
        _fields[struct] = {encoded: hints[name] for encoded, name in names}
    return _fields[struct]


def _of_struct(struct: type[msgspec.Struct], value: Any, path: ItemPath) -> Iterator[tuple[ItemPath, str]]:
    if not isinstance(value, dict):
        return
    known = _fields_of(struct)
    for key, inner in value.items():
        if key in known:
            yield from _of(known[key], inner, (*path, key))
        elif not (path == () and key in _TOP) and not (struct is ObjectMeta and key in _METADATA):
            near = get_close_matches(key.lower(), [name.lower() for name in known], n=1, cutoff=0.75)
            meant = next((name for name in known if near and name.lower() == near[0] and name not in value), "")
            yield (*path, key), meant


def _of_pod(spec: dict[str, Any]) -> Iterator[tuple[ItemPath, str]]:
    """Claim entries of a pod and of its containers."""
    for index, entry in enumerate(items(spec, "resourceClaims")):
        yield from _of_struct(PodResourceClaim, entry, ("resourceClaims", index))
    for field in ("initContainers", "containers"):
        for index, container in enumerate(objects(spec, field)):
            for number, entry in enumerate(items(dig(container, "resources"), "claims")):
                path: ItemPath = (field, index, "resources", "claims", number)
                yield from _of_struct(ContainerClaim, entry, path)
