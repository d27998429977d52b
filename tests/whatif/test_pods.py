"""Pods that go or are made anew: what the controllers make of their claims, as changes to any snapshot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dragoman.snapshot.change import Snapshot, apply_all
from dragoman.testing.build import DRIVER, claim, device_class, gpus, node, pod, snapshot_of, template
from dragoman.whatif.pods import restarted, without_pods

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORLD = [node("a"), device_class(), gpus("a", 4), template("own")]


def held(name: str, index: int, *users: str, **meta: Any) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": f"gpu-{index}"}
    consumers = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    return claim(name, status={"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}, **meta)


def running(name: str, *claims: str, **rest: Any) -> dict[str, Any]:
    return pod(name, *claims, nodeName="a", status={"phase": "Running"}, **rest)


def two_pods() -> Snapshot:
    own = held("p-own-x", 2, "p")
    own["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    ]
    p = running("p", "c", "both")
    p["spec"]["resourceClaims"].append({"name": "own", "resourceClaimTemplateName": "own"})
    p["status"]["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": "p-own-x"}]
    return snapshot_of(*WORLD, held("c", 0, "p"), held("both", 1, "p", "q"), own, p, running("q", "both"))


def test_without_a_pod_its_devices_are_free_but_not_those_that_others_use() -> None:
    snapshot = two_pods()
    after = apply_all(snapshot, without_pods(snapshot, [("default", "p")], NOW))
    assert ("default", "p") not in after.pods
    assert ("default", "p-own-x") not in after.claims
    assert {device.device for device in after.holders} == {"gpu-1"}
    assert [entry.name for entry in after.claims["default", "both"].status.reserved_for] == ["q"]


def test_without_two_pods_what_they_shared_is_free() -> None:
    snapshot = two_pods()
    after = apply_all(snapshot, without_pods(snapshot, [("default", "p"), ("default", "q")], NOW))
    assert not after.holders


def test_a_pod_that_is_restarted_waits_with_new_claims_from_its_templates() -> None:
    snapshot = two_pods()
    changes = restarted(snapshot, ("default", "p"), NOW)
    assert changes is not None
    after = apply_all(snapshot, changes)
    again = after.pods["default", "p"]
    assert again.spec.node_name == ""
    (made,) = again.status.resource_claim_statuses
    assert made.resource_claim_name not in (None, "p-own-x")
    assert ("default", "p-own-x") not in after.claims
    assert {device.device for device in after.holders} == {"gpu-1"}


def test_a_pod_of_a_daemon_set_has_no_other_node_and_one_that_goes_does_not_come_back() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    bound_to_node = running("d-1", "c", metadata={"ownerReferences": [owner]})
    going = running("g", "c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    snapshot = snapshot_of(*WORLD, held("c", 0, "d-1", "g"), bound_to_node, going)
    assert restarted(snapshot, ("default", "d-1"), NOW) is None
    assert restarted(snapshot, ("default", "g"), NOW) is None
