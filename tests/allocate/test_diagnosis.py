"""A refusal carries the facts: who, what, how many. The decisive reason first, the whole story when asked."""

from __future__ import annotations

from typing import Any

from dragoman.allocate import refusal
from dragoman.allocate.allocator import AllocatorOptions, Ask, SearchLimits, diagnose
from dragoman.allocate.refusal import Dropped, Refusals, Undecided
from dragoman.api.resource import ResourceClaim
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import DeviceId, Holder
from tests.allocate.shortforms import (
    DRIVER,
    asked,
    claim,
    device,
    draws,
    first_of,
    held,
    node,
    options,
    resource_slice,
    rule,
    run,
    wants,
)
from tests.allocate.shortforms import counter_set as counters
from tests.allocate.shortforms import device_class as a_class


def reasons(objects: list[tuple[str, Any]], *claims: ResourceClaim, **gates: bool) -> tuple[refusal.Refusal, ...]:
    answer = run(objects, *claims, **gates)
    assert isinstance(answer, Refusals)
    return answer.reasons


def reported(objects: list[tuple[str, Any]], wanted: ResourceClaim) -> tuple[refusal.Refusal, ...]:
    snapshot = Snapshot.from_objects([node(), a_class(), *objects])
    return diagnose(snapshot, Ask((wanted,), "n1"), options())


