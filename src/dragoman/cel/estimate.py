"""What can an expression cost at worst? Judged before it runs, from types and the sizes that values can have.

Kubernetes refuses expressions by this figure, so it is cel-go's, Kubernetes' libraries included. Sizes of what a
variable holds come from `sizes`: a function of the path (field names, @items, @keys, @values) that gives the largest
size or None. Never evaluates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from dragoman.cel.ast import Call, Const, Fold, Ident, ListLit, MapLit, Node, Select
from dragoman.cel.cost import LIST_CREATE, MAP_CREATE, REGEX_FACTOR, STRING_FACTOR
from dragoman.cel.macros import ACCU
from dragoman.cel.stdlib.lists import INCLUDES_MAX
from dragoman.cel.types import Type
from dragoman.cel.values import Value

UNBOUNDED: Final = 2**64 - 1
_DOUBLE_BOUND: Final = 2.0**64

Path = tuple[str, ...]
Sizes = Callable[[Path], int | None]


def _bounded(number: int) -> int:
    return min(number, UNBOUNDED)


def _scaled(number: int, factor: float) -> int:
    found = math.ceil(float(number) * factor)
    return UNBOUNDED if found >= _DOUBLE_BOUND else found


class Span(NamedTuple):
    """From least to most, of sizes or costs; stays within 64 bits."""

    least: int
    most: int

    def plus(self, other: Span) -> Span:
        """Sum."""
        return Span(_bounded(self.least + other.least), _bounded(self.most + other.most))

    def times(self, other: Span) -> Span:
        """Product."""
        return Span(_bounded(self.least * other.least), _bounded(self.most * other.most))

    def scaled(self, factor: float) -> Span:
        """By a factor, rounded up."""
        return Span(_scaled(self.least, factor), _scaled(self.most, factor))

    def union(self, other: Span) -> Span:
        """What covers both."""
        return Span(min(self.least, other.least), max(self.most, other.most))


def fixed(number: int) -> Span:
    """Exactly that."""
    return Span(number, number)


NOTHING: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Span(0, UNBOUNDED)


class Entries(NamedTuple):
    """Sizes of what a list or map holds."""

    kind: str
    key: Span
    value: Span

    def union(self, other: Entries) -> Entries:
        """What covers both."""
        return Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


class CallEstimate(NamedTuple):
    """Cost of a call without its arguments', and the size of what it gives, if known."""

    cost: Span
    size: Span | None = None


class Seen(msgspec.Struct):
    """What was found out about a node, or about a local variable."""

    cost: Span = NOTHING
    path: Path = ()
    size: Span | None = None
    entries: Entries | None = None


class Operand(NamedTuple):
    """An argument of a call as estimates see it. path is empty where it leads nowhere."""

    node: Node | None
    type: Type
    path: Path
    size: Span | None


def estimate(tree: Node, sizes: Sizes) -> Span:
    """The least and the most that an expression can cost."""
    return _Estimator(sizes).visit(tree).cost


