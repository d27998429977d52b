"""Does a device match a selector? The environment that Kubernetes gives to CEL expressions over devices.

`compile_selector` makes a Selector of a text, once; `Selector.match` answers for a DeviceView, which
`device_view` makes of a published device, once. Rules: KEP-4381, k8s.io/dynamic-resource-allocation/cel.
Never decides what a failing selector means for a claim.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

import msgspec

from dragoman.api.resource import Device, DeviceAttribute
from dragoman.cel import types as t
from dragoman.cel.environment import Environment
from dragoman.cel.estimate import estimate
from dragoman.cel.expression import Expression, compile_expression
from dragoman.cel.faults import CompileError, EvalError, NoSuchKey
from dragoman.cel.meter import Meter, Plan
from dragoman.cel.reads import AccessPath, paths_read, texts_compared
from dragoman.cel.stdlib.library import FUNCTIONS, TYPE_NAMES
from dragoman.cel.stdlib.quantity import QUANTITY
from dragoman.cel.stdlib.semver import SEMVER
from dragoman.cel.types import Type
from dragoman.cel.values import TYPE_OF, CelValue, type_name
from dragoman.values.names import split_qualified
from dragoman.values.quantity import Quantity
from dragoman.values.semver import Semver

EXPRESSION_MAX: Final = 10 * 1024
"""Bytes of an expression (resource.k8s.io/v1 CELSelectorExpressionMaxLength)."""

COST_MAX: Final = 1_000_000
"""CELSelectorExpressionMaxCost, for the static estimate and at run time."""

# ---- the device as expressions see it


class Domains(dict[str, dict[str, CelValue]]):
    """Domain to names to values; looking up an unknown domain gives an empty map, `in` does not."""

    __slots__ = ()

    def __missing__(self, domain: str) -> dict[str, CelValue]:
        return _EMPTY


_EMPTY: Final[dict[str, CelValue]] = {}


class DeviceView:
    """A device as expressions see it. `fault` is why no expression can be evaluated on it, or None.

    Raised for the device as a whole, whether the expression reads the faulty attribute or not, as upstream does.
    """

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver", "fault")

    cel_fields: ClassVar[dict[str, str]] = {
        "driver": "driver",
        "attributes": "attributes",
        "capacity": "capacity",
        "allowMultipleAllocations": "allow_multiple_allocations",
    }

    def __init__(
        self,
        driver: str,
        attributes: Domains,
        capacity: Domains,
        *,
        allow_multiple_allocations: bool = False,
        fault: str | None = None,
    ) -> None:
        self.driver = driver
        self.attributes = attributes
        self.capacity = capacity
        self.allow_multiple_allocations = allow_multiple_allocations
        self.fault = fault


def device_view(device: Device, driver: str) -> DeviceView:
    """Makes the view of a device that a driver published; names without a domain are in the driver's."""
    attributes = Domains()
    capacity = Domains()
    fault: str | None = None
    for key, attribute in device.attributes.items():
        domain, name = split_qualified(key, driver)
        try:
            attributes.setdefault(domain, {})[name] = attribute_value(attribute)
        except ValueError as error:
            fault = fault or f"attribute {key}: {error}"
    for key, amount in device.capacity.items():
        domain, name = split_qualified(key, driver)
        capacity.setdefault(domain, {})[name] = amount.value or _ZERO
    return DeviceView(
        driver,
        attributes,
        capacity,
        allow_multiple_allocations=bool(device.allow_multiple_allocations),
        fault=fault,
    )


_ZERO: Final = Quantity(0)


def attribute_value(attribute: DeviceAttribute) -> CelValue:
    """The one value of an attribute: int, bool, str, Semver or a tuple of them. Raises ValueError."""
    if attribute.ints is not None:
        return attribute.ints
    if attribute.bools is not None:
        return attribute.bools
    if attribute.strings is not None:
        return attribute.strings
    if attribute.versions is not None:
        return tuple(_version(text) for text in attribute.versions)
    if attribute.int_ is not None:
        return attribute.int_
    if attribute.bool_ is not None:
        return attribute.bool_
    if attribute.string is not None:
        return attribute.string
    if attribute.version is not None:
        return _version(attribute.version)
    raise ValueError("unsupported attribute value")


def _version(text: str) -> Semver:
    try:
        return Semver.parse(text)
    except ValueError as error:
        raise ValueError(f"parse semantic version: {error}") from None


# ---- environments

_DEVICE: Final = t.struct("kubernetes.DRADevice")
TYPE_OF[DeviceView] = _DEVICE
TYPE_OF[Domains] = t.map_of(t.STRING, t.DYN)


class Mode(msgspec.Struct, frozen=True):
    """Which environment: `new` honours the gates and is for objects that are written, stored has everything."""

    new: bool = False
    list_attributes: bool = True
    consumable_capacity: bool = True


STORED: Final = Mode()