def test_too_few_counts_each_step() -> None:
    devices = [
        device("other", attrs={"a": 2}),
        device("held", attrs={"a": 1}),
        device("tainted", attrs={"a": 1}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        device("free", attrs={"a": 1}),
    ]
    (fact,) = reasons(
        [resource_slice(devices), held("held")], claim(wants(count=2, select=f"device.attributes['{DRIVER}'].a == 1"))
    )
    assert fact == refusal.InsufficientDevices(
        claim="default/c",
        request="r",
        class_name="gpu",
        requested=2,
        dropped=Dropped(seen=4, selector=1, held=1, taint=1, available=1),
        node="n1",
    )
    assert isinstance(fact, refusal.InsufficientDevices)
    assert fact.dropped.matched == 3


def test_a_failing_selector_names_the_attribute_and_how_many_lack_it() -> None:
    objects = [resource_slice([device("a"), device("b"), device("c", attrs={"type": "gpu"})])]
    gpu = a_class(text=f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'")
    fact, *_ = reasons([*objects, gpu], claim(wants(count=2)))
    assert isinstance(fact, refusal.SelectorError)
    assert (fact.class_name, fact.index, fact.attribute) == ("gpu", 0, f"{DRIVER}/type")
    assert (fact.lacking, fact.seen, fact.device) == (2, 3, DeviceId(DRIVER, "p1", "a"))


def test_a_constraint_that_cannot_be_met_lists_the_values() -> None:
    devices = [device(name, attrs={"numa": numa}) for name, numa in (("a", 0), ("b", 0), ("c", 1))] + [device("d")]
    wanted = claim(wants(count=3), constraints=[{"matchAttribute": f"{DRIVER}/numa"}])
    assert reasons([resource_slice(devices)], wanted) == (
        refusal.ConstraintUnsatisfied(
            claim="default/c",
            index=0,
            kind="match",
            attribute=f"{DRIVER}/numa",
            requests=("r",),
            requested=3,
            values=(("0", 2), ("1", 1)),
            missing=1,
            node="n1",
        ),
    )


def test_requests_that_fit_alone_are_named_together() -> None:
    wanted = [claim(wants(count=2)), claim(wants("q", count=2), name="d")]
    (fact,) = reasons([resource_slice([device(n) for n in "abc"])], *wanted)
    assert fact == refusal.RequestsContended(
        requests=(("default/c", "r"), ("default/d", "q")), requested=4, available=3, node="n1"
    )


def test_a_missing_class_names_one_that_is_near() -> None:
    (fact,) = reasons(
        [a_class("gpu.example.com")], claim({"name": "r", "exactly": {"deviceClassName": "gpu.example.con"}})
    )
    assert isinstance(fact, refusal.ClassNotFound)
    assert fact.near == ("gpu.example.com",)


def test_a_selector_that_does_not_compile_is_the_pods_fault() -> None:
    answer = run([resource_slice([device("a")])], claim(first_of("r", asked(), asked(select="noSuchVar"))))
    assert isinstance(answer, Refusals)
    assert answer.pod_wide
    (fact,) = answer.reasons
    assert isinstance(fact, refusal.SelectorInvalid)
    assert (fact.request, fact.index, fact.expression) == ("r/s1", 0, "noSuchVar")
    assert "undeclared reference to 'noSuchVar'" in fact.error


def test_the_diagnosis_says_why_each_device_is_not_given() -> None:
    devices = [
        device("wrong", attrs={"model": "x"}),
        device("taken", attrs={"model": "y"}),
        device("bad", attrs={"model": "y"}),
        device("small", attrs={"model": "y"}, allowMultipleAllocations=True, capacity={"mem": {"value": "2Gi"}}),
        device("short", attrs={"model": "y"}, consumesCounters=[draws(mem=5)]),
        device("user", attrs={"model": "y"}, consumesCounters=[draws(mem=4)]),
    ]
    objects = [
        resource_slice(devices, count=2),
        resource_slice(name="s2", count=2, devices=None, sharedCounters=[counters(mem=8)]),
        held("taken", claim_name="theirs"),
        held("user"),
        held("small", shareID="one", consumedCapacity={"mem": "1536Mi"}),
        rule("drain", {"device": "bad"}, key="drain", effect="NoExecute"),
    ]
    wanted = claim(wants(select=f"device.attributes['{DRIVER}'].model == 'y'"))
    facts = {type(fact).__name__: fact for fact in reported(objects, wanted)}
    assert set(facts) == {
        "InsufficientDevices",
        "SelectorFalse",
        "DeviceInUse",
        "DeviceTainted",
        "InsufficientCapacity",
        "InsufficientCounter",
    }
    unmatched, taint = facts["SelectorFalse"], facts["DeviceTainted"]
    assert isinstance(unmatched, refusal.SelectorFalse)
    assert unmatched.attributes == ((f"{DRIVER}/model", "x"),)
    assert isinstance(taint, refusal.DeviceTainted)
    assert (taint.key, taint.effect, taint.rule) == ("drain", "NoExecute", "drain")
    capacity, counter = facts["InsufficientCapacity"], facts["InsufficientCounter"]
    assert isinstance(capacity, refusal.InsufficientCapacity)
    assert (str(capacity.available), str(capacity.consumed), str(capacity.total)) == ("512Mi", "2Gi", "2Gi")
    assert isinstance(counter, refusal.InsufficientCounter)
    assert (counter.counter_set, counter.counter, str(counter.available), str(counter.requested)) == (
        "set",
        "mem",
        "4",
        "5",
    )
    holders = [fact.holders for fact in reported(objects, wanted) if isinstance(fact, refusal.DeviceInUse)]
    assert (Holder("others", "theirs", "", "r"),) in holders


def test_the_diagnosis_of_what_is_not_refused_is_empty() -> None:
    assert reported([resource_slice([device("a")])], claim(wants())) == ()


def test_bad_pools_are_named_beside_the_reason() -> None:
    objects = [resource_slice([device("a")], count=2), resource_slice([device("b"), device("b")], pool="p2", name="s2")]
    few, incomplete, invalid = reasons(objects, claim(wants()))
    assert isinstance(few, refusal.InsufficientDevices)
    assert few.dropped.bad_pool == 3
    assert isinstance(incomplete, refusal.PoolIncomplete)
    assert (incomplete.slices, incomplete.resource_slice_count) == (1, 2)
    assert isinstance(invalid, refusal.PoolInvalid)
    assert (invalid.what, invalid.names) == ("duplicate device", ("b",))


def test_running_out_of_steps_is_not_a_no() -> None:
    from dragoman.allocate.allocator import Allocation, allocate

    devices = [device(f"d{i}", attrs={"a": i % 3, "b": i % 5}) for i in range(20)]
    constraints = [{"distinctAttribute": f"{DRIVER}/b", "requests": ["x"]}, {"matchAttribute": f"{DRIVER}/a"}]
    snapshot = Snapshot.from_objects([node(), a_class(), resource_slice(devices)])
    wanted = claim(wants("x", 2), wants("y", 5), constraints=constraints)
    few = AllocatorOptions(limits=SearchLimits(search_steps=3))
    answer = allocate(snapshot, [Ask((wanted,), "n1")], few, share_id=lambda: "")
    assert isinstance(answer, Undecided)
    assert answer.steps > 3
    full = allocate(snapshot, [Ask((wanted,), "n1")], AllocatorOptions(), share_id=lambda: "")
    assert isinstance(full, Allocation)


def test_every_refusal_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in refusal.Fact.__subclasses__()]
    assert len(set(codes)) == len(codes)
    assert all(kind.code == kind.__name__ for kind in refusal.Fact.__subclasses__())
