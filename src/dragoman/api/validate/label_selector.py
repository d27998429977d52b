"""Is this metav1.LabelSelector valid, and does it select these labels?"""

from __future__ import annotations

from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.api.validate.field import Errors, FieldPath, each
from dragoman.api.validate.meta import label_map
from dragoman.api.validate.shared import requirement


def label_selector(selector: Object, path: FieldPath) -> Errors:
    """matchLabels and matchExpressions."""
    errors = label_map(selector, path, "matchLabels")
    return errors + each(items(selector, "matchExpressions"), path / "matchExpressions", requirement)


def matches(selector: Object, labels: Object) -> bool:
    """Whether a valid selector selects the labels."""
    if any(labels.get(key) != value for key, value in dig(selector, "matchLabels").items()):
        return False
    return all(_holds(wanted, labels) for wanted in objects(selector, "matchExpressions"))


def _holds(wanted: Object, labels: Object) -> bool:
    key, values = text(wanted, "key"), items(wanted, "values")
    match wanted.get("operator"):
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
