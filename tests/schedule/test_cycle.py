"""Decisions for units: places, writes in order with preconditions, waits, refusals, taking back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, get_args

import msgspec
import pytest

from dragoman.allocate.allocator import AllocatorOptions, SearchLimits
from dragoman.allocate.refusal import InsufficientDevices, Refusal
from dragoman.api.gates import gates_with
from dragoman.effects import Bind, Create, Delete, Patch
from dragoman.schedule import refusal
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide, unit_of
from dragoman.schedule.decision import Decision, undo
from dragoman.snapshot.change import Put, Snapshot, apply_all
from dragoman.testing.build import (
    claim,
    device,
    device_class,
    gpus,
    manifest,
    node,
    pod,
    pool,
    request,
    snapshot_of,
    template,
    typed,
)

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GPU = device_class()


def context(**changes: Any) -> SchedulingContext:
    numbers = count()
    return SchedulingContext(new_id=lambda: f"{next(numbers):08d}-0000-4000-8000-000000000000", **changes)


def decided(snapshot: Snapshot, name: str = "p", using: SchedulingContext | None = None) -> Decision:
    using = using or context()
    return decide(snapshot, unit_of(snapshot, snapshot.pods["default", name], using.gates), NOW, using)


def follow(snapshot: Snapshot, decision: Decision, using: SchedulingContext) -> Snapshot:
    return apply_all(snapshot, decision.assumed)


def devices(decision: Decision) -> list[str]:
    return [r.device for p in decision.placements for _, a in p.allocations for r in a.devices.results]


def versioned(made: dict[str, Any], version: str, uid: str) -> dict[str, Any]:
    made["metadata"] |= {"resourceVersion": version, "uid": uid}
    return made


# ---- one pod


def test_a_pod_with_a_claim_is_allocated_reserved_and_bound_in_that_order() -> None:
    snapshot = snapshot_of(node("a"), gpus("a", 2), GPU, versioned(claim("c"), "7", "uid-c"), pod("p", "c"))
    decision = decided(snapshot)
    finalizer, status, binding = decision.effects
    assert isinstance(finalizer, Patch)
    assert finalizer.patch == {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    assert (finalizer.ref.uid, finalizer.resource_version, finalizer.subresource) == ("uid-c", "7", "")
    assert isinstance(status, Patch)
    assert (status.ref.uid, status.resource_version, status.subresource) == ("uid-c", "7", "status")
    allocation = status.patch["status"]["allocation"]
    assert allocation["devices"]["results"][0] == {
        "request": "gpu",
        "driver": "gpu.example.com",
        "pool": "a",
        "device": "gpu-0",
    }
    assert allocation["allocationTimestamp"] == "2026-01-01T12:00:00Z"
    assert status.patch["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    assert isinstance(binding, Bind)
    assert (binding.pod.uid, binding.node) == ("uid-p", "a")
    after = apply_all(snapshot, decision.assumed)
    assert after.pods["default", "p"].spec.node_name == "a"
    assert after.claims["default", "c"].status.allocation is not None
    assert decision.written == (("default", "c"),)


def test_a_pod_without_claims_goes_to_the_emptiest_node_and_by_name_among_equals() -> None:
    nodes = [node(name, cpu="4", memory="8Gi") for name in ("b", "a", "c")]
    snapshot = snapshot_of(*nodes, pod("r", cpu="1", nodeName="a"), pod("p", cpu="1"))
    assert [p.node for p in decided(snapshot).placements] == ["b"]


def test_pods_of_one_template_fill_the_first_node_then_the_next() -> None:
    objects = [node("a"), node("b"), gpus("a", 2), gpus("b", 2), GPU]
    for i in range(5):
        objects += [claim(f"c{i}"), pod(f"p{i}", f"c{i}")]
    snapshot = snapshot_of(*objects)
    using = context()
    places = []
    for i in range(5):
        decision = decided(snapshot, f"p{i}", using)
        snapshot = follow(snapshot, decision, using)
        places += [(p.node, d) for p in decision.placements for d in devices(decision)]
    assert places == [("a", "gpu-0"), ("a", "gpu-1"), ("b", "gpu-0"), ("b", "gpu-1")]


def test_node_checks_and_devices_must_hold_on_the_same_node() -> None:
    snapshot = snapshot_of(
        node("devices", cpu="1"), node("room", cpu="8"), gpus("devices", 1), GPU, claim("c"), pod("p", "c", cpu="4")
    )
    (refused,) = decided(snapshot).refused
    found = {some.nodes: [type(r).__name__ for r in some.reasons] for some in refused.nodes}
    assert found == {("devices",): ["InsufficientResource"], ("room",): ["InsufficientDevices"]}


def test_the_first_alternative_attracts() -> None:
    alternatives = [
        {
            "name": "big",
            "deviceClassName": "gpu.example.com",
            "selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].size == 2"}}],
        },
        {"name": "small", "deviceClassName": "gpu.example.com"},
    ]
    snapshot = snapshot_of(
        node("a"),
        node("b"),
        pool("a", [device("x", size=1)], node="a"),
        pool("b", [device("y", size=2)], node="b"),
        GPU,
        claim("c", {"name": "r", "firstAvailable": alternatives}),
        pod("p", "c"),
    )
    assert devices(decided(snapshot)) == ["y"]


def test_a_second_pod_joins_an_allocated_claim_where_its_devices_are() -> None:
    objects = [node("a"), node("b"), gpus("b", 1), GPU, claim("c"), pod("p", "c"), pod("q", "c")]
    using = context()
    snapshot = snapshot_of(*objects)
    first = decided(snapshot, "p", using)
    snapshot = follow(snapshot, first, using)
    second = decided(snapshot, "q", using)
    assert [p.node for p in second.placements] == ["b"]
    status, binding = second.effects
    assert isinstance(status, Patch)
    assert [entry["name"] for entry in status.patch["status"]["reservedFor"]] == ["p", "q"]
    assert "allocation" not in status.patch["status"]
    assert isinstance(binding, Bind)
    assert second.placements[0].allocations == ()


def test_a_claim_being_written_is_waited_for() -> None:
    snapshot = snapshot_of(node("a"), gpus("a", 1), GPU, claim("c"), pod("p", "c"))
    decision = decided(snapshot, using=context(in_flight={("default", "c")}))
    assert decision.refused[0].reasons == (refusal.ClaimInFlight("c"),)
    assert ("ResourceClaim", "default", "c") in decision.topics


def test_too_few_devices_are_reported_with_numbers_and_waited_for() -> None:
    snapshot = snapshot_of(node("a"), gpus("a", 3), GPU, claim("c", count=4), pod("p", "c"))
    decision = decided(snapshot)
    assert decision.effects == ()
    (some,) = decision.refused[0].nodes
    (reason,) = some.reasons
    assert isinstance(reason, InsufficientDevices)
    assert (reason.requested, reason.dropped.matched, reason.dropped.held) == (4, 3, 0)
    assert {("devices",), ("freed",), ("nodes",)} <= decision.topics


def test_a_pod_that_is_bound_finished_or_gone_needs_nothing() -> None:
    snapshot = snapshot_of(node("a"), pod("p", nodeName="a"), pod("d", status={"phase": "Failed"}))
    for name in ("p", "d"):
        assert decided(snapshot, name).effects == ()
    assert decide(snapshot, SchedulingUnit(("Pod", "default", "x"), (("default", "x"),)), NOW, context()).effects == ()


def test_gates_hold_a_pod_back() -> None:
    snapshot = snapshot_of(node("a"), pod("p", schedulingGates=[{"name": "quota"}]))
    assert decided(snapshot).refused[0].reasons == (refusal.SchedulingGated(("quota",)),)


def test_a_cluster_without_nodes_says_so() -> None:
    assert decided(snapshot_of(pod("p"))).refused[0].reasons == (refusal.NoNodes(),)


def test_what_a_selector_gets_wrong_refuses_the_pod_everywhere() -> None:
    snapshot = snapshot_of(
        node("a"), node("b"), gpus("a", 1), GPU, claim("c", select="device.nonsense("), pod("p", "c")
    )
    (refused,) = decided(snapshot).refused
    assert [type(reason).__name__ for reason in refused.reasons] == ["SelectorInvalid"]
    assert refused.nodes == ()


# ---- idle claims are given up


def allocated_claim(name: str, node_name: str, *reserved: str) -> dict[str, Any]:
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}]
    }
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": node_name, "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
        "reservedFor": [{"resource": "pods", "name": r, "uid": f"uid-{r}"} for r in reserved],
    }
    return versioned(claim(name, status=status), "5", f"uid-{name}")


@pytest.mark.parametrize("reserved", [(), ("p",)])
def test_an_idle_claim_on_a_node_that_cannot_take_the_pod_is_given_up_and_allocated_again(
    reserved: tuple[str, ...],
) -> None:
    snapshot = snapshot_of(
        node("a", cpu="1"), node("b", cpu="8"), gpus("a", 1), gpus("b", 1), GPU,
        allocated_claim("c", "a", *reserved), pod("p", "c", cpu="4"),
    )  # fmt: skip
    using = context()
    decision = decided(snapshot, using=using)
    (release,) = decision.effects
    assert isinstance(release, Patch)
    assert release.patch["status"]["allocation"] is None
    assert release.resource_version == "5"
    assert decision.refused[0].released == "c"
    again = decided(follow(snapshot, decision, using), using=using)
    assert [p.node for p in again.placements] == ["b"]


def test_a_claim_that_others_use_is_never_given_up() -> None:
    snapshot = snapshot_of(
        node("a", cpu="1"), node("b", cpu="8"), gpus("a", 1), gpus("b", 1), GPU,
        allocated_claim("c", "a", "other"), pod("p", "c", cpu="4"),
    )  # fmt: skip
    decision = decided(snapshot)
    assert decision.effects == ()
    found = {some.nodes: some.reasons[0] for some in decision.refused[0].nodes}
    assert found["b",] == refusal.ClaimNotAvailableOnNode("c")


# ---- extended resources


def test_a_pod_that_asks_for_an_extended_resource_gets_a_claim_of_its_own() -> None:
    snapshot = snapshot_of(
        node("a", cpu="4"), gpus("a", 2), device_class(extended="e.com/gpu"), pod("p", extended={"e.com/gpu": "2"})
    )
    decision = decided(snapshot)
    create, status, record, binding = decision.effects
    assert isinstance(create, Create)
    name = create.body["metadata"]["name"]
    assert name.startswith("p-extended-resources-")
    assert create.body["metadata"]["ownerReferences"][0]["uid"] == "uid-p"
    assert create.body["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    assert isinstance(status, Patch)
    assert status.ref.name == name
    assert len(status.patch["status"]["allocation"]["devices"]["results"]) == 2
    assert isinstance(record, Patch)
    assert record.patch["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": name,
        "requestMappings": [
            {"containerName": "main", "resourceName": "e.com/gpu", "requestName": "container-0-request-0"}
        ],
    }
    assert isinstance(binding, Bind)


def test_a_node_with_a_device_plugin_serves_the_resource_itself() -> None:
    snapshot = snapshot_of(
        node("legacy", cpu="4", **{"e.com/gpu": "1"}),
        device_class(extended="e.com/gpu"),
        pod("p", extended={"e.com/gpu": "1"}),
    )
    decision = decided(snapshot)
    assert [type(effect) for effect in decision.effects] == [Bind]
    after = apply_all(snapshot, decision.assumed)
    more = snapshot_of(
        *[node("legacy", cpu="4", **{"e.com/gpu": "1"}), device_class(extended="e.com/gpu")],
        pod("r", extended={"e.com/gpu": "1"}, nodeName="legacy"),
        pod("p", extended={"e.com/gpu": "1"}),
    )
    assert after.pods["default", "p"].spec.node_name == "legacy"
    (some,) = decided(more).refused[0].nodes
    assert isinstance(some.reasons[0], refusal.InsufficientResource)


def test_a_special_claim_of_an_unfinished_attempt_is_removed_first() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    left = claim(
        "p-extended-resources-old",
        metadata={
            "ownerReferences": [owner],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        },
    )
    snapshot = snapshot_of(
        node("a"), gpus("a", 1), device_class(extended="e.com/gpu"), pod("p", extended={"e.com/gpu": "1"}), left
    )
    using = context()
    decision = decided(snapshot, using=using)
    assert [type(effect) for effect in decision.effects] == [Patch, Patch, Delete]
    again = decided(follow(snapshot, decision, using), using=using)
    assert [p.node for p in again.placements] == ["a"]


# ---- gangs

GANGS = AllocatorOptions(gates=gates_with({"GenericWorkload": True})[0])


def gang(minimum: int, *pods: dict[str, Any]) -> list[dict[str, Any]]:
    made = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }
    for member in pods:
        member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return [made, *pods]


def test_a_gang_is_placed_whole_with_all_claims_written_before_anyone_is_bound() -> None:
    pods = [pod(f"p{i}", f"c{i}") for i in range(3)]
    snapshot = snapshot_of(
        node("a"), node("b"), gpus("a", 2), gpus("b", 1), GPU, *[claim(f"c{i}") for i in range(3)], *gang(3, *pods)
    )
    decision = decided(snapshot, "p1", context(options=GANGS))
    assert decision.unit == ("PodGroup", "default", "g")
    assert [p.node for p in decision.placements] == ["a", "a", "b"]
    kinds = [type(effect) for effect in decision.effects]
    assert kinds == [Patch] * 6 + [Bind] * 3


def test_a_gang_that_does_not_fit_whole_writes_nothing() -> None:
    pods = [pod(f"p{i}", f"c{i}") for i in range(3)]
    snapshot = snapshot_of(node("a"), gpus("a", 2), GPU, *[claim(f"c{i}") for i in range(3)], *gang(3, *pods))
    decision = decided(snapshot, "p0", context(options=GANGS))
    assert decision.effects == ()
    assert decision.placements == ()
    assert len(decision.refused) == 3
    assert decision.refused[0].reasons[0] == refusal.PodGroupDoesNotFit("g", 2, 3, "p2")
    assert ("freed",) in decision.topics


def test_a_gang_waits_for_its_pods() -> None:
    snapshot = snapshot_of(node("a"), *gang(2, pod("p0")))
    decision = decided(snapshot, "p0", context(options=GANGS))
    assert decision.refused[0].reasons == (refusal.PodGroupTooSmall("g", 1, 2),)
    assert ("PodGroup", "default", "g") in decision.topics


def test_a_claim_that_the_group_names_is_reserved_for_the_group() -> None:
    group, member = gang(1, pod("p0", "shared"))
    group["metadata"]["uid"] = "group-uid"
    group["spec"]["resourceClaims"] = [member["spec"]["resourceClaims"][0]]
    snapshot = snapshot_of(node("a"), gpus("a", 1), GPU, claim("shared"), group, member)
    decision = decided(snapshot, "p0", context(options=GANGS))
    [status] = [e.patch["status"] for e in decision.effects if isinstance(e, Patch) and e.subresource == "status"]
    expected = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-uid"}
    assert status["reservedFor"] == [expected]


def test_a_claim_that_the_group_names_otherwise_is_the_pods() -> None:
    group, member = gang(1, pod("p0", "shared"))
    group["spec"]["resourceClaims"] = [{"name": "another", "resourceClaimName": "shared"}]
    snapshot = snapshot_of(node("a"), gpus("a", 1), GPU, claim("shared"), group, member)
    decision = decided(snapshot, "p0", context(options=GANGS))
    [status] = [e.patch["status"] for e in decision.effects if isinstance(e, Patch) and e.subresource == "status"]
    assert status["reservedFor"][0]["resource"] == "pods"


@pytest.mark.parametrize("skips", [True, False])
def test_an_allocated_claim_that_skips_node_operations_needs_a_node_that_may(skips: bool) -> None:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    if skips:
        result["skipNodeOperations"] = ["*"]
    held = claim("shared", status={"allocation": {"devices": {"results": [result]}}})
    able = node("b")
    able.setdefault("status", {})["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    snapshot = snapshot_of(node("a"), able, held, pod("p", "shared"))
    decision = decided(snapshot)
    assert [p.node for p in decision.placements] == ["b" if skips else "a"]
    lacking = decided(snapshot_of(node("a"), held, pod("p", "shared")))
    reasons = [reason for some in lacking.refused for n in some.nodes for reason in n.reasons]
    expected = [refusal.ClaimNotAvailableOnNode("shared", "DRAOptionalNodeOperations")] if skips else []
    assert reasons == expected


def test_pods_of_a_gang_share_one_claim_allocated_once() -> None:
    snapshot = snapshot_of(
        node("a"), node("b"), gpus("b", 1), GPU, claim("c"), *gang(2, pod("p0", "c"), pod("p1", "c"))
    )
    decision = decided(snapshot, "p0", context(options=GANGS))
    assert [p.node for p in decision.placements] == ["b", "b"]
    patches = [e for e in decision.effects if isinstance(e, Patch) and e.subresource == "status"]
    assert [[r["name"] for r in p.patch["status"]["reservedFor"]] for p in patches] == [["p0"], ["p0", "p1"]]
    assert decision.written == (("default", "c"),)


# ---- binding conditions


def conditional() -> list[dict[str, Any]]:
    made = device("x") | {"bindingConditions": ["up"], "bindingFailureConditions": ["broken"], "bindsToNode": True}
    return [node("a"), pool("a", [made], node="a"), GPU, versioned(claim("c"), "3", "uid-c"), pod("p", "c")]


def reported(snapshot: Snapshot, *types: str) -> Snapshot:
    held = snapshot.claims["default", "c"]
    status = typed(
        claim(
            "c",
            status={
                "devices": [
                    {
                        "driver": "gpu.example.com",
                        "pool": "a",
                        "device": "x",
                        "conditions": [{"type": t, "status": "True"} for t in types],
                    }
                ]
            },
        )
    ).status
    held = msgspec.structs.replace(held, status=msgspec.structs.replace(held.status, devices=status.devices))
    return apply_all(snapshot, [Put("ResourceClaim", held)])


def test_a_pod_waits_for_binding_conditions_and_is_bound_when_they_hold() -> None:
    snapshot = snapshot_of(*conditional())
    using = context()
    decision = decided(snapshot, using=using)
    assert [type(effect) for effect in decision.effects] == [Patch, Patch]
    (wait,) = decision.waits
    assert wait.node == "a"
    assert wait.deadline == NOW + timedelta(seconds=600)
    snapshot = follow(snapshot, decision, using)
    unit = SchedulingUnit(decision.unit, (), placed=((("default", "p"), "a"),))
    assert decide(snapshot, unit, NOW, using).waits
    bound = decide(reported(snapshot, "up"), unit, NOW, using)
    assert [type(effect) for effect in bound.effects] == [Bind]


def test_failed_or_late_conditions_release_the_claim() -> None:
    snapshot = snapshot_of(*conditional())
    using = context()
    decision = decided(snapshot, using=using)
    snapshot = follow(snapshot, decision, using)
    unit = SchedulingUnit(decision.unit, (), placed=((("default", "p"), "a"),))
    for seen, now in ((reported(snapshot, "up", "broken"), NOW), (snapshot, NOW + timedelta(seconds=600))):
        failed = decide(seen, unit, now, using)
        assert failed.lost
        (release,) = failed.effects
        assert isinstance(release, Patch)
        assert release.patch["status"]["allocation"] is None


# ---- taking back


def answers(decision: Decision) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = []
    for version, effect in enumerate(decision.effects, 100):
        if isinstance(effect, Patch):
            meta = {"name": effect.ref.name, "namespace": effect.ref.namespace, "resourceVersion": str(version)}
            found.append({"metadata": meta})
        elif isinstance(effect, Create):
            found.append({"metadata": {**effect.body["metadata"], "uid": "uid-new", "resourceVersion": str(version)}})
        else:
            found.append(None)
    return found


def test_taking_back_gives_up_what_was_written_at_the_version_it_was_written() -> None:
    snapshot = snapshot_of(
        node("a"),
        gpus("a", 2),
        GPU,
        versioned(claim("c"), "7", "uid-c"),
        allocated_claim("d", "a", "other"),
        pod("p", "c", "d"),
    )
    decision = decided(snapshot)
    written = answers(decision)
    assert undo(decision, []) == ()
    assert undo(decision, written[:1]) == ()  # a finalizer alone stays: the claim controller removes it
    back = undo(decision, written[:3])
    assert [(e.ref.name, e.resource_version, e.patch["status"]) for e in back if isinstance(e, Patch)] == [
        ("d", "102", {"reservedFor": [{"resource": "pods", "name": "other", "uid": "uid-other"}]}),
        ("c", "101", {"allocation": None, "reservedFor": None}),
    ]


def test_taking_back_deletes_a_created_claim() -> None:
    snapshot = snapshot_of(
        node("a"), gpus("a", 1), device_class(extended="e.com/gpu"), pod("p", extended={"e.com/gpu": "1"})
    )
    decision = decided(snapshot)
    back = undo(decision, answers(decision)[:3])
    assert [type(effect).__name__ for effect in back] == ["Patch", "Patch", "Delete"]
    assert isinstance(back[-1], Delete)
    assert back[-1].ref.uid == "uid-new"


# ---- the same answer, whatever is remembered


def test_memory_changes_no_answer() -> None:
    objects = [node(f"n{i}", labels={"zone": "ab"[i % 2]}, cpu=str(4 + i % 3), memory="8Gi") for i in range(6)]
    objects += [gpus(f"n{i}", 2, model="xy"[i % 2]) for i in range(6)] + [GPU]
    for i in range(14):
        objects.append(claim(f"c{i}", select=f"device.attributes['gpu.example.com'].model == '{'xy'[i % 2]}'"))
        selector = {"nodeSelector": {"zone": "a"}} if i % 5 == 0 else {}
        objects.append(pod(f"p{i}", f"c{i}", cpu=str(1 + i % 2), **selector))
    remembering = context()
    snapshot = snapshot_of(*objects)
    for i in range(14):
        fresh = decided(snapshot, f"p{i}")
        known = decided(snapshot, f"p{i}", remembering)
        assert (known.placements, known.refused) == (fresh.placements, fresh.refused)
        snapshot = follow(snapshot, known, remembering)


def test_a_template_that_is_missing_is_named() -> None:
    snapshot = snapshot_of(node("a"), pod("p", templates=["t"]))
    assert decided(snapshot).refused[0].reasons == (refusal.ClaimNotCreated("t", "t", False),)
    assert decided(snapshot_of(node("a"), template("t", request()), pod("p", templates=["t"]))).refused[0].reasons == (
        refusal.ClaimNotCreated("t", "t", True),
    )


def test_devices_of_a_gangs_earlier_pods_are_chosen_again_if_that_lets_a_later_one_fit() -> None:
    # The first pod alone prefers the whole card; both fit only on halves (counters: two slots).
    def part(name: str, slots: str, size: int) -> dict[str, Any]:
        return device(name, size=size) | {
            "consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": slots}}}]
        }

    counters = pool("c", [], node="a", sharedCounters=[{"name": "card", "counters": {"slots": {"value": "2"}}}])
    parts = pool("c", [part("whole", "2", 2), part("half-1", "1", 1), part("half-2", "1", 1)], node="a")
    for resource_slice, name in ((counters, "counters"), (parts, "parts")):
        resource_slice["metadata"]["name"] = name
        resource_slice["spec"]["pool"]["resourceSliceCount"] = 2
    del counters["spec"]["devices"]
    sizes = [
        {
            "name": name,
            "deviceClassName": "gpu.example.com",
            "selectors": [{"cel": {"expression": f"device.attributes['gpu.example.com'].size == {size}"}}],
        }
        for name, size in (("whole", 2), ("half", 1))
    ]
    claims = [claim(f"c{i}", {"name": "r", "firstAvailable": sizes}) for i in range(2)]
    snapshot = snapshot_of(
        node("a"), counters, parts, GPU, *claims, *gang(2, pod("p0", "c0"), pod("p1", "c1")), pod("alone", "c0")
    )
    assert devices(decided(snapshot, "alone")) == ["whole"]
    decision = decided(snapshot, "p0", context(options=GANGS))
    assert devices(decision) == ["half-1", "half-2"]
    assert [type(effect) for effect in decision.effects][-2:] == [Bind, Bind]


def test_pods_that_ask_for_nothing_are_spread_as_if_they_asked_for_a_little() -> None:
    snapshot = snapshot_of(*[node(n, cpu="4", memory="8Gi") for n in "ab"], *[pod(f"p{i}") for i in range(4)])
    using = context()
    places = []
    for i in range(4):
        decision = decided(snapshot, f"p{i}", using)
        snapshot = follow(snapshot, decision, using)
        places += [p.node for p in decision.placements]
    assert places == ["a", "b", "a", "b"]


CLAIM_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a class that is not there": (claim("c", request("r", device_class="none")), "ClassNotFound"),
    "a class of an alternative that is not there": (
        claim("c", {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "none"}]}),
        "ClassNotFound",
    ),
    "a request of a newer API": (claim("c", {"name": "r"}), "UnsupportedRequest"),
    "a selector that is none": (claim("c", select="device.nonsense("), "SelectorInvalid"),
}


@pytest.mark.parametrize("name", CLAIM_FAULTS)
@pytest.mark.parametrize("nodes", [[], [node("a", unschedulable=True)], [node("a")]])
def test_what_is_wrong_with_a_claim_is_reported_whatever_the_nodes_are(name: str, nodes: list[dict[str, Any]]) -> None:
    made, code = CLAIM_FAULTS[name]
    (refused,) = decided(snapshot_of(GPU, made, pod("p", "c"), *nodes)).refused
    assert [type(reason).__name__ for reason in refused.reasons] == [code]


# ---- neither a place nor a no


def hard(*more: dict[str, Any], group: str = "") -> list[dict[str, Any]]:
    """A node whose devices need more than three steps for claim c, and a pod that uses it."""
    devices = [device(f"gpu-{i}", a=i % 3, b=i % 5) for i in range(20)]
    constraints = [{"distinctAttribute": "gpu.example.com/b", "requests": ["x"]}]
    constraints += [{"matchAttribute": "gpu.example.com/a"}]
    wanted = claim("c", request("x", count=2), request("y", count=5), constraints=constraints)
    fields = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return [node("a"), GPU, pool("a", devices, node="a"), wanted, pod("p", "c", **fields), *more]


FEW = AllocatorOptions(limits=SearchLimits(3))


def test_a_search_that_stops_is_no_refusal() -> None:
    snapshot = snapshot_of(*hard(node("b", taints=["k:NoSchedule"])))
    decision = decided(snapshot, using=context(options=FEW))
    assert (decision.refused, decision.placements, decision.effects) == ((), (), ())
    (one,) = decision.undecided
    assert (one.pod, [(some.nodes, some.limit.claims) for some in one.undecided]) == (
        ("default", "p"),
        [(("a",), ("default/c",))],
    )
    assert [some.nodes for some in one.nodes] == [("b",)], "this one refuses for certain"
    assert not isinstance(one.undecided[0].limit, get_args(Refusal)), "the type of reasons has no such member"
    assert decided(snapshot).placements, "with more steps there is a place"


def test_a_search_that_stops_displaces_nobody() -> None:
    low = pod("low", nodeName="a", priority=0)
    objects = hard(low)
    objects[4]["spec"]["priority"] = 100
    decision = decided(snapshot_of(*objects), using=context(options=FEW, preemption="devices"))
    assert (len(decision.undecided), decision.preemption, decision.effects) == (1, None, ())


def test_a_gang_of_which_one_search_stops_is_not_decided() -> None:
    gates, _ = gates_with({"GenericWorkload": True})
    group = manifest("PodGroup", "g", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
    second = pod("q", schedulingGroup={"podGroupName": "g"})
    snapshot = snapshot_of(*hard(group, second, group="g"))
    decision = decided(snapshot, using=context(options=AllocatorOptions(gates=gates, limits=SearchLimits(3))))
    assert (decision.refused, decision.placements, decision.effects) == ((), (), ())
    assert {one.pod[1] for one in decision.undecided} == {"p", "q"}
    assert all(isinstance(one.reasons[0], refusal.PodGroupDoesNotFit) for one in decision.undecided)
