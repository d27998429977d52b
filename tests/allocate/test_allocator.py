"""What is given for what, beyond upstream's own cases: rules, corners, and where we differ from upstream on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.allocator import Allocation
from dragoman.allocate.refusal import Refusals
from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.api.resource import ResourceClaim
from tests.allocate.shortforms import (
    DRIVER,
    asked,
    claim,
    counter_set,
    device,
    device_class,
    draws,
    first_of,
    given,
    held,
    node,
    resource_slice,
    rule,
    run,
    wants,
)

MATCH = [{"matchAttribute": f"{DRIVER}/a"}]
DISTINCT = [{"distinctAttribute": f"{DRIVER}/a"}]
TOLERATE = [{"key": "k", "operator": "Exists"}]
TAINT = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
SHARED: dict[str, Any] = {"allowMultipleAllocations": True}
GROUPED = ("g1", "g2"), ("g2",), ("g1",)


def mem(amount: int, **fields: Any) -> dict[str, Any]:
    """A shared device with memory."""
    return {**SHARED, "capacity": {"mem": {"value": str(amount), **fields}}}


def q(amount: int) -> dict[str, Any]:
    return {"capacity": {"requests": {"mem": str(amount)}}}


def counted(*devices: dict[str, Any], **amounts: int) -> list[tuple[str, Any]]:
    """A pool with one counter set in a slice of its own."""
    return [
        resource_slice(list(devices), count=2),
        resource_slice(name="s2", count=2, devices=None, sharedCounters=[counter_set(**amounts)]),
    ]


CASES: dict[str, tuple[list[tuple[str, Any]], list[ResourceClaim], list[str]]] = {
    "a claim without requests is satisfied with nothing": ([resource_slice([device("a")])], [claim()], []),
    "a count of zero reads as one": (
        [resource_slice([device("a"), device("b")])],
        [claim(wants(count=0))],
        ["r=p1/a"],
    ),
    "the first choice is undone for a later request": (
        [resource_slice([device("big", attrs={"a": 2}), device("small", attrs={"a": 1})])],
        [claim(wants("any"), wants("two", select=f"device.attributes['{DRIVER}'].a == 2"))],
        ["any=p1/small", "two=p1/big"],
    ),
    "the first choice is undone for a later claim": (
        [resource_slice([device("big", attrs={"a": 2}), device("small", attrs={"a": 1})])],
        [claim(wants("any")), claim(wants(select=f"device.attributes['{DRIVER}'].a == 2"), name="d")],
        ["any=p1/small", "r=p1/big"],
    ),
    "an earlier request falls back to its next alternative": (
        [resource_slice([device("a"), device("b")])],
        [claim(first_of("r", asked(2), asked(1)), wants("q"))],
        ["r/s1=p1/a", "q=p1/b"],
    ),
    "slices go by name, pools by driver and name": (
        [
            resource_slice([device("x")], pool="p2", name="a"),
            resource_slice([device("y")], name="z", count=2),
            resource_slice([device("w")], name="b", count=2),
        ],
        [claim(wants(count=3))],
        ["r=p1/w", "r=p1/y", "r=p2/x"],
    ),
    "pools with binding conditions come last": (
        [
            resource_slice([device("a", bindingConditions=["x"], bindingFailureConditions=["y"])]),
            resource_slice([device("b")], pool="p2", name="s2"),
        ],
        [claim(wants())],
        ["r=p2/b"],
    ),
    "a slice that names no kind of node is ignored": (
        [resource_slice([device("a")], nowhere=True)],
        [claim(wants())],
        ["!InsufficientDevices"],
    ),
    "more slices than announced make a pool incomplete": (
        [resource_slice([device("a")]), resource_slice([device("b")], name="s2")],
        [claim(wants())],
        ["!InsufficientDevices", "!PoolIncomplete"],
    ),
    "an incomplete pool refuses a request for all, whatever its alternatives": (
        [resource_slice([device("a")], count=2), resource_slice([device("b")], name="s2", pool="p2")],
        [claim(first_of("r", asked(every=True), asked()))],
        ["!PoolIncomplete"],
    ),
    "an obsolete pool is left out": (
        [
            resource_slice([device("a")], count=2),
            resource_slice([device("b")], name="s2", generation=2, count=2, nodeName="n2"),
        ],
        [claim(wants())],
        ["!InsufficientDevices"],
    ),
    "a taint rule without selector taints nothing": (
        [resource_slice([device("a")]), rule("t", None)],
        [claim(wants())],
        ["r=p1/a"],
    ),
    "a taint rule taints what it selects": (
        [resource_slice([device("a"), device("b")]), rule("t", {"pool": "p1", "device": "a"})],
        [claim(wants())],
        ["r=p1/b"],
    ),
    "an empty rule selector taints everything": (
        [resource_slice([device("a")]), rule("t", {})],
        [claim(wants())],
        ["!InsufficientDevices"],
    ),
    "a toleration with empty key tolerates everything": (
        [resource_slice([device("a", taints=TAINT)])],
        [claim(wants(tolerations=[{"operator": "Exists"}]))],
        ["r=p1/a"],
    ),
    "tolerating one of two taints is not enough": (
        [resource_slice([device("a", taints=[*TAINT, {"key": "other", "effect": "NoExecute"}])])],
        [claim(wants(tolerations=TOLERATE))],
        ["!InsufficientDevices"],
    ),
    "an unknown effect does not block": (
        [resource_slice([device("a", taints=[{"key": "k", "effect": "Later"}])])],
        [claim(wants())],
        ["r=p1/a"],
    ),
    "the fully qualified attribute wins over the bare one": (
        [
            resource_slice(
                [
                    device("a", attrs={"a": 1, f"{DRIVER}/a": 2}),
                    device("b", attrs={"a": 1}),
                    device("c", attrs={"a": 2}),
                ]
            )
        ],
        [claim(wants(count=2), constraints=MATCH)],
        ["r=p1/a", "r=p1/c"],
    ),
    "a bare name of another driver is not the attribute": (
        [resource_slice([device("a", attrs={"a": 1})], driver="other.example.com")],
        [claim({"name": "r", "exactly": {"deviceClassName": "any"}}, constraints=MATCH)],
        ["!ConstraintUnsatisfied", "!InsufficientDevices"],
    ),
    "versions that differ in build metadata do not match": (
        [resource_slice([device(n, attrs={"a": {"version": f"1.0.0+{n}"}}) for n in "ab"])],
        [claim(wants(count=2), constraints=MATCH)],
        ["!ConstraintUnsatisfied"],
    ),
    "the int 1 and the string 1 do not match": (
        [resource_slice([device("a", attrs={"a": 1}), device("b", attrs={"a": "1"})])],
        [claim(wants(count=2), constraints=MATCH)],
        ["!ConstraintUnsatisfied"],
    ),
    "the int 1 and the string 1 are distinct": (
        [resource_slice([device("a", attrs={"a": 1}), device("b", attrs={"a": "1"})])],
        [claim(wants(count=2), constraints=DISTINCT)],
        ["r=p1/a", "r=p1/b"],
    ),
    "the int 1 and true are distinct": (
        [resource_slice([device("a", attrs={"a": 1}), device("b", attrs={"a": True})])],
        [claim(wants(count=2), constraints=DISTINCT)],
        ["r=p1/a", "r=p1/b"],
    ),
    "a narrowed intersection is restored on undo": (
        [
            resource_slice(
                [
                    device("a", attrs={"a": {"strings": ["x", "y"]}}),
                    device("b", attrs={"a": {"strings": ["y", "z"]}}),
                    device("c", attrs={"a": {"strings": ["z"]}}),
                ]
            )
        ],
        [
            claim(
                wants(count=2, select=f"device.attributes['{DRIVER}'].a.size() > 0"),
                wants("q", select=f"'z' in device.attributes['{DRIVER}'].a"),
                constraints=[{"matchAttribute": f"{DRIVER}/a", "requests": ["r"]}],
            )
        ],
        ["r=p1/a", "r=p1/b", "q=p1/c"],
    ),
    "distinct looks at every device of a request": (
        [resource_slice([device(n, attrs={"a": v}) for n, v in (("a", "x"), ("b", "y"), ("c", "x"))])],
        [claim(wants(count=3), constraints=DISTINCT)],
        ["!ConstraintUnsatisfied"],
    ),
    "a constraint on a subrequest binds only if that is chosen": (
        [resource_slice([device("a", attrs={"a": 1}), device("b", attrs={"a": 2})])],
        [
            claim(
                wants("q"),
                first_of("r", asked(), asked()),
                constraints=[{"matchAttribute": f"{DRIVER}/a", "requests": ["q", "r/s0"]}],
            )
        ],
        ["q=p1/a", "r/s1=p1/b"],
    ),
    "an admin request takes held devices": (
        [resource_slice([device("a")]), held("a")],
        [claim(wants(adminAccess=True))],
        ["r=p1/a"],
    ),
    "a normal request cannot take what an admin request of its claim has": (
        [resource_slice([device("a")])],
        [claim(wants("x", adminAccess=True), wants("y"))],
        ["!NoCombination"],
    ),
    "an admin request may take what another claim of the unit has": (
        [resource_slice([device("a")])],
        [claim(wants()), claim(wants("x", adminAccess=True), name="d")],
        ["r=p1/a", "x=p1/a"],
    ),
    "admin access draws on no counter (upstream: refused)": (
        [*counted(device("a", consumesCounters=[draws(mem=8)]), mem=8), held("a")],
        [claim(wants(adminAccess=True))],
        ["r=p1/a"],
    ),
    "admin access draws on no capacity (upstream: refused)": (
        [resource_slice([device("a", **mem(2))]), held("a", shareID="s", consumedCapacity={"mem": "2"})],
        [claim(wants(adminAccess=True, **q(2)))],
        ["r=p1/a"],
    ),
    "taints hold for admin requests too": (
        [resource_slice([device("a", taints=TAINT)])],
        [claim(wants(adminAccess=True))],
        ["!InsufficientDevices"],
    ),
    "a device that a taint rejects charges no counters (upstream: leaks)": (
        counted(
            device("a", consumesCounters=[draws(mem=8)], taints=TAINT),
            device("b", consumesCounters=[draws(mem=8)]),
            mem=8,
        ),
        [claim(wants())],
        ["r=p1/b"],
    ),
    "counters of equal names in two drivers are apart": (
        [
            *counted(device("a", consumesCounters=[draws(mem=4)]), mem=4),
            resource_slice(
                [device("b", consumesCounters=[draws(mem=4)])], name="t1", driver="other.example.com", count=2
            ),
            resource_slice(
                name="t2", driver="other.example.com", count=2, devices=None, sharedCounters=[counter_set(mem=4)]
            ),
            device_class("any", "true"),
        ],
        [claim({"name": "r", "exactly": {"deviceClassName": "any", "count": 2}})],
        ["r=p1/a", "r=p1/b"],
    ),
    "a shared device without capacity charges its counters once": (
        counted(device("a", consumesCounters=[draws(mem=8)], **SHARED), mem=8),
        [claim(wants("x"), wants("y"))],
        ["x=p1/a", "y=p1/a"],
    ),
    "counters of an undone share are free again": (
        counted(
            device("a", consumesCounters=[draws(mem=8)], attrs={"a": 1}, **SHARED),
            device("b", consumesCounters=[draws(mem=8)], attrs={"a": 2}),
            mem=8,
        ),
        [claim(first_of("r", asked(2), asked(select=f"device.attributes['{DRIVER}'].a == 2")))],
        ["r/s1=p1/b"],
    ),
    "an overdrawn pool is frozen for all that draw on counters": (
        [
            *counted(
                device("a", consumesCounters=[draws(mem=9)]),
                device("b", consumesCounters=[draws(cpu=1)]),
                device("c"),
                mem=8,
                cpu=8,
            ),
            held("a"),
        ],
        [claim(wants())],
        ["r=p1/c"],
    ),
    "a device that was shared and is exclusive now is in use": (
        [
            resource_slice([device("a", capacity={"mem": {"value": "2"}})]),
            held("a", shareID="s", consumedCapacity={"mem": "1"}),
        ],
        [claim(wants(**q(1)))],
        ["!InsufficientDevices"],
    ),
    "capacity names are compared literally": (
        [resource_slice([device("a", **SHARED, capacity={f"{DRIVER}/mem": {"value": "2"}})])],
        [claim(wants(**q(1)))],
        ["!InsufficientDevices"],
    ),
    "a default is equal by value, not by text": (
        [
            resource_slice(
                [device("a", **mem(4096, requestPolicy={"default": "1024", "validRange": {"min": "1", "max": "512"}}))]
            )
        ],
        [claim(wants(capacity={"requests": {"mem": "1Ki"}}))],
        ["r=p1/a"],
    ),
    "compatibility groups of two must meet": (
        counted(
            *(
                device(n, consumesCounters=[draws(mem=1, compatibility=list(g))])
                for n, g in zip("abc", GROUPED, strict=True)
            ),
            mem=8,
        ),
        [claim(wants(count=3))],
        ["!NoCombination"],
    ),
    "compatibility groups that meet go together": (
        counted(
            *(
                device(n, consumesCounters=[draws(mem=1, compatibility=list(g))])
                for n, g in zip("abc", GROUPED, strict=True)
            ),
            mem=8,
        ),
        [claim(wants(count=2))],
        ["r=p1/a", "r=p1/b"],
    ),
    "a device without groups stays away from grouped ones": (
        counted(
            device("a", consumesCounters=[draws(mem=1, compatibility=["g"])]),
            device("b", consumesCounters=[draws(mem=1)]),
            device("c", consumesCounters=[draws(mem=1, compatibility=["g"])]),
            mem=8,
        ),
        [claim(wants(count=2))],
        ["r=p1/a", "r=p1/c"],
    ),
    "recorded groups count, not those published later": (
        [
            *counted(
                device("a", consumesCounters=[draws(mem=1)]),
                device("b", consumesCounters=[draws(mem=1, compatibility=["g"])]),
                mem=8,
            ),
            held("a", compatibilityGroups={"set": ["g"]}),
        ],
        [claim(wants())],
        ["r=p1/b"],
    ),
    "a derived attribute makes devices match": (
        [resource_slice([device("a", attrs={"a": 1}), device("b", attrs={"a": 3}), device("c", attrs={"a": 2})])],
        [
            claim(
                wants(
                    count=2,
                    derivedAttributes=[{"name": f"{DRIVER}/odd", "expression": f"device.attributes['{DRIVER}'].a % 2"}],
                ),
                constraints=[{"matchAttribute": f"{DRIVER}/odd"}],
            )
        ],
        ["r=p1/a", "r=p1/b"],
    ),
    "a derived attribute hides a published one": (
        [resource_slice([device("a", attrs={"a": 1}), device("b", attrs={"a": 2})])],
        [claim(wants(count=2, derivedAttributes=[{"name": "a", "expression": "'same'"}]), constraints=MATCH)],
        ["r=p1/a", "r=p1/b"],
    ),
    "a derived attribute that fails refuses the node": (
        [resource_slice([device("a")])],
        [
            claim(
                wants(derivedAttributes=[{"name": "x", "expression": f"device.attributes['{DRIVER}'].nope"}]),
                constraints=[{"matchAttribute": f"{DRIVER}/x"}],
            )
        ],
        ["!SelectorError"],
    ),
    "a device on which the selector fails is not reached if it is held": (
        [resource_slice([device("a"), device("b", attrs={"a": 1})]), held("a")],
        [claim(wants(select=f"device.attributes['{DRIVER}'].a == 1"))],
        ["r=p1/b"],
    ),
    "a device on which the selector fails is not reached if it comes later": (
        [resource_slice([device("a", attrs={"a": 1}), device("b")])],
        [claim(wants(select=f"device.attributes['{DRIVER}'].a == 1"))],
        ["r=p1/a"],
    ),
    "a device on which the selector fails refuses the node if it comes first": (
        [resource_slice([device("a"), device("b", attrs={"a": 1})])],
        [claim(wants(select=f"device.attributes['{DRIVER}'].a == 1"))],
        ["!SelectorError"],
    ),
    "more than 32 devices of a node for a request for all": (
        [resource_slice([device(f"d{i:02}") for i in range(33)])],
        [claim(wants(every=True))],
        ["!TooManyDevices"],
    ),
    "a missing class in the last alternative is an error": (
        [resource_slice([device("a")])],
        [claim(first_of("r", asked(), {**asked(), "deviceClassName": "gpuu"}))],
        ["!ClassNotFound"],
    ),
    "a request of neither kind": ([resource_slice([device("a")])], [claim({"name": "r"})], ["!UnsupportedRequest"]),
    "per-device selection leaves out devices of other nodes": (
        [
            resource_slice(
                [device("a", nodeName="n2"), device("b", nodeName="n1"), device("c", allNodes=True)],
                perDeviceNodeSelection=True,
            )
        ],
        [claim(wants(count=2))],
        ["r=p1/b", "r=p1/c"],
    ),
    "a device selector of two terms cannot be expressed": (
        [
            resource_slice(
                [
                    device(
                        "a",
                        nodeSelector={
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [n]}]}
                                for n in ("n1", "n2")
                            ]
                        },
                    )
                ],
                perDeviceNodeSelection=True,
            )
        ],
        [claim(wants())],
        ["!MultipleSelectorTerms"],
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_what_is_given(sentence: str) -> None:
    objects, claims, expected = CASES[sentence]
    answer = run([*objects, device_class("any", "true")] if not _has_any(objects) else objects, *claims)
    assert given(answer) == expected


def _has_any(objects: list[tuple[str, Any]]) -> bool:
    return any(kind == "DeviceClass" and value.metadata.name == "any" for kind, value in objects)


GATES_OFF: dict[str, tuple[str, list[tuple[str, Any]], ResourceClaim, list[str]]] = {
    "compatibility groups off: a device that declares some is not used": (
        "DRADeviceCompatibilityGroups",
        counted(device("a", consumesCounters=[draws(mem=1, compatibility=["g"])]), device("b"), mem=8),
        claim(wants()),
        ["r=p1/b"],
    ),
    "compatibility groups off: nor one next to recorded groups": (
        "DRADeviceCompatibilityGroups",
        [
            *counted(device("a", consumesCounters=[draws(mem=1)]), device("b", consumesCounters=[draws(mem=1)]), mem=8),
            held("a", compatibilityGroups={"set": ["g"]}),
        ],
        claim(wants()),
        ["!InsufficientDevices"],
    ),
    "shares off: a shared holder blocks like an exclusive one": (
        "DRAConsumableCapacity",
        [resource_slice([device("a", **mem(2))]), held("a", shareID="s", consumedCapacity={"mem": "1"})],
        claim(wants()),
        ["!InsufficientDevices"],
    ),
    "shares off: distinctAttribute is refused": (
        "DRAConsumableCapacity",
        [resource_slice([device("a")])],
        claim(wants(), constraints=DISTINCT),
        ["!FeatureGateDisabled"],
    ),
    "taint rules off: published taints still hold": (
        "DRADeviceTaintRules",
        [resource_slice([device("a", taints=TAINT), device("b")]), rule("t", {"device": "b"})],
        claim(wants()),
        ["r=p1/b"],
    ),
    "derived attributes off": (
        "DRADerivedAttributes",
        [resource_slice([device("a")])],
        claim(wants(derivedAttributes=[{"name": "x", "expression": "1"}])),
        ["!FeatureGateDisabled"],
    ),
}


@pytest.mark.parametrize("sentence", GATES_OFF)
def test_a_gate_that_is_off(sentence: str) -> None:
    gate, objects, wanted, expected = GATES_OFF[sentence]
    assert given(run(objects, wanted, **{gate: False})) == expected


def results_of(answer: object) -> Any:
    assert isinstance(answer, Allocation)
    return answer.results[0][0]


def test_a_result_says_what_was_given() -> None:
    devices = [device("a", bindingConditions=["x"], bindingFailureConditions=["y"], **mem(4))]
    able = {"metadata": {"name": "n1"}, "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    objects = [("Node", decode(Node, able)), resource_slice(devices, skipNodeOperations=["*"])]
    result = results_of(run(objects, claim(wants(tolerations=TOLERATE, **q(3))))).devices.results[0]
    assert (result.request, result.driver, result.pool, result.device) == ("r", DRIVER, "p1", "a")
    assert result.share_id == "00000000-0000-4000-8000-000000000001"
    assert {name: str(amount) for name, amount in result.consumed_capacity.items()} == {"mem": "3"}
    assert (result.binding_conditions, result.binding_failure_conditions) == (("x",), ("y",))
    assert [t.key for t in result.tolerations] == ["k"]
    assert result.skip_node_operations == ("*",)
    assert result.admin_access is None


def test_requests_of_one_name_are_met_each() -> None:
    answer = run([resource_slice([device("a"), device("b"), device("c")])], claim(wants(), wants(count=2)))
    assert given(answer) == ["r=p1/a", "r=p1/b", "r=p1/c"]


def test_a_node_that_does_not_declare_it_cannot_skip_node_operations() -> None:
    answer = run([resource_slice([device("a")], skipNodeOperations=["*"])], claim(wants()))
    assert isinstance(answer, Refusals)
    assert answer.reasons[0].dropped.gated == 1


def test_groups_are_recorded_with_the_result() -> None:
    objects = counted(device("a", consumesCounters=[draws(mem=1, compatibility=["g"])]), mem=8)
    assert results_of(run(objects, claim(wants()))).devices.results[0].compatibility_groups == {"set": ("g",)}


def test_a_device_for_all_nodes_leaves_no_node_selector() -> None:
    assert results_of(run([resource_slice([device("a")], allNodes=True)], claim(wants()))).node_selector is None


def test_selectors_of_several_devices_become_one_term() -> None:
    def on(name: str, **labels: str) -> tuple[str, Any]:
        expressions = [{"key": k, "operator": "In", "values": [v]} for k, v in labels.items()]
        return resource_slice(
            [device(name)],
            name=name,
            pool=name,
            nodeSelector={"nodeSelectorTerms": [{"matchExpressions": expressions}]},
        )

    objects = [node("n1", zone="a", rack="b"), on("x", zone="a"), on("y", rack="b", zone="a")]
    selector = results_of(run(objects, claim(wants(count=2)))).node_selector
    (term,) = selector.node_selector_terms
    assert [(r.key, r.values) for r in term.match_expressions] == [("zone", ("a",)), ("rack", ("b",))]


def test_class_configuration_comes_first_and_covers_what_used_it() -> None:
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"mode": "c"}}}
    own = {"requests": ["q"], "opaque": {"driver": DRIVER, "parameters": {"mode": "u"}}}
    objects = [resource_slice([device("a"), device("b")]), device_class(config=[opaque]), device_class("any", "true")]
    plain = {"name": "q", "exactly": {"deviceClassName": "any"}}
    config = results_of(run(objects, claim(wants(), plain, config=[own]))).devices.config
    assert [(c.source, c.requests, c.opaque.parameters) for c in config] == [
        ("FromClass", ("r",), {"mode": "c"}),
        ("FromClaim", ("q",), {"mode": "u"}),
    ]
