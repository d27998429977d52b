"""What can a call cost at worst? The figures of cel-go's and Kubernetes' functions over spans of sizes.

`estimate` asks; `cost` has the same figures for values. Never sees more than the operands of one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from dragoman.cel.ast import Const, Expr
from dragoman.cel.cost import LIST_CREATE, REGEX_FACTOR, STRING_FACTOR
from dragoman.cel.reads import AccessPath
from dragoman.cel.stdlib.lists import INCLUDES_MAX
from dragoman.cel.types import Type

UNBOUNDED: Final = 2**64 - 1
_DOUBLE_BOUND: Final = 2.0**64


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


class CallEstimate(NamedTuple):
    """Cost of a call without its arguments', and the size of what it gives, if known."""

    cost: Span
    size: Span | None = None


class Operand(NamedTuple):
    """An argument of a call as estimates see it. path is empty where it leads nowhere."""

    node: Expr | None
    type: Type
    path: AccessPath
    size: Span | None


SizeOf = Callable[[Operand], Span]
Estimate = Callable[[SizeOf, Operand | None, list[Operand]], CallEstimate | None]


def _unit(_: SizeOf, __: Operand | None, ___: list[Operand]) -> CallEstimate:
    return CallEstimate(ONE)


def _int_literal(operand: Operand, otherwise: int) -> int:
    node = operand.node
    if not isinstance(node, Const) or node.value.__class__ is not int:
        return otherwise
    return max(0, int(node.value))


def _allocated(factor: float, size: Span) -> CallEstimate:
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_CREATE)), size)


