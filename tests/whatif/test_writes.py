"""What a server makes of a write: identity, finalizers, merging, grace, and the refusals that others cause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dragoman.api.meta import Ref
from dragoman.effects import Bind, Create, Delete, Emit, Evict, Patch
from dragoman.errors import Bug
from dragoman.snapshot.change import Gone, Put
from dragoman.testing.build import claim, manifest, node, pod, request, snapshot_of
from dragoman.whatif.cluster import ClusterState, Rejection, bring, shown
from dragoman.whatif.writes import write

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(*objects: dict[str, Any]) -> ClusterState:
    return bring(snapshot_of(*objects), NOW)


def done(before: ClusterState, effect: Any) -> ClusterState:
    changes, refused = write(before, effect)
    assert refused is None, refused
    return shown(before, changes)


def refused(before: ClusterState, effect: Any) -> Rejection:
    changes, why = write(before, effect)
    assert changes == ()
    assert why is not None
    return why


def a_pod(name: str = "p", **rest: Any) -> dict[str, Any]:
    made = pod(name, **rest)
    del made["metadata"]["uid"]
    return made


def of(kind: str, name: str, uid: str = "") -> Ref:
    return Ref(kind, "default", name, uid)


# ---- create


def test_a_new_object_gets_its_identity_and_what_a_server_adds() -> None:
    made = done(cluster(), Create(a_pod())).snapshot.pods["default", "p"]
    assert made.metadata.uid
    assert (made.metadata.creation_timestamp, made.metadata.generation) == ("2026-01-01T00:00:00Z", 1)
    assert {t.key: t.toleration_seconds for t in made.spec.tolerations} == {
        "node.kubernetes.io/not-ready": 300,
        "node.kubernetes.io/unreachable": 300,
    }


def test_a_generated_name_is_filled_in_and_differs_each_time() -> None:
    body = {**a_pod(), "metadata": {"namespace": "default", "generateName": "p-"}}
    first = done(cluster(), Create(body))
    (one,) = first.snapshot.pods
    assert write(first, Create(body)) == ((), None), "the same name: whoever wanted it looks again"
    again = done(msgspec.structs.replace(first, made=1), Create(body))
    assert one[1].startswith("p-")
    assert len(again.snapshot.pods) == 2


def test_what_is_there_already_changes_nothing() -> None:
    before = cluster(pod("p"))
    assert write(before, Create(a_pod(nodeName="n"))) == ((), None)


def test_a_limit_range_fills_in_before_the_quota_counts() -> None:
    limits = manifest(
        "LimitRange",
        "l",
        spec={"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}]},
    )
    quota = manifest("ResourceQuota", "q", spec={"hard": {"requests.cpu": "1"}}, status={"hard": {"requests.cpu": "1"}})
    first = done(cluster(limits, quota), Create(a_pod("a")))
    why = refused(first, Create(a_pod("b")))
    assert why.message == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1, limited: '
        "requests.cpu=1"
    )
    assert why.quota is not None


TERMINATING = manifest("Namespace", "default", status={"phase": "Terminating"})

# objects, what is created: path, part of the message
REFUSED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str, str]] = {
    "a namespace that ends": ([TERMINATING], a_pod(), "metadata.namespace", "because it is being terminated"),
    "admin access in an ordinary namespace": (
        [manifest("Namespace", "default")],
        claim("c", request(adminAccess=True)),
        "spec.devices.requests[0].adminAccess",
        "admin access",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_that_others_cause(case: str) -> None:
    objects, body, path, text = REFUSED[case]
    why = refused(cluster(*objects), Create(body))
    assert why.field == path
    assert text in why.message


def test_a_refusal_names_for_whom_the_object_was_to_be_created() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
    body = a_pod(metadata={"ownerReferences": [owner]})
    assert refused(cluster(TERMINATING), Create(body)).owner == Ref("ReplicaSet", "default", "rs", "u")


# ---- patch


def test_a_merge_patch_changes_what_it_names_and_counts_changes_of_the_spec() -> None:
    before = cluster(pod("p", metadata={"generation": 3, "labels": {"a": "1", "b": "2"}}))
    after = done(before, Patch(of("Pod", "p"), {"metadata": {"labels": {"a": None}}}))
    made = after.snapshot.pods["default", "p"]
    assert (made.metadata.labels, made.metadata.generation) == ({"b": "2"}, 3)
    made = done(after, Patch(of("Pod", "p"), {"spec": {"nodeName": "n"}})).snapshot.pods["default", "p"]
    assert (made.spec.node_name, made.metadata.generation) == ("n", 4)


def test_conditions_are_merged_by_type_where_the_patch_says_so() -> None:
    conditions = [{"type": kind, "status": "False"} for kind in ("A", "B")]
    patch = {"status": {"conditions": [{"type": "B", "status": "True"}, {"type": "C", "status": "True"}]}}
    before = cluster(pod("p", status={"conditions": conditions}))
    found = {}
    for type_ in ("merge", "strategic"):
        after = done(before, Patch(of("Pod", "p"), patch, type=type_))
        found[type_] = [(c.type, c.status) for c in after.snapshot.pods["default", "p"].status.conditions]
    assert found == {
        "merge": [("B", "True"), ("C", "True")],
        "strategic": [("A", "False"), ("B", "True"), ("C", "True")],
    }


def test_a_patch_of_another_object_of_that_name_is_none() -> None:
    before = cluster(pod("p"))
    assert write(before, Patch(of("Pod", "p", "another"), {"spec": {"nodeName": "n"}})) == ((), None)
    assert write(before, Patch(of("Pod", "none"), {})) == ((), None)


def test_a_json_patch_is_a_defect_of_whoever_writes_it() -> None:
    with pytest.raises(Bug, match="JSON patch"):
        write(cluster(pod("p")), Patch(of("Pod", "p"), [], type="json"))


def test_the_last_finalizer_takes_an_object_that_is_being_deleted_with_it() -> None:
    held = claim("c", metadata={"uid": "u", "finalizers": ["x/y"], "deletionTimestamp": "2026-01-01T00:00:00Z"})
    gone, _ = write(cluster(held), Patch(of("ResourceClaim", "c"), {"metadata": {"finalizers": None}}))
    assert gone == (Gone("ResourceClaim", "default", "c"),)
    alive = claim("c", metadata={"uid": "u", "finalizers": ["x/y"]})
    kept, _ = write(cluster(alive), Patch(of("ResourceClaim", "c"), {"metadata": {"finalizers": None}}))
    assert isinstance(kept[0], Put)


# ---- delete

UNREACHABLE = node("n")
UNREACHABLE["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
RUNNING = pod("p", nodeName="n", status={"phase": "Running"})

# objects, grace: whether it goes at once, seconds that it waits
DELETED: dict[str, tuple[list[dict[str, Any]], int | None, bool, int]] = {
    "a pod without a node": ([pod("p")], None, True, 0),
    "a pod whose kubelet ends it": ([node("n"), RUNNING], None, True, 0),
    "a pod whose kubelet is not heard of": ([UNREACHABLE, RUNNING], None, False, 30),
    "with another grace": ([UNREACHABLE, RUNNING], 5, False, 5),
    "by force": ([UNREACHABLE, RUNNING], 0, True, 0),
    "a pod whose node is gone": ([RUNNING], None, False, 30),
    "a finished one": ([UNREACHABLE, pod("p", nodeName="n", status={"phase": "Failed"})], None, True, 0),
}


@pytest.mark.parametrize("case", DELETED)
def test_when_a_deleted_pod_goes(case: str) -> None:
    objects, grace_s, at_once, wait_s = DELETED[case]
    (change,), _ = write(cluster(*objects), Delete(of("Pod", "p"), grace_period_s=grace_s))
    assert isinstance(change, Gone) is at_once
    if isinstance(change, Put):
        assert change.object.metadata.deletion_grace_period_seconds == wait_s
        assert change.object.metadata.deletion_timestamp == "2026-01-01T00:00:00Z"
        assert change.object.status.phase == "Running"


def test_a_pod_with_a_finalizer_ends_and_stays() -> None:
    held = pod("p", nodeName="n", status={"phase": "Running"}, metadata={"finalizers": ["x/y"]})
    (change,), _ = write(cluster(node("n"), held), Evict(of("Pod", "p"), grace_period_s=None))
    assert isinstance(change, Put)
    assert change.object.status.phase == "Failed"


def test_the_way_of_deletion_is_a_finalizer() -> None:
    rs = manifest("ReplicaSet", "rs", spec={}, metadata={"uid": "u", "finalizers": ["orphan", "x/y"]})
    finalizers = {}
    for propagation in ("", "Foreground", "Orphan", "Background"):
        changes, _ = write(cluster(rs), Delete(of("ReplicaSet", "rs"), propagation=propagation))
        finalizers[propagation] = changes[0].object.metadata.finalizers  # type: ignore[union-attr]
    assert finalizers == {
        "": ("orphan", "x/y"),
        "Foreground": ("x/y", "foregroundDeletion"),
        "Orphan": ("orphan", "x/y"),
        "Background": ("x/y",),
    }


def test_a_namespace_ends_and_goes_with_its_finalization() -> None:
    before = cluster(manifest("Namespace", "red", metadata={"uid": "u"}))
    ends = done(before, Delete(Ref("Namespace", "", "red")))
    assert ends.snapshot.namespaces["red"].status.phase == "Terminating"
    after = done(ends, Patch(Ref("Namespace", "", "red"), {}, subresource="finalize"))
    assert not after.snapshot.namespaces
    assert write(before, Patch(Ref("Namespace", "", "red"), {}, subresource="finalize")) == ((), None)


def test_a_deletion_without_a_name_is_of_all_in_the_namespace() -> None:
    before = cluster(pod("a"), pod("b"), pod("c", namespace="other"))
    after = done(before, Delete(Ref("Pod", "default", "")))
    assert list(after.snapshot.pods) == [("other", "c")]


def test_another_incarnation_is_not_deleted() -> None:
    assert write(cluster(pod("p")), Delete(of("Pod", "p", "another"))) == ((), None)


def test_a_binding_sets_the_node_and_an_event_changes_nothing() -> None:
    before = cluster(pod("p"))
    assert done(before, Bind(of("Pod", "p"), "n")).snapshot.pods["default", "p"].spec.node_name == "n"
    assert write(before, Bind(of("Pod", "none"), "n")) == ((), None)
    assert write(before, Emit(of("Pod", "p"), "Normal", "R", "m", "c")) == ((), None)
