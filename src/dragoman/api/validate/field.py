"""What is wrong with which field, in the API server's words?

A FieldError is one finding, a Path its place. Checks collect FieldErrors in lists; nothing here raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import msgspec

from dragoman.values.quantity import Quantity

REQUIRED = "Required"
INVALID = "Invalid"
DUPLICATE = "Duplicate"
NOT_SUPPORTED = "NotSupported"
FORBIDDEN = "Forbidden"
TOO_LONG = "TooLong"
TOO_MANY = "TooMany"
NOT_FOUND = "NotFound"
TYPE_INVALID = "TypeInvalid"

IMMUTABLE = "field is immutable"
OMITTED = "<value omitted>"

_WORDS = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    DUPLICATE: "Duplicate value",
    NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    NOT_FOUND: "Not found",
    TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE = frozenset({REQUIRED, FORBIDDEN, TOO_LONG})


class FieldError(msgspec.Struct, frozen=True):
    """One finding. `type` is one of this module's constants; str() is `path: body` as kubectl shows it."""

    path: str
    type: str
    value: Any = None
    detail: str = ""

    @property
    def reason(self) -> str:
        """The `reason` of a Status cause."""
        return f"FieldValue{self.type}"

    @property
    def body(self) -> str:
        """The `message` of a Status cause."""
        text = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"


Errors = list[FieldError]


def _shown(value: Any) -> str:
    if isinstance(value, Quantity):
        return f'"{value}"'
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


class FieldPath:
    """A field's place: `spec.devices.requests[0].name`, map entries as `labels[key]`."""

    __slots__ = ("text",)

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __getitem__(self, key: int | str) -> FieldPath:
        return FieldPath(f"{self.text}[{key}]")

    def __truediv__(self, field: str) -> FieldPath:
        return FieldPath(f"{self.text}.{field}" if self.text else field)

    def __str__(self) -> str:
        return self.text

    # ---- findings at this place

    def required(self, detail: str = "") -> FieldError:
        """The field must be there."""
        return FieldError(self.text, REQUIRED, None, detail)

    def invalid(self, value: Any, detail: str) -> FieldError:
        """The value breaks a rule."""
        return FieldError(self.text, INVALID, value, detail)

    def duplicate(self, value: Any) -> FieldError:
        """The value must be unique."""
        return FieldError(self.text, DUPLICATE, value)

    def forbidden(self, detail: str) -> FieldError:
        """The field must not be set or changed here."""
        return FieldError(self.text, FORBIDDEN, None, detail)

    def not_supported(self, value: Any, supported: Iterable[str]) -> FieldError:
        """The value is none of those known, which are listed in the order given."""
        names = ", ".join(json.dumps(name) for name in supported)
        return FieldError(self.text, NOT_SUPPORTED, value, f"supported values: {names}")

    def too_long(self, limit: int) -> FieldError:
        """More bytes than allowed."""
        return FieldError(self.text, TOO_LONG, None, f"may not be more than {limit} bytes")

    def too_many(self, count: int, limit: int) -> FieldError:
        """More items than allowed."""
        noun = "item" if limit == 1 else "items"
        return FieldError(self.text, TOO_MANY, count, f"must have at most {limit} {noun}")

    def not_found(self, value: Any, detail: str = "") -> FieldError:
        """The value refers to something that is not there."""
        return FieldError(self.text, NOT_FOUND, value, detail)


FieldCheck = Callable[[Any, FieldPath], Errors]
FieldReason = Callable[[str], str | None]


def by_name(text: Any, path: FieldPath, reason: FieldReason) -> Errors:
    """Required text that a rule of `values.names` accepts."""
    if not text:
        return [path.required()]
    return by_rule(text, path, reason)


def by_rule(text: Any, path: FieldPath, reason: FieldReason) -> Errors:
    """Text, possibly empty, that a rule accepts."""
    why = reason(str(text))
    return [path.invalid(text, why)] if why else []


def one_of(value: Any, path: FieldPath, supported: tuple[str, ...]) -> Errors:
    """Required, and one of the values known."""
    if not value:
        return [path.required()]
    return [] if value in supported else [path.not_supported(value, supported)]


def at_least(value: Any, path: FieldPath, least: int = 0) -> Errors:
    """A number, if there is one, not below a bound."""
    if isinstance(value, int) and not isinstance(value, bool) and value < least:
        return [path.invalid(value, f"must be greater than or equal to {least}")]
    return []


def each(values: list[Any], path: FieldPath, check: FieldCheck, *, limit: int | None = None) -> Errors:
    """Checks the items, and that there are not too many; items beyond the limit are not looked at."""
    errors: Errors = []
    if limit is not None and len(values) > limit:
        errors.append(path.too_many(len(values), limit))
        values = values[:limit]
    for index, value in enumerate(values):
        errors += check(value, path[index])
    return errors


def unique(values: list[Any], path: FieldPath, key: Callable[[Any], Hashable], *field: str) -> Errors:
    """Reports the second and later of items with an equal key (None: no key, not compared)."""
    errors: Errors = []
    seen: set[Hashable] = set()
    for index, value in enumerate(values):
        name = key(value)
        if name is None:
            continue
        if not isinstance(name, str | tuple):
            name = str(name)
        if name in seen:
            place = path[index]
            for part in field:
                place = place / part
            errors.append(place.duplicate(name))
        seen.add(name)
    return errors


def immutable(new: Any, old: Any, path: FieldPath) -> Errors:
    """The value must equal the stored one; null, absent and empty are equal."""
    return [] if same(new, old) else [path.invalid(new, IMMUTABLE)]


def same(one: Any, two: Any) -> bool:
    """Semantic equality: null, absent and empty containers are equal, at any depth."""
    return bool(pruned(one) == pruned(two))


def pruned(value: Any) -> Any:
    """Without null members and empty containers. True and 1 stay apart."""
    if isinstance(value, dict):
        kept = {k: p for k, v in value.items() if (p := pruned(v)) is not None}
        return kept or None
    if isinstance(value, list | tuple):
        return [pruned(item) for item in value] or None
    return ("bool", value) if isinstance(value, bool) else value


def number(holder: dict[str, Any], field: str) -> int | None:
    """The integer under the field, if there is one."""
    value = holder.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def split_path(text: str) -> tuple[str | int, ...]:
    """`spec.requests[0].labels[a.b/c]` as ("spec", "requests", 0, "labels", "a.b/c")."""
    steps: list[str | int] = []
    for found in _STEP.finditer(text):
        key = found["key"]
        if key is None:
            steps.append(found["field"])
        else:
            steps.append(int(key) if key.isdigit() else key)
    return tuple(steps)


_STEP = re.compile(r"\[(?P<key>[^\]]*)\]|(?P<field>[^.\[]+)")


def path_text(steps: Iterable[str | int]) -> str:
    """`spec.devices.requests[0]` of its steps; keys with dots stand in brackets."""
    text = ""
    for step in steps:
        is_plain = isinstance(step, str) and "." not in step
        text += (f".{step}" if text else str(step)) if is_plain else f"[{step}]"
    return text
