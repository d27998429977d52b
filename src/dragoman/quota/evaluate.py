"""Does a quota concern this object, and is there enough left? The rules of upstream's ResourceQuota admission.

A "no" is a value with its numbers; `Exceeded.text` and `Missing.text` are the API server's words for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from dragoman.api.core import PersistentVolumeClaim, Pod, ResourceQuota, ScopeSelectorRequirement
from dragoman.api.kinds import Kind
from dragoman.quota.usage import NOTHING_AROUND, ZERO, Amounts, UsageContext, compute_usage, matching
from dragoman.values.quantity import Quantity

_MUST_STATE = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)  # upstream's validationSet: what a quota on these makes every container state


class QuotaShortage(msgspec.Struct, frozen=True):
    """One resource of a quota that does not suffice."""

    resource: str
    requested: Quantity
    used: Quantity
    hard: Quantity

    @property
    def missing(self) -> Quantity:
        """How much higher the limit would have to be, or the use lower."""
        return self.used + self.requested - self.hard

    @property
    def left(self) -> Quantity:
        """What would still fit; never below zero."""
        rest = self.hard - self.used
        return rest if rest.sign() > 0 else ZERO


class Exceeded(msgspec.Struct, frozen=True):
    """The quota has not enough left; shortages sorted by resource."""

    quota: str
    shortages: tuple[QuotaShortage, ...]

    @property
    def text(self) -> str:
        """As the API server says it."""
        requested, used, limited = (
            ",".join(f"{short.resource}={getattr(short, field)}" for short in self.shortages)
            for field in ("requested", "used", "hard")
        )
        return f"exceeded quota: {self.quota}, requested: {requested}, used: {used}, limited: {limited}"


class Missing(msgspec.Struct, frozen=True):
    """Containers do not state resources that the quota limits: (quota resource, names of containers)."""

    quota: str
    unstated: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def text(self) -> str:
        """As the API server says it."""
        what = "; ".join(f"{name} for: {','.join(containers)}" for name, containers in self.unstated)
        return f"failed quota: {self.quota}: must specify {what}"


QuotaRefusal: TypeAlias = Exceeded | Missing


def concerns(quota: ResourceQuota, kind: Kind, value: Any, around: UsageContext = NOTHING_AROUND) -> bool:
    """Whether an object counts in this quota: by its resources and by every scope."""
    return bool(matching(kind, quota.spec.hard, around)) and all(
        _in_scope(scope, kind, value) for scope in scopes_of(quota)
    )


def scopes_of(quota: ResourceQuota) -> tuple[ScopeSelectorRequirement, ...]:
    """spec.scopes and spec.scopeSelector as one list."""
    plain = tuple(ScopeSelectorRequirement(scope_name=name, operator="Exists") for name in quota.spec.scopes)
    selector = quota.spec.scope_selector
    return plain + (selector.match_expressions if selector is not None else ())


def refused(
    quota: ResourceQuota, used: Amounts, kind: Kind, value: Any, wanted: Amounts, around: UsageContext = NOTHING_AROUND
) -> QuotaRefusal | None:
    """Why the quota does not admit the object, None if it does or does not concern it.

    used: of the quota so far. wanted: what the object uses more than before (`usage`, for an update less the old).
    """
    if not concerns(quota, kind, value, around):
        return None
    hard = quota.spec.hard
    if isinstance(value, Pod) and (unstated := _unstated(value, matching(kind, hard, around))):
        return Missing(quota.metadata.name, unstated)
    over = tuple(
        QuotaShortage(name, wanted[name], used.get(name, ZERO), hard[name])
        for name in sorted(hard)
        if wanted.get(name) and used.get(name, ZERO) + wanted[name] > hard[name]
    )
    return Exceeded(quota.metadata.name, over) if over else None


def total(quota: ResourceQuota, usages: Iterable[Amounts]) -> Amounts:
    """The sum of usages of objects that the quota concerns, for each of its resources."""
    found = {name: Quantity(0, amount.format) for name, amount in quota.spec.hard.items()}
    for one in usages:
        for name, amount in one.items():
            if name in found:
                found[name] = found[name] + amount
    return found


def more(new: Amounts, old: Amounts) -> Amounts:
    """new less old, nothing below zero."""
    return {name: rest for name, amount in new.items() if (rest := amount - old.get(name, ZERO)).sign() > 0}


def _unstated(pod: Pod, names: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    level = pod.spec.resources
    if level is not None and (level.requests or level.limits):
        return ()
    must = sorted(_MUST_STATE.intersection(names))
    found: dict[str, set[str]] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        limits = container.resources.limits
        stated = compute_usage({**limits, **container.resources.requests}, limits)
        for name in must:
            if name not in stated:
                found.setdefault(name, set()).add(container.name)
    return tuple((name, tuple(sorted(found[name]))) for name in sorted(found))


# ---- scopes


def _in_scope(scope: ScopeSelectorRequirement, kind: Kind, value: Any) -> bool:
    name = scope.scope_name
    if isinstance(value, PersistentVolumeClaim):
        return name == "VolumeAttributesClass" and _selected(scope, value.spec.volume_attributes_class_name or "")
    if not isinstance(value, Pod):
        return False
    match name:
        case "Terminating" | "NotTerminating":
            deadline = value.spec.active_deadline_seconds
            return (deadline is not None and deadline >= 0) == (name == "Terminating")
        case "BestEffort" | "NotBestEffort":
            return _best_effort(value) == (name == "BestEffort")
        case "PriorityClass":
            return _selected(scope, value.spec.priority_class_name)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(value)
    return False


def _selected(scope: ScopeSelectorRequirement, name: str) -> bool:
    match scope.operator:
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return bool(name) and name in scope.values
        case "NotIn":
            return not name or name not in scope.values
    return False


def _best_effort(pod: Pod) -> bool:
    parts = [c.resources for c in (*pod.spec.containers, *pod.spec.init_containers)]
    if pod.spec.resources is not None:
        parts.append(pod.spec.resources)
    return not any(
        amount.sign() > 0
        for part in parts
        for side in (part.requests, part.limits)
        for name, amount in side.items()
        if name in ("cpu", "memory")
    )


def _crosses_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if not isinstance(part, dict):
            continue
        terms = list(part.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [entry.get("podAffinityTerm") or {} for entry in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
