"""What form has a kind, as its schema says: fields, lists by key, sets, atomic parts?

One `SchemaShape` a place in an object, built on first use from the facts and shared; patches, server-side apply and
field checks read it. Never looks at objects. Terms are those of x-kubernetes-list-type and -map-type (KEP-2155).
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

from dragoman.apiserver import facts

# (group, version, kind)
GVK: TypeAlias = tuple[str, str, str]

OBJECT = "object"  # named fields
MAP = "map"  # any keys, one shape of values
LIST = "list"
ANY = "any"  # no schema: RawExtension, parameters, JSON


class SchemaShape:
    """The form of one place.

    type: object, map, list, any, or a scalar: string integer number boolean quantity int-or-string.
    atomic: one owner for the whole (maps, objects, lists; scalars and `any` too).
    keys: list-map keys; a list with neither keys nor `set` is atomic. defaults: values of absent keys.
    merge_key, merges, replaces, retains: x-kubernetes-patch-* for strategic merge patches.
    present: fields that upstream's zero value has (Go structs held by value, lists without omitempty): whoever
    sets something below them does not become an owner of the field itself.
    """

    __slots__ = (
        "atomic",
        "default",
        "definition",
        "fields",
        "form",
        "item",
        "keys",
        "merge_key",
        "merges",
        "present",
        "replaces",
        "retains",
        "set",
        "type",
    )

    def __init__(self, type_: str, *, definition: str = "", form: str = "") -> None:
        self.type = type_
        self.definition = definition
        self.form = form
        self.fields: dict[str, SchemaShape] = {}
        self.item: SchemaShape | None = None
        self.keys: tuple[str, ...] = ()
        self.set = False
        self.atomic = type_ not in (OBJECT, MAP)
        self.default: Any = None
        self.merge_key = ""
        self.merges = False
        self.present: frozenset[str] = frozenset()
        self.replaces = False
        self.retains = False

    def field(self, name: str) -> SchemaShape | None:
        """The shape of a member, None if the schema does not know it."""
        return self.fields.get(name) if self.type == OBJECT else self.item

    def key_default(self, key: str) -> Any:
        """The default of a list-map key in this list's items, None without one."""
        assert self.item is not None, "only lists have keys"
        member = self.item.field(key)
        return member.default if member else None

    def _variant(self) -> SchemaShape:
        twin = SchemaShape.__new__(SchemaShape)
        for name in SchemaShape.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """All definitions of the facts by name; never change them."""
    table: dict[str, dict[str, Any]] = facts.read("schemas")
    return table


@cache
def definition_names() -> dict[GVK, str]:
    """The definition of each group, version and kind."""
    names: dict[GVK, str] = {}
    for name, schema in definitions().items():
        for entry in schema.get("x-kubernetes-group-version-kind", ()):
            names[entry["group"], entry["version"], entry["kind"]] = name
    return names


@cache
def shape_of(gvk: GVK) -> SchemaShape | None:
    """The shape of a kind, None if there is no schema for it (custom resources)."""
    name = definition_names().get(gvk)
    return definition_shape(name) if name else None


@cache
def skeleton(gvk: GVK) -> dict[str, Any]:
    """The objects that a stored object of a kind always has, empty or not: Go structs that are held by value.

    `{"spec": {"devices": {}}, "status": {}}` for a ResourceClaim. Clients patch below them (`add /status/allocation`).
    """
    shape = shape_of(gvk)
    return {} if shape is None else {n: v for n, v in _held(shape).items() if n != "metadata"}


def _held(shape: SchemaShape) -> dict[str, Any]:
    return {name: _held(shape.fields[name]) for name in sorted(shape.present) if shape.fields[name].type == OBJECT}


def complete(obj: dict[str, Any], parts: dict[str, Any]) -> None:
    """Give an object the parts of a skeleton that it lacks, in place."""
    for name, below in parts.items():
        value = obj.get(name)
        if value is None:
            value = obj[name] = {}
        if below and isinstance(value, dict):
            complete(value, below)


