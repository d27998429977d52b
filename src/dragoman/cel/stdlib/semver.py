"""Semantic versions in expressions: semver(), comparison, parts."""

from __future__ import annotations

from typing import Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import free, member
from dragoman.cel.values import STRICT_EQUALITY, TYPE_OF
from dragoman.values.semver import Semver

SEMVER: Final = t.struct("kubernetes.Semver")
TYPE_OF[Semver] = SEMVER
STRICT_EQUALITY.add(Semver)


def _parse(text: str, normalize: bool = False) -> Semver:
    try:
        return Semver.parse(text, normalize=normalize)
    except ValueError as error:
        raise EvalError(str(error)) from None


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        Semver.parse(text, normalize=normalize)
    except ValueError:
        return False
    return True


def _compare(one: Semver, two: Semver) -> int:
    return (one.key > two.key) - (one.key < two.key)


_TWO = (SEMVER, SEMVER)
_NORMALIZED = (t.STRING, t.BOOL)

OVERLOADS: Final = [
    free("semver", "string_to_semver", (t.STRING,), SEMVER, _parse),
    free("semver", "string_bool_to_semver", _NORMALIZED, SEMVER, _parse),
    free("isSemver", "is_semver_string", (t.STRING,), t.BOOL, _is_semver),
    free("isSemver", "is_semver_string_bool", _NORMALIZED, t.BOOL, _is_semver),
    member("isGreaterThan", "semver_is_greater_than", _TWO, t.BOOL, lambda one, two: one.key > two.key),
    member("isLessThan", "semver_is_less_than", _TWO, t.BOOL, lambda one, two: one.key < two.key),
    member("compareTo", "semver_compare_to", _TWO, t.INT, _compare),
    member("major", "semver_major", (SEMVER,), t.INT, lambda value: value.key[0]),
    member("minor", "semver_minor", (SEMVER,), t.INT, lambda value: value.key[1]),
    member("patch", "semver_patch", (SEMVER,), t.INT, lambda value: value.key[2]),
]
