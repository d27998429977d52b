"""Rules that several kinds of resource.k8s.io share: names, quantities, taints, tolerations, opaque data, selectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dragoman.api.shape import Object, dig, items, sub
from dragoman.api.validate.cel import check_expression
from dragoman.api.validate.field import OMITTED, Errors, FieldPath, by_name, by_rule, each, one_of, unique
from dragoman.values import names
from dragoman.values.quantity import Quantity

SELECTORS_MAX = 32
OPAQUE_MAX = 10 * 1024
CONDITIONS_MAX = 8
BINDING_CONDITIONS_MAX = 4

_TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")
_CONDITION_STATUS = ("False", "True", "Unknown")
_NODE_OPERATIONS = ("NodePrepareResources", "NodeUnprepareResources", "*")


def driver_name(text: Any, path: FieldPath) -> Errors:
    """Required."""
    return by_name(text, path, names.driver_name)


def pool_name(text: Any, path: FieldPath) -> Errors:
    """Required."""
    return by_name(text, path, names.pool_name)


def device_name(text: Any, path: FieldPath) -> Errors:
    """Required DNS label."""
    return by_name(text, path, names.dns_label)


def qualified_name(text: Any, path: FieldPath) -> Errors:
    """Attribute or capacity key, with or without domain."""
    return by_name(text, path, names.qualified_name)


def fully_qualified_name(text: Any, path: FieldPath) -> Errors:
    """Attribute key with domain."""
    return by_name(text, path, names.fully_qualified_name)


def quantity_of(raw: Any) -> Quantity | None:
    """The quantity, None if the value is absent or none."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    try:
        return Quantity.parse(raw)
    except ValueError:
        return None


def quantity(raw: Any, path: FieldPath) -> Errors:
    """A required quantity."""
    if raw is None:
        return [path.required()]
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return [path.invalid(raw, "must be a quantity")]
    try:
        Quantity.parse(raw)
    except ValueError as error:
        return [path.invalid(raw, str(error))]
    return []


def entries(holder: Object, field: str, path: FieldPath) -> Iterator[tuple[str, Any, FieldPath]]:
    """Key, value and place of each entry of a map, in key order."""
    for key, value in sorted(dig(holder, field).items(), key=lambda entry: str(entry[0])):
        yield key, value, (path / field)[key]


def conditions_list(holder: Object, field: str, path: FieldPath) -> Errors:
    """Names of binding (failure) conditions: at most 4, label keys, no duplicates."""
    values = items(holder, field)
    errors = each(values, path / field, lambda v, p: by_rule(v, p, names.label_key), limit=BINDING_CONDITIONS_MAX)
    return errors + unique(values, path / field, str)


def binding_conditions(holder: Object, path: FieldPath) -> Errors:
    """Both lists or none, disjoint."""
    wanted, failing = items(holder, "bindingConditions"), items(holder, "bindingFailureConditions")
    errors = conditions_list(holder, "bindingConditions", path)
    errors += conditions_list(holder, "bindingFailureConditions", path)
    if wanted and not failing:
        place = path / "bindingFailureConditions"
        errors.append(place.invalid(failing, "bindingFailureConditions are required to use bindingConditions"))
    if failing and not wanted:
        place = path / "bindingConditions"
        errors.append(place.invalid(wanted, "bindingConditions are required to use bindingFailureConditions"))
    for index, name in enumerate(failing):
        if name in wanted:
            place = (path / "bindingFailureConditions")[index]
            errors.append(place.invalid(name, "bindingFailureConditions must not overlap with bindingConditions"))
    return errors


def skip_operations(holder: Object, path: FieldPath) -> Errors:
    """skipNodeOperations of slices and results."""
    values, place = items(holder, "skipNodeOperations"), path / "skipNodeOperations"
    errors = each(values, place, lambda v, p: [] if v in _NODE_OPERATIONS else [p.not_supported(v, _NODE_OPERATIONS)])
    errors += unique(values, place, str)
    if "NodePrepareResources" in values and not {"NodeUnprepareResources", "*"} & set(map(str, values)):
        errors.append(
            place.invalid(values, "NodePrepareResources may be skipped only together with NodeUnprepareResources")
        )
    return errors


def taint(value: Any, path: FieldPath) -> Errors:
    """A DeviceTaint."""
    taint = value if isinstance(value, dict) else {}
    errors = by_name(taint.get("key"), path / "key", names.label_key)
    if taint.get("value"):
        errors += by_rule(taint["value"], path / "value", names.label_value)
    return errors + one_of(taint.get("effect"), path / "effect", _TAINT_EFFECTS)


def toleration(value: Any, path: FieldPath) -> Errors:
    """A DeviceToleration."""
    toleration = value if isinstance(value, dict) else {}
    errors: Errors = []
    if toleration.get("key"):
        errors += by_rule(toleration["key"], path / "key", names.label_key)
    match toleration.get("operator"):
        case "Exists":
            if toleration.get("value"):
                place = path / "value"
                errors.append(place.invalid(toleration["value"], "must be empty for operator `Exists`"))
        case "Equal":
            errors += by_rule(toleration.get("value") or "", path / "value", names.label_value)
        case None | "":
            errors.append((path / "operator").required())
        case other:
            errors.append((path / "operator").not_supported(other, ("Equal", "Exists")))
    effect = toleration.get("effect")
    if effect and effect not in _TAINT_EFFECTS:
        errors.append((path / "effect").not_supported(effect, _TAINT_EFFECTS))
    return errors


