"""Is this a name? The syntax of Kubernetes' names: each function returns the reason of a no, or None.

Reasons follow the API's wording, without a field path: who asks knows where the name stands. Never changes a name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253
DRIVER_NAME_MAX: Final = 63
ATTRIBUTE_ID_MAX: Final = 32
POOL_NAME_MAX: Final = 253

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_label_re, _subdomain_re, _label_1035_re = re.compile(_LABEL), re.compile(_SUBDOMAIN), re.compile(_LABEL_1035)
_key_name_re, _identifier_re = re.compile(_KEY_NAME), re.compile(_IDENTIFIER)

_ALNUM = "lower case alphanumeric characters"
_ENDS = "must start and end with an alphanumeric character"


def _by_pattern(what: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def dns_label(text: str) -> str | None:
    """RFC 1123 label, at most 63 bytes: names of requests, devices, namespaces, ..."""
    if _size(text) > LABEL_MAX:
        return _too_long(LABEL_MAX)
    if _label_re.fullmatch(text):
        return None
    if _subdomain_re.fullmatch(text):
        return "must not contain dots"
    what = f"a lowercase RFC 1123 label must consist of {_ALNUM} or '-', and {_ENDS}"
    return _by_pattern(what, _LABEL, "my-name", "123-abc")


def dns_label_1035(text: str) -> str | None:
    """RFC 1035 label (starts with a letter), at most 63 bytes: names of Services."""
    if _size(text) > LABEL_MAX:
        return _too_long(LABEL_MAX)
    if _label_1035_re.fullmatch(text):
        return None
    what = (
        f"a DNS-1035 label must consist of {_ALNUM} or '-', start with an alphabetic character, "
        "and end with an alphanumeric character"
    )
    return _by_pattern(what, _LABEL_1035, "my-name", "abc-123")


def dns_subdomain(text: str) -> str | None:
    """RFC 1123 subdomain, at most 253 bytes: names of most objects."""
    if _size(text) > SUBDOMAIN_MAX:
        return _too_long(SUBDOMAIN_MAX)
    if _subdomain_re.fullmatch(text):
        return None
    what = f"a lowercase RFC 1123 subdomain must consist of {_ALNUM}, '-' or '.', and {_ENDS}"
    return _by_pattern(what, _SUBDOMAIN, "example.com")


@lru_cache(maxsize=4096)
def label_key(text: str) -> str | None:
    """`[prefix/]name`: keys of labels, annotations, taints; names of resources. The same few in most objects."""
    parts = text.split("/")
    what = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}"
    name_examples = ("MyName", "my.name", "123-abc")
    if len(parts) > 2:
        pattern = _by_pattern(what, _KEY_NAME, *name_examples)
        return f"a valid label key {pattern} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
    if len(parts) == 2:
        if not parts[0]:
            return "prefix part must be non-empty"
        reason = dns_subdomain(parts[0])
        if reason:
            return f"prefix part {reason}"
    name = parts[-1]
    if not name:
        return "name part must be non-empty"
    if _size(name) > LABEL_MAX:
        return f"name part {_too_long(LABEL_MAX)}"
    if not _key_name_re.fullmatch(name):
        return f"name part {_by_pattern(what, _KEY_NAME, *name_examples)}"
    return None


def label_value(text: str) -> str | None:
    """Empty, or as a label key's name: values of labels and taints."""
    if _size(text) > LABEL_MAX:
        return _too_long(LABEL_MAX)
    if not text or _key_name_re.fullmatch(text):
        return None
    what = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}"
    return _by_pattern(what, f"({_KEY_NAME})?", "MyValue", "my_value", "12345")


def c_identifier(text: str) -> str | None:
    """An identifier of C, of any length."""
    if _identifier_re.fullmatch(text):
        return None
    what = (
        "a valid C identifier must start with alphabetic character or '_', "
        "followed by a string of alphanumeric characters or '_'"
    )
    return _by_pattern(what, _IDENTIFIER, "my_name", "MY_NAME", "MyName")


def driver_name(text: str) -> str | None:
    """A DRA driver: DNS subdomain after lower-casing, at most 63 bytes."""
    if not text:
        return "must be non-empty"
    if _size(text) > DRIVER_NAME_MAX:
        return _too_long(DRIVER_NAME_MAX)
    return dns_subdomain(text.lower() if text.isascii() else text)


def pool_name(text: str) -> str | None:
    """A pool: DNS subdomains separated by `/`, at most 253 bytes together."""
    if not text:
        return "must be non-empty"
    if _size(text) > POOL_NAME_MAX:
        return _too_long(POOL_NAME_MAX)
    return next((reason for part in text.split("/") if (reason := dns_subdomain(part))), None)


def qualified_name(text: str) -> str | None:
    """A key of attributes or capacity: a C identifier (at most 32 bytes), with or without `domain/`."""
    if not text:
        return "name must be non-empty"
    parts = text.split("/")
    if len(parts) > 2:
        return "must not contain more than one slash"
    if len(parts) == 2:
        if not parts[0]:
            return "the domain must not be empty"
        if not parts[1]:
            return "the name must not be empty"
        reason = driver_name(parts[0])
        if reason:
            return f"domain {parts[0]!r}: {reason}"
    if _size(parts[-1]) > ATTRIBUTE_ID_MAX:
        return _too_long(ATTRIBUTE_ID_MAX)
    return c_identifier(parts[-1])


def fully_qualified_name(text: str) -> str | None:
    """A qualified name that has its domain: matchAttribute, distinctAttribute, ..."""
    reason = qualified_name(text)
    if reason:
        return reason
    return None if "/" in text else "must include a domain"


def split_qualified(text: str, driver: str) -> tuple[str, str]:
    """Domain and identifier of a key; a bare name is in the driver's domain."""
    domain, slash, name = text.partition("/")
    return (domain, name) if slash else (driver, text)
