"""A snapshot is a value: what a change touches changes, with all indexes, and old snapshots stay as they were."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.codec import decode
from dragoman.api.core import Node, Pod
from dragoman.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from dragoman.errors import Bug
from dragoman.snapshot.change import Gone, Put, Snapshot, apply, keys_of
from dragoman.snapshot.usage import DeviceId

DRIVER = "gpu.example.com"


def node(name: str) -> Put:
    return Put("Node", decode(Node, {"metadata": {"name": name}}))


def pod(name: str, on: str = "", *, claims: list[dict[str, Any]] | None = None, phase: str = "", cpu: str = "1") -> Put:
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": on,
            "resourceClaims": claims or [],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase, "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "made-x"}]},
    }
    return Put("Pod", decode(Pod, body))


def claim(name: str, *results: dict[str, Any], owner: str = "") -> Put:
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": owner}]
    full = [{"request": "r", "driver": DRIVER, "pool": "n1", **result} for result in results]
    status = {"allocation": {"devices": {"results": full}}} if results else {}
    return Put("ResourceClaim", decode(ResourceClaim, {"metadata": meta, "status": status}))


def resource_slice(name: str, *devices: str, on: str | None = "n1", pool: str = "n1", **attrs: str) -> Put:
    made = [{"name": d, "attributes": {k: {"string": v} for k, v in attrs.items()}} for d in devices]
    where = {"nodeName": on} if on else {"allNodes": True}
    spec = {"driver": DRIVER, "pool": {"name": pool, "resourceSliceCount": 1}, "devices": made, **where}
    return Put("ResourceSlice", decode(ResourceSlice, {"metadata": {"name": name}, "spec": spec}))


def grown(*changes: Any, base: Snapshot | None = None) -> Snapshot:
    snapshot = base or Snapshot.empty()
    for change in changes:
        snapshot = apply(snapshot, change)
    return snapshot


def test_old_snapshots_stay_as_they_were() -> None:
    before = grown(node("n1"))
    after = apply(before, Gone("Node", "", "n1"))
    assert (len(before.nodes), len(after.nodes)) == (1, 0)
    assert after.version == before.version + 1


def test_deleting_what_is_not_there_changes_nothing() -> None:
    snapshot = grown(node("n1"))
    assert apply(snapshot, Gone("Pod", "default", "none")) is snapshot


def test_a_kind_that_is_not_held_is_a_bug() -> None:
    with pytest.raises(Bug, match="Secret"):
        apply(Snapshot.empty(), Gone("Secret", "default", "s"))


def test_pods_are_found_by_node_and_by_claim() -> None:
    direct, made = {"name": "x", "resourceClaimName": "direct"}, {"name": "made", "resourceClaimTemplateName": "t"}
    snapshot = grown(pod("a", "n1", claims=[direct]), pod("b", "n1", claims=[made]), pod("c", claims=[direct]))
    assert keys_of(snapshot.pods_by_node, "n1") == (("default", "a"), ("default", "b"))
    assert keys_of(snapshot.pods_by_claim, ("default", "direct")) == (("default", "a"), ("default", "c"))
    assert keys_of(snapshot.pods_by_claim, ("default", "made-x")) == (("default", "b"),)
    assert keys_of(grown(Gone("Pod", "default", "a"), base=snapshot).pods_by_node, "n1") == (("default", "b"),)


def test_requests_are_summed_by_node_until_a_pod_finishes() -> None:
    snapshot = grown(pod("a", "n1"), pod("b", "n1", cpu="500m"))
    assert dict(snapshot.requested["n1"]) == {"cpu": 1_500_000_000, "pods": 2_000_000_000}
    snapshot = grown(pod("a", "n1", phase="Succeeded"), base=snapshot)
    assert dict(snapshot.requested["n1"]) == {"cpu": 500_000_000, "pods": 1_000_000_000}
    assert "n1" not in grown(Gone("Pod", "default", "b"), base=snapshot).requested


def test_a_device_has_a_set_of_holders() -> None:
    device = DeviceId(DRIVER, "n1", "gpu-0")
    snapshot = grown(claim("a", {"device": "gpu-0"}), claim("b", {"device": "gpu-0"}))
    assert [holder.claim for holder in snapshot.holders[device]] == ["a", "b"]
    snapshot = grown(claim("a"), base=snapshot)
    assert [holder.claim for holder in snapshot.holders[device]] == ["b"]
    assert not grown(Gone("ResourceClaim", "default", "b"), base=snapshot).holders


def test_admin_access_holds_nothing() -> None:
    assert not grown(claim("a", {"device": "gpu-0", "adminAccess": True})).holders


def test_claims_are_found_by_owner() -> None:
    assert keys_of(grown(claim("a", owner="u1"), claim("b")).claims_by_owner, "u1") == (("default", "a"),)


def test_slices_are_found_by_pool_and_node() -> None:
    snapshot = grown(resource_slice("s1", "a"), resource_slice("s2", "b", on=None, pool="net"))
    assert keys_of(snapshot.slices_by_pool, (DRIVER, "net")) == ("s2",)
    assert keys_of(snapshot.slices_by_node, "n1") == ("s1",)
    assert keys_of(snapshot.slices_by_node, "") == ("s2",)
    assert list(snapshot.wide_pools) == [(DRIVER, "net")]


# ---- what can be told apart


def equivalent(*changes: Any) -> bool:
    snapshot = grown(node("n1"), node("n2"), *changes)
    return snapshot.views["n1"].base is snapshot.views["n2"].base


def two(name: str = "gpu-0", **attrs: tuple[str, str]) -> list[Put]:
    first, second = ({k: v[i] for k, v in attrs.items()} for i in (0, 1))
    return [resource_slice("s1", name, **first), resource_slice("s2", name, on="n2", pool="n2", **second)]


def test_nodes_with_equal_slices_are_equivalent() -> None:
    assert equivalent(*two(model=("x", "x")))
    assert not equivalent(*two(model=("x", "y")))


def test_identifiers_are_kept_apart_from_what_nodes_have_in_common() -> None:
    ids = ("GPU-11111111-0000", "GPU-22222222-0000")
    snapshot = grown(node("n1"), node("n2"), *two(uuid=ids))
    one, other = snapshot.views["n1"], snapshot.views["n2"]
    assert one.base is other.base
    assert one.key(frozenset({(DRIVER, "model")})) is other.key(frozenset({(DRIVER, "model")}))
    assert one.key(None) is other.key(None)
    assert one.rare == {(DRIVER, "uuid")}
    assert one.shapes[0].columns[DRIVER, "uuid"] is not other.shapes[0].columns[DRIVER, "uuid"]


def test_a_held_device_makes_a_difference_and_its_release_takes_it_away() -> None:
    held = claim("a", {"device": "gpu-0"})
    assert not equivalent(*two(), held)
    assert equivalent(*two(), held, claim("a"))


def test_a_taint_rule_makes_a_difference() -> None:
    spec = {"deviceSelector": {"pool": "n1"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    rule = Put("DeviceTaintRule", decode(DeviceTaintRule, {"metadata": {"name": "t"}, "spec": spec}))
    assert not equivalent(*two(), rule)
    assert equivalent(*two(), rule, Gone("DeviceTaintRule", "", "t"))


def test_a_change_names_the_nodes_it_touches() -> None:
    snapshot = grown(node("n1"), node("n2"), *two())
    assert apply(snapshot, claim("a", {"device": "gpu-0"})).recent[-1].nodes == {"n1"}
    assert apply(snapshot, pod("p", "n1")).recent[-1].nodes == frozenset()
