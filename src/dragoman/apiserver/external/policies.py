"""Which admission policies have a say in a write, and what do they say? Validating and mutating ones.

A policy acts through its bindings, once for each param that a binding names.
Source: k8s.io/apiserver pkg/admission/plugin/policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from dragoman.api.kinds import BY_NAME, KINDS, Kind
from dragoman.api.shape import Object
from dragoman.apiserver.access.authorizer import Authorizer
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.external import expressions as ex
from dragoman.apiserver.external.conditions import ConditionFailed, MatchCondition, hold, values_of
from dragoman.apiserver.external.matching import Matching, is_exempt, of_constraints
from dragoman.apiserver.external.merging import merged
from dragoman.apiserver.external.review import versioned
from dragoman.apiserver.patch import json_patch
from dragoman.apiserver.patch_failed import PatchFailed
from dragoman.apiserver.selectors import accepts, of_object
from dragoman.apiserver.status import forbidden
from dragoman.apiserver.store import Selection, Store, StoredObject
from dragoman.apiserver.versions import type_text
from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.values import CelValue

VALIDATING, VALIDATING_BINDING = BY_NAME["ValidatingAdmissionPolicy"], BY_NAME["ValidatingAdmissionPolicyBinding"]
MUTATING, MUTATING_BINDING = BY_NAME["MutatingAdmissionPolicy"], BY_NAME["MutatingAdmissionPolicyBinding"]
NAMESPACE: Final = BY_NAME["Namespace"]
_TEXT_OR_NULL: Final = (t.STRING, t.NULL)
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
"""Reasons of a validation; every other one is 422."""
PolicyRestore = Callable[[Attributes, Object, str], None]


class PolicyBinding(msgspec.Struct, frozen=True):
    """A binding of a policy."""

    name: str
    matching: Matching | None
    param: Object | None
    actions: tuple[str, ...]


class PolicyValidation(msgspec.Struct, frozen=True):
    """One rule of a validating policy."""

    expression: ex.CompiledExpression | ex.ExpressionInvalid
    text: str
    message: str
    message_expression: ex.CompiledExpression | ex.ExpressionInvalid | None
    reason: str


class Mutation(msgspec.Struct, frozen=True):
    """One change of a mutating policy."""

    expression: ex.CompiledExpression | ex.ExpressionInvalid
    is_patch: bool


class AdmissionPolicy(msgspec.Struct, frozen=True):
    """A policy with its bindings, compiled."""

    name: str
    matching: Matching
    param_kind: Object | None
    ignores_failure: bool
    conditions: tuple[MatchCondition, ...]
    variables: dict[str, ex.CompiledExpression | ex.ExpressionInvalid]
    bindings: tuple[PolicyBinding, ...]
    again: bool = False
    validations: tuple[PolicyValidation, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    annotations: tuple[tuple[str, ex.CompiledExpression | ex.ExpressionInvalid], ...] = ()


class PolicyDenied(msgspec.Struct, frozen=True):
    """A no of a policy; binding "" where the policy itself is at fault."""

    policy: str
    binding: str
    message: str
    reason: str = ""

    @property
    def text(self) -> str:
        """The sentence."""
        by = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{by} denied request: {self.message}"


class NotConfigured(Exception):
    """A policy or binding cannot be used; the text says why."""


# ---- compiling


def compile_policy(body: Object, bindings: tuple[PolicyBinding, ...]) -> AdmissionPolicy:
    """A policy from its object."""
    spec: Object = body.get("spec") or {}
    has = ex.Has(params=bool(spec.get("paramKind")), authorizer=True, patches="mutations" in spec)
    conditions = tuple(
        MatchCondition(entry.get("name", ""), ex.compiled(entry.get("expression", ""), has, (t.BOOL,)))
        for entry in spec.get("matchConditions") or ()
    )
    variables, has = ex.variables_of(spec.get("variables") or (), has)
    messages = msgspec.structs.replace(has, authorizer=False)
    return AdmissionPolicy(
        body["metadata"]["name"],
        of_constraints(spec.get("matchConstraints")),
        spec.get("paramKind"),
        spec.get("failurePolicy") == "Ignore",
        conditions,
        variables,
        bindings,
        spec.get("reinvocationPolicy") == "IfNeeded",
        tuple(_validation(entry, has, messages) for entry in spec.get("validations") or ()),
        tuple(_mutation(entry, has) for entry in spec.get("mutations") or ()),
        tuple(
            (entry.get("key", ""), ex.compiled(entry.get("valueExpression", ""), has, _TEXT_OR_NULL))
            for entry in spec.get("auditAnnotations") or ()
        ),
    )


def _validation(entry: Object, has: ex.Has, messages: ex.Has) -> PolicyValidation:
    text = entry.get("expression", "")
    said = entry.get("messageExpression")
    return PolicyValidation(
        ex.compiled(text, has, (t.BOOL,)),
        text.strip(),
        (entry.get("message") or "").strip(),
        ex.compiled(said, messages, (t.STRING,)) if said else None,
        entry.get("reason") or "Invalid",
    )


def _mutation(entry: Object, has: ex.Has) -> Mutation:
    is_patch = entry.get("patchType") == "JSONPatch"
    text = ((entry.get("jsonPatch") if is_patch else entry.get("applyConfiguration")) or {}).get("expression", "")
    return Mutation(ex.compiled(text, has, (t.list_of(ex.PATCH) if is_patch else ex.OBJECT,)), is_patch)


def binding_of(record: StoredObject) -> tuple[str, PolicyBinding]:
    """The policy's name and the binding."""
    spec: Object = record.decode().get("spec") or {}
    resources = spec.get("matchResources")
    return str(spec.get("policyName", "")), PolicyBinding(
        record.name,
        of_constraints(resources) if resources else None,
        spec.get("paramRef"),
        tuple(spec.get("validationActions") or ()),
    )


