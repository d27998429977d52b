"""What is written for the devices picked: which configuration reaches which request, and where it can be used."""

from __future__ import annotations

from typing import Any

from dragoman.allocate.allocator import Allocation
from dragoman.api.codec import to_json
from dragoman.api.core import NodeSelectorTerm
from tests.allocate.shortforms import DRIVER, asked, claim, device, device_class, first_of, resource_slice, run, wants


def opaque(value: str, *requests: str) -> dict[str, Any]:
    config: dict[str, Any] = {"opaque": {"driver": DRIVER, "parameters": {"value": value}}}
    return {**config, "requests": list(requests)} if requests else config


def made(objects: list[tuple[str, Any]], wanted: Any, **gates: bool) -> Any:
    answer = run(objects, wanted, **gates)
    assert isinstance(answer, Allocation), answer
    return answer.results[0][0]


def configured(*classes: tuple[str, Any], requests: list[Any], config: list[Any]) -> list[tuple[str, list[str], str]]:
    """source, requests and value of each entry of the configuration."""
    devices = resource_slice([device(name) for name in "abc"])
    result = made([devices, *classes], claim(*requests, config=config))
    entries = [to_json(entry) for entry in result.devices.config]
    return [(e["source"], e.get("requests", []), e["opaque"]["parameters"]["value"]) for e in entries]


GPU = device_class(config=[opaque("of gpu")])
BIG = device_class("big", config=[opaque("of big")])


def test_classes_come_first_and_name_the_requests_that_they_are_for() -> None:
    requests = [wants("x"), {"name": "y", "exactly": {"deviceClassName": "big"}}, wants("z")]
    assert configured(GPU, BIG, requests=requests, config=[opaque("all"), opaque("one", "y")]) == [
        ("FromClass", ["x", "z"], "of gpu"),
        ("FromClass", ["y"], "of big"),
        ("FromClaim", [], "all"),
        ("FromClaim", ["y"], "one"),
    ]


def test_a_class_of_all_requests_names_none() -> None:
    assert configured(GPU, requests=[wants("x"), wants("y")], config=[]) == [("FromClass", [], "of gpu")]


def test_configuration_for_alternatives_that_were_not_chosen_is_left_out() -> None:
    """The second one is chosen: three devices do not suffice for the first."""
    requests = [first_of("r", asked(4), asked(1)), wants("other")]
    config = [opaque("of the first", "r/s0"), opaque("of the second", "r/s1"), opaque("of any", "r")]
    assert configured(requests=requests, config=config) == [
        ("FromClaim", ["r/s1"], "of the second"),
        ("FromClaim", ["r"], "of any"),
    ]


HERE = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]


def terms(*slices: tuple[str, Any], count: int = 1) -> Any:
    selector = made(list(slices), claim(wants(count=count))).node_selector
    return None if selector is None else [_shown(term) for term in selector.node_selector_terms]


def _shown(term: NodeSelectorTerm) -> dict[str, Any]:
    return {field: value for field, value in to_json(term).items() if value}


def anywhere(name: str, *expressions: dict[str, Any]) -> tuple[str, Any]:
    spec: dict[str, Any] = {"allNodes": True}
    if expressions:
        spec = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}
    return resource_slice([device(name)], name=name, pool=name, **spec)


ZONE = {"key": "zone", "operator": "DoesNotExist"}
RACK = {"key": "rack", "operator": "NotIn", "values": ["r1", "r2"]}


def test_one_device_of_the_node_binds_the_allocation_to_it() -> None:
    assert terms(resource_slice([device("a")])) == HERE
    assert terms(anywhere("x", ZONE), resource_slice([device("a")]), count=2) == HERE


def test_devices_of_every_node_leave_it_open() -> None:
    assert terms(anywhere("x")) is None


def test_selectors_of_several_slices_are_met_together_each_once() -> None:
    again = {**RACK, "values": ["r2", "r1"]}
    assert terms(anywhere("x", ZONE, RACK), anywhere("y", again), count=2) == [{"matchExpressions": [ZONE, RACK]}]


def test_a_device_that_binds_to_its_node_does_so_only_with_its_gate() -> None:
    binding = resource_slice(
        [device("a", bindsToNode=True, bindingConditions=["Ready"], bindingFailureConditions=["Broken"])], allNodes=True
    )
    result = made([binding], claim(wants()))
    assert [_shown(term) for term in result.node_selector.node_selector_terms] == HERE
    assert result.devices.results[0].binding_conditions == ("Ready",)


def test_results_say_admin_access_and_ids_of_shares() -> None:
    shared = device("a", allowMultipleAllocations=True, capacity={"memory": {"value": "8Gi"}})
    (result,) = made([resource_slice([shared])], claim(wants())).devices.results
    assert result.share_id == "00000000-0000-4000-8000-000000000001"
    assert {name: str(amount) for name, amount in result.consumed_capacity.items()} == {"memory": "8Gi"}
    (plain,) = made([resource_slice([device("b")])], claim(wants())).devices.results
    assert (plain.share_id, plain.consumed_capacity, plain.admin_access) == (None, None, None)
    (admin,) = made([resource_slice([device("b")])], claim(wants(adminAccess=True))).devices.results
    assert admin.admin_access is True
