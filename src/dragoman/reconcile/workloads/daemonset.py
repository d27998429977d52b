"""Which nodes run a DaemonSet's pod, and how does it roll? One pod a node that takes it.

Its templates are kept as ControllerRevisions (`revisions`).
Source: the API's DaemonSet. Never binds: pods are tied to their node by affinity and scheduled as all others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.core import Node, Pod, PodSpec, Taint, Toleration, Workload
from dragoman.api.meta import NamespacedName
from dragoman.effects import Delete, Effect, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, difference, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.reconcile.workloads import revisions
from dragoman.reconcile.workloads.deployment import template_hash
from dragoman.reconcile.workloads.rollout import resolved
from dragoman.snapshot.change import Change, Gone
from dragoman.snapshot.selection import selects
from dragoman.snapshot.taints import tolerates
from dragoman.snapshot.usage import is_finished

KIND = "DaemonSet"
COMPONENT = "daemonset-controller"
REVISION_LABEL = "controller-revision-hash"
FAILED_S = 5.0
"""How long a failed pod stays before it is replaced."""

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The DaemonSets to look at after a change; all of them after a node's that matters."""
    if change.kind == revisions.KIND:
        return revisions.keys(KIND, change, before, after)
    if change.kind != "Node":
        return the_pods.owner_keys(KIND, "Pod", change, before, after)
    name = change.name if isinstance(change, Gone) else change.object.metadata.name
    if _capacity_of(before, name) == _capacity_of(after, name):
        return []
    return [(ref.namespace, ref.name) for ref in after.ownership.all_of(KIND)]


def _capacity_of(world: ReconcileInput, name: str) -> Any:
    node = world.snapshot.nodes.get(name)
    return None if node is None else (node.metadata.labels, [(t.key, t.value, t.effect) for t in node.spec.taints])


class _Plan(msgspec.Struct):
    """What one look found: pods by node, nodes that should run one and those that may keep it."""

    by_node: dict[str, list[Pod]]
    wanted: list[str]
    kept: set[str]
    revision: str


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """One step of a DaemonSet."""
    ds = world.snapshot.workloads.get((KIND, *key))
    if ds is None or the_pods.is_empty(ds.spec.selector):
        return NOTHING
    owned, adopted = the_pods.members(world, KIND, ds)
    if adopted:
        return ReconcileResult(tuple(adopted))
    plan = _plan(world, ds, owned)
    changes: list[Effect] = []
    again_s: float | None = None
    if not ds.metadata.deletion_timestamp:
        changes, again_s = _placed(world, ds, plan)
        if not changes and (ds.spec.update_strategy or {}).get("type", "RollingUpdate") == "RollingUpdate":
            changes = _rolled(world, ds, plan)
    history: list[Effect] = []
    if not ds.metadata.deletion_timestamp:
        live = {f"{ds.metadata.name}-{pod.metadata.labels.get(REVISION_LABEL, '')}" for pod in owned}
        name = f"{ds.metadata.name}-{plan.revision}"
        history = revisions.kept(world, KIND, ds, name, {REVISION_LABEL: plan.revision}, live)
    status, later_s = _status(world, ds, plan)
    waits = [wait for wait in (again_s, later_s) if wait is not None]
    return ReconcileResult((*history, *status, *changes[: the_pods.BURST]), again_s=min(waits, default=None))


def write_events(
    world: ReconcileInput, key: NamespacedName, effect: Effect, written: dict[str, Any] | None, error: str
) -> tuple[Effect, ...]:
    """The event for a write."""
    ds = world.snapshot.workloads.get((KIND, *key))
    return () if ds is None else the_pods.pod_write_events(ref_of(KIND, ds.metadata), COMPONENT, effect, written, error)


# ---- nodes


def _plan(world: ReconcileInput, ds: Workload, owned: list[Pod]) -> _Plan:
    by_node: dict[str, list[Pod]] = {}
    for pod in sorted(owned, key=lambda p: (p.metadata.creation_timestamp or "", p.metadata.name)):
        by_node.setdefault(node_of(pod), []).append(pod)
    spec = codec.decode(PodSpec, ds.spec.template.spec or {})
    own = tuple(Toleration(key=key, operator="Exists", effect=effect) for key, effect in _TOLERATED)
    tolerations = (*spec.tolerations, *own)
    wanted: list[str] = []
    kept: set[str] = set()
    for name, node in sorted(world.snapshot.nodes.items()):
        if not _fits(spec, node):
            continue
        hard = [taint for taint in node.spec.taints if not _tolerated(taint, tolerations)]
        if all(taint.effect == "PreferNoSchedule" for taint in hard):
            wanted.append(name)
        if all(taint.effect != "NoExecute" for taint in hard):
            kept.add(name)
    return _Plan(by_node, wanted, kept, template_hash(ds.spec.template, 0))


