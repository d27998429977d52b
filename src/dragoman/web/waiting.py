"""What waits and why, grouped by cause, and what would happen if something were different? Answers of `explain` and
`whatif`, arranged for a page. Never decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dragoman.api.meta import NamespacedName, ObjectMeta
from dragoman.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from dragoman.errors import Invalid, NotFound
from dragoman.explain import report
from dragoman.explain.about import About, ExplainInput, about_everything
from dragoman.explain.conflict_messages import hint_json
from dragoman.snapshot.change import Snapshot
from dragoman.web.fleet import Fleet
from dragoman.whatif.changes import (
    RemoveNode,
    RemoveObject,
    TaintDevices,
    WhatIfChange,
    apply,
    free_name,
    node_like,
)
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.decide import PodPrediction, run
from dragoman.whatif.settle import changed
from dragoman.whatif.units import Named

OBJECTS_MAX = 200
"""Objects named in a group; of more only the number."""
NODES_MAX = 12
"""Nodes that are drawn before and after."""
EFFECTS = ("NoSchedule", "NoExecute", "None")


class WaitingObjects:
    """Everything that waits in one state of a cluster."""

    def __init__(self, scene: ExplainInput) -> None:
        self.scene = scene
        self.answer: About = about_everything(scene, "")
        self._pods = {(pod["namespace"], pod["name"]): pod for pod in self.answer.body["pods"]}
        self._baseline: tuple[ClusterState, dict[NamespacedName, PodPrediction]] | None = None

    def groups(self) -> dict[str, Any]:
        """{"groups": [{"why", "hint", "count", "objects"}], "fits", "quota"}."""
        groups = []
        for why, entries, helped in report.summary_groups(self.answer.pending):
            objects = []
            for entry in entries[:OBJECTS_MAX]:
                kind, _, name = entry.name.partition(" ")
                namespace, _, bare = name.partition("/")
                objects.append({"kind": kind, "namespace": namespace, "name": bare})
            hint = {"for": helped.name, "text": helped.hint} if helped is not None else None
            groups.append({"why": list(why), "count": len(entries), "hint": hint, "objects": objects})
        groups.sort(key=lambda group: -int(str(group["count"])))
        fits = [
            {"namespace": pod["namespace"], "name": pod["name"], "node": pod["node"]}
            for pod in self.answer.body["pods"]
            if pod.get("refusal") is None and pod.get("node") and "state" not in pod
        ]
        return {"groups": groups, "fits": fits[:OBJECTS_MAX], "fitsTotal": len(fits)}

    def pod(self, key: NamespacedName) -> dict[str, Any]:
        """The decision about a pod with all facts, and its hints as {"index", "kind", "message"}. Raises NotFound."""
        found = self._pods.get(key)
        if found is None:
            raise NotFound(f"pod {'/'.join(key)} does not wait")
        hints = [{"index": i, **hint_json(hint)} for i, hint in enumerate(self.answer.hints.get(key, ()))]
        return {"pod": found, "hints": hints}

    # ---- what if

    def what_if(self, asked: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
        """What a change would make of the cluster, against what becomes of it without the change.

        asked: {"hint": {"namespace", "name", "index"}}, {"addNode": NODE}, {"removeNode": NODE},
        {"removePod": "NS/NAME"} or {"taint": {"device", "key", "effect"}}. Raises Invalid, NotFound.
        """
        cluster = self.scene.cluster
        order: Sequence[Named] = self.scene.order
        displaced: list[dict[str, Any]] = []
        created: list[str] = []
        before, expected = self._without()
        if "hint" in asked:
            cluster, what = self._hinted(asked["hint"])
        else:
            changes, what = changes_of(cluster.snapshot, asked)
            after = apply(cluster, changes)
            cluster = after.cluster
            displaced = [
                {"pod": "/".join(d.pod), "node": d.node, "device": str(d.device), "claim": d.claim}
                for d in after.displaced
            ]
            created = ["/".join(key) for key in after.created]
            order = (*order, *(("Pod", *key) for key in after.created))
        final, decided = self._run(cluster, order)
        gained = [
            {"pod": "/".join(key), "node": pod.node}
            for key, pod in sorted(decided.items())
            if pod.node and (key not in expected or not expected[key].node) and "/".join(key) not in created
        ]
        moved = [
            {"pod": name, "node": decided[key].node if key in decided else None}
            for name in created
            for key in [tuple(name.split("/", 1))]
        ]
        lost = [
            "/".join(key)
            for key, pod in sorted(expected.items())
            if pod.node and key in decided and not decided[key].node
        ]
        waits = sum(not pod.node for pod in decided.values())
        return {
            "what": what,
            "gained": gained,
            "lost": lost,
            "displaced": displaced,
            "recreated": moved,
            "waiting": {"before": sum(not pod.node for pod in expected.values()), "after": waits},
            "fleet": fleets(fleet, before.snapshot, final.snapshot),
        }

    def _hinted(self, hint: Any) -> tuple[ClusterState, str]:
        try:
            key, index = (str(hint["namespace"]), str(hint["name"])), int(hint["index"])
        except (KeyError, TypeError, ValueError):
            raise Invalid("hint", "must have namespace, name and index") from None
        hints = self.answer.hints.get(key, ())
        if not 0 <= index < len(hints):
            raise NotFound(f"pod {'/'.join(key)} has no hint {index}")
        found = hints[index]
        return changed(self.scene.cluster, found.changes), str(hint_json(found)["message"])

    def _without(self) -> tuple[ClusterState, dict[NamespacedName, PodPrediction]]:
        """What becomes of the cluster as it is."""
        if self._baseline is None:
            self._baseline = self._run(self.scene.cluster, self.scene.order)
        return self._baseline

    def _run(
        self, cluster: ClusterState, order: Sequence[Named]
    ) -> tuple[ClusterState, dict[NamespacedName, PodPrediction]]:
        decided: dict[NamespacedName, PodPrediction] = {}
        # Who would be preempted is not asked: nobody is evicted here, and it takes longer than all the rest.
        context = msgspec.structs.replace(self.scene.context, preemption="off")
        for step in run(cluster, order, context):
            decided |= {verdict.pod: verdict for verdict in step.verdicts}
            assert step.cluster is not None
            cluster = step.cluster
        return cluster, decided


def changes_of(snapshot: Snapshot, asked: dict[str, Any]) -> tuple[list[WhatIfChange], str]:
    """The changes that are asked for, and what they are in words. Raises Invalid, NotFound."""
    match asked:
        case {"addNode": str(shape)}:
            _known(snapshot.nodes, shape, "node")
            name = free_name(snapshot, f"{shape}-new")
            return list(node_like(snapshot, shape, name)), f"node {name} added, like {shape}"
        case {"removeNode": str(name)}:
            _known(snapshot.nodes, name, "node")
            return [RemoveNode(name)], f"node {name} removed"
        case {"removePod": str(name)}:
            namespace, _, bare = name.partition("/")
            if (namespace, bare) not in snapshot.pods:
                raise NotFound(f"pod {name} does not exist")
            return [RemoveObject("Pod", namespace, bare)], f"pod {name} deleted"
        case {"taint": {"device": str(device), "key": str(key), "effect": str(effect)}}:
            parts = device.split("/")
            if len(parts) < 3 or not key:
                raise Invalid("taint", "needs a device DRIVER/POOL/DEVICE and a key")
            if effect not in EFFECTS:
                raise Invalid("taint.effect", f"must be one of {', '.join(EFFECTS)}, got {effect!r}")
            selector = DeviceTaintSelector(parts[0], "/".join(parts[1:-1]), parts[-1])
            spec = DeviceTaintRuleSpec(selector, DeviceTaint(key=key, effect=effect))
            rule = DeviceTaintRule(metadata=ObjectMeta(name=f"what-if-{key}"), spec=spec)
            return [TaintDevices(rule)], f"device {device} tainted {key}:{effect}"
        case _:
            raise Invalid("", "must be one of hint, addNode, removeNode, removePod, taint")


def _known(names: Any, name: str, what: str) -> None:
    if name not in names:
        raise NotFound(f"{what} {name} does not exist")


def fleets(fleet: Fleet, before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """{"nodes": [{"name", "before", "after"}], "more", "counts"}: nodes whose devices differ, as they are drawn."""
    old, new = Fleet(before, fleet), Fleet(after, fleet)
    nodes: list[dict[str, Any]] = []
    more = 0
    for name in sorted({*old.by_node, *new.by_node}):
        left, right = old.by_node.get(name), new.by_node.get(name)
        if left == right or _seen(left) == _seen(right):
            continue
        if len(nodes) >= NODES_MAX:
            more += 1
            continue
        nodes.append(
            {
                "name": name,
                "before": old.node(name) if left is not None else None,
                "after": new.node(name) if right is not None else None,
            }
        )
    return {"nodes": nodes, "more": more}


def _seen(tiles: Any) -> Any:
    return None if tiles is None else [(tile.id, tile.state, tile.claims, tile.tainted) for tile in tiles]


def explain_input(state: Any, events: Any, context: Any, now: datetime, monotonic: Callable[[], float]) -> ExplainInput:
    """The scene for `explain` of a state of the page."""
    from dragoman.explain.state import events_of
    from dragoman.whatif.cluster import bring
    from dragoman.whatif.settle import settled

    cluster = settled(bring(state.snapshot, now, known=True))
    fresh = msgspec.structs.replace(context)
    return ExplainInput(state.snapshot, cluster, state.order, events_of(events), fresh, monotonic, state.hidden)
