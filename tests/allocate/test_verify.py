"""The checker finds what is wrong with an allocation that was tampered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dragoman.allocate.allocator import Allocation, Ask, allocate
from dragoman.allocate.refusal import PoolInvalid, Refusals
from dragoman.allocate.verify import verify
from dragoman.api.resource import DeviceRequestAllocationResult
from dragoman.snapshot.change import Snapshot
from dragoman.values.quantity import Quantity
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

Result = DeviceRequestAllocationResult
RULED = {"value": "9", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "4"}}}
OBJECTS = [
    node(),
    node("n2"),
    device_class(),
    resource_slice(
        [
            device("a", attrs={"x": 1}),
            device("b", attrs={"x": 1}),
            device("other", attrs={"x": 2}),
            device("held", attrs={"x": 1}),
            device("tainted", attrs={"x": 1}, taints=[{"key": "k", "effect": "NoSchedule"}]),
            device("drain", attrs={"x": 1}, consumesCounters=[draws(mem=9)]),
            device("ruled", attrs={"x": 1}, allowMultipleAllocations=True, capacity={"mem": RULED}),
            device("shared", attrs={"x": 1}, allowMultipleAllocations=True, capacity={"mem": {"value": "4"}}),
        ],
        count=2,
    ),
    resource_slice(name="s2", count=2, devices=None, sharedCounters=[counter_set(mem=8)]),
    resource_slice([device("far")], pool="p2", name="s3", nodeName="n2"),
    held("held"),
]
WANTED = claim(
    wants("r", 2, select=f"device.attributes['{DRIVER}'].x == 1"),
    constraints=[{"matchAttribute": f"{DRIVER}/x"}],
)


def change(index: int, **fields: Any) -> Callable[[list[Result]], list[Result]]:
    def tampered(results: list[Result]) -> list[Result]:
        return [msgspec.structs.replace(r, **fields) if i == index else r for i, r in enumerate(results)]

    return tampered


TAMPERED: dict[str, tuple[Callable[[list[Result]], list[Result]], str]] = {
    "one device too few": (lambda results: results[:1], "count"),
    "one device twice": (lambda results: [results[0], results[0]], "twice"),
    "a device that does not exist": (change(1, device="none"), "device"),
    "a device of another node": (change(1, pool="p2", device="far"), "device"),
    "a device that does not match": (change(1, device="other"), "selector"),
    "a device that breaks the constraint": (change(1, device="other"), "constraint"),
    "a held device": (change(1, device="held"), "held"),
    "a tainted device": (change(1, device="tainted"), "taint"),
    "too much of a counter": (change(1, device="drain"), "counter"),
    "a shared device without a share": (change(1, device="shared"), "share"),
    "too much of a capacity": (
        change(1, device="shared", share_id="s", consumed_capacity={"mem": Quantity.parse("5")}),
        "capacity",
    ),
    "one unit more of a capacity than its policy allows": (
        change(1, device="ruled", share_id="s", consumed_capacity={"mem": Quantity.parse("5")}),
        "capacity",
    ),
    "admin access that nobody asked for": (change(0, admin_access=True), "admin"),
    "a request that does not exist": (change(0, request="q"), "request"),
}


@pytest.mark.parametrize("sentence", TAMPERED)
def test_tampering_is_found(sentence: str) -> None:
    tamper, rule = TAMPERED[sentence]
    snapshot = Snapshot.from_objects(OBJECTS)
    asks = [Ask((WANTED,), "n1")]
    answer = allocate(snapshot, asks, options(), share_id=ids())
    assert isinstance(answer, Allocation)
    assert verify(snapshot, asks, answer, options().gates) == ()
    right = answer.results[0][0]
    devices = msgspec.structs.replace(right.devices, results=tuple(tamper(list(right.devices.results))))
    wrong = Allocation(((msgspec.structs.replace(right, devices=devices),),))
    assert rule in {found.rule for found in verify(snapshot, asks, wrong, options().gates)}


def test_a_local_device_must_bind_the_claim_to_its_node() -> None:
    snapshot = Snapshot.from_objects(OBJECTS)
    asks = [Ask((WANTED,), "n1")]
    answer = allocate(snapshot, asks, options(), share_id=ids())
    assert isinstance(answer, Allocation)
    anywhere = Allocation(((msgspec.structs.replace(answer.results[0][0], node_selector=None),),))
    assert {found.rule for found in verify(snapshot, asks, anywhere, options().gates)} == {"node"}


def test_all_devices_are_those_of_pools_that_are_not_obsolete() -> None:
    old = resource_slice([device("old")], name="s3", pool="moving", nodeName="n1", generation=1, count=2)
    new = resource_slice([device("new")], name="s2", pool="moving", nodeName="n2", generation=2)
    answer = run([resource_slice([device("a")]), old, new], claim(wants(every=True)))
    assert given(answer) == ["r=p1/a"]


def test_without_its_gate_a_slice_with_per_device_nodes_is_on_no_node() -> None:
    both = [
        resource_slice([device("gpu-7", allNodes=True)], name="s1", count=2, perDeviceNodeSelection=True),
        resource_slice([device("gpu-7")], name="s2", count=2),
    ]
    answer = run(both, claim(wants()), DRAPartitionableDevices=False, DRADeviceCompatibilityGroups=False)
    assert given(answer) == ["r=p1/gpu-7"]
    again = run(both, claim(wants()))
    assert isinstance(again, Refusals)
    assert [type(reason) for reason in again.reasons if isinstance(reason, PoolInvalid)]
