"""What is there to do for a ComputeDomain? One step for its uid: objects to make, finalizers to let go, its status.

Level-triggered: each step looks at what exists and answers with effects; nothing is remembered between steps. What
somebody else made is never changed: without our label an object is not ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import ObjectMeta, Ref
from dragoman.drivers.nvidia.compute_domain.names import (
    CLIQUE,
    CLIQUE_LABEL,
    DOMAIN,
    FINALIZER,
    LABEL,
    NOT_READY,
    READY,
    Clique,
    ComputeDomain,
    DomainNode,
)
from dragoman.drivers.nvidia.compute_domain.objects import MakeSettings, daemon_set, daemon_template, workload_template
from dragoman.effects import Create, Delete, Effect, Emit, Patch
from dragoman.reconcile.step import ReconcileResult

COMPONENT = "compute-domain-controller"
TEMPLATE, DAEMON_SET = "ResourceClaimTemplate", "DaemonSet"
NON_FABRIC = -1


class Made(msgspec.Struct, frozen=True):
    """An object that carries the label of a domain: which kind, and its metadata."""

    kind: str
    metadata: ObjectMeta

    @property
    def ref(self) -> Ref:
        """This incarnation of it."""
        return Ref(self.kind, self.metadata.namespace, self.metadata.name, self.metadata.uid)


class DomainInput(msgspec.Struct, frozen=True):
    """What is known of one domain. made: templates and DaemonSets with its label. nodes: metadata of those labelled
    for it. cliques, pods: its own; pods are those of its daemons. other_template: uid of an object that has the name of
    its workload template without being its own."""

    uid: str
    domain: ComputeDomain | None = None
    made: tuple[Made, ...] = ()
    nodes: tuple[ObjectMeta, ...] = ()
    cliques: tuple[Clique, ...] = ()
    pods: tuple[Pod, ...] = ()
    other_template: bool = False
    cliques_gate: bool = True


def sync(known: DomainInput, settings: MakeSettings) -> ReconcileResult:
    """The step for a domain that exists; nothing for one that does not (that is `stale`)."""
    domain = known.domain
    if domain is None:
        return ReconcileResult()
    if domain.is_ending:
        return _end(known, domain)
    problem = ""
    effects: list[Effect] = []
    if FINALIZER not in domain.metadata.finalizers:
        finalizers = [*domain.metadata.finalizers, FINALIZER]
        effects.append(_finalizers(_ref(domain), domain.metadata, finalizers))
    sets = [made for made in known.made if made.kind == DAEMON_SET]
    templates = {made.metadata.name: made for made in known.made if made.kind == TEMPLATE}
    if len(sets) > 1:
        names = ", ".join(sorted(made.metadata.name for made in sets))
        problem = f"more than one DaemonSet has the label of ComputeDomain {domain}: {names}"
    if not sets and not settings.host_managed:
        body = daemon_template(domain, settings)
        if body["metadata"]["name"] not in templates:
            effects.append(Create(body))
        effects.append(Create(daemon_set(domain, settings)))
    wanted = workload_template(domain, settings)
    if wanted["metadata"]["name"] not in templates:
        if known.other_template:
            name = f"{domain.metadata.namespace}/{wanted['metadata']['name']}"
            problem = (
                f"ResourceClaimTemplate {name} exists and is not of this ComputeDomain: "
                "name another one in spec.channel.resourceClaimTemplate, or delete it"
            )
            effects.append(
                Emit(
                    _ref(domain), "Warning", "TemplateExists", problem, COMPONENT, action="CreateResourceClaimTemplate"
                )
            )
        else:
            effects.append(Create(wanted))
    effects += _left(known)
    effects += _status(known, domain, settings)
    return ReconcileResult(tuple(effects), problem=problem)


# ---- status


def members(known: DomainInput) -> tuple[DomainNode, ...]:
    """Entries of all cliques whose daemon pod exists, and the daemon pods of nodes without fabric."""
    there = {pod.spec.node_name for pod in known.pods}
    found: dict[str, DomainNode] = {}
    for clique in sorted(known.cliques, key=lambda clique: clique.metadata.name):
        for entry in sorted(clique.daemons, key=lambda entry: entry.index):
            if entry.node_name in there:
                found[entry.node_name] = DomainNode(
                    entry.node_name, entry.ip_address, entry.clique_id, entry.index, entry.status
                )
    if not known.cliques_gate and known.domain is not None:
        found |= {node.name: node for node in known.domain.status.nodes if node.clique_id and node.name in there}
    for pod in sorted(known.pods, key=lambda pod: pod.spec.node_name):
        if pod.metadata.labels.get(CLIQUE_LABEL) == "" and pod.spec.node_name and pod.status.pod_ip:
            ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
            found[pod.spec.node_name] = DomainNode(
                pod.spec.node_name, pod.status.pod_ip, "", NON_FABRIC, READY if ready else NOT_READY
            )
    return tuple(found.values())


def overall(nodes: Iterable[DomainNode], wanted: int) -> str:
    """status.status: NotReady while fewer nodes than wanted are there, or one of them is not ready."""
    listed = tuple(nodes)
    return READY if len(listed) >= wanted and all(node.status == READY for node in listed) else NOT_READY


def _status(known: DomainInput, domain: ComputeDomain, settings: MakeSettings) -> Iterator[Effect]:
    nodes = () if settings.host_managed else members(known)
    status = READY if settings.host_managed else overall(nodes, domain.spec.num_nodes)
    before = {node.name: node for node in domain.status.nodes}
    if domain.status.status == status and before == {node.name: node for node in nodes}:
        return
    patch = {"status": {"status": status, "nodes": [node.body() for node in nodes]}}
    # Daemons may write here too (without cliques): on the version that was read.
    version = "" if known.cliques_gate else domain.metadata.resource_version
    yield Patch(_ref(domain), patch, subresource="status", resource_version=version)


def _left(known: DomainInput) -> Iterator[Effect]:
    """Entries of cliques whose daemon pod is no more."""
    there = {pod.spec.node_name for pod in known.pods}
    for clique in known.cliques:
        kept = [entry for entry in clique.daemons if entry.node_name in there]
        if len(kept) < len(clique.daemons):
            meta = clique.metadata
            ref = Ref(CLIQUE.kind, meta.namespace, meta.name, meta.uid)
            yield Patch(ref, {"daemons": [e.body() for e in kept]}, resource_version=meta.resource_version)


# ---- the end


def _end(known: DomainInput, domain: ComputeDomain) -> ReconcileResult:
    effects = list(_removal(known))
    if not known.made and not known.nodes and FINALIZER in domain.metadata.finalizers:
        finalizers = [name for name in domain.metadata.finalizers if name != FINALIZER]
        effects.append(_finalizers(_ref(domain), domain.metadata, finalizers))
    return ReconcileResult(tuple(effects))


def stale(known: DomainInput) -> tuple[Effect, ...]:
    """What to do about objects of a domain that is gone; the caller has asked the API that it is."""
    return tuple(_removal(known))


def _removal(known: DomainInput) -> Iterator[Effect]:
    """Templates, DaemonSet, labels of nodes, and the finalizers of what is being deleted, in that order."""
    order = {TEMPLATE: 0, DAEMON_SET: 1}
    made = sorted(known.made, key=lambda one: (order[one.kind], one.metadata.name))
    for one in made:
        if one.metadata.deletion_timestamp is None:
            yield Delete(one.ref)
    for node in sorted(known.nodes, key=lambda node: node.name):
        yield unlabelled(node)
    for one in made:
        if one.metadata.deletion_timestamp is not None and FINALIZER in one.metadata.finalizers:
            kept = [name for name in one.metadata.finalizers if name != FINALIZER]
            yield _finalizers(one.ref, one.metadata, kept)


def unlabelled(node: ObjectMeta) -> Patch:
    """A node without the label of a domain, if it still is as it was read."""
    ref = Ref("Node", "", node.name, node.uid)
    return Patch(ref, {"metadata": {"labels": {LABEL: None}}}, resource_version=node.resource_version)


def _finalizers(ref: Ref, meta: ObjectMeta, finalizers: list[str]) -> Patch:
    patch = {"metadata": {"finalizers": finalizers or None}}
    return Patch(ref, patch, resource_version=meta.resource_version)


def _ref(domain: ComputeDomain) -> Ref:
    meta = domain.metadata
    return Ref(DOMAIN.kind, meta.namespace, meta.name, meta.uid)


def labels_of(objects: Iterable[Any]) -> Mapping[str, list[Any]]:
    """Objects by the domain whose label they carry."""
    found: dict[str, list[Any]] = {}
    for one in objects:
        if uid := one.metadata.labels.get(LABEL, ""):
            found.setdefault(uid, []).append(one)
    return found
