"""What is a custom kind? A Kind with what its definition says: versions, schemas, columns, scale.

Made from a stored CustomResourceDefinition, replaced as a whole when that changes. Objects are stored in the storage
version; with conversion None versions differ in their schemas only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.custom.columns import printer
from dragoman.apiserver.custom.prune import drop_nulls, fill, prune
from dragoman.apiserver.custom.rules import ValidationRules
from dragoman.apiserver.custom.schema import SchemaNode
from dragoman.apiserver.shape import ANY, LIST, MAP, OBJECT, SchemaShape, definition_shape, unstructured

_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class CustomVersion:
    """One version of a definition."""

    def __init__(self, entry: Object) -> None:
        self.name: str = entry["name"]
        self.served = bool(entry.get("served"))
        self.storage = bool(entry.get("storage"))
        self.schema: Object = (entry.get("schema") or {}).get("openAPIV3Schema") or _OPEN
        self.has_schema = bool((entry.get("schema") or {}).get("openAPIV3Schema"))
        self.node = SchemaNode(self.schema)
        self.rules = ValidationRules(self.node)
        self.shape = _root_shape(self.node)
        subresources = entry.get("subresources") or {}
        self.has_status = "status" in subresources
        self.scale: Object | None = subresources.get("scale")
        self.columns: list[Object] = entry.get("additionalPrinterColumns") or []
        self.printer = printer(self.columns)
        self.selectable = tuple(f["jsonPath"].lstrip(".") for f in entry.get("selectableFields") or ())
        self.deprecated = bool(entry.get("deprecated"))
        self.warning: str = entry.get("deprecationWarning") or ""

    @property
    def subresources(self) -> tuple[str, ...]:
        """status and scale, where declared."""
        return (*(("status",) if self.has_status else ()), *(("scale",) if self.scale else ()))


class CustomDefinition:
    """The compiled form of a CustomResourceDefinition; compared by identity."""

    def __init__(self, spec: Object, names: Object) -> None:
        self.spec = spec
        self.names = names
        self.versions = {entry["name"]: CustomVersion(entry) for entry in spec["versions"]}
        self.storage = next(v for v in self.versions.values() if v.storage)
        self.conversion: Object = spec.get("conversion") or {"strategy": "None"}
        self.terminating = False

    def needs_webhook(self, version: str) -> bool:
        """Whether only the definition's webhook knows how objects look in a version."""
        return self.conversion.get("strategy") == "Webhook" and self.version(version) is not self.storage

    def version(self, name: str) -> CustomVersion:
        """A version by name; the storage version for an empty one."""
        return self.versions.get(name, self.storage)

    def to_stored(self, version: str, obj: Object) -> Object:
        """A copy of what was sent, pruned and with defaults, without apiVersion and kind."""
        out: Object = msgspec.json.decode(msgspec.json.encode(obj))
        node = self.version(version).node
        prune(node, out)
        drop_nulls(node, out)
        _drop_null_metadata(out)
        fill(node, out)
        out.pop("apiVersion", None)
        out.pop("kind", None)
        return out

    def config(self, version: str, obj: Object) -> Object:
        """The same for an apply configuration, which gets no defaults."""
        out: Object = msgspec.json.decode(msgspec.json.encode(obj))
        prune(self.version(version).node, out)
        _drop_null_metadata(out)
        out.pop("apiVersion", None)
        out.pop("kind", None)
        return out

    def is_plain(self, version: str) -> bool:
        """Whether stored bytes can be shown in a version as they are."""
        found = self.version(version)
        return found is self.storage and not found.node.has_defaults_below

    def from_stored(self, version: str, obj: Object) -> Object:
        """A stored object in a version: defaults that came later are filled in."""
        found = self.version(version)
        if found is not self.storage:
            prune(found.node, obj)
        fill(found.node, obj)
        return obj

    def unknown(self, version: str, obj: Object) -> list[str]:
        """Fields of a sent object that its schema does not know."""
        copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
        return [f'unknown field "{path}"' for path in prune(self.version(version).node, copied)]


def _drop_null_metadata(obj: Object) -> None:
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        for name in [name for name, value in metadata.items() if value is None]:
            del metadata[name]


class CustomKind(Kind, frozen=True):
    """A kind that is served because a definition says so."""

    definition: CustomDefinition = msgspec.field(default_factory=lambda: CustomDefinition({"versions": [_NONE]}, {}))

    @property
    def singular(self) -> str:
        """As the definition names it."""
        return str(self.definition.names.get("singular") or self.kind.lower())

    @property
    def list_kind(self) -> str:
        """As the definition names it."""
        return str(self.definition.names.get("listKind") or f"{self.kind}List")


_NONE: Object = {"name": "v1", "served": False, "storage": True}


def custom_kind(crd: Object) -> CustomKind:
    """The kind that a definition declares, by its accepted names."""
    spec = crd["spec"]
    names: Object = {**spec["names"], **((crd.get("status") or {}).get("acceptedNames") or {})}
    definition = CustomDefinition(spec, names)
    storage = definition.storage
    others = [name for name in definition.versions if name != storage.name]
    subresources = dict.fromkeys(s for v in definition.versions.values() for s in v.subresources)
    return CustomKind(
        names["kind"],
        names["plural"],
        spec["group"],
        (storage.name, *others),
        spec["scope"] == "Namespaced",
        tuple(names.get("shortNames") or ()),
        tuple(subresources),
        tuple(names.get("categories") or ()),
        definition=definition,
    )


# ---- shapes, for server-side apply


def _root_shape(node: SchemaNode) -> SchemaShape:
    shape = SchemaShape(OBJECT)
    shape.fields = {name: _shape(member) for name, member in node.properties.items() if name != "metadata"}
    for name in ("apiVersion", "kind"):
        shape.fields[name] = SchemaShape("string")
    shape.fields["metadata"] = definition_shape("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    shape.item = unstructured().item
    return shape


def _shape(node: SchemaNode) -> SchemaShape:
    if node.type == "object":
        return _object_shape(node)
    if node.type == "array":
        shape = SchemaShape(LIST)
        shape.item = _shape(node.items) if node.items is not None else SchemaShape(ANY)
        shape.set = node.list_type == "set"
        shape.keys = node.keys if node.list_type == "map" else ()
        shape.atomic = node.list_type not in ("set", "map")
        return shape
    if node.int_or_string:
        return SchemaShape("int-or-string")
    shape = SchemaShape(node.type or ANY)
    shape.default = node.default
    return shape


def _object_shape(node: SchemaNode) -> SchemaShape:
    deduced: Any = unstructured().item
    if node.additional is not None:
        shape = SchemaShape(MAP)
        shape.item = _shape(node.additional)
    elif node.properties:
        shape = SchemaShape(OBJECT)
        shape.fields = {name: _shape(member) for name, member in node.properties.items()}
        if node.open:
            shape.item = deduced
    elif node.open:
        shape = SchemaShape(MAP)
        shape.item = deduced
    else:
        shape = SchemaShape(OBJECT)
    if node.embedded:
        shape.fields.setdefault("metadata", definition_shape("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"))
    shape.atomic = node.map_type == "atomic"
    return shape