def _slice(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or len(args) != 2:
        return None
    start, end = _int_literal(args[0], 0), _int_literal(args[1], size_of(target).most)
    return _allocated(1, fixed((end - start) % 2**64))


def _range(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return _allocated(1, fixed(_int_literal(args[0], UNBOUNDED)))


def _reverse(size_of: SizeOf, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    return None if target is None else _allocated(1, size_of(target))


def _flatten(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    depth = _int_literal(args[0], UNBOUNDED) if args else 1
    return _allocated(float(depth), size_of(target))


def _distinct(size_of: SizeOf, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    return None if target is None else _allocated(2, size_of(target).times(size_of(target)))


def _sets(factor: float) -> Estimate:
    def cost(size_of: SizeOf, _: Operand | None, args: list[Operand]) -> CallEstimate:
        return CallEstimate(size_of(args[0]).times(size_of(args[1])).scaled(factor).plus(ONE))

    return cost


def sorting(overload: str) -> Estimate | None:
    """list_T_sort and list_T_sortByAssociatedKeys: every element compared with every other."""
    if not overload.endswith(("_sort", "_sortByAssociatedKeys")):
        return None
    factor = 2.0 + (STRING_FACTOR if overload.startswith(("list_string_", "list_bytes_")) else 0)

    def cost(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
        keys = args[0] if args else target
        return None if keys is None else _allocated(factor, size_of(keys).times(size_of(keys)))

    return cost


def _traversed(size_of: SizeOf, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    """Once over a list, or over a string for indexOf and lastIndexOf."""
    if target is None:
        return None
    if not target.type.params:
        return CallEstimate(size_of(target).scaled(STRING_FACTOR))
    each = ONE
    element = target.type.params[0]
    if element.kind in ("string", "bytes"):
        path = (*target.path, "@items") if target.path else ()
        each = each.plus(size_of(Operand(None, element, path, None)).scaled(STRING_FACTOR))
    return CallEstimate(size_of(target).times(each))


def _includes(_: SizeOf, __: Operand | None, ___: list[Operand]) -> CallEstimate:
    return CallEstimate(fixed(INCLUDES_MAX))


def _scan_argument(factor: float = STRING_FACTOR, *, sized: bool = False) -> Estimate:
    def cost(size_of: SizeOf, _: Operand | None, args: list[Operand]) -> CallEstimate | None:
        if not args:
            return None
        size = size_of(args[0])
        return CallEstimate(size.scaled(factor), size if sized else None)

    return cost


def _scan_target(size_of: SizeOf, target: Operand | None, _: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = size_of(target)
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _replace(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = size_of(target), size_of(args[0]), size_of(args[1])
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


def _split(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = size_of(target)
    most = size.most
    if len(args) > 1 and isinstance(args[1].node, Const) and args[1].node.value.__class__ is int:
        most = args[1].node.value % 2**64
    return CallEstimate(size.scaled(2 * STRING_FACTOR), Span(0, most))


def _join(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    count = size_of(target)
    size = NOTHING
    if target.type.params:
        path = (*target.path, "@items") if target.path else ()
        size = count.times(size_of(Operand(None, target.type.params[0], path, None)))
    if args:
        gaps = Span(max(0, count.least - 1), max(0, count.most - 1))
        size = size.plus(size_of(args[0]).times(gaps))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _regex(size_of: SizeOf, text: Operand, pattern: Operand) -> Span:
    scanned = size_of(text).plus(ONE).scaled(STRING_FACTOR)
    return scanned.times(size_of(pattern).scaled(REGEX_FACTOR))


def _find(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None or not args:
        return None
    return CallEstimate(_regex(size_of, target, args[0]), Span(0, size_of(target).most))


def _matches(_: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    text, pattern = [target, *args] if target else args
    scanned = _known(text).plus(ONE).scaled(STRING_FACTOR)
    return CallEstimate(scanned.times(_known(pattern).scaled(REGEX_FACTOR)))


def _known(operand: Operand) -> Span:
    return UNKNOWN if operand.size is None else operand.size


def _ip(size_of: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is not None:
        return CallEstimate(ONE)
    return _scan_argument()(size_of, target, args)


_ADDRESS: Final = Span(4, 16)


def _contains_address(*, network: bool, parsed: bool) -> Estimate:
    def cost(size_of: SizeOf, _: Operand | None, args: list[Operand]) -> CallEstimate:
        found = _ADDRESS.plus(_ADDRESS).scaled(STRING_FACTOR)
        if network:
            found = found.plus(_ADDRESS.scaled(STRING_FACTOR)).plus(ONE)
        if parsed:
            found = found.plus(size_of(args[0]).scaled(STRING_FACTOR))
        return CallEstimate(found)

    return cost


_NAME_FORMAT_REGEX: Final = 128
_FORMAT_NAME: Final = 64


def _validate(size_of: SizeOf, _: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(size_of(args[0]).scaled(STRING_FACTOR).scaled(_NAME_FORMAT_REGEX * REGEX_FACTOR))


_UNIT_EQUALITY: Final = frozenset(("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"))


def _equal(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate | None:
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


def _smaller(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate:
    most = min(_known(args[0]).most, _known(args[1]).most)
    return CallEstimate(Span(1 if most > 0 else 0, most).scaled(STRING_FACTOR))


def _concatenated(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate:
    size = _known(args[0]).plus(_known(args[1]))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _list_concatenated(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(ONE, _known(args[0]).plus(_known(args[1])))


def _format(_: SizeOf, target: Operand | None, __: list[Operand]) -> CallEstimate | None:
    return None if target is None else CallEstimate(_known(target).scaled(STRING_FACTOR))


def _converted(least: Callable[[int], int], most: Callable[[int], int]) -> Estimate:
    def cost(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate:
        size = _known(args[0])
        return CallEstimate(size.scaled(STRING_FACTOR), Span(least(size.least), most(size.most)))

    return cost


def _starts(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(_known(args[0]).scaled(STRING_FACTOR))


def _in_list(_: SizeOf, __: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(_known(args[1]).scaled(1))


def _contains(_: SizeOf, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_known(target).scaled(STRING_FACTOR).times(_known(args[0]).scaled(STRING_FACTOR)))


BY_OVERLOAD: Final[dict[str, Estimate]] = {
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

BY_FUNCTION: Final[dict[str, Estimate]] = {
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

STANDARD: Final[dict[str, Estimate]] = {
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
