"""Is a well-typed expression also sound? Literals that can never be converted, lists of mixed types, bad formats.

The validators that Kubernetes switches on, with cel-go's texts. Runs on a tree that `check` found no fault with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dragoman.cel import types as t
from dragoman.cel.ast import Call, Const, Expr, ListLit, MapLit
from dragoman.cel.faults import EvalError, Issue
from dragoman.cel.functions import dispatch, table
from dragoman.cel.stdlib.conversions import OVERLOADS, re2_compiled
from dragoman.cel.stdlib.strformat import clauses
from dragoman.cel.stdlib.times import parse_duration, parse_timestamp
from dragoman.cel.types import Type
from dragoman.cel.values import CelValue, Timestamp
from dragoman.cel.walk import children, nodes

_LITERALS: Final[dict[str, Callable[[str], object]]] = {
    "duration": parse_duration,
    "timestamp": parse_timestamp,
    "matches": re2_compiled,
}
_CONVERSIONS: Final = frozenset(("bool", "bytes", "double", "int", "string", "uint"))

_CLAUSES: Final[dict[str, tuple[frozenset[str], str]]] = {
    "s": (
        frozenset(
            ("string", "bool", "bytes", "int", "uint", "double", "map", "list", "type", "duration", "timestamp", "null")
        ),
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        "and timestamps",
    ),
    "d": (frozenset(("int", "uint")), "decimal clause can only be used on integers"),
    "f": (frozenset(("double", "string")), "fixed-point clause can only be used on doubles"),
    "e": (frozenset(("double", "string")), "scientific clause can only be used on doubles"),
    "b": (frozenset(("int", "uint", "bool")), "only integers and bools can be formatted as binary"),
    "x": (
        frozenset(("int", "uint", "string", "bytes")),
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
    "o": (frozenset(("int", "uint")), "octal clause can only be used on integers"),
}
_CLAUSES["X"] = _CLAUSES["x"]


def validate(tree: Expr) -> list[Issue]:
    """What is unsound, all of it."""
    issues: list[Issue] = []
    for node in nodes(tree):
        if isinstance(node, Call):
            issues.extend(_literal_argument(node))
            issues.extend(_conversion(node))
            issues.extend(_pattern(node))
            issues.extend(_format(node))
    issues.extend(_mixed(tree))
    return issues


def _literal_argument(node: Call) -> Iterator[Issue]:
    """duration("x"), timestamp("x"), timestamp(seconds), s.matches("x")."""
    read = _LITERALS.get(node.function)
    if read is None or not node.args:
        return
    literal = node.args[0]
    if not isinstance(literal, Const):
        return
    try:
        if isinstance(literal.value, str):
            read(literal.value)
        elif node.function == "timestamp" and type(literal.value) is int:
            Timestamp(literal.value * 10**9)
    except EvalError:
        yield Issue(literal.offset, f"invalid {node.function} argument")


def _conversion(node: Call) -> Iterator[Issue]:
    """int("x"): what can never be converted, since constants are converted beforehand."""
    if node.function not in _CONVERSIONS or node.target is not None or len(node.args) != 1:
        return
    try:
        _converted(node)
    except EvalError as error:
        yield Issue(node.offset, error.message)


def _converted(node: Expr) -> CelValue:
    """The value of nested conversions of a constant, or _UNKNOWN."""
    if isinstance(node, Const):
        return node.value
    if not isinstance(node, Call) or node.function not in _RUNS or len(node.args) != 1:
        return _UNKNOWN
    value = _converted(node.args[0])
    return value if value is _UNKNOWN else _RUNS[node.function](value)


_UNKNOWN: Final = object()
_RUNS: Final = {name: dispatch(found) for name, found in table(OVERLOADS).items() if name in {*_CONVERSIONS, "dyn"}}


def _pattern(node: Call) -> Iterator[Issue]:
    """s.find("("): a constant pattern is compiled beforehand."""
    if node.function not in ("find", "findAll") or not node.args or not isinstance(node.args[0], Const):
        return
    try:
        re2_compiled(str(node.args[0].value))
    except EvalError as error:
        yield Issue(node.args[0].offset, error.message)


def _format(node: Call) -> Iterator[Issue]:
    """ "...".format([...]) with both literal."""
    target = node.target
    if node.function != "format" or not isinstance(target, Const) or not isinstance(target.value, str):
        return
    values = node.args[0]
    if not isinstance(values, ListLit):
        return
    position = 0
    try:
        for letter in clauses(target.value):
            if position >= len(values.elements):
                yield Issue(node.offset, f"index {position} out of range")
                return
            element = values.elements[position]
            position += 1
            fitting, message = _CLAUSES[letter]
            kind = element.type
            if not t.is_dyn_or_error(kind) and kind.kind not in fitting:
                yield Issue(element.offset, f"error during formatting: {message}, was given {kind.name}")
                return
    except EvalError as error:
        yield Issue(node.offset, error.message)
        return
    if position < len(values.elements):
        message = f"too many arguments supplied to string.format (expected {position}, got {len(values.elements)})"
        yield Issue(node.offset, message)


def _mixed(tree: Expr) -> Iterator[Issue]:
    """Literals whose elements are not all of one type, except inside a call of format."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, Call) and node.function == "format":
            continue
        if isinstance(node, ListLit):
            yield from _differing([(e, _element_type(e, at in node.optional)) for at, e in enumerate(node.elements)])
        elif isinstance(node, MapLit):
            yield from _differing([(key, key.type) for key, _ in node.entries])
            values = [(v, _element_type(v, at in node.optional)) for at, (_, v) in enumerate(node.entries)]
            yield from _differing(values)
        left.extend(reversed(children(node)))


def _element_type(node: Expr, optional: bool) -> Type:
    return t.unwrap_optional(node.type)[0] if optional else node.type


def _differing(elements: list[tuple[Expr, Type]]) -> Iterator[Issue]:
    if not elements:
        return
    first = elements[0][1]
    for node, kind in elements[1:]:
        if kind != first:
            yield Issue(node.offset, f"expected type '{t.show(first)}' but found '{t.show(kind)}'")
            return
