"""Do the pods that already exist let this pod on a node? Host ports, pod (anti-)affinity, topology spread.

Required rules only, in upstream's semantics (InterPodAffinity, PodTopologySpread, NodePorts); preferred ones change
no decision here. Looking costs what the number of pods is, so it is done only for pods that ask for it, or while pods
with required anti-affinity are there. Never looks at devices or resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.core import Container, Node, Pod
from dragoman.api.meta import LabelSelector, LabelSelectorRequirement, NamespacedName, Value
from dragoman.schedule.filter import affinity_reason, untolerated_hard
from dragoman.schedule.refusal import NodeReason, PodAffinity, PodAntiAffinity, PortConflict, TopologySpread
from dragoman.snapshot.change import REPELS, Snapshot
from dragoman.snapshot.selection import matches
from dragoman.snapshot.usage import is_finished

HOSTNAME_FREE = ("", "0.0.0.0", "::")  # noqa: S104


class PodTerm(Value, frozen=True):
    """core/v1 PodAffinityTerm."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodTerms(Value, frozen=True):
    """podAffinity or podAntiAffinity, as far as it is required."""

    required: tuple[PodTerm, ...] = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())


class Spread(Value, frozen=True):
    """core/v1 TopologySpreadConstraint."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class InterPodState(msgspec.Struct, frozen=True):
    """What other pods mean for one pod. labels: topology keys in play; by_name: nodes differ beyond their labels.

    attract: (key, values with a matching pod), None for values: any node that has the key. repel, forbidden: (key,
    value) pairs of the pod's own and of others' anti-affinity. spread: (constraint, pods by value, allowed).
    """

    labels: tuple[str, ...]
    by_name: bool
    ports: tuple[tuple[str, int, str], ...]
    held: Mapping[str, frozenset[tuple[str, int, str]]]
    attract: tuple[tuple[str, frozenset[str] | None], ...]
    repel: frozenset[tuple[str, str]]
    forbidden: frozenset[tuple[str, str]]
    spread: tuple[tuple[Spread, Mapping[str, int], int], ...]

    def reason(self, node: Node) -> NodeReason | None:
        """The first rule that keeps the pod off the node."""
        labels = node.metadata.labels
        held = self.held.get(node.metadata.name, frozenset())
        for port in self.ports:
            if any(_collides(port, other) for other in held):
                return PortConflict(port[1], port[0])
        for constraint, counts, allowed in self.spread:
            value = labels.get(constraint.topology_key)
            if value is None or counts.get(value, 0) > allowed:
                return TopologySpread(constraint.topology_key, constraint.max_skew, value is None)
        for key, values in self.attract:
            if key not in labels or (values is not None and labels[key] not in values):
                return PodAffinity(key)
        for key, value in labels.items():
            if (key, value) in self.repel:
                return PodAntiAffinity(key, False)
            if (key, value) in self.forbidden:
                return PodAntiAffinity(key, True)
        return None


def inter_pod_state_of(snapshot: Snapshot, pod: Pod, off: frozenset[str] = frozenset()) -> InterPodState | None:
    """What other pods mean for this one; None if nothing. off: checks that are not made (`profile.POD_CHECKS`)."""
    spec = pod.spec
    ports = tuple(_ports(pod)) if "NodePorts" not in off else ()
    affinity = spec.affinity if "InterPodAffinity" not in off else None
    attract = _required(affinity.pod_affinity) if affinity is not None else ()
    repel = _required(affinity.pod_anti_affinity) if affinity is not None else ()
    constraints = spec.topology_spread_constraints if "PodTopologySpread" not in off else ()
    spreads = [codec.decode(Spread, raw) for raw in constraints]
    hard = [one for one in spreads if one.when_unsatisfiable != "ScheduleAnyway"]
    repelling = snapshot.pods_by_trait.get(REPELS) if "InterPodAffinity" not in off else None
    if not (ports or attract or repel or hard or repelling):
        return None
    there = [other for other in snapshot.pods.values() if _counts(other)] if attract or repel or hard else []
    forbidden = frozenset(_forbidden(snapshot, pod, repelling)) if repelling else frozenset()
    keys = {term.topology_key for term in (*attract, *repel)} | {one.topology_key for one in hard}
    return InterPodState(
        tuple(sorted(keys | {key for key, _ in forbidden})),
        bool(ports),
        ports,
        _held_ports(snapshot) if ports else {},
        tuple(_attracted(snapshot, pod, attract, there)),
        frozenset(pair for term in repel for pair in _where(snapshot, pod, [term], there)),
        forbidden,
        tuple(_spread(snapshot, pod, one, hard, there) for one in hard),
    )


def _counts(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not is_finished(pod)


# ---- terms over pods


def _required(raw: Any) -> tuple[PodTerm, ...]:
    return codec.decode(PodTerms, raw).required if raw else ()


def _term_selects(snapshot: Snapshot, owner: Pod, term: PodTerm, other: Pod) -> bool:
    """Whether a term of `owner` selects the other pod."""
    return _in_scope(snapshot, owner, term, other.metadata.namespace) and matches(
        _narrowed(term.label_selector, owner, term.match_label_keys, term.mismatch_label_keys), other.metadata.labels
    )


def _in_scope(snapshot: Snapshot, owner: Pod, term: PodTerm, namespace: str) -> bool:
    if term.namespace_selector is None and not term.namespaces:
        return namespace == owner.metadata.namespace
    if namespace in term.namespaces:
        return True
    found = snapshot.namespaces.get(namespace)
    return matches(term.namespace_selector, found.metadata.labels if found is not None else {})


def _narrowed(
    selector: LabelSelector | None, owner: Pod, same: Iterable[str], other: Iterable[str] = ()
) -> LabelSelector | None:
    """The selector with matchLabelKeys and mismatchLabelKeys put in, as the API server does for new pods."""
    if selector is None:
        return None
    labels = owner.metadata.labels
    more = [LabelSelectorRequirement(key, "In", (labels[key],)) for key in same if key in labels]
    more += [LabelSelectorRequirement(key, "NotIn", (labels[key],)) for key in other if key in labels]
    if not more:
        return selector
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *more))


def _where(snapshot: Snapshot, owner: Pod, terms: list[PodTerm], there: list[Pod]) -> Iterable[tuple[str, str]]:
    """(key, value) of the topologies with a pod that all the terms select."""
    for other in there:
        node = snapshot.nodes.get(other.spec.node_name)
        if node is not None and all(_term_selects(snapshot, owner, term, other) for term in terms):
            for term in terms:
                value = node.metadata.labels.get(term.topology_key)
                if value is not None:
                    yield term.topology_key, value


def _attracted(
    snapshot: Snapshot, pod: Pod, terms: tuple[PodTerm, ...], there: list[Pod]
) -> Iterable[tuple[str, frozenset[str] | None]]:
    pairs = set(_where(snapshot, pod, list(terms), there))
    # The first pod of a group that attracts itself may go anywhere.
    if terms and not pairs and all(_term_selects(snapshot, pod, term, pod) for term in terms):
        for term in terms:
            yield term.topology_key, None
        return
    for term in terms:
        yield term.topology_key, frozenset(value for key, value in pairs if key == term.topology_key)


def _forbidden(snapshot: Snapshot, pod: Pod, repelling: Iterable[NamespacedName]) -> Iterable[tuple[str, str]]:
    for key in repelling:
        other = snapshot.pods[key]
        node = snapshot.nodes.get(other.spec.node_name) if _counts(other) else None
        if node is None or other.spec.affinity is None:
            continue
        for term in _required(other.spec.affinity.pod_anti_affinity):
            value = node.metadata.labels.get(term.topology_key)
            if value is not None and _term_selects(snapshot, other, term, pod):
                yield term.topology_key, value


# ---- spread


def _spread(
    snapshot: Snapshot, pod: Pod, constraint: Spread, every: list[Spread], there: list[Pod]
) -> tuple[Spread, Mapping[str, int], int]:
    """The constraint, matching pods by topology value, and how many a value may have before the pod comes."""
    selector = _narrowed(constraint.label_selector, pod, constraint.match_label_keys)
    counts = {
        node.metadata.labels[constraint.topology_key]: 0
        for node in snapshot.nodes.values()
        if _is_eligible(pod, constraint, every, node)
    }
    for other in there:
        node = snapshot.nodes.get(other.spec.node_name)
        if node is None or other.metadata.deletion_timestamp is not None:
            continue
        if other.metadata.namespace != pod.metadata.namespace or not matches(selector, other.metadata.labels):
            continue
        value = node.metadata.labels.get(constraint.topology_key)
        if value in counts and _is_eligible(pod, constraint, every, node):
            counts[value] += 1
    least = min(counts.values(), default=0)
    if constraint.min_domains is not None and len(counts) < constraint.min_domains:
        least = 0
    own = 1 if matches(selector, pod.metadata.labels) else 0
    return constraint, counts, least + constraint.max_skew - own


def _is_eligible(pod: Pod, constraint: Spread, every: list[Spread], node: Node) -> bool:
    if any(one.topology_key not in node.metadata.labels for one in every):
        return False
    if constraint.node_affinity_policy != "Ignore" and affinity_reason(pod.spec, node) is not None:
        return False
    return constraint.node_taints_policy != "Honor" or untolerated_hard(pod.spec, node) is None


# ---- ports


def _ports(pod: Pod) -> Iterable[tuple[str, int, str]]:
    """(protocol, host port, host address) of what the pod takes on its node."""
    inits = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    containers: Iterable[Container] = (*inits, *pod.spec.containers)
    for container in containers:
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number:
                yield port.protocol or "TCP", number, port.host_ip


def _held_ports(snapshot: Snapshot) -> dict[str, frozenset[tuple[str, int, str]]]:
    held: dict[str, set[tuple[str, int, str]]] = {}
    for pod in snapshot.pods.values():
        if _counts(pod):
            held.setdefault(pod.spec.node_name, set()).update(_ports(pod))
    return {node: frozenset(ports) for node, ports in held.items() if ports}


def _collides(one: tuple[str, int, str], two: tuple[str, int, str]) -> bool:
    if one[:2] != two[:2]:
        return False
    return one[2] == two[2] or one[2] in HOSTNAME_FREE or two[2] in HOSTNAME_FREE
