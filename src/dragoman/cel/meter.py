"""What does an evaluation cost? The language once more, slowly, with cost counted step by step as cel-go counts it.

Used where the worst case of an expression is over the limit, and by tests; `compile` is the fast way, and both must
agree on every value. Errors are values here, because cel-go goes on evaluating beside an error, and that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from dragoman.cel.access import iterated, iterated_pairs, present, put_entry, select_optional, selected
from dragoman.cel.ast import Call, Comprehension, Const, Expr, Ident, ListLit, MapLit, Select
from dragoman.cel.cost import LIST_CREATE, MAP_CREATE, CallCost, cost_of
from dragoman.cel.environment import Environment
from dragoman.cel.faults import CostExceeded, EvalError, NoSuchOverload
from dragoman.cel.functions import Overload, Run, dispatch
from dragoman.cel.stdlib.operators import index
from dragoman.cel.stdlib.optionals import index_optional
from dragoman.cel.values import NONE, CelValue, Optional, Uint, equal

_CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
_PLAIN: Final = frozenset((bool, int, Uint, float, str))

_ALL_ARGUMENTS_SINGLETONS: Final = _CONVERSIONS | frozenset(
    (
        "_+_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "@in",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "size",
    )
)
"""Functions with one implementation for all overloads: both arguments are evaluated even if the first fails."""

_ONE_BY_ONE: Final = frozenset(("string_format",))
"""Overloads of two parameters whose second is left alone when the first fails."""

_PATTERNS: Final = frozenset(("find", "findAll", "matches"))
"""Functions that are one by one, too, if the pattern is constant."""


class Failed:
    """An error in the place of a value."""

    __slots__ = ("error",)

    def __init__(self, error: EvalError) -> None:
        self.error = error


class EvalScope:
    """Names and values; `lazy` is evaluated when its name is first asked for."""

    __slots__ = ("lazy", "outer", "values")

    def __init__(self, outer: EvalScope | None, values: dict[str, CelValue]) -> None:
        self.outer = outer
        self.values = values
        self.lazy: dict[str, Callable[[], CelValue]] = {}

    def get(self, name: str) -> CelValue:
        scope: EvalScope | None = self
        if name.startswith("."):
            while scope is not None and scope.outer is not None:
                scope = scope.outer
            name = name[1:]
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if name in scope.lazy:
                found = scope.values[name] = scope.lazy[name]()
                return found
            scope = scope.outer
        return Failed(EvalError(f"no such attribute(s): {name}"))


class Plan:
    """What is found out about the nodes of an expression once, for all its evaluations."""

    __slots__ = ("costs", "environment", "free", "runs")

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.free: dict[Expr, CelValue] = {}
        """Constant literals and conversions of constants: their value, or _NOT_FREE."""
        self.runs: dict[Expr, Run | None] = {}
        self.costs: dict[Expr, CallCost] = {}

    def run(self, node: Call) -> Run | None:
        """What a call runs; None if nothing fits."""
        if node not in self.runs:
            overloads = self._overloads(node)
            self.runs[node] = dispatch(overloads) if overloads else None
        return self.runs[node]

    def cost(self, node: Call) -> CallCost:
        """What counts a call."""
        found = self.costs.get(node)
        if found is None:
            overload = node.overloads[0] if len(node.overloads) == 1 else ""
            found = self.costs[node] = cost_of(node.function, overload)
        return found

    def _overloads(self, node: Call) -> tuple[Overload, ...]:
        return tuple(
            overload
            for overload in self.environment.functions.get(node.function, ())
            if len(overload.args) == len(node.operands())
            and overload.member == (node.target is not None)
            and (not node.overloads or overload.id in node.overloads)
        )


_NOT_FREE: Final = object()


class Meter:
    """One evaluation; `cost` is what it has cost so far. Raises CostExceeded beyond the limit."""

    __slots__ = ("cost", "limit", "plan")

    def __init__(self, plan: Plan, limit: int) -> None:
        self.plan = plan
        self.limit = limit
        self.cost = 0

    def run(self, tree: Expr, *values: CelValue) -> CelValue:
        """The value of an expression for the variables' values. Raises EvalError."""
        found = self.value(tree, EvalScope(None, dict(zip(self.plan.environment.variables, values, strict=True))))
        if isinstance(found, Failed):
            raise found.error
        return found

    def add(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.limit:
            raise CostExceeded

    def value(self, node: Expr, scope: EvalScope) -> CelValue:
        """A value or Failed."""
        kind = node.__class__
        if kind is Const:
            return node.value  # type: ignore[attr-defined]
        if kind is Ident:
            found = scope.get(node.name)  # type: ignore[attr-defined]
            self.add(1)
            return found
        if kind is Select:
            found = self.attribute(node, [], scope)
            self.add(0 if node.test_only or _is_conditional(node) else 1)  # type: ignore[attr-defined]
            return found
        if kind is Comprehension:
            return self.fold(node, scope)  # type: ignore[arg-type]
        free = self.free(node)
        if free is not _NOT_FREE:
            return free
        if kind is Call:
            return self.call(node, scope)  # type: ignore[arg-type]
        if kind is ListLit:
            return self.list_literal(node, scope)  # type: ignore[arg-type]
        if kind is MapLit:
            return self.map_literal(node, scope)  # type: ignore[arg-type]
        return Failed(EvalError("unknown expression"))

    def free(self, node: Expr) -> CelValue:
        """The value of a constant literal or of a conversion of a constant, which cost nothing; or _NOT_FREE."""
        known = self.plan.free
        if node in known:
            return known[node]
        found: CelValue = _NOT_FREE
        if not isinstance(node, Const | Ident | Select | Comprehension):
            found = self.constant(node)
        known[node] = found
        return found

    def constant(self, node: Expr) -> CelValue:
        if isinstance(node, Const):
            return node.value
        if isinstance(node, ListLit) and not node.optional:
            elements = [self.constant(element) for element in node.elements]
            return _NOT_FREE if any(element is _NOT_FREE for element in elements) else tuple(elements)
        if isinstance(node, MapLit) and not node.optional:
            return self.constant_map(node)
        if isinstance(node, Call) and node.function in _CONVERSIONS and len(node.args) == 1 and node.target is None:
            value = self.constant(node.args[0])
            found = value if value is _NOT_FREE else self.applied(node, [value])
            return _NOT_FREE if isinstance(found, Failed) else found
        return _NOT_FREE

    def constant_map(self, node: MapLit) -> CelValue:
        found: dict[CelValue, CelValue] = {}
        for key_node, value_node in node.entries:
            key, value = self.constant(key_node), self.constant(value_node)
            if key is _NOT_FREE or value is _NOT_FREE:
                return _NOT_FREE
            put_entry(found, key, value, optional=False, offset=node.offset)
        return found

    # ---- attributes: a variable or any value, followed by fields and indices

    def attribute(self, node: Expr, steps: list[Expr], scope: EvalScope) -> CelValue:
        """The value of a path, whose own cost of 1 the caller counts; steps are those that come after node."""
        while (operand := _operand(node)) is not None:
            steps = [node, *steps]
            node = operand
        if isinstance(node, Ident):
            return self.stepped(scope.get(node.name), steps, scope)
        if isinstance(node, Call) and node.function == "_?_:_":
            test = self.value(node.args[0], scope)
            if isinstance(test, Failed):
                return test
            if test is not True and test is not False:
                return Failed(NoSuchOverload(offset=node.offset))
            return self.attribute(node.args[1 if test else 2], steps, scope)
        return self.stepped(self.value(node, scope), steps, scope)

    def stepped(self, value: CelValue, steps: list[Expr], scope: EvalScope) -> CelValue:
        if isinstance(value, Failed) or not steps:
            return value
        optional = value.__class__ is Optional
        if optional:
            if not value.present:
                return NONE
            value = value.value
        for step in steps:
            optional = optional or _is_optional(step)
            value = self.step(value, step, scope, optional=optional)
            if value is NONE or isinstance(value, Failed):
                return value
        return Optional(value) if optional else value

    def step(self, value: CelValue, step: Expr, scope: EvalScope, *, optional: bool) -> CelValue:
        """One field or index. An optional step that finds nothing costs nothing and gives NONE."""
        try:
            if isinstance(step, Select) and step.test_only:
                self.add(1)
                return present(value, step.field)
            key = self.key(step, scope)
            if isinstance(key, Failed):
                self.add(0 if optional else 1)
                return key
            if optional:
                is_field = isinstance(step, Select) or (isinstance(step, Call) and step.function == "_?._")
                found = select_optional(value, key) if is_field else index_optional(value, key)
                if not found.present:
                    return NONE
                self.add(1)
                return found.value
            self.add(1)
            return selected(value, key, step.offset) if isinstance(step, Select) else index(value, key)
        except CostExceeded:
            raise
        except EvalError as error:
            if error.offset < 0:
                error.offset = step.offset
            return Failed(error)

    def key(self, step: Expr, scope: EvalScope) -> CelValue:
        """The field or index of a step. An index that is a path itself is not charged for being one."""
        if isinstance(step, Select):
            return step.field
        assert isinstance(step, Call)
        node = step.args[1]
        if (
            isinstance(node, Ident)
            or _operand(node) is not None
            or (isinstance(node, Call) and node.function == "_?_:_")
        ):
            return self.attribute(node, [], scope)
        return self.value(node, scope)

    # ---- calls

    def call(self, node: Call, scope: EvalScope) -> CelValue:
        function = node.function
        if function in ("_[_]", "_[?_]", "_?._"):
            found = self.attribute(node, [], scope)
            self.add(0 if _is_conditional(node) else 1)
            return found
        if function == "_?_:_":
            return self.attribute(node, [], scope)
        if function == "_&&_":
            return self.chain(node, scope, stop=False)
        if function == "_||_":
            return self.chain(node, scope, stop=True)
        if function == "@not_strictly_false":
            found = self.value(node.args[0], scope)
            self.add(1)
            return found is not False
        if node.target is not None and len(node.args) == 1 and function in ("or", "orValue"):
            return self.optional_or(node, scope)
        if function == "@in" and self.is_set(node):
            return self.membership(node, scope)
        return self.strict_call(node, scope)

    def membership(self, node: Call, scope: EvalScope) -> CelValue:
        """`in` with a constant list costs nothing, since it is a look-up in a set."""
        among = self.free(node.args[1])
        if not among:
            return False
        wanted = self.value(node.args[0], scope)
        if isinstance(wanted, Failed):
            return wanted
        return self.applied(node, [wanted, among])

    def is_constant(self, node: Expr) -> bool:
        return isinstance(node, Const) or self.free(node) is not _NOT_FREE

    def is_set(self, node: Call) -> bool:
        """Whether the right side of `in` is a constant list of plain values."""
        among = self.free(node.args[1]) if node.overloads == ("in_list",) else _NOT_FREE
        return among.__class__ is tuple and all(element.__class__ in _PLAIN for element in among)

    def strict_call(self, node: Call, scope: EvalScope) -> CelValue:
        operands = node.operands()
        values: list[CelValue] = []
        failed: Failed | None = None
        for operand in operands:
            value = self.value(operand, scope)
            values.append(value)
            if isinstance(value, Failed):
                failed = failed or value
                if not self.evaluates_all(node, len(operands)):
                    break
        if len(values) < len(operands):
            assert failed is not None
            return failed
        result = failed if failed is not None else self.applied(node, values)
        self.add(self.plan.cost(node)(values, result))
        return result

    def evaluates_all(self, node: Call, count: int) -> bool:
        if count > 2:
            return False
        if node.function in _PATTERNS and self.is_constant(node.args[-1]):
            return False
        if node.function in ("_==_", "_!=_") or node.function in _ALL_ARGUMENTS_SINGLETONS:
            return True
        return len(node.overloads) == 1 and node.overloads[0] not in _ONE_BY_ONE

    def applied(self, node: Call, values: list[CelValue]) -> CelValue:
        run = equal if node.function == "_==_" else self.plan.run(node)
        if run is None:
            return Failed(NoSuchOverload(offset=node.offset))
        try:
            return run(*values)
        except EvalError as error:
            if error.offset < 0:
                error.offset = node.offset
            return Failed(error)

    def chain(self, node: Call, scope: EvalScope, *, stop: bool) -> CelValue:
        failed: Failed | None = None
        for arg in node.args:
            value = self.value(arg, scope)
            if value is stop:
                return stop
            if isinstance(value, Failed):
                failed = failed or value
            elif value is not (not stop):
                failed = failed or Failed(NoSuchOverload(offset=node.offset))
        return failed if failed is not None else not stop

    def optional_or(self, node: Call, scope: EvalScope) -> CelValue:
        assert node.target is not None
        value = self.value(node.target, scope)
        if isinstance(value, Failed):
            return value
        if value.__class__ is not Optional:
            return Failed(NoSuchOverload(offset=node.offset))
        if value.present:
            return value.value if node.function == "orValue" else value
        return self.value(node.args[0], scope)

    # ---- literals and loops

    def list_literal(self, node: ListLit, scope: EvalScope) -> CelValue:
        found: list[CelValue] = []
        outcome: CelValue = None
        for at, element in enumerate(node.elements):
            value = self.value(element, scope)
            if isinstance(value, Failed):
                outcome = value
                break
            if at not in node.optional:
                found.append(value)
            elif value.__class__ is not Optional:
                outcome = Failed(
                    EvalError("cannot initialize optional list element from non-optional value", node.offset)
                )
                break
            elif value.present:
                found.append(value.value)
        self.add(LIST_CREATE)
        return outcome if outcome is not None else tuple(found)

    def map_literal(self, node: MapLit, scope: EvalScope) -> CelValue:
        found: dict[CelValue, CelValue] = {}
        outcome: CelValue = found
        for at, (key_node, value_node) in enumerate(node.entries):
            key = self.value(key_node, scope)
            value = key if isinstance(key, Failed) else self.value(value_node, scope)
            if isinstance(value, Failed):
                outcome = value
                break
            try:
                put_entry(found, key, value, optional=at in node.optional, offset=node.offset)
            except EvalError as error:
                outcome = Failed(error)
                break
        self.add(MAP_CREATE)
        return outcome

    def fold(self, node: Comprehension, scope: EvalScope) -> CelValue:
        values = self.value(node.range, scope)
        if isinstance(values, Failed):
            return values
        accumulated = EvalScope(scope, {})
        accumulated.lazy[node.accu] = lambda: self.value(node.init, scope)
        inner = EvalScope(accumulated, {})
        try:
            for one, two in _pairs(values, both=bool(node.var2)):
                inner.values[node.var] = one
                if node.var2:
                    inner.values[node.var2] = two
                goes_on = self.value(node.condition, inner)
                if goes_on is False:
                    break
                accumulated.values[node.accu] = self.value(node.step, inner)
        except CostExceeded:
            raise
        except EvalError as error:
            error.offset = node.offset if error.offset < 0 else error.offset
            return Failed(error)
        return self.value(node.result, accumulated)


def _pairs(values: CelValue, *, both: bool) -> Iterable[tuple[CelValue, CelValue]]:
    return iterated_pairs(values) if both else ((one, None) for one in iterated(values))


def _operand(node: Expr) -> Expr | None:
    """What a field or index is taken of; None if the node is neither."""
    if isinstance(node, Select):
        return node.operand
    if isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"):
        return node.args[0]
    return None


def _is_optional(step: Expr) -> bool:
    return isinstance(step, Call) and step.function in ("_[?_]", "_?._")


def _is_conditional(node: Expr) -> bool:
    """Whether a path starts at a `? :`."""
    while (operand := _operand(node)) is not None:
        node = operand
    return isinstance(node, Call) and node.function == "_?_:_"
