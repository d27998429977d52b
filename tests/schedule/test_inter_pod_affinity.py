"""Pods that already exist: host ports, pod affinity and anti-affinity, topology spread."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from dragoman.schedule import refusal
from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.schedule.decision import Decision
from dragoman.schedule.wakeup import INTER_POD
from dragoman.snapshot.change import Snapshot, apply_all
from dragoman.testing.build import manifest, node, pod, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = [node(name, labels={"zone": zone}) for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"))]


def decided(snapshot: Snapshot, name: str = "p", context: SchedulingContext | None = None) -> Decision:
    numbers = count()
    context = context or SchedulingContext(new_id=lambda: str(next(numbers)))
    return decide(snapshot, unit_of(snapshot, snapshot.pods["default", name], context.gates), NOW, context)


def labelled(name: str, app: str = "", **spec: Any) -> dict[str, Any]:
    meta = {"labels": {"app": app}} if app else {}
    return pod(name, metadata=meta, **spec)


def term(app: str, key: str = "zone", **more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(key: str = "zone", skew: int = 1, app: str = "web", **more: Any) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": app}}
    made = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [made | more]


def port(name: str, number: int, protocol: str = "", ip: str = "", **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    entry = {"containerPort": number, "hostPort": number} | ({"protocol": protocol} if protocol else {})
    made["spec"]["containers"][0]["ports"] = [entry | ({"hostIP": ip} if ip else {})]
    return made


WEB_A = labelled("w", "web", nodeName="a1")
DONE = labelled("w", "web", nodeName="a1", status={"phase": "Succeeded"})
OTHER_SPACE = pod("w", namespace="other", metadata={"labels": {"app": "web"}}, nodeName="b1")
PLACES: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "without neighbours anywhere": ([pod("p")], "a1"),
    "affinity: into the zone of the pod it wants": (
        [labelled("w", "web", nodeName="b1"), pod("p", affinity=near(term("web")))],
        "b1",
    ),
    "affinity: nowhere if there is none": ([pod("p", affinity=near(term("web")))], None),
    "affinity: the first of a group that wants itself goes anywhere": (
        [labelled("p", "web", affinity=near(term("web")))],
        "a1",
    ),
    "affinity: finished pods attract nobody": ([DONE, pod("p", affinity=near(term("web")))], None),
    "affinity: only pods of its namespace": ([OTHER_SPACE, pod("p", affinity=near(term("web")))], None),
    "affinity: named namespaces": ([OTHER_SPACE, pod("p", affinity=near(term("web", namespaces=["other"])))], "b1"),
    "affinity: selected namespaces": (
        [
            OTHER_SPACE,
            manifest("Namespace", "other", metadata={"labels": {"team": "x"}}),
            pod("p", affinity=near(term("web", namespaceSelector={"matchLabels": {"team": "x"}}))),
        ],
        "b1",
    ),
    "affinity: an empty namespace selector means all": (
        [OTHER_SPACE, pod("p", affinity=near(term("web", namespaceSelector={})))],
        "b1",
    ),
    "affinity: all terms by the same pods": (
        [WEB_A, labelled("d", "db", nodeName="b1"), pod("p", affinity=near(term("web"), term("db")))],
        None,
    ),
    "anti-affinity: out of the zone": ([WEB_A, pod("p", affinity=apart(term("web")))], "b1"),
    "anti-affinity: only off the node": (
        [WEB_A, pod("p", affinity=apart(term("web", "kubernetes.io/hostname")))],
        "a2",
    ),
    "anti-affinity of a pod that is there": (
        [labelled("w", "web", nodeName="a1", affinity=apart(term("new"))), labelled("p", "new")],
        "b1",
    ),
    "anti-affinity of a finished pod concerns nobody": (
        [
            labelled("w", "web", nodeName="a1", affinity=apart(term("new")), status={"phase": "Failed"}),
            labelled("p", "new"),
        ],
        "a1",
    ),
    "anti-affinity of others for other labels": (
        [labelled("w", "web", nodeName="a1", affinity=apart(term("new"))), labelled("p", "old")],
        "a1",
    ),
    "mismatchLabelKeys: not near other tenants": (
        [
            pod("w", metadata={"labels": {"tenant": "x"}}, nodeName="a1"),
            pod(
                "p",
                metadata={"labels": {"tenant": "y"}},
                affinity=apart(
                    {
                        "labelSelector": {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]},
                        "topologyKey": "zone",
                        "mismatchLabelKeys": ["tenant"],
                    }
                ),
            ),
        ],
        "b1",
    ),
    "spread: into the emptier zone": ([WEB_A, labelled("p", "web", topologySpreadConstraints=spread())], "b1"),
    "spread: within the skew anywhere": ([WEB_A, labelled("p", "web", topologySpreadConstraints=spread(skew=2))], "a1"),
    "spread: a pod that does not count itself": ([WEB_A, labelled("p", "x", topologySpreadConstraints=spread())], "a1"),
    "spread: soft ones change nothing": (
        [WEB_A, labelled("p", "web", topologySpreadConstraints=spread(whenUnsatisfiable="ScheduleAnyway"))],
        "a1",
    ),
    "spread: too few domains count as an empty one": (
        [
            WEB_A,
            labelled("v", "web", nodeName="b1"),
            labelled("p", "web", topologySpreadConstraints=spread(minDomains=3)),
        ],
        None,
    ),
    "spread: nodes that the pod cannot use do not count": (
        [WEB_A, labelled("p", "web", nodeSelector={"zone": "a"}, topologySpreadConstraints=spread())],
        "a1",
    ),
    "spread: nodes without the label are out": (
        [labelled("p", "web", topologySpreadConstraints=spread("rack"))],
        None,
    ),
    "ports: another node has the port free": ([port("w", 80, nodeName="a1"), port("p", 80)], "a2"),
    "ports: another protocol is no conflict": ([port("w", 80, "UDP", nodeName="a1"), port("p", 80)], "a1"),
    "ports: other addresses are no conflict": (
        [port("w", 80, ip="10.0.0.1", nodeName="a1"), port("p", 80, ip="10.0.0.2")],
        "a1",
    ),
    "ports: every address is one with any": ([port("w", 80, ip="10.0.0.1", nodeName="a1"), port("p", 80)], "a2"),
}


@pytest.mark.parametrize("name", PLACES)
def test_places(name: str) -> None:
    objects, expected = PLACES[name]
    decision = decided(snapshot_of(*ZONES, *objects))
    assert [p.node for p in decision.placements] == ([expected] if expected else [])


REFUSED: dict[str, tuple[list[dict[str, Any]], refusal.NodeReason]] = {
    "affinity": ([pod("p", affinity=near(term("web")))], refusal.PodAffinity("zone")),
    "own anti-affinity": (
        [WEB_A, labelled("v", "web", nodeName="b1"), pod("p", affinity=apart(term("web")))],
        refusal.PodAntiAffinity("zone", False),
    ),
    "others' anti-affinity": (
        [labelled(f"w{i}", "web", nodeName=n, affinity=apart(term("new"))) for i, n in enumerate(("a1", "b1"))]
        + [labelled("p", "new")],
        refusal.PodAntiAffinity("zone", True),
    ),
    "spread without the label": (
        [labelled("p", "web", topologySpreadConstraints=spread("rack"))],
        refusal.TopologySpread("rack", 1, True),
    ),
    "ports": ([*[port(n, 80, nodeName=n) for n in ("a1", "a2", "b1")], port("p", 80)], refusal.PortConflict(80, "TCP")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_reasons_and_what_they_wait_for(name: str) -> None:
    objects, reason = REFUSED[name]
    decision = decided(snapshot_of(*ZONES, *objects))
    assert {r for some in decision.refused[0].nodes for r in some.reasons} == {reason}
    assert INTER_POD in decision.topics


def test_a_deployment_spreads_pod_by_pod_as_the_picture_changes() -> None:
    context = SchedulingContext(new_id=lambda: "x")
    snapshot = snapshot_of(*ZONES, *[labelled(f"w{i}", "web", topologySpreadConstraints=spread()) for i in range(4)])
    nodes = []
    for i in range(4):
        decision = decided(snapshot, f"w{i}", context)
        snapshot = apply_all(snapshot, decision.assumed)
        nodes.append(decision.placements[0].node)
    assert [name[0] for name in nodes] == ["a", "b", "a", "b"]
