"""Devices that need cpu, memory and the like of their node (KEP-5517), behind its gate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.allocate.allocator import AllocatorOptions
from dragoman.api.gates import gates_with
from dragoman.effects import Bind, Patch
from dragoman.schedule import refusal
from dragoman.schedule.cycle import SchedulingContext, decide
from dragoman.schedule.decision import Decision, undo
from dragoman.schedule.units import SchedulingUnit
from dragoman.snapshot.change import Snapshot, apply_all
from dragoman.testing.build import claim, device, device_class, node, pod, pool, snapshot_of
from dragoman.values.quantity import Quantity

NOW = datetime(2027, 1, 1, tzinfo=UTC)
GIB = 1024**3 * 1_000_000_000
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "10"}


def brings(**resources: Any) -> dict[str, Any]:
    """The device gpu-0 with nodeAllocatableResources."""
    return device("gpu-0", memory_class=1) | {"nodeAllocatableResources": resources}


def memory(amount: str) -> dict[str, Any]:
    return {"mapping": {"deviceMultiplier": amount}}


def world(*objects: Any, gpu: Any = None, **allocatable: str) -> Snapshot:
    gpu = brings(memory=memory("8Gi")) if gpu is None else gpu
    return snapshot_of(
        node("node-a", **(allocatable or ROOM)), device_class(), pool("node-a", [gpu], node="node-a"), *objects
    )


def decided(snapshot: Snapshot, name: str = "p", *, on: bool = True) -> Decision:
    gates, _ = gates_with({"DRANodeAllocatableResources": on})
    context = SchedulingContext(new_id=iter(map(str, range(1000))).__next__, options=AllocatorOptions(gates=gates))
    return decide(snapshot, SchedulingUnit(("Pod", "default", name), (("default", name),)), NOW, context)


def reported(decision: Decision) -> Any:
    """What the pod's status is to say; None if nothing is written."""
    field = "nodeAllocatableResourceClaimStatuses"
    writes = [e for e in decision.effects if isinstance(e, Patch) and e.ref.kind == "Pod"]
    return next((e.patch["status"][field] for e in writes if field in e.patch["status"]), None)


def reasons(decision: Decision) -> list[Any]:
    [refused] = decision.refused
    return [reason for some in refused.nodes for reason in some.reasons]


SHARED = {
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "10Gi"}}},
}
MAPPINGS: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "so much a device": (brings(memory=memory("8Gi")), [{"name": "memory", "quantity": "8Gi"}], []),
    "a multiple of what is consumed": (
        brings(memory={"mapping": {"capacityKey": "memory", "capacityMultiplier": "500m"}}) | SHARED,
        [{"name": "memory", "quantity": "5Gi"}],
        [],
    ),
    "overhead only": (
        brings(cpu={"overhead": {"perPod": "500m", "perContainer": "250m"}}),
        [],
        [{"name": "cpu", "perPod": "500m", "perContainer": "250m"}],
    ),
    "overhead of which only a part is stated": (
        brings(cpu={"overhead": {"perPod": "750m"}}),
        [],
        [{"name": "cpu", "perPod": "750m"}],
    ),
}


@pytest.mark.parametrize("case", MAPPINGS)
def test_what_devices_need_is_written_before_the_binding_and_counts_from_then_on(case: str) -> None:
    gpu, mapping, overhead = MAPPINGS[case]
    snapshot = world(claim("train"), pod("p", "train", cpu="1"), gpu=gpu)
    decision = decided(snapshot)
    [status] = reported(decision)
    assert (status["resourceClaimName"], status["containers"]) == ("train", ["main"])
    assert status.get("mapping", []) == mapping
    assert status.get("overhead", []) == overhead
    assert isinstance(decision.effects[-1], Bind), "told first, then bound"
    after = apply_all(snapshot, decision.assumed)
    used = after.requested["node-a"]
    assert used.get("memory", 0) == sum(Quantity.parse(entry["quantity"]).nanos for entry in mapping)
    assert used["cpu"] == (1_750_000_000 if overhead else 1_000_000_000)


