"""Are webhook configurations and admission policies written so that they can be asked? Rules, addresses, expressions.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.api.validate.field import FieldError, FieldPath
from dragoman.apiserver.external.expressions import OBJECT, PATCH, ExpressionInvalid, Has, compiled, variables_of
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import Write
from dragoman.apiserver.status import invalid
from dragoman.apiserver.strategies.base import Generational
from dragoman.cel import types as t
from dragoman.cel.types import Type
from dragoman.values import names

CONDITIONS_MAX: Final = 64
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_FAILURE: Final = ("Fail", "Ignore")
_MATCH: Final = ("Equivalent", "Exact")
_EFFECTS: Final = ("None", "NoneOnDryRun")
_AGAIN: Final = ("IfNeeded", "Never")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_FORM: Final = "; desired format: https://host[/path]"
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*\Z")
_LABEL: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")


class _Checked(Generational):
    """A kind whose spec is judged; `kind` names it."""

    kind = ""

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Refuse what could not be asked."""
        self._check(obj)
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """The same; what was stored before may stay as it is."""
        if not subresource and any(new.get(field) != old.get(field) for field in ("spec", "webhooks")):
            self._check(new)
        return []

    def _check(self, obj: Object) -> None:
        errors = list(self.errors(obj))
        if errors:
            causes = [(error.reason, error.body, error.path) for error in errors]
            raise invalid(BY_NAME[self.kind], obj["metadata"].get("name", ""), causes)

    def errors(self, obj: Object) -> Iterable[FieldError]:
        """What is wrong."""
        return ()


class WebhookStrategy(_Checked):
    """Both kinds of webhook configuration."""

    has_status = False

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def errors(self, obj: Object) -> Iterable[FieldError]:
        """Each webhook by itself, and their names together."""
        seen: set[str] = set()
        for index, hook in enumerate(obj.get("webhooks") or ()):
            path = FieldPath("webhooks")[index]
            yield from _webhook(path, hook)
            name = hook.get("name", "")
            if name in seen:
                yield (path / "name").duplicate(name)
            seen.add(name)


class PolicyStrategy(_Checked):
    """ValidatingAdmissionPolicy and MutatingAdmissionPolicy."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def errors(self, obj: Object) -> Iterable[FieldError]:
        """Constraints, conditions, variables, and what the policy does."""
        spec: Object = obj.get("spec") or {}
        path = FieldPath("spec")
        mutating = self.kind.startswith("Mutating")
        has = Has(params=bool(spec.get("paramKind")), authorizer=True, patches=mutating)
        yield from _enum(path / "failurePolicy", spec.get("failurePolicy"), _FAILURE)
        yield from _param_kind(path / "paramKind", spec.get("paramKind"))
        constraints = spec.get("matchConstraints")
        if constraints is None:
            yield (path / "matchConstraints").required()
        else:
            yield from _resources(path / "matchConstraints", constraints)
            if not constraints.get("resourceRules"):
                yield (path / "matchConstraints" / "resourceRules").required()
        yield from _conditions(path / "matchConditions", spec.get("matchConditions"), has)
        variables = spec.get("variables") or ()
        yield from _variables(path / "variables", variables, has)
        _, has = variables_of([v for v in variables if v.get("name")], has)
        yield from _mutations(path, spec, has) if mutating else _validations(path, spec, has)


class BindingStrategy(_Checked):
    """Bindings of both kinds of policy."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def errors(self, obj: Object) -> Iterable[FieldError]:
        """The policy's name, params, constraints and actions."""
        spec: Object = obj.get("spec") or {}
        path = FieldPath("spec")
        name = spec.get("policyName")
        if not name:
            yield (path / "policyName").required()
        elif fault := names.dns_subdomain(name):
            yield (path / "policyName").invalid(name, fault)
        yield from _param(path / "paramRef", spec.get("paramRef"))
        if spec.get("matchResources") is not None:
            yield from _resources(path / "matchResources", spec["matchResources"])
        if self.kind.startswith("Validating"):
            yield from _actions(path / "validationActions", spec.get("validationActions") or ())


# ---- webhooks


