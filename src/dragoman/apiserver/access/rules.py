"""What does a rule allow, and do some rules cover others? Pure functions over rbac.authorization.k8s.io/v1 PolicyRule.

Sources: k8s.io/kubernetes pkg/apis/rbac/v1/evaluation_helpers.go, k8s.io/component-helpers auth/rbac/validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dragoman.apiserver.access.attributes import Attributes, quoted


class PolicyRule(msgspec.Struct, frozen=True):
    """A PolicyRule; lists are tuples."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        """Whether the rule answers yes."""
        if not asked.resource:
            return _has(self.verbs, asked.verb) and self.has_url(asked.path)
        return self.covers_kind(asked) and (not self.names or asked.name in self.names)

    def covers_kind(self, asked: Attributes) -> bool:
        """Whether verb, group and resource fit; names are left to the caller."""
        return (
            _has(self.verbs, asked.verb)
            and _has(self.groups, asked.group)
            and self.has_resource(asked.resource, asked.subresource)
        )

    def has_resource(self, resource: str, subresource: str) -> bool:
        """Whether `resource/subresource` is among the resources; `*/subresource` fits every resource."""
        combined = f"{resource}/{subresource}" if subresource else resource
        if "*" in self.resources or combined in self.resources:
            return True
        return bool(subresource) and f"*/{subresource}" in self.resources

    def has_url(self, path: str) -> bool:
        """Whether a path is among the non-resource URLs; a star stands at the end only."""
        return any(_url_covers(url, path) for url in self.urls)

    def as_object(self) -> dict[str, Any]:
        """The PolicyRule."""
        out: dict[str, Any] = {"verbs": list(self.verbs)}
        for field, value in (
            ("apiGroups", self.groups),
            ("resources", self.resources),
            ("resourceNames", self.names),
            ("nonResourceURLs", self.urls),
        ):
            if value:
                out[field] = list(value)
        return out


def _has(values: tuple[str, ...], wanted: str) -> bool:
    return "*" in values or wanted in values


def _url_covers(owner: str, path: str) -> bool:
    if owner in ("*", path):
        return True
    return owner.endswith("*") and path.startswith(owner.rstrip("*"))


def rule_of(obj: Any) -> PolicyRule:
    """A rule from a PolicyRule; what has another shape than the schema's counts as empty."""

    def texts(field: str) -> tuple[str, ...]:
        return tuple(str(value) for value in obj.get(field) or ())

    return PolicyRule(
        texts("verbs"), texts("apiGroups"), texts("resources"), texts("resourceNames"), texts("nonResourceURLs")
    )


def rules_of(obj: Any) -> tuple[PolicyRule, ...]:
    """The rules of a Role or ClusterRole."""
    return tuple(rule_of(rule) for rule in obj.get("rules") or ())


def missing(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The smallest parts of the wanted rules that no owned rule covers."""
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(owner, part) for owner in owned)]


def _parts(rule: PolicyRule) -> Iterable[PolicyRule]:
    """Rules of one verb, one resource and at most one name that together say the same."""
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in rule.names or ("",):
                    yield PolicyRule((verb,), (group,), (resource,), (name,) if name else ())
    for url in rule.urls:
        for verb in rule.verbs:
            yield PolicyRule((verb,), urls=(url,))


def _covers(owner: PolicyRule, part: PolicyRule) -> bool:
    if not all(_has(owner.verbs, verb) for verb in part.verbs):
        return False
    if not all(_has(owner.groups, group) for group in part.groups):
        return False
    for resource in part.resources:
        head, _, tail = resource.partition("/")
        if not owner.has_resource(head, tail):
            return False
    if part.names:
        if owner.names and not set(part.names) <= set(owner.names):
            return False
    elif owner.names:
        return False
    return all(any(_url_covers(url, path) for url in owner.urls) for path in part.urls)


def compacted(parts: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Parts that differ by verb alone as one rule."""
    verbs: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for part in parts:
        verbs.setdefault((part.groups, part.resources, part.names, part.urls), []).extend(part.verbs)
    return [PolicyRule(tuple(listed), *key) for key, listed in verbs.items()]


def shown(rule: PolicyRule) -> str:
    """A rule as messages about escalation write it."""
    listed = (
        ("APIGroups", rule.groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.urls),
        ("ResourceNames", rule.names),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{field}:{go_list(values)}" for field, values in listed if values) + "}"


def go_list(values: Iterable[str]) -> str:
    """Texts as Go's %q writes a slice."""
    return "[" + " ".join(quoted(value) for value in values) + "]"
