"""Nodes that differ in identifiers alone: in one class as far as selectors make nothing of it, else not."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.allocator import AllocationCache, Survey, survey
from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.snapshot.change import Put, Snapshot, apply
from tests.allocate.shortforms import DRIVER, claim, device, device_class, ids, node, options, resource_slice, wants

NODES = 6


def cluster(**more: Any) -> list[tuple[str, Any]]:
    objects = [device_class()]
    for n in range(NODES):
        devices = [
            device(f"d{i}", attributes={"uuid": {"string": f"GPU-0000-0000-{n}-{i}"}, "model": {"string": "m"}}, **more)
            for i in range(2)
        ]
        objects += [node(f"n{n}"), resource_slice(devices, name=f"s{n}", pool=f"n{n}", nodeName=f"n{n}")]
    return objects


def classes(objects: list[tuple[str, Any]], *requests: Any, **fields: Any) -> list[tuple[tuple[str, ...], bool]]:
    found = survey(Snapshot.from_objects(objects), [claim(*requests, **fields)], options())
    assert isinstance(found, Survey)
    for one in found.classes:
        if one.fits:
            for name in one.nodes:
                one.allocation_on(name, ids())  # is checked by the independent checker
    return [(tuple(one.nodes), one.fits) for one in found.classes]


ALL = tuple(f"n{n}" for n in range(NODES))
UUID = f"device.attributes['{DRIVER}'].uuid"
READS = {
    "compared with a text that nobody has": (f"{UUID} == 'GPU-none'", [(ALL, False)]),
    "compared with one that somebody has": (
        f"{UUID} == 'GPU-0000-0000-3-1'",
        [(("n0", "n1", "n2", "n4", "n5"), False), (("n3",), True)],
    ),
    "not equal": (f"{UUID} != 'GPU-0000-0000-3-0'", [(("n0", "n1", "n2", "n4", "n5"), True), (("n3",), True)]),
    "one of several": (
        f"{UUID} in ['GPU-0000-0000-1-0', 'GPU-0000-0000-2-0']",
        [(("n0", "n3", "n4", "n5"), False), (("n1", "n2"), True)],
    ),
    "part of it": (f"{UUID}.contains('-2-')", [(("n0", "n1", "n3", "n4", "n5"), False), (("n2",), True)]),
    "by its size": (f"size({UUID}) > 3 && {UUID} != 'x'", [(ALL, True)]),
    "under another name": (f"cel.bind(u, {UUID}, u == 'GPU-0000-0000-0-0')", [(("n0",), True), (ALL[1:], False)]),
    "that it is there": (f"has({UUID})", [(ALL, True)]),
}


@pytest.mark.parametrize("name", READS)
def test_a_selector_reads(name: str) -> None:
    text, expected = READS[name]
    assert classes(cluster(), wants(select=text)) == expected


def test_a_constraint_reads_the_values() -> None:
    found = classes(cluster(), wants(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/uuid"}])
    assert [fits for _, fits in found] == [True] * NODES


def test_a_faulty_device_is_not_judged_in_advance() -> None:
    objects = cluster()
    bad = device("d0", attributes={"uuid": {"string": "GPU-0000-0000-9-0"}, "v": {"version": "none"}})
    objects += [node("n9"), resource_slice([bad], name="s9", pool="n9", nodeName="n9")]
    found = dict(classes(objects, wants(select=f"{UUID} != 'x'")))
    assert found == {ALL: True, ("n9",): False}


def test_a_memory_follows_a_changed_identifier() -> None:
    snapshot, memory = Snapshot.from_objects(cluster()), AllocationCache()
    asked = [claim(wants(select=f"{UUID} == 'GPU-0000-0000-0-0'"))]
    before = survey(snapshot, asked, options(), memory=memory)
    assert isinstance(before, Survey)
    assert [tuple(c.nodes) for c in before.classes if c.fits] == [("n0",)]
    devices = [device("d0", attributes={"uuid": {"string": "GPU-0000-0000-0-0"}}), device("d1")]
    _, changed = resource_slice(devices, name="s4", pool="n4", nodeName="n4")
    after = survey(apply(snapshot, Put("ResourceSlice", changed)), asked, options(), memory=memory)
    assert isinstance(after, Survey)
    assert sorted(name for c in after.classes if c.fits for name in c.nodes) == ["n0", "n4"]


@pytest.mark.parametrize("where", ["own", "wide"])
def test_what_a_node_declares_counts_where_a_slice_skips_node_operations(where: str) -> None:
    able = {"metadata": {"name": "n1"}, "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    objects = [device_class(), node("n0"), ("Node", decode(Node, able))]
    if where == "wide":
        objects.append(resource_slice([device("d0")], skipNodeOperations=["*"], allNodes=True))
    else:
        objects += [
            resource_slice([device("d0")], name=name, pool=name, nodeName=name, skipNodeOperations=["*"])
            for name in ("n0", "n1")
        ]
    assert classes(objects, wants()) == [(("n0",), False), (("n1",), True)]