class _Estimator:
    __slots__ = ("locals", "sizes")

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.locals: dict[str, list[Seen]] = {}

    def visit(self, node: Node) -> Seen:
        match node:
            case Const():
                # A name of a type counts as a name.
                return Seen(cost=ONE if isinstance(node.value, Type) else NOTHING, size=_literal_size(node.value))
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
            case Fold():
                return self.bind(node) if _is_bind(node) else self.fold(node)
        return Seen()

    # ---- names

    def local(self, name: str) -> Seen | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def pushed(self, name: str, seen: Seen) -> None:
        self.locals.setdefault(name, []).append(seen)

    def popped(self, name: str) -> None:
        self.locals[name].pop()

    def ident(self, node: Ident) -> Seen:
        found = self.local(node.name)
        path = found.path if found else (node.name.removeprefix("."),)
        seen = Seen(cost=ONE, path=path)
        seen.size = self.known_size(path, node.type)
        if found:
            seen.size = found.size if seen.size is None else seen.size
            seen.entries = found.entries
        return seen

    def known_size(self, path: Path, kind: Type) -> Span | None:
        """By what is declared, or by type."""
        if path:
            most = self.sizes(path)
            if most is not None:
                return Span(0, most)
        return ONE if _is_scalar(kind) else None

    def select(self, node: Select) -> Seen:
        operand = self.visit(node.operand)
        if node.test_only:
            return Seen(cost=operand.cost, size=self.known_size((), node.type))
        counted = node.operand.type.kind in ("map", "struct", "param")
        path = (*operand.path, node.field)
        cost = operand.cost.plus(ONE) if counted else operand.cost
        return Seen(cost=cost, path=path, size=self.known_size(path, node.type))

    # ---- calls

    def call(self, node: Call) -> Seen:
        if node.function == "dyn" and node.target is None:
            inner = self.visit(node.args[0])
            return Seen(ONE.plus(inner.cost), (), inner.size, inner.entries)
        if node.function in ("_&&_", "_||_"):
            return self.logical(node)
        args = [self.visit(arg) for arg in node.args]
        target = self.visit(node.target) if node.target is not None else None
        if not node.overloads:
            return Seen()
        spent = target.cost if target else NOTHING
        for arg in args:
            spent = spent.plus(arg.cost)
        seen = Seen()
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

    def placed(self, overload: str, args: list[Seen], seen: Seen) -> None:
        """What an index leads to."""
        if overload in ("list_index", "index_list", "index_map"):
            seen.size = args[0].entries.value if args[0].entries else None
            seen.path = (*args[0].path, "@values" if overload == "index_map" else "@items")

    def logical(self, node: Call) -> Seen:
        args = [self.visit(arg) for arg in node.args]
        most = NOTHING
        for arg in args:
            most = most.plus(arg.cost)
        return Seen(cost=Span(args[0].cost.least, most.most), size=ONE)

    def function(self, node: Call, overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate:
        """The cost of one overload without its arguments."""
        by_overload = _BY_OVERLOAD.get(overload) or _sorting(overload)
        if by_overload is not None:
            found = by_overload(self, target, args)
            if found is not None:
                return found
        by_function = _BY_FUNCTION.get(node.function)
        if by_function is not None:
            found = by_function(self, target, args)
            if found is not None:
                return found
        standard = _STANDARD.get(overload)
        if standard is not None:
            found = standard(self, target, args)
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

    def list_literal(self, node: ListLit) -> Seen:
        spent = NOTHING
        held = Span(0 if not node.elements else UNBOUNDED, 0)
        for element in node.elements:
            seen = self.visit(element)
            spent = spent.plus(seen.cost)
            held = held.union(_sized(seen))
        return Seen(
            cost=spent.plus(fixed(LIST_CREATE)), size=fixed(len(node.elements)), entries=Entries("list", ONE, held)
        )

    def map_literal(self, node: MapLit) -> Seen:
        spent = NOTHING
        keys = values = Span(0 if not node.entries else UNBOUNDED, 0)
        for key, value in node.entries:
            key_seen, value_seen = self.visit(key), self.visit(value)
            spent = spent.plus(key_seen.cost).plus(value_seen.cost)
            keys = keys.union(_sized(key_seen))
            values = values.union(_sized(value_seen))
        return Seen(
            cost=spent.plus(fixed(MAP_CREATE)), size=fixed(len(node.entries)), entries=Entries("map", keys, values)
        )

    def bind(self, node: Fold) -> Seen:
        init = self.visit(node.init)
        self.pushed(node.accu, init)
        result = self.visit(node.result)
        self.popped(node.accu)
        # The empty list that a bind loops over counts, though it is never made.
        return Seen(fixed(LIST_CREATE).plus(init.cost).plus(result.cost), (), result.size, result.entries)

    def fold(self, node: Fold) -> Seen:
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
        seen = Seen(ranged.cost.plus(init.cost).plus(result.cost).plus(rounds))
        if isinstance(node.init, Const):
            seen.size = init.size
        elif isinstance(node.init, ListLit | MapLit):
            seen.size = count
            seen.entries = step.entries
        if seen.size is None:
            seen.size = self.known_size((), node.type)
        return seen

    def iterated(self, node: Fold, ranged: Seen) -> list[str]:
        """Declares the iteration variables."""
        entries = ranged.entries
        kind = entries.kind if entries else node.range.type.kind
        key = entries.key if entries else None
        value = entries.value if entries else None
        if node.var2:
            self.pushed(node.var, Seen(path=(*ranged.path, "@indices" if kind == "list" else "@keys"), size=key))
            self.pushed(node.var2, Seen(path=(*ranged.path, "@items" if kind == "list" else "@values"), size=value))
            return [node.var, node.var2]
        if kind == "list":
            self.pushed(node.var, Seen(path=(*ranged.path, "@items"), size=value))
        else:
            self.pushed(node.var, Seen(path=(*ranged.path, "@keys"), size=key))
        return [node.var]


def _is_bind(node: Fold) -> bool:
    return node.macro == "bind" and node.accu != ACCU


def _sized(seen: Seen) -> Span:
    return UNKNOWN if seen.size is None else seen.size


def _operand(node: Node, seen: Seen) -> Operand:
    path = () if seen.path[:1] == (ACCU,) else seen.path
    return Operand(node, node.type, path, seen.size)


def _literal_size(value: Value) -> Span | None:
    if value.__class__ in (str, bytes):
        return fixed(len(value))
    return None if isinstance(value, Type) else ONE


def _is_scalar(kind: Type) -> bool:
    if kind.kind == "opaque" and kind.name == "optional_type":
        return _is_scalar(kind.params[0])
    return kind.kind in ("bool", "double", "duration", "int", "timestamp", "uint")


# ---- the cost of functions

Estimate = Callable[[_Estimator, Operand | None, list[Operand]], CallEstimate | None]


def _unit(_: _Estimator, __: Operand | None, ___: list[Operand]) -> CallEstimate:
    return CallEstimate(ONE)


def _int_literal(operand: Operand, otherwise: int) -> int:
    node = operand.node
    if not isinstance(node, Const) or node.value.__class__ is not int:
        return otherwise
    return max(0, int(node.value))


def _allocated(factor: float, size: Span) -> CallEstimate:
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_CREATE)), size)


