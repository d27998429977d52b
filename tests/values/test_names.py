"""Names: what the API takes, and the reason where it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.values import names

LONG = "a" * 64
Check = Callable[[str], str | None]

TAKEN: dict[str, tuple[Check, str]] = {
    "a label": (names.dns_label, "gpu-0"),
    "a label of 63": (names.dns_label, LONG[:63]),
    "a label that starts with a digit": (names.dns_label, "0a"),
    "a service's name": (names.dns_label_1035, "a-0"),
    "a subdomain": (names.dns_subdomain, "gpu.example.com"),
    "a bare label key": (names.label_key, "App.kubernetes_io-x"),
    "a label key with prefix": (names.label_key, "example.com/Name"),
    "an empty label value": (names.label_value, ""),
    "a label value": (names.label_value, "A.b_c-1"),
    "an identifier": (names.c_identifier, "_model1"),
    "a driver": (names.driver_name, "gpu.example.com"),
    "a driver in capitals": (names.driver_name, "GPU.example.com"),
    "a pool": (names.pool_name, "worker-1"),
    "a pool with segments": (names.pool_name, "rack-a/nvswitch-0"),
    "a bare attribute": (names.qualified_name, "model"),
    "an attribute with domain": (names.qualified_name, "gpu.example.com/model"),
    "a full attribute": (names.fully_qualified_name, "gpu.example.com/model"),
}


@pytest.mark.parametrize("case", TAKEN, ids=str)
def test_takes(case: str) -> None:
    check, text = TAKEN[case]
    assert check(text) is None


REFUSED: dict[str, tuple[Check, str, str]] = {
    "an empty label": (names.dns_label, "", "must consist of lower case"),
    "capitals": (names.dns_label, "GPU", "must consist of lower case"),
    "a dot in a label": (names.dns_label, "a.b", "must not contain dots"),
    "a long label": (names.dns_label, LONG, "no more than 63 bytes"),
    "a trailing newline": (names.dns_label, "a\n", "must consist of"),
    "a digit first in a service": (names.dns_label_1035, "0a", "start with an alphabetic character"),
    "a double dot": (names.dns_subdomain, "a..b", "RFC 1123 subdomain"),
    "a long subdomain": (names.dns_subdomain, "a." * 130 + "a", "no more than 253 bytes"),
    "two slashes in a key": (names.label_key, "a/b/c", "a valid label key must consist of"),
    "an empty prefix": (names.label_key, "/a", "prefix part must be non-empty"),
    "a bad prefix": (names.label_key, "A/b", "prefix part a lowercase RFC 1123"),
    "an empty key": (names.label_key, "", "name part must be non-empty"),
    "a long key": (names.label_key, LONG, "name part must be no more than 63 bytes"),
    "a dash at the end of a value": (names.label_value, "a-", "a valid label must be an empty string or consist of"),
    "a long value": (names.label_value, LONG, "no more than 63 bytes"),
    "a digit first in an identifier": (names.c_identifier, "1a", "a valid C identifier must start with"),
    "no driver": (names.driver_name, "", "must be non-empty"),
    "a long driver": (names.driver_name, LONG, "no more than 63 bytes"),
    "no pool": (names.pool_name, "", "must be non-empty"),
    "an empty segment of a pool": (names.pool_name, "a//b", "RFC 1123 subdomain"),
    "no attribute": (names.qualified_name, "", "name must be non-empty"),
    "two slashes in an attribute": (names.qualified_name, "a/b/c", "must not contain more than one slash"),
    "an attribute without its domain": (names.qualified_name, "/b", "the domain must not be empty"),
    "an attribute without its name": (names.qualified_name, "a/", "the name must not be empty"),
    "a long attribute": (names.qualified_name, "a" * 33, "no more than 32 bytes"),
    "a bad attribute": (names.qualified_name, "a-b", "C identifier"),
    "a bare name where the domain is needed": (names.fully_qualified_name, "model", "must include a domain"),
    "bytes count, not characters": (names.label_value, "é" * 32, "no more than 63 bytes"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refuses(case: str) -> None:
    check, text, reason = REFUSED[case]
    assert reason in (check(text) or "")


def test_a_bare_attribute_belongs_to_the_driver() -> None:
    assert names.split_qualified("model", "gpu.example.com") == ("gpu.example.com", "model")
    assert names.split_qualified("other.example.com/model", "gpu.example.com") == ("other.example.com", "model")