@cache
def unstructured() -> SchemaShape:
    """The shape of kinds without schema: metadata as always, other objects by name, lists atomic."""
    deduced = SchemaShape(MAP)
    deduced.item = deduced
    root = SchemaShape(OBJECT)
    root.fields = {"metadata": definition_shape("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")}
    root.present = frozenset(("metadata",))
    root.item = deduced
    return root


_built: dict[str, SchemaShape] = {}


def definition_shape(name: str) -> SchemaShape:
    """The shape of a definition, for example `io.k8s.api.core.v1.PodSpec`."""
    known = _built.get(name)
    if known is not None:
        return known
    schema = definitions()[name]
    shape = _blank(schema, name)
    _built[name] = shape  # before its members: JSONSchemaProps holds itself
    _fill(shape, schema)
    return shape


def schema_shape(schema: dict[str, Any]) -> SchemaShape:
    """The shape of one schema, that of a property or a custom resource."""
    if "$ref" in schema:
        target = definition_shape(schema["$ref"])
        if len(schema) == 1:
            return target
        target = target._variant()
    else:
        target = _blank(schema, "")
        _fill(target, schema)
    if "x-kubernetes-map-type" in schema:
        target.atomic = schema["x-kubernetes-map-type"] == "atomic"
    strategy = schema.get("x-kubernetes-patch-strategy", "").split(",")
    target.merges = "merge" in strategy
    target.replaces = "replace" in strategy
    target.retains = "retainKeys" in strategy
    target.merge_key = schema.get("x-kubernetes-patch-merge-key", "")
    if "default" in schema:
        target.default = schema["default"]
    return target


def _blank(schema: dict[str, Any], definition: str) -> SchemaShape:
    form = schema.get("x-dragoman-form") or schema.get("format", "")
    if form in ("quantity", "int-or-string"):
        return SchemaShape(form, definition=definition)
    type_ = schema.get("type", ANY)
    if type_ == "object":
        type_ = OBJECT if "properties" in schema else MAP if "additionalProperties" in schema else ANY
    elif type_ == "array":
        type_ = LIST
    return SchemaShape(type_, definition=definition, form=form)


def _fill(shape: SchemaShape, schema: dict[str, Any]) -> None:
    if shape.type == OBJECT:
        shape.present = _present(shape.definition)
        shape.fields.update((name, schema_shape(member)) for name, member in schema["properties"].items())
    elif shape.type == MAP:
        shape.item = schema_shape(schema["additionalProperties"])
    elif shape.type == LIST:
        shape.item = schema_shape(schema.get("items", {}))
        kind = schema.get("x-kubernetes-list-type", "atomic")
        shape.set = kind == "set"
        shape.keys = tuple(schema["x-kubernetes-list-map-keys"]) if kind == "map" else ()
        shape.atomic = kind == "atomic"
    if "x-kubernetes-map-type" in schema:
        shape.atomic = schema["x-kubernetes-map-type"] == "atomic"


@cache
def _messages() -> dict[str, list[tuple[int, str, str, str]]]:
    messages: dict[str, list[tuple[int, str, str, str]]] = facts.read("protobuf")["messages"]
    return messages


@cache
def _present(definition: str) -> frozenset[str]:
    """Fields of a definition that are never absent in upstream's typed values, by the flags of the protobuf facts."""
    messages = _messages()
    found: set[str] = set()
    for _, name, type_, flags in messages.get(definition.replace("io.k8s.", "k8s.io.", 1), ()):
        if not name and type_ in messages:
            found |= _present(type_.replace("k8s.io.", "io.k8s.", 1))
        elif not set(flags) & {"p", "m", "z"} and ("o" not in flags if "r" in flags else type_ in messages):
            found.add(name)
    return frozenset(found)
