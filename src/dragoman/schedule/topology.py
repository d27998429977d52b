"""In which domain does a gang go: one clique, rack, zone or block, by node labels?

Required: `schedulingConstraints.topology` of its PodGroup (KEP-5732, gate TopologyAwareWorkloadScheduling), or the
annotation TOPOLOGY_REQUIRED. Preferred, narrowest level first: the annotation TOPOLOGY_PREFERRED, of the PodGroup, else
of the pods, else of their claims. Names domains in the order in which they are tried; never places a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from dragoman.api.core import Pod
from dragoman.api.gates import Gates
from dragoman.api.meta import ObjectMeta
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.usage import claim_names, is_finished

TOPOLOGY_REQUIRED = "dragoman.dev/topology-required"
TOPOLOGY_PREFERRED = "dragoman.dev/topology-preferred"
GATE = "TopologyAwareWorkloadScheduling"


class GangTopology(msgspec.Struct, frozen=True):
    """Node labels. required: all pods have one value of it, "" for none. preferred: if possible; the first first."""

    required: str = ""
    preferred: tuple[str, ...] = ()

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """What is tried in turn: labels that all nodes of a domain share."""
        always = (self.required,) if self.required else ()
        narrow = tuple((*always, key) for key in self.preferred if key != self.required)
        return (*narrow, always)


class TopologyDomain(msgspec.Struct, frozen=True):
    """Nodes with one value of each label of a level, sorted. name: the value of the last label."""

    name: str
    nodes: tuple[str, ...]


def topology_of(snapshot: Snapshot, namespace: str, group: str, pods: Sequence[Pod], gates: Gates) -> GangTopology:
    """What a gang requires and prefers."""
    pod_group = snapshot.pod_groups.get((namespace, group))
    constraints = pod_group.spec.scheduling_constraints if pod_group is not None else None
    required = ""
    if constraints is not None and constraints.topology and gates.on(GATE):
        required = constraints.topology[0].key
    metas: list[ObjectMeta] = [pod_group.metadata] if pod_group is not None else []
    metas += [pod.metadata for pod in pods[:1]]
    for name in claim_names(pods[0]) if pods else ():
        claim = snapshot.claims.get((namespace, name))
        metas += [claim.metadata] if claim is not None else []
    required = required or next(iter(_words(metas, TOPOLOGY_REQUIRED)), "")
    return GangTopology(required, tuple(_words(metas, TOPOLOGY_PREFERRED)))


def _words(metas: Iterable[ObjectMeta], annotation: str) -> list[str]:
    for meta in metas:
        if annotation in meta.annotations:
            return [word for word in map(str.strip, meta.annotations[annotation].split(",")) if word]
    return []


def domains(
    snapshot: Snapshot, level: tuple[str, ...], namespace: str, group: str, feasible: Collection[str], required: str
) -> list[TopologyDomain]:
    """The domains of a level: those with running members first, then those with the fewest feasible nodes, by name.

    Where members run already, a required label leaves the domains with its value there.
    """
    running = [
        snapshot.nodes[pod.spec.node_name].metadata.labels
        for key in keys_of(snapshot.pods_by_group, (namespace, group))
        if (pod := snapshot.pods[key]).spec.node_name in snapshot.nodes and not is_finished(pod)
    ]
    there = Counter(tuple(labels.get(key, "") for key in level) for labels in running)
    bound = {labels.get(required, "") for labels in running} if required else set()
    found: dict[tuple[str, ...], list[str]] = {}
    for name, node in snapshot.nodes.items():
        labels = node.metadata.labels
        if all(key in labels for key in level) and (not bound or labels.get(required, "") in bound):
            found.setdefault(tuple(labels[key] for key in level), []).append(name)
    if len(bound) > 1:
        return []  # members are spread already: no domain holds them all
    order = sorted(found, key=lambda values: (-there[values], sum(name in feasible for name in found[values]), values))
    return [TopologyDomain(values[-1], tuple(sorted(found[values]))) for values in order]
