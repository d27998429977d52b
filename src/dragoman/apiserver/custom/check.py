"""Does a custom resource fit its schema? Types, limits, patterns, formats, combinations; in kube-apiserver's words.

Returns causes (reason, text, path). CEL rules stand in `rules`. Source: JSON schema draft 4 as
apiextensions.k8s.io/v1 narrows it, and the messages of kube-openapi's validation.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
import re2

from dragoman.api.shape import Object
from dragoman.apiserver.custom.schema import SchemaNode

Cause = tuple[str, str, str]
INVALID, REQUIRED, TYPE = "FieldValueInvalid", "FieldValueRequired", "FieldValueTypeInvalid"
NOT_SUPPORTED, DUPLICATE = "FieldValueNotSupported", "FieldValueDuplicate"
TOO_LONG, TOO_MANY = "FieldValueTooLong", "FieldValueTooMany"


def quoted(value: Any) -> str:
    """A value as field errors show it."""
    return msgspec.json.encode(value).decode()


def causes(node: SchemaNode, obj: Object) -> list[Cause]:
    """What is wrong with a whole object; metadata is judged as that of every object is, elsewhere."""
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "apiVersion", "kind")}
    found = list(_check(node.raw, rest, "", skip=("metadata", "apiVersion", "kind")))
    return found + list(_lists(node, rest, ""))


def _check(schema: Object, value: Any, path: str, *, skip: tuple[str, ...] = ()) -> Iterator[Cause]:
    """One value against the keywords of one schema."""
    if value is None:
        if not schema.get("nullable") and (schema.get("type") or schema.get("x-kubernetes-int-or-string")):
            type_ = schema.get("type") or "integer,string"
            yield TYPE, f'Invalid value: "null": {path} in body must be of type {type_}: "null"', path
        return
    wrong = _wrong_type(schema, value, path)
    if wrong is not None:
        yield wrong
        return
    yield from _combined(schema, value, path)
    if (enum := schema.get("enum")) is not None and not any(_same(value, choice) for choice in enum):
        choices = ", ".join(f'"{c}"' if isinstance(c, str) else quoted(quoted(c)) for c in enum)
        yield NOT_SUPPORTED, f"Unsupported value: {quoted(value)}: supported values: {choices}", path
    if isinstance(value, str):
        yield from _check_text(schema, value, path)
    elif isinstance(value, bool):
        return
    elif isinstance(value, int | float):
        yield from _check_number(schema, value, path)
    elif isinstance(value, list):
        yield from _check_list(schema, value, path)
    elif isinstance(value, dict):
        yield from _check_object(schema, value, path, skip)


def _same(value: Any, choice: Any) -> bool:
    return value == choice and isinstance(value, bool) is isinstance(choice, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def type_of(value: Any) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    names: dict[type, str] = {dict: "object", list: "array", str: "string", float: "number", type(None): "null"}
    return names[type(value)]


def _wrong_type(schema: Object, value: Any, path: str) -> Cause | None:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, str) or _TYPES["integer"](value):
            return None
        wanted = "integer,string"
    else:
        wanted = schema.get("type") or ""
        fits = _TYPES.get(wanted)
        if fits is None or fits(value):
            return None
    got = type_of(value)
    return TYPE, f'Invalid value: "{got}": {path or ""} in body must be of type {wanted}: "{got}"', path


def _combined(schema: Object, value: Any, path: str) -> Iterator[Cause]:
    name = path or ""
    for inner in schema.get("allOf") or ():
        yield from _check(inner, value, path)
    if any_of := schema.get("anyOf"):
        tries = [list(_check(inner, value, path)) for inner in any_of]
        if all(tries):
            yield INVALID, f'Invalid value: "": "{name}" must validate at least one schema (anyOf)', path
            yield from min(tries, key=len)
    if one_of := schema.get("oneOf"):
        tries = [list(_check(inner, value, path)) for inner in one_of]
        good = sum(not failed for failed in tries)
        if good != 1:
            what = f"Found {good} valid alternatives" if good else "Found none valid"
            yield INVALID, f'Invalid value: "": "{name}" must validate one and only one schema (oneOf). {what}', path
            if not good:
                yield from min(tries, key=len)
    if (no := schema.get("not")) is not None and not list(_check(no, value, path)):
        yield INVALID, f'Invalid value: "": "{name}" must not validate the schema (not)', path


def _check_text(schema: Object, value: str, path: str) -> Iterator[Cause]:
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield TOO_LONG, f"Too long: may not be more than {most} bytes", path
    if (least := schema.get("minLength")) is not None and len(value) < least:
        yield INVALID, f"Invalid value: {quoted(value)}: {path} in body should be at least {least} chars long", path
    if (pattern := schema.get("pattern")) and not _pattern(pattern).search(value):
        yield INVALID, f"Invalid value: {quoted(value)}: {path} in body should match '{pattern}'", path
    form = schema.get("format")
    if form in FORMATS and not FORMATS[form](value):
        yield INVALID, f"Invalid value: {quoted(value)}: {path} in body must be of type {form}: {quoted(value)}", path


@lru_cache(1024)
def _pattern(text: str) -> Any:
    return re2.compile(text)


def is_pattern(text: str) -> bool:
    """Whether text is a regular expression that Go accepts."""
    try:
        _pattern(text)
    except re2.error:
        return False
    return True


def _check_number(schema: Object, value: float, path: str) -> Iterator[Cause]:
    if (most := schema.get("maximum")) is not None:
        exclusive = bool(schema.get("exclusiveMaximum"))
        if value > most or (exclusive and value == most):
            words = "less than" if exclusive else "less than or equal to"
            yield INVALID, f"Invalid value: {value}: {path} in body should be {words} {most}", path
    if (least := schema.get("minimum")) is not None:
        exclusive = bool(schema.get("exclusiveMinimum"))
        if value < least or (exclusive and value == least):
            words = "greater than" if exclusive else "greater than or equal to"
            yield INVALID, f"Invalid value: {value}: {path} in body should be {words} {least}", path
    if (step := schema.get("multipleOf")) and not _is_multiple(value, step):
        yield INVALID, f"Invalid value: {value}: {path} in body should be a multiple of {step}", path
    form = schema.get("format")
    bits = {"int32": 31, "int64": 63}.get(form or "")
    if bits and not -(2**bits) <= value < 2**bits:
        yield INVALID, f"Invalid value: {value}: {path} in body must be of type {form}: {value}", path


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    ratio = value / step
    return math.isclose(ratio, round(ratio), rel_tol=1e-9)


def _check_list(schema: Object, value: list[Any], path: str) -> Iterator[Cause]:
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield TOO_MANY, f"Too many: {len(value)}: must have at most {most} items", path
    if (least := schema.get("minItems")) is not None and len(value) < least:
        yield INVALID, f"Invalid value: {len(value)}: {path} in body should have at least {least} items", path
    items = schema.get("items")
    if isinstance(items, dict):
        for at, item in enumerate(value):
            yield from _check(items, item, f"{path}[{at}]")


def _check_object(schema: Object, value: Object, path: str, skip: tuple[str, ...]) -> Iterator[Cause]:
    for name in schema.get("required") or ():
        if name not in value and name not in skip:
            yield REQUIRED, "Required value", f"{path}.{name}" if path else name
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield TOO_MANY, f"Too many: {len(value)}: must have at most {most} items", path
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        yield INVALID, f"Invalid value: {len(value)}: {path} in body should have at least {least} properties", path
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    embedded = ("metadata",) if schema.get("x-kubernetes-embedded-resource") else ()
    if embedded:
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                yield REQUIRED, "Required value: must not be empty", f"{path}.{name}" if path else name
    for name, inner in value.items():
        if name in skip or name in embedded:
            continue
        below = properties.get(name)
        if below is None and isinstance(additional, dict):
            below = additional
        if below is not None:
            yield from _check(below, inner, f"{path}.{name}" if path else name)


# ---- lists that are sets or maps


def _lists(node: SchemaNode, value: Any, path: str) -> Iterator[Cause]:
    if isinstance(value, dict):
        for name, inner in value.items():
            member = node.member(name)
            if member is not None:
                yield from _lists(member, inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield from _repeated(node, value, path)
        if node.items is not None:
            for at, item in enumerate(value):
                yield from _lists(node.items, item, f"{path}[{at}]")


def _repeated(node: SchemaNode, value: list[Any], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, item in enumerate(value):
        if node.list_type == "set":
            shown: Any = item
        elif node.list_type == "map" and isinstance(item, dict):
            shown = {key: item[key] for key in node.keys if key in item}
        else:
            return
        text = msgspec.json.encode(shown, order="sorted").decode()
        if text in seen:
            yield DUPLICATE, f"Duplicate value: {text}", f"{path}[{at}]"
        seen.add(text)


# ---- formats


def _parses(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            read(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return fits


def _date_time(text: str) -> None:
    if not re.match(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$", text):
        raise ValueError(text)
    datetime.fromisoformat(text.upper())


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _uri(text: str) -> bool:
    return bool(urlsplit(text).scheme) or text.startswith("/")


def _uuid(version: str) -> Callable[[str], bool]:
    return _matches(rf"(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?[0-9a-f]{{4}}-?[0-9a-f]{{12}}")


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _parses(_date_time),
    "datetime": _parses(_date_time),
    "date": _parses(date.fromisoformat),
    "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(lambda text: ipaddress.ip_interface(text) if "/" in text else ipaddress.ip_interface("")),
    "email": _matches(r"[^@\s]+@[^@\s]+"),
    "hostname": _matches(
        r"([a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
    ),
    "mac": _matches(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}"),
    "uri": _uri,
    "uuid": _uuid("[0-9a-f]"),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
    "duration": _matches(r"[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*|0"),
    "k8s-short-name": _matches(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    "k8s-long-name": _matches(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
}