def _webhook(path: FieldPath, hook: Object) -> Iterable[FieldError]:
    name = hook.get("name") or ""
    if not name:
        yield (path / "name").required()
    elif fault := names.dns_subdomain(name):
        yield (path / "name").invalid(name, fault)
    elif name.count(".") < 2:
        yield (path / "name").invalid(name, "should be a domain with at least three segments separated by dots")
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from _rule((path / "rules")[index], rule)
    yield from _enum(path / "failurePolicy", hook.get("failurePolicy"), _FAILURE)
    yield from _enum(path / "matchPolicy", hook.get("matchPolicy"), _MATCH)
    yield from _enum(path / "reinvocationPolicy", hook.get("reinvocationPolicy"), _AGAIN)
    if not hook.get("sideEffects"):
        yield (path / "sideEffects").required(f"must specify one of {', '.join(_EFFECTS)}")
    else:
        yield from _enum(path / "sideEffects", hook["sideEffects"], _EFFECTS)
    seconds = hook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= 30:
        yield (path / "timeoutSeconds").invalid(seconds, "the timeout value must be between 1 and 30 seconds")
    versions = hook.get("admissionReviewVersions") or ()
    if not versions:
        yield (path / "admissionReviewVersions").required("must specify one of v1, v1beta1")
    elif not {"v1", "v1beta1"} & set(versions):
        what = "must include at least one of v1, v1beta1"
        yield (path / "admissionReviewVersions").invalid(list(versions), what)
    yield from _client(path / "clientConfig", hook.get("clientConfig") or {})
    yield from _conditions(path / "matchConditions", hook.get("matchConditions"), Has(authorizer=True))


def _client(path: FieldPath, client: Object) -> Iterable[FieldError]:
    url: Any = client.get("url")
    service: Any = client.get("service")
    if (url is None) is (service is None):
        yield path.required("exactly one of url or service is required")
    elif url is not None:
        split = urlsplit(str(url))
        if split.scheme != "https":
            yield (path / "url").invalid(split.scheme, f"'https' is the only allowed URL scheme{_FORM}")
        elif not split.hostname:
            yield (path / "url").invalid(split.netloc, f"host must be specified{_FORM}")
        elif split.username or split.query or split.fragment:
            what = "user information, query parameters and fragments are not permitted in the URL"
            yield (path / "url").invalid(url, what)
    else:
        for field in ("name", "namespace"):
            if not service.get(field):
                yield (path / "service" / field).required(f"service {field} is required")
        port = service.get("port", 443)
        if not 1 <= port <= 65535:
            yield (path / "service" / "port").invalid(port, "port is not valid: must be between 1 and 65535, inclusive")


def _rule(path: FieldPath, rule: Object) -> Iterable[FieldError]:
    operations = rule.get("operations") or ()
    if not operations:
        yield (path / "operations").required()
    for index, operation in enumerate(operations):
        yield from _enum((path / "operations")[index], operation, _OPERATIONS)
    for field, what in (("apiGroups", "API groups"), ("apiVersions", "API versions"), ("operations", "operations")):
        listed = rule.get(field) or ()
        if not listed and field != "operations":
            yield (path / field).required()
        if len(listed) > 1 and "*" in listed:
            yield (path / field).invalid(list(listed), f"if '*' is present, must not specify other {what}")
    resources = rule.get("resources") or ()
    if not resources:
        yield (path / "resources").required()
    if len(resources) > 1 and "*/*" in resources:
        yield (path / "resources").invalid(list(resources), "if '*/*' is present, must not specify other resources")
    yield from _enum(path / "scope", rule.get("scope"), ("*", "Cluster", "Namespaced"))


# ---- policies


def _resources(path: FieldPath, resources: Object) -> Iterable[FieldError]:
    yield from _enum(path / "matchPolicy", resources.get("matchPolicy"), _MATCH)
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(resources.get(field) or ()):
            yield from _rule((path / field)[index], rule)


def _param_kind(path: FieldPath, kind: Object | None) -> Iterable[FieldError]:
    if kind is None:
        return
    for field in ("apiVersion", "kind"):
        if not kind.get(field):
            yield (path / field).required()


def _conditions(path: FieldPath, conditions: Any, has: Has) -> Iterable[FieldError]:
    conditions = conditions or ()
    if len(conditions) > CONDITIONS_MAX:
        yield path.too_many(len(conditions), CONDITIONS_MAX)
        return
    seen: set[str] = set()
    for index, entry in enumerate(conditions):
        at, name = path[index], entry.get("name") or ""
        yield from _expression(at / "expression", entry.get("expression"), has, (t.BOOL,))
        if not name:
            yield (at / "name").required()
        elif len(name) > 63 or not _LABEL.match(name.rpartition("/")[2]):
            yield (at / "name").invalid(name, names.qualified_name(name) or "must be a qualified name")
        elif name in seen:
            yield (at / "name").duplicate(name)
        seen.add(name)


