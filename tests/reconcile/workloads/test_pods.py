"""What all workloads do with their pods: whose they are, when they are available, how they are made and reported."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.codec import decode
from dragoman.api.core import PodTemplateSpec
from dragoman.api.meta import ObjectMeta, Ref
from dragoman.effects import Create, Delete, Emit, Patch
from dragoman.reconcile.workloads import pods
from dragoman.snapshot.change import Gone, Put
from tests.reconcile.workloads.revisions import pod as typed_pod

NOW = 1_800_000_000.0
SINCE = "2027-01-15T08:00:00Z"  # NOW
SET = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}}}


def owned_by(owner: Any, **more: Any) -> list[dict[str, Any]]:
    meta = owner["metadata"]
    return [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": meta["name"], "uid": meta["uid"], **more}]


def add(cluster: Any, name: str, owner: Any = None, *, app: str = "a", **fields: Any) -> Any:
    meta = {"labels": {"app": app}, "ownerReferences": owned_by(owner, controller=True) if owner else []}
    return cluster.add("Pod", name, metadata=meta | fields.pop("metadata", {}), **fields)


def members(cluster: Any) -> tuple[list[str], list[tuple[str, Any]]]:
    owner = cluster.snapshot.workloads["ReplicaSet", "default", "rs"]
    found, writes = pods.members(cluster.world, "ReplicaSet", owner)
    for write in writes:
        assert isinstance(write, Patch)
        assert write.resource_version, "only as it was seen"
    return [pod.metadata.name for pod in found], [
        (w.ref.name, [o["name"] for o in w.patch["metadata"]["ownerReferences"] or []]) for w in writes
    ]


def test_pods_of_nobody_are_adopted_and_those_that_no_longer_match_are_released(cluster: Any) -> None:
    owner, other = cluster.add("ReplicaSet", "rs", spec=SET), cluster.add("ReplicaSet", "other", spec=SET)
    add(cluster, "mine", owner)
    add(cluster, "relabelled", owner, app="b")
    add(cluster, "nobodys")
    add(cluster, "theirs", other)
    add(cluster, "done", status={"phase": "Succeeded"})
    add(cluster, "of-another-app", app="b")
    assert members(cluster) == (["mine"], [("relabelled", []), ("nobodys", ["rs"])])


def test_an_owner_that_is_being_deleted_adopts_nothing(cluster: Any) -> None:
    deleted = {"deletionTimestamp": SINCE, "finalizers": ["foregroundDeletion"]}
    owner = cluster.add("ReplicaSet", "rs", spec=SET, metadata=deleted)
    add(cluster, "mine", owner)
    add(cluster, "nobodys")
    assert members(cluster) == (["mine"], [])


def test_a_pod_that_ends_stays_a_member_though_its_labels_changed(cluster: Any) -> None:
    owner = cluster.add("ReplicaSet", "rs", spec=SET)
    add(cluster, "ends", owner, app="b", metadata={"deletionTimestamp": SINCE, "finalizers": ["x/y"]})
    assert members(cluster) == (["ends"], [])


def ready(**status: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": SINCE}], **status}


# status, minReadySeconds, seconds since then: seconds until it counts
AVAILABLE: dict[str, tuple[dict[str, Any], int, float, float | None]] = {
    "not ready": ({}, 0, 0.0, None),
    "no longer ready": ({"conditions": [{"type": "Ready", "status": "False"}]}, 0, 0.0, None),
    "ready": (ready(), 0, 0.0, 0.0),
    "ready for a while": (ready(), 30, 10.0, 20.0),
    "ready for long enough": (ready(), 30, 31.0, 0.0),
}


@pytest.mark.parametrize("case", AVAILABLE)
def test_when_a_pod_counts_as_available(case: str) -> None:
    status, min_ready_s, passed_s, expected = AVAILABLE[case]
    assert pods.unavailable_s(typed_pod("p", status=status), min_ready_s, NOW + passed_s) == expected


def test_active_is_neither_finished_nor_being_deleted() -> None:
    made = {
        "running": typed_pod("p", status={"phase": "Running"}),
        "failed": typed_pod("p", status={"phase": "Failed"}),
        "ends": typed_pod("p", metadata={"deletionTimestamp": SINCE}),
    }
    assert [name for name, pod in made.items() if pods.is_active(pod)] == ["running"]


@pytest.mark.parametrize("text", [None, "", "yesterday", "2027-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_the_beginning(text: str | None) -> None:
    assert pods.seconds_of(text) == 0.0
    assert pods.seconds_of(pods.time_text(NOW)) == NOW


# ---- which workloads a change concerns


def keys(cluster: Any, change: Any, before: Any) -> list[str]:
    return [name for _, name in pods.owner_keys("ReplicaSet", "Pod", change, before, cluster.world)]


def put(cluster: Any, name: str, patch: dict[str, Any]) -> list[str]:
    before = cluster.world
    cluster.edit("Pod", name, patch)
    return keys(cluster, Put("Pod", cluster.snapshot.pods["default", name]), before)


def test_a_change_of_a_pod_concerns_its_owner_unless_nobody_reads_it(cluster: Any) -> None:
    owner = cluster.add("ReplicaSet", "rs", spec=SET)
    add(cluster, "p", owner)
    assert put(cluster, "p", {"status": {"phase": "Running"}}) == ["rs"]
    assert put(cluster, "p", {"metadata": {"annotations": {"a": "b"}}}) == []
    assert put(cluster, "p", {"metadata": {"ownerReferences": None}}) == ["rs"], "it was, and may be adopted"
    before = cluster.world
    cluster.remove("Pod", "p")
    assert keys(cluster, Gone("Pod", "default", "p"), before) == []


def test_a_pod_of_nobody_concerns_all_whose_selector_it_matches(cluster: Any) -> None:
    for name in ("rs", "twin"):
        cluster.add("ReplicaSet", name, spec=SET)
    cluster.add("ReplicaSet", "far", spec={**SET, "selector": {"matchLabels": {"app": "z"}}})
    cluster.add("ReplicaSet", "elsewhere", namespace="other", spec=SET)
    add(cluster, "p", app="b")
    assert put(cluster, "p", {"metadata": {"labels": {"app": "a"}}}) == ["rs", "twin"]
    assert put(cluster, "p", {"status": {"phase": "Running"}}) == [], "labels and owner are as they were"


def test_a_change_of_the_workload_itself_and_of_something_else(cluster: Any) -> None:
    cluster.add("ReplicaSet", "rs", spec=SET)
    change = Put("ReplicaSet", cluster.snapshot.workloads["ReplicaSet", "default", "rs"])
    assert keys(cluster, change, cluster.world) == ["rs"]
    assert keys(cluster, Gone("ReplicaSet", "default", "rs"), cluster.world) == ["rs"]
    assert keys(cluster, Gone("Node", "", "rs"), cluster.world) == []


# ---- making and reporting


def test_a_pod_has_what_its_template_and_its_owner_say() -> None:
    body = {
        "metadata": {"labels": {"app": "a", "x": "1"}, "annotations": {"n": "1"}, "finalizers": ["f/1"]},
        "spec": {"containers": [{"name": "main"}]},
    }
    owner = ObjectMeta(name="web", namespace="shop", uid="u")
    made = pods.pod_from(
        decode(PodTemplateSpec, body),
        "ReplicaSet",
        owner,
        labels={"x": "2"},
        annotations={"m": "2"},
        finalizers=["f/2"],
        shape=lambda spec: {**spec, "nodeName": "n"},
    ).body
    (reference,) = made["metadata"].pop("ownerReferences")
    assert (reference["kind"], reference["name"], reference["uid"], reference["controller"]) == (
        "ReplicaSet",
        "web",
        "u",
        True,
    )
    assert made["metadata"] == {
        "namespace": "shop",
        "generateName": "web-",
        "labels": {"app": "a", "x": "2"},
        "annotations": {"n": "1", "m": "2"},
        "finalizers": ["f/1", "f/2"],
    }
    assert made["spec"] == {"containers": [{"name": "main"}], "nodeName": "n"}
    named = pods.pod_from(PodTemplateSpec(), "StatefulSet", owner, name="web-0").body
    assert (named["metadata"]["name"], "generateName" in named["metadata"]) == ("web-0", False)


OWNER = Ref("ReplicaSet", "default", "rs", "u")
CREATED = Create({"kind": "Pod", "metadata": {"generateName": "rs-"}})
DELETED = Delete(Ref("Pod", "default", "rs-x", "u"))

# effect, error: type, reason, message
EVENTS: dict[str, tuple[Any, str, tuple[str, str, str] | None]] = {
    "created": (CREATED, "", ("Normal", "SuccessfulCreate", "Created pod: rs-x")),
    "not created": (CREATED, "quota", ("Warning", "FailedCreate", "Error creating: quota")),
    "deleted": (DELETED, "", ("Normal", "SuccessfulDelete", "Deleted pod: rs-x")),
    "not deleted": (DELETED, "gone", ("Warning", "FailedDelete", "Error deleting: gone")),
    "no pod": (Delete(Ref("ReplicaSet", "default", "x")), "", None),
}


@pytest.mark.parametrize("case", EVENTS)
def test_events_are_worded_as_upstreams(case: str) -> None:
    effect, error, expected = EVENTS[case]
    written = {"metadata": {"name": "rs-x"}} if not error else None
    found = pods.pod_write_events(OWNER, "replicaset-controller", effect, written, error)
    assert found == ((Emit(OWNER, *expected, "replicaset-controller"),) if expected else ())


def test_the_transition_time_of_a_condition_moves_with_its_status_only() -> None:
    first = pods.with_condition([], NOW, "Available", "False", "TooFew", "a")
    second = pods.with_condition(first, NOW + 10, "Available", "False", "TooFew", "b")
    third = pods.with_condition(second, NOW + 20, "Available", "True", "Enough", "b")
    assert [c[0]["lastTransitionTime"] for c in (first, second, third)] == [
        pods.time_text(NOW),
        pods.time_text(NOW),
        pods.time_text(NOW + 20),
    ]
    assert pods.with_condition(third, NOW + 30, "Available", "True", "Enough", "b") is third
    assert pods.without_condition(third, "Available") == []
