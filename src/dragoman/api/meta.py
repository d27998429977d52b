"""What every API object carries: the base of our values, ObjectMeta, references and times.

Never validates: reading is lenient (every field optional, enum-like fields are strings, unknown fields
ignored); judging is the work of `api.validate` and of lint.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

NamespacedName: TypeAlias = tuple[str, str]
"""Namespace (empty for cluster scope) and name."""


class Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all API values: frozen, camelCase on the wire, defaults left out when encoded."""


class OwnerReference(Value, frozen=True):
    """metav1.OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Value, frozen=True):
    """metav1.ObjectMeta as far as decisions read it; times are RFC 3339 text as on the wire."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        return next((o for o in self.owner_references if o.controller), None)


class Bare(Value, frozen=True):
    """An object of a kind that no decision reads: its metadata only."""

    metadata: ObjectMeta = ObjectMeta()


class Ref(msgspec.Struct, frozen=True, order=True):
    """Names one object: kind is the Kind's name (`ResourceClaim`), namespace is empty for cluster scope.

    `uid` is a guard where it is set: a write meant for one incarnation never reaches the next.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Condition(Value, frozen=True):
    """metav1.Condition, also pod and node conditions (which have no observedGeneration)."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class LabelSelectorRequirement(Value, frozen=True):
    """One expression of a metav1.LabelSelector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Value, frozen=True):
    """metav1.LabelSelector; empty selects everything, None (absent) nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def parse_time(text: str) -> datetime:
    """RFC 3339 text to an aware UTC datetime. Raises ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def format_time(when: datetime) -> str:
    """An aware datetime as metav1.Time writes it: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(when: datetime) -> str:
    """An aware datetime as metav1.MicroTime writes it: UTC, six decimals."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