@lru_cache(maxsize=8)
def environment(mode: Mode) -> Environment:
    """The environment of a mode: the variable `device` and Kubernetes' functions."""
    lists = not mode.new or mode.list_attributes
    shares = not mode.new or mode.consumable_capacity
    attribute = t.DYN if lists else t.ANY
    fields: dict[str, Type] = {
        "driver": t.STRING,
        "attributes": t.map_of(t.STRING, t.map_of(t.STRING, attribute)),
        "capacity": t.map_of(t.STRING, t.map_of(t.STRING, QUANTITY)),
    }
    if shares:
        fields["allowMultipleAllocations"] = t.BOOL
    functions = FUNCTIONS if lists else {name: found for name, found in FUNCTIONS.items() if name != "includes"}
    return Environment(
        variables={"device": _DEVICE},
        functions=functions,
        type_names=TYPE_NAMES,
        fields={_DEVICE.name: fields},
        strict=True,
    )


_DOMAIN_MAX: Final = 63
_ID_MAX: Final = 32
_KEYS_MAX: Final = 32
_VALUE_MAX: Final = 64


def sizes(path: tuple[str, ...]) -> int | None:
    """The largest size of what a path into `device` leads to: the API's limits, for the worst-case cost."""
    match path[1:]:
        case ("driver",):
            return _DOMAIN_MAX
        case ("allowMultipleAllocations",):
            return 1
        case ("attributes" | "capacity",) | ("attributes" | "capacity", "@values"):
            return _KEYS_MAX
        case ("attributes" | "capacity", "@keys"):
            return _DOMAIN_MAX
        case ("attributes" | "capacity", "@values", "@keys"):
            return _ID_MAX
        case ("attributes", "@values", name) if not name.startswith("@") or name == "@values":
            return _VALUE_MAX
        case ("capacity", "@values", "@values"):
            return 0
    return None


# ---- outcomes


class SelectorCompileError(msgspec.Struct, frozen=True):
    """The text is no selector. message has position and caret where there are any; line and column count from 1.

    kind: length, syntax, compile, result or cost.
    """

    expression: str
    kind: str
    message: str
    line: int = 0
    column: int = 0


class SelectorFailed(msgspec.Struct, frozen=True):
    """A selector could not be evaluated on a device.

    attribute is what the device lacks, if that is the cause: `domain/name` as far as the expression tells the domain.
    near is a name that it has and that is similar, written the same way.
    """

    expression: str
    message: str
    line: int = 0
    column: int = 0
    attribute: str | None = None
    near: str | None = None


MatchResult: TypeAlias = bool | SelectorFailed


class Reads(msgspec.Struct, frozen=True):
    """What a selector can read of a device.

    attributes and capacity hold (domain, name) pairs, name None for everything in the domain; None for all domains.
    """

    driver: bool
    allow_multiple_allocations: bool
    attributes: frozenset[tuple[str, str | None]] | None
    capacity: frozenset[tuple[str, str | None]] | None

    def key(self, view: DeviceView) -> tuple[object, ...]:
        """Equal for two devices if the selector cannot tell them apart. Hashable."""
        if view.fault is not None:
            return (view.fault,)
        return (
            view.driver if self.driver else None,
            view.allow_multiple_allocations if self.allow_multiple_allocations else None,
            _tuple_of(view.attributes, self.attributes),
            _tuple_of(view.capacity, self.capacity),
        )


def _tuple_of(domains: Domains, wanted: frozenset[tuple[str, str | None]] | None) -> tuple[object, ...]:
    if wanted is None:
        return tuple((domain, _all_of(values)) for domain, values in sorted(domains.items()))
    if not wanted:
        return ()
    return tuple(
        [
            _all_of(domains[domain]) if name is None else _distinguished(domains[domain].get(name, _ABSENT))
            for domain, name in _ordered(wanted)
        ]
    )


