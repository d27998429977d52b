"""Does a string have a named format? `format.dns1123Label().validate(s)` gives none, or a list of reasons."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime
from typing import Final

import msgspec

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import free, member
from dragoman.cel.stdlib.url import parse_url
from dragoman.cel.values import NONE, STRICT_EQUALITY, TYPE_OF, Optional
from dragoman.values import names

FORMAT_TYPE: Final = t.struct("kubernetes.NamedFormat")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_DATETIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)

FormatCheck = Callable[[str], str | None]


class NamedFormat(msgspec.Struct, frozen=True):
    """A named format; check gives the reason of a no."""

    name: str
    check: FormatCheck

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFormat) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


TYPE_OF[NamedFormat] = FORMAT_TYPE
STRICT_EQUALITY.add(NamedFormat)


def _prefix(check: FormatCheck) -> FormatCheck:
    """The same for the beginning of a name: a dash at the end is fine."""
    return lambda text: check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> str | None:
    try:
        parse_url(text)
    except EvalError as error:
        return error.message.removeprefix("URL parse error during conversion from string: ")
    return None


def _uuid(text: str) -> str | None:
    return None if _UUID.fullmatch(text) else "does not match the UUID format"


def _byte(text: str) -> str | None:
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "invalid base64"
    return None


def _date(text: str) -> str | None:
    try:
        date.fromisoformat(text if len(text) == 10 else "")
    except ValueError:
        return "invalid date"
    return None


def _datetime(text: str) -> str | None:
    if not _DATETIME.fullmatch(text):
        return "invalid datetime"
    try:
        datetime.fromisoformat(f"{text[:10]}T{text[11:19]}")
    except ValueError:
        return "invalid datetime"
    return None


FORMATS: Final = {
    "dns1123Label": NamedFormat("DNS1123Label", names.dns_label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", names.dns_subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", names.dns_label_1035),
    "qualifiedName": NamedFormat("QualifiedName", names.label_key),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(names.dns_label)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(names.dns_subdomain)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(names.dns_label_1035)),
    "labelValue": NamedFormat("LabelValue", names.label_value),
    "uri": NamedFormat("URI", _uri),
    "uuid": NamedFormat("uuid", _uuid),
    "byte": NamedFormat("byte", _byte),
    "date": NamedFormat("date", _date),
    "datetime": NamedFormat("datetime", _datetime),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(format: NamedFormat, text: str) -> Optional:
    reason = format.check(text)
    return NONE if reason is None else Optional((reason,))


def _constant(found: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: found


OVERLOADS: Final = [
    *(free(f"format.{name}", f"format.{name}", (), FORMAT_TYPE, _constant(found)) for name, found in FORMATS.items()),
    free("format.named", "format-named", (t.STRING,), t.optional_of(FORMAT_TYPE), _named),
    member("validate", "format-validate", (FORMAT_TYPE, t.STRING), t.optional_of(t.list_of(t.STRING)), _validate),
]
