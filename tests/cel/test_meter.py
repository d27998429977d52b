"""Nothing that fits in 10 KiB keeps the engine busy for long or fills the memory: the ceilings, and what meets them."""

from __future__ import annotations

import pytest

from dragoman.cel.expression import checked, compile_expression
from dragoman.cel.faults import CompileError, EvalError

from .conftest import LANGUAGE, VALUES


def doubled(first: str, step: str, last: str, times: int) -> str:
    """Binds x0, then x1 made of x0 twice, and so on; step has {0} for the name before."""
    text = last.format(f"x{times}")
    for n in range(times, 0, -1):
        text = f"cel.bind(x{n}, {step.format(f'x{n - 1}')}, {text})"
    return f"cel.bind(x0, {first}, {text})"


def run(text: str) -> object:
    return compile_expression(text, LANGUAGE).program(*VALUES.values())


STOPPED = {
    "lists": (doubled("[n, n]", "{0} + {0}", "{0}.size() == 1", 60), "exceeds the limit of 1000000"),
    "strings": (doubled("s", "{0} + {0}", "{0}.size() == 1", 60), "exceeds the limit of 1000000"),
    "bytes": (doubled("bytes(s)", "{0} + {0}", "{0}.size() == 1", 60), "exceeds the limit of 1000000"),
    "replacements": (doubled("s", "{0}.replace('', {0})", "{0}.size() == 1", 8), "exceeds the limit of 1000000"),
    "joined lists": (doubled("s", "[{0}, {0}].join({0})", "{0}.size() == 1", 40), "exceeds the limit of 1000000"),
    "formatted lists": (doubled("dyn([n])", "dyn([{0}, {0}])", "'%s'.format([{0}]) == ''", 60), "exceeds the limit"),
    "flattened lists": (doubled("dyn([])", "dyn([{0}, {0}])", "{0}.flatten(100).size() == 1", 60), "exceeds the limit"),
    "a range": ("lists.range(n * 1000000).size() == 1", "exceeds maximum allowed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STOPPED, ids=str)
def test_what_grows_is_stopped(case: str) -> None:
    text, message = STOPPED[case]
    assert len(text) <= 10 * 1024
    with pytest.raises(EvalError, match=message):
        run(text)


def test_lists_that_hold_a_list_twice_are_compared_in_no_time() -> None:
    nested = doubled("dyn([n])", "dyn([{0}, {0}])", "{0}", 60)
    assert run(f"{nested} == {nested}") is True
    assert run(f"[{nested}].indexOf({nested}) == 0") is True


def test_a_type_that_holds_another_twice_is_refused() -> None:
    with pytest.raises(CompileError, match="a type in the expression has more than 1000 parts"):
        checked(doubled("{1: 2}", "{{{0}: {0}}}", "{0} == {0}", 60), LANGUAGE)


ABSURD = {
    "a long int": ("9" * 9000 + " == 1", "invalid int literal"),
    "a long uint": ("9" * 9000 + "u == 1u", "invalid uint literal"),
    "a huge double": ("1e999 == 1.0", "invalid double literal"),
    "a long hexadecimal int": ("0x" + "f" * 9000 + " == 1", "invalid int literal"),
}


@pytest.mark.parametrize("case", ABSURD, ids=str)
def test_absurd_literals_are_refused(case: str) -> None:
    text, message = ABSURD[case]
    with pytest.raises(CompileError, match=message):
        checked(text, LANGUAGE)


LONG = "9" * 9000
FAILING = {
    "an int": f"int(s + '{LONG}') == 1",
    "a duration": f"duration(dyn('{LONG}h')) == duration('1s')",
    "a quantity": f"quantity('{LONG}') == quantity('1')",
    "a version": f"semver('{LONG}.0.0') == semver('1.0.0')",
    "a network": f"cidr('10.0.0.0/{LONG}') == cidr('10.0.0.0/8')",
    "a timestamp": f"timestamp(dyn('{LONG}-01-01T00:00:00Z')) == timestamp(0)",
    "a double": f"double('{LONG}') == 1.0",
}


@pytest.mark.parametrize("case", FAILING, ids=str)
def test_absurd_texts_are_errors_like_any_other(case: str) -> None:
    with pytest.raises(EvalError):
        run(FAILING[case])
