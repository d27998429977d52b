"""Is a HorizontalPodAutoscaler valid? Bounds, target, metrics and policies, as kube-apiserver judges them."""

from __future__ import annotations

from typing import Any

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.api.validate.field import INVALID, Errors, FieldError, FieldPath, at_least, each, number, one_of
from dragoman.values.quantity import Quantity

_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
_POLICIES_MAX_S, _WINDOW_MAX_S = 1800, 3600


def autoscaler(obj: Object, gates: Gates) -> Errors:
    """The spec."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors: Errors = []
    metrics = objects(spec, "metrics")
    least = 0 if any(metric.get("type") in ("Object", "External") for metric in metrics) else 1
    low, high = number(spec, "minReplicas"), number(spec, "maxReplicas") or 0
    if low is not None and low < least:
        text_ = f"must be greater than or equal to {least}"
        errors.append(FieldError(str(path / "minReplicas"), INVALID, low, text_))
    if high < 1:
        errors.append(FieldError(str(path / "maxReplicas"), INVALID, high, "must be greater than 0"))
    if low is not None and high < low:
        text_ = "must be greater than or equal to `minReplicas`"
        errors.append(FieldError(str(path / "maxReplicas"), INVALID, high, text_))
    target = dig(spec, "scaleTargetRef")
    errors += [(path / "scaleTargetRef" / field).required() for field in ("kind", "name") if not text(target, field)]
    errors += each(items(spec, "metrics"), path / "metrics", _metric)
    for field in ("scaleUp", "scaleDown"):
        errors += _rules(dig(spec, "behavior", field), path / "behavior" / field)
    return errors


def _metric(metric: Any, path: FieldPath) -> Errors:
    type_ = text(metric, "type")
    if not type_:
        return [(path / "type").required("must specify a metric source type")]
    errors = one_of(type_, path / "type", tuple(sorted(_SOURCES)))
    if errors:
        return errors
    field = _SOURCES[type_]
    if not isinstance(metric.get(field), dict):
        return [(path / field).required("must populate information for the given metric source")]
    source, place = dig(metric, field), path / field
    if type_ in ("Resource", "ContainerResource") and not text(source, "name"):
        errors.append((place / "name").required("must specify a resource name"))
    if type_ == "ContainerResource" and not text(source, "container"):
        errors.append((place / "container").required("must specify a container"))
    return errors + _target(dig(source, "target"), place / "target")


def _target(target: Object, path: FieldPath) -> Errors:
    if not text(target, "type"):
        return [(path / "type").required("must specify a metric target type")]
    errors = one_of(target["type"], path / "type", ("AverageValue", "Utilization", "Value"))
    percent = number(target, "averageUtilization")
    if percent is not None and percent < 1:
        errors.append(FieldError(str(path / "averageUtilization"), INVALID, percent, "must be greater than 0"))
    for field in ("value", "averageValue"):
        amount = target.get(field)
        try:
            if amount is not None and Quantity.parse(amount).sign() <= 0:
                errors.append(FieldError(str(path / field), INVALID, amount, "must be positive"))
        except ValueError as error:
            errors.append(FieldError(str(path / field), INVALID, amount, str(error)))
    return errors


def _rules(rules: Object, path: FieldPath) -> Errors:
    if not rules:
        return []
    window, errors = number(rules, "stabilizationWindowSeconds"), Errors()
    place = path / "stabilizationWindowSeconds"
    if window is not None:
        errors += at_least(window, place)
        if window > _WINDOW_MAX_S:
            text_ = f"must be less than or equal to {_WINDOW_MAX_S}"
            errors.append(FieldError(str(place), INVALID, window, text_))
    if rules.get("selectPolicy") is not None:
        errors += one_of(rules["selectPolicy"], path / "selectPolicy", ("Disabled", "Max", "Min"))
    if not items(rules, "policies"):
        errors.append((path / "policies").required("must specify at least one Policy"))
    return errors + each(items(rules, "policies"), path / "policies", _policy)


def _policy(policy: Any, path: FieldPath) -> Errors:
    errors = one_of(policy.get("type"), path / "type", ("Percent", "Pods"))
    for field in ("value", "periodSeconds"):
        amount = number(policy, field) or 0
        if amount <= 0:
            errors.append(FieldError(str(path / field), INVALID, amount, "must be greater than zero"))
    if (number(policy, "periodSeconds") or 0) > _POLICIES_MAX_S:
        text_ = f"must be less than or equal to {_POLICIES_MAX_S}"
        errors.append(FieldError(str(path / "periodSeconds"), INVALID, policy["periodSeconds"], text_))
    return errors
