"""Which object is in a protobuf body? Decodes Kubernetes' `k8s\\0` envelope into the JSON form.

kubectl sends `create`, `auth can-i` and `create token` this way and does not try JSON after a refusal. Field numbers
are facts (see `facts`). Encoding is never needed: clients take JSON answers. Values of non-pointer Go fields are on
the wire even when zero; they are dropped where the JSON form would omit them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeAlias

import msgspec

from dragoman.apiserver import facts
from dragoman.errors import Invalid

MAGIC = b"k8s\x00"
MAX_DEPTH = 100

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_RUNTIME = "k8s.io.apimachinery.pkg.runtime."
_META = "k8s.io.apimachinery.pkg.apis.meta.v1."
_SECOND_NS = 1_000_000_000


class NotProtobuf(Invalid):
    """The body is no protobuf of a known kind (400)."""

    def __init__(self, what: str) -> None:
        super().__init__("protobuf body", what)


class _Drop:
    """A zero value that the JSON form omits."""


_DROP = _Drop()

# (wire type, number or bytes, depth) -> JSON value
_Reader: TypeAlias = Callable[[int, Any, int], Any]


class _Field:
    """How one field of a message is read. kind: one, list, map or embedded."""

    __slots__ = ("keeps_zero", "kind", "name", "read")

    def __init__(self, name: str, kind: str, read: _Reader, keeps_zero: bool) -> None:
        self.name = name
        self.kind = kind
        self.read = read
        self.keeps_zero = keeps_zero


def decode(data: bytes) -> dict[str, Any]:
    """The object in an enveloped body, with apiVersion and kind. Raises NotProtobuf."""
    return _decode(data, 0)


def _decode(data: bytes, depth: int) -> dict[str, Any]:
    if not data.startswith(MAGIC):
        raise NotProtobuf("does not start with the bytes k8s\\0")
    unknown = _message(f"{_RUNTIME}Unknown", memoryview(data)[len(MAGIC) :], depth)
    api_version, kind = unknown.get("apiVersion", ""), unknown.get("kind", "")
    raw = base64.b64decode(unknown.get("raw", ""))
    if unknown.get("contentEncoding"):
        raise NotProtobuf(f"content encoding {unknown['contentEncoding']!r} is not supported")
    if unknown.get("contentType") == "application/json":
        body = _json(raw)
        if not isinstance(body, dict):
            raise NotProtobuf("the JSON inside is not an object")
        return body
    return {
        "apiVersion": api_version,
        "kind": kind,
        **_message(_message_name(api_version, kind), memoryview(raw), depth),
    }


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = facts.read("protobuf")
    return table


def _message_name(api_version: str, kind: str) -> str:
    """The message of a kind; DeleteOptions and the like are meta's in every group."""
    table = _table()
    for package in (table["packages"].get(api_version), table["meta"]):
        name = f"{package}.{kind}"
        if package and name in table["messages"]:
            return name
    raise NotProtobuf(f"no kind {kind!r} is known in version {api_version!r}; send it as JSON")


