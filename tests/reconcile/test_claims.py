"""Claims of pods: made, recorded, reserved, given back, deleted. The life cycle of the API's ResourceClaim."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.effects import Create, Delete, Emit, Patch
from dragoman.reconcile import claims
from dragoman.snapshot.change import Gone, Put

FINALIZER = "resource.kubernetes.io/delete-protection"
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "gpu-0"}]}}


def add_template(cluster: Any, name: str = "t", **meta: Any) -> None:
    cluster.add("ResourceClaimTemplate", name, spec={"metadata": meta, "spec": REQUESTS})


def add_pod(cluster: Any, name: str = "p", *, entries: Any = None, **fields: Any) -> Any:
    entries = entries or [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    spec = {"resourceClaims": entries, **fields.pop("spec", {})}
    return cluster.add("Pod", name, spec=spec, **fields)


def sync_pod(name: str = "p") -> Any:
    return lambda world: claims.sync(world, ("pod", "default", name))


def sync_claim(name: str) -> Any:
    return lambda world: claims.sync(world, ("claim", "default", name))


def reserved(*pods: Any) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in pods]


def allocated(cluster: Any, name: str, *pods: Any, **meta: Any) -> Any:
    status = {"allocation": ALLOCATION, "reservedFor": reserved(*pods), "devices": [{"driver": "d"}]}
    return cluster.add(
        "ResourceClaim", name, metadata={"finalizers": [FINALIZER], **meta}, spec=REQUESTS, status=status
    )


def owner(p: Any, kind: str = "Pod", api: str = "v1") -> list[dict[str, Any]]:
    meta = p["metadata"]
    return [{"apiVersion": api, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}]


# ---- making


def test_a_claim_is_made_from_the_template_and_recorded(cluster: Any) -> None:
    add_template(cluster, labels={"a": "b"}, annotations={"c": "d", "resource.kubernetes.io/pod-claim-name": "wrong"})
    p = add_pod(cluster)
    cluster.settle(sync_pod())
    [claim] = cluster.all("ResourceClaim")
    meta = claim["metadata"]
    assert meta["generateName"] == "p-gpu-"
    assert meta["ownerReferences"] == owner(p)
    assert meta["labels"] == {"a": "b"}
    assert meta["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}
    assert claim["spec"] == REQUESTS
    statuses = cluster.get("Pod", "p")["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "gpu", "resourceClaimName": meta["name"]}]
    patch = cluster.effects[-1]
    assert isinstance(patch, Patch)
    assert (patch.type, patch.manager, patch.force) == ("apply", "ResourceClaimController", True)


def test_all_names_are_recorded_again_when_one_claim_was_deleted(cluster: Any) -> None:
    add_template(cluster)
    add_pod(cluster, entries=[{"name": n, "resourceClaimTemplateName": "t"} for n in ("a", "b")])
    cluster.settle(sync_pod())
    before = {s["name"]: s["resourceClaimName"] for s in cluster.get("Pod", "p")["status"]["resourceClaimStatuses"]}
    cluster.remove("ResourceClaim", before["a"])
    cluster.settle(sync_pod())
    after = {s["name"]: s["resourceClaimName"] for s in cluster.get("Pod", "p")["status"]["resourceClaimStatuses"]}
    assert after["b"] == before["b"]
    assert after["a"] != before["a"]
    assert cluster.has("ResourceClaim", after["a"])


def test_a_claim_made_before_a_crash_is_used(cluster: Any) -> None:
    add_template(cluster)
    p = add_pod(cluster)
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    cluster.add("ResourceClaim", "orphan", metadata={"ownerReferences": owner(p), "annotations": annotations})
    cluster.settle(sync_pod())
    assert len(cluster.all("ResourceClaim")) == 1
    assert cluster.get("Pod", "p")["status"]["resourceClaimStatuses"][0]["resourceClaimName"] == "orphan"


def test_a_foreign_claim_of_the_recorded_name_is_not_used(cluster: Any) -> None:
    add_template(cluster)
    add_pod(cluster, status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "mine"}]})
    cluster.add("ResourceClaim", "mine")
    cluster.settle(sync_pod())
    assert len(cluster.all("ResourceClaim")) == 2
    assert cluster.get("Pod", "p")["status"]["resourceClaimStatuses"][0]["resourceClaimName"] != "mine"


def test_a_missing_template_is_an_event_and_is_tried_again(cluster: Any) -> None:
    add_pod(cluster)
    step = cluster.settle(sync_pod())
    assert "not found" in step.problem
    [event] = cluster.events
    assert (event.type, event.reason) == ("Warning", "FailedResourceClaimCreation")
    assert event.message.startswith('PodResourceClaim gpu: resource claim template "t":')
    add_template(cluster)
    put = Put("ResourceClaimTemplate", cluster.typed("ResourceClaimTemplate", "t"))
    assert claims.keys(put, cluster.snapshot, cluster.snapshot) == [("pod", "default", "p")]


QUIET: dict[str, Any] = {
    "an entry that names a claim": {"entries": [{"name": "gpu", "resourceClaimName": "shared"}]},
    "an entry that needs no claim": {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}},
    "a pod being deleted": {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}},
    "a finished pod": {"status": {"phase": "Succeeded"}},
}


@pytest.mark.parametrize("case", QUIET)
def test_nothing_is_made_for(cluster: Any, case: str) -> None:
    add_template(cluster)
    add_pod(cluster, **QUIET[case])
    cluster.settle(sync_pod())
    assert cluster.all("ResourceClaim") == []


def test_a_scheduling_gate_does_not_hold_claims_back(cluster: Any) -> None:
    add_template(cluster)
    add_pod(cluster, spec={"schedulingGates": [{"name": "wait"}]})
    cluster.settle(sync_pod())
    assert len(cluster.all("ResourceClaim")) == 1


NAMES = {
    "short": ("p", "gpu", "p-gpu-"),
    "exactly 57": ("p" * 40, "g" * 15, "p" * 40 + "-" + "g" * 15 + "-"),
    "58 is cut in proportion and loses the last hyphen": ("p" * 40, "g" * 16, "p" * 39 + "-" + "g" * 15),
    "a long pod name": ("p" * 253, "gpu", "p" * 55 + "-"),
}


@pytest.mark.parametrize("case", NAMES)
def test_generated_names(case: str) -> None:
    consumer, entry, expected = NAMES[case]
    assert claims.generate_name(consumer, entry) == expected


@given(st.integers(1, 253), st.integers(1, 63))
def test_generated_names_leave_room_for_the_suffix(consumer: int, entry: int) -> None:
    assert 2 <= len(claims.generate_name("p" * consumer, "e" * entry)) <= 58


# ---- PodGroups


def test_a_group_gets_the_claim_and_its_pods_record_it(cluster: Any) -> None:
    add_template(cluster)
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    group = cluster.add("PodGroup", "g", spec={"resourceClaims": [entry]})
    add_pod(cluster, entries=[entry], spec={"schedulingGroup": {"podGroupName": "g"}})
    cluster.settle(sync_pod())
    assert cluster.all("ResourceClaim") == []
    cluster.settle(lambda world: claims.sync(world, ("group", "default", "g")), sync_pod())
    [claim] = cluster.all("ResourceClaim")
    assert claim["metadata"]["ownerReferences"] == owner(group, "PodGroup", "scheduling.k8s.io/v1beta1")
    expected = [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]
    assert cluster.get("PodGroup", "g")["status"]["resourceClaimStatuses"] == expected
    assert cluster.get("Pod", "p")["status"]["resourceClaimStatuses"] == expected


def test_a_groups_reservation_stays_until_the_group_is_gone(cluster: Any) -> None:
    group = cluster.add("PodGroup", "g", metadata={"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["x"]})
    uid = group["metadata"]["uid"]
    entry = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}
    allocated(cluster, "c")
    cluster.edit("ResourceClaim", "c", {"status": {"reservedFor": [entry]}})
    cluster.settle(sync_claim("c"))
    assert cluster.get("ResourceClaim", "c")["status"]["reservedFor"] == [entry]
    cluster.remove("PodGroup", "g")
    cluster.settle(sync_claim("c"))
    assert "allocation" not in cluster.get("ResourceClaim", "c")["status"]


def test_a_claim_that_a_group_names_is_looked_at_when_the_group_goes(cluster: Any) -> None:
    entry = {"name": "gpu", "resourceClaimName": "named"}
    cluster.add("PodGroup", "g", spec={"resourceClaims": [entry]})
    before = cluster.world.snapshot
    cluster.remove("PodGroup", "g")
    gone = Gone("PodGroup", "default", "g")
    assert ("claim", "default", "named") in claims.keys(gone, before, cluster.world.snapshot)


# ---- reserving


def test_a_pod_that_came_past_the_scheduler_is_reserved_for(cluster: Any) -> None:
    allocated(cluster, "c")
    p = add_pod(cluster, entries=[{"name": "gpu", "resourceClaimName": "c"}], spec={"nodeName": "n"})
    cluster.settle(sync_pod())
    assert cluster.get("ResourceClaim", "c")["status"]["reservedFor"] == reserved(p)


def test_an_unallocated_claim_is_left_alone(cluster: Any) -> None:
    cluster.add("ResourceClaim", "c")
    add_pod(cluster, entries=[{"name": "gpu", "resourceClaimName": "c"}], spec={"nodeName": "n"})
    cluster.settle(sync_pod())
    assert cluster.effects == []


# ---- the way back


DONE: dict[str, Any] = {
    "succeeded": {"status": {"phase": "Succeeded"}},
    "failed": {"status": {"phase": "Failed"}},
    "deleted before it was scheduled": {
        "metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    },
}
KEPT: dict[str, Any] = {
    "running": {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}},
    "deleted as far as we asked for it, perhaps on a node by now": {
        "metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"},
    },
    "deleted but still on its node": {
        "spec": {"nodeName": "n"},
        "metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"},
    },
}


@pytest.mark.parametrize("case", DONE)
def test_the_last_pod_gives_the_devices_of_a_users_claim_back(cluster: Any, case: str) -> None:
    allocated(cluster, "c", add_pod(cluster, **DONE[case]))
    cluster.settle(sync_claim("c"))
    claim = cluster.get("ResourceClaim", "c")
    assert claim["status"] == {}
    assert "finalizers" not in claim["metadata"]


@pytest.mark.parametrize("case", KEPT)
def test_a_pod_keeps_its_claim_while_it_is(cluster: Any, case: str) -> None:
    allocated(cluster, "c", add_pod(cluster, **KEPT[case]))
    cluster.settle(sync_claim("c"))
    assert cluster.effects == []


def test_a_generated_claim_goes_with_its_finished_pod_in_order(cluster: Any) -> None:
    p = add_pod(cluster, status={"phase": "Succeeded"})
    allocated(cluster, "c", p, ownerReferences=owner(p))
    cluster.settle(sync_claim("c"))
    assert not cluster.has("ResourceClaim", "c")
    first, second, third = cluster.effects
    assert first.patch == {"status": {"reservedFor": None, "allocation": None, "devices": None}}
    assert second.patch == {"metadata": {"finalizers": None}}
    assert isinstance(third, Delete)
    assert first.resource_version
    assert first.ref.uid


def test_of_two_pods_only_the_finished_ones_entry_goes(cluster: Any) -> None:
    done = add_pod(cluster, "done", status={"phase": "Failed"})
    running = add_pod(cluster, "running", spec={"nodeName": "n"})
    allocated(cluster, "c", done, running)
    cluster.settle(sync_claim("c"))
    claim = cluster.get("ResourceClaim", "c")
    assert claim["status"]["reservedFor"] == reserved(running)
    assert claim["status"]["allocation"] == ALLOCATION
    assert claim["metadata"]["finalizers"] == [FINALIZER]


def test_a_pod_of_the_same_name_is_another_one(cluster: Any) -> None:
    old = add_pod(cluster)
    allocated(cluster, "c", old)
    cluster.remove("Pod", "p")
    add_pod(cluster)
    cluster.settle(sync_claim("c"))
    assert cluster.get("ResourceClaim", "c")["status"] == {}


def test_a_pod_that_only_the_api_knows_is_asked_for(cluster: Any) -> None:
    p = add_pod(cluster)
    cluster.remove("Pod", "p")
    allocated(cluster, "c", p)
    step = claims.sync(cluster.world, ("claim", "default", "c"))
    assert [str(ref) for ref in step.asks] == ["Pod default/p"]
    assert step.effects == ()
    import msgspec

    known = msgspec.structs.replace(cluster.world, answers={step.asks[0]: p["metadata"]["uid"]})
    assert claims.sync(known, ("claim", "default", "c")) == claims.NOTHING
    seen_deleted = msgspec.structs.replace(cluster.world, gone={p["metadata"]["uid"]})
    assert len(claims.sync(seen_deleted, ("claim", "default", "c")).effects) == 2


def test_others_reservations_are_theirs(cluster: Any) -> None:
    allocated(cluster, "c")
    entry = {"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "u"}
    cluster.edit("ResourceClaim", "c", {"status": {"reservedFor": [entry]}})
    cluster.settle(sync_claim("c"))
    assert cluster.effects == []


def test_an_allocation_without_reservations_stays(cluster: Any) -> None:
    allocated(cluster, "c")
    cluster.settle(sync_claim("c"))
    assert cluster.get("ResourceClaim", "c")["status"]["allocation"] == ALLOCATION


def test_a_deleted_claim_is_freed_once_nobody_uses_it(cluster: Any) -> None:
    p = add_pod(cluster, spec={"nodeName": "n"})
    allocated(cluster, "c", p)
    cluster.delete("ResourceClaim", "c")
    cluster.settle(sync_claim("c"))
    assert cluster.has("ResourceClaim", "c")
    cluster.edit("Pod", "p", {"status": {"phase": "Succeeded"}})
    cluster.settle(sync_claim("c"))
    assert not cluster.has("ResourceClaim", "c")
    # allocated, deleted, nobody's
    allocated(cluster, "d")
    cluster.delete("ResourceClaim", "d")
    cluster.settle(sync_claim("d"))
    assert not cluster.has("ResourceClaim", "d")


def test_a_claim_whose_pod_is_not_known_is_left_to_the_garbage_collector(cluster: Any) -> None:
    p = add_pod(cluster)
    cluster.add("ResourceClaim", "c", metadata={"ownerReferences": owner(p)})
    cluster.remove("Pod", "p")
    cluster.settle(sync_claim("c"))
    assert cluster.effects == []


def test_an_extended_resource_claim_goes_with_its_pod(cluster: Any) -> None:
    p = cluster.add(
        "Pod", "p", status={"phase": "Succeeded", "extendedResourceClaimStatus": {"resourceClaimName": "x"}}
    )
    before = cluster.snapshot
    put = Put("Pod", cluster.typed("Pod", "p"))
    assert claims.keys(put, before, cluster.snapshot) == [("claim", "default", "x"), ("pod", "default", "p")]
    allocated(cluster, "x", p, ownerReferences=owner(p))
    cluster.settle(sync_claim("x"))
    assert not cluster.has("ResourceClaim", "x")


# ---- which keys


def test_a_deleted_pod_wakes_its_claims_and_a_bare_one_nobody(cluster: Any) -> None:
    add_pod(cluster, entries=[{"name": "a", "resourceClaimName": "c"}])
    cluster.add("Pod", "bare", spec={})
    before = cluster.snapshot
    cluster.remove("Pod", "p")
    gone = Gone("Pod", "default", "p")
    assert claims.keys(gone, before, cluster.snapshot) == [("claim", "default", "c"), ("pod", "default", "p")]
    assert claims.keys(Gone("Pod", "default", "bare"), before, before) == []


def test_a_claim_made_twice_goes_with_its_pod_too(cluster: Any) -> None:
    p = add_pod(
        cluster, status={"phase": "Succeeded", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a"}]}
    )
    for name in ("a", "b"):
        cluster.add("ResourceClaim", name, metadata={"ownerReferences": owner(p)})
    put = Put("Pod", cluster.typed("Pod", "p"))
    found = claims.keys(put, cluster.snapshot, cluster.snapshot)
    assert found == [("claim", "default", "a"), ("claim", "default", "b"), ("pod", "default", "p")]


def test_a_claim_wakes_its_users_and_its_owner(cluster: Any) -> None:
    add_template(cluster)
    p = add_pod(cluster)
    add_pod(cluster, "user", entries=[{"name": "a", "resourceClaimName": "c"}])
    cluster.add("ResourceClaim", "c", metadata={"ownerReferences": owner(p)})
    put = Put("ResourceClaim", cluster.typed("ResourceClaim", "c"))
    found = claims.keys(put, cluster.snapshot, cluster.snapshot)
    assert found == [("claim", "default", "c"), ("pod", "default", "user"), ("pod", "default", "p")]


def test_a_template_made_claim_is_one_write_at_a_time(cluster: Any) -> None:
    add_template(cluster)
    add_pod(cluster)
    step = claims.sync(cluster.world, ("pod", "default", "p"))
    assert [type(effect) for effect in step.effects] == [Create]


def test_a_claim_that_the_server_refuses_is_said_on_the_pod(cluster: Any) -> None:
    add_template(cluster)
    add_pod(cluster)
    world = cluster.world
    create = claims.sync(world, ("pod", "default", "p")).effects[0]
    refused = 'resourceclaims is forbidden: User "c" cannot create resource "resourceclaims"'
    (event,) = claims.write_events(world, ("pod", "default", "p"), create, None, refused)
    assert isinstance(event, Emit)
    assert (event.type, event.reason) == ("Warning", "FailedResourceClaimCreation")
    assert event.message == f"PodResourceClaim gpu: failed to create ResourceClaim: {refused}"
    assert claims.write_events(world, ("pod", "default", "p"), create, {"metadata": {}}, "") == ()
