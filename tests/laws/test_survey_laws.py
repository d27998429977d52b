"""A survey with a memory that follows the snapshots says what a fresh question on each node says."""

from __future__ import annotations

import itertools
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.allocate.allocator import Allocation, AllocationCache, AllocatorOptions, Ask, Survey, allocate, survey
from dragoman.allocate.refusal import Refusals
from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.api.gates import gates_with
from dragoman.api.resource import DeviceTaintRule, ResourceClaim
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply
from tests.laws.worlds import SHARE, cluster, snapshot_of

OPTIONS = AllocatorOptions(gates=gates_with({"DRAListTypeAttributes": True})[0])


NUMBERS = itertools.count(10**10)


def ids():
    return lambda: SHARE.format(next(NUMBERS))


def devices(answer: Allocation) -> list[list[tuple[str, str, str, str]]]:
    return [[(r.request, r.driver, r.pool, r.device) for r in a.devices.results] for a in answer.results[0]]


def agrees(snapshot: Snapshot, claims: list[ResourceClaim], memory: AllocationCache) -> list[tuple[str, Allocation]]:
    """Compares the survey with one question a node; returns the possible allocations."""
    found = survey(snapshot, claims, OPTIONS, memory=memory)
    alone = {name: allocate(snapshot, [Ask(tuple(claims), name)], OPTIONS, share_id=ids()) for name in snapshot.nodes}
    assert isinstance(found, Survey)
    assert sorted(name for c in found.classes for name in c.nodes) == sorted(snapshot.nodes)
    possible = []
    for node_class in found.classes:
        for name in node_class.nodes:
            answer = alone[name]
            assert node_class.fits == isinstance(answer, Allocation)
            if isinstance(answer, Allocation):
                mine = node_class.allocation_on(name, ids())
                assert devices(mine) == devices(answer)
                assert mine.chosen == answer.chosen == node_class.chosen
                possible.append((name, mine))
            else:
                assert isinstance(answer, Refusals)
                assert node_class.refusals is not None
                assert [r.code for r in node_class.refusals.reasons] == [r.code for r in answer.reasons]
    return possible


def next_change(draw: Random, snapshot: Snapshot, possible: list[tuple[str, Allocation]], number: int) -> Change:
    """Something that happens in a cluster."""
    what = draw.choice(["allocate", "allocate", "release", "rule", "unrule", "node", "slice"])
    if what == "allocate" and possible:
        name, allocation = draw.choice(possible)
        body = {
            "metadata": {"name": f"given-{number}", "namespace": "others"},
            "status": {"allocation": {"devices": {"results": []}}},
        }
        claim = decode(ResourceClaim, body)
        return Put("ResourceClaim", _with_results(claim, allocation))
    if what == "release" and snapshot.claims:
        return Gone("ResourceClaim", *draw.choice(sorted(snapshot.claims)))
    if what == "rule":
        selector = {"driver": draw.choice(["a.example", "b.example"])}
        if draw.random() < 0.5:
            selector["pool"] = f"pool-{draw.randint(0, 3)}-0"
        spec = {"deviceSelector": selector, "taint": {"key": "k1", "value": "v", "effect": "NoSchedule"}}
        return Put("DeviceTaintRule", decode(DeviceTaintRule, {"metadata": {"name": f"rule-{number}"}, "spec": spec}))
    if what == "unrule" and snapshot.taint_rules:
        return Gone("DeviceTaintRule", "", draw.choice(sorted(snapshot.taint_rules)))
    if what == "slice" and snapshot.slices:
        return Gone("ResourceSlice", "", draw.choice(sorted(snapshot.slices)))
    name = f"node-{draw.randint(0, 5)}"
    return Put("Node", decode(Node, {"metadata": {"name": name, "labels": {"n": str(number)}}}))


def _with_results(claim: ResourceClaim, allocation: Allocation) -> ResourceClaim:
    results = tuple(r for a in allocation.results[0] for r in a.devices.results)
    first = allocation.results[0][0] if allocation.results[0] else None
    if first is None:
        return claim
    merged = msgspec.structs.replace(first, devices=msgspec.structs.replace(first.devices, results=results))
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=merged))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**40))
def test_a_survey_agrees_with_single_questions_while_things_change(seed: int) -> None:
    objects, claims = cluster(seed)
    snapshot = snapshot_of(objects)
    memory = AllocationCache()
    draw = Random(seed)
    for number in range(8):
        possible = agrees(snapshot, claims, memory)
        snapshot = apply(snapshot, next_change(draw, snapshot, possible, number))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**40))
def test_a_snapshot_grown_by_changes_equals_one_made_at_once(seed: int) -> None:
    objects, _ = cluster(seed)
    snapshot = Snapshot.empty()
    for kind, value in objects:
        snapshot = apply(snapshot, Put(kind, value))
    at_once = snapshot_of(objects)
    for field in Snapshot.__struct_fields__:
        if field in ("version", "wide_state", "recent", "shapes", "views"):
            continue
        assert getattr(snapshot, field) == getattr(at_once, field), field
    assert {n: v.base for n, v in snapshot.views.items()} == {n: v.base for n, v in at_once.views.items()}
    for kind, value in objects:
        snapshot = apply(snapshot, Gone(kind, value.metadata.namespace, value.metadata.name))
    for field in Snapshot.__struct_fields__:
        if field not in ("version", "wide_state", "recent"):
            assert len(getattr(snapshot, field)) == 0, field