# ---- evaluating


class Policies:
    """The policies of one server."""

    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._known: dict[str, tuple[tuple[int, int], list[AdmissionPolicy]]] = {}

    def _all(self, kind: Kind, binding: Kind) -> list[AdmissionPolicy]:
        seen = self._store.shelf(kind).changed, self._store.shelf(binding).changed
        known = self._known.get(kind.kind)
        if known is None or known[0] != seen:
            bound: dict[str, list[PolicyBinding]] = {}
            for record in self._store.select(binding):
                policy, found = binding_of(record)
                bound.setdefault(policy, []).append(found)
            policies = [
                compile_policy(record.decode(), tuple(bound[record.name]))
                for record in self._store.select(kind)
                if record.name in bound
            ]
            known = self._known[kind.kind] = seen, policies
        return known[1]

    def handles(self, attributes: Attributes) -> bool:
        """Whether any bound policy's rules fit."""
        if is_exempt(attributes):
            return False
        listed = (*self._all(VALIDATING, VALIDATING_BINDING), *self._all(MUTATING, MUTATING_BINDING))
        return any(policy.matching.version(attributes) is not None for policy in listed)

    def validate(self, attributes: Attributes) -> None:
        """Ask the validating policies. Raises Refused."""
        denied: list[PolicyDenied] = []
        for policy in self._all(VALIDATING, VALIDATING_BINDING):
            if not self._meets(policy.matching, attributes):
                continue
            for binding in policy.bindings:
                if binding.matching is None or self._meets(binding.matching, attributes):
                    denied += self._validated(policy, binding, attributes)
        if denied:
            first = denied[0]
            refused = forbidden(attributes.kind, attributes.name, first.text)
            refused.reason = first.reason or "Invalid"
            refused.code = _CODES.get(refused.reason, 422)
            assert refused.details is not None, "a forbidden object has details"
            refused.details["causes"] = [{"message": first.text}]
            raise refused

    def _validated(self, policy: AdmissionPolicy, binding: PolicyBinding, attributes: Attributes) -> list[PolicyDenied]:
        denied: list[PolicyDenied] = []

        def no(message: str, reason: str = "", *, fault: bool = False) -> None:
            if fault and policy.ignores_failure:
                return
            for action in binding.actions:
                if action == "Deny":
                    denied.append(PolicyDenied(policy.name, binding.name, message, reason))
                elif action == "Warn":
                    by = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                    attributes.warnings.append(f"Validation failed for {by}: {message}")

        try:
            for param in self._params(policy, binding, attributes):
                self._evaluate(policy, attributes, param, no)
        except NotConfigured as error:
            if not policy.ignores_failure:
                denied.append(PolicyDenied(policy.name, binding.name, f"failed to configure binding: {error}"))
        return denied

    def _evaluate(self, policy: AdmissionPolicy, attributes: Attributes, param: Object | None, no: Any) -> None:
        evaluation, conditions = self._evaluations(policy, attributes, param)
        try:
            if not hold(policy.conditions, conditions):
                return
        except ConditionFailed as failed:
            no(str(failed), fault=True)
            return
        for validation in policy.validations:
            expression = validation.expression
            if isinstance(expression, ex.ExpressionInvalid):
                no(expression.why, fault=True)
                continue
            try:
                if evaluation.value(expression) is not True:
                    no(self._message(validation, evaluation), validation.reason)
            except EvalError as error:
                no(ex.reported(expression.text, error), fault=True)
            except ex.Spent as spent:
                no(str(spent), fault=True)
                return
        self._annotate(policy, evaluation, no)

    def _message(self, validation: PolicyValidation, evaluation: ex.Evaluation) -> str:
        expression = validation.message_expression
        if isinstance(expression, ex.CompiledExpression):
            try:
                found = evaluation.value(expression)
            except EvalError:
                found = ""
            text = found.strip() if isinstance(found, str) else ""
            if text and "\n" not in text and len(text.encode()) <= ex.MESSAGE_BYTES:
                return text
        return validation.message or f"failed expression: {validation.text}"

    def _annotate(self, policy: AdmissionPolicy, evaluation: ex.Evaluation, no: Any) -> None:
        """Audit annotations go nowhere here, but an expression that fails refuses as it does elsewhere."""
        for _, expression in policy.annotations:
            if isinstance(expression, ex.ExpressionInvalid):
                no(expression.why, fault=True)
                continue
            try:
                evaluation.value(expression)
            except EvalError as error:
                no(ex.reported(expression.text, error), fault=True)

    # ---- changing

    def reinvocable(self, attributes: Attributes) -> set[str]:
        """The mutating policies that want to be asked again where others have changed the object."""
        return {policy.name for policy in self._all(MUTATING, MUTATING_BINDING) if policy.again}

    def mutate(
        self, attributes: Attributes, restore: PolicyRestore, only: set[str] | None = None
    ) -> tuple[bool, set[str]]:
        """Let the mutating policies change the object; only: those to ask again. Raises Refused.

        Returns whether it changed, and the names of those that want to be asked again because of that.
        """
        faults: list[str] = []
        asked: set[str] = set()
        again: set[str] = set()
        changed = False
        for policy in self._all(MUTATING, MUTATING_BINDING):
            if (only is not None and policy.name not in only) or is_exempt(attributes):
                continue
            version = self._meets(policy.matching, attributes)
            if version is None:
                continue
            for binding in policy.bindings:
                if binding.matching is not None and self._meets(binding.matching, attributes) is None:
                    continue
                try:
                    for param in self._params(policy, binding, attributes):
                        if self._changed(policy, attributes, version, param, restore):
                            changed = True
                            again |= asked
                except (NotConfigured, ConditionFailed) as error:
                    if not policy.ignores_failure:
                        faults.append(_fault(policy, binding, error))
            if policy.again:
                asked.add(policy.name)
        if faults:
            refused = forbidden(attributes.kind, attributes.name, faults[0])
            refused.message = faults[0]
            refused.args = (faults[0],)
            refused.reason, refused.code = "Invalid", 422
            assert refused.details is not None, "a forbidden object has details"
            refused.details["causes"] = [{"message": text} for text in faults]
            raise refused
        return changed, again

    def _changed(
        self,
        policy: AdmissionPolicy,
        attributes: Attributes,
        version: str,
        param: Object | None,
        restore: PolicyRestore,
    ) -> bool:
        if attributes.obj is None:
            return False
        _, conditions = self._evaluations(policy, attributes, param)
        if not hold(policy.conditions, conditions):
            return False
        start = versioned(attributes, attributes.obj, version)
        for mutation in policy.mutations:
            expression = mutation.expression
            if isinstance(expression, ex.ExpressionInvalid):
                raise ConditionFailed(expression.why)
            evaluation, _ = self._evaluations(policy, attributes, param)
            before = versioned(attributes, attributes.obj, version)
            assert before is not None, "a mutation has an object"
            try:
                after = _mutated(mutation, evaluation.value(expression), before, attributes.kind, version)
            except EvalError as error:
                raise ConditionFailed(ex.reported(expression.text, error)) from error
            except ex.Spent as spent:
                raise ConditionFailed(str(spent)) from spent
            if after != before:
                restore(attributes, after, version)
        return versioned(attributes, attributes.obj, version) != start

    # ---- what an evaluation needs

    def _meets(self, matching: Matching, attributes: Attributes) -> str | None:
        """The version in which a write is wanted."""
        version = matching.version(attributes)
        return version if version is not None and matching.selects(self._store, attributes) else None

    def _evaluations(
        self, policy: AdmissionPolicy, attributes: Attributes, param: Object | None
    ) -> tuple[ex.Evaluation, ex.Evaluation]:
        version = self._meets(policy.matching, attributes) or attributes.kind.versions[0]
        values = values_of(attributes, version, self._authorizer)
        if policy.param_kind:
            values["params"] = ex.value_of(param)
        values["namespaceObject"] = self._namespace(attributes)
        conditions = ex.Evaluation(values, {}, ex.CostBudget(ex.BUDGET_CONDITIONS))
        return ex.Evaluation(values, policy.variables, ex.CostBudget()), conditions

    def _namespace(self, attributes: Attributes) -> CelValue:
        if not attributes.namespace or attributes.kind is NAMESPACE:
            return None
        record = self._store.get(NAMESPACE, "", attributes.namespace)
        return ex.namespace_value(record.decode()) if record else None

    def _params(
        self, policy: AdmissionPolicy, binding: PolicyBinding, attributes: Attributes
    ) -> Iterator[Object | None]:
        """The params to evaluate with; one None where there are none to look for. Raises NotConfigured."""
        reference = binding.param
        if not policy.param_kind or not reference:
            yield None
            return
        version, name = str(policy.param_kind.get("apiVersion", "")), str(policy.param_kind.get("kind", ""))
        kind = self._param_kind(version, name)
        if kind is None:
            raise NotConfigured(f"paramKind kind `{version}, Kind={name}` not known")
        namespace = ""
        if kind.namespaced:
            namespace = reference.get("namespace") or attributes.namespace
            if not namespace:
                raise NotConfigured(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
        elif reference.get("namespace"):
            raise NotConfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        found = self._found(kind, reference, namespace)
        if not found and reference.get("parameterNotFoundAction") == "Deny":
            raise NotConfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
        number = version.rpartition("/")[2]
        for record in found:
            yield {**type_text(kind, number), **record.decode()}

    def _found(self, kind: Kind, reference: Object, namespace: str) -> list[StoredObject]:
        if reference.get("name"):
            record = self._store.get(kind, namespace, reference["name"])
            return [record] if record else []
        selector = of_object(reference.get("selector"))
        if selector is None:
            raise NotConfigured("one of name or selector must be provided")
        return [r for r in self._store.select(kind, Selection(namespace)) if accepts(selector, r.labels)]

    def _param_kind(self, version: str, name: str) -> Kind | None:
        group, _, number = version.rpartition("/")
        known = {shelf.kind for shelf in self._store.shelves()} | set(KINDS)
        return next((k for k in known if k.group == group and k.kind == name and number in k.versions), None)


def _mutated(mutation: Mutation, value: CelValue, before: Object, kind: Kind, version: str) -> Object:
    """The object after a mutation. Raises EvalError for one that does not fit."""
    if mutation.is_patch:
        try:
            after = json_patch(before, ex.json_of(value))
        except PatchFailed as failed:
            if failed.tested:
                return before
            raise EvalError(f"JSON Patch: {failed.what}") from failed
        if not isinstance(after, dict):
            raise EvalError("JSON Patch: leaves no object behind")
        return after
    config = {**ex.json_of(value), "apiVersion": before["apiVersion"], "kind": before["kind"]}
    return merged((kind.group, version, kind.kind), before, config)


def _fault(policy: AdmissionPolicy, binding: PolicyBinding, error: Exception) -> str:
    by = f"policy '{policy.name}' with binding '{binding.name}' denied request"
    what = f"failed to configure binding: {error}" if isinstance(error, NotConfigured) else str(error)
    return f"{by}: {what}"
