"""How do bytes and dicts of one API version become those of another? The registry's side of api.convert.

Stored objects are in the preferred version, without apiVersion and kind. Versions that differ only in name are
rendered by splicing a prefix before the stored bytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dragoman.api import convert, defaults
from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.patch import copy_json
from dragoman.apiserver.status import bad_request
from dragoman.errors import Invalid

_prefixes: dict[tuple[str, str, str], bytes] = {}
_RESHAPED = {("resource.k8s.io", "v1beta1"), ("autoscaling", "v1")}
_OPAQUE = {("opaque", "parameters"), ("devices", "data")}
"""Parent and field of what is kept as it was sent (RawExtension): parameters of configuration, a device's status."""


def type_text(kind: Kind, version: str) -> Object:
    """apiVersion and kind."""
    return {"apiVersion": kind.version_text(version or kind.versions[0]), "kind": kind.kind}


def prefix(kind: Kind, version: str) -> bytes:
    """`{"apiVersion":...,"kind":...,` to put before stored bytes without their first brace."""
    key = (kind.group, kind.plural, version)
    text = _prefixes.get(key)
    if text is None:
        text = _prefixes[key] = msgspec.json.encode(type_text(kind, version))[:-1] + b","
    return text


def render(kind: Kind, version: str, body: bytes) -> bytes:
    """Stored bytes as a whole object of a version."""
    return prefix(kind, version) + reshape(kind, version, body)[1:]


def reshape(kind: Kind, version: str, body: bytes) -> bytes:
    """Stored bytes as an object of a version, still without apiVersion and kind (list items)."""
    if isinstance(kind, CustomKind):
        if kind.definition.is_plain(version):
            return body
    elif (kind.group, version) not in _RESHAPED:
        return body
    return msgspec.json.encode(from_stored(kind, version, msgspec.json.decode(body)))


def from_stored(kind: Kind, version: str, obj: Object) -> Object:
    """A stored dict as a dict of a version, without apiVersion and kind."""
    if isinstance(kind, CustomKind):
        return kind.definition.from_stored(version, obj)
    if not version or (kind.group, version) not in _RESHAPED:
        return obj
    return convert.from_stored(kind.kind, version, obj)


def config_to_stored(kind: Kind, version: str, obj: Object) -> Object:
    """A partial object (an apply configuration) in the stored version: not defaulted. The input is not changed."""
    if isinstance(kind, CustomKind):
        return kind.definition.config(version, obj)
    out: Object = strip_nulls(copy_json(obj))
    if version and version != kind.versions[0]:
        out = convert.to_stored(kind.kind, version, out)
    out.pop("apiVersion", None)
    out.pop("kind", None)
    return out


def to_stored(kind: Kind, version: str, obj: Object, now: datetime) -> Object:
    """A sent dict in the stored version, defaulted, without nulls, apiVersion and kind; the input is not changed."""
    if isinstance(kind, CustomKind):
        return kind.definition.to_stored(version, obj)
    version = version or kind.versions[0]
    try:
        # Most objects hold no null, and looking for one in the bytes is cheaper than walking.
        has_nulls = b"null" in msgspec.json.encode(obj)
        out = defaults.apply(kind.kind, version, obj, now)
        if has_nulls:
            strip_nulls(out)
        if version != kind.versions[0]:
            out = convert.to_stored(kind.kind, version, out)
    except Invalid as wrong:
        raise bad_request(str(wrong)) from wrong
    out.pop("apiVersion", None)
    out.pop("kind", None)
    return out


def strip_nulls(value: Any, under: str = "") -> Any:
    """Drop null members of objects, in place: for the API null is absent, except inside what only drivers read.

    under: the field that the value is, or is an item of.
    """
    if isinstance(value, dict):
        gone: list[str] = []
        for key, inner in value.items():
            kind = type(inner)
            if kind is dict or kind is list:
                if (under, key) not in _OPAQUE:
                    strip_nulls(inner, key)
            elif inner is None:
                gone.append(key)
        for key in gone:
            del value[key]
    elif isinstance(value, list):
        for inner in value:
            if type(inner) is dict or type(inner) is list:
                strip_nulls(inner, under)
    return value
