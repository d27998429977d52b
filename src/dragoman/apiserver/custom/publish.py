"""How does OpenAPI describe a custom kind? Its schema with the fields that every object has, and that of its list."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.custom.kind import CustomKind

_META = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1."
_API_VERSION = "APIVersion defines the version of this object's schema; servers convert to the latest one they know."
_KIND = "Kind is the REST resource that this object represents, in CamelCase."


def definition_name(group: str, version: str, kind: str) -> str:
    """`com.example.stable.v1.CronTab`."""
    return ".".join([*reversed(group.split(".")), version, kind])


def schemas(kind: CustomKind, version: str) -> dict[str, Object]:
    """The components of a version, by name."""
    found = kind.definition.version(version)
    name = definition_name(kind.group, version, kind.kind)
    list_name = definition_name(kind.group, version, kind.list_kind)
    body: Object = msgspec.json.decode(msgspec.json.encode(found.schema)) if found.has_schema else {"type": "object"}
    if (found.has_schema and not body.get("x-kubernetes-preserve-unknown-fields")) or found.has_schema:
        _describe(body)
    _embedded(body)
    body["x-kubernetes-group-version-kind"] = [_gvk(kind.group, version, kind.kind)]
    item = {"$ref": f"#/components/schemas/{name}"}
    listed: Object = {
        "description": f"{kind.list_kind} is a list of {kind.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": _API_VERSION, "type": "string"},
            "items": {"description": f"List of {kind.plural}", "type": "array", "items": item},
            "kind": {"description": _KIND, "type": "string"},
            "metadata": {"$ref": f"{_META}ListMeta"},
        },
        "x-kubernetes-group-version-kind": [_gvk(kind.group, version, kind.list_kind)],
    }
    return {name: body, list_name: listed}


def _gvk(group: str, version: str, kind: str) -> Object:
    return {"group": group, "version": version, "kind": kind}


def _describe(body: Object) -> None:
    """The root: apiVersion, kind and metadata as every object has them."""
    properties = body.setdefault("properties", {})
    properties["apiVersion"] = {"description": _API_VERSION, "type": "string"}
    properties["kind"] = {"description": _KIND, "type": "string"}
    properties["metadata"] = {"allOf": [{"$ref": f"{_META}ObjectMeta"}], "description": "Standard object's metadata."}


def _embedded(schema: Any) -> None:
    """Embedded resources have these fields too."""
    if isinstance(schema, dict):
        for name, inner in (schema.get("properties") or {}).items():
            if isinstance(inner, dict) and name != "metadata":
                if inner.get("x-kubernetes-embedded-resource"):
                    _describe(inner)
                _embedded(inner)
        for key in ("items", "additionalProperties"):
            _embedded(schema.get(key))
