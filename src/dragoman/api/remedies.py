"""What to do about a value that cannot be read, or that a server refuses? One line of help for each kind of fault.

Texts for people, behind `help:`. Knows no other objects: what only a cluster shows is for lint and explain to say.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.validate.field import (
    DUPLICATE,
    FORBIDDEN,
    IMMUTABLE,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    FieldError,
)

_TEXT = "must be a string"
_SHOWN = 40
KEEP = "keep the field as it is, or delete the object and create it again"


def of_type(message: str, written: str | None) -> str:
    """For `must be ..., got ...` of the codec. written: the scalar as it stands in the file, None for no scalar."""
    wanted, _, got = message.partition(", got ")
    shown = written if written is not None and written and len(written) <= _SHOWN else None
    if wanted == _TEXT and got in ("an integer", "a number", "true or false"):
        return f'quote it: "{shown}"' if shown is not None else "quote it"
    if wanted == _TEXT:
        return "write one text"
    if got == "a string" and shown is not None and _is(wanted, shown):
        return f"write {shown} without quotes"
    return _WANTED.get(wanted, "")


def literal(message: str, written: str) -> Any:
    """The value that was meant, where quotes alone are wrong; None where that is not sure."""
    wanted, _, got = message.partition(", got ")
    if wanted == _TEXT and got in ("an integer", "a number", "true or false"):
        return written
    if got == "a string" and _is(wanted, written):
        return written == "true" if wanted == "must be true or false" else int(written)
    return None


def _is(wanted: str, written: str) -> bool:
    if wanted == "must be an integer":
        return written.isascii() and written.removeprefix("-").isdigit() and len(written) < 19
    return wanted == "must be true or false" and written in ("true", "false")


_WANTED = {
    "must be an integer": "write a whole number",
    "must be a number": "write a number",
    "must be true or false": "write true or false",
    "must be a list": "begin each entry with a hyphen: - ...",
    "must be an object": "write fields, name: value, or leave it out",
    "must be a quantity": "write a quantity such as 2, 500m or 16Gi",
}


def of_field(error: FieldError) -> str:
    """For a finding of `api.validate`, "" where the server's words say it."""
    if IMMUTABLE in error.detail or "may not change fields" in error.detail or error.detail.startswith("updates to "):
        return KEEP
    name = error.path.rpartition(".")[2] or error.path
    return _FAULTS.get(error.type, "correct {name}").format(name=name)


_FAULTS = {
    REQUIRED: "set {name}",
    DUPLICATE: "rename or remove one of the two",
    NOT_SUPPORTED: "write one of the values named",
    TOO_LONG: "make it shorter",
    TOO_MANY: "leave some out",
    FORBIDDEN: "leave {name} out, or change what forbids it",
}


def of_syntax(what: str) -> str:
    """For text that is no YAML or JSON."""
    if "JSON" in what:
        return "look for a missing comma, quote or bracket before this place"
    if "mapping values are not allowed" in what:
        return "quote a text that holds `: `, and align the keys of one object"
    if "tab" in what or "'\\t'" in what:
        return "indent with spaces"
    return "check indentation, colons, quotes and brackets from here upwards"
