"""What is refused, and what fails: texts, positions, carets, and which operators absorb errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.cel.expression import checked, compile_expression
from dragoman.cel.faults import CompileError, EvalError, NoSuchKey
from dragoman.cel.lex import tokens_of
from dragoman.cel.parse import parse

from .conftest import LANGUAGE, STRICT

Run = Callable[[str], Any]

# text -> (offset counted from 1 in the first line, a part of the message)
REFUSED: dict[str, tuple[int, str]] = {
    "?!": (1, "Syntax error: unexpected '?'"),
    "": (1, "Syntax error: unexpected '<EOF>'"),
    "1 +": (4, "Syntax error: unexpected '<EOF>'"),
    "(1": (3, "Syntax error: unexpected '<EOF>', expecting ')'"),
    "1 1": (3, "Syntax error: unexpected '1'"),
    "[1, ": (5, "Syntax error"),
    "f(1,)": (5, "Syntax error"),
    "'abc": (1, "Syntax error: token recognition error"),
    "'a\nb'": (1, "Syntax error: token recognition error"),
    r"'\q'": (1, "invalid escape sequence"),
    r"'\ud800'": (1, "invalid unicode code point"),
    "#": (1, "token recognition error at: '#'"),
    "9223372036854775808": (1, "invalid int literal"),
    "18446744073709551616u": (1, "invalid uint literal"),
    "package": (1, "reserved identifier: package"),
    "a.in": (3, "Syntax error"),
    "nope": (1, "undeclared reference to 'nope' (in container '')"),
    "1 + nope.x": (5, "undeclared reference to 'nope'"),
    "nope(1)": (5, "undeclared reference to 'nope'"),
    "s.nope()": (7, "undeclared reference to 'nope'"),
    "1 + 'a'": (3, "found no matching overload for '_+_' applied to '(int, string)'"),
    "1 == 'a'": (3, "found no matching overload for '_==_' applied to '(int, string)'"),
    "1 == 1.0": (3, "found no matching overload for '_==_' applied to '(int, double)'"),
    "1 && true": (1, "expected type 'bool' but found 'int'"),
    "s.startsWith(1)": (13, "found no matching overload for 'startsWith' applied to 'string.(int)'"),
    "s.field": (2, "type 'string' does not support field selection"),
    "s.all(x, true)": (1, "expression of type 'string' cannot be range of a comprehension"),
    "[1].all(x.y, true)": (10, "argument must be a simple name"),
    "[1].all(x, x, true)": (12, "duplicate variable name: x"),
    "has(s)": (5, "invalid argument to has() macro"),
    "Nope{a: 1}": (5, "undeclared reference to 'Nope'"),
    "true ? 1 : 'a'": (6, "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
    "'a'.reverse()": (12, "found no matching overload for 'reverse'"),
}


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_refuses_with_position(text: str) -> None:
    with pytest.raises(CompileError) as refused:
        checked(text, LANGUAGE)
    column, message = REFUSED[text]
    issue = refused.value.issues[0]
    assert message in issue.message
    assert issue.offset + 1 == column


def test_shows_the_line_with_a_caret_below() -> None:
    with pytest.raises(CompileError) as refused:
        checked("n > 1 &&\n  s == 5", LANGUAGE)
    assert str(refused.value).split("\n") == [
        "ERROR: <input>:2:5: found no matching overload for '_==_' applied to '(string, int)'",
        " |   s == 5",
        " | ....^",
    ]
    assert refused.value.issues[0].line_and_column(refused.value.text) == (2, 5)


def test_reports_all_problems_in_order() -> None:
    with pytest.raises(CompileError) as refused:
        checked("nope && 1 + 'a' > 2", LANGUAGE)
    assert [issue.offset for issue in refused.value.issues] == [0, 10]


STRICTLY_REFUSED: dict[str, tuple[int, str]] = {
    "[1, 'a'].size() == 2": (5, "expected type 'int' but found 'string'"),
    "{'a': 1, 'b': 'c'}.size() == 2": (15, "expected type 'int' but found 'string'"),
    "{'a': 1, 2: 3}.size() == 2": (10, "expected type 'string' but found 'int'"),
    "[1, dyn(2)].size() == 2": (8, "expected type 'int' but found 'dyn'"),
    "s.matches('(')": (11, "invalid matches argument"),
    "duration('x') == duration('1s')": (10, "invalid duration argument"),
    "timestamp('x') == timestamp(0)": (11, "invalid timestamp argument"),
    "int('a') == 1": (4, "type conversion error from 'string' to 'int'"),
    "s.find('(') == ''": (8, "error parsing regexp"),
    "'%d'.format(['a']) == ''": (14, "decimal clause can only be used on integers, was given string"),
    "'%d'.format([]) == ''": (12, "index 0 out of range"),
    "''.format([1]) == ''": (10, "too many arguments supplied to string.format (expected 0, got 1)"),
    "'%y'.format([1]) == ''": (12, 'unrecognized formatting clause "y"'),
}


@pytest.mark.parametrize("text", STRICTLY_REFUSED, ids=repr)
def test_kubernetes_refuses_what_cannot_be_meant(text: str) -> None:
    checked(text, LANGUAGE)
    with pytest.raises(CompileError) as refused:
        checked(text, STRICT)
    column, message = STRICTLY_REFUSED[text]
    assert message in refused.value.issues[0].message
    assert refused.value.issues[0].offset + 1 == column


def test_a_formatted_list_may_be_mixed() -> None:
    checked("'%s %d'.format(['a', 1]) == 'a 1'", STRICT)


FAILING: dict[str, tuple[int, str]] = {
    "m.two == 1": (2, "no such key: two"),
    "m['two'] == 1": (2, "no such key: two"),
    "{1: 2}[3] == 1": (7, "no such key: 3"),
    "[1][n] == 1": (4, "index out of bounds: 7"),
    "n / 0 == 1": (3, "division by zero"),
    "n % 0 == 1": (3, "modulus by zero"),
    "n + 9223372036854775807 == 1": (3, "integer overflow"),
    "1u - uint(n) == 1u": (4, "unsigned integer overflow"),
    "n * 9223372036854775807 == 1": (3, "integer overflow"),
    "dyn(s) > 1": (8, "no such overload"),
    "dyn(s) + 1 == 1": (8, "no such overload"),
    "dyn(n).startsWith('a')": (18, "no such overload"),
    "1 in dyn(s)": (3, "no such overload"),
    "dyn(n).all(x, x > 1)": (11, "got 'types.Int', expected iterable type"),
    "dyn(n).all(i, v, v > 1)": (11, "unsupported comprehension range type: types.Int"),
    "quantity(s) == quantity('1')": (9, "quantities must match the regular expression"),
    "semver(s) == semver('1.0.0')": (7, "a version has the form"),
    "dyn(quantity('1')) == 1": (20, "no such overload"),
    "dyn(semver('1.0.0')) == '1.0.0'": (22, "no such overload"),
    "optional.none().value() == 1": (22, "optional.none() dereference"),
    "s.substring(9) == ''": (12, "index out of range: 9"),
    "[1, 2].slice(1, 5) == []": (13, "cannot slice(1, 5), list is length 2"),
    "[n].filter(x, false).max() == 1": (25, "max called on empty list"),
    "lists.range(0 - n) == []": (12, "size must be non-negative"),
    "duration(s) == duration('1s')": (9, "type conversion error"),
    "int(s) == 1": (4, "type conversion error from 'string' to 'int'"),
    "s.matches(s + '(')": (10, "error parsing regexp"),
    "ip(s).family() == 4": (3, "IP Address 'fish' parse error"),
    "ip('::ffff:1.2.3.4').family() == 4": (3, "is not allowed"),
    "cidr(s).prefixLength() == 4": (5, "network address parse error"),
    "url(s).getHost() == ''": (4, "invalid URI for request"),
    "0.0 / 0.0 < 1.0": (11, "NaN values cannot be ordered"),
    "timestamp('9999-12-31T23:59:59Z') + duration('1s') == timestamp(0)": (35, "out of range"),
    "(d ? 1 : 2) == 1": (4, "no such overload"),
    "d && true": (3, "no such overload"),
}


@pytest.mark.parametrize("text", FAILING, ids=repr)
def test_fails_with_position(run: Run, text: str) -> None:
    with pytest.raises(EvalError) as failed:
        run(text)
    column, message = FAILING[text]
    assert message in failed.value.message
    assert failed.value.offset + 1 == column


def test_a_missing_key_says_what_there_is(run: Run) -> None:
    with pytest.raises(NoSuchKey) as failed:
        run("m.onee == 1")
    assert failed.value.key == "onee"
    assert failed.value.known == ("one", "text", "yes", "list")


ABSORBED: dict[str, bool] = {
    "m.two == 1 || true": True,
    "true || m.two == 1": True,
    "m.two == 1 && false": False,
    "false && m.two == 1": False,
    "m.two == 1 || m.three == 1 || n == 7": True,
    "m.two == 1 && m.three == 1 && n == 8": False,
    "[0, 1].exists(x, 1 / x == 1)": True,
    "[0, 1].all(x, 1 / x == 2)": False,
    "dyn(quantity('1')) != 1": True,
    "dyn(1) == quantity('1')": False,
    "dyn([quantity('1')]) == dyn([1])": True,
    "dyn(1) in [quantity('1')]": False,
    "!has(m.two) || m.two == 1": True,
}


@pytest.mark.parametrize("text", ABSORBED)
def test_the_other_side_can_decide_beside_an_error(run: Run, text: str) -> None:
    assert run(text) is ABSORBED[text]


@pytest.mark.parametrize(
    "text",
    [
        "m.two == 1 || false",
        "false || m.two == 1",
        "m.two == 1 && true",
        "!(m.two == 1)",
        "m.two == 1 ? true : true",
        "[0, 1].exists_one(x, 1 / x == 1)",
        "[0, 1].map(x, 1 / x).size() == 2",
        "[0, 1].filter(x, 1 / x == 1).size() == 1",
        "[0, 2].exists(x, 1 / x == 1)",
    ],
)
def test_everything_else_hands_errors_on(run: Run, text: str) -> None:
    with pytest.raises(EvalError):
        run(text)


@pytest.mark.slow
def test_250_levels_are_understood_and_more_are_refused() -> None:
    for opening, inside, closing in (("(", "true", ")"), ("[", "", "]"), ("dyn(", "1", ")"), ("!(", "true", ")")):
        compile_expression(opening * 240 + inside + closing * 240, LANGUAGE)
    compile_expression("!" * 3000 + "true", LANGUAGE)
    sums = compile_expression("+".join(["1"] * 240) + " == 240", LANGUAGE)
    assert sums.program(*[None] * 4) is True
    for deeper in ("(" * 251 + "true" + ")" * 251, "+".join(["1"] * 252) + " == 1", "m" + ".x" * 251):
        with pytest.raises(CompileError, match="recursion limit exceeded: 250"):
            parse(deeper)


def test_chains_of_and_and_or_have_no_depth() -> None:
    long = compile_expression(" && ".join(["n == 7"] * 1500), LANGUAGE)
    assert long.program({}, None, 7, "") is True
    assert compile_expression(" || ".join(["n == 8"] * 1500), LANGUAGE).program({}, None, 7, "") is False


def test_a_text_beyond_100_000_characters_is_refused() -> None:
    with pytest.raises(CompileError, match="code point size exceeds limit"):
        tokens_of("1" + " " * 100_000)
