"""Do the CEL rules of a schema hold for an object? x-kubernetes-validations, with transition rules and cost limits.

Rules are compiled once for a schema; the worst case of each is judged when a definition is written (`problems`). At run
time cost is counted only where a limit could be reached. Source: KEP-2876, and the limits and estimates of
k8s.io/apiserver/pkg/cel.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.custom.check import Cause
from dragoman.apiserver.custom.schema import SchemaNode, ValidationRule
from dragoman.cel import types as t
from dragoman.cel.ast import Ident
from dragoman.cel.environment import Environment
from dragoman.cel.estimate import estimate
from dragoman.cel.expression import Expression, compile_expression
from dragoman.cel.faults import CompileError, CostExceeded, EvalError
from dragoman.cel.meter import Meter, Plan
from dragoman.cel.parse import RESERVED
from dragoman.cel.stdlib.library import FUNCTIONS, TYPE_NAMES
from dragoman.cel.stdlib.times import parse_duration, parse_timestamp
from dragoman.cel.types import Type
from dragoman.cel.values import NONE, CelValue, Optional
from dragoman.cel.walk import nodes

CALL_COST: Final = 1_000_000
OBJECT_COST: Final = 10_000_000
STATIC_RULE_COST: Final = 10_000_000
STATIC_SCHEMA_COST: Final = 100_000_000
REQUEST_BYTES: Final = 3 * 1024 * 1024
_FORBIDDEN, _INVALID = "FieldValueForbidden", "FieldValueInvalid"
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"

# ---- names

_KEYWORDS = RESERVED | {"true", "false", "null", "in"}
_SIGNS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escaped(name: str) -> str | None:
    """A property's name in expressions, None for one that has none."""
    if name in _KEYWORDS:
        return f"__{name}__"
    if not re.match(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*$", name):
        return None
    return re.sub(r"__|[-./]", lambda found: _SIGNS[found[0]], name)


# ---- types


class Sizes(msgspec.Struct):
    """How large can a place be? most: elements or characters; least: bytes of JSON at least."""

    most: int | None
    least: int
    items: Sizes | None = None
    fields: dict[str, Sizes] = {}


_TIMES = {"date-time": (32, 21), "date": (12, 12)}


class _Types:
    """The CEL types of one schema: a struct for each object with properties."""

    def __init__(self) -> None:
        self.fields: dict[str, dict[str, Type]] = {}

    def declare(self, node: SchemaNode, *, root: bool = False) -> tuple[Type, Sizes] | None:
        """The type of a place and its sizes; None for one that expressions do not see."""
        raw = node.raw
        if node.int_or_string:
            most = 4 * raw["maxLength"] if raw.get("maxLength") is not None else REQUEST_BYTES - 2
            return t.DYN, Sizes(most, 1)
        match node.type:
            case "array":
                inner = self.declare(node.items, root=node.items.embedded) if node.items else None
                if inner is None:
                    return None
                most = (
                    raw["maxItems"] if raw.get("maxItems") is not None else (REQUEST_BYTES - 2) // (inner[1].least + 1)
                )
                return t.list_of(inner[0]), Sizes(most, 2, inner[1])
            case "object":
                return self._object(node, root=root or node.embedded)
            case "string":
                return _string(raw)
            case "boolean":
                return t.BOOL, Sizes(None, 4)
            case "number":
                return t.DOUBLE, Sizes(None, 1)
            case "integer":
                return t.INT, Sizes(None, 1)
        return None

    def _object(self, node: SchemaNode, *, root: bool) -> tuple[Type, Sizes] | None:
        raw = node.raw
        if node.additional is not None:
            inner = self.declare(node.additional, root=node.additional.embedded)
            if inner is None:
                return None
            given = raw.get("maxProperties")
            most = given if given is not None else (REQUEST_BYTES - 2) // (inner[1].least + 6)
            return t.map_of(t.STRING, inner[0]), Sizes(most, 2, inner[1])
        properties = {**node.properties, **(_ROOT if root else {})}
        name = f"object{len(self.fields)}"
        fields: dict[str, Type] = {}
        self.fields[name] = fields
        # As upstream: the type of an object with properties has no elements that count.
        sizes = Sizes(0, 2)
        required = set(raw.get("required") or ())
        for property_name, member in properties.items():
            found = self.declare(member)
            if found is None:
                continue
            if (shown := escaped(property_name)) is not None:
                fields[shown], sizes.fields[shown] = found
            if property_name in required and not member.has_default:
                sizes.least += len(property_name) + found[1].least + 4
        return t.struct(name), sizes


_META = {"name": {"type": "string"}, "generateName": {"type": "string"}}
_ROOT = {
    "apiVersion": SchemaNode({"type": "string"}),
    "kind": SchemaNode({"type": "string"}),
    "metadata": SchemaNode({"type": "object", "properties": _META}),
}


def _string(raw: Object) -> tuple[Type, Sizes]:
    form, most = raw.get("format"), raw.get("maxLength")
    if form == "byte":
        return t.BYTES, Sizes(most if most is not None else REQUEST_BYTES - 2, 2)
    if form == "duration":
        return t.DURATION, Sizes(32, 3)
    if form in _TIMES:
        return t.TIMESTAMP, Sizes(*_TIMES[form])
    if most is not None:
        return t.STRING, Sizes(4 * most, 2)
    if enum := raw.get("enum"):
        return t.STRING, Sizes(max((len(v.encode()) for v in enum if isinstance(v, str)), default=0), 2)
    return t.STRING, Sizes(REQUEST_BYTES - 2, 2)


# ---- values


def to_value(node: SchemaNode, value: Any, *, root: bool = False) -> CelValue:
    """A JSON value as expressions see it."""
    if isinstance(value, dict):
        if node.additional is not None:
            return {name: to_value(node.additional, inner) for name, inner in value.items()}
        known = {**node.properties, **(_ROOT if root or node.embedded else {})}
        out: dict[str, CelValue] = {}
        for name, inner in value.items():
            member = known.get(name)
            if member is not None and (shown := escaped(name)) is not None:
                out[shown] = to_value(member, inner)
        return out
    if isinstance(value, list):
        return tuple(to_value(node.items, item) if node.items else item for item in value)
    if value is None or isinstance(value, bool) or node.int_or_string:
        return value
    if isinstance(value, str):
        return _text_value(node.raw.get("format") or "", value)
    return float(value) if node.type == "number" else int(value)


def _text_value(form: str, text: str) -> CelValue:
    try:
        match form:
            case "byte":
                return base64.b64decode(text)
            case "duration":
                return parse_duration(text)
            case "date-time" | "datetime":
                return parse_timestamp(text.upper())
            case "date":
                return parse_timestamp(f"{text}T00:00:00Z")
    except (EvalError, ValueError):
        pass  # its format is wrong, which is distinguished from rules
    return text


# ---- compiled rules


class CompiledRule:
    """A rule as it runs. error: why it cannot; cost: its worst case for one call."""

    __slots__ = (
        "cost",
        "environment",
        "error",
        "expression",
        "message",
        "message_cost",
        "message_error",
        "rule",
        "uses_old",
    )

    def __init__(self, rule: ValidationRule, environment: Environment, sizes: Sizes) -> None:
        self.rule = rule
        self.environment = environment
        self.error = self.message_error = ""
        self.cost = self.message_cost = 0
        self.expression = self.message = None
        self.uses_old = False
        try:
            self.expression = compile_expression(rule.text, environment)
            if self.expression.type not in (t.BOOL, t.DYN):
                self.error = "cel expression must evaluate to a bool"
            self.uses_old = any(isinstance(n, Ident) and n.name == "oldSelf" for n in nodes(self.expression.tree))
            self.cost = estimate(self.expression.tree, _sizes_of(sizes)).most
        except CompileError as refused:
            self.error = f"compilation failed: {refused}"
        if rule.message_expression:
            self._compile_message(rule.message_expression, sizes)

    expression: Expression | None
    message: Expression | None

    def _compile_message(self, text: str, sizes: Sizes) -> None:
        try:
            self.message = compile_expression(text, self.environment)
            if self.message.type not in (t.STRING, t.DYN):
                self.message_error = "messageExpression must evaluate to a string"
            self.message_cost = estimate(self.message.tree, _sizes_of(sizes)).most
        except CompileError as refused:
            self.message_error = f"messageExpression compilation failed: {refused}"


def _sizes_of(root: Sizes) -> Any:
    def sizes(path: tuple[str, ...]) -> int | None:
        if not path or path[0] not in ("self", "oldSelf"):
            return None
        at: Sizes | None = root
        for step in path[1:]:
            if at is None:
                return None
            if step in ("@items", "@values"):
                at = at.items
            elif step == "@keys":
                return REQUEST_BYTES
            else:
                at = at.fields.get(step)
        return at.most if at is not None else None

    return sizes


class ValidationRules:
    """The compiled rules of a schema, by node."""

    def __init__(self, root: SchemaNode) -> None:
        self.root = root
        self._of: dict[int, tuple[CompiledRule, ...]] = {}
        self._worst: int = 0
        self._single: int = 0
        if root.has_rules_below:
            for node, is_root, cardinality in _places(root, 1, root=True):
                self._compile(node, is_root, cardinality)

    def _compile(self, node: SchemaNode, is_root: bool, cardinality: int | None) -> None:
        if not node.rules:
            return
        types = _Types()
        declared = types.declare(node, root=is_root)
        own, sizes = declared if declared else (t.DYN, Sizes(None, 1))
        compiled = []
        for rule in node.rules:
            old = t.optional_of(own) if rule.optional_old_self else own
            environment = Environment(
                variables={"self": own, "oldSelf": old},
                functions=FUNCTIONS,
                type_names=TYPE_NAMES,
                fields=types.fields,
                strict=True,
                objects_are_maps=True,
            )
            compiled.append(CompiledRule(rule, environment, sizes))
        self._of[id(node)] = tuple(compiled)
        times = cardinality if cardinality is not None else REQUEST_BYTES // (sizes.least + 1)
        for one in compiled:
            self._worst += (one.cost + one.message_cost) * times
            self._single = max(self._single, one.cost, one.message_cost)

    @property
    def metered(self) -> bool:
        """Whether a limit could be reached at run time."""
        return self._single > CALL_COST or self._worst > OBJECT_COST

    # ---- when a definition is written

    def problems(self, path: str) -> list[Cause]:
        """Why a definition with these rules is refused. path: that of openAPIV3Schema."""
        found: list[Cause] = []
        total = 0
        for node, at, cardinality, correlated in _paths(self.root, path, 1, correlated=True):
            for index, one in enumerate(self._of.get(id(node), ())):
                here = f"{at}.x-kubernetes-validations[{index}]"
                found += self._evaluated(one, here, correlated)
                least = _Types().declare(node)
                times = (
                    cardinality if cardinality is not None else REQUEST_BYTES // ((least[1].least if least else 1) + 1)
                )
                cost = one.cost * times
                total += cost
                if cost > STATIC_RULE_COST and not one.error:
                    found.append(
                        (
                            _FORBIDDEN,
                            f"Forbidden: {_too_dear('estimated rule cost', cost, STATIC_RULE_COST)}",
                            f"{here}.rule",
                        )
                    )
        if total > STATIC_SCHEMA_COST:
            what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            found.append((_FORBIDDEN, f"Forbidden: {_too_dear(what, total, STATIC_SCHEMA_COST)}", path))
        return found

    def _evaluated(self, one: CompiledRule, here: str, correlated: bool) -> Iterator[Cause]:
        rule = one.rule
        if not rule.text.strip():
            yield "FieldValueRequired", "Required value: rule is not specified", f"{here}.rule"
            return
        if one.error:
            shown = msgspec.json.encode(rule.text).decode()
            yield _INVALID, f"Invalid value: {shown}: {one.error}", f"{here}.rule"
        if one.message_error:
            shown = msgspec.json.encode(rule.message_expression).decode()
            yield _INVALID, f"Invalid value: {shown}: {one.message_error}", f"{here}.messageExpression"
        if one.uses_old and not correlated and not rule.optional_old_self:
            shown = msgspec.json.encode(rule.text).decode()
            what = "oldSelf cannot be used on the uncorrelatable portion of the schema"
            yield _INVALID, f"Invalid value: {shown}: {what}", f"{here}.rule"

    # ---- when an object is written

    def causes(self, obj: Object, old: Object | None) -> list[Cause]:
        """Rules that do not hold. old: the stored object on update."""
        if not self._of:
            return []
        run = _Run(self)
        run.visit(self.root, obj, old, "", root=True)
        return run.found

    def of(self, node: SchemaNode) -> tuple[CompiledRule, ...]:
        """The rules of one place."""
        return self._of.get(id(node), ())


def _too_dear(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )


def _places(
    node: SchemaNode, cardinality: int | None, *, root: bool = False
) -> Iterator[tuple[SchemaNode, bool, int | None]]:
    yield node, root or node.embedded, cardinality
    for member in node.properties.values():
        yield from _places(member, cardinality)
    for inner, most in _repeated(node, cardinality):
        yield from _places(inner, most)


def _repeated(node: SchemaNode, cardinality: int | None) -> Iterator[tuple[SchemaNode, int | None]]:
    for inner, limit in ((node.items, "maxItems"), (node.additional, "maxProperties")):
        if inner is not None:
            most = node.raw.get(limit)
            yield inner, None if most is None or cardinality is None else cardinality * most


def _paths(
    node: SchemaNode, path: str, cardinality: int | None, *, correlated: bool
) -> Iterator[tuple[SchemaNode, str, int | None, bool]]:
    yield node, path, cardinality, correlated
    for name, member in node.properties.items():
        yield from _paths(member, f"{path}.properties[{name}]", cardinality, correlated=correlated)
    for inner, most in _repeated(node, cardinality):
        kept = correlated and (inner is node.additional or node.list_type == "map")
        word = "items" if inner is node.items else "additionalProperties"
        yield from _paths(inner, f"{path}.{word}", most, correlated=kept)


_MISSING: Final = object()


class _Run:
    """The rules over one object, with the budget that is left."""

    def __init__(self, rules: ValidationRules) -> None:
        self.rules = rules
        self.found: list[Cause] = []
        self.budget = OBJECT_COST

    def visit(self, node: SchemaNode, value: Any, old: Any, path: str, *, root: bool = False) -> None:
        if value is None or not node.has_rules_below or self.budget < 0:
            return
        if compiled := self.rules.of(node):
            self._rules(node, compiled, value, old, path, root=root)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for name, inner in value.items():
                member = node.member(name)
                if member is not None:
                    here = f"{path}.{name}" if node.additional is None else f"{path}[{name}]"
                    self.visit(member, inner, before.get(name), here.lstrip("."))
        elif isinstance(value, list) and node.items is not None:
            for at, item in enumerate(value):
                self.visit(node.items, item, _correlated(node, item, old), f"{path}[{at}]")

    def _rules(
        self, node: SchemaNode, compiled: tuple[CompiledRule, ...], value: Any, old: Any, path: str, *, root: bool
    ) -> None:
        own = to_value(node, value, root=root)
        before = None if old is None else to_value(node, old, root=root)
        unchanged = old is not None and old == value
        shown = "" if node.type in ("object", "array") else f"Invalid value: {msgspec.json.encode(value).decode()}: "
        for one in compiled:
            optional = one.rule.optional_old_self
            if one.uses_old and before is None and not optional:
                continue  # a transition rule needs something to compare with
            previous: CelValue = (NONE if before is None else Optional(before)) if optional else before
            try:
                holds = self._evaluate(one, one.expression, own, previous)
            except CostExceeded:
                self._add(_INVALID, f'Invalid value: "{node.type}": {_OUT_OF_BUDGET}', path)
                self.budget = -1
                return
            except EvalError as error:
                text = (one.rule.message or one.rule.text).strip()
                self._add(_INVALID, f'Invalid value: "{node.type}": {error.message} evaluating rule: {text}', path)
                continue
            if holds is True or (unchanged and not one.uses_old):
                continue
            self._add(*self._cause(one, own, previous, path, shown))

    def _cause(self, one: CompiledRule, own: CelValue, previous: CelValue, path: str, shown: str) -> Cause:
        rule = one.rule
        detail = rule.message.strip() or f"failed rule: {rule.text.strip()}"
        if one.message is not None:
            try:
                made = self._evaluate(one, one.message, own, previous)
            except EvalError:
                made = None
            if isinstance(made, str) and made.strip() and "\n" not in made:
                detail = made.strip()
        where = path
        if rule.field_path:
            where = f"{path}{rule.field_path}" if path else rule.field_path.lstrip(".")
        match rule.reason:
            case "FieldValueForbidden":
                text = f"Forbidden: {detail}"
            case "FieldValueRequired":
                text = f"Required value: {detail}"
            case "FieldValueDuplicate":
                text = shown.replace("Invalid value", "Duplicate value").rstrip(": ") or "Duplicate value"
            case _:
                text = (shown or "Invalid value: ") + detail
        return rule.reason, text, where

    def _evaluate(
        self, one: CompiledRule, expression: Expression | None, own: CelValue, previous: CelValue
    ) -> CelValue:
        if one.error or expression is None:
            raise EvalError(f"rule compile error: {one.error}")
        try:
            if not self.rules.metered:
                return expression.program(own, previous)
            meter = Meter(Plan(one.environment), min(CALL_COST, self.budget))
            value = meter.run(expression.tree, own, previous)
            self.budget -= meter.cost
        except RecursionError:
            raise EvalError("expression is nested too deeply") from None
        return value

    def _add(self, reason: str, text: str, path: str) -> None:
        self.found.append((reason, text, path))


def _correlated(node: SchemaNode, item: Any, old: Any) -> Any:
    """The old item of a list that is a map by keys; items of other lists cannot be distinguished."""
    if node.list_type != "map" or not isinstance(item, dict) or not isinstance(old, list):
        return None
    key = [item.get(name) for name in node.keys]
    for before in old:
        if isinstance(before, dict) and [before.get(name) for name in node.keys] == key:
            return before
    return None
