"""Laws of the engine: two ways of evaluating agree, the estimate is an upper bound, and Google's runtime agrees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.cel.estimate import estimate
from dragoman.cel.expression import checked, compile_expression
from dragoman.cel.faults import CompileError, EvalError
from dragoman.cel.meter import Meter, Plan
from dragoman.cel.parse import parse
from dragoman.cel.values import Uint

from .conftest import LANGUAGE, VALUES

INTS = st.sampled_from(["0", "1", "2", "-3", "n", "9223372036854775807", "size(s)", "s.size()"])
STRINGS = st.sampled_from(["'a'", "'fish'", "''", "s", "'☺é'", "'a,b'"])
DOUBLES = st.sampled_from(["0.0", "1.5", "-2.0", "1e300", "double(n)"])
BOOLS = st.sampled_from(["true", "false", "n == 7", "s == 'fish'"])


def _ints(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("({} > 1 ? {} : {})".format, inner, inner, inner),
        st.builds("[{}, {}][{}]".format, inner, inner, inner),
        st.builds("int({})".format, inner),
        st.builds("{{'a': {}}}.a".format, inner),
        st.builds("[{}, {}].map(x, x * 2).size()".format, inner, inner),
        st.builds("[{}, {}].filter(x, x > {})[0]".format, inner, inner, inner),
    )


INT_EXPRESSIONS = st.recursive(INTS, _ints, max_leaves=6)
STRING_EXPRESSIONS = st.recursive(
    STRINGS,
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("(n > 1 ? {} : {})".format, inner, inner),
        st.builds("[{}, {}][{}]".format, inner, inner, INTS),
        st.builds("string({})".format, INT_EXPRESSIONS),
    ),
    max_leaves=4,
)
COMPARED = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


def _bools(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("({} {} {})".format, INT_EXPRESSIONS, COMPARED, INT_EXPRESSIONS),
        st.builds("({} {} {})".format, STRING_EXPRESSIONS, COMPARED, STRING_EXPRESSIONS),
        st.builds("({} {} {})".format, DOUBLES, COMPARED, DOUBLES),
        st.builds("({} in [{}, {}])".format, INT_EXPRESSIONS, INTS, INTS),
        st.builds("{}.contains({})".format, STRING_EXPRESSIONS, STRINGS),
        st.builds("{}.startsWith({})".format, STRING_EXPRESSIONS, STRINGS),
        st.builds("[{}, {}].{}(x, x > {})".format, INTS, INTS, st.sampled_from(["all", "exists", "exists_one"]), INTS),
        st.builds("[{}, {}].{}(x, 1 / x > {})".format, INTS, INTS, st.sampled_from(["all", "exists"]), INTS),
        st.builds("[{}] == [{}]".format, INT_EXPRESSIONS, INT_EXPRESSIONS),
        st.builds("{}.matches('^[a-f]')".format, STRING_EXPRESSIONS),
    )


EXPRESSIONS = st.recursive(BOOLS, _bools, max_leaves=6)


def _outcome(run: Any) -> Any:
    """The value, or that there is none."""
    try:
        return run()
    except EvalError:
        return "an error"


@pytest.mark.slow
@settings(max_examples=300)
@given(EXPRESSIONS)
def test_the_fast_way_and_the_metered_one_agree_within_the_estimate(text: str) -> None:
    expression = compile_expression(text, LANGUAGE)
    meter = Meter(Plan(LANGUAGE), 10**9)
    found = _outcome(lambda: expression.program(*VALUES.values()))
    assert _outcome(lambda: meter.run(checked(text, LANGUAGE), *VALUES.values())) == found
    assert meter.cost <= estimate(expression.tree, lambda _: 64).most + _literals(text)


def _literals(text: str) -> int:
    """Upstream's estimate forgets the step of an index into a literal."""
    return text.count("[") + text.count("{")


@pytest.fixture(scope="module")
def google() -> Any:
    """Google's C++ runtime, where it is installed."""
    cel = pytest.importorskip("cel_expr_python.cel")
    return cel.NewEnv(variables={"n": cel.Type.INT, "s": cel.Type.STRING})


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(text=EXPRESSIONS)
def test_googles_runtime_agrees(google: Any, text: str) -> None:
    peer = google.compile(text).eval(data={"n": VALUES["n"], "s": VALUES["s"]})
    answer = peer.plain_value() if peer.type().name() == "BOOL" else "an error"
    assert _outcome(lambda: compile_expression(text, LANGUAGE).program(*VALUES.values())) == answer


@given(st.text(max_size=40) | st.text("()[]{}.?:,'\"&|!=<>+-*/%abinx0123.u \n", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    refused = _refusal(text)
    if refused is not None:
        assert all(0 <= issue.offset <= len(text) for issue in refused.issues)
        assert str(refused).startswith("ERROR: <input>:")


def _refusal(text: str) -> CompileError | None:
    try:
        parse(text)
    except CompileError as refused:
        return refused
    return None


@given(st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70), st.sampled_from("+-*"), st.booleans())
def test_whole_numbers_are_exact_or_an_error(one: int, two: int, sign: str, unsigned: bool) -> None:
    low, high = (0, 2**64 - 1) if unsigned else (-(2**63), 2**63 - 1)
    one, two = max(low, min(high, one)), max(low, min(high, two))
    exact = {"+": one + two, "-": one - two, "*": one * two}[sign]
    mark = "u" if unsigned else ""
    found = _outcome(lambda: compile_expression(f"{one}{mark} {sign} {two}{mark}", LANGUAGE).program(*VALUES.values()))
    if low <= exact <= high:
        assert found == exact
        assert type(found) is (Uint if unsigned else int)
    else:
        assert found == "an error"
