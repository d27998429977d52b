"""Does an object fit its kind's schema: fields that exist, values of the right JSON type?

`strict_errors` names unknown fields in upstream's words and raises for wrong types. A compiled JSON schema
(jsonschema-rs) answers the usual "yes" at once; only for a "no" our own walk finds the words. Never judges meaning
(required fields, limits, immutability: that is validation), never sees duplicate fields (the decoder's job).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jsonschema_rs

from dragoman.apiserver.shape import ANY, GVK, LIST, MAP, OBJECT, SchemaShape, definition_names, definitions, shape_of
from dragoman.errors import Invalid

# The decoder of kube-apiserver stops counting there (sigs.k8s.io/json).
MAX_STRICT_ERRORS = 100

_QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
_BASE64 = r"^[A-Za-z0-9+/\r\n]*={0,2}[\r\n]*$"
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)

_quantity = re.compile(_QUANTITY)
_time = re.compile(_TIME)
_base64 = re.compile(_BASE64)


def strict_errors(gvk: GVK, obj: dict[str, Any]) -> list[str]:
    """Texts such as `unknown field "spec.foo"`, in the order of the object; empty if all fields are known.

    Raises Invalid with the field path if a value has the wrong JSON type, whatever fieldValidation says. A kind
    without schema has no errors here.
    """
    fits = _fits(gvk)
    if fits is None or fits(obj):
        return []
    shape = shape_of(gvk)
    assert shape is not None, "what has a compiled schema has a shape"
    unknown: list[str] = []
    for path in _walk(shape, obj, ""):
        if len(unknown) == MAX_STRICT_ERRORS:
            break
        unknown.append(f'unknown field "{path}"')
    return unknown


# ---- the slow way, with words


def _walk(shape: SchemaShape, value: Any, path: str) -> Iterator[str]:
    """Paths of unknown fields below `value`; raises Invalid at the first wrong type."""
    if value is None or shape.type == ANY:
        return
    if shape.type == OBJECT:
        if not isinstance(value, dict):
            raise _wrong(shape, value, path)
        for name, entry in value.items():
            here = f"{path}.{name}" if path else name
            member = shape.fields.get(name)
            if member is None:
                yield here
            else:
                yield from _walk(member, entry, here)
    elif shape.type == MAP:
        if not isinstance(value, dict):
            raise _wrong(shape, value, path)
        assert shape.item is not None, "a map has a shape of values"
        for name, entry in value.items():
            yield from _walk(shape.item, entry, f"{path}.{name}")
    elif shape.type == LIST:
        if not isinstance(value, list):
            raise _wrong(shape, value, path)
        assert shape.item is not None, "a list has a shape of items"
        for index, entry in enumerate(value):
            yield from _walk(shape.item, entry, f"{path}[{index}]")
    else:
        _check_scalar(shape, value, path)


def _check_scalar(shape: SchemaShape, value: Any, path: str) -> None:
    if not _SCALARS[shape.type](value):
        raise _wrong(shape, value, path)
    if shape.type == "integer":
        low, high = _INT32 if shape.form == "int32" else _INT64
        if not low <= value <= high:
            raise Invalid(path, f"must be between {low} and {high} ({shape.form or 'int64'}), got {value}")
    elif shape.type == "quantity" and isinstance(value, str) and not _quantity.match(value):
        raise Invalid(path, f"must be a quantity such as 500m, 2 or 4Gi, got {value!r}")
    elif shape.form == "date-time" and value and not _time.match(value):
        raise Invalid(path, f"must be an RFC 3339 time such as 2026-01-31T12:00:00Z, got {value!r}")
    elif shape.form == "byte" and not _base64.match(value):
        raise Invalid(path, "must be base64 text")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SCALARS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": _is_number,
    "quantity": lambda value: isinstance(value, str) or _is_number(value),
    "int-or-string": lambda value: isinstance(value, str) or _is_integer(value),
}
_NAMES = {OBJECT: "object", MAP: "object", LIST: "list", "quantity": "quantity (text or number)"}


def _wrong(shape: SchemaShape, value: Any, path: str) -> Invalid:
    wanted = _NAMES.get(shape.type, shape.type)
    return Invalid(path, f"must be of type {wanted}, got {_describe(value)}")


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return f"boolean {'true' if value else 'false'}"
    if isinstance(value, str):
        shown = value if len(value) <= 60 else value[:57] + "..."
        return f"string {shown!r}"
    return f"number {value}"


# ---- the fast way


@cache
def _fits(gvk: GVK) -> Callable[[Any], bool] | None:
    """Whether an object fits, compiled on first use; None for kinds without schema."""
    name = definition_names().get(gvk)
    if name is None:
        return None
    needed: dict[str, dict[str, Any]] = {}
    _collect(name, needed)
    schema = {"$ref": f"#/definitions/{name}", "definitions": needed}
    # Draft 4: 1.0 is no integer, as in Go.
    validator = jsonschema_rs.Draft4Validator(schema)
    fits: Callable[[Any], bool] = validator.is_valid
    return fits


def _collect(name: str, into: dict[str, dict[str, Any]]) -> None:
    if name not in into:
        into[name] = {}
        into[name] = _json_schema(definitions()[name], into)


def _json_schema(schema: dict[str, Any], into: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON schema of an OpenAPI one: null fits everywhere, unknown fields nowhere."""
    if "$ref" in schema:
        _collect(schema["$ref"], into)
        return {"$ref": f"#/definitions/{schema['$ref']}"}
    form = schema.get("x-dragoman-form") or schema.get("format", "")
    type_ = schema.get("type")
    if form == "quantity":
        return {"type": ["string", "number", "null"], "pattern": _QUANTITY}
    if form == "int-or-string":
        return {"type": ["string", "integer", "null"]}
    if type_ is None:
        return {}
    out: dict[str, Any] = {"type": [type_, "null"]}
    if "properties" in schema:
        out["properties"] = {name: _json_schema(member, into) for name, member in schema["properties"].items()}
        out["additionalProperties"] = False
    elif "additionalProperties" in schema:
        out["additionalProperties"] = _json_schema(schema["additionalProperties"], into)
    elif type_ == "object":
        return {}
    elif type_ == "array":
        out["items"] = _json_schema(schema["items"], into)
    elif type_ == "integer":
        out["minimum"], out["maximum"] = _INT32 if form == "int32" else _INT64
    elif form in ("date-time", "byte"):
        out["pattern"] = _TIME if form == "date-time" else _BASE64
    return out
