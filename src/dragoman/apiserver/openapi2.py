"""What does /openapi/v2 say? One document of everything served, in JSON or in the protobuf form that kubectl asks for.

Made from the documents of /openapi/v3. kubectl reads it to validate lists of objects and kinds that it does not find,
and clients before 1.29 to validate everything. Source of the field numbers: OpenAPIv2.proto of gnostic-models.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dragoman.api.shape import Object

PROTOBUF_TYPES = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
PROTOBUF_SENT = PROTOBUF_TYPES[1].encode()
"""With an @ it is no media type for Go."""
_V3, _V2 = "#/components/schemas/", "#/definitions/"
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}
_JSON = "application/json"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


def document(documents: Iterable[Object], version: str) -> Object:
    """The v2 document of some v3 ones."""
    paths: Object = {}
    definitions: Object = {}
    for found in documents:
        for path, item in found["paths"].items():
            paths[path] = {key: _operation(value) if key in _METHODS else _path(value) for key, value in item.items()}
        for name, schema in found["components"]["schemas"].items():
            if name not in definitions:
                definitions[name] = _open(schema) if schema.get(_PRESERVE) else _schema(schema)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
    }


def _open(schema: Object) -> Object:
    """A custom resource that may hold anything: v2 cannot say that, so it says nothing of its fields."""
    kept = ("description", "x-kubernetes-group-version-kind")
    return {"type": "object", **{key: schema[key] for key in kept if key in schema}}


def _path(parameters: list[Object]) -> list[Object]:
    return [_parameter(parameter) for parameter in parameters]


def _parameter(parameter: Object) -> Object:
    schema = parameter.get("schema") or {}
    rest = {key: value for key, value in parameter.items() if key != "schema"}
    return {
        **rest,
        **({"uniqueItems": True} if schema.get("uniqueItems") else {}),
        "type": schema.get("type", "string"),
    }


def _operation(operation: Object) -> Object:
    out = {key: value for key, value in operation.items() if key.startswith("x-")}
    parameters = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    body = operation.get("requestBody")
    if body:
        content = body["content"]
        schema = _schema(next(iter(content.values()))["schema"])
        parameters.insert(0, {"in": "body", "name": "body", "required": bool(body.get("required")), "schema": schema})
        out["consumes"] = list(content)
    out["produces"] = [_JSON]
    out["parameters"] = parameters
    out["responses"] = {
        code: {"description": reply.get("description", ""), **_reply_schema(reply)}
        for code, reply in operation["responses"].items()
    }
    return out


def _reply_schema(reply: Object) -> Object:
    content = reply.get("content") or {}
    return {"schema": _schema(next(iter(content.values()))["schema"])} if content else {}


def _schema(schema: Object) -> Object:
    """A v3 schema as v2 has it: references with siblings, no unions, no null."""
    if "$ref" in schema:
        return {"$ref": _V2 + schema["$ref"].removeprefix(_V3)}
    if "oneOf" in schema and "type" not in schema:
        # int-or-string and quantities: text for v2.
        rest = {key: value for key, value in schema.items() if key in ("description", "format", "default")}
        return {"type": "string", **rest}
    out: Object = {}
    for key, value in schema.items():
        match key:
            case "properties":
                out[key] = {name: _schema(member) for name, member in value.items()}
            case "items":
                out[key] = _schema(value)
            case "additionalProperties":
                out[key] = _schema(value) if isinstance(value, dict) else value
            case "allOf" if len(value) == 1:
                out |= _schema(value[0])
            case "nullable" | "allOf" | "anyOf" | "oneOf" | "not":
                continue
            case _:
                out[key] = value
    return out


# ---- protobuf


def encode(found: Object) -> bytes:
    """The document as openapi.v2.Document."""
    out = _text(1, found["swagger"])
    out += _field(2, _text(1, found["info"]["title"]) + _text(2, found["info"]["version"]))
    paths = b"".join(_field(2, _named(path, _path_item(item))) for path, item in found["paths"].items())
    out += _field(8, paths)
    schemas = b"".join(_field(1, _named(name, _schema_bytes(s))) for name, s in found["definitions"].items())
    return out + _field(9, schemas)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _flag(number: int, on: Any) -> bytes:
    return _varint(number << 3) + b"\x01" if on else b""


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _field(2, value)


def _any(number: int, value: Any) -> bytes:
    return _field(number, _field(2, msgspec.json.encode(value)))


def _extensions(number: int, holder: Object) -> bytes:
    found = [(key, value) for key, value in holder.items() if key.startswith("x-")]
    return b"".join(_field(number, _text(1, key) + _any(2, value)) for key, value in found)


def _path_item(item: Object) -> bytes:
    out = b"".join(_field(number, _operation_bytes(item[key])) for key, number in _METHODS.items() if key in item)
    return out + b"".join(_field(9, _parameter_bytes(parameter)) for parameter in item.get("parameters", ()))


def _operation_bytes(operation: Object) -> bytes:
    out = b"".join(_text(6, media) for media in operation.get("produces", ()))
    out += b"".join(_text(7, media) for media in operation.get("consumes", ()))
    out += b"".join(_field(8, _parameter_bytes(parameter)) for parameter in operation["parameters"])
    replies = b""
    for code, reply in operation["responses"].items():
        body = _text(1, reply["description"])
        if "schema" in reply:
            body += _field(2, _field(1, _schema_bytes(reply["schema"])))
        replies += _field(1, _named(code, _field(1, body)))
    return out + _field(9, replies) + _extensions(13, operation)


def _parameter_bytes(parameter: Object) -> bytes:
    """ParametersItem of a body, query or path parameter."""
    required = parameter.get("required")
    if parameter["in"] == "body":
        body = _text(2, parameter["name"]) + _text(3, "body") + _flag(4, required)
        return _field(1, _field(1, body + _field(5, _schema_bytes(parameter["schema"]))))
    inner = _flag(1, required) + _text(2, parameter["in"]) + _text(4, parameter["name"])
    if parameter["in"] == "query":
        inner += _text(6, parameter["type"]) + _flag(20, parameter.get("uniqueItems"))
        return _field(1, _field(2, _field(3, inner)))
    return _field(1, _field(2, _field(4, inner + _text(5, parameter["type"]))))


def _schema_bytes(schema: Object) -> bytes:
    out = b""
    for key, number in (("$ref", 1), ("format", 2), ("title", 3), ("description", 4)):
        if schema.get(key):
            out += _text(number, schema[key])
    if "default" in schema:
        out += _any(5, schema["default"])
    out += b"".join(_text(19, name) for name in schema.get("required", ()))
    out += b"".join(_any(20, value) for value in schema.get("enum", ()))
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        out += _field(21, _field(1, _schema_bytes(additional)))
    elif additional:
        out += _field(21, _flag(2, True))
    if "type" in schema:
        out += _field(22, _text(1, schema["type"]))
    if "items" in schema:
        out += _field(23, _field(1, _schema_bytes(schema["items"])))
    if "properties" in schema:
        members = b"".join(_field(1, _named(name, _schema_bytes(s))) for name, s in schema["properties"].items())
        out += _field(25, members)
    return out + _extensions(31, schema)
