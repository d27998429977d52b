"""Where controllers come to rest: all that follows from what is there, from a change, and from time; and what never rests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dragoman.api.meta import Ref
from dragoman.effects import Create, Patch
from dragoman.reconcile.step import ReconcileResult
from dragoman.reconcile.table import Controller, table
from dragoman.snapshot.change import Gone, Put
from dragoman.testing.build import device_class, manifest, node, pod, snapshot_of, template, typed
from dragoman.whatif.cluster import ClusterState, bring
from dragoman.whatif.settle import CONTROLLERS, NO_PART, SettleLimits, changed, settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(*objects: dict[str, Any]) -> ClusterState:
    return bring(snapshot_of(*objects), NOW)


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": "web"}
    inner = {
        "containers": [{"name": "main", "resources": {"claims": [{"name": "t"}]}}],
        "resourceClaims": [{"name": "t", "resourceClaimTemplateName": "t"}],
    }
    body = {"metadata": {"labels": labels}, "spec": inner}
    return manifest(kind, "web", spec={"selector": {"matchLabels": labels}, "template": body, **spec})


def test_every_controller_takes_part_or_says_why_not() -> None:
    names = {controller.name for controller in table()}
    assert set(NO_PART) < names
    assert {controller.name for controller in CONTROLLERS} == names - set(NO_PART)


def test_a_deployment_comes_to_pods_with_claims() -> None:
    after = settled(cluster(device_class(), template("t"), workload("Deployment", replicas=3)))
    assert [kind for kind, _, _ in after.snapshot.workloads].count("ReplicaSet") == 1
    assert len(after.snapshot.pods) == len(after.snapshot.claims) == 3
    assert not after.unsettled
    assert settled(after).snapshot == after.snapshot, "at rest"


def test_a_change_leads_to_what_follows_from_it() -> None:
    before = settled(cluster(device_class(), template("t"), node("a"), workload("DaemonSet")))
    assert len(before.snapshot.pods) == 1
    after = changed(before, [Put("Node", typed(node("b")))])
    assert len(after.snapshot.pods) == 2
    assert len(changed(after, [Gone("Node", "", "a")]).snapshot.pods) == 1
    gone = changed(after, [Gone("DaemonSet", "default", "web")])
    assert not gone.snapshot.pods
    assert not gone.snapshot.claims


def test_the_past_stays_as_it_was() -> None:
    before = settled(cluster(device_class(), template("t"), workload("Deployment", replicas=1)))
    pods = before.snapshot.pods
    changed(before, [Gone("Deployment", "default", "web")])
    assert before.snapshot.pods is pods


def test_time_passes_only_as_far_as_is_asked() -> None:
    tainted = node("n", taints=["gone:NoExecute"])
    tolerates = {"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    before = settled(cluster(tainted, pod("p", nodeName="n", tolerations=[tolerates], status={"phase": "Running"})))
    assert before.snapshot.pods
    kept = changed(before, [], until=NOW + timedelta(seconds=30))
    assert kept.snapshot.pods


def job(name: str, sync: Any, kinds: frozenset[str] = frozenset({"Pod"})) -> Controller:
    """A controller of a test in the place of one of ours."""
    base = next(controller for controller in table() if controller.name == "podgc")
    keys = lambda change, before, after: ["one"]  # noqa: E731
    return msgspec.structs.replace(base, name=name, kinds=kinds, keys=keys, sync=sync, idle=None)


@pytest.fixture
def before() -> ClusterState:
    return cluster(pod("p"))


def test_controllers_that_never_rest_are_said_not_to(before: ClusterState) -> None:
    count = iter(range(10_000))

    def restless(world: Any, key: str) -> ReconcileResult:
        return ReconcileResult((Patch(Ref("Pod", "default", "p"), {"metadata": {"labels": {"n": str(next(count))}}}),))

    after = settled(before, controllers=[job("restless", restless)], limits=SettleLimits(looks=20))
    assert after.unsettled
    few = settled(before, controllers=[job("restless", restless)], limits=SettleLimits(5, 0, 10_000))
    assert few.unsettled
    assert next(count) < 200


def test_after_a_refusal_nothing_else_of_that_step_is_written_and_it_is_tried_again_after_a_change() -> None:
    ends = manifest("Namespace", "default", status={"phase": "Terminating"}, metadata={"uid": "u"})
    seen: list[int] = []

    def makes_two(world: Any, key: str) -> ReconcileResult:
        seen.append(len(world.snapshot.pods))
        bodies = [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": n}, "spec": {}}
            for n in "ab"
        ]
        return ReconcileResult(
            tuple(Create(body) for body in bodies if ("default", body["metadata"]["name"]) not in world.snapshot.pods)
        )

    stuck = settled(cluster(ends, pod("p")), controllers=[job("two", makes_two)])
    assert [r.name for r in stuck.rejected] == ["a"]
    assert list(stuck.snapshot.pods) == [("default", "p")]
    assert not stuck.unsettled
    free = settled(cluster(pod("p")), controllers=[job("two", makes_two)])
    assert sorted(name for _, name in free.snapshot.pods) == ["a", "b", "p"]


def test_what_is_asked_exists_unless_the_picture_is_complete(before: ClusterState) -> None:
    answers: list[dict[Ref, str]] = []
    asked = Ref("ConfigMap", "default", "x", "u1")

    def asks(world: Any, key: str) -> ReconcileResult:
        answers.append(dict(world.answers))
        return ReconcileResult() if world.answers else ReconcileResult(asks=(asked,))

    settled(before, controllers=[job("asks", asks)])
    settled(bring(snapshot_of(pod("p")), NOW, complete=frozenset({"ConfigMap"})), controllers=[job("asks", asks)])
    assert [list(found.values()) for found in answers if found] == [["u1"], [""]]
