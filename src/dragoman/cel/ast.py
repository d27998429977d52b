"""What is an expression made of? The nodes of the syntax tree, as the parser makes and the checker annotates them.

`offset` is where error messages point, in code points. The checker sets `type` and `overloads`; nodes are otherwise
left alone.
"""

from __future__ import annotations

from dragoman.cel.types import DYN, Type
from dragoman.cel.values import CelValue


class Expr:
    """Base of all nodes."""

    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.type: Type = DYN


class Const(Expr):
    """A literal, or an identifier that names a type."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: CelValue) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Expr):
    """A variable; a leading dot in the name means the root scope."""

    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name


class Select(Expr):
    """operand.field; test_only is what `has()` makes of it."""

    __slots__ = ("field", "operand", "test_only")

    def __init__(self, offset: int, operand: Expr, field: str, *, test_only: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test_only = test_only


class Call(Expr):
    """function(args) or target.function(args); operators are functions named like `_+_`, `&&` and `||` are n-ary."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[Expr], target: Expr | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: tuple[str, ...] = ()

    def operands(self) -> list[Expr]:
        """Receiver, if any, and arguments."""
        return self.args if self.target is None else [self.target, *self.args]


class ListLit(Expr):
    """[a, ?b]; optional holds the indices of `?` elements."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[Expr], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional


class MapLit(Expr):
    """{k: v, ?k: v}; optional holds the indices of `?` entries."""

    __slots__ = ("entries", "optional")

    def __init__(self, offset: int, entries: list[tuple[Expr, Expr]], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.entries = entries
        self.optional = optional


class StructLit(Expr):
    """Name{field: value, ?field: value}; the checker makes a MapLit of it where the environment has such objects."""

    __slots__ = ("fields", "name", "optional", "values")

    def __init__(
        self, offset: int, name: str, fields: list[str], values: list[Expr], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(offset)
        self.name = name
        self.fields = fields
        self.values = values
        self.optional = optional


class Comprehension(Expr):
    """The loop that macros expand to.

    Starting with `init` as `accu`, `step` is evaluated for each element of `range` while `condition` holds; the
    outcome is `result`. `macro` names the macro (all, exists, map, bind, ...): the compiler has a faster way for it.
    """

    __slots__ = ("accu", "condition", "init", "macro", "range", "result", "step", "var", "var2")

    def __init__(
        self,
        offset: int,
        macro: str,
        range_: Expr,
        variables: tuple[str, str],
        accu: tuple[str, Expr],
        body: tuple[Expr, Expr, Expr],
    ) -> None:
        super().__init__(offset)
        self.macro = macro
        self.range = range_
        self.var, self.var2 = variables
        self.accu, self.init = accu
        self.condition, self.step, self.result = body