def _message(name: str, data: memoryview, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise NotProtobuf(f"nested deeper than {MAX_DEPTH} levels")
    fields = _fields(name)
    out: dict[str, Any] = {}
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        wire, value, at = _value(data, at, tag)
        field = fields.get(tag >> 3)
        if field is None:
            continue  # newer than our table
        if field.kind == "list":
            out.setdefault(field.name, []).append(field.read(wire, value, depth + 1))
        elif field.kind == "map":
            key, entry = field.read(wire, value, depth + 1)
            out.setdefault(field.name, {})[key] = entry
        elif field.kind == "embedded":
            out.update(field.read(wire, value, depth + 1))
        else:
            _put(out, field, field.read(wire, value, depth + 1))
    return out


def _put(out: dict[str, Any], field: _Field, value: Any) -> None:
    if value is _DROP or (not field.keeps_zero and not value and value is not None):
        out.pop(field.name, None)
    else:
        out[field.name] = value


@cache
def _fields(name: str) -> dict[int, _Field]:
    """Field number -> reader, built on first use of the message."""
    fields = {}
    for number, json_name, type_, flags in _table()["messages"][name]:
        read = _reader(type_)
        kind = "list" if "r" in flags else "map" if "m" in flags else "one" if json_name else "embedded"
        if kind == "map":
            read = _map_entry(read, type_)
        # On the wire a pointer is there or not, so its zero means something; without omitempty JSON shows zero too.
        fields[number] = _Field(json_name, kind, read, "p" in flags or not ("o" in flags or "z" in flags))
    return fields


# ---- the wire


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result, at
            shift += 7
            if shift > 63:
                raise NotProtobuf("a number is longer than 64 bits")
    except IndexError:
        raise NotProtobuf("ends in the middle of a number") from None


def _value(data: memoryview, at: int, tag: int) -> tuple[int, Any, int]:
    wire = tag & 7
    if wire == _VARINT:
        number, at = _varint(data, at)
        return wire, number, at
    if wire == _BYTES:
        length, at = _varint(data, at)
    elif wire in (_FIXED32, _FIXED64):
        length = 4 if wire == _FIXED32 else 8
    else:
        raise NotProtobuf(f"wire type {wire} is not used by Kubernetes")
    if at + length > len(data):
        raise NotProtobuf("ends in the middle of a field")
    return wire, data[at : at + length], at + length


def _reader(type_: str) -> _Reader:
    special = _SPECIAL.get(type_) or _SCALARS.get(type_)
    if special is not None:
        return special
    messages = _table()["messages"]
    rows = messages[type_]
    if len(rows) == 1 and rows[0][1] == "items" and rows[0][2] == "string" and "r" in rows[0][3]:
        # A named Go list (ExtraValue, Verbs) is a message around its items.
        return lambda wire, value, depth: _message(type_, _bytes(wire, value), depth).get("items", [])
    return lambda wire, value, depth: _message(type_, _bytes(wire, value), depth)


def _map_entry(read: _Reader, type_: str) -> _Reader:
    empty = _SCALAR_ZERO.get(type_, {})

    def entry(wire: int, value: Any, depth: int) -> tuple[str, Any]:
        key: str = ""
        result: Any = empty
        data = _bytes(wire, value)
        at = 0
        while at < len(data):
            tag, at = _varint(data, at)
            inner_wire, inner, at = _value(data, at, tag)
            if tag >> 3 == 1:
                key = _string(inner_wire, inner, depth)
            elif tag >> 3 == 2:
                result = read(inner_wire, inner, depth)
        return key, None if result is _DROP else result

    return entry


def _bytes(wire: int, value: Any) -> memoryview:
    if wire != _BYTES:
        raise NotProtobuf("a field has another wire type than its message says")
    assert isinstance(value, memoryview), "bytes fields are views"
    return value


def _number(wire: int, value: Any) -> int:
    if wire != _VARINT:
        raise NotProtobuf("a field has another wire type than its message says")
    assert isinstance(value, int), "varints are ints"
    return value - (1 << 64) if value >= 1 << 63 else value


def _string(wire: int, value: Any, depth: int) -> str:
    try:
        return str(_bytes(wire, value), "utf-8")
    except UnicodeDecodeError as error:
        raise NotProtobuf(f"a text is not UTF-8: {error.reason}") from None


def _double(wire: int, value: Any, depth: int) -> float | int:
    if wire != _FIXED64:
        raise NotProtobuf("a field has another wire type than its message says")
    number: float = struct.unpack("<d", value)[0]
    return int(number) if number.is_integer() else number


_SCALARS: dict[str, _Reader] = {
    "string": _string,
    "bytes": lambda wire, value, depth: base64.b64encode(_bytes(wire, value)).decode(),
    "int32": lambda wire, value, depth: _number(wire, value),
    "int64": lambda wire, value, depth: _number(wire, value),
    "bool": lambda wire, value, depth: _number(wire, value) != 0,
    "double": _double,
}
_SCALAR_ZERO: dict[str, Any] = {"string": "", "bytes": "", "int32": 0, "int64": 0, "bool": False, "double": 0}


# ---- messages with a JSON form of their own


def _time(digits: int) -> _Reader:
    def read(wire: int, value: Any, depth: int) -> Any:
        parts = _message(f"{_META}Timestamp", _bytes(wire, value), depth)
        if not parts:
            return _DROP  # Go's zero time
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=parts.get("seconds", 0))
        except OverflowError:
            raise NotProtobuf("a time is out of range") from None
        fraction = f".{parts.get('nanos', 0) // 1000:06d}" if digits else ""
        return f"{moment.year:04d}{moment:-%m-%dT%H:%M:%S}{fraction}Z"

    return read


