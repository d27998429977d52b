"""What-if changes: nodes that go and come, taints, deletions, and who is created anew."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import DRIVER, claim, device_class, gpus, manifest, node, pod, snapshot_of, template
from dragoman.whatif.changes import (
    RemoveNode,
    RemoveObject,
    TaintDevices,
    apply,
    displaced_by,
    free_name,
    node_like,
)
from dragoman.whatif.cluster import ClusterState, bring
from dragoman.whatif.settle import settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORLD = [node("a"), gpus("a", 3), device_class()]


def held(name: str, index: int = 0, **result: Any) -> dict[str, Any]:
    """A claim with a device of node a, reserved for the pod p."""
    device = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": f"gpu-{index}", **result}
    status = {
        "allocation": {"devices": {"results": [device]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    }
    return claim(name, status=status)


def running(name: str, *claims: str, **rest: Any) -> dict[str, Any]:
    return pod(name, *claims, nodeName="a", status={"phase": "Running"}, **rest)


def at_rest(snapshot: Snapshot) -> ClusterState:
    return settled(bring(snapshot, NOW))


def rule(effect: str = "NoExecute") -> Any:
    made = manifest(
        "DeviceTaintRule", "r", spec={"deviceSelector": {"pool": "a"}, "taint": {"key": "k", "effect": effect}}
    )
    return snapshot_of(made).taint_rules["r"]


def test_without_a_node_its_slices_go_and_its_pods_are_created_again() -> None:
    after = apply(at_rest(snapshot_of(*WORLD, held("c"), running("p", "c"))), [RemoveNode("a")])
    snapshot = after.cluster.snapshot
    assert not snapshot.nodes
    assert not snapshot.slices
    assert after.created == (("default", "p"),)
    assert snapshot.pods["default", "p"].spec.node_name == ""
    assert snapshot.pods["default", "p"].metadata.uid != "uid-p"
    assert snapshot.claims["default", "c"].status.allocation is None
    assert not snapshot.holders


def test_a_pod_that_is_deleted_stays_deleted_and_its_own_claim_goes() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    made = held("p-t-x", 1)
    made["metadata"] |= {"ownerReferences": [owner], "annotations": {"resource.kubernetes.io/pod-claim-name": "t"}}
    user = running("p", "c", templates=["t"])
    user["status"]["resourceClaimStatuses"] = [{"name": "t", "resourceClaimName": "p-t-x"}]
    cluster = at_rest(snapshot_of(*WORLD, template("t"), held("c"), made, user))
    assert {device.device for device in cluster.snapshot.holders} == {"gpu-0", "gpu-1"}
    after = apply(cluster, [RemoveObject("Pod", "default", "p")])
    assert after.created == ()
    assert not after.cluster.snapshot.pods
    assert set(after.cluster.snapshot.claims) == {("default", "c")}
    assert not after.cluster.snapshot.holders


def test_one_more_node_has_devices_of_its_own() -> None:
    cluster = at_rest(snapshot_of(*WORLD, node("a-new")))
    name = free_name(cluster.snapshot, "a-new")
    assert name == "a-new-2"
    after = apply(cluster, node_like(cluster.snapshot, "a", name)).cluster.snapshot
    assert sorted(after.nodes) == ["a", "a-new", "a-new-2"]
    (made,) = [s for s in after.slices.values() if s.spec.node_name == name]
    assert (made.spec.pool.name, len(made.spec.devices)) == (name, 3)
    assert after.nodes[name].metadata.labels["kubernetes.io/hostname"] == name


@pytest.mark.parametrize(
    ("effect", "seconds", "expected"), [("NoExecute", None, []), ("NoExecute", 60, [60]), ("NoSchedule", None, [0])]
)
def test_who_is_displaced_by_a_rule_is_gone_once_the_time_is_over(
    effect: str, seconds: int | None, expected: list[int]
) -> None:
    toleration: dict[str, Any] = {"key": "k", "operator": "Exists", "effect": effect}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds
    cluster = at_rest(snapshot_of(*WORLD, held("c", tolerations=[toleration]), running("p", "c")))
    assert [entry.after_s for entry in displaced_by(cluster, rule())] == expected
    after = apply(cluster, [TaintDevices(rule())])
    assert [entry.after_s for entry in after.displaced] == expected
    assert after.created == ((("default", "p"),) if expected else ())
    assert (after.cluster.snapshot.pods["default", "p"].spec.node_name == "") == bool(expected)


def test_a_rule_that_only_keeps_pods_away_displaces_nobody() -> None:
    cluster = at_rest(snapshot_of(*WORLD, held("c"), running("p", "c")))
    assert apply(cluster, [TaintDevices(rule("NoSchedule"))]).displaced == ()
