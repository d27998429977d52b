"""Owners and what goes with them; namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.effects import Delete, Patch
from dragoman.reconcile import garbage, namespaces
from dragoman.snapshot.change import Gone, Put


def owned(cluster: Any, kind: str, name: str, *owners: Any, block: bool = True, **meta: Any) -> Any:
    refs = [
        {
            "apiVersion": o["apiVersion"],
            "kind": o["kind"],
            "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": block,
        }
        for o in owners
    ]
    return cluster.add(kind, name, metadata={"ownerReferences": refs, **meta})


def collect(cluster: Any) -> None:
    """Look at every object until nothing is left to do."""
    for _ in range(50):
        done = len(cluster.effects)
        for uid in [o["metadata"]["uid"] for o in list(cluster.objects.values())]:
            step = garbage.sync(cluster.world, uid)
            while step.asks:
                import msgspec

                answers = {ref: cluster._uid(ref) for ref in step.asks}
                step = garbage.sync(msgspec.structs.replace(cluster.world, answers=answers), uid)
            cluster.carry_out(step.effects)
        if len(cluster.effects) == done:
            return
    raise AssertionError("never settled")


def tree(cluster: Any, **meta: Any) -> tuple[Any, Any, Any]:
    deployment = cluster.add("Deployment", "d", metadata=meta)
    rs = owned(cluster, "ReplicaSet", "rs", deployment)
    return deployment, rs, owned(cluster, "Pod", "p", rs)


def left(cluster: Any) -> list[str]:
    return sorted(name for _, _, name in cluster.objects)


def test_everything_below_a_deleted_owner_goes(cluster: Any) -> None:
    tree(cluster)
    cluster.add("Pod", "free")
    collect(cluster)
    assert left(cluster) == ["d", "free", "p", "rs"]
    cluster.delete("Deployment", "d")
    collect(cluster)
    assert left(cluster) == ["free"]


def test_in_the_foreground_the_owner_goes_last(cluster: Any) -> None:
    tree(cluster)
    cluster.delete("Deployment", "d", propagation="Foreground")
    assert left(cluster) == ["d", "p", "rs"]
    order: list[str] = []
    for _ in range(10):
        before = left(cluster)
        for uid in [o["metadata"]["uid"] for o in list(cluster.objects.values())]:
            cluster.carry_out(garbage.sync(cluster.world, uid).effects)
            order += [name for name in before if name not in left(cluster)]
            before = left(cluster)
    assert order == ["p", "rs", "d"]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_circle_of_owners_does_not_keep_itself(cluster: Any, size: int) -> None:
    made = [cluster.add("ConfigMap", f"m{number}") for number in range(size)]
    for at, obj in enumerate(made):
        owner = made[at - 1]["metadata"]
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
        patch = {"metadata": {"ownerReferences": [{**ref, "controller": True, "blockOwnerDeletion": True}]}}
        cluster.edit("ConfigMap", obj["metadata"]["name"], patch)
    cluster.delete("ConfigMap", "m0", propagation="Foreground")
    collect(cluster)
    assert left(cluster) == []


def test_a_dependent_that_does_not_block_is_not_waited_for(cluster: Any) -> None:
    deployment = cluster.add("Deployment", "d")
    owned(cluster, "Pod", "p", deployment, block=False, finalizers=["x"])
    cluster.delete("Deployment", "d", propagation="Foreground")
    collect(cluster)
    assert left(cluster) == ["p"]
    assert cluster.get("Pod", "p")["metadata"]["deletionTimestamp"]


def test_orphans_lose_their_owner_and_stay(cluster: Any) -> None:
    tree(cluster)
    cluster.delete("Deployment", "d", propagation="Orphan")
    collect(cluster)
    assert left(cluster) == ["p", "rs"]
    assert "ownerReferences" not in cluster.get("ReplicaSet", "rs")["metadata"]


def test_one_owner_left_is_enough(cluster: Any) -> None:
    a, b = cluster.add("ConfigMap", "a"), cluster.add("ConfigMap", "b")
    owned(cluster, "Secret", "s", a, b)
    cluster.delete("ConfigMap", "a")
    collect(cluster)
    assert [o["name"] for o in cluster.get("Secret", "s")["metadata"]["ownerReferences"]] == ["b"]
    cluster.delete("ConfigMap", "b")
    collect(cluster)
    assert left(cluster) == []


def test_an_owner_that_is_not_known_is_asked_for(cluster: Any) -> None:
    rs = cluster.add("ReplicaSet", "rs")
    pod = owned(cluster, "Pod", "p", rs)
    cluster.remove("ReplicaSet", "rs")
    step = garbage.sync(cluster.world, pod["metadata"]["uid"])
    assert [str(ref) for ref in step.asks] == ["ReplicaSet default/rs"]
    import msgspec

    there = msgspec.structs.replace(cluster.world, answers={step.asks[0]: rs["metadata"]["uid"]})
    assert garbage.sync(there, pod["metadata"]["uid"]) == garbage.NOTHING
    another = msgspec.structs.replace(cluster.world, answers={step.asks[0]: "another incarnation"})
    [effect] = garbage.sync(another, pod["metadata"]["uid"]).effects
    assert isinstance(effect, Delete)
    assert effect.ref.uid
    assert effect.resource_version
    seen = msgspec.structs.replace(cluster.world, gone={rs["metadata"]["uid"]})
    assert garbage.sync(seen, pod["metadata"]["uid"]).effects == (effect,)


KEPT: dict[str, dict[str, str]] = {
    "a kind that we do not know": {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u"},
    "a known kind of another group": {"apiVersion": "example.com/v1", "kind": "Pod", "name": "w", "uid": "u"},
}


@pytest.mark.parametrize("case", KEPT)
def test_what_cannot_be_looked_up_is_kept(cluster: Any, case: str) -> None:
    cluster.add("ConfigMap", "c", metadata={"ownerReferences": [KEPT[case]]})
    collect(cluster)
    assert left(cluster) == ["c"]


def test_an_owner_of_another_namespace_does_not_count(cluster: Any) -> None:
    owner = cluster.add("ConfigMap", "c", "elsewhere")
    owned(cluster, "Secret", "s", owner)
    collect(cluster)
    assert left(cluster) == ["c"]


def test_a_node_owns_across_scopes(cluster: Any) -> None:
    node = cluster.add("Node", "n")
    owned(cluster, "ResourceSlice", "s", node)
    cluster.delete("Node", "n")
    collect(cluster)
    assert left(cluster) == []


def test_which_changes_wake_whom(cluster: Any) -> None:
    deployment, rs, pod = tree(cluster)
    world = cluster.world
    put = Put("Pod", cluster.typed("Pod", "p"))
    assert garbage.keys(put, world, world) == []  # a change that is none of our business
    assert garbage.keys(put, type(world)(world.snapshot, type(world.ownership).empty(), 0), world) == [
        pod["metadata"]["uid"]
    ]
    cluster.remove("ReplicaSet", "rs")
    assert garbage.keys(Gone("ReplicaSet", "default", "rs"), world, cluster.world) == [pod["metadata"]["uid"]]
    cluster.delete("Deployment", "d", propagation="Foreground")
    put = Put("Deployment", cluster.typed("Deployment", "d"))
    assert garbage.keys(put, world, cluster.world) == [deployment["metadata"]["uid"]]
    assert rs["metadata"]["uid"] not in cluster.ownership.by_uid


# ---- namespaces


def sync(name: str = "team", root_ca: str = "PEM") -> Any:
    return lambda world: namespaces.sync(world, name, root_ca)


def test_a_namespace_gets_its_account_and_the_ca(cluster: Any) -> None:
    cluster.add("Namespace", "team")
    cluster.settle(sync())
    assert cluster.has("ServiceAccount", "default", "team")
    assert cluster.get("ConfigMap", "kube-root-ca.crt", "team")["data"] == {"ca.crt": "PEM"}
    before = cluster.world
    cluster.remove("ServiceAccount", "default", "team")
    assert namespaces.keys(Gone("ServiceAccount", "team", "default"), before, cluster.world) == ["team"]
    cluster.settle(sync())
    assert cluster.has("ServiceAccount", "default", "team")


def deleted_kinds(cluster: Any) -> set[str]:
    return {e.ref.kind for e in namespaces.sync(cluster.world, "team").effects if isinstance(e, Delete)}


def test_a_namespace_ends_its_pods_before_what_they_use(cluster: Any) -> None:
    cluster.add("Namespace", "team", metadata={"deletionTimestamp": "2027-01-01T00:00:00Z"})
    cluster.add("ConfigMap", "used", "team")
    cluster.add("Pod", "a", "team", metadata={"finalizers": ["example.com/x"]})
    assert deleted_kinds(cluster) == {"Pod"}
    cluster.delete("Pod", "a", "team")
    assert deleted_kinds(cluster) == set(), "the pod is still ending"
    cluster.edit("Pod", "a", {"metadata": {"finalizers": None}}, "team")
    assert deleted_kinds(cluster) == {"ConfigMap"}


def test_a_deleted_namespace_empties_itself_then_loses_its_finalizer(cluster: Any) -> None:
    cluster.add("Namespace", "team", metadata={"deletionTimestamp": "2027-01-01T00:00:00Z"})
    cluster.add("Pod", "a", "team")
    cluster.add("Pod", "b", "team", metadata={"finalizers": ["example.com/x"]})
    cluster.add("Pod", "c", "other")
    first = namespaces.sync(cluster.world, "team")
    assert [(e.ref.kind, e.ref.namespace, e.ref.name) for e in first.effects if isinstance(e, Delete)] == [
        ("Pod", "team", "")
    ]
    cluster.delete("Pod", "a", "team")
    cluster.delete("Pod", "b", "team")
    step = namespaces.sync(cluster.world, "team")
    [reported] = step.effects
    assert isinstance(reported, Patch)
    true = {c["type"]: c["message"] for c in reported.patch["status"]["conditions"] if c["status"] == "True"}
    assert true == {
        "NamespaceDeletionContentFailure": "Failed to delete all resource types, 1 remaining: unexpected items still "
        "remain in namespace: team for gvr: /v1, Resource=pods",
        "NamespaceContentRemaining": "Some resources are remaining: pods has 1 resource instances",
        "NamespaceFinalizersRemaining": "Some content in the namespace has finalizers remaining: example.com/x in 1 "
        "resource instances",
    }
    assert step.again_s
    cluster.carry_out(step.effects)
    assert namespaces.sync(cluster.world, "team").effects == ()
    before = cluster.world
    cluster.remove("Pod", "b", "team")
    assert namespaces.keys(Gone("Pod", "team", "b"), before, cluster.world) == ["team"]
    last = namespaces.sync(cluster.world, "team").effects
    assert isinstance(last[-1], Patch)
    assert (last[-1].subresource, last[-1].patch) == ("finalize", {"spec": {"finalizers": []}})
    swept = {e.ref.kind for e in last[:-1] if isinstance(e, Delete)}
    assert {"Pod", "Event", "ResourceClaim"} <= swept
    assert all(kind_of(kind).namespaced for kind in swept)
