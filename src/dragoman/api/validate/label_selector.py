"""Is this metav1.LabelSelector valid, and does it select these labels?"""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.api.validate.field import Errors, Path, by_rule, each
from dragoman.api.validate.meta import label_map
from dragoman.values import names


def label_selector(selector: Object, path: Path) -> Errors:
    """matchLabels and matchExpressions."""
    errors = label_map(selector, path, "matchLabels")
    return errors + each(items(selector, "matchExpressions"), path / "matchExpressions", _requirement)


def _requirement(value: Any, path: Path) -> Errors:
    requirement = value if isinstance(value, dict) else {}
    values, place = items(requirement, "values"), path / "values"
    errors: Errors = []
    match requirement.get("operator"):
        case "In" | "NotIn":
            if not values:
                errors.append(place.required("must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                errors.append(place.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        case other:
            errors.append((path / "operator").invalid(other or "", "not a valid selector operator"))
    errors += by_rule(requirement.get("key") or "", path / "key", names.label_key)
    return errors + each(values, place, lambda v, p: by_rule(v, p, names.label_value))


def matches(selector: Object, labels: Object) -> bool:
    """Whether a valid selector selects the labels."""
    if any(labels.get(key) != value for key, value in dig(selector, "matchLabels").items()):
        return False
    return all(_holds(requirement, labels) for requirement in objects(selector, "matchExpressions"))


def _holds(requirement: Object, labels: Object) -> bool:
    key, values = text(requirement, "key"), items(requirement, "values")
    match requirement.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
