"""What-if: workloads to pods, claims settled, pods decided in their order."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from dragoman.schedule.cycle import SchedulingContext
from dragoman.schedule.whatif import PodPrediction, expanded, settled, simulate, units
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod, snapshot_of, template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = device_class()


def reported(snapshot: Snapshot, *order: tuple[str, str]) -> list[PodPrediction]:
    numbers = count()
    world = settled(expanded(snapshot))
    wanted = units(world, [(kind, "default", name) for kind, name in order])
    return list(simulate(world, wanted, NOW, SchedulingContext(new_id=lambda: f"{next(numbers):08d}")))


def places(verdicts: list[PodPrediction]) -> list[tuple[str, str | None]]:
    return [(verdict.pod[1], verdict.node) for verdict in verdicts]


def workload(kind: str, name: str, spec: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return manifest(kind, name, spec={"template": {"metadata": {"labels": {"app": name}}, "spec": spec}, **fields})


def test_pods_are_decided_in_the_given_order_on_what_the_ones_before_left() -> None:
    objects = [node("a"), gpus("a", 1), GPU, claim("c"), claim("d"), pod("p", "c"), pod("q", "d")]
    assert places(reported(snapshot_of(*objects), ("Pod", "p"), ("Pod", "q"))) == [("p", "a"), ("q", None)]
    assert places(reported(snapshot_of(*objects), ("Pod", "q"), ("Pod", "p"))) == [("q", "a"), ("p", None)]


def test_the_order_of_other_objects_is_irrelevant() -> None:
    objects = [node("b"), node("a"), gpus("a", 1), gpus("b", 2), GPU, template("t", count=2), pod("p", templates=["t"])]
    one = reported(snapshot_of(*objects), ("Pod", "p"))
    other = reported(snapshot_of(*reversed(objects)), ("Pod", "p"))
    assert one == other
    assert places(one) == [("p", "b")]


def test_claims_are_made_from_templates_with_names_that_depend_on_names_only() -> None:
    objects = [node("a"), gpus("a", 2), GPU, template("t"), pod("p", templates=["t"])]
    (verdict,) = reported(snapshot_of(*objects), ("Pod", "p"))
    (made,) = verdict.claims
    assert (made.pod_claim, made.template, made.new) == ("t", "t", True)
    assert made.name.startswith("p-t-")
    assert len(made.name) == len("p-t-") + 5
    (again,) = reported(snapshot_of(*objects, node("b")), ("Pod", "p"))
    assert again.claims[0].name == made.name


def test_nodes_that_cannot_take_the_pod_are_listed_although_another_can() -> None:
    objects = [node("a"), node("b", unschedulable=True), node("c"), gpus("c", 1), GPU, claim("c"), pod("p", "c")]
    (verdict,) = reported(snapshot_of(*objects), ("Pod", "p"))
    assert verdict.node == "c"
    assert {some.nodes: type(some.reasons[0]).__name__ for some in verdict.nodes} == {
        ("a",): "InsufficientDevices",
        ("b",): "NodeUnschedulable",
    }


def test_what_finished_pods_reserved_is_free() -> None:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "done", "uid": "uid-done"}],
    }
    finished = pod("done", "c", nodeName="a", status={"phase": "Succeeded"})
    objects = [node("a"), gpus("a", 1), GPU, claim("c", status=status), finished, claim("d"), pod("p", "d")]
    assert places(reported(snapshot_of(*objects), ("Pod", "p"))) == [("p", "a")]


def test_a_generated_claim_of_a_finished_pod_is_gone() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "done", "uid": "uid-done", "controller": True}
    made = claim("done-t-x", metadata={"ownerReferences": [owner]})
    world = settled(snapshot_of(made, pod("done", templates=["t"], nodeName="a", status={"phase": "Failed"})))
    assert len(world.claims) == 0


def test_a_claim_with_an_unknown_consumer_stays() -> None:
    status = {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "elsewhere", "uid": "u"}]}
    world = settled(snapshot_of(claim("c", status=status)))
    assert world.claims["default", "c"].status.allocation is not None


def test_workloads_become_their_pods() -> None:
    spec = pod("x", templates=["t"])["spec"]
    objects = [
        node("a"), node("b"), gpus("a", 3), gpus("b", 3), GPU, template("t"),
        workload("Deployment", "web", spec, replicas=2),
        workload("Job", "batch", spec, parallelism=3, completions=2),
        workload("StatefulSet", "db", spec),
    ]  # fmt: skip
    verdicts = reported(snapshot_of(*objects), ("StatefulSet", "db"), ("Deployment", "web"), ("Job", "batch"))
    assert places(verdicts) == [("db-0", "a"), ("web-0", "a"), ("web-1", "a"), ("batch-0", "b"), ("batch-1", "b")]


def test_pods_that_a_workload_has_already_are_not_made_again() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "", "controller": True}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "", "controller": True}
    objects = [
        node("a"),
        workload("Deployment", "web", pod("x")["spec"], replicas=2),
        manifest("ReplicaSet", "web-abc", metadata={"ownerReferences": [deployment]}, spec={"replicas": 2}),
        pod("web-abc-1", metadata={"ownerReferences": [owner]}, nodeName="a"),
    ]
    world = expanded(snapshot_of(*objects))
    assert sorted(name for _, name in world.pods) == ["web-0", "web-abc-1"]


def test_a_daemon_set_has_a_pod_for_each_node() -> None:
    objects = [node("a"), node("b", taints=["x=y:NoSchedule"]), workload("DaemonSet", "agent", pod("x")["spec"])]
    assert places(reported(snapshot_of(*objects), ("DaemonSet", "agent"))) == [("agent-0", "a"), ("agent-1", None)]


def test_a_label_makes_a_gang_in_files() -> None:
    members = [pod(f"w{i}", f"c{i}", metadata={"labels": {"gang": "w"}}) for i in range(3)]
    objects = [node("a"), gpus("a", 2), GPU, *[claim(f"c{i}") for i in range(4)], *members, pod("single", "c3")]
    order = [("Pod", "w0"), ("Pod", "single"), ("Pod", "w1"), ("Pod", "w2")]
    assert places(reported(snapshot_of(*objects), *order)) == [
        ("w0", None),
        ("w1", None),
        ("w2", None),
        ("single", "a"),
    ]


def test_an_idle_claim_is_given_up_and_the_pod_placed_in_one_go() -> None:
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    idle = claim("c", status={"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}})
    objects = [node("a", unschedulable=True), node("b"), gpus("a", 1), gpus("b", 1), GPU, idle, pod("p", "c")]
    (verdict,) = reported(snapshot_of(*objects), ("Pod", "p"))
    assert verdict.node == "b"
    assert verdict.claims[0].new
