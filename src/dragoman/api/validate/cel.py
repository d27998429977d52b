"""May this CEL expression be written to the API? Length, syntax, types and worst-case cost."""

from __future__ import annotations

from typing import Any

from dragoman.api.selectors import EXPRESSION_MAX, STORED, Mode, SelectorCompileError, compile_derived, compile_selector
from dragoman.api.validate.field import Errors, FieldPath


def check_expression(
    text: Any, path: FieldPath, *, stored: bool, gates: frozenset[str], derived: bool = False
) -> Errors:
    """Required; a stored expression may use everything the server knows, a new one what `gates` allow.

    A derived attribute (KEP-6080) is a scalar, a list of scalars or unknown, a selector bool or unknown.
    """
    if not text:
        return [path.required()]
    expression = str(text)
    if len(expression.encode()) > EXPRESSION_MAX:
        return [path.too_long(EXPRESSION_MAX)]
    mode = STORED if stored else _mode(gates)
    found = compile_derived(expression, mode) if derived else compile_selector(expression, mode)
    if not isinstance(found, SelectorCompileError):
        return []
    if found.kind == "cost":
        return [path.forbidden("too complex, exceeds cost limit")]
    return [path.invalid(expression, found.message)]


def _mode(gates: frozenset[str]) -> Mode:
    return Mode(
        new=True,
        list_attributes="DRAListTypeAttributes" in gates,
        consumable_capacity="DRAConsumableCapacity" in gates,
    )
