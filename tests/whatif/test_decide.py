"""What-if: workloads to pods, claims settled, pods decided in their order."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from dragoman.schedule.cycle import SchedulingContext
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod, snapshot_of, template
from dragoman.whatif.changes import RemoveNode, apply, node_like
from dragoman.whatif.cluster import ClusterState, bring
from dragoman.whatif.decide import PodPrediction, run
from dragoman.whatif.settle import settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = device_class()


def at_rest(snapshot: Snapshot) -> ClusterState:
    return settled(bring(snapshot, NOW))


def context() -> SchedulingContext:
    numbers = count()
    return SchedulingContext(new_id=lambda: f"{next(numbers):08d}")


def reported(snapshot: Snapshot, *order: tuple[str, str]) -> list[PodPrediction]:
    steps = run(at_rest(snapshot), [(kind, "default", name) for kind, name in order], context())
    return [verdict for step in steps for verdict in step.verdicts]


def places(verdicts: list[PodPrediction]) -> list[tuple[str, str | None]]:
    return [(verdict.pod[1], verdict.node) for verdict in verdicts]


def workload(kind: str, name: str, spec: dict[str, Any], **fields: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return manifest(kind, name, spec={"selector": {"matchLabels": labels}, "template": template, **fields})


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
    world = at_rest(snapshot_of(made, pod("done", templates=["t"], nodeName="a", status={"phase": "Failed"})))
    assert len(world.snapshot.claims) == 0


def test_a_claim_with_an_unknown_consumer_stays() -> None:
    status = {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "elsewhere", "uid": "u"}]}
    world = at_rest(snapshot_of(claim("c", status=status)))
    assert world.snapshot.claims["default", "c"].status.allocation is not None


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
    web = workload("Deployment", "web", pod("x")["spec"], replicas=2)
    labels = {"app": "web", "pod-template-hash": "abc"}
    template = {**web["spec"]["template"], "metadata": {"labels": labels}}
    revision = {"selector": {"matchLabels": {"pod-template-hash": "abc"}}, "template": template, "replicas": 2}
    objects = [
        node("a"),
        web,
        manifest("ReplicaSet", "web-abc", metadata={"ownerReferences": [deployment], "labels": labels}, spec=revision),
        pod("web-abc-1", metadata={"ownerReferences": [owner], "labels": labels}, nodeName="a"),
    ]
    world = at_rest(snapshot_of(*objects))
    assert sorted(name for _, name in world.snapshot.pods) == ["web-0", "web-abc-1"]


def test_a_daemon_set_has_a_pod_for_each_node_that_it_tolerates() -> None:
    objects = [node("a"), node("b", taints=["x=y:NoSchedule"]), workload("DaemonSet", "agent", pod("x")["spec"])]
    assert places(reported(snapshot_of(*objects), ("DaemonSet", "agent"))) == [("agent-0", "a")]


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


# ---- the drifts of the model that what-if had of its own once


def test_pods_of_a_group_with_an_equal_claim_entry_share_the_groups_claim() -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    group = manifest("PodGroup", "g", spec={"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [entry]})
    members = [pod(f"w{i}", schedulingGroup={"podGroupName": "g"}, resourceClaims=[entry]) for i in range(2)]
    objects = [node("a"), gpus("a", 2), GPU, template("t"), group, *members]
    verdicts = reported(snapshot_of(*objects), ("Pod", "w0"), ("Pod", "w1"))
    assert places(verdicts) == [("w0", "a"), ("w1", "a")]
    assert len({verdict.claims[0].name for verdict in verdicts}) == 1
    assert verdicts[0].claims[0].name.startswith("g-gpu-")
    assert len(at_rest(snapshot_of(*objects)).snapshot.claims) == 1


def test_a_daemon_set_follows_nodes_that_are_added_and_removed() -> None:
    objects = [
        node("a"),
        gpus("a", 1),
        GPU,
        template("t"),
        workload("DaemonSet", "agent", pod("x", templates=["t"])["spec"]),
    ]
    cluster = at_rest(snapshot_of(*objects))
    assert sorted(name for _, name in cluster.snapshot.pods) == ["agent-0"]
    more = apply(cluster, node_like(cluster.snapshot, "a", "b")).cluster
    order = [("DaemonSet", "default", "agent")]
    verdicts = [verdict for step in run(more, order, context()) for verdict in step.verdicts]
    assert sorted(places(verdicts)) == [("agent-0", "a"), ("agent-1", "b")]
    fewer = apply(more, [RemoveNode("a")])
    assert fewer.created == ()
    verdicts = [verdict for step in run(fewer.cluster, order, context()) for verdict in step.verdicts]
    assert places(verdicts) == [("agent-1", "b")]
