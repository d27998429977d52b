"""Constraints that no arrangement of the devices at hand could meet, on any one node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.api import files
from dragoman.lint.linter import LintTarget, lint
from dragoman.testing.build import allocated, claim, device, device_class, node, pool, request

GPU, NIC = "gpu.example.com", "nic.example.com"
ROOT = f"{GPU}/root"


def devices(*values: Any, name: str = "g", **more: Any) -> list[dict[str, Any]]:
    """Devices whose attribute root has these values; None: without it."""
    return [
        device(f"{name}{i}", serial=f"{name}{i}", **({} if value is None else {"root": value}), **more)
        for i, value in enumerate(values)
    ]


def codes(made: list[dict[str, Any]], wanted: dict[str, Any]) -> list[str]:
    objects = [node("a"), node("b"), device_class(GPU), device_class(NIC, driver=NIC), *made, wanted]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    found = lint(files.scan([("f.json", text)]), LintTarget())
    return [f.code for f in found if "constraints" in f.field]


def match(attribute: str, count: int = 2, kind: str = "matchAttribute") -> dict[str, Any]:
    return claim("c", request(count=count), constraints=[{kind: attribute}])


# devices of node a, of node b, how many: whether they can match
MATCH: dict[str, tuple[list[Any], list[Any], int, bool]] = {
    "a pair on a node": (["x", "x", "y"], ["z"], 2, True),
    "each of another": (["x", "y"], ["z", "w"], 2, False),
    "a pair over two nodes": (["x", "y"], ["x"], 2, False),
    "three where two match": (["x", "x", "y"], [], 3, False),
    "one alone always matches": (["x"], [], 1, True),
    "those without it do not count": (["x", None, None], ["y"], 2, False),
}


@pytest.mark.parametrize("name", MATCH)
def test_devices_of_one_node_that_share_a_value(name: str) -> None:
    here, there, count, can = MATCH[name]
    made = [pool("a", devices(*here), node="a"), pool("b", devices(*there), node="b")]
    assert codes(made, match(ROOT, count)) == ([] if can else ["ConstraintUnmeetable"])


def test_what_is_held_may_come_back() -> None:
    made = [pool("a", devices("x", "x"), node="a"), allocated("t", "g0", pool="a")]
    assert codes(made, match(ROOT)) == []


def test_devices_of_every_node_match_with_those_of_one() -> None:
    made = [pool("a", devices("x"), node="a"), pool("far", devices("x", name="f"))]
    assert codes(made, match(ROOT)) == []


def test_distinct_values_must_be_many_enough() -> None:
    made = [pool("a", devices("x", "x", "y"), node="a")]
    assert codes(made, match(ROOT, 2, "distinctAttribute")) == []
    assert codes(made, match(ROOT, 3, "distinctAttribute")) == ["ConstraintUnmeetable"]


def test_an_attribute_that_one_of_two_drivers_lacks_cannot_be_matched() -> None:
    made = [pool("a", devices("x"), node="a"), pool("a", [device("n", port=1)], node="a", driver=NIC)]
    both = claim("c", request(), request("nic", NIC), constraints=[{"matchAttribute": ROOT}])
    assert codes(made, both) == ["ConstraintNotShared"]
    only = claim("c", request(), request("nic", NIC), constraints=[{"matchAttribute": ROOT, "requests": ["gpu"]}])
    assert codes(made, only) == []


def test_an_attribute_that_nobody_publishes_is_named() -> None:
    made = [pool("a", devices("x", "x"), node="a")]
    assert codes(made, match(f"{GPU}/rooot")) == ["UnknownAttribute"]
    assert codes(made, match("foreign.example.com/root")) == ["ConstraintNotShared"]
