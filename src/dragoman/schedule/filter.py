"""Can the pod run on this node, devices aside? Checks in upstream's order, the first that fails is the reason.

Two halves, because they change at different times: `static_reason` reads what a node is (name, labels, taints,
cordon), `insufficient_resources` what is left of its resources. Never looks at devices or at other pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dragoman.api.core import (
    Node,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    Toleration,
)
from dragoman.schedule.needs import NANOS, ResourceAmounts, is_extended
from dragoman.schedule.profile import DEFAULT_PROFILE, SchedulerProfile
from dragoman.schedule.refusal import (
    AddedAffinityMismatch,
    InsufficientResource,
    NodeAffinityMismatch,
    NodeReason,
    NodeUnschedulable,
    TooManyPods,
    UnknownResource,
    UntoleratedTaint,
)
from dragoman.snapshot.selection import selects
from dragoman.snapshot.taints import tolerates
from dragoman.values.quantity import BINARY_SI, DECIMAL_SI, Quantity

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_HARD = ("NoSchedule", "NoExecute")
PODS = "pods"


# ---- what a pod can see of a node


class NodeProjection(msgspec.Struct, frozen=True):
    """Which facts of a node can matter to a pod: label keys, and whether its name and its features do."""

    labels: tuple[str, ...]
    name: bool
    features: bool = False

    def project(self, node: Node) -> tuple[object, ...]:
        """Equal for nodes that static checks and static scores cannot tell apart."""
        labels = node.metadata.labels
        return (
            node.metadata.name if self.name else None,
            tuple([labels.get(key) for key in self.labels]),
            node.spec.unschedulable,
            node.spec.taints,
            node.status.declared_features if self.features else (),
        )


def projection_of(spec: PodSpec, profile: SchedulerProfile = DEFAULT_PROFILE) -> NodeProjection:
    """What of a node the selectors of pod and profile name."""
    keys = set(spec.node_selector)
    name = False
    own = spec.affinity.node_affinity if spec.affinity is not None else None
    for term in (*_all_terms(own), *_all_terms(profile.added)):
        keys |= {requirement.key for requirement in term.match_expressions}
        name = name or bool(term.match_fields)
    return NodeProjection(tuple(sorted(keys)), name)


def _all_terms(affinity: NodeAffinity | None) -> Iterator[NodeSelectorTerm]:
    if affinity is not None:
        if affinity.required is not None:
            yield from affinity.required.node_selector_terms
        for preferred in affinity.preferred:
            yield preferred.preference


# ---- static checks


def static_reason(spec: PodSpec, node: Node, profile: SchedulerProfile = DEFAULT_PROFILE) -> NodeReason | None:
    """Cordon, taints, node selector and required affinity, as far as the profile checks them; None if all pass."""
    off = profile.off
    if node.spec.unschedulable and "NodeUnschedulable" not in off and not _tolerated(CORDON, spec.tolerations):
        return NodeUnschedulable()
    if "TaintToleration" not in off and (untolerated := untolerated_hard(spec, node)) is not None:
        return untolerated
    if "NodeAffinity" in off:
        return None
    if profile.added is not None and profile.added.required is not None and not selects(profile.added.required, node):
        return AddedAffinityMismatch(terms_text(profile.added.required.node_selector_terms))
    return affinity_reason(spec, node)


def untolerated_hard(spec: PodSpec, node: Node) -> UntoleratedTaint | None:
    """The first NoSchedule or NoExecute taint that the pod does not tolerate."""
    for taint in node.spec.taints:
        if taint.effect in _HARD and not _tolerated(taint, spec.tolerations):
            return UntoleratedTaint(taint.key, taint.value, taint.effect)
    return None


def affinity_reason(spec: PodSpec, node: Node) -> NodeAffinityMismatch | None:
    """Node selector and required node affinity."""
    labels = node.metadata.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return NodeAffinityMismatch(f"{key}={value}")
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return None
    if selects(affinity.required, node):
        return None
    return NodeAffinityMismatch(terms_text(affinity.required.node_selector_terms))


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated_soft(spec: PodSpec, node: Node) -> int:
    """How many PreferNoSchedule taints of the node the pod does not tolerate."""
    soft = [t for t in spec.tolerations if t.effect in ("", "PreferNoSchedule")]
    return sum(
        1
        for taint in node.spec.taints
        if taint.effect == "PreferNoSchedule" and not any(tolerates(toleration, taint) for toleration in soft)
    )


# ---- texts of requirements


def terms_text(terms: tuple[NodeSelectorTerm, ...]) -> str:
    """The terms of a node selector as people write them."""
    return " or ".join(_term_text(term) for term in terms) or "no term"


def _term_text(term: NodeSelectorTerm) -> str:
    parts = [_requirement_text(r) for r in (*term.match_expressions, *term.match_fields)]
    return " and ".join(parts) or "an empty term"


def _requirement_text(requirement: NodeSelectorRequirement) -> str:
    match requirement.operator:
        case "In" if len(requirement.values) == 1:
            return f"{requirement.key}={requirement.values[0]}"
        case "In" | "NotIn":
            words = "in" if requirement.operator == "In" else "not in"
            return f"{requirement.key} {words} ({', '.join(requirement.values)})"
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case "Gt" | "Lt":
            sign = ">" if requirement.operator == "Gt" else "<"
            return f"{requirement.key} {sign} {''.join(requirement.values)}"
        case _:
            return f"{requirement.key} {requirement.operator} (unknown operator)"


# ---- resources


def insufficient_resources(
    needs: ResourceAmounts, allocatable: Mapping[str, Quantity] | None, used: Mapping[str, int]
) -> list[NodeReason]:
    """Resources that do not suffice, all of them, as upstream reports; [] if all fit.

    needs and used in nano-units, "pods" among them. allocatable None: room for everything.
    """
    if allocatable is None:
        return []
    reasons: list[NodeReason] = []
    for name, wanted in needs.items():
        if not wanted:
            continue
        total = allocatable.get(name)
        nanos = total.nanos if total is not None else 0
        free = nanos - used.get(name, 0)
        if wanted <= free:
            continue
        if name == PODS:
            if total is not None:
                reasons.append(TooManyPods(nanos // NANOS))
        elif total is None and is_extended(name):
            reasons.append(UnknownResource(name))
        else:
            reasons.append(InsufficientResource(name, *(amount(name, n) for n in (wanted, free, nanos))))
    return reasons


def amount(resource: str, nanos: int) -> Quantity:
    """Nano-units as people write that resource: memory and storage with binary suffixes."""
    binary = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return Quantity(nanos, BINARY_SI if binary else DECIMAL_SI)
