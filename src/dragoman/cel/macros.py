"""What do the macros stand for? Calls that the parser replaces by loops (`Comprehension`) and presence tests.

The expansions are cel-go's, because the cost of an expression is the cost of what it expands to. Never evaluates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

from dragoman.cel.ast import Call, Comprehension, Const, Expr, Ident, ListLit, MapLit, Select

ACCU: Final = "@result"
UNUSED: Final = "#unused"

Macro = Callable[[int, Expr | None, list[Expr]], Expr | None]


class MacroError(Exception):
    """A macro is used wrongly; offset says where."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


def _variable(node: Expr, message: str = "argument must be a simple name") -> str:
    if not isinstance(node, Ident) or node.name.startswith("."):
        raise MacroError(node.offset, message)
    if node.name in (ACCU, "__result__"):
        raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return node.name


def _variables(nodes: list[Expr]) -> tuple[str, str]:
    """One or two iteration variables; the second is empty if there is none."""
    one = _variable(nodes[0])
    if len(nodes) == 1:
        return one, ""
    two = _variable(nodes[1])
    if one == two:
        raise MacroError(nodes[1].offset, f"duplicate variable name: {one}")
    return one, two


def _has(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    field = args[0]
    if not isinstance(field, Select) or field.test_only:
        raise MacroError(field.offset, "invalid argument to has() macro")
    return Select(offset, field.operand, field.field, test_only=True)


class _Loop:
    """Makes the nodes of one expansion, all at one offset."""

    __slots__ = ("offset", "target")

    def __init__(self, offset: int, target: Expr | None) -> None:
        assert target is not None
        self.offset = offset
        self.target = target

    def accu(self) -> Expr:
        return Ident(self.offset, ACCU)

    def const(self, value: object) -> Expr:
        return Const(self.offset, value)

    def call(self, function: str, *args: Expr) -> Expr:
        return Call(self.offset, function, list(args))

    def fold(
        self,
        macro: str,
        names: tuple[str, str],
        init: Expr,
        step: Expr,
        *,
        condition: Expr | None = None,
        result: Expr | None = None,
    ) -> Expr:
        body = (condition or self.const(True), step, result or self.accu())
        return Comprehension(self.offset, macro, self.target, names, (ACCU, init), body)

    def when(self, predicate: Expr | None, step: Expr) -> Expr:
        return step if predicate is None else self.call("_?_:_", predicate, step, self.accu())


def _all(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    condition = loop.call("@not_strictly_false", loop.accu())
    step = loop.call("_&&_", loop.accu(), args[-1])
    return loop.fold("all", _variables(args[:-1]), loop.const(True), step, condition=condition)


def _exists(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    condition = loop.call("@not_strictly_false", loop.call("!_", loop.accu()))
    step = loop.call("_||_", loop.accu(), args[-1])
    return loop.fold("exists", _variables(args[:-1]), loop.const(False), step, condition=condition)


def _exists_one(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    step = loop.when(args[-1], loop.call("_+_", loop.accu(), loop.const(1)))
    result = loop.call("_==_", loop.accu(), loop.const(1))
    return loop.fold("exists_one", _variables(args[:-1]), loop.const(0), step, result=result)


def _append(loop: _Loop, element: Expr) -> Expr:
    return loop.call("_+_", loop.accu(), ListLit(loop.offset, [element]))


def _filter(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    names = _variables(args[:1])
    step = loop.when(args[1], _append(loop, Ident(offset, names[0])))
    return loop.fold("filter", names, ListLit(offset, []), step)


def _map(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    predicate = args[1] if len(args) == 3 else None
    step = loop.when(predicate, _append(loop, args[-1]))
    return loop.fold("map", _variables(args[:1]), ListLit(offset, []), step)


def _transform_list(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    predicate = args[2] if len(args) == 4 else None
    step = loop.when(predicate, _append(loop, args[-1]))
    return loop.fold("map", _variables(args[:2]), ListLit(offset, []), step)


def _transform_map(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    names = _variables(args[:2])
    predicate = args[2] if len(args) == 4 else None
    step = loop.when(predicate, loop.call("cel.@mapInsert", loop.accu(), Ident(offset, names[0]), args[-1]))
    return loop.fold("transform_map", names, MapLit(offset, []), step)


def _transform_map_entry(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    loop = _Loop(offset, target)
    predicate = args[2] if len(args) == 4 else None
    step = loop.when(predicate, loop.call("cel.@mapInsert", loop.accu(), args[-1]))
    return loop.fold("transform_map", _variables(args[:2]), MapLit(offset, []), step)


def _bound(offset: int, name: str, value: Expr, result: Expr) -> Expr:
    body = (Const(offset, False), Ident(offset, name), result)
    return Comprehension(offset, "bind", ListLit(offset, []), (UNUSED, ""), (name, value), body)


def _bind(offset: int, target: Expr | None, args: list[Expr]) -> Expr | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _variable(args[0], "cel.bind() variable names must be simple identifiers")
    return _bound(offset, name, args[1], args[2])


def _opt_map(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    name = _variable(args[0], "optMap() variable name must be a simple identifier")
    inner = _bound(offset, name, Call(offset, "value", [], copy.deepcopy(target)), args[1])
    there = Call(offset, "hasValue", [], target)
    return Call(offset, "_?_:_", [there, Call(offset, "optional.of", [inner]), Call(offset, "optional.none", [])])


def _opt_flat_map(offset: int, target: Expr | None, args: list[Expr]) -> Expr:
    name = _variable(args[0], "optFlatMap() variable name must be a simple identifier")
    inner = _bound(offset, name, Call(offset, "value", [], copy.deepcopy(target)), args[1])
    there = Call(offset, "hasValue", [], target)
    return Call(offset, "_?_:_", [there, inner, Call(offset, "optional.none", [])])


def _sort_by(offset: int, target: Expr | None, args: list[Expr]) -> Expr | None:
    """list.sortBy(e, key): sorts a list bound to a name by the list of its keys."""
    name = _variable(args[0], "sortBy can only be applied to a list, identifier, comprehension, call or select")
    keys = _map(offset, Ident(offset, "@__sortBy_input__"), [Ident(offset, name), args[1]])
    call = Call(offset, "@sortByAssociatedKeys", [keys], Ident(offset, "@__sortBy_input__"))
    assert target is not None
    return _bound(offset, "@__sortBy_input__", target, call)


MACROS: Final[dict[tuple[str, int, bool], Macro]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all,
    ("all", 3, True): _all,
    ("exists", 2, True): _exists,
    ("exists", 3, True): _exists,
    ("exists_one", 2, True): _exists_one,
    ("exists_one", 3, True): _exists_one,
    ("existsOne", 2, True): _exists_one,
    ("existsOne", 3, True): _exists_one,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map,
    ("optFlatMap", 2, True): _opt_flat_map,
    ("sortBy", 2, True): _sort_by,
}
"""By name, number of arguments and whether there is a receiver."""
