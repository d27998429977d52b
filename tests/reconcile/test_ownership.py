"""Ownership: loaded at once or object by object it is the same."""

from __future__ import annotations

from dragoman.reconcile.ownership import Ownership, apply_all, of_all
from dragoman.reconcile.taints import is_idle
from dragoman.snapshot.change import Put
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod, snapshot_of
from dragoman.whatif.cluster import objects


def test_loaded_at_once_it_is_as_object_by_object() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-p", "controller": True}
    other = {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "u-q"}
    made = [
        pod("p", metadata={"uid": "u-p", "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        claim("c", metadata={"uid": "u-c", "ownerReferences": [owner, other]}),
        claim("d", metadata={"uid": "u-d", "ownerReferences": [other]}),
        claim("bare", metadata={"uid": ""}),
        node("a"),
    ]
    listed = list(objects(snapshot_of(*made)))
    assert of_all(listed) == apply_all(Ownership.empty(), (Put(kind, value) for kind, value in listed))


def test_taints_are_looked_for_where_a_rule_or_a_driver_has_some() -> None:
    plain = gpus("a", 2)
    tainted = gpus("b", 1)
    tainted["spec"]["devices"][0]["taints"] = [{"key": "k", "effect": "NoExecute"}]
    rule = manifest("DeviceTaintRule", "r", spec={"taint": {"key": "k", "effect": "NoExecute"}})
    assert is_idle(snapshot_of(plain, device_class()))
    assert not is_idle(snapshot_of(plain, tainted))
    assert not is_idle(snapshot_of(plain, rule))