def test_with_the_gate_off_devices_need_nothing() -> None:
    decision = decided(world(claim("train"), pod("p", "train"), cpu="1", memory="1Gi", pods="9"), on=False)
    assert decision.placements
    assert reported(decision) is None


def test_a_node_with_too_little_for_the_devices_refuses() -> None:
    snapshot = world(claim("train"), pod("p", "train", memory="30Gi"))
    [reason] = reasons(decided(snapshot))
    parse = Quantity.parse
    assert reason == refusal.InsufficientResource("memory", parse("38Gi"), parse("32Gi"), parse("32Gi"))
    assert decided(snapshot, on=False).placements


def test_a_node_that_has_room_is_chosen_though_selectors_see_no_difference() -> None:
    small = pool("node-b", [brings(memory=memory("1Gi"))], node="node-b")
    snapshot = world(node("node-b", **ROOM), small, claim("train"), pod("p", "train", memory="30Gi"))
    assert decided(snapshot).placements[0].node == "node-b"


def test_an_allocated_claim_brings_along_the_same() -> None:
    snapshot = world(claim("train"), pod("p", "train"))
    taken = [change for change in decided(snapshot).assumed if change.kind == "ResourceClaim"]
    snapshot = apply_all(snapshot, taken)
    [status] = reported(decided(snapshot))
    assert status["mapping"] == [{"name": "memory", "quantity": "8Gi"}]


@pytest.mark.parametrize(("gpu", "fits"), [("mapping", False), ("overhead", True)])
def test_only_overhead_may_be_shared_between_pods(gpu: str, fits: bool) -> None:
    says = memory("1Gi") if gpu == "mapping" else {"overhead": {"perPod": "1Gi"}}
    snapshot = world(claim("train"), pod("p", "train"), pod("q", "train"), gpu=brings(memory=says))
    snapshot = apply_all(snapshot, decided(snapshot).assumed)
    second = decided(snapshot, "q")
    assert bool(second.placements) is fits
    if not fits:
        assert reasons(second) == [refusal.NodeAllocatableClaimShared("train")]


def test_an_amount_that_the_result_does_not_tell_refuses() -> None:
    gpu = brings(memory={"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}})
    gpu |= {"capacity": {"memory": {"value": "80Gi"}}}
    [reason] = reasons(decided(world(claim("train"), pod("p", "train"), gpu=gpu)))
    assert reason == refusal.NodeAllocatableAmountUnknown("train", "gpu.example.com/node-a/gpu-0", "memory")


@pytest.mark.parametrize(("stated", "fits"), [("9Gi", True), ("8Gi", False)])
def test_pod_level_requests_must_cover_containers_and_devices(stated: str, fits: bool) -> None:
    level = {"requests": {"memory": stated}}
    snapshot = world(claim("train"), pod("p", "train", memory="1Gi", resources=level))
    decision = decided(snapshot)
    if not fits:
        parse = Quantity.parse
        assert reasons(decision) == [refusal.InsufficientPodLevelResource("memory", parse("9Gi"), parse("8Gi"))]
        return
    used = apply_all(snapshot, decision.assumed).requested["node-a"]
    assert used["memory"] == 9 * GIB, "the pod level takes precedence"


def test_a_decision_that_fails_clears_what_it_wrote() -> None:
    decision = decided(world(claim("train"), pod("p", "train")))
    answers = [{"metadata": {"name": "x", "resourceVersion": "7"}} for _ in decision.effects]
    [cleared] = [e for e in undo(decision, answers) if isinstance(e, Patch) and e.ref.kind == "Pod"]
    assert cleared.patch == {"status": {"nodeAllocatableResourceClaimStatuses": None}}


def test_a_special_claim_is_named_in_what_is_written() -> None:
    gpu = brings(memory=memory("8Gi"))
    snapshot = snapshot_of(
        node("node-a", **ROOM),
        device_class(extended="example.com/gpu"),
        pool("node-a", [gpu], node="node-a"),
        pod("p", extended={"example.com/gpu": "1"}),
    )
    decision = decided(snapshot)
    [status] = reported(decision)
    assert status["resourceClaimName"].startswith("p-extended-resources-")
    assert status["containers"] == ["main"]
