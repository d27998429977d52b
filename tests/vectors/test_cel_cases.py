"""The selector language on the shared cases: device selectors with their cost, and CEL's own conformance suite.

Where the folder is absent the tests are skipped by name.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.api.resource import Device, DeviceAttribute, DeviceCapacity
from dragoman.api.selectors import (
    COST_MAX,
    STORED,
    DeviceView,
    Mode,
    SelectorCompileError,
    compile_selector,
    device_view,
    environment,
)
from dragoman.cel import types as t
from dragoman.cel.environment import Environment
from dragoman.cel.expression import checked, compile_expression, compile_unchecked
from dragoman.cel.faults import CompileError, EvalError
from dragoman.cel.meter import Meter, Plan
from dragoman.cel.stdlib.library import FUNCTIONS, TYPE_NAMES
from dragoman.cel.values import Duration, Timestamp, Uint, equal, map_key
from dragoman.values.quantity import Quantity

from .cel_elsewhere import ELSEWHERE

FOLDER = Path(__file__).parents[3] / "shared" / "cases" / "cel"


def _cases(name: str) -> list[Any]:
    path = FOLDER / name
    if not path.exists():
        reason = "the shared cases are not beside the checkout"
        return [pytest.param(None, id=name, marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(case, id=_name(case), marks=_marks(case)) for case in json.loads(path.read_text())]


def _marks(case: dict[str, Any]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if case["name"] == "expensive" else []


def _name(case: dict[str, Any]) -> str:
    return "/".join(str(case[key]) for key in ("suite", "section", "name") if key in case)


# ---- device selectors


def _mode(case: dict[str, Any]) -> Mode:
    if case["environment"] == "stored":
        return STORED
    gates = case["gates"]
    return Mode(
        new=True,
        list_attributes=gates["DRAListTypeAttributes"],
        consumable_capacity=gates["DRAConsumableCapacity"],
    )


def _device(case: dict[str, Any]) -> Device:
    return Device(
        name="device",
        attributes={key: msgspec.convert(value, DeviceAttribute) for key, value in case["attributes"].items()},
        capacity={key: DeviceCapacity(value=Quantity.parse(value)) for key, value in case["capacity"].items()},
        allow_multiple_allocations=case["allowMultipleAllocations"],
    )


@pytest.mark.parametrize("case", _cases("dra.json"))
def test_a_selector_answers_as_upstream_does(case: dict[str, Any]) -> None:
    selector = compile_selector(case["expression"], _mode(case))
    message = (case["messageContains"] or "").replace("%d", "48")
    if case["expected"] == "compile error":
        assert isinstance(selector, SelectorCompileError)
        assert message in selector.message
        return
    assert not isinstance(selector, SelectorCompileError)
    if case["cost"] is not None:
        assert selector.max_cost == case["cost"]
    view = device_view(_device(case), case["driver"])
    found = selector.match(view)
    if case["expected"] == "runtime error":
        assert not isinstance(found, bool)
        assert message in found.message
    else:
        assert found is (case["expected"] == "match")
    meter = Meter(Plan(environment(_mode(case))), COST_MAX)
    assert _metered(meter, case, view) == (found if isinstance(found, bool) else None)
    assert meter.cost <= min(selector.max_cost, COST_MAX + 1)


def _metered(meter: Meter, case: dict[str, Any], view: DeviceView) -> bool | None:
    """The metered answer, None for an error or anything but a bool."""
    try:
        found = meter.run(checked(case["expression"], environment(_mode(case))), view)
    except EvalError:
        return None
    return found if isinstance(found, bool) else None


# ---- conformance

_SIMPLE = {
    "int": t.INT,
    "uint": t.UINT,
    "double": t.DOUBLE,
    "bool": t.BOOL,
    "string": t.STRING,
    "bytes": t.BYTES,
    "null_type": t.NULL,
    "dyn": t.DYN,
    "duration": t.DURATION,
    "timestamp": t.TIMESTAMP,
}


def _type(given: Any) -> t.Type:
    match given:
        case str():
            return _SIMPLE[given]
        case ["list", element]:
            return t.list_of(_type(element))
        case ["map", key, value]:
            return t.map_of(_type(key), _type(value))
        case ["abstract", "optional_type", inner]:
            return t.optional_of(_type(inner))
    raise AssertionError(given)


def _value(given: Any) -> Any:
    match given:
        case ["int", number]:
            return int(number)
        case ["uint", number]:
            return Uint(int(number))
        case ["double", number]:
            return float(number)
        case ["bool" | "string", value]:
            return value
        case ["null"]:
            return None
        case ["bytes", text]:
            return base64.b64decode(text)
        case ["list", elements]:
            return tuple(_value(element) for element in elements)
        case ["map", entries]:
            return {map_key(_value(key)): _value(value) for key, value in entries}
        case ["duration", seconds, nanos]:
            return Duration(int(seconds) * 10**9 + nanos)
        case ["timestamp", seconds, nanos]:
            return Timestamp(int(seconds) * 10**9 + nanos)
        case ["type", name]:
            return t.Type("named", name)
    raise AssertionError(given)


def _same(found: Any, wanted: Any) -> bool:
    """Equal and of one kind: 1, 1u and 1.0 are three answers, NaN is one."""
    if isinstance(wanted, t.Type):
        return isinstance(found, t.Type) and found.name == wanted.name
    if isinstance(found, float) and isinstance(wanted, float) and math.isnan(found):
        return math.isnan(wanted)
    if type(found) is not type(wanted):
        return False
    if isinstance(wanted, tuple):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    return equal(found, wanted)


@pytest.mark.parametrize("case", _cases("conformance.json"))
def test_the_language_conforms(case: dict[str, Any]) -> None:
    """Against the language itself; Kubernetes' stricter rules for literals are a layer above (Environment.strict)."""
    declared = {name: _type(given) for name, given in case["declarations"].items()}
    within = Environment(declared, FUNCTIONS, type_names=TYPE_NAMES, container=case["container"])
    values = [_value(case["bindings"][name]) if name in case["bindings"] else None for name in declared]
    compile_ = compile_unchecked if case["disableCheck"] else compile_expression
    expected = case["expected"]
    conforms = False
    try:
        expression = compile_(case["expression"], within)
        if expected[0] == "typed":
            conforms = expression.type == _type(expected[2])
            if not case["checkOnly"]:
                conforms = conforms and _same(expression.program(*values), _value(expected[1]))
        else:
            found = expression.program(*values)
            conforms = expected[0] == "value" and _same(found, _value(expected[1]))
    except (CompileError, EvalError):
        conforms = expected[0] == "error"
    assert conforms is (_name(case) not in ELSEWHERE), ELSEWHERE.get(_name(case), "does not conform")
