"""Which objects does a list or watch ask for? Label and field selectors, parsed once and matched often.

Texts are those of `labelSelector` and `fieldSelector`; anything malformed is refused with 400. Label selectors
inside objects (spec.selector) are turned into the same requirements by `of_object`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.apiserver.status import bad_request

_TOKEN = re.compile(r"\s*(?:(!=|==|=|!|\(|\)|,|<|>)|([^\s=!(),<>]+))")
_KEY = re.compile(r"([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$")


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """operator: in, notin, exists, absent, gt or lt. `=` is `in` with one value."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy it; a missing key satisfies notin and absent."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        try:
            number, bound = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.operator == "gt" else number < bound


Requirements = tuple[Requirement, ...]


def accepts(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy all."""
    return all(requirement.accepts(labels) for requirement in requirements)


def parse_labels(text: str) -> Requirements:
    """`a=b,c!=d,e in (f,g),!h,i` to requirements."""
    tokens = _tokens(text)
    out: list[Requirement] = []
    at = 0
    while at < len(tokens):
        requirement, at = _requirement(tokens, at, text)
        out.append(requirement)
        if at < len(tokens):
            if tokens[at] != ",":
                raise _unparsable(text, f"found '{tokens[at]}', expected: ',' or end")
            at += 1
    return tuple(out)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unparsable(text, f"unexpected character at {at}")
        tokens.append(found.group(1) or found.group(2))
        at = found.end()
    return tokens


def _requirement(tokens: list[str], at: int, text: str) -> tuple[Requirement, int]:
    absent = tokens[at] == "!"
    at += absent
    if at >= len(tokens) or not _KEY.match(tokens[at]):
        raise _unparsable(text, f"'{tokens[at] if at < len(tokens) else ''}' is not a label key")
    key = tokens[at]
    at += 1
    if absent:
        return Requirement(key, "absent"), at
    if at >= len(tokens) or tokens[at] == ",":
        return Requirement(key, "exists"), at
    operator = tokens[at]
    at += 1
    if operator in ("=", "==", "!=", "<", ">"):
        value = ""
        if at < len(tokens) and tokens[at] != ",":
            value = tokens[at]
            at += 1
        word = {"=": "in", "==": "in", "!=": "notin", "<": "lt", ">": "gt"}[operator]
        return Requirement(key, word, (value,)), at
    if operator in ("in", "notin"):
        values, at = _value_set(tokens, at, text)
        return Requirement(key, operator, values), at
    raise _unparsable(text, f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _value_set(tokens: list[str], at: int, text: str) -> tuple[tuple[str, ...], int]:
    if at >= len(tokens) or tokens[at] != "(":
        raise _unparsable(text, "expected '(' after in or notin")
    values: list[str] = []
    at += 1
    while at < len(tokens) and tokens[at] != ")":
        if tokens[at] != ",":
            values.append(tokens[at])
        at += 1
    if at >= len(tokens):
        raise _unparsable(text, "expected ')'")
    return tuple(values), at + 1


def _unparsable(text: str, why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {text!r}: {why}")


def of_object(selector: Mapping[str, Any] | None) -> Requirements | None:
    """A metav1.LabelSelector as requirements; None selects nothing, an empty one everything."""
    if selector is None:
        return None
    words = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    out = [Requirement(key, "in", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        operator = words.get(expression.get("operator", ""), "absent")
        out.append(Requirement(expression.get("key", ""), operator, tuple(expression.get("values") or ())))
    return tuple(out)


def to_text(requirements: Requirements) -> str:
    """Requirements as the text of a selector, keys and values sorted (tables, Scale.status.selector)."""
    parts = []
    for one in sorted(requirements, key=lambda one: one.key):
        match one.operator:
            case "in" if len(one.values) == 1:
                parts.append(f"{one.key}={one.values[0]}")
            case "in" | "notin":
                parts.append(f"{one.key} {one.operator} ({','.join(sorted(one.values))})")
            case "exists":
                parts.append(one.key)
            case "absent":
                parts.append(f"!{one.key}")
    return ",".join(parts)


class FieldTerm(msgspec.Struct, frozen=True, gc=False):
    """One `key=value` or `key!=value`."""

    key: str
    value: str
    equal: bool


def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """`a.b=c,d!=` to terms; `\\,`, `\\=` and `\\\\` are escapes."""
    terms: list[FieldTerm] = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        found = re.match(r"((?:\\.|[^=!\\])+)(!=|==|=)(.*)$", part, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid field selector: {text!r}; can't understand {part!r}")
        value = re.sub(r"\\([\\,=])", r"\1", found.group(3))
        terms.append(FieldTerm(found.group(1).strip(), value, found.group(2) != "!="))
    return tuple(terms)
