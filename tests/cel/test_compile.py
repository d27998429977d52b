"""What a compiled expression does when it runs, what it has done before, and what it never does."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.cel import types as t
from dragoman.cel.environment import Environment
from dragoman.cel.expression import compile_expression, compile_unchecked
from dragoman.cel.faults import EvalError, NoSuchOverload
from dragoman.cel.functions import free
from dragoman.cel.stdlib.library import FUNCTIONS

CALLS: list[int] = []


def _noted(value: int) -> int:
    CALLS.append(value)
    return value


VARIABLES = {"n": t.INT, "l": t.list_of(t.INT), "d": t.DYN}
WITHIN = Environment(VARIABLES, {**FUNCTIONS, "noted": (free("noted", "noted_int", (t.INT,), t.INT, _noted),)})


def run(text: str, n: int = 1, items: tuple[int, ...] = (1, 2, 3), d: Any = None) -> Any:
    program = compile_expression(text, WITHIN).program
    CALLS.clear()
    return program(n, items, d)


VALUES: dict[str, Any] = {
    "n + noted(n)": 2,
    "l.map(x, l.map(y, x * y))": ((1, 2, 3), (2, 4, 6), (3, 6, 9)),
    "l.all(n, n > 0) && n == 1": True,
    "l.exists_one(x, x == 2)": True,
    "l.map(x, x > 1, x * 10)": (20, 30),
    "cel.bind(x, n + 1, cel.bind(n, x * 10, n + x))": 22,
    "cel.bind(x, l, x.filter(x, x > 2))": (3,),
    "{'a': n, 'b': [n]}": {"a": 1, "b": (1,)},
    "[n, ?optional.none(), ?optional.of(2)]": (1, 2),
    "2 in [1, 2]": True,
    "d in []": False,
}


@pytest.mark.parametrize("text", VALUES, ids=repr)
def test_values(text: str) -> None:
    assert run(text) == VALUES[text]


CALLED: dict[str, list[int]] = {
    "n == 2 && noted(1) == 1": [],
    "n == 1 || noted(1 + n) == 1": [],
    "n == 1 ? noted(n) : noted(n + 1)": [1],
    "cel.bind(x, noted(n), x + x + x)": [1],
    "cel.bind(x, noted(n), 3)": [],
    "l.exists(x, noted(x) == 2)": [1, 2],
    "l.all(x, noted(x) < 2)": [1, 2],
    "l.map(x, noted(x))": [1, 2, 3],
    "noted(n) in []": [],
}


@pytest.mark.parametrize("text", CALLED, ids=repr)
def test_what_decides_nothing_is_not_evaluated(text: str) -> None:
    run(text)
    assert CALLED[text] == CALLS


def test_a_program_keeps_nothing_from_one_run_to_the_next() -> None:
    program = compile_expression("cel.bind(x, n * 2, l.map(y, y + x))", WITHIN).program
    assert program(1, (1, 2), None) == (3, 4)
    assert program(10, (1,), None) == (21,)


def test_an_error_has_the_place_of_what_failed() -> None:
    with pytest.raises(EvalError) as failed:
        run("n + 1 / (n - 1)")
    assert failed.value.offset == 6
    with pytest.raises(EvalError) as missing:
        run("n > 0 && d.x.y == 1", d={"x": {}})
    assert missing.value.offset == 12
    assert run("d.x.y == 1 || n == 1", d={}) is True, "the other side decides"


def test_unchecked_expressions_fail_when_they_run() -> None:
    program = compile_unchecked("n + 'x'", WITHIN).program
    with pytest.raises(NoSuchOverload):
        program(1, (), None)


def test_a_constant_that_fails_does_so_only_where_it_is_reached() -> None:
    assert run("n == 1 || 1 / 0 == 1") is True
    with pytest.raises(EvalError, match="divi"):
        run("n == 2 || 1 / 0 == 1")