@lru_cache(maxsize=4096)
def _ordered(wanted: frozenset[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    return sorted(wanted, key=str)


_ABSENT: Final = object()


def _all_of(values: dict[str, CelValue]) -> tuple[object, ...]:
    return tuple((name, _distinguished(value)) for name, value in sorted(values.items()))


_DISTINGUISHED: Final = frozenset((str, int, Semver))


def _distinguished(value: CelValue) -> object:
    """The value, with its kind where Python takes one for another: True for 1, but expressions do not."""
    kind = value.__class__
    if kind in _DISTINGUISHED:
        return value
    if kind is tuple:
        return (value, tuple(element.__class__ for element in value))
    return (value, value.as_int64() is None) if kind is Quantity else (kind, value)


def _reads(paths: frozenset[AccessPath]) -> Reads:
    whole = () in paths
    return Reads(
        driver=whole or ("driver",) in paths,
        allow_multiple_allocations=whole or ("allowMultipleAllocations",) in paths,
        attributes=None if whole else _pairs("attributes", paths),
        capacity=None if whole else _pairs("capacity", paths),
    )


def _pairs(field: str, paths: frozenset[AccessPath]) -> frozenset[tuple[str, str | None]] | None:
    if (field,) in paths:
        return None
    return frozenset((p[1], p[2] if len(p) > 2 else None) for p in paths if p[0] == field)


class Selector:
    """A compiled selector: `reads` says what it can read, `type` its static type, `max_cost` its worst-case cost.

    `compared` holds (domain, name) of attributes that it only compares with constant texts, and these texts. Cost is
    counted during an evaluation only where the worst case is over the limit; below, it cannot be exceeded.
    """

    __slots__ = ("_places", "_run", "compared", "expression", "max_cost", "reads", "type")

    def __init__(self, compiled: Expression, within: Environment) -> None:
        self.expression = compiled.text
        self.type = compiled.type
        self.max_cost = estimate(compiled.tree, sizes).most
        self._run: Callable[[DeviceView], CelValue] = compiled.program
        if self.max_cost > COST_MAX:
            self._run = _metered(compiled, within)
        paths, self._places = paths_read(compiled.tree, "device")
        self.reads = _reads(paths)
        self.compared = {
            (path[1], path[2]): texts
            for path, texts in texts_compared(compiled.tree, "device").items()
            if len(path) == 3 and path[0] == "attributes"
        }

    def match(self, view: DeviceView) -> MatchResult:
        """True or false, or why there is no answer."""
        found = self.value(view)
        if found is True or found is False:
            return bool(found)
        if isinstance(found, SelectorFailed):
            return found
        return SelectorFailed(self.expression, f"CEL result of type {type_name(found)} could not be converted to bool")

    def value(self, view: DeviceView) -> CelValue:
        """What the expression evaluates to, as a value of `dragoman.cel.values`, or a SelectorFailed."""
        if view.fault is not None:
            return SelectorFailed(self.expression, view.fault)
        try:
            return self._run(view)
        except EvalError as error:
            return self._failed(error)
        except RecursionError:
            return SelectorFailed(self.expression, "expression is nested too deeply")

    def _failed(self, error: EvalError) -> SelectorFailed:
        line, column = position(self.expression, error.offset)
        if not isinstance(error, NoSuchKey):
            return SelectorFailed(self.expression, error.message, line, column)
        path = self._places.get(error.offset, ())
        name = f"{path[1]}/{path[2]}" if len(path) == 3 else error.key
        near = _near(error.key, error.known)
        message = f"{error.message} (did you mean {near}?)" if near else error.message
        if near and len(path) == 3:
            near = f"{path[1]}/{near}"
        return SelectorFailed(self.expression, message, line, column, attribute=name, near=near)


def _metered(compiled: Expression, within: Environment) -> Callable[[DeviceView], CelValue]:
    plan = Plan(within)

    def run(view: DeviceView) -> CelValue:
        return Meter(plan, COST_MAX).run(compiled.tree, view)

    return run


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1; zeros if there is none."""
    if offset < 0:
        return 0, 0
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _near(name: str, known: tuple[str, ...]) -> str | None:
    """A known name that somebody may have meant."""
    found = get_close_matches(name.lower(), [key.lower() for key in known], n=1, cutoff=0.7)
    return next((key for key in known if found and key.lower() == found[0]), None)


@lru_cache(maxsize=4096)
def compile_selector(expression: str, mode: Mode = STORED) -> Selector | SelectorCompileError:
    """The selector of a text, cached. With mode.new length and worst-case cost are judged too."""
    found = _compile(expression, mode)
    if isinstance(found, SelectorCompileError) or found.type == t.BOOL or t.is_dyn(found.type):
        return found
    what = f"must evaluate to bool or the unknown type, not {t.show(found.type)}"
    return SelectorCompileError(expression, "result", what)


@lru_cache(maxsize=1024)
def compile_derived(expression: str, mode: Mode = STORED) -> Selector | SelectorCompileError:
    """The expression of a derived attribute (KEP-6080), cached; ask `value` of the outcome.

    The static type must be int, bool, string, Semver, unknown, or (with list attributes) a list of one of these.
    """
    found = _compile(expression, mode)
    if isinstance(found, SelectorCompileError):
        return found
    lists = not mode.new or mode.list_attributes
    element = found.type.params[0] if lists and found.type.kind == "list" else found.type
    if element in _DERIVED or t.is_dyn(element):
        return found
    more = " or a list of these scalars" if lists else ""
    what = f"must evaluate to a primitive scalar (string, integer, boolean, semver){more}, not {t.show(found.type)}"
    return SelectorCompileError(expression, "result", what)


_DERIVED: Final = (t.BOOL, t.INT, t.STRING, SEMVER)


def _compile(expression: str, mode: Mode) -> Selector | SelectorCompileError:
    if mode.new and len(expression.encode()) > EXPRESSION_MAX:
        size = len(expression.encode())
        return SelectorCompileError(expression, "length", f"must be no more than {EXPRESSION_MAX} bytes, got {size}")
    within = environment(mode)
    try:
        compiled = compile_expression(expression, within)
    except CompileError as refused:
        issue = refused.issues[0]
        line, column = issue.line_and_column(expression)
        kind = "syntax" if issue.message.startswith("Syntax error") else "compile"
        return SelectorCompileError(expression, kind, f"compilation failed: {refused}", line, column)
    found = Selector(compiled, within)
    if mode.new and found.max_cost > COST_MAX:
        what = f"too complex, exceeds cost limit: worst case {found.max_cost}, limit {COST_MAX}"
        return SelectorCompileError(expression, "cost", what)
    return found
