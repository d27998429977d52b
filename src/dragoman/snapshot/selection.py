"""Does a selector select? Node selectors (core v1) over nodes, label selectors (metav1) over labels; nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dragoman.api.meta import LabelSelector


def selects(selector: NodeSelector, node: Node) -> bool:
    """Whether one of the terms matches; a selector without terms matches nothing."""
    return any(term_matches(term, node) for term in selector.node_selector_terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Whether all requirements hold; a term without any matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(requirement_holds(r, node.metadata.labels) for r in term.match_expressions) and all(
        requirement_holds(r, fields) for r in term.match_fields
    )


def requirement_holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """One requirement over labels (or fields); unknown operators never hold."""
    value = labels.get(requirement.key)
    if requirement.operator in ("Gt", "Lt"):
        return value is not None and _compares(requirement, value)
    return _holds(requirement.operator, value, requirement.values)


def _holds(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _compares(requirement: NodeSelectorRequirement, value: str) -> bool:
    if len(requirement.values) != 1:
        return False
    try:
        have, limit = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return have > limit if requirement.operator == "Gt" else have < limit


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(e.operator, labels.get(e.key), e.values) for e in selector.match_expressions)
