"""Device selectors against recorded answers of Kubernetes: outcome, worst-case cost, cost, first line of a message.

`make vectors` asked for them (needs Go); the tests read what is recorded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.api.resource import Device, DeviceAttribute, DeviceCapacity
from dragoman.api.selectors import (
    STORED,
    DeviceView,
    Mode,
    SelectorCompileError,
    SelectorFailed,
    compile_selector,
    device_view,
    environment,
)
from dragoman.cel.expression import checked
from dragoman.cel.faults import EvalError
from dragoman.cel.meter import Meter, Plan
from dragoman.values.quantity import Quantity

GROUPS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recorded" / "selectors.json").read_text(encoding="utf-8")
)["groups"]

TRIPS = ("internal error", "no such overload")
"""Where upstream trips over itself (docs/reference/cel.md): sorting what failed, a sum of quantities behind ==."""


def mode_of(case: dict[str, Any]) -> Mode:
    if not case.get("new"):
        return STORED
    return Mode(new=True, list_attributes=case["listAttributes"], consumable_capacity=case["consumableCapacity"])


def view_of(group: str) -> DeviceView:
    given = GROUPS[group]["device"]
    device = Device(
        name="device",
        attributes={key: msgspec.convert(value, DeviceAttribute) for key, value in given["attributes"].items()},
        capacity={key: DeviceCapacity(value=Quantity.parse(value)) for key, value in given["capacity"].items()},
        allow_multiple_allocations=given["allowMultipleAllocations"],
    )
    return device_view(device, given["driver"])


VIEWS = {group: view_of(group) for group in GROUPS}


def difference(group: str, case: dict[str, Any]) -> str:
    """What differs, or ""."""
    selector = compile_selector(case["expression"], mode_of(case))
    if isinstance(selector, SelectorCompileError):
        refusal = case.get("compile")
        if refusal is None:
            return f"refused here: {selector.message}"
        by_constant = "instantiation" in refusal or "type conversion error" in selector.message
        return "" if by_constant or first_line(selector.message) == first_line(refusal) else f"here: {selector.message}"
    if "compile" in case:
        return "taken here"
    if any(trip in case.get("error", "") for trip in TRIPS):
        return ""
    found = selector.match(VIEWS[group])
    if isinstance(found, SelectorFailed):
        if "error" not in case:
            return f"fails here: {found.message}"
    elif found is not case.get("match"):
        return f"here {found}"
    if ".includes(" in case["expression"]:  # costs otherwise, as docs/reference/cel.md says
        return ""
    if str(selector.max_cost) != case["maxCost"]:
        return f"worst case here: {selector.max_cost}"
    cost = metered(case["expression"], mode_of(case), VIEWS[group])
    return "" if cost == case["cost"] else f"cost here: {cost}"


def first_line(message: str) -> str:
    """What a parser would have expected instead is its own affair."""
    return message.split("\n")[0].split(" Syntax error:")[0]


def metered(text: str, mode: Mode, view: DeviceView) -> int:
    meter = Meter(Plan(environment(mode)), 2**62)
    try:
        meter.run(checked(text, environment(mode)), view)
    except EvalError:
        return meter.cost
    return meter.cost


@pytest.mark.parametrize("group", GROUPS)
def test_selectors_answer_and_cost_as_in_kubernetes(group: str) -> None:
    found = {case["expression"]: (difference(group, case), case) for case in GROUPS[group]["cases"]}
    assert {text: pair for text, pair in found.items() if pair[0]} == {}


def test_every_outcome_is_recorded() -> None:
    for group in ("press", "random"):
        outcomes = {kind for case in GROUPS[group]["cases"] for kind in ("compile", "match", "error") if kind in case}
        assert outcomes == {"compile", "match", "error"}