def opaque(holder: Object, path: FieldPath, *, stored: bool) -> Errors:
    """An inlined DeviceConfiguration: opaque with driver and parameters."""
    place = path / "opaque"
    inner = sub(holder, "opaque")
    if inner is None:
        return [place.required()]
    errors = driver_name(inner.get("driver"), place / "driver")
    parameters = inner.get("parameters")
    if parameters is None:
        return [*errors, (place / "parameters").required()]
    return errors + json_object(parameters, place / "parameters", stored=stored)


def json_object(value: Any, path: FieldPath, *, stored: bool = False) -> Errors:
    """Free JSON: an object, not too large unless stored already."""
    if not isinstance(value, dict):
        return [path.invalid(OMITTED, "must be a valid JSON object")]
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    return [path.too_long(OPAQUE_MAX)] if size > OPAQUE_MAX and not stored else []


def selectors(holder: Object, path: FieldPath, *, stored: bool, new_gates: frozenset[str]) -> Errors:
    """Device selectors. `new_gates`: the gates that an expression not stored yet may use."""

    def one(value: Any, at: FieldPath) -> Errors:
        cel = sub(value, "cel") if isinstance(value, dict) else None
        if cel is None:
            return [(at / "cel").required()]
        return check_expression(cel.get("expression"), at / "cel" / "expression", stored=stored, gates=new_gates)

    return each(items(holder, "selectors"), path / "selectors", one, limit=SELECTORS_MAX)


def conditions(holder: Object, path: FieldPath, limit: int = CONDITIONS_MAX) -> Errors:
    """metav1.Conditions: at most `limit`, unique by type."""
    values, place = items(holder, "conditions"), path / "conditions"
    errors = each(values, place, _condition, limit=limit)
    return errors + unique(values, place, lambda v: v.get("type") if isinstance(v, dict) else None, "type")


def _condition(value: Any, path: FieldPath) -> Errors:
    condition = value if isinstance(value, dict) else {}
    errors = by_name(condition.get("type"), path / "type", names.label_key)
    status = condition.get("status")
    if status not in _CONDITION_STATUS:
        errors.append((path / "status").not_supported(status or "", _CONDITION_STATUS))
    if (condition.get("observedGeneration") or 0) < 0:
        place = path / "observedGeneration"
        errors.append(place.invalid(condition["observedGeneration"], "must be greater than or equal to zero"))
    if not condition.get("lastTransitionTime"):
        errors.append((path / "lastTransitionTime").required("must be set"))
    if not condition.get("reason"):
        errors.append((path / "reason").required("must be set"))
    return errors


# ---- node selectors (core/v1)


def node_selector(selector: Object, path: FieldPath, *, single_term: bool = False) -> Errors:
    """A valid core NodeSelector, with exactly one term if asked for."""
    terms, place = items(selector, "nodeSelectorTerms"), path / "nodeSelectorTerms"
    if not terms:
        return [place.required("must have at least one node selector term")]
    errors = each(terms, place, node_selector_term)
    if single_term and len(terms) != 1:
        errors.append(place.invalid(len(terms), "must have exactly one node selector term"))
    return errors


def node_selector_term(value: Any, path: FieldPath) -> Errors:
    """One term: requirements on labels and on fields (metadata.name only)."""
    term = value if isinstance(value, dict) else {}
    errors = each(items(term, "matchExpressions"), path / "matchExpressions", _node_requirement)
    return errors + each(items(term, "matchFields"), path / "matchFields", _field_requirement)


def requirement(value: Any, path: FieldPath, *, numbers: bool = False) -> Errors:
    """One requirement of a selector on labels; numbers: Gt and Lt are operators, too, as in selectors of nodes."""
    wanted = value if isinstance(value, dict) else {}
    values, place = items(wanted, "values"), path / "values"
    errors: Errors = []
    match wanted.get("operator"):
        case "In" | "NotIn":
            if not values:
                errors.append(place.required("must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                errors.append(place.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        case "Gt" | "Lt" if numbers:
            if len(values) != 1:
                errors.append(place.required("must be specified single value when `operator` is 'Lt' or 'Gt'"))
        case other:
            errors.append((path / "operator").invalid(other or "", "not a valid selector operator"))
    errors += by_rule(wanted.get("key") or "", path / "key", names.label_key)
    return errors + each(values, place, lambda v, p: by_rule(v, p, names.label_value))


def _node_requirement(value: Any, path: FieldPath) -> Errors:
    return requirement(value, path, numbers=True)


def _field_requirement(value: Any, path: FieldPath) -> Errors:
    requirement = value if isinstance(value, dict) else {}
    values, place = items(requirement, "values"), path / "values"
    errors: Errors = []
    if requirement.get("operator") not in ("In", "NotIn"):
        errors.append((path / "operator").invalid(requirement.get("operator") or "", "not a valid selector operator"))
    if len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(place.required(detail))
    if requirement.get("key") != "metadata.name":
        errors.append((path / "key").invalid(requirement.get("key") or "", "not a valid field selector key"))
    return errors + each(values, place, lambda v, p: by_rule(v, p, names.dns_subdomain))
