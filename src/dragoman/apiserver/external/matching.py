"""Which writes does a webhook or policy want to see? Rules, scopes, versions and selectors, as pure functions.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/predicates and policy/matching.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.shape import Object
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.selectors import Requirements, accepts, of_object
from dragoman.apiserver.status import not_found
from dragoman.apiserver.store import Store

NAMESPACE: Final = BY_NAME["Namespace"]
GROUP: Final = "admissionregistration.k8s.io"
EXEMPT: Final = frozenset(
    (
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    )
)
"""Nobody can lock himself out of changing what admits."""


class MatchRule(msgspec.Struct, frozen=True):
    """A RuleWithOperations, or a NamedRuleWithOperations."""

    operations: tuple[str, ...]
    groups: tuple[str, ...]
    versions: tuple[str, ...]
    resources: tuple[str, ...]
    scope: str = "*"
    names: tuple[str, ...] = ()

    def fits(self, attributes: Attributes, version: str) -> bool:
        """Whether a write in that version is meant."""
        kind = attributes.kind
        return (
            _has(self.operations, attributes.operation)
            and _has(self.groups, kind.group)
            and _has(self.versions, version)
            and self._has_scope(kind)
            and self._has_resource(kind, attributes.subresource)
            and (not self.names or attributes.name in self.names)
        )

    def _has_scope(self, kind: Kind) -> bool:
        if self.scope in ("*", ""):
            return True
        return kind.namespaced is (self.scope == "Namespaced")

    def _has_resource(self, kind: Kind, subresource: str) -> bool:
        for text in self.resources:
            resource, _, below = text.partition("/")
            if resource in ("*", kind.plural) and below in ("*", subresource):
                return True
        return False


class Matching(msgspec.Struct, frozen=True):
    """What a webhook, a policy or a binding wants to see; selectors None accept everything."""

    rules: tuple[MatchRule, ...]
    exact: bool = False
    excluded: tuple[MatchRule, ...] = ()
    namespaces: Requirements = ()
    objects: Requirements = ()
    everything: bool = False
    """There are no rules to fit: constraints that only exclude or select."""

    def version(self, attributes: Attributes) -> str | None:
        """The version in which the write is wanted, None if it is not."""
        asked = attributes.write.version or attributes.kind.versions[0]
        if any(rule.fits(attributes, asked) for rule in self.excluded):
            return None
        if self.everything:
            return asked
        versions = [asked] if self.exact else [asked, *(v for v in attributes.kind.versions if v != asked)]
        for version in versions:
            if any(rule.fits(attributes, version) for rule in self.rules):
                return version
        return None

    def selects(self, store: Store, attributes: Attributes) -> bool:
        """Whether the namespace and the object carry the labels. Raises 404 for a namespace that is not there."""
        if self.namespaces and not _selects_namespace(store, self.namespaces, attributes):
            return False
        if not self.objects:
            return True
        return any(
            obj is not None and accepts(self.objects, labels_of(obj)) for obj in (attributes.obj, attributes.old)
        )


def is_exempt(attributes: Attributes) -> bool:
    """Whether no webhook and no policy may have a say."""
    return attributes.kind.group == GROUP and attributes.kind.kind in EXEMPT


def labels_of(obj: Object) -> Mapping[str, str]:
    """The labels of an object."""
    return (obj.get("metadata") or {}).get("labels") or {}


def _selects_namespace(store: Store, selector: Requirements, attributes: Attributes) -> bool:
    if attributes.kind is NAMESPACE:
        own = attributes.obj if attributes.operation in ("CREATE", "UPDATE") else None
        if own is not None and not attributes.subresource:
            return accepts(selector, labels_of(own))
        name = attributes.name
    elif attributes.namespace:
        name = attributes.namespace
    else:
        return True
    record = store.get(NAMESPACE, "", name)
    if record is None:
        raise not_found(NAMESPACE, name)
    return accepts(selector, record.labels)


def _has(values: tuple[str, ...], wanted: str) -> bool:
    return "*" in values or wanted in values


def rules_of(listed: Iterable[Any] | None) -> tuple[MatchRule, ...]:
    """Rules from their objects."""

    def texts(entry: Any, field: str) -> tuple[str, ...]:
        return tuple(entry.get(field) or ())

    return tuple(
        MatchRule(
            texts(entry, "operations"),
            texts(entry, "apiGroups"),
            texts(entry, "apiVersions"),
            texts(entry, "resources"),
            entry.get("scope") or "*",
            texts(entry, "resourceNames"),
        )
        for entry in listed or ()
    )


def of_webhook(webhook: Object) -> Matching:
    """The matching of one webhook of a configuration."""
    return Matching(
        rules_of(webhook.get("rules")),
        webhook.get("matchPolicy") == "Exact",
        (),
        of_object(webhook.get("namespaceSelector") or {}) or (),
        of_object(webhook.get("objectSelector") or {}) or (),
    )


def of_constraints(resources: Object | None) -> Matching:
    """The matching of a policy's matchConstraints or a binding's matchResources."""
    resources = resources or {}
    rules = rules_of(resources.get("resourceRules"))
    return Matching(
        rules,
        resources.get("matchPolicy") == "Exact",
        rules_of(resources.get("excludeResourceRules")),
        of_object(resources.get("namespaceSelector") or {}) or (),
        of_object(resources.get("objectSelector") or {}) or (),
        everything=not rules,
    )