def _fits(spec: PodSpec, node: Node) -> bool:
    if spec.node_name and spec.node_name != node.metadata.name:
        return False
    if any(node.metadata.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return affinity is None or affinity.required is None or selects(affinity.required, node)


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def node_of(pod: Pod) -> str:
    """The node a daemon pod is on or meant for; "" if it is none."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is not None and affinity.required is not None:
        for term in affinity.required.node_selector_terms:
            for wanted in term.match_fields:
                if wanted.key == "metadata.name" and wanted.values:
                    return wanted.values[0]
    return ""


# ---- pods


def _placed(world: ReconcileInput, ds: Workload, plan: _Plan) -> tuple[list[Effect], float | None]:
    """Creations and deletions that give each node its one pod."""
    effects: list[Effect] = []
    waits: list[float] = []
    for name, pods in sorted(plan.by_node.items()):
        if name in world.snapshot.nodes and name not in plan.kept:
            effects += [_gone(pod) for pod in pods if not pod.metadata.deletion_timestamp]
            continue
        if name and name not in world.snapshot.nodes:
            # Never scheduled, they are nobody's: podgc looks after those that were on the node.
            effects += [_gone(p) for p in pods if not p.spec.node_name and not p.metadata.deletion_timestamp]
        for pod in [p for p in pods if is_finished(p) and not p.metadata.deletion_timestamp]:
            ended = max((the_pods.seconds_of(c.last_transition_time) for c in pod.status.conditions), default=0.0)
            left_s = ended + FAILED_S - world.now
            if left_s > 0:
                waits.append(left_s)
            else:
                effects.append(_gone(pod))
        live = [pod for pod in pods if the_pods.is_active(pod)]
        surplus = live[2:] if _surge(ds, plan) else live[1:]
        effects += [_gone(pod) for pod in surplus]
    effects += [_pod(ds, plan, name) for name in plan.wanted if not plan.by_node.get(name)]
    return effects, min(waits, default=None)


def _gone(pod: Pod) -> Delete:
    return Delete(ref_of("Pod", pod.metadata))


def _pod(ds: Workload, plan: _Plan, node: str) -> Effect:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    term = {"nodeSelectorTerms": [{"matchFields": [field]}]}

    def shape(spec: dict[str, Any]) -> dict[str, Any]:
        affinity = dict(spec.get("affinity") or {})
        inner = dict(affinity.get("nodeAffinity") or {})
        inner["requiredDuringSchedulingIgnoredDuringExecution"] = term
        own = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
        given = list(spec.get("tolerations") or [])
        tolerations = [*given, *(toleration for toleration in own if toleration not in given)]
        return {**spec, "affinity": {**affinity, "nodeAffinity": inner}, "tolerations": tolerations}

    return the_pods.pod_from(ds.spec.template, KIND, ds.metadata, labels={REVISION_LABEL: plan.revision}, shape=shape)


# ---- rolling


def _surge(ds: Workload, plan: _Plan) -> int:
    rolling = (ds.spec.update_strategy or {}).get("rollingUpdate") or {}
    return resolved(rolling.get("maxSurge", 0), len(plan.wanted), up=True)


def _rolled(world: ReconcileInput, ds: Workload, plan: _Plan) -> list[Effect]:
    """Replace outdated pods: those that do not serve first, then as many as may be unavailable (or are doubled)."""
    rolling = (ds.spec.update_strategy or {}).get("rollingUpdate") or {}
    surge = _surge(ds, plan)
    budget = resolved(rolling.get("maxUnavailable", 0 if surge else 1), len(plan.wanted), up=True)
    serving: list[Pod] = []
    effects: list[Effect] = []
    doubled = 0
    for name in plan.wanted:
        live = [pod for pod in plan.by_node.get(name, ()) if the_pods.is_active(pod)]
        old = [pod for pod in live if not _is_current(pod, plan)]
        new = [pod for pod in live if _is_current(pod, plan)]
        new_serves = any(_serves(world, ds, pod) for pod in new)
        if not any(_serves(world, ds, pod) for pod in live):
            budget -= 1
            effects += [_gone(pod) for pod in old]
        elif new_serves:
            effects += [_gone(pod) for pod in old]
        elif new:
            doubled += 1  # the old one goes once the new one serves
        else:
            serving += old
    if surge:
        names = [node_of(pod) for pod in serving]
        return [*effects, *(_pod(ds, plan, name) for name in names[: max(0, surge - doubled)])]
    return [*effects, *(_gone(pod) for pod in serving[: max(0, budget)])]


def _is_current(pod: Pod, plan: _Plan) -> bool:
    return pod.metadata.labels.get(REVISION_LABEL) == plan.revision


def _serves(world: ReconcileInput, ds: Workload, pod: Pod) -> bool:
    return the_pods.unavailable_s(pod, ds.spec.min_ready_seconds, world.now) == 0


# ---- status


def _status(world: ReconcileInput, ds: Workload, plan: _Plan) -> tuple[list[Effect], float | None]:
    counts = dict.fromkeys(
        ("currentNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled", "numberMisscheduled"), 0
    )
    waits: list[float] = []
    for name in plan.wanted:
        live = [pod for pod in plan.by_node.get(name, ()) if the_pods.is_active(pod)]
        if not live:
            continue
        left = [the_pods.unavailable_s(pod, ds.spec.min_ready_seconds, world.now) for pod in live]
        waits += [wait for wait in left if wait]
        counts["currentNumberScheduled"] += 1
        counts["numberReady"] += any(wait is not None for wait in left)
        counts["numberAvailable"] += 0 in left
        counts["updatedNumberScheduled"] += any(_is_current(pod, plan) for pod in live)
    wanted = set(plan.wanted)
    counts["numberMisscheduled"] = sum(
        1
        for name, pods in plan.by_node.items()
        if name not in wanted and name in world.snapshot.nodes and any(map(the_pods.is_active, pods))
    )
    new = {
        **counts,
        "desiredNumberScheduled": len(wanted),
        "numberUnavailable": len(wanted) - counts["numberAvailable"],
        "observedGeneration": ds.metadata.generation,
    }
    patch = difference(ds.status, new)
    for field in ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"):
        if field not in (ds.status or {}) or patch.get(field, 0) is None:
            patch[field] = new[field]  # these are never left out
    if not patch:
        return [], min(waits, default=None)
    effect = Patch(ref_of(KIND, ds.metadata), {"status": patch}, subresource="status")
    return [effect], min(waits, default=None)