def _quantity(wire: int, value: Any, depth: int) -> str:
    text: str = _message(f"{_RUNTIME_RESOURCE}Quantity", _bytes(wire, value), depth).get("string", "")
    return text or "0"


def _int_or_string(wire: int, value: Any, depth: int) -> int | str:
    parts = _message("k8s.io.apimachinery.pkg.util.intstr.IntOrString", _bytes(wire, value), depth)
    chosen: int | str = parts.get("strVal", "") if parts.get("type", 0) == 1 else parts.get("intVal", 0)
    return chosen


def _raw(field: str, message: str) -> _Reader:
    def read(wire: int, value: Any, depth: int) -> Any:
        body = base64.b64decode(_message(message, _bytes(wire, value), depth).get(field, ""))
        if not body:
            return _DROP
        return _decode(body, depth) if body.startswith(MAGIC) else _json(body)

    return read


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise NotProtobuf(f"the JSON inside is broken: {error}") from None


def _duration(wire: int, value: Any, depth: int) -> str:
    return go_duration(_message(f"{_META}Duration", _bytes(wire, value), depth).get("duration", 0))


def go_duration(nanos: int) -> str:
    """Nanoseconds as Go prints a time.Duration: 1h30m0s, 1.5s, 20ms."""
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    if nanos == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if nanos < size * 1000:
            return f"{sign}{_decimal(nanos, size)}{unit}"
    minutes, rest = divmod(nanos, 60 * _SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(rest, _SECOND_NS)}s"


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1).rstrip('0')}" if rest else str(whole)


def _one_of(plain: str, wrapped: str, empty: Any) -> _Reader:
    """A message whose JSON form is one of its fields: the first of `plain` that is set."""

    def read(wire: int, value: Any, depth: int) -> Any:
        parts = _message(f"{_EXTENSIONS}{wrapped}", _bytes(wire, value), depth)
        return next((parts[field] for field in plain.split() if parts.get(field)), empty)

    return read


_EXTENSIONS = "k8s.io.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_RUNTIME_RESOURCE = "k8s.io.apimachinery.pkg.api.resource."
_SPECIAL: dict[str, _Reader] = {
    f"{_META}Time": _time(0),
    f"{_META}MicroTime": _time(6),
    f"{_META}Duration": _duration,
    f"{_META}FieldsV1": _raw("Raw", f"{_META}FieldsV1"),
    f"{_RUNTIME}RawExtension": _raw("raw", f"{_RUNTIME}RawExtension"),
    f"{_RUNTIME_RESOURCE}Quantity": _quantity,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    f"{_EXTENSIONS}JSON": _raw("raw", f"{_EXTENSIONS}JSON"),
    f"{_EXTENSIONS}JSONSchemaPropsOrArray": _one_of("schema jSONSchemas", "JSONSchemaPropsOrArray", []),
    f"{_EXTENSIONS}JSONSchemaPropsOrBool": _one_of("schema allows", "JSONSchemaPropsOrBool", False),
    f"{_EXTENSIONS}JSONSchemaPropsOrStringArray": _one_of("schema property", "JSONSchemaPropsOrStringArray", []),
}