def _variables(path: FieldPath, variables: Iterable[Object], has: Has) -> Iterable[FieldError]:
    seen: set[str] = set()
    for index, entry in enumerate(variables):
        at, name = path[index], entry.get("name") or ""
        if not name:
            yield (at / "name").required("name is not specified")
            continue
        if not _IDENTIFIER.match(name):
            yield (at / "name").invalid(name, "must be a valid CEL identifier")
        elif name in seen:
            yield (at / "name").duplicate(name)
        seen.add(name)
        yield from _expression(at / "expression", entry.get("expression"), has, (), "expression is not specified")
        _, has = variables_of([entry], has)


def _validations(path: FieldPath, spec: Object, has: Has) -> Iterable[FieldError]:
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        what = "validations or auditAnnotations must contain at least one item"
        yield (path / "validations").required(what)
        yield (path / "auditAnnotations").required(what)
    messages = msgspec.structs.replace(has, authorizer=False)
    for index, entry in enumerate(validations):
        at = (path / "validations")[index]
        text, message = entry.get("expression") or "", entry.get("message") or ""
        yield from _expression(at / "expression", text.strip(), has, (t.BOOL,), "expression is not specified")
        if entry.get("messageExpression"):
            yield from _expression(at / "messageExpression", entry["messageExpression"], messages, (t.STRING,))
        if message and "\n" in message.strip():
            yield (at / "message").invalid(message, "must not contain line breaks")
        elif "\n" in text.strip() and not message and not entry.get("messageExpression"):
            yield (at / "message").required("message must be specified if expression contains line breaks")
        reasons = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
        yield from _enum(at / "reason", entry.get("reason"), reasons)
    for index, entry in enumerate(annotations):
        at = (path / "auditAnnotations")[index]
        text, kinds = entry.get("valueExpression"), (t.STRING, t.NULL)
        yield from _expression(at / "valueExpression", text, has, kinds, "valueExpression is not specified")


def _mutations(path: FieldPath, spec: Object, has: Has) -> Iterable[FieldError]:
    if not spec.get("mutations"):
        yield (path / "mutations").required("mutations must contain at least one item")
    if not spec.get("reinvocationPolicy"):
        yield (path / "reinvocationPolicy").required()
    else:
        yield from _enum(path / "reinvocationPolicy", spec["reinvocationPolicy"], _AGAIN)
    for index, entry in enumerate(spec.get("mutations") or ()):
        at, kind = (path / "mutations")[index], entry.get("patchType")
        fields = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
        if not kind:
            yield (at / "patchType").required()
            continue
        if kind not in fields:
            yield (at / "patchType").not_supported(kind, sorted(fields))
            continue
        wanted: tuple[Type, ...] = (t.list_of(PATCH),) if kind == "JSONPatch" else (OBJECT,)
        field = fields[kind]
        if entry.get(field) is None:
            yield (at / field).required(f"must be specified when patchType is {kind}")
        else:
            yield from _expression(at / field / "expression", entry[field].get("expression"), has, wanted)
        other = next(name for name in fields.values() if name != field)
        if entry.get(other) is not None:
            yield (at / other).invalid(f"{{{other}}}", f"must not be specified when patchType is {kind}")


def _param(path: FieldPath, reference: Object | None) -> Iterable[FieldError]:
    if reference is None:
        return
    if reference.get("name") and reference.get("selector") is not None:
        yield (path / "name").forbidden("name and selector are mutually exclusive")
    elif not reference.get("name") and reference.get("selector") is None:
        yield path.required("one of name or selector must be specified")
    if not reference.get("parameterNotFoundAction"):
        yield (path / "parameterNotFoundAction").required()
    else:
        yield from _enum(path / "parameterNotFoundAction", reference["parameterNotFoundAction"], ("Allow", "Deny"))


def _actions(path: FieldPath, actions: Iterable[str]) -> Iterable[FieldError]:
    listed = list(actions)
    if not listed:
        yield path.required("at least one validation action is required")
    for index, action in enumerate(listed):
        yield from _enum(path[index], action, _ACTIONS)
        if action in listed[:index]:
            yield path[index].duplicate(action)
    if "Deny" in listed and "Warn" in listed:
        what = "must not contain both Deny and Warn (repeating the same validation failure information in the API"
        yield path.invalid(listed, f"{what} response and headers serves no purpose)")


# ---- parts


def _enum(path: FieldPath, value: Any, known: tuple[str, ...]) -> Iterable[FieldError]:
    if value is not None and value not in known:
        yield path.not_supported(value, known)


def _expression(
    path: FieldPath, text: Any, has: Has, kinds: tuple[Type, ...], missing: str = ""
) -> Iterable[FieldError]:
    if not text or not str(text).strip():
        yield path.required(missing)
        return
    found = compiled(str(text), has, kinds)
    if isinstance(found, ExpressionInvalid):
        yield path.invalid(text, found.why)
