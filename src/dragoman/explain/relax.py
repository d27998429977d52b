"""Which selectors are a little weaker, or mean what was meant? Texts near a selector's text.

Leaves out one condition of a conjunction, takes a value that devices have, lowers a threshold, corrects a name.
Never judges: whoever uses a text compiles and tries it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from dragoman.api.resource import Device
from dragoman.values.names import split_qualified
from dragoman.values.quantity import Quantity

VALUES_MAX = 3

_ATTRIBUTE = r"""device\.attributes\[(?P<q>['"])(?P<domain>[^'"]+)(?P=q)\]\.(?P<name>\w+)"""
_EQUAL = re.compile(_ATTRIBUTE + r"""\s*==\s*(?P<v>['"])(?P<value>[^'"]*)(?P=v)""")
_AT_LEAST = re.compile(
    r"""device\.capacity\[(?P<q>['"])(?P<domain>[^'"]+)(?P=q)\]\.(?P<name>\w+)"""
    r"""\.(?P<test>compareTo\(quantity\((?P<v>['"])(?P<value>[^'"]+)(?P=v)\)\)\s*>=?\s*0"""
    r"""|isGreaterThan\(quantity\((?P<w>['"])(?P<more>[^'"]+)(?P=w)\)\))"""
)
_NUMBER = re.compile(_ATTRIBUTE + r"""\s*(?P<sign>>=|==)\s*(?P<value>-?\d+)""")


def conjuncts(text: str) -> list[str]:
    """The conditions that `&&` joins at the top level; [text] if there is one."""
    parts, depth, start, quote, i = [], 0, 0, "", 0
    while i < len(text):
        sign = text[i]
        if quote:
            if sign == "\\":
                i += 1
            elif sign == quote:
                quote = ""
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith("||", i):
            return [text.strip()]
        elif depth == 0 and text.startswith("&&", i):
            parts.append(text[start:i].strip())
            start, i = i + 2, i + 1
        i += 1
    return [*parts, text[start:].strip()]


def weaker(text: str, devices: Iterable[Device], driver: str) -> Iterator[str]:
    """Weaker texts, the smallest change first; "" to leave the selector out."""
    known = list(devices)
    yield from _other_values(text, known, driver)
    yield from _lower(text, known, driver)
    parts = conjuncts(text)
    if len(parts) > 1:
        for index in reversed(range(len(parts))):
            yield " && ".join(part for i, part in enumerate(parts) if i != index)
    yield ""


def _other_values(text: str, devices: Sequence[Device], driver: str) -> Iterator[str]:
    for found in _EQUAL.finditer(text):
        values = {v for v in _values(devices, driver, found["domain"], found["name"]) if isinstance(v, str)}
        for value in sorted(values - {found["value"]})[:VALUES_MAX]:
            if found["v"] not in value:
                yield text[: found.start("value")] + value + text[found.end("value") :]
    for found in _NUMBER.finditer(text):
        numbers = {v for v in _values(devices, driver, found["domain"], found["name"]) if type(v) is int}
        asked = int(found["value"])
        below = sorted((n for n in numbers if n != asked and (found["sign"] == "==" or n < asked)), reverse=True)
        for number in below[:VALUES_MAX]:
            yield text[: found.start("value")] + str(number) + text[found.end("value") :]


def _values(devices: Iterable[Device], driver: str, domain: str, name: str) -> Iterator[object]:
    for device in devices:
        for key, attribute in device.attributes.items():
            if split_qualified(key, driver) == (domain, name):
                yield from (v for v in (attribute.string, attribute.int_) if v is not None)


def _lower(text: str, devices: Sequence[Device], driver: str) -> Iterator[str]:
    for found in _AT_LEAST.finditer(text):
        group = "value" if found["value"] is not None else "more"
        try:
            asked = Quantity.parse(found[group])
        except ValueError:
            continue
        amounts = {
            entry.value
            for device in devices
            for key, entry in device.capacity.items()
            if entry.value is not None and split_qualified(key, driver) == (found["domain"], found["name"])
        }
        for amount in sorted((a for a in amounts if a < asked), reverse=True)[:VALUES_MAX]:
            strict = group == "more" or ">=" not in found["test"]
            test = f"compareTo(quantity('{amount}')) >= 0"
            if strict:
                yield text[: found.start("test")] + test + text[found.end("test") :]
            else:
                yield text[: found.start(group)] + str(amount) + text[found.end(group) :]


def corrected(text: str, missing: str, devices: Iterable[Device], driver: str) -> Iterator[str]:
    """The text with a name that no device has (domain/name) replaced by one that is meant: a capacity of the same
    name, or an attribute with a similar one."""
    from difflib import get_close_matches

    domain, _, name = missing.rpartition("/")
    known = list(devices)
    capacity = {split_qualified(key, driver) for device in known for key in device.capacity}
    attributes = {split_qualified(key, driver) for device in known for key in device.attributes}
    for quote in "'\"":
        old = f"device.attributes[{quote}{domain}{quote}].{name}"
        if old not in text:
            continue
        if (domain, name) in capacity:
            yield text.replace(old, f"device.capacity[{quote}{domain}{quote}].{name}")
        same = sorted(other for other, last in attributes if last == name and other != domain)
        for other in same[:VALUES_MAX]:
            yield text.replace(old, f"device.attributes[{quote}{other}{quote}].{name}")
        near = get_close_matches(name, sorted(last for other, last in attributes if other == domain), VALUES_MAX)
        for last in near:
            if last != name:
                yield text.replace(old, f"device.attributes[{quote}{domain}{quote}].{last}")
