"""What are this daemon's settings? Flags first, then DRAGOMAN_* of the environment, then the default.

Settings are msgspec structs; a value that does not fit is one clear error naming the flag or variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from dragoman.errors import Invalid

S = TypeVar("S", bound=msgspec.Struct)

PREFIX = "DRAGOMAN_"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def variable(setting: str) -> str:
    """The environment variable of a setting or flag: `--lease-name` is DRAGOMAN_LEASE_NAME."""
    return PREFIX + setting.lstrip("-").replace("-", "_").replace(".", "_").upper()


def load(type_: type[S], flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> S:
    """Settings of that type. `flags` holds what was given, by field name; None means not given.

    Fields of seconds (`*_s`) also take durations such as `5m`. Raises Invalid.
    """
    environ = os.environ if environ is None else environ
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(type_):
        where = f"--{field.name.replace('_', '-')}"
        value = (flags or {}).get(field.name)
        if value is None:
            where = variable(field.name)
            value = environ.get(where)
        if value is None:
            continue
        if isinstance(value, str) and field.name.endswith("_s"):
            value = duration_s(value, where)
        try:
            given[field.name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError as error:
            raise Invalid(where, f"got {value!r}: {error}") from None
    try:
        return type_(**given)
    except TypeError as error:
        raise Invalid("settings", str(error)) from None


def duration_s(text: str, where: str = "duration") -> float:
    """Seconds of `90`, `1.5h`, `5m30s`. Raises Invalid."""
    text = text.strip()
    parts = _DURATION.findall(text)
    if parts and "".join(n + u for n, u in parts) == text:
        return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        raise Invalid(where, f"must be a duration such as 30s, 5m or 1h30m, got {text!r}") from None
