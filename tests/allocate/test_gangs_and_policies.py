"""Several asks share one ledger; a policy changes what is tried first and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.allocate import refusal
from dragoman.allocate.allocator import Allocation, AllocatorOptions, Ask, Policy, allocate, survey
from dragoman.allocate.refusal import Refusals
from dragoman.errors import Invalid
from dragoman.snapshot.change import Snapshot
from tests.allocate.shortforms import (
    DRIVER,
    claim,
    counter_set,
    device,
    device_class,
    draws,
    given,
    held,
    ids,
    node,
    options,
    resource_slice,
    run,
    wants,
)

FABRIC = resource_slice([device("f0"), device("f1")], pool="fabric", name="fabric", allNodes=True)


def cluster(*more: tuple[str, object]) -> Snapshot:
    return Snapshot.from_objects([node("n1"), node("n2"), device_class(), *more])


def test_two_asks_do_not_get_the_same_network_device() -> None:
    asks = [Ask((claim(wants(), name="a"),), "n1"), Ask((claim(wants(), name="b"),), "n2")]
    answer = allocate(cluster(FABRIC), asks, share_id=ids())
    assert isinstance(answer, Allocation)
    assert [row[0].devices.results[0].device for row in answer.results] == ["f0", "f1"]


def test_all_or_nothing_over_the_asks() -> None:
    asks = [Ask((claim(wants(count=2), name="a"),), "n1"), Ask((claim(wants(), name="b"),), "n2")]
    answer = allocate(cluster(FABRIC), asks, share_id=ids())
    assert isinstance(answer, Refusals)
    assert [reason.code for reason in answer.reasons] == ["RequestsContended"]


def test_a_claim_shared_by_two_nodes_gets_what_both_reach() -> None:
    shared = claim(wants(), name="shared")
    local = resource_slice([device("a")], pool="a", name="a")
    answer = allocate(cluster(local, FABRIC), [Ask((shared,), "n1"), Ask((shared,), "n2")], share_id=ids())
    assert isinstance(answer, Allocation)
    assert answer.results[0] == answer.results[1]
    assert answer.results[0][0].devices.results[0].device == "f0"


def test_a_claim_shared_by_two_nodes_is_refused_without_such_a_device() -> None:
    shared = claim(wants(), name="shared")
    local = resource_slice([device("a")], pool="a", name="a")
    answer = allocate(cluster(local), [Ask((shared,), "n1"), Ask((shared,), "n2")], share_id=ids())
    assert isinstance(answer, Refusals)
    assert isinstance(answer.reasons[0], refusal.InsufficientDevices)


def test_an_unknown_node_is_refused() -> None:
    answer = allocate(cluster(), [Ask((claim(wants()),), "n9")], share_id=ids())
    assert answer == Refusals((refusal.NodeNotFound(node="n9"),))


def test_pack_keeps_whole_devices_whole() -> None:
    devices = [
        device("g0-half-0", attrs={"kind": "half"}, consumesCounters=[draws("g0", mem=2)]),
        device("g0-half-1", attrs={"kind": "half"}, consumesCounters=[draws("g0", mem=2)]),
        device("g1-half-0", attrs={"kind": "half"}, consumesCounters=[draws("g1", mem=2)]),
        device("g1-half-1", attrs={"kind": "half"}, consumesCounters=[draws("g1", mem=2)]),
    ]
    sets = [counter_set("g0", mem=4), counter_set("g1", mem=4)]
    objects = [
        resource_slice(devices, count=2),
        resource_slice(name="s2", count=2, devices=None, sharedCounters=sets),
        held("g1-half-0"),
    ]
    assert given(run(objects, claim(wants()))) == ["r=p1/g0-half-0"]
    assert given(run(objects, claim(wants()), policy="pack")) == ["r=p1/g1-half-1"]


def test_pack_takes_the_least_capable_device_and_breaks_no_pair() -> None:
    def gpu(name: str, root: str, size: str) -> dict[str, object]:
        attrs = {"resource.kubernetes.io/pcieRoot": root}
        return device(name, attrs=attrs, capacity={"mem": {"value": size}})

    objects = [
        resource_slice(
            [gpu("big", "r0", "80Gi"), gpu("a", "r1", "40Gi"), gpu("b", "r1", "40Gi"), gpu("lone", "r2", "40Gi")]
        )
    ]
    assert given(run(objects, claim(wants()), policy="pack")) == ["r=p1/lone"]


def test_pack_fills_the_shared_device_in_use() -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"mem": {"value": "4"}}}
    objects = [
        resource_slice([device("a", **shared), device("b", **shared)]),
        held("b", shareID="x", consumedCapacity={"mem": "1"}),
    ]
    wanted = claim(wants(capacity={"requests": {"mem": "1"}}))
    assert given(run(objects, wanted)) == ["r=p1/a"]
    assert given(run(objects, wanted, policy="pack")) == ["r=p1/b"]


def test_pack_leaves_devices_out_on_which_a_selector_fails_and_warns() -> None:
    objects = [resource_slice([device("a"), device("b", attrs={"x": 1})])]
    wanted = claim(wants(select=f"device.attributes['{DRIVER}'].x == 1"))
    answer = run(objects, wanted, policy="pack")
    assert given(answer) == ["r=p1/b"]
    assert isinstance(answer, Allocation)
    assert [warning.code for warning in answer.warnings] == ["SelectorError"]


def test_pack_prefers_the_fullest_node() -> None:
    snapshot = cluster(
        resource_slice([device("a"), device("b")], pool="n1", name="n1", nodeName="n1"),
        resource_slice([device("a"), device("b")], pool="n2", name="n2", nodeName="n2"),
        held("a", "n2"),
    )
    found = survey(snapshot, [claim(wants())], options(policy="pack"))
    assert not isinstance(found, Refusals)
    assert min(found.classes, key=lambda node_class: node_class.rank()).nodes == ["n2"]


def test_a_policy_of_ones_own() -> None:
    last = Policy("last", weigh=lambda candidate, topology, demand: (-candidate.device_state.position,))
    snapshot = cluster(resource_slice([device("a"), device("b")]))
    answer = allocate(snapshot, [Ask((claim(wants()),), "n1")], AllocatorOptions(policy=last), share_id=ids())
    assert given(answer) == ["r=p1/b"]


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match="first-fit, pack"):
        allocate(cluster(), [Ask((claim(wants()),), "n1")], AllocatorOptions(policy="best"), share_id=ids())


def test_claims_of_other_names_share_what_was_found_but_not_the_names() -> None:
    from dragoman.allocate.allocator import AllocationCache

    snapshot, memory = cluster(), AllocationCache()
    for name in ("a", "b"):
        found = survey(snapshot, [msgspec.structs.replace(claim(wants(), name=name))], memory=memory)
        assert not isinstance(found, Refusals)
        (refused,) = found.classes
        assert refused.refusals is not None
        fact = refused.refusals.reasons[0]
        assert isinstance(fact, refusal.InsufficientDevices)
        assert fact.claim == f"default/{name}"
