"""Which version is newer? Semantic versions by the letter of semver.org 2.0.0, with a tolerant way in.

Build metadata is kept in the text and ignored by order, equality and hash. Never guesses: what is not a version
is a ValueError.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Final

_NUMBER_MAX: Final = 2**64 - 1
_DIGITS = re.compile(r"[0-9]+")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")

_Key = tuple[int, int, int, int, tuple[tuple[int, int, str], ...]]


@total_ordering
class Semver:
    """major.minor.patch[-pre][+build]; `key` orders it, `str()` is its text. Immutable."""

    __slots__ = ("_text", "key")

    key: _Key
    _text: str

    def __init__(self, key: _Key, text: str) -> None:
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_text", text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Semver is immutable: cannot set {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return (Semver, (self.key, self._text))

    @staticmethod
    def parse(text: str, *, normalize: bool = False) -> Semver:
        """Reads a version; raises ValueError with the reason.

        normalize strips spaces around, one leading `v` and leading zeros of the three numbers, and adds missing
        numbers as 0 (but not to a version with a pre-release or build part), as Kubernetes' CEL library does.
        """
        return _parse(_normalized(text) if normalize else text)

    @property
    def major(self) -> int:
        """First number."""
        return self.key[0]

    @property
    def minor(self) -> int:
        """Second number."""
        return self.key[1]

    @property
    def patch(self) -> int:
        """Third number."""
        return self.key[2]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Semver({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Semver) else NotImplemented

    def __lt__(self, other: Semver) -> bool:
        return self.key < other.key if isinstance(other, Semver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


def _normalized(text: str) -> str:
    parts = text.strip().removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] in "0123456789" else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise ValueError("a short version cannot have a pre-release or build part")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Semver:
    if not text:
        raise ValueError("a version must not be empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError(f"a version has the form major.minor.patch, got {text[:64]!r}")
    rest, plus, build = parts[2].partition("+")
    patch, minus, pre = rest.partition("-")
    major = _number(parts[0], "major number")
    minor = _number(parts[1], "minor number")
    key_pre = tuple(_pre_identifier(part) for part in pre.split(".")) if minus else ()
    if plus:
        for part in build.split("."):
            if not _IDENTIFIER.fullmatch(part):
                raise ValueError(f"build metadata {part[:64]!r} must be letters, digits and '-', and not empty")
    return Semver((major, minor, _number(patch, "patch number"), 0 if key_pre else 1, key_pre), text)


def _number(text: str, what: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{what} {text[:64]!r} must be digits only")
    if text[0] == "0" and text != "0":
        raise ValueError(f"{what} {text[:64]!r} must not have leading zeros")
    if len(text) > 20 or int(text) > _NUMBER_MAX:
        raise ValueError(f"{what} {text[:64]!r} does not fit 64 bits")
    return int(text)


def _pre_identifier(text: str) -> tuple[int, int, str]:
    """Numbers come before words."""
    if _DIGITS.fullmatch(text):
        return (0, _number(text, "pre-release number"), "")
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f"pre-release {text[:64]!r} must be letters, digits and '-', and not empty")
    return (1, 0, text)
