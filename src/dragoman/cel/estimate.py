"""What can an expression cost at worst? Judged before it runs, from types and the sizes that values can have.

Kubernetes refuses expressions by this figure, so it is cel-go's, Kubernetes' libraries included. Sizes of what a
variable holds come from `sizes`: a function of the path (field names, @items, @keys, @values) that gives the largest
size or None. Never evaluates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from dragoman.cel.ast import Call, Comprehension, Const, Expr, Ident, ListLit, MapLit, Select
from dragoman.cel.cost import LIST_CREATE, MAP_CREATE
from dragoman.cel.estimate_calls import (
    BY_FUNCTION,
    BY_OVERLOAD,
    NOTHING,
    ONE,
    STANDARD,
    UNBOUNDED,
    UNKNOWN,
    CallEstimate,
    Operand,
    Span,
    fixed,
    sorting,
)
from dragoman.cel.macros import ACCU
from dragoman.cel.reads import AccessPath
from dragoman.cel.types import Type
from dragoman.cel.values import CelValue

SizeHints = Callable[[AccessPath], int | None]


class Entries(NamedTuple):
    """Sizes of what a list or map holds."""

    kind: str
    key: Span
    value: Span

    def union(self, other: Entries) -> Entries:
        """What covers both."""
        return Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


class SizeEstimate(msgspec.Struct):
    """What was found out about a node, or about a local variable."""

    cost: Span = NOTHING
    path: AccessPath = ()
    size: Span | None = None
    entries: Entries | None = None


def estimate(tree: Expr, sizes: SizeHints) -> Span:
    """The least and the most that an expression can cost."""
    return _Estimator(sizes).visit(tree).cost


class _Estimator:
    __slots__ = ("locals", "sizes")

    def __init__(self, sizes: SizeHints) -> None:
        self.sizes = sizes
        self.locals: dict[str, list[SizeEstimate]] = {}

    def visit(self, node: Expr) -> SizeEstimate:
        match node:
            case Const():
                # A name of a type counts as a name.
                return SizeEstimate(
                    cost=ONE if isinstance(node.value, Type) else NOTHING, size=_literal_size(node.value)
                )
            case Ident():
                return self.ident(node)
            case Select():
                return self.select(node)
            case Call():
                return self.call(node)
            case ListLit():
                return self.list_literal(node)
            case MapLit():
                return self.map_literal(node)
            case Comprehension():
                return self.bind(node) if _is_bind(node) else self.fold(node)
        return SizeEstimate()

    # ---- names

    def local(self, name: str) -> SizeEstimate | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def pushed(self, name: str, seen: SizeEstimate) -> None:
        self.locals.setdefault(name, []).append(seen)

    def popped(self, name: str) -> None:
        self.locals[name].pop()

    def ident(self, node: Ident) -> SizeEstimate:
        found = self.local(node.name)
        path = found.path if found else (node.name.removeprefix("."),)
        seen = SizeEstimate(cost=ONE, path=path)
        seen.size = self.known_size(path, node.type)
        if found:
            seen.size = found.size if seen.size is None else seen.size
            seen.entries = found.entries
        return seen

    def known_size(self, path: AccessPath, kind: Type) -> Span | None:
        """By what is declared, or by type."""
        if path:
            most = self.sizes(path)
            if most is not None:
                return Span(0, most)
        return ONE if _is_scalar(kind) else None

    def select(self, node: Select) -> SizeEstimate:
        operand = self.visit(node.operand)
        if node.test_only:
            return SizeEstimate(cost=operand.cost, size=self.known_size((), node.type))
        counted = node.operand.type.kind in ("map", "struct", "param")
        path = (*operand.path, node.field)
        cost = operand.cost.plus(ONE) if counted else operand.cost
        return SizeEstimate(cost=cost, path=path, size=self.known_size(path, node.type))

    # ---- calls

    def call(self, node: Call) -> SizeEstimate:
        if node.function == "dyn" and node.target is None:
            inner = self.visit(node.args[0])
            return SizeEstimate(ONE.plus(inner.cost), (), inner.size, inner.entries)
        if node.function in ("_&&_", "_||_"):
            return self.logical(node)
        args = list(map(self.visit, node.args))
        target = self.visit(node.target) if node.target is not None else None
        if not node.overloads:
            return SizeEstimate()
        spent = target.cost if target else NOTHING
        for arg in args:
            spent = spent.plus(arg.cost)
        seen = SizeEstimate()
        if node.function == "_?_:_":
            test, then, other = args
            seen.cost = test.cost.plus(then.cost.union(other.cost))
            seen.size = _sized(then).union(_sized(other))
            seen.entries = then.entries.union(other.entries) if then.entries and other.entries else None
            return seen
        operands = [_operand(arg, part) for arg, part in zip(node.args, args, strict=True)]
        receiver = _operand(node.target, target) if node.target is not None and target else None
        charge: Span | None = None
        for overload in node.overloads:
            found = self.function(node, overload, receiver, operands)
            charge = found.cost if charge is None else charge.union(found.cost)
            if found.size is not None:
                seen.size = found.size if seen.size is None else seen.size.union(found.size)
            self.placed(overload, args, seen)
            if seen.size is None:
                seen.size = self.known_size(seen.path, node.type)
        assert charge is not None
        seen.cost = spent.plus(charge)
        if node.overloads[-1] in ("add_string", "add_bytes", "add_list") and args[0].entries and args[1].entries:
            seen.entries = args[0].entries.union(args[1].entries)
        return seen

    def placed(self, overload: str, args: list[SizeEstimate], seen: SizeEstimate) -> None:
        """What an index leads to."""
        if overload in ("list_index", "index_list", "index_map"):
            seen.size = args[0].entries.value if args[0].entries else None
            seen.path = (*args[0].path, "@values" if overload == "index_map" else "@items")

    def logical(self, node: Call) -> SizeEstimate:
        args = list(map(self.visit, node.args))
        most = NOTHING
        for arg in args:
            most = most.plus(arg.cost)
        return SizeEstimate(cost=Span(args[0].cost.least, most.most), size=ONE)

    def function(self, node: Call, overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate:
        """The cost of one overload without its arguments."""
        by_overload = BY_OVERLOAD.get(overload) or sorting(overload)
        if by_overload is not None:
            found = by_overload(self.size, target, args)
            if found is not None:
                return found
        by_function = BY_FUNCTION.get(node.function)
        if by_function is not None:
            found = by_function(self.size, target, args)
            if found is not None:
                return found
        standard = STANDARD.get(overload)
        if standard is not None:
            found = standard(self.size, target, args)
            if found is not None:
                return found
        return CallEstimate(ONE)

    def size(self, operand: Operand) -> Span:
        """Computed, declared, or unknown."""
        if operand.size is not None:
            return operand.size
        most = self.sizes(operand.path) if operand.path else None
        return UNKNOWN if most is None else Span(0, most)

    # ---- literals and loops

    def list_literal(self, node: ListLit) -> SizeEstimate:
        spent = NOTHING
        held = Span(0 if not node.elements else UNBOUNDED, 0)
        for element in node.elements:
            seen = self.visit(element)
            spent = spent.plus(seen.cost)
            held = held.union(_sized(seen))
        return SizeEstimate(
            cost=spent.plus(fixed(LIST_CREATE)), size=fixed(len(node.elements)), entries=Entries("list", ONE, held)
        )

    def map_literal(self, node: MapLit) -> SizeEstimate:
        spent = NOTHING
        keys = values = Span(0 if not node.entries else UNBOUNDED, 0)
        for key, value in node.entries:
            key_seen, value_seen = self.visit(key), self.visit(value)
            spent = spent.plus(key_seen.cost).plus(value_seen.cost)
            keys = keys.union(_sized(key_seen))
            values = values.union(_sized(value_seen))
        return SizeEstimate(
            cost=spent.plus(fixed(MAP_CREATE)), size=fixed(len(node.entries)), entries=Entries("map", keys, values)
        )

    def bind(self, node: Comprehension) -> SizeEstimate:
        init = self.visit(node.init)
        self.pushed(node.accu, init)
        result = self.visit(node.result)
        self.popped(node.accu)
        # The empty list that a bind loops over counts, though it is never made.
        return SizeEstimate(fixed(LIST_CREATE).plus(init.cost).plus(result.cost), (), result.size, result.entries)

    def fold(self, node: Comprehension) -> SizeEstimate:
        ranged = self.visit(node.range)
        init = self.visit(node.init)
        self.pushed(node.accu, init)
        names = self.iterated(node, ranged)
        looped = self.visit(node.condition).cost
        step = self.visit(node.step)
        for name in names:
            self.popped(name)
        result = self.visit(node.result)
        self.popped(node.accu)
        count = _sized(ranged)
        rounds = count.times(step.cost.plus(looped))
        seen = SizeEstimate(ranged.cost.plus(init.cost).plus(result.cost).plus(rounds))
        if isinstance(node.init, Const):
            seen.size = init.size
        elif isinstance(node.init, ListLit | MapLit):
            seen.size = count
            seen.entries = step.entries
        if seen.size is None:
            seen.size = self.known_size((), node.type)
        return seen

    def iterated(self, node: Comprehension, ranged: SizeEstimate) -> list[str]:
        """Declares the iteration variables."""
        entries = ranged.entries
        kind = entries.kind if entries else node.range.type.kind
        key = entries.key if entries else None
        value = entries.value if entries else None
        if node.var2:
            self.pushed(
                node.var, SizeEstimate(path=(*ranged.path, "@indices" if kind == "list" else "@keys"), size=key)
            )
            self.pushed(
                node.var2, SizeEstimate(path=(*ranged.path, "@items" if kind == "list" else "@values"), size=value)
            )
            return [node.var, node.var2]
        if kind == "list":
            self.pushed(node.var, SizeEstimate(path=(*ranged.path, "@items"), size=value))
        else:
            self.pushed(node.var, SizeEstimate(path=(*ranged.path, "@keys"), size=key))
        return [node.var]


def _is_bind(node: Comprehension) -> bool:
    return node.macro == "bind" and node.accu != ACCU


def _sized(seen: SizeEstimate) -> Span:
    return UNKNOWN if seen.size is None else seen.size


def _operand(node: Expr, seen: SizeEstimate) -> Operand:
    path = () if seen.path[:1] == (ACCU,) else seen.path
    return Operand(node, node.type, path, seen.size)


def _literal_size(value: CelValue) -> Span | None:
    if value.__class__ in (str, bytes):
        return fixed(len(value))
    return None if isinstance(value, Type) else ONE


def _is_scalar(kind: Type) -> bool:
    if kind.kind == "opaque" and kind.name == "optional_type":
        return _is_scalar(kind.params[0])
    return kind.kind in ("bool", "double", "duration", "int", "timestamp", "uint")
