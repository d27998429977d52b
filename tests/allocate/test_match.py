"""Selectors and derived attributes on published devices."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.match import CHECK_EVERY, COSTLY, Failure, Matcher, compile_derived, compile_text
from dragoman.allocate.slots import Derived, RequestSelector
from dragoman.cel.expression import Expression
from dragoman.snapshot.pools import SeenDevice
from tests.allocate.shortforms import DRIVER, claim, device, resource_slice, search_requests, wants


def seen(**attrs: Any) -> SeenDevice:
    (request,) = search_requests([resource_slice([device("d", attrs=attrs)])], claim(wants()))
    return request.alternatives[0].candidates[0].device_state.seen


def selector(text: str, index: int = 0) -> RequestSelector:
    compiled = compile_text(text)
    assert not isinstance(compiled, str), compiled
    return RequestSelector("", index, text, compiled)


def derived(text: str) -> Derived:
    compiled = compile_derived(text)
    assert isinstance(compiled, Expression), compiled
    return Derived("e.com/d", text, compiled)


OF = f"device.attributes['{DRIVER}']"

MANY = list(range(30))
COSTLY_TEXT = f"{OF}.x == 1 && {MANY}.all(a, {MANY}.all(b, a + b < 1000))"


def test_the_first_selector_that_is_not_true_decides() -> None:
    good, false, fails = selector(f"{OF}.x == 1"), selector(f"{OF}.x == 2", 1), selector(f"{OF}.y == 1", 2)
    matcher, found = Matcher(), seen(x=1)
    assert matcher.passes((good,), found) is True
    assert matcher.passes((good, false, fails), found) is false
    failure = matcher.passes((good, fails, false), found)
    assert isinstance(failure, Failure)
    assert failure.selector is fails
    assert failure.missing == f"{DRIVER}/y"


def test_a_text_that_does_not_compile_is_its_message() -> None:
    assert "double" in str(compile_derived("1.5"))
    assert "Syntax error" in str(compile_text("device."))
    assert "int" in str(compile_text("1"))


VALUES: dict[str, tuple[str, bool, Any]] = {
    "a number": ("7", False, {("int", 7)}),
    "a bool is no number": ("true", False, {("bool", True)}),
    "a text of the device": (f"{OF}.model", False, {("string", "a100")}),
    "a version": ("semver('1.2.3')", False, {("version", "1.2.3")}),
    "a list, with the gate on": ("['a', 'b', 'a']", True, {("string", "a"), ("string", "b")}),
    "a list, with the gate off": ("['a']", False, None),
    "an empty list": ("[]", True, None),
    "a list of several kinds": ("[dyn(1), dyn('a')]", True, None),
    "an attribute that is not there": (f"{OF}.nothing", False, "nothing"),
}


@pytest.mark.parametrize("case", VALUES)
def test_derived_attributes(case: str) -> None:
    text, lists, expected = VALUES[case]
    found = Matcher().derive(derived(text), seen(model="a100"), lists=lists)
    if isinstance(expected, set):
        assert found == expected
    else:
        assert isinstance(found, Failure)
        assert found.missing == (expected or "")


def test_a_costly_selector_is_evaluated_once_a_device() -> None:
    """The memo goes by the device, so that two of the same name in different snapshots are not mixed up."""
    costly = selector(COSTLY_TEXT)
    assert costly.compiled.max_cost > COSTLY
    matcher = Matcher()
    spent: list[int] = []
    matcher.check = spent.append
    one, other = seen(x=1), seen(x=2)
    assert matcher.passes((costly,), one) is True
    first = len(spent)
    assert matcher.passes((costly,), one) is True
    assert len(spent) == first, "known"
    assert matcher.passes((costly,), other) is costly


def test_time_is_checked_while_cheap_selectors_add_up() -> None:
    calls: list[int] = []
    matcher = Matcher(calls.append)
    cheap, found = selector("true"), seen(x=1)
    for _ in range(CHECK_EVERY // 100 + 1):
        matcher.passes((cheap,), found)
    assert calls


def test_one_for_another_thread_knows_what_the_first_found_out() -> None:
    matcher, found = Matcher(), seen(x=1)
    costly = selector(COSTLY_TEXT)
    matcher.passes((costly,), found)
    beside = matcher.beside()
    spent: list[int] = []
    beside.check = spent.append
    assert beside.passes((costly,), found) is True
    assert spent == []
