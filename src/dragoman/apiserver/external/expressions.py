"""How does admission evaluate expressions? The environment of CEL for match conditions and policies.

Variables are object, oldObject, request, params, namespaceObject, authorizer and composed ones (`variables`), which
are evaluated when first used. Costs are counted against upstream's budgets.
Source: k8s.io/apiserver pkg/admission/plugin/cel, pkg/apis/cel/config.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from dragoman.apiserver.external.authz import AUTHORIZER, ESCAPE, OVERLOADS, RESOURCE_CHECK
from dragoman.cel import types as t
from dragoman.cel.environment import Environment
from dragoman.cel.expression import checked
from dragoman.cel.faults import CompileError, CostExceeded, EvalError
from dragoman.cel.functions import table
from dragoman.cel.meter import Meter, Plan
from dragoman.cel.stdlib.library import FUNCTIONS, TYPE_NAMES
from dragoman.cel.stdlib.times import parse_timestamp
from dragoman.cel.types import Type
from dragoman.cel.values import TYPE_OF, CelValue

PER_CALL: Final = 1_000_000
BUDGET: Final = 10_000_000
BUDGET_CONDITIONS: Final = 2_500_000
MESSAGE_BYTES: Final = 5 * 1024
OBJECT: Final = t.struct("Object")
PATCH: Final = t.struct("JSONPatch")
REQUEST: Final = t.struct("kubernetes.AdmissionRequest")
NAMESPACE: Final = t.struct("kubernetes.Namespace")
VARIABLES: Final = t.struct("kubernetes.variables")
_TEXTS: Final = t.map_of(t.STRING, t.STRING)


def _texts(*names: str) -> dict[str, Type]:
    return dict.fromkeys(names, t.STRING)


_FIELDS: Final[dict[str, Mapping[str, Type]]] = {
    REQUEST.name: {
        **_texts("subResource", "requestSubResource", "name", "namespace", "operation"),
        **dict.fromkeys(("kind", "requestKind"), t.struct("kubernetes.GroupVersionKind")),
        **dict.fromkeys(("resource", "requestResource"), t.struct("kubernetes.GroupVersionResource")),
        "userInfo": t.struct("kubernetes.UserInfo"),
        "dryRun": t.BOOL,
        "options": t.DYN,
    },
    "kubernetes.GroupVersionKind": _texts("group", "version", "kind"),
    "kubernetes.GroupVersionResource": _texts("group", "version", "resource"),
    "kubernetes.UserInfo": {
        **_texts("username", "uid"),
        "groups": t.list_of(t.STRING),
        "extra": t.map_of(t.STRING, t.list_of(t.STRING)),
    },
    NAMESPACE.name: {
        "metadata": t.struct("kubernetes.NamespaceMetadata"),
        "spec": t.struct("kubernetes.NamespaceSpec"),
        "status": t.struct("kubernetes.NamespaceStatus"),
    },
    "kubernetes.NamespaceMetadata": {
        **_texts("name", "generateName", "namespace", "UID", "resourceVersion"),
        **dict.fromkeys(("labels", "annotations"), _TEXTS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), t.TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), t.INT),
        "finalizers": t.list_of(t.STRING),
    },
    "kubernetes.NamespaceSpec": {"finalizers": t.list_of(t.STRING)},
    "kubernetes.NamespaceStatus": {
        "phase": t.STRING,
        "conditions": t.list_of(t.struct("kubernetes.NamespaceCondition")),
    },
    "kubernetes.NamespaceCondition": {
        **_texts("status", "type", "message", "reason"),
        "lastTransitionTime": t.TIMESTAMP,
    },
}
_FUNCTIONS: Final = table((o for overloads in FUNCTIONS.values() for o in overloads), OVERLOADS)
_PATCH_FUNCTIONS: Final = table((o for overloads in _FUNCTIONS.values() for o in overloads), (ESCAPE,))
_LITERALS: Final = {PATCH.name: {**_texts("op", "path", "from"), "value": t.DYN}}


class Has(msgspec.Struct, frozen=True):
    """Which variables there are beside object, oldObject, request and namespaceObject.

    patches: objects and JSON patches can be made. variables: names and types of composed ones so far.
    """

    params: bool = False
    authorizer: bool = False
    patches: bool = False
    variables: tuple[tuple[str, Type], ...] = ()


class ExpressionInvalid(msgspec.Struct, frozen=True):
    """An expression that does not compile, and why."""

    text: str
    why: str


class CompiledExpression:
    """An expression that can be evaluated."""

    __slots__ = ("names", "plan", "text", "tree", "type")

    def __init__(self, text: str, has: Has) -> None:
        within = environment(has)
        self.text = text
        self.tree = checked(text, within)
        self.type: Type = self.tree.type
        self.plan = Plan(within)
        self.names = tuple(within.variables)


@lru_cache(maxsize=256)
def environment(has: Has) -> Environment:
    """The environment for those variables."""
    variables: dict[str, Type] = {"object": t.DYN, "oldObject": t.DYN, "namespaceObject": NAMESPACE, "request": REQUEST}
    fields = dict(_FIELDS)
    if has.params:
        variables["params"] = t.DYN
    if has.authorizer:
        variables["authorizer"] = AUTHORIZER
        variables["authorizer.requestResource"] = RESOURCE_CHECK
    variables["variables"] = VARIABLES
    fields[VARIABLES.name] = dict(has.variables)
    return Environment(
        variables,
        _PATCH_FUNCTIONS if has.patches else _FUNCTIONS,
        TYPE_NAMES,
        fields,
        objects_are_maps=True,
        literals=_LITERALS if has.patches else {},
        open_literals=OBJECT.name if has.patches else "",
    )


@lru_cache(maxsize=4096)
def compiled(text: str, has: Has, wanted: tuple[Type, ...] = ()) -> CompiledExpression | ExpressionInvalid:
    """An expression, cached; wanted are the types it may have, () any."""
    try:
        found = CompiledExpression(text, has)
    except CompileError as refused:
        return ExpressionInvalid(text, f"compilation failed: {refused}")
    if wanted and found.type not in wanted:
        shown = t.show(found.type)
        if len(wanted) == 1:
            return ExpressionInvalid(text, f"must evaluate to {t.show(wanted[0])} but got {shown}")
        return ExpressionInvalid(text, f"must evaluate to one of [{' '.join(map(t.show, wanted))}] but got {shown}")
    return found


# ---- evaluation


class Spent(Exception):
    """The budget of all expressions together is spent."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


