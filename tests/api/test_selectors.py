"""Device selectors: what matches, what fails and how it is told, what a selector reads, what may be written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api.resource import Device, DeviceAttribute, DeviceCapacity
from dragoman.api.selectors import (
    COST_MAX,
    EXPRESSION_MAX,
    STORED,
    DeviceView,
    Mode,
    Selector,
    SelectorCompileError,
    SelectorFailed,
    compile_derived,
    compile_selector,
    device_view,
)
from dragoman.values.quantity import Quantity

DRIVER = "gpu.example.com"
ATTRIBUTES: dict[str, Any] = {
    "model": {"string": "LATEST-GPU-MODEL"},
    "index": {"int": 3},
    "shared": {"bool": False},
    "driverVersion": {"version": "1.2.3"},
    "links": {"strings": ["a", "b"]},
    "numa": {"ints": [1, 0]},
    "resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"},
}
CAPACITY = {"memory": "80Gi", "compute": "100", "other.example.com/memory": "1Ki"}


def view(attributes: dict[str, Any] = ATTRIBUTES, *, driver: str = DRIVER, multiple: bool | None = None) -> DeviceView:
    device = Device(
        name="gpu-0",
        attributes={key: msgspec.convert(value, DeviceAttribute) for key, value in attributes.items()},
        capacity={key: DeviceCapacity(value=Quantity.parse(value)) for key, value in CAPACITY.items()},
        allow_multiple_allocations=multiple,
    )
    return device_view(device, driver)


def compiled(text: str, mode: Mode = STORED) -> Selector:
    found = compile_selector(text, mode)
    assert isinstance(found, Selector), found
    return found


def refused(text: str, mode: Mode = STORED) -> SelectorCompileError:
    found = compile_selector(text, mode)
    assert isinstance(found, SelectorCompileError), text
    return found


def failed(text: str, given: DeviceView | None = None) -> SelectorFailed:
    found = compiled(text).match(given or view())
    assert isinstance(found, SelectorFailed), found
    return found


MATCHES: dict[str, bool] = {
    "device.driver == 'gpu.example.com'": True,
    "device.attributes['gpu.example.com'].model == 'LATEST-GPU-MODEL'": True,
    "device.attributes['gpu.example.com'].index == 7": False,
    "device.attributes['gpu.example.com'].index in [1, 3, 5]": True,
    "device.attributes['gpu.example.com']['shared']": False,
    "!device.attributes['gpu.example.com'].shared": True,
    "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('1.2.0'))": True,
    "device.attributes['gpu.example.com'].driverVersion.compareTo(semver('2.0.0')) >= 0": False,
    "device.attributes['gpu.example.com'].driverVersion == semver('1.2.3+build')": True,
    "device.attributes['gpu.example.com'].model.matches('^LATEST-')": True,
    "device.attributes['gpu.example.com'].model.lowerAscii().startsWith('latest')": True,
    "'a' in device.attributes['gpu.example.com'].links": True,
    "device.attributes['gpu.example.com'].links.includes('c')": False,
    "device.attributes['gpu.example.com'].model.includes('LATEST-GPU-MODEL')": True,
    "device.attributes['gpu.example.com'].numa.exists(n, n == 0)": True,
    "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:01'": True,
    "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0": True,
    "device.capacity['gpu.example.com'].memory.isLessThan(quantity('40Gi'))": False,
    "device.capacity['other.example.com'].memory == quantity('1024')": True,
    "device.capacity['gpu.example.com'].compute.asInteger() == 100": True,
    "has(device.attributes['gpu.example.com'].model)": True,
    "has(device.attributes['gpu.example.com'].nothing)": False,
    "'model' in device.attributes['gpu.example.com']": True,
    "device.attributes['gpu.example.com'].?nothing.orValue('x') == 'x'": True,
    "device.attributes['nobody.example.com'].size() == 0": True,
    "'nobody.example.com' in device.attributes": False,
    "has(device.attributes.nobody)": True,
    "device.attributes[?'nobody.example.com'].hasValue()": True,
    "device.attributes.size() == 2": True,
    "device.attributes.exists_one(domain, domain == 'gpu.example.com')": True,
    "device.attributes.all(domain, values, values.size() > 0)": True,
    "device.allowMultipleAllocations": False,
    "has(device.allowMultipleAllocations) && device.?driver.hasValue()": True,
    "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.index == 3 && gpu.model.size() > 3)": True,
    "device.attributes['gpu.example.com'].nothing == 1 || true": True,
}


@pytest.mark.parametrize("text", MATCHES)
def test_matches(text: str) -> None:
    assert compiled(text).match(view()) is MATCHES[text]


def test_a_device_shared_by_many_says_so() -> None:
    assert compiled("device.allowMultipleAllocations").match(view(multiple=True)) is True


# ---- failures


def test_a_missing_attribute_is_named_with_its_place_and_similar_names() -> None:
    found = failed("device.driver == 'gpu.example.com' &&\n device.attributes['gpu.example.com'].modell == 'x'")
    assert found.message == "no such key: modell (did you mean model?)"
    assert found.attribute == "gpu.example.com/modell"
    assert found.near == "gpu.example.com/model"
    assert (found.line, found.column) == (2, 38)


def test_a_missing_capacity_is_named_through_a_binding() -> None:
    found = failed("cel.bind(c, device.capacity['gpu.example.com'], c.Memory.isGreaterThan(quantity('1')))")
    assert (found.attribute, found.near) == ("gpu.example.com/Memory", "gpu.example.com/memory")


def test_nothing_is_suggested_where_no_name_is_similar() -> None:
    assert failed("device.attributes['gpu.example.com'].zone == 'x'").near is None
    assert failed("device.attributes['nobody'].model == 'x'").near is None


def test_an_answer_that_is_no_bool_is_a_failure() -> None:
    found = failed("device.attributes['gpu.example.com'].links")
    assert found.message == "CEL result of type list could not be converted to bool"
    assert failed("device.attributes['gpu.example.com'].index").message.startswith("CEL result of type int")


def test_a_scalar_in_a_loop_is_a_failure_with_its_kind() -> None:
    text = "device.attributes['gpu.example.com'].driverVersion.exists(x, true)"
    assert failed(text).message == "got 'cel.Semver', expected iterable type"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"bad": {"version": "v1"}}, "attribute bad: parse semantic version:"),
        ({"empty": {}}, "attribute empty: unsupported attribute value"),
        ({"list": {"versions": ["1.0.0", "1"]}}, "attribute list: parse semantic version:"),
    ],
)
def test_one_broken_attribute_fails_every_selector_on_the_device(attributes: dict[str, Any], message: str) -> None:
    assert failed("true", view(attributes)).message.startswith(message)


def test_a_long_list_is_not_searched_to_its_end() -> None:
    values = {"names": {"strings": [f"v{n}" for n in range(49)]}}
    assert compiled("device.attributes['gpu.example.com'].names.includes('v47')").match(view(values)) is True
    text = "device.attributes['gpu.example.com'].names.includes('v48')"
    assert "lists longer than 48 values" in failed(text, view(values)).message


@pytest.mark.slow
def test_the_run_time_cost_is_limited() -> None:
    nested = "true"
    for depth in range(7):
        nested = f"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x{depth}, {nested} || x{depth} > 0 && false)"
    nested = nested.replace("true", "device.driver != ''", 1)
    assert compiled(nested).max_cost > COST_MAX
    assert failed(nested).message == "operation cancelled: actual cost limit exceeded"


# ---- refusals


def test_a_syntax_error_has_line_column_and_caret() -> None:
    found = refused("device.driver ==\n  && true")
    assert (found.kind, found.line, found.column) == ("syntax", 2, 3)
    assert found.message.endswith("\n |   && true\n | ..^")


REFUSED: dict[str, tuple[str, str]] = {
    "?!": ("syntax", "Syntax error"),
    "1": ("result", "must evaluate to bool or the unknown type, not int"),
    "device.driver": ("result", "must evaluate to bool or the unknown type, not string"),
    "device.capacity['a'].b": ("result", "must evaluate to bool or the unknown type, not kubernetes.Quantity"),
    "device.attributes": ("result", "not map(string, map(string, dyn))"),
    "device.nothing": ("compile", "undefined field 'nothing'"),
    "device['driver'] == ''": ("compile", "found no matching overload for '_[_]'"),
    "other.driver == ''": ("compile", "undeclared reference to 'other'"),
    "device.driver == 1": ("compile", "found no matching overload for '_==_' applied to '(string, int)'"),
    "device.capacity['a'].b > 1": ("compile", "found no matching overload for '_>_'"),
    "[1, 'a'] == device.attributes['a'].b": ("compile", "expected type 'int' but found 'string'"),
    "authorizer.allowed()": ("compile", "undeclared reference"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refuses(text: str) -> None:
    found = refused(text)
    kind, message = REFUSED[text]
    assert found.kind == kind
    assert message in found.message


def test_a_selector_is_compiled_once() -> None:
    assert compile_selector("device.driver == 'x'") is compile_selector("device.driver == 'x'")


# ---- what may be written, and what is read from storage

NEW = Mode(new=True, list_attributes=False, consumable_capacity=False)


def test_gates_decide_over_new_expressions_only() -> None:
    multiple, includes = "device.allowMultipleAllocations", "device.attributes['a'].b.includes('c')"
    loop = "device.attributes['a'].b.exists(x, x == 1)"
    assert "undefined field 'allowMultipleAllocations'" in refused(multiple, NEW).message
    assert "undeclared reference to 'includes'" in refused(includes, NEW).message
    assert "cannot be range of a comprehension" in refused(loop, NEW).message
    for text in (multiple, includes, loop):
        compiled(text, Mode(new=True))
        compiled(text, STORED)


def test_a_new_expression_is_judged_by_its_length() -> None:
    padded = "true" + " " * (EXPRESSION_MAX - 4)
    compiled(padded, Mode(new=True))
    assert refused(padded + " ", Mode(new=True)).kind == "length"
    compiled(padded + " ", STORED)


def test_a_new_expression_is_judged_by_its_worst_case_cost() -> None:
    names = "device.attributes['a'].names"
    expensive = f"{names}.all(a, {names}.all(b, {names}.all(c, {names}.all(d, a == b))))"
    found = refused(expensive, Mode(new=True))
    assert found.kind == "cost"
    assert "too complex, exceeds cost limit" in found.message
    assert compiled(expensive, STORED).match(view({"x": {"int": 1}})) is not True


# ---- derived attributes

DERIVED: dict[str, bool] = {
    "device.attributes['a'].b": True,
    "device.driver + '-x'": True,
    "1": True,
    "true": True,
    "semver('1.0.0')": True,
    "[1, 2]": True,
    "device.attributes['a'].b.map(x, 'y')": True,
    "1.5": False,
    "quantity('1')": False,
    "{'a': 1}": False,
    "[1.5]": False,
    "[[1]]": False,
}


@pytest.mark.parametrize("text", DERIVED)
def test_a_derived_attribute_has_an_attributes_type(text: str) -> None:
    found = compile_derived(text)
    assert isinstance(found, Selector) is DERIVED[text]
    if isinstance(found, SelectorCompileError):
        assert "must evaluate to a primitive scalar" in found.message


def test_a_derived_attribute_is_evaluated_to_a_value() -> None:
    found = compile_derived("device.attributes['gpu.example.com'].index / 2")
    assert isinstance(found, Selector)
    assert found.value(view()) == 1
    assert isinstance(found.value(view({})), SelectorFailed)


# ---- what a selector reads

GPU = "gpu.example.com"
READS: dict[str, tuple[bool, bool, set[tuple[str, str | None]] | None, set[tuple[str, str | None]] | None]] = {
    "true": (False, False, set(), set()),
    "device.driver == 'x'": (True, False, set(), set()),
    "device.allowMultipleAllocations": (False, True, set(), set()),
    f"device.attributes['{GPU}'].model == 'x'": (False, False, {(GPU, "model")}, set()),
    f"has(device.attributes['{GPU}'].a) && 'b' in device.attributes['{GPU}']": (
        False,
        False,
        {(GPU, "a"), (GPU, "b")},
        set(),
    ),
    f"device.capacity['{GPU}'].memory.isGreaterThan(quantity('1'))": (False, False, set(), {(GPU, "memory")}),
    f"device.attributes['{GPU}'].exists(x, x == 'a')": (False, False, {(GPU, None)}, set()),
    f"cel.bind(a, device.attributes['{GPU}'], a.x == a.y)": (False, False, {(GPU, "x"), (GPU, "y")}, set()),
    "device.attributes.size() == 0": (False, False, None, set()),
    "device.attributes[device.driver].x == 1": (True, False, None, set()),
    "cel.bind(d, device, [d].size() == 1)": (True, True, None, None),
}


@pytest.mark.parametrize("text", READS)
def test_knows_what_it_reads(text: str) -> None:
    reads = compiled(text).reads
    assert (reads.driver, reads.allow_multiple_allocations, reads.attributes, reads.capacity) == READS[text]


def test_keys_tell_true_from_one_and_a_string_from_a_version() -> None:
    reads = compiled(f"device.attributes['{GPU}'].x == 1").reads
    values: list[dict[str, Any]] = [
        {},
        {"x": {"int": 1}},
        {"x": {"bool": True}},
        {"x": {"string": "1.0.0"}},
        {"x": {"version": "1.0.0"}},
        {"x": {"ints": [1]}},
        {"x": {"bools": [True]}},
        {"x": {"version": "1"}},
    ]
    assert len({reads.key(view(value)) for value in values}) == len(values)
    assert reads.key(view({"x": {"int": 1}, "y": {"int": 2}})) == reads.key(view({"x": {"int": 1}}))


_VALUES = st.sampled_from(
    [
        {"int": 0},
        {"int": 1},
        {"bool": True},
        {"bool": False},
        {"string": "a"},
        {"string": ""},
        {"version": "1.0.0"},
        {"ints": [1, 2]},
        {"strings": ["a"]},
    ]
)
_DEVICES = st.dictionaries(st.sampled_from(["x", "y", "z", "o.example.com/x"]), _VALUES, max_size=4)


@given(st.sampled_from(sorted(MATCHES) + sorted(READS)), _DEVICES, _DEVICES, st.booleans())
def test_devices_with_equal_keys_get_equal_answers(text: str, one: Any, two: Any, multiple: bool) -> None:
    text = text.replace("model", "x").replace("index", "y").replace("links", "z").replace("pcieRoot", "x")
    selector = compiled(text.replace("resource.kubernetes.io", "o.example.com"))
    left, right = view(one, multiple=multiple), view(two, multiple=True)
    if selector.reads.key(left) == selector.reads.key(right):
        assert _reported(selector.match(left)) == _reported(selector.match(right))


def _reported(answer: bool | SelectorFailed) -> object:
    return (answer.message, answer.attribute) if isinstance(answer, SelectorFailed) else answer
