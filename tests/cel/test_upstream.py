"""Our selectors against Kubernetes' own, on random expressions: answer, cost, worst-case cost, place of refusals.

Needs the peer of bench/upstream/selectors: DRAGOMAN_TEST_UPSTREAM_SELECTORS=PATH, or what `make peers` built; skipped
where there is none. tests/vectors/test_selectors.py compares with recorded answers anywhere.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from peer import ask_selectors, peer

from dragoman.api.resource import Device, DeviceAttribute, DeviceCapacity
from dragoman.api.selectors import (
    STORED,
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

from .expressions import ATTRIBUTES, CAPACITY, DRIVER, Maker

SEEDS = range(4)
EXPRESSIONS = 750
LENGTH_MAX = 1500

if not peer("selectors"):
    pytest.skip("no peer: `make peers`, or DRAGOMAN_TEST_UPSTREAM_SELECTORS=PATH", allow_module_level=True)

pytestmark = pytest.mark.slow

VIEW = device_view(
    Device(
        name="device",
        attributes={key: msgspec.convert(value, DeviceAttribute) for key, value in ATTRIBUTES.items()},
        capacity={key: DeviceCapacity(value=Quantity.parse(value)) for key, value in CAPACITY.items()},
        allow_multiple_allocations=True,
    ),
    DRIVER,
)

# Where upstream trips over itself; docs/reference/cel.md lists them.
UPSTREAM_TRIPS = (
    "internal error",  # sorting what failed, looking a version up in a list of constants
    "no such overload",  # a sum of quantities on the right of ==
)


def test_agrees_with_kubernetes() -> None:
    for seed in SEEDS:
        maker = Maker(seed)
        texts = [text for text in (maker.selector() for _ in range(EXPRESSIONS)) if len(text) < LENGTH_MAX]
        for text, answer in zip(texts, _ask(texts), strict=True):
            difference = _difference(text, answer)
            assert difference is None, f"seed {seed}: {difference}\n{text}\n{answer}"


def _ask(texts: list[str]) -> list[Any]:
    request = {"driver": DRIVER, "attributes": ATTRIBUTES, "capacity": CAPACITY, "allowMultipleAllocations": True}
    return ask_selectors({**request, "expression": text} for text in texts)


def _difference(text: str, answer: dict[str, Any]) -> str | None:
    selector = compile_selector(text)
    refusal = answer.get("compile")
    if isinstance(selector, SelectorCompileError) or refusal:
        if not isinstance(selector, SelectorCompileError):
            return "we take it"
        if not refusal:
            return f"we refuse it: {selector.message}"
        one_of_many = "instantiation" in refusal or "type conversion error" in selector.message
        same = selector.message.split("\n")[0] == refusal.split("\n")[0]
        return None if same or one_of_many else f"we say {selector.message}"
    if any(trip in answer.get("error", "") for trip in UPSTREAM_TRIPS):
        return None
    found = selector.match(VIEW)
    wanted = answer.get("match")
    if isinstance(found, SelectorFailed):
        if wanted is not None:
            return f"we fail: {found.message}"
    elif found is not wanted:
        return f"we say {found}"
    if str(selector.max_cost) != answer["maxCost"]:
        return f"our worst case is {selector.max_cost}"
    cost = _cost(text)
    return None if cost == answer["cost"] else f"our cost is {cost}"


def _cost(text: str) -> int:
    meter = Meter(Plan(environment(STORED)), 2**62)
    try:
        meter.run(checked(text, environment(STORED)), VIEW)
    except EvalError:
        return meter.cost
    return meter.cost


def test_all_kinds_of_answers_are_met() -> None:
    answers = _ask([Maker(seed).selector() for seed in range(200)])
    kinds = {kind for answer in answers for kind in ("compile", "match", "error") if kind in answer}
    assert kinds == {"compile", "match", "error"}
