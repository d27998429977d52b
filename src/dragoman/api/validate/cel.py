"""May this CEL expression be written to the API? Length, syntax, types and worst-case cost."""

from __future__ import annotations

from typing import Any

from dragoman.api.validate.field import Errors, Path

EXPRESSION_MAX = 10 * 1024


def check_expression(text: Any, path: Path, *, stored: bool, gates: frozenset[str], derived: bool = False) -> Errors:
    """Required; a stored expression may use everything the server knows, a new one what `gates` allow."""
    if not text:
        return [path.required()]
    if len(str(text).encode()) > EXPRESSION_MAX:
        return [path.too_long(EXPRESSION_MAX)]
    return []
