"""What does a pattern find? `find` and `findAll` on RE2, leftmost matches without overlap."""

from __future__ import annotations

from typing import Any, Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import member
from dragoman.cel.stdlib.conversions import re2_compiled


def _find(text: str, pattern: str) -> str:
    found = _compiled(pattern).search(text)
    return found.group(0) if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> tuple[str, ...]:
    """As Go's FindAllString: an empty match right after a match does not count."""
    found: list[str] = []
    last_end = -1
    for match in _compiled(pattern).finditer(text):
        if 0 <= limit <= len(found):
            break
        if match.end() == match.start() == last_end:
            continue
        last_end = match.end()
        found.append(match.group(0))
    return tuple(found)


def _compiled(pattern: str) -> Any:
    try:
        return re2_compiled(pattern)
    except EvalError as error:
        raise EvalError(f"Illegal regex: {error.message}") from None


_S = t.STRING
_STRINGS = t.list_of(t.STRING)

OVERLOADS: Final = [
    member("find", "string_find_string", (_S, _S), _S, _find),
    member("findAll", "string_find_all_string", (_S, _S), _STRINGS, _find_all),
    member("findAll", "string_find_all_string_int", (_S, _S, t.INT), _STRINGS, _find_all),
]
