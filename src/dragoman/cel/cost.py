"""What does a call cost? The figures of cel-go and of Kubernetes' libraries, for values known at run time.

Costs count toward a limit that Kubernetes promises to enforce, so they are exact. `estimate` has the static side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from dragoman.cel.stdlib.formats import FORMATS, NamedFormat
from dragoman.cel.stdlib.lists import INCLUDES_MAX
from dragoman.cel.stdlib.net import CIDR, IP
from dragoman.cel.stdlib.url import URL
from dragoman.cel.values import CelValue, Optional
from dragoman.values.quantity import Quantity
from dragoman.values.semver import Semver

LIST_CREATE: Final = 10
MAP_CREATE: Final = 30
STRING_FACTOR: Final = 0.1
REGEX_FACTOR: Final = 0.25

Values = Sequence[CelValue]
CallCost = Callable[[Values, CelValue], int]

_SIZED: Final = (str, bytes, tuple, dict, IP, CIDR)
_UNIT_EQUALITY: Final = (Quantity, Semver, IP, CIDR, URL, NamedFormat)


def size_of(value: CelValue) -> int:
    """The size that costs are counted by: 1 for all that has none."""
    if isinstance(value, _SIZED):
        return len(value)
    if value.__class__ is Optional and value.present:
        return size_of(value.value)
    return 1


def scan(size: float, factor: float = STRING_FACTOR) -> int:
    """Going once over a string."""
    return math.ceil(size * factor)


def traversal(value: CelValue, seen: dict[int, int] | None = None) -> int:
    """Going once over everything inside a value; a list that is held twice counts twice but is looked at once."""
    if value.__class__ is str:
        return int(len(value.encode()) * STRING_FACTOR)
    if value.__class__ is bytes:
        return int(len(value) * STRING_FACTOR)
    if value.__class__ is not tuple and not isinstance(value, dict):
        return 1
    seen = {} if seen is None else seen
    if id(value) not in seen:
        if isinstance(value, dict):
            seen[id(value)] = sum(traversal(key, seen) + traversal(entry, seen) for key, entry in value.items())
        else:
            seen[id(value)] = sum(traversal(element, seen) for element in value)
    return seen[id(value)]


def _one(_: Values, __: CelValue) -> int:
    return 1


def _scans(times: int, argument: int = 0) -> CallCost:
    return lambda args, _: scan(size_of(args[argument]) * times)


def _regex(args: Values, _: CelValue) -> int:
    return scan(1.0 + size_of(args[0])) * scan(size_of(args[1]), REGEX_FACTOR)


def _contains(args: Values, _: CelValue) -> int:
    return scan(size_of(args[0])) * scan(size_of(args[1]))


def _smaller(args: Values, _: CelValue) -> int:
    return scan(min(size_of(args[0]), size_of(args[1])))


def _equal(args: Values, _: CelValue) -> int:
    return 1 if isinstance(args[0], _UNIT_EQUALITY) else _smaller(args, None)


def _contains_ip(args: Values, _: CelValue) -> int:
    return scan(2 * size_of(args[0]))


def _contains_cidr(args: Values, _: CelValue) -> int:
    return _contains_ip(args, None) + scan(size_of(args[0])) + 1


def _and_parsed(cost: CallCost) -> CallCost:
    """The same where the second argument is text that is read first."""
    return lambda args, result: cost(args, result) + scan(size_of(args[1]))


_FORMAT_SIZES: Final = {
    "DNS1123Label": 30,
    "DNS1123Subdomain": 60,
    "DNS1035Label": 30,
    "QualifiedName": 60,
    "DNS1123LabelPrefix": 30,
    "DNS1123SubdomainPrefix": 60,
    "DNS1035LabelPrefix": 30,
    "LabelValue": 40,
    "URI": 1103,
    "uuid": 70,
    "byte": 84,
    "date": 71,
    "datetime": 71,
}
assert set(_FORMAT_SIZES) == {found.name for found in FORMATS.values()}


def _validate(args: Values, _: CelValue) -> int:
    if not isinstance(args[0], NamedFormat):
        return 1
    return scan(1.0 + size_of(args[1])) * scan(_FORMAT_SIZES[args[0].name], REGEX_FACTOR)


def _list(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_CREATE


def _of_result(_: Values, result: CelValue) -> int:
    return _list(1, size_of(result))


def _flatten(args: Values, _: CelValue) -> int:
    if len(args) == 2 and args[1].__class__ is not int:
        return _list(1, 0)
    return _list(max(args[1], 1.0 if args[1] < 0 else 0.0) if len(args) == 2 else 1.0, size_of(args[0]))


def _pairwise(argument: int) -> CallCost:
    """Every element compared with every other."""

    def cost(args: Values, _: CelValue) -> int:
        values = args[argument]
        if values.__class__ is not tuple:
            return _list(1, 0)
        factor = 2.0 + (STRING_FACTOR if values and values[0].__class__ in (str, bytes) else 0)
        return _list(factor, len(values) ** 2)

    return cost


def _sets(factor: int) -> CallCost:
    return lambda args, _: 1 + size_of(args[0]) * size_of(args[1]) * factor


_TRAVERSED: CallCost = lambda args, _: traversal(args[0])  # noqa: E731

BY_OVERLOAD: Final[dict[str, CallCost]] = {
    "list_slice": _of_result,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _of_result,
    "list_reverse": _of_result,
    "list_distinct": _pairwise(0),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "cidr_ip": _one,
    "cidr_contains_ip_string": _and_parsed(_contains_ip),
    "cidr_contains_cidr_string": _and_parsed(_contains_cidr),
}
"""Looked at first: costs that belong to one overload."""

BY_FUNCTION: Final[dict[str, CallCost]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _TRAVERSED),
    "includes": lambda _, __: INCLUDES_MAX,
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _scans(1)),
    **dict.fromkeys(("replace", "split"), _scans(2)),
    "join": lambda _, result: scan(size_of(result) * 2),
    **dict.fromkeys(("find", "findAll"), _regex),
    **dict.fromkeys(("cidr", "ip", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _scans(1)),
    "ip.isCanonical": _scans(2),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}
"""Looked at next: Kubernetes' figures."""

_COMPARED = tuple(
    f"{name}_{kind}" for name in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")
)

BY_STANDARD_OVERLOAD: Final[dict[str, CallCost]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _scans(1, 1)),
    **dict.fromkeys(("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _scans(1)),
    "in_list": lambda args, _: size_of(args[1]),
    **dict.fromkeys((*_COMPARED, "not_equals", "equals"), _smaller),
    **dict.fromkeys(("add_string", "add_bytes"), lambda args, _: scan(size_of(args[0]) + size_of(args[1]))),
    **dict.fromkeys(("matches", "matches_string"), _regex),
    "contains_string": _contains,
}
"""Looked at last: the language's own; all else costs 1."""


def cost_of(function: str, overload: str) -> CallCost:
    """What counts the calls of a function. overload is empty where the static types left several."""
    return (
        BY_OVERLOAD.get(overload)
        or (_pairwise(0) if overload.endswith("_sort") else None)
        or (_pairwise(1) if overload.endswith("_sortByAssociatedKeys") else None)
        or BY_FUNCTION.get(function)
        or BY_STANDARD_OVERLOAD.get(overload)
        or _one
    )
