"""Nodes that fall silent, their taints, pods that must leave, pods that nobody will finish."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.api import codec
from dragoman.api.core import Pod, Taint
from dragoman.daemon.heartbeats import Heartbeats
from dragoman.effects import Delete
from dragoman.reconcile import nodes, podgc
from dragoman.reconcile.nodes import Lease
from dragoman.runtime.clock import Clock
from dragoman.snapshot.change import Gone, Put, Snapshot

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def add_node(cluster: Any, name: str = "n", *conditions: Any, **spec: Any) -> Any:
    return cluster.add("Node", name, spec=spec, status={"conditions": list(conditions) or [READY]})


def add_pod(cluster: Any, name: str = "p", **spec: Any) -> Any:
    status = {"phase": "Running", "conditions": [READY]}
    return cluster.add("Pod", name, spec={"nodeName": "n", **spec}, status=status)


def look(cluster: Any, heard: dict[str, float] | None = None) -> Any:
    """Let the controller look until it has nothing to write."""
    for _ in range(10):
        world = msgspec.structs.replace(cluster.world, heartbeats=heard or {})
        step = nodes.sync(world, "n")
        if not step.effects:
            return step
        cluster.carry_out(step.effects)
    raise AssertionError("never settled")


def conditions(cluster: Any, kind: str, name: str) -> dict[str, str]:
    return {c["type"]: c["status"] for c in cluster.get(kind, name)["status"]["conditions"]}


def taints(cluster: Any) -> list[tuple[str, str]]:
    found = cluster.get("Node", "n")["spec"].get("taints") or []
    return [(t["key"].removeprefix("node.kubernetes.io/"), t["effect"]) for t in found]


FIVE_MINUTES = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


def test_a_silent_node_is_tainted_and_its_pods_leave_when_they_tolerate_it_no_longer(cluster: Any) -> None:
    add_node(cluster)
    add_pod(cluster, "patient", tolerations=FIVE_MINUTES)
    add_pod(cluster, "for-ever", tolerations=[{"operator": "Exists"}])
    add_pod(cluster, "never", tolerations=[{"key": "other", "operator": "Exists"}])
    heard = {"n": cluster.seconds}
    assert look(cluster, heard).again_s == 40
    cluster.seconds += 41
    step = look(cluster, heard)
    assert conditions(cluster, "Node", "n") == {
        "Ready": "Unknown",
        "MemoryPressure": "Unknown",
        "DiskPressure": "Unknown",
        "PIDPressure": "Unknown",
    }
    assert taints(cluster) == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    assert conditions(cluster, "Pod", "patient")["Ready"] == "False"
    leaving = conditions(cluster, "Pod", "never")
    assert leaving["DisruptionTarget"] == "True"
    assert cluster.get("Pod", "never")["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" not in cluster.get("Pod", "patient")["metadata"]
    assert step.again_s == nodes.LOOK_S
    cluster.seconds += 300
    look(cluster, heard)
    assert cluster.get("Pod", "patient")["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" not in cluster.get("Pod", "for-ever")["metadata"]
    assert "TaintManagerEviction" in {e.reason for e in cluster.events}


def test_a_node_that_comes_back_loses_its_taints(cluster: Any) -> None:
    add_node(cluster, taints=[{"key": "mine", "effect": "NoSchedule", "value": "x"}])
    heard = {"n": cluster.seconds}
    cluster.seconds += 41
    look(cluster, heard)
    assert len(taints(cluster)) == 3
    cluster.edit("Node", "n", {"status": {"conditions": [READY]}})
    look(cluster, {"n": cluster.seconds})
    assert taints(cluster) == [("mine", "NoSchedule")]
    assert cluster.get("Node", "n")["spec"]["taints"][0]["value"] == "x"


CONDITIONS: dict[str, tuple[list[Any], dict[str, Any], list[tuple[str, str]]]] = {
    "ready": ([READY], {}, []),
    "not ready": (
        [{"type": "Ready", "status": "False"}],
        {},
        [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")],
    ),
    "short of memory": (
        [READY, {"type": "MemoryPressure", "status": "True"}],
        {},
        [("memory-pressure", "NoSchedule")],
    ),
    "cordoned": ([READY], {"unschedulable": True}, [("unschedulable", "NoSchedule")]),
    "no longer cordoned": (
        [READY],
        {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        [],
    ),
    "not reported yet": (
        [{"type": "Other", "status": "True"}],
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        [("not-ready", "NoSchedule")],
    ),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_taints_follow_conditions(cluster: Any, case: str) -> None:
    found, spec, expected = CONDITIONS[case]
    add_node(cluster, "n", *found, **spec)
    look(cluster, {"n": cluster.seconds})
    assert taints(cluster) == expected


def test_a_node_that_never_spoke_gets_a_minute(cluster: Any) -> None:
    cluster.add("Node", "n", spec={})
    assert look(cluster).again_s == 60
    cluster.seconds += 61
    look(cluster)
    found = cluster.get("Node", "n")["status"]["conditions"]
    assert {(c["type"], c["reason"]) for c in found} >= {("Ready", "NodeStatusNeverUpdated")}


def test_what_counts_as_a_heartbeat(cluster: Any) -> None:
    add_node(cluster)
    world = cluster.world

    def lease(namespace: str) -> Put:
        return Put("Lease", codec.decode(Lease, {"metadata": {"name": "n", "namespace": namespace}}))

    assert nodes.heartbeat(lease("kube-node-lease"), world) == "n"
    assert nodes.heartbeat(lease("kube-system"), world) == ""
    assert nodes.heartbeat(Put("Node", cluster.typed("Node", "n")), world) == ""
    unknown = cluster.typed("Node", "n")
    cluster.edit("Node", "n", {"status": {"conditions": [{**READY, "status": "Unknown"}]}})
    assert nodes.heartbeat(Put("Node", unknown), cluster.world) == "n"  # Ready again
    assert nodes.heartbeat(Put("Node", cluster.typed("Node", "n")), world) == ""  # our own word
    assert nodes.heartbeat(Gone("Node", "", "n"), world) == ""


def test_a_jump_of_the_clock_is_not_silence() -> None:
    seconds = 1000.0
    clock = Clock(wall=lambda: seconds)
    beats = Heartbeats(clock)
    beats.first_seen("n")
    seconds += 5
    beats.catch_up()
    assert beats.heard["n"] == 1000
    seconds += 3600
    beats.catch_up()
    assert clock.now() - beats.heard["n"] <= 20
    beats.first_seen("n")
    beats.forget(Snapshot.empty())
    assert "n" in beats.heard
    seconds += 1000
    beats.forget(Snapshot.empty())
    assert not beats.heard


def test_who_decides_right_after_a_pause_of_the_whole_process_takes_no_node_for_silent() -> None:
    seconds = 5000.0
    beats = Heartbeats(Clock(wall=lambda: seconds))
    beats.first_seen("n")
    seconds += 90  # SIGSTOP, or a laptop that was closed
    assert seconds - beats.up_to_date()["n"] < nodes.GRACE_S
    seconds += 90
    beats.beat("n")
    assert beats.up_to_date()["n"] == seconds  # not later than now


NO_EXECUTE = Taint(key="k", value="v", effect="NoExecute", time_added="2027-01-15T08:00:00Z")  # 1_800_000_000
STAYS: dict[str, tuple[list[Any], float | None]] = {
    "no toleration": ([], 1_800_000_100.0),
    "for ever": ([{"key": "k", "operator": "Exists"}], None),
    "equal": ([{"key": "k", "operator": "Equal", "value": "v"}], None),
    "another value": ([{"key": "k", "value": "w"}], 1_800_000_100.0),
    "another effect": ([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], 1_800_000_100.0),
    "a minute": ([{"operator": "Exists", "tolerationSeconds": 60}], 1_800_000_060.0),
    "the shorter of two": (
        [{"operator": "Exists", "tolerationSeconds": s} for s in (60, 30)],
        1_800_000_030.0,
    ),
    "negative": ([{"operator": "Exists", "tolerationSeconds": -5}], 1_800_000_000.0),
}


@pytest.mark.parametrize("case", STAYS)
def test_how_long_a_pod_stays(case: str) -> None:
    tolerations, expected = STAYS[case]
    p = codec.decode(Pod, {"spec": {"tolerations": tolerations}})
    assert nodes.stays_until(p, [NO_EXECUTE], 1_800_000_100.0) == expected


# ---- pods that nobody finishes


def sync(cluster: Any, name: str = "p", heard: dict[str, float] | None = None) -> Any:
    return lambda world: podgc.sync(msgspec.structs.replace(world, heartbeats=heard or {}), ("default", name))


def test_pods_of_a_vanished_node_fail_and_go(cluster: Any) -> None:
    add_node(cluster)
    add_pod(cluster)
    before = cluster.world
    cluster.settle(sync(cluster))
    assert cluster.effects == []
    cluster.remove("Node", "n")
    assert podgc.keys(Gone("Node", "", "n"), before, cluster.world) == [("default", "p")]
    heard = {"n": cluster.seconds - 10}
    assert cluster.settle(sync(cluster, heard=heard)).again_s == 30
    cluster.seconds += 30
    world = msgspec.structs.replace(cluster.world, heartbeats=heard)
    [ask] = podgc.sync(world, ("default", "p")).asks
    still_there = msgspec.structs.replace(world, answers={ask: "uid"})
    assert podgc.sync(still_there, ("default", "p")).effects == ()
    effects = podgc.sync(msgspec.structs.replace(world, answers={ask: ""}), ("default", "p")).effects
    assert effects[0].patch["status"]["phase"] == "Failed"
    assert isinstance(effects[1], Delete)
    assert effects[1].grace_period_s == 0


def test_a_deleted_pod_without_node_goes_at_once(cluster: Any) -> None:
    add_pod(cluster, nodeName="")
    cluster.edit("Pod", "p", {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["x"]}})
    put = Put("Pod", cluster.typed("Pod", "p"))
    assert podgc.keys(put, cluster.world, cluster.world) == [("default", "p")]
    [delete] = podgc.sync(cluster.world, ("default", "p")).effects
    assert isinstance(delete, Delete)
    assert delete.grace_period_s == 0