def _slice(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or len(args) != 2:
        return None
    start, end = _int_literal(args[0], 0), _int_literal(args[1], self.size(target).most)
    return _allocated(1, fixed((end - start) % 2**64))


def _range(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return _allocated(1, fixed(_int_literal(args[0], UNBOUNDED)))


def _reverse(self: _Estimator, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    return None if target is None else _allocated(1, self.size(target))


def _flatten(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    depth = _int_literal(args[0], UNBOUNDED) if args else 1
    return _allocated(float(depth), self.size(target))


def _distinct(self: _Estimator, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    return None if target is None else _allocated(2, self.size(target).times(self.size(target)))


def _sets(factor: float) -> Estimate:
    def cost(self: _Estimator, _: Operand | None, args: list[Operand]) -> CallEstimate:
        return CallEstimate(self.size(args[0]).times(self.size(args[1])).scaled(factor).plus(ONE))

    return cost


def _sorting(overload: str) -> Estimate | None:
    """list_T_sort and list_T_sortByAssociatedKeys: every element compared with every other."""
    if not overload.endswith(("_sort", "_sortByAssociatedKeys")):
        return None
    factor = 2.0 + (STRING_FACTOR if overload.startswith(("list_string_", "list_bytes_")) else 0)

    def cost(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
        keys = args[0] if args else target
        return None if keys is None else _allocated(factor, self.size(keys).times(self.size(keys)))

    return cost


def _traversed(self: _Estimator, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    """Once over a list, or over a string for indexOf and lastIndexOf."""
    if target is None:
        return None
    if not target.type.params:
        return CallEstimate(self.size(target).scaled(STRING_FACTOR))
    each = ONE
    element = target.type.params[0]
    if element.kind in ("string", "bytes"):
        path = (*target.path, "@items") if target.path else ()
        each = each.plus(self.size(Operand(None, element, path, None)).scaled(STRING_FACTOR))
    return CallEstimate(self.size(target).times(each))


def _includes(_: _Estimator, __: Operand | None, ___: list[Operand]) -> CallEstimate:
    return CallEstimate(fixed(INCLUDES_MAX))


def _scan_argument(factor: float = STRING_FACTOR, *, sized: bool = False) -> Estimate:
    def cost(self: _Estimator, _: Operand | None, args: list[Operand]) -> CallEstimate | None:
        if not args:
            return None
        size = self.size(args[0])
        return CallEstimate(size.scaled(factor), size if sized else None)

    return cost


def _scan_target(self: _Estimator, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = self.size(target)
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _replace(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = self.size(target), self.size(args[0]), self.size(args[1])
    most_count, most_kept = _longest(size, old, new)
    least_count, least_kept = _shortest(size, old, new)
    result = Span(least_count, most_count).times(new).plus(Span(least_kept, most_kept))
    return CallEstimate(size.scaled(2 * STRING_FACTOR), result)


def _longest(size: Span, old: Span, new: Span) -> tuple[int, int]:
    """How many replacements and how much of the text make the longest result."""
    if old.least == 0:
        return _bounded(size.most + 1), size.most
    if new.most <= old.least:
        return 0, size.most
    return math.ceil(float(size.most) / float(old.least)), 0


def _shortest(size: Span, old: Span, new: Span) -> tuple[int, int]:
    if old.most == 0:
        return _bounded(size.least + 1), size.least
    if old.most <= new.least:
        return 0, size.least
    return math.ceil(float(size.least) / float(old.most)), 0


def _split(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = self.size(target)
    most = size.most
    if len(args) > 1 and isinstance(args[1].node, Const) and args[1].node.value.__class__ is int:
        most = args[1].node.value % 2**64
    return CallEstimate(size.scaled(2 * STRING_FACTOR), Span(0, most))


def _join(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    count = self.size(target)
    size = NOTHING
    if target.type.params:
        path = (*target.path, "@items") if target.path else ()
        size = count.times(self.size(Operand(None, target.type.params[0], path, None)))
    if args:
        gaps = Span(max(0, count.least - 1), max(0, count.most - 1))
        size = size.plus(self.size(args[0]).times(gaps))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _regex(self: _Estimator, text: Operand, pattern: Operand) -> Span:
    scanned = self.size(text).plus(ONE).scaled(STRING_FACTOR)
    return scanned.times(self.size(pattern).scaled(REGEX_FACTOR))


def _find(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or not args:
        return None
    return CallEstimate(_regex(self, target, args[0]), Span(0, self.size(target).most))


def _matches(_: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    text, pattern = [target, *args] if target else args
    scanned = _known(text).plus(ONE).scaled(STRING_FACTOR)
    return CallEstimate(scanned.times(_known(pattern).scaled(REGEX_FACTOR)))


def _known(operand: Operand) -> Span:
    return UNKNOWN if operand.size is None else operand.size


def _ip(self: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is not None:
        return CallEstimate(ONE)
    return _scan_argument()(self, target, args)


_ADDRESS: Final = Span(4, 16)


def _contains_address(*, network: bool, parsed: bool) -> Estimate:
    def cost(self: _Estimator, _: Operand | None, args: list[Operand]) -> CallEstimate:
        found = _ADDRESS.plus(_ADDRESS).scaled(STRING_FACTOR)
        if network:
            found = found.plus(_ADDRESS.scaled(STRING_FACTOR)).plus(ONE)
        if parsed:
            found = found.plus(self.size(args[0]).scaled(STRING_FACTOR))
        return CallEstimate(found)

    return cost


_NAME_FORMAT_REGEX: Final = 128
_FORMAT_NAME: Final = 64


def _validate(self: _Estimator, _: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(self.size(args[0]).scaled(STRING_FACTOR).scaled(_NAME_FORMAT_REGEX * REGEX_FACTOR))


_UNIT_EQUALITY: Final = frozenset(("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"))


def _equal(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate | None:
    one, two = args[0].type, args[1].type
    if one != two or one.kind not in ("opaque", "struct"):
        return None
    if one.name in _UNIT_EQUALITY:
        return CallEstimate(ONE)
    if one.name == "kubernetes.NamedFormat":
        return CallEstimate(Span(1, _FORMAT_NAME).scaled(STRING_FACTOR))
    if one.name == "kubernetes.URL":
        size = args[1].size
        return CallEstimate((Span(1, size.most) if size else ONE).scaled(STRING_FACTOR))
    return None


def _smaller(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate:
    most = min(_known(args[0]).most, _known(args[1]).most)
    return CallEstimate(Span(1 if most > 0 else 0, most).scaled(STRING_FACTOR))


def _concatenated(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate:
    size = _known(args[0]).plus(_known(args[1]))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _list_concatenated(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(ONE, _known(args[0]).plus(_known(args[1])))


def _format(_: _Estimator, target: Operand | None, __: list[Operand]) -> CallEstimate | None:
    return None if target is None else CallEstimate(_known(target).scaled(STRING_FACTOR))


def _converted(least: Callable[[int], int], most: Callable[[int], int]) -> Estimate:
    def cost(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate:
        size = _known(args[0])
        return CallEstimate(size.scaled(STRING_FACTOR), Span(least(size.least), most(size.most)))

    return cost


def _starts(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(_known(args[0]).scaled(STRING_FACTOR))


def _in_list(_: _Estimator, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(_known(args[1]).scaled(1))


def _contains(_: _Estimator, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_known(target).scaled(STRING_FACTOR).times(_known(args[0]).scaled(STRING_FACTOR)))


_BY_OVERLOAD: Final[dict[str, Estimate]] = {
    "cidr_contains_ip_ip": _contains_address(network=False, parsed=False),
    "cidr_contains_ip_string": _contains_address(network=False, parsed=True),
    "cidr_contains_cidr": _contains_address(network=True, parsed=False),
    "cidr_contains_cidr_string": _contains_address(network=True, parsed=True),
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}

_BY_FUNCTION: Final[dict[str, Estimate]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversed),
    "includes": _includes,
    "url": _scan_argument(sized=True),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _scan_target),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _scan_argument()),
    "ip": _ip,
    "ip.isCanonical": _scan_argument(2 * STRING_FACTOR),
    "validate": _validate,
    "_==_": _equal,
}

_COMPARED = tuple(
    f"{name}_{kind}" for name in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")
)

_STANDARD: Final[dict[str, Estimate]] = {
    "string_format": _format,
    "string_to_bytes": _converted(lambda n: n, lambda n: n * 4 % 2**64),
    "bytes_to_string": _converted(lambda n: n // 4, lambda n: n),
    "strings_quote": _converted(lambda n: n + 2, lambda n: (n * 2 + 2) % 2**64),
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _starts),
    "in_list": _in_list,
    **dict.fromkeys(("matches", "matches_string"), _matches),
    "contains_string": _contains,
    "add_list": _list_concatenated,
    **dict.fromkeys(("add_string", "add_bytes"), _concatenated),
    **dict.fromkeys((*_COMPARED, "equals", "not_equals"), _smaller),
}