class CostBudget:
    """What expressions may still cost together."""

    __slots__ = ("left",)

    def __init__(self, left: int = BUDGET) -> None:
        self.left = left


class Lazy(dict[str, CelValue]):
    """The composed variables of a policy; each is evaluated when first asked for."""

    __slots__ = ("_evaluate", "_texts")

    def __init__(self, texts: Mapping[str, CompiledExpression | ExpressionInvalid], evaluate: Any) -> None:
        super().__init__()
        self._texts = texts
        self._evaluate = evaluate

    def __missing__(self, name: str) -> CelValue:
        expression = self._texts.get(name)
        if expression is None:
            raise KeyError(name)
        if isinstance(expression, ExpressionInvalid):
            raise EvalError(f'composited variable "{name}" fails to compile: {expression.why}')
        try:
            found = self[name] = self._evaluate(expression)
        except EvalError as error:
            raise EvalError(f'composited variable "{name}" fails to evaluate: {error.message}') from error
        return found


TYPE_OF[Lazy] = t.map_of(t.STRING, t.DYN)


class Evaluation:
    """One write with all values that expressions may read."""

    def __init__(
        self,
        values: Mapping[str, CelValue],
        texts: Mapping[str, CompiledExpression | ExpressionInvalid],
        budget: CostBudget,
    ) -> None:
        self._budget = budget
        self._values = {**values, "variables": Lazy(texts, self.value)}

    def value(self, expression: CompiledExpression) -> CelValue:
        """What an expression evaluates to. Raises EvalError, Spent."""
        limit = min(PER_CALL, self._budget.left)
        meter = Meter(expression.plan, limit)
        try:
            return meter.run(expression.tree, *(self._values.get(name) for name in expression.names))
        except CostExceeded as error:
            if limit < PER_CALL:
                raise Spent from error
            raise EvalError("operation cancelled: actual cost limit exceeded") from error
        except RecursionError as error:
            raise EvalError("expression is nested too deeply") from error
        finally:
            self._budget.left -= min(meter.cost, limit)


def reported(text: str, error: EvalError) -> str:
    """An error of an expression as upstream words it."""
    return f"expression '{text}' resulted in error: {error.message}"


def variables_of(
    entries: Sequence[Mapping[str, Any]], has: Has
) -> tuple[dict[str, CompiledExpression | ExpressionInvalid], Has]:
    """Composed variables in order, each of which may use those before, and the environment with all of them."""
    texts: dict[str, CompiledExpression | ExpressionInvalid] = {}
    for entry in entries:
        found = compiled(entry.get("expression", ""), has)
        texts[entry["name"]] = found
        kind = t.DYN if isinstance(found, ExpressionInvalid) else found.type
        has = msgspec.structs.replace(has, variables=(*has.variables, (entry["name"], kind)))
    return texts, has


# ---- values


def value_of(obj: Any) -> CelValue:
    """JSON as a value of the language."""
    if isinstance(obj, dict):
        return {key: value_of(inner) for key, inner in obj.items()}
    if isinstance(obj, list):
        return tuple(map(value_of, obj))
    return obj


def json_of(value: CelValue) -> Any:
    """A value as JSON. Raises EvalError for what JSON has no word for."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise EvalError("a map with keys that are not strings cannot be JSON")
        return {key: json_of(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return list(map(json_of, value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise EvalError(f"type conversion error from '{type(value).__name__}' to JSON")


def namespace_value(obj: Mapping[str, Any] | None) -> CelValue:
    """A Namespace as expressions see it."""
    if obj is None:
        return None
    meta = dict(obj["metadata"])
    out: dict[str, Any] = {key: meta[key] for key in _FIELDS["kubernetes.NamespaceMetadata"] if key in meta}
    if "uid" in meta:
        out["UID"] = meta["uid"]
    for key in ("creationTimestamp", "deletionTimestamp"):
        if key in out:
            out[key] = parse_timestamp(out[key])
    status = dict(obj.get("status") or {})
    spec = {"finalizers": (obj.get("spec") or {}).get("finalizers") or []}
    return {
        "metadata": {key: value_of(inner) for key, inner in out.items()},
        "spec": value_of(spec),
        "status": value_of(status),
    }
